"""`python -m course_lib doctor`: what it finds; and what the commands say where a package is missing."""

import importlib
import importlib.metadata
import io
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import course_lib
from course_lib.__main__ import main
from course_lib.cli import doctor
from course_lib.grading.page.package import release
from course_lib.grading.page.sealed import NAME

ROOT = Path(__file__).parent.parent


# --------------------------------------------------------------------------------------------------------------- doctor
def test_doctor_finds_this_environment_well(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "MISSING" not in said
    assert "Everything is ready" in said


@pytest.mark.parametrize(
    "package",
    [pytest.param(name, marks=pytest.mark.proof) for name in ("ipywidgets", "jupyterlab_widgets")],
)
def test_doctor_speaks_where_a_package_is_missing(package):
    code = (
        f"import sys; sys.modules[{package!r}] = None\nfrom course_lib.__main__ import main\nsys.exit(main(['doctor']))"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert seen.returncode == 1, seen.stderr
    assert "✗ MISSING" in seen.stdout
    assert "pip install" in seen.stdout
    assert "to fix" in seen.stdout


def test_help_waits_for_no_package():
    heavy = ("torch", "numpy", "matplotlib", "nbformat", "tqdm", "IPython")
    code = (
        "import sys\nfrom course_lib.__main__ import build_parser\nbuild_parser().format_help()\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert seen.stdout.strip() == "[]"


def without(package, *command, cwd=ROOT, setup="", **environment):
    """The command in a fresh process in which a package cannot be imported."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n{setup}\n"
        f"from course_lib.__main__ import main\nsys.exit(main({list(command)!r}))"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, env=os.environ | environment
    )


def test_the_version_is_told_without_torch_and_is_the_installed_one():
    seen = without("torch", "--version")
    assert (seen.returncode, seen.stdout) == (0, f"course_lib {course_lib.__version__}\n"), seen.stderr
    assert re.fullmatch(r"\d+\.\d+\.\d+", course_lib.__version__)
    installed = importlib.metadata.version("transformers-measured")
    assert installed == course_lib.__version__, "install again: .venv/bin/python -m pip install -e ."


def test_without_torch_the_doctor_blames_torch_and_nothing_that_only_needs_it():
    seen = without("torch", "doctor")
    said = seen.stdout
    assert seen.returncode == 1, seen.stderr
    assert "✗ MISSING" in said
    assert "pip install" in said
    missing = [line.split()[2] for line in said.splitlines() if line.startswith("✗")]
    assert missing == ["torch"], said
    assert re.search(r"^– unknown Tinytown model +not checked: it needs torch$", said, flags=re.M), said
    assert re.search(r"^– unknown exercises +not checked: it needs torch$", said, flags=re.M), said
    assert re.search(r"^✓ ok +progress file", said, flags=re.M), said
    assert re.search(
        r"^✗ MISSING torch +not installed in this environment\n +→ run `python -m pip", said, flags=re.M
    ), said
    assert "not whole" not in said
    assert said.splitlines()[-1].startswith("1 problem to fix"), said


@pytest.mark.proof
def test_a_package_that_only_the_model_needs_is_blamed_by_its_name():
    said = without("jaxtyping", "doctor")
    assert said.returncode == 1
    assert re.search(r"^✗ MISSING jaxtyping .*\n +→ .*pip install", said.stdout, flags=re.M), said.stdout
    assert re.search(r"^– unknown Tinytown model +not checked: it needs jaxtyping$", said.stdout, flags=re.M)
    assert said.stdout.endswith("\n1 problem to fix, in this order.\n")
    assert "not whole" not in said.stdout
    assert "Everything is ready" not in said.stdout


def test_the_doctor_blames_the_assets_where_they_are_to_blame(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("course_lib.pretrained.ASSETS", tmp_path)
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert [line.split()[2] for line in said.splitlines() if line.startswith("✗")] == ["Tinytown"]
    assert "course_lib/assets is incomplete" in said


@pytest.mark.proof
def test_the_doctor_says_each_line_as_soon_as_it_knows_it(monkeypatch):
    """In a pipe that nobody empties for it: what it said before torch is there while torch is still being imported."""
    code = (
        "import importlib, sys\n"
        "from course_lib.__main__ import main\n"
        "real = importlib.import_module\n"
        "def slow(name, *rest, **others):\n"
        "    if name == 'torch':\n"
        "        sys.stderr.write('importing torch\\n'); sys.stderr.flush(); sys.stdin.readline()\n"
        "    return real(name, *rest, **others)\n"
        "importlib.import_module = slow\n"
        "sys.exit(main(['doctor']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stderr.readline() == b"importing torch\n"
        os.set_blocking(process.stdout.fileno(), False)
        so_far = process.stdout.read() or b""
        os.set_blocking(process.stdout.fileno(), True)
        rest, _ = process.communicate(b"\n")
    assert re.search("✓ ok +Python", so_far.decode()), so_far
    assert process.returncode == 0
    assert "Everything is ready" in rest.decode()


def test_the_doctor_announces_on_a_terminal_what_may_take_a_while(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    said = Terminal()
    monkeypatch.setattr(sys, "stdout", said)
    assert main(["doctor"]) == 0
    assert re.search(r"… +torch +\r✓ ok +torch", said.getvalue())
    assert not [line for line in said.getvalue().splitlines() if line.startswith("…") and not line.strip("… ")]


@pytest.mark.proof
def test_an_installation_without_notebooks_is_not_told_to_open_one(tmp_path):
    """As a wheel installs it: the library alone, in a folder of packages. On a console that knows no signs."""
    shutil.copytree(
        ROOT / "course_lib", tmp_path / "packages" / "course_lib", ignore=shutil.ignore_patterns("__pycache__")
    )
    at = f"sys.path.insert(0, {str(tmp_path / 'packages')!r})"
    well = without("nothing_that_exists", "doctor", cwd=tmp_path, setup=at, PYTHONIOENCODING="ascii")
    assert well.returncode == 0, well.stderr + well.stdout
    assert "Everything is ready" in well.stdout
    assert "torch" in well.stdout
    assert "00_start_here" not in well.stdout
    ill = without("matplotlib", "doctor", cwd=tmp_path, setup=at).stdout
    assert "requirements.txt" not in ill
    assert 'python -m pip install "transformers-measured[notebooks]"' in ill


# ------------------------------------------------------------------------------------- other machines, other faults
@pytest.fixture
def found(monkeypatch):
    """What the doctor finds, by name, where importing the named packages raises what is given."""
    real = importlib.import_module

    def examine(**broken: Exception) -> dict[str, doctor.Finding]:
        def load(name, *rest):
            if name in broken:
                raise broken[name]
            return real(name, *rest)

        monkeypatch.setattr(doctor.importlib, "import_module", load)
        return {each.name: each for each in doctor.examine()}

    return examine


def test_a_library_that_windows_cannot_load_is_not_called_missing(found, monkeypatch):
    monkeypatch.setattr(doctor.platform, "system", lambda: "Windows")
    seen = found(torch=OSError("[WinError 126] The specified module could not be found: c10.dll"))
    assert seen["torch"].sign == "✗ PROBLEM"
    assert "installed, but cannot be loaded: OSError: [WinError 126]" in seen["torch"].seen
    assert seen["torch"].remedy.startswith("install Microsoft's Visual C++ Redistributable")
    assert (seen["Tinytown model"].well, seen["progress file"].well) == (None, True)
    assert [name for name, each in seen.items() if each.well is False] == ["torch"]


@pytest.mark.parametrize("system", ["Windows", "Darwin", "Linux"])
def test_what_only_grading_a_class_needs_is_a_note_and_nothing_to_mend(found, monkeypatch, system, capsys):
    monkeypatch.setattr(doctor.platform, "system", lambda: system)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    seen = found()
    assert seen["grading a class"].sign == "• note   "
    assert "docker" in seen["grading a class"].seen
    assert main(["doctor"]) == 0
    assert "Everything is ready" in capsys.readouterr().out


def test_a_package_that_is_there_and_lacks_another_is_told_from_one_that_is_missing(found):
    seen = found(matplotlib=ModuleNotFoundError("No module named 'kiwisolver'", name="kiwisolver"))
    assert seen["matplotlib"].sign == "✗ PROBLEM"
    assert "kiwisolver" in seen["matplotlib"].seen
    seen = found(matplotlib=ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib"))
    assert seen["matplotlib"].sign == "✗ MISSING"


def test_a_version_that_the_course_does_not_take_is_the_cause_and_what_needs_it_is_not_blamed(found, monkeypatch):
    import tokenizers

    monkeypatch.setattr(tokenizers, "__version__", "0.10.3")
    seen = found()
    assert seen["tokenizers"].seen.startswith("0.10.3, but the course needs ")
    assert "pip install" in seen["tokenizers"].remedy
    assert [name for name, each in seen.items() if each.well is False] == ["tokenizers"]
    assert seen["Tinytown model"].seen == "not checked: it needs tokenizers"


def test_whoever_runs_another_python_than_the_courses_own_is_told_that(found, monkeypatch, tmp_path):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "pyvenv.cfg").touch()
    monkeypatch.setattr(doctor, "COURSE", tmp_path)
    seen = found(torch=ModuleNotFoundError("No module named 'torch'", name="torch"))
    assert seen["torch"].remedy.startswith(f"this is a different Python, {sys.executable}: run the course's own")
    assert str(tmp_path / ".venv" / "bin" / "python") in seen["torch"].remedy


def test_the_doctor_needs_no_network(capsys, monkeypatch):
    def refuse(*_):
        raise AssertionError("the doctor asked for something on a network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert main(["doctor"]) == 0
    assert "Everything is ready" in capsys.readouterr().out


def test_an_old_python_is_told_before_anything_that_it_cannot_import():
    code = (
        "import runpy, sys\nsys.version_info = (3, 10, 13)\nsys.modules['tomllib'] = None\n"
        "sys.argv = ['course_lib', 'doctor']\nrunpy.run_module('course_lib', run_name='__main__')"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert seen.returncode == 1
    assert seen.stderr.startswith("The course needs Python 3.11 or newer")
    assert "Traceback" not in seen.stderr


@pytest.mark.proof
def test_in_a_learners_package_the_doctor_looks_at_its_own_exercises(tmp_path):
    """Of which half is missing here, and nothing else."""
    release(ROOT, tmp_path / "package", [0, 1, 2])
    sealed = tmp_path / "package/course_lib/chapters" / NAME
    sealed.write_bytes(sealed.read_bytes()[:1000])
    seen = without("nothing_that_exists", "doctor", cwd=tmp_path / "package")
    assert seen.returncode == 1, seen.stderr + seen.stdout
    assert [line.split()[2] for line in seen.stdout.splitlines() if line.startswith("✗")] == ["exercises"]
    assert re.search(r"^• note +the course +a learner's package with chapters 0–2$", seen.stdout, flags=re.M)
    assert "grading a class" not in seen.stdout


def test_the_doctor_needs_no_console(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["doctor"]) == 0
