"""The command line, and the notebooks' machinery behind it, on small notebooks made here."""

import contextlib
import importlib.metadata
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import course_lib
from course_lib.__main__ import COMMANDS, main
from course_lib.contents import BY_SLUG, TABLE_BEGIN, TABLE_END, readme
from course_lib.grading import EXERCISES, notebook
from course_lib.grading.notebook import exercise_text
from course_lib.grading.release import release
from course_lib.grading.sealed import NAME
from tests.small_class import needs_bwrap

ROOT = Path(__file__).parent.parent


def write(path, *sources, tags=()):
    cells = [new_code_cell(source, metadata={"tags": list(tags)}) for source in sources]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)
    return path


# --------------------------------------------------------------------------------------------------------------- doctor
def test_doctor_finds_this_environment_well(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "MISSING" not in said
    assert "All is well" in said


@pytest.mark.parametrize(
    "package", ["torch", "ipywidgets", pytest.param("jupyterlab_widgets", marks=pytest.mark.proof)]
)
def test_doctor_speaks_where_a_package_is_missing(package):
    code = (
        f"import sys; sys.modules[{package!r}] = None\nfrom course_lib.__main__ import main\nsys.exit(main(['doctor']))"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert seen.returncode == 1, seen.stderr
    assert "✗ MISSING" in seen.stdout
    assert "pip install" in seen.stdout
    assert "to mend" in seen.stdout


@pytest.mark.parametrize("command", [[], *([module.__name__.rpartition(".")[2]] for module in COMMANDS)], ids=" ".join)
def test_help_is_there(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert len(capsys.readouterr().out.split()) > 20


def test_help_waits_for_no_package():
    heavy = ("torch", "numpy", "matplotlib", "nbformat", "tqdm", "IPython")
    code = (
        "import sys\nfrom course_lib.__main__ import build_parser\nbuild_parser().format_help()\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert seen.stdout.strip() == "[]"


def without(package, *command, cwd=ROOT, setup=""):
    """The command in a fresh process in which a package cannot be imported."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n{setup}\n"
        f"from course_lib.__main__ import main\nsys.exit(main({list(command)!r}))"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd)


def test_the_version_is_told_without_torch_and_is_the_installed_one():
    seen = without("torch", "--version")
    assert (seen.returncode, seen.stdout) == (0, f"course_lib {course_lib.__version__}\n"), seen.stderr
    assert re.fullmatch(r"\d+\.\d+\.\d+", course_lib.__version__)
    installed = importlib.metadata.version("transformers-measured")
    assert installed == course_lib.__version__, "install again: .venv/bin/python -m pip install -e ."


def test_without_torch_the_doctor_blames_torch_and_nothing_that_only_needs_it():
    said = without("torch", "doctor").stdout
    missing = [line.split()[2] for line in said.splitlines() if line.startswith("✗")]
    assert missing == ["torch"], said
    assert re.search(r"^– unknown Tinytown model +not looked at: it needs torch$", said, flags=re.M), said
    assert re.search(r"^– unknown progress file +not looked at: it needs torch$", said, flags=re.M), said
    assert "not whole" not in said
    assert said.splitlines()[-1].startswith("1 to mend"), said


def test_a_package_that_only_the_model_needs_is_blamed_by_its_name():
    said = without("jaxtyping", "doctor")
    assert said.returncode == 1
    assert re.search(r"^✗ MISSING jaxtyping .*\n +→ .*pip install", said.stdout, flags=re.M), said.stdout
    assert re.search(r"^– unknown Tinytown model +not looked at: it needs jaxtyping$", said.stdout, flags=re.M)
    assert said.stdout.endswith("\n1 to mend, in this order.\n")
    assert "not whole" not in said.stdout
    assert "All is well" not in said.stdout


def test_the_doctor_blames_the_assets_where_they_are_to_blame(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("course_lib.pretrained.ASSETS", tmp_path)
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert [line.split()[2] for line in said.splitlines() if line.startswith("✗")] == ["Tinytown"]
    assert "course_lib/assets is not whole" in said


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
    assert re.search("✓ well +Python", so_far.decode()), so_far
    assert process.returncode == 0
    assert "All is well" in rest.decode()


def test_the_doctor_announces_on_a_terminal_what_may_take_a_while(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    said = Terminal()
    monkeypatch.setattr(sys, "stdout", said)
    assert main(["doctor"]) == 0
    assert re.search(r"… +torch +\r✓ well +torch", said.getvalue())
    assert not [line for line in said.getvalue().splitlines() if line.startswith("…") and not line.strip("… ")]


@pytest.mark.proof
def test_an_installation_without_notebooks_is_not_told_to_open_one(tmp_path):
    """As a wheel installs it: the library alone, in a folder of packages."""
    shutil.copytree(
        ROOT / "course_lib", tmp_path / "packages" / "course_lib", ignore=shutil.ignore_patterns("__pycache__")
    )
    at = f"sys.path.insert(0, {str(tmp_path / 'packages')!r})"
    well = without("nothing_that_exists", "doctor", cwd=tmp_path, setup=at)
    assert well.returncode == 0, well.stderr + well.stdout
    assert "All is well" in well.stdout
    assert "00_start_here" not in well.stdout
    ill = without("matplotlib", "doctor", cwd=tmp_path, setup=at).stdout
    assert "requirements.txt" not in ill
    assert "python -m pip install matplotlib" in ill


@pytest.mark.proof
def test_a_console_that_knows_no_signs_is_still_told():
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "course_lib", "doctor"]
    seen = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert seen.returncode == 0, seen.stderr
    assert "All is well" in seen.stdout
    assert "torch" in seen.stdout


# ------------------------------------------------------------------------------------------- files that cannot be used
@pytest.mark.parametrize("model", ["tinytown", "masked"])
@pytest.mark.parametrize("below", [(), ("deeper", "still")])
def test_train_says_in_a_sentence_that_its_folder_cannot_be(model, below, tmp_path, capsys):
    (tmp_path / "taken").touch()
    folder = (tmp_path / "taken").joinpath(*below)
    assert main(["train", model, "--out", str(folder)]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("train: "), said
    assert str(tmp_path / "taken") in said
    assert "--out" in said
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


COMMANDS = {
    "release": ["release", "{taken}/out"],
    "autograder": ["autograder", "{taken}/a.zip", "--chapters", "3"],
    "workflow": ["workflow", "{taken}/a.yml", "--chapters", "3", "--course", "OWNER/NAME@REF"],
    "grade": ["grade", "solutions/02_attention.ipynb", "--sandbox", "none", "--out", "{taken}/out"],
    "weights": ["weights", "tinyshakespeare"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_in_a_sentence_that_a_file_cannot_be(name, tmp_path, capsys, monkeypatch):
    taken = tmp_path / "taken"
    taken.touch()
    monkeypatch.setenv("COURSE_WEIGHTS", str(taken))
    monkeypatch.chdir(ROOT)
    assert main([argument.format(taken=taken) for argument in COMMANDS[name]]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith(f"{name}: "), said
    assert str(taken) in said
    assert re.search(r"name |COURSE_WEIGHTS", said), said


def test_refresh_says_in_a_sentence_what_it_may_not_write(repository, capsys, monkeypatch):
    """An error of the system comes from anywhere below: here from the folder of the exercises, which is a file."""
    write(repository / "solutions" / BY_SLUG["masks"].notebook)
    (repository / "exercises").touch()
    assert main(["refresh", "--exercises-only"]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("refresh: ")
    assert "exercises" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "/a/b"), OSError(28, "No space left")])
def test_an_error_of_the_system_keeps_its_file_and_its_reason(error, capsys, monkeypatch):
    def fail(*arguments):
        raise error

    monkeypatch.setattr("course_lib.grading.release.release", fail)
    assert main(["release", "/a"]) == 2
    said = capsys.readouterr().err
    assert error.strerror in said
    assert (error.filename or "release: No space left") in said
    assert said.count("\n") == 1


def test_a_full_disk_is_named_when_a_model_is_written(tmp_path):
    """A limit on the size of files stands in for the full disk."""
    code = (
        "import resource, signal, sys, torch\n"
        "from pathlib import Path\n"
        "from course_lib.files import save_tensors\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    save_tensors(Path(sys.argv[1]), {'a': torch.zeros(10_000)})\n"
        "except OSError as error:\n    print('told', error.filename)\n"
    )
    path = tmp_path / "model.safetensors"
    seen = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=ROOT)
    assert seen.stdout == f"told {path}\n", seen.stderr
    assert not list(tmp_path.iterdir())


def test_a_reader_that_has_seen_enough_is_no_error():
    """As in `python -m course_lib claims --list | head -1`."""
    with subprocess.Popen(
        [sys.executable, "-m", "course_lib", "claims", "--list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        process.stdout.close()
        said = process.stderr.read().decode()
    assert said == ""


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train", "--steps", "0"], "steps must be a whole number of at least 1, got 0"),
        (["train", "--threads", "0"], "threads must be a whole number of at least 1, got 0"),
        (["train", "--seed", "9" * 30], "seed must be"),
        (["claims", "--threads", "0", "--list"], "threads must be a whole number of at least 1, got 0"),
        (["claims", "--chapter", "99", "--list"], "no claims.*chapter.*99"),
        (["refresh", "--timeout", "0", "--exercises-only"], "timeout must be a whole number of at least 1, got 0"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_before_anything_is_said_or_written(
    command, message, repository, capsys
):
    before = sorted(repository.rglob("*"))
    assert main(command) == 2
    said = capsys.readouterr()
    assert re.search(message, said.err), said.err
    assert said.out == ""
    assert sorted(repository.rglob("*")) == before


def test_train_never_overwrites_a_finished_model(tmp_path, capsys):
    (tmp_path / "figures.json").write_text("{}")
    assert main(["train", "--out", str(tmp_path), "--steps", "1"]) == 2
    assert "holds a trained model already" in capsys.readouterr().err
    assert (tmp_path / "figures.json").read_text() == "{}"


# -------------------------------------------------------------------------------------------------------------- refresh
@pytest.fixture
def repository(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "README.md").write_text(f"# Guide\n{notebook.GUIDE_BEGIN}\n{notebook.GUIDE_END}\n")
    (tmp_path / "README.md").write_text(
        readme(f"# Course\n{TABLE_BEGIN}\n{TABLE_END}\n", tmp_path / "exercises"), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


PUBLISH = "from course_lib.live.page import publish\npublish(ipywidgets.IntSlider(3), 'a still', 'words');"


def test_refresh_keeps_outputs_and_drops_what_differs_between_machines(repository):
    slider = "import ipywidgets\nipywidgets.IntSlider(3)"
    path = write(repository / "notebooks" / "a.ipynb", "1 + 1", slider, f"{PUBLISH}\nprint('below')")
    assert main(["refresh", "notebooks/a.ipynb"]) == 0
    cells = nbformat.read(path, as_version=4).cells
    assert [cell.execution_count for cell in cells] == [1, 2, 3]
    assert cells[0].outputs[0].data["text/plain"] == "2"
    assert set(cells[1].outputs[0].data) == {"text/plain"}
    still, below = cells[2].outputs
    assert set(still.data) == {"text/html", "text/plain"}
    assert below.text == "below\n", "of an output that was a view alone nothing is left"
    assert all(cell.metadata == {} for cell in cells), "no times of the run"


def test_refresh_leaves_a_notebook_that_raises_as_it_was(repository, capsys):
    path = write(repository / "notebooks" / "a.ipynb", "1 / 0")
    before = path.read_bytes()
    assert main(["refresh", "notebooks/a.ipynb"]) == 2
    assert path.read_bytes() == before
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert "left as it was" in said


def test_refresh_says_where_to_run_it_and_what_to_name(repository, capsys, monkeypatch):
    write(repository / "exercises" / "a.ipynb", "1")
    for name, reason in (("missing.ipynb", "is not a notebook"), ("exercises/a.ipynb", "is generated")):
        assert main(["refresh", name]) == 2
        assert reason in capsys.readouterr().err
    monkeypatch.chdir(repository / "notebooks")
    assert main(["refresh"]) == 2
    assert "at the top of the course's repository" in capsys.readouterr().err


def test_refresh_writes_exercises_and_guide(repository, capsys):
    name = BY_SLUG["masks"].notebook
    write(repository / "solutions" / name)
    assert main(["refresh", "--exercises-only"]) == 0
    assert f"exercises/{name}" in capsys.readouterr().out
    solved, asked = ((repository / folder / name).read_text("utf-8") for folder in ("solutions", "exercises"))
    answer = "return key <= query"
    assert answer in solved
    assert answer not in asked
    guide = (repository / "solutions" / "README.md").read_text()
    assert all(exercise in guide for exercise in EXERCISES)
    assert main(["refresh", "--exercises-only"]) == 0
    assert capsys.readouterr().out == "", "nothing to do the second time"


def test_refresh_links_a_chapter_to_its_exercises_once_they_are_there(repository, capsys):
    write(repository / "solutions" / BY_SLUG["heads"].notebook, "### BEGIN SOLUTION\na = 1\n### END SOLUTION")
    assert main(["refresh", "--exercises-only"]) == 0
    assert "wrote README.md" in capsys.readouterr().out
    rows = [line for line in (repository / "README.md").read_text("utf-8").splitlines() if "[solve]" in line]
    assert rows == [next(row for row in rows if row.startswith("| 4 | Multi-head attention |"))]
    assert "[solve](exercises/04_heads.ipynb)" in rows[0]


def test_refresh_refuses_solutions_that_belong_to_no_chapter(repository, capsys):
    write(repository / "solutions" / "a.ipynb", "a = 1")
    assert main(["refresh", "--exercises-only"]) == 2
    assert "a.ipynb has the name of no chapter's notebook" in capsys.readouterr().err


def test_refresh_names_what_a_readme_lacks(repository, capsys):
    (repository / "README.md").write_text("# Course\n")
    assert main(["refresh", "--exercises-only"]) == 2
    assert "README.md needs the lines '<!-- chapters: written by" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------- exercises of solutions
def cut(source):
    return notebook.student_version(new_notebook(cells=[new_code_cell(source)])).cells[0].source


def test_an_answer_in_a_function_becomes_a_stub_that_still_compiles():
    source = cut(
        "def f(x):\n    'Doc.'\n    ### BEGIN SOLUTION\n    if x:\n        return 1\n    ### END SOLUTION\nf(2)"
    )
    assert "return 1" not in source
    assert source.startswith("def f(x):\n    'Doc.'\n")
    namespace = {}
    with pytest.raises(NotImplementedError):
        exec(compile(source, "stub", "exec"), namespace)


def test_an_answer_at_the_top_level_keeps_its_names():
    source = cut('### BEGIN SOLUTION\na = 5\nb = {\n    "x": 1,\n}\n### END SOLUTION\nc = a')
    namespace = {}
    exec(source, namespace)
    assert namespace["a"] is namespace["b"] is namespace["c"] is ...


def test_outputs_counts_and_tagged_cells_are_gone():
    ran = new_code_cell(
        "1", execution_count=4, outputs=[new_output("execute_result", {"text/plain": "1"}, execution_count=4)]
    )
    hidden = new_markdown_cell("For teachers", metadata={"tags": ["solution"]})
    student = notebook.student_version(new_notebook(cells=[ran, hidden]))
    assert [cell.source for cell in student.cells] == ["1"]
    assert student.cells[0].outputs == []
    assert student.cells[0].execution_count is None
    assert ran.outputs, "the solution itself is not touched"


@pytest.mark.parametrize(
    "source", ["### BEGIN SOLUTION\na = 1", "a = 1\n### END SOLUTION", "### BEGIN SOLUTION\n### BEGIN SOLUTION"]
)
def test_a_region_without_its_partner_is_refused(source):
    with pytest.raises(ValueError, match="SOLUTION"):
        cut(source)


# ---------------------------------------------------------------------------------------------------------------- grade
RIGHT = "def softmax(x, dim):\n    e = (x - x.amax(dim, keepdim=True)).exp()\n    return e / e.sum(dim, keepdim=True)"
WRONG = "def softmax(x, dim):\n    return x.exp() / x.exp().sum(dim, keepdim=True)"
CHECK = 'from course_lib.grading import check\ncheck("attention.softmax", softmax)'


@needs_bwrap
def test_a_notebook_gets_a_line_per_exercise_and_its_mistakes_and_failed_cells_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.sqlite3"))
    path = write(tmp_path / "a.ipynb", WRONG, CHECK, "x = 1 / 0", "def (", "attention_memory = 2048**2 * 4")
    assert main(["grade", str(path), "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    expected = [exercise for exercise in EXERCISES.values() if exercise.id.startswith("attention.")]
    for exercise in expected:
        sign = {"attention.softmax": "✗", "attention.memory": "✓"}.get(exercise.id, "○")
        score = f"{exercise.points if sign == '✓' else 0}/{exercise.points}" if exercise.points else "–"
        assert re.search(rf"^{sign} {exercise.id} +{score}( |$)", said, flags=re.M), said
    assert re.search(r"^✗ attention\.softmax +0/2  no maximum subtracted$", said, flags=re.M), said
    assert re.search(r"^  ! \S+\.ipynb: cell 3: ZeroDivisionError", said, flags=re.M), said
    assert re.search(r"^  ! \S+\.ipynb: cell 4: SyntaxError", said, flags=re.M), said
    earned = EXERCISES["attention.memory"].points
    assert said.endswith(f"\n{earned} of {sum(exercise.points for exercise in expected)} points\n")
    assert not (tmp_path / "progress.sqlite3").exists(), "the teacher's own progress is none of this"


def test_what_is_no_exercise_notebook_is_refused(tmp_path, capsys):
    (tmp_path / "broken.ipynb").write_text("{")
    for path, reason in (
        (tmp_path / "broken.ipynb", "damaged"),
        (tmp_path / "absent.ipynb", "is not there"),
        (write(tmp_path / "other.ipynb", "x = 1"), "--chapters 2"),
    ):
        assert main(["grade", str(path)]) == 2
        assert reason in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------------- release
@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("for") / "learners"
    release(ROOT, folder)
    return folder


def texts(folder):
    """The text files below a folder; what cannot be read as text is none."""
    found = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(UnicodeDecodeError, IsADirectoryError):
            found[path] = path.read_text(encoding="utf-8")
    return found


def test_a_learners_package_holds_the_course_and_neither_solutions_nor_tests(package):
    assert {path.name for path in package.iterdir()} == {
        "README.md", "LICENSE", "requirements.txt", "pyproject.toml", "notebooks", "exercises", "course_lib",
    }  # fmt: skip
    assert (package / "course_lib/chapters" / NAME).is_file()
    assert not list(package.glob("course_lib/chapters/*/exercises"))
    assert not [path for path in package.rglob("*") if path.name in ("solutions", "tests", "__pycache__", "right")]
    for name in ("README.md", "requirements.txt", "pyproject.toml"):
        text = (package / name).read_text(encoding="utf-8")
        assert "pytest" not in text
        assert "solutions" not in text
    assert "-e .\n" in (package / "requirements.txt").read_text(encoding="utf-8")
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))
    assert f"chapters/{NAME}" in project["tool"]["setuptools"]["package-data"]["course_lib"]
    assert set(project["tool"]) == {"setuptools"}, "contributors' tools are not the learners'"


def test_links_in_a_learners_package_lead_somewhere(package):
    pages = {path: text for path, text in texts(package).items() if path.suffix in (".md", ".ipynb")}
    assert len(pages) > 10
    for path, text in pages.items():
        for link in re.findall(r"\]\(([^)#:\s\\]+\.(?:ipynb|md|py|png))\)", text):
            assert (path.parent / link).exists(), f"{path.name} links to {link}"


def test_nothing_in_a_learners_package_gives_an_exercise_away_in_plain_reading(package):
    """Outside of the chapters and their guesses, which show the library's own code and two named mistakes."""
    chapters = {path for path in texts(package) if "notebooks" in path.parts or path.name == "guesses.md"}
    plain = {path: text for path, text in texts(package).items() if path not in chapters}
    everything = "\n".join(plain.values())
    grading = "\n".join(text for path, text in plain.items() if "grading" in path.parts or "exercises" in path.parts)
    for exercise in EXERCISES.values():
        told = [misconception.sentence for misconception in exercise.misconceptions]
        told += [option.why for option in exercise.options] + [exercise.model_answer, *exercise.hints]
        assert not [text for text in told if len(text) > 40 and text in everything], exercise.id
        if callable(exercise.reference):
            lines = [line.partition("#")[0].strip() for line in inspect.getsource(exercise.reference).splitlines()]
            whole = "\n".join(line for line in lines[1:] if line)
            assert whole not in "\n".join(line.strip() for line in grading.splitlines()), exercise.id


def test_a_learners_package_checks_answers_and_names_mistakes(package):
    """In a fresh process that can only see the package. And Python itself does not show the reference."""
    code = (
        "import inspect, pathlib, course_lib\n"
        "assert pathlib.Path(course_lib.__file__).is_relative_to(pathlib.Path.cwd()), course_lib.__file__\n"
        "from course_lib.grading import EXERCISES, check\n"
        f"{RIGHT}\n"
        "print(check('attention.softmax', softmax))\n"
        f"{WRONG}\n"
        "print(check('attention.softmax', softmax))\n"
        f"assert len(EXERCISES) == {len(EXERCISES)}\n"
        "try:\n    print(inspect.getsource(EXERCISES['attention.softmax'].reference))\n"
        "except OSError:\n    print('no source')\n"
    )
    seen = subprocess.run([sys.executable, "-c", code], cwd=package, capture_output=True, text=True)
    assert seen.returncode == 0, seen.stderr
    assert "✓ Passed · attention.softmax" in seen.stdout
    assert "exp overflows above 88" in seen.stdout
    assert seen.stdout.endswith("no source\n")


def test_a_learners_package_asks_the_chapters_guesses(package):
    code = "from course_lib.live import guess\nprint(repr(guess('attention.sharpness')))"
    seen = subprocess.run([sys.executable, "-c", code], cwd=package, capture_output=True, text=True)
    assert seen.stdout.startswith("Predict: You stay at 30°"), seen.stderr
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["course_lib"]
    shipped = {path for pattern in patterns for path in (package / "course_lib").glob(pattern)}
    assert {path for path in (package / "course_lib").rglob("*") if path.suffix in (".md", ".toml")} <= shipped


def test_release_refuses_what_it_might_spoil(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (tmp_path / "mine.txt").write_text("precious")
    for folder, reason in ((tmp_path, "is not empty"), (ROOT / "runs" / "out", "lies in the repository")):
        assert main(["release", str(folder)]) == 2
        assert reason in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    monkeypatch.chdir(tmp_path)
    assert main(["release", str(tmp_path / "out")]) == 2
    assert "is not the course's repository" in capsys.readouterr().err


def test_answers_in_the_repositorys_own_exercises_reach_no_learner(tmp_path):
    root = tmp_path / "course"
    for name in ("course_lib", "notebooks", "solutions"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    write(root / "exercises" / "03_masks.ipynb", "my_own_answer = 1")
    release(root, tmp_path / "out")
    handed_out = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out/exercises").iterdir()}
    assert handed_out.keys() == {path.name for path in (ROOT / "solutions").glob("*.ipynb")}
    assert not [name for name, text in handed_out.items() if "my_own_answer" in text]


# -------------------------------------------------------------------------------------------------- stubs and solutions
@pytest.mark.parametrize("path", sorted(ROOT.glob("solutions/*.ipynb")), ids=lambda path: path.stem)
def test_a_stub_differs_from_its_solution_inside_the_marked_regions_alone(path):
    """Told without the code that makes stubs: outside of the regions every line stands in both, in the same order."""
    shown = [cell for cell in nbformat.read(path, 4).cells if "solution" not in cell.metadata.get("tags", [])]
    stubs = nbformat.reads(exercise_text(path), 4).cells
    assert [cell.cell_type for cell in shown] == [cell.cell_type for cell in stubs]
    regions = 0
    for solution, stub in zip(shown, stubs):
        pieces = re.split(r"^ *### BEGIN SOLUTION\n.*?^ *### END SOLUTION$\n?", solution.source, flags=re.M | re.S)
        regions += len(pieces) - 1
        if len(pieces) == 1:
            assert stub.source == solution.source
            continue
        pattern = r"([\s\S]*?)".join(re.escape(piece.rstrip("\n")) + r"\n?" for piece in pieces)
        found = re.fullmatch(pattern, stub.source)
        assert found, stub.source
        for put in found.groups():
            for line in filter(None, map(str.strip, put.splitlines())):
                assert re.fullmatch(
                    r"raise NotImplementedError|\w+ = \.\.\.  # your answer|# Your answer goes .*", line
                )
    assert regions > 0


def test_the_doctor_needs_no_console(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["doctor"]) == 0


def test_what_another_folder_would_not_mend_is_no_advice_about_folders(monkeypatch):
    from course_lib import claims

    def exhausted(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(claims, "in_order", exhausted)
    with pytest.raises(OSError, match="Too many open files"):
        main(["claims", "--list"])
