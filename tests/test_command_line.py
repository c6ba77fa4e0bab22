"""The command line, and the notebooks' machinery behind it, on small notebooks made here."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.__main__ import COMMANDS, main
from course_lib.bench import report
from course_lib.course.contents import BY_SLUG, TABLE_BEGIN, TABLE_END, readme
from course_lib.grading import EXERCISES, check, progress
from course_lib.grading.page import run_notebooks as notebook
from tests.small_class import needs_bwrap

ROOT = Path(__file__).parent.parent


def write(path, *sources, tags=()):
    cells = [new_code_cell(source, metadata={"tags": list(tags)}) for source in sources]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)
    return path


@pytest.mark.parametrize("command", [[], *([module.__name__.rpartition(".")[2]] for module in COMMANDS)], ids=" ".join)
def test_help_is_there(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert len(capsys.readouterr().out.split()) > 20


def test_without_a_command_the_commands_are_listed(capsys):
    assert main([]) == 0
    assert "learners: copy the course into your own folder" in capsys.readouterr().out


def test_progress_prints_in_a_terminal_what_progress_shows_in_a_notebook(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.sqlite3"))
    check("attention.memory", 2048 * 2048)
    assert main(["progress"]) == 0
    told = capsys.readouterr().out
    assert told == f"{progress()}\n"
    assert "attention.memory" in told
    assert "1 attempt" in told


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
    "glass": ["glass", "--out", "{taken}/a.html"],
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

    monkeypatch.setattr("course_lib.grading.page.package.release", fail)
    assert main(["release", "/a"]) == 2
    said = capsys.readouterr().err
    assert error.strerror in said
    assert (error.filename or "release: No space left") in said
    assert said.count("\n") == 1


@pytest.mark.proof
def test_a_full_disk_is_named_when_a_model_is_written(tmp_path):
    """A limit on the size of files stands in for the full disk."""
    code = (
        "import resource, signal, sys, torch\n"
        "from pathlib import Path\n"
        "from course_lib.course.files import save_tensors\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    save_tensors(Path(sys.argv[1]), {'a': torch.zeros(10_000)})\n"
        "except OSError as error:\n    print('told', error.filename)\n"
    )
    path = tmp_path / "model.safetensors"
    seen = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=ROOT)
    assert seen.stdout == f"told {path}\n", seen.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.proof
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
    page = readme(f"# Course\n{TABLE_BEGIN}\n{TABLE_END}\n", tmp_path / "exercises", {})
    page = report.readme(f"{page}{report.TABLE_BEGIN}\n{report.TABLE_END}\n", report.recorded())
    (tmp_path / "README.md").write_text(page, encoding="utf-8")
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
    assert "is unchanged" in said


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
    assert "a.ipynb is not named like a chapter's notebook" in capsys.readouterr().err


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
WRONG = "def softmax(x, dim):\n    return x.exp() / x.exp().sum(dim, keepdim=True)"
CHECK = 'from course_lib.grading import check\ncheck("attention.softmax", softmax)'


@pytest.mark.proof
@needs_bwrap
def test_a_notebook_gets_a_line_per_exercise_and_its_mistakes_and_failed_cells_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.sqlite3"))
    path = write(tmp_path / "a.ipynb", WRONG, CHECK, "x = 1 / 0", "def (", "attention_memory = 2048**2 * 4")
    assert main(["grade", str(path), "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    expected = [exercise for exercise in EXERCISES.values() if exercise.id.startswith("attention.")]
    for exercise in expected:
        sign = {"attention.softmax": "✗", "attention.memory": "✓"}.get(exercise.id, "○")
        earned = exercise.points if sign == "✓" else int(sign == "✗")  # one for stages that pass
        score = f"{earned}/{exercise.points}" if exercise.points else "–"
        assert re.search(rf"^{sign} {exercise.id} +{score}( |$)", said, flags=re.M), said
    assert re.search(r"^✗ attention\.softmax +1/2  no maximum subtracted$", said, flags=re.M), said
    assert re.search(r"^  ! \S+\.ipynb: cell 3: ZeroDivisionError", said, flags=re.M), said
    assert re.search(r"^  ! \S+\.ipynb: cell 4: SyntaxError", said, flags=re.M), said
    earned = EXERCISES["attention.memory"].points + 1
    assert said.endswith(f"\n{earned} of {sum(exercise.points for exercise in expected)} points.\n")
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


def test_what_another_folder_would_not_mend_is_no_advice_about_folders(monkeypatch):
    from course_lib import claims

    def exhausted(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(claims, "in_order", exhausted)
    with pytest.raises(OSError, match="Too many open files"):
        main(["claims", "--list"])
