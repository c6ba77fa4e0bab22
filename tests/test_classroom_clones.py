"""Whole clones of the course: what is graded is what was asked; what nobody changed is nobody's answer."""

import json
import shutil
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.__main__ import main
from course_lib.classroom.mark import marking
from course_lib.classroom.mark.marking import may_define
from course_lib.classroom.read.notebook_reader import Cell
from course_lib.classroom.read.submission_reader import Notebook
from course_lib.classroom.read.submissions import find_handed_in
from course_lib.classroom.sandbox.session import Session
from course_lib.course.contents import CHAPTERS
from course_lib.course.handout import RECORD, fingerprint
from course_lib.grading import EXERCISES
from course_lib.grading.page.package import release
from tests import pupils
from tests.small_class import SEED, needs_bwrap

ROOT = Path(__file__).parent.parent
ATTENTION = "02_attention.ipynb"
FOUR = ("attention.worked_example", "attention.memory", "attention.softmax", "attention.scaled_dot_product")
ANSWERS = {  # as the solutions have them
    id: pupils.without_marks(cell.source) for id, cell in pupils._answers(ROOT / "solutions" / ATTENTION) if id in FOUR
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The course as learners clone it."""
    folder = tmp_path_factory.mktemp("handed_out") / "package"
    release(ROOT, folder)
    return folder


def answered(path, *sources, run=False):
    """Write the cells at the end of a notebook. run: as it looks once all cells were run, which changes no answer."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in sources]
    for number, cell in enumerate(notebook.cells if run else ()):
        if cell.cell_type == "code":
            cell.execution_count = number + 1
            cell.outputs = [nbformat.v4.new_output("stream", text="another output\n")]
    nbformat.write(notebook, path)


@pytest.fixture
def clone(package, tmp_path):
    """The clone of a learner who answered in one notebook and ran others."""
    made = tmp_path / "class" / "ada"
    shutil.copytree(package, made)
    answered(made / "exercises" / ATTENTION, *ANSWERS.values())
    answered(made / "exercises/03_masks.ipynb", run=True)
    answered(made / "notebooks/05_positions.ipynb", run=True)
    return made


@pytest.fixture
def ran(monkeypatch):
    """The notebooks that a grader ran, in their order."""
    paths = []

    class Recorded(Session):
        def __init__(self, worker, notebook, *arguments, **options):
            paths.append(notebook.path)
            super().__init__(worker, notebook, *arguments, **options)

    monkeypatch.setattr(marking, "Session", Recorded)
    return paths


def test_of_a_clone_the_notebooks_that_somebody_changed_are_read(clone):
    [submission] = find_handed_in([clone.parent], one_each=True).submissions
    assert [notebook.path for notebook in submission.notebooks] == [f"exercises/{ATTENTION}"]
    assert submission.unchanged == 2 * len(CHAPTERS) - 2  # a chapter and its exercises, which 0 lacks; one was changed
    assert not submission.all_troubles


def test_what_was_left_out_is_said_in_one_line(clone, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    main(["grade", str(clone.parent), "--one-each", "--manifest", "--chapters", "2"])
    assert f"{2 * len(CHAPTERS) - 2} unchanged notebooks of the course, left out" in capsys.readouterr().out


def test_a_clone_of_another_version_says_itself_what_was_given(clone):
    """By the record of its package, whose notebooks are not those of this course."""
    record = json.loads((clone / RECORD).read_text())
    for name in ("notebooks/07_normalization.ipynb", "exercises/07_normalization.ipynb"):
        answered(clone / name, "# a cell of an earlier version")
        changed = find_handed_in([clone.parent], one_each=True).submissions[0]
        assert name in [notebook.path for notebook in changed.notebooks]
        record[name] = {"given": fingerprint((clone / name).read_bytes())}
    (clone / RECORD).write_text(json.dumps(record))
    [submission] = find_handed_in([clone.parent], one_each=True).submissions
    assert [notebook.path for notebook in submission.notebooks] == [f"exercises/{ATTENTION}"]


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[]", '{"a": 1}', '{"notebooks/a.ipynb": []}', "\0"])
def test_a_damaged_record_is_passed_by(clone, text):
    (clone / RECORD).write_text(text)
    [submission] = find_handed_in([clone.parent], one_each=True).submissions
    assert [notebook.path for notebook in submission.notebooks] == [f"exercises/{ATTENTION}"]


def test_the_library_in_a_clone_is_no_helper_file_and_takes_one_line_at_most(clone):
    """Also where a notebook is at the top of the clone, so that the library is below it."""
    shutil.copy(clone / "exercises" / ATTENTION, clone / "mine.ipynb")
    [submission] = find_handed_in([clone.parent], one_each=True).submissions
    assert (submission.files, submission.all_troubles) == ({}, ())
    for name in ("masks.py", "attention.py", "heads.py", "positions.py"):
        (clone / "course_lib" / name).write_text("# edited")
    [submission] = find_handed_in([clone.parent], one_each=True).submissions
    named = "course_lib/attention.py, course_lib/heads.py, course_lib/masks.py and 1 more"
    assert submission.all_troubles == (f"{named} were not read: the course's own are used",)
    assert submission.files == {}


def test_exercises_that_nobody_answered_are_still_what_was_handed_in(package, tmp_path):
    (tmp_path / "ada").mkdir()
    shutil.copy(package / "exercises" / ATTENTION, tmp_path / "ada")
    [submission] = find_handed_in([tmp_path], one_each=True).submissions
    assert [notebook.path for notebook in submission.notebooks] == [ATTENTION]


def test_a_chapter_alone_is_said_to_be_as_it_was_given(package, tmp_path):
    (tmp_path / "ada").mkdir()
    shutil.copy(package / "notebooks" / ATTENTION, tmp_path / "ada")
    [submission] = find_handed_in([tmp_path], one_each=True).submissions
    assert submission.notebooks == ()
    assert submission.troubles == ("All of its notebooks are as the course handed them out",)


@needs_bwrap
def test_only_what_may_answer_is_run(clone, ran, tmp_path):
    answered(clone / "notebooks/06_feed_forward.ipynb", "width = 3")  # changed, and no answer to what is asked
    answered(clone / "exercises/04_heads.ipynb", "def helper(x):\n    return x")
    out = tmp_path / "out"
    ids = [*ANSWERS]
    command = ["grade", str(clone.parent), "--one-each", "--out", str(out), "--json", "--exercises", *ids]
    assert main([*command, "--jobs", "1", "--seed", str(SEED)]) == 0
    assert ran == [f"exercises/{ATTENTION}"]
    [marked] = json.loads((out / "results.json").read_text())["submissions"]
    assert {each["exercise"]: each["earned"] for each in marked["results"]} == {id: EXERCISES[id].points for id in ids}


NAMES = ("softmax", "attention_memory")


def notebook(*sources):
    return Notebook("a.ipynb", tuple(Cell(i, "code", source) for i, source in enumerate(sources, 1)))


@given(
    st.sampled_from(
        [
            "def {}(x):\n    pass",
            "class {}:\n    pass",
            "{} = 1",
            "{}: int = 1",
            "a, ({}, *b) = c",
            "from helpers import {}",
            "from helpers import a as {}",
            "import {}",
            "for {} in a:\n    pass",
            "with a as {}:\n    pass",
            "if ({} := 1):\n    pass",
            "match a:\n    case {}:\n        pass",
            "from helpers import *",
            "%run helpers.py",
            "exec(text)",
            "globals().update(a)",
            "def \uff53oftmax(x):\n    pass",  # a wide s, which Python reads as s
        ]
    ),
    st.sampled_from(NAMES),
    st.lists(st.just("a = 1"), max_size=3),
)
def test_whatever_may_define_a_name_is_run(source, name, others):
    assert may_define(notebook(*others, source.format(name), *others), {*NAMES})


@pytest.mark.parametrize("source", ["def softmax_2(x):\n    pass", "torch.compile(f)", "# nothing", "x = 1"])
def test_what_names_no_answer_is_not_run(source):
    assert not may_define(notebook(source), {*NAMES})
    assert not may_define(notebook("def softmax(x):\n    pass"), set()), "nothing is open"


@pytest.mark.proof
@needs_bwrap
def test_a_class_of_thirty_clones_is_graded_by_what_was_answered(package, ran, tmp_path):
    earned = {}
    for number in range(30):
        name = f"learner{number:02}"
        clone = tmp_path / "class" / name
        shutil.copytree(package, clone)
        ids = [*ANSWERS][: 1 + number % 4]
        answered(clone / "exercises" / ATTENTION, *(ANSWERS[id] for id in ids), f"# {name}")
        answered(clone / f"notebooks/{CHAPTERS[number % len(CHAPTERS)].notebook}", run=True)
        earned[name] = sum(EXERCISES[id].points for id in ids)
    out = tmp_path / "out"
    command = ["grade", str(tmp_path / "class"), "--one-each", "--out", str(out), "--json", "--exercises", *ANSWERS]
    assert main([*command, "--seed", str(SEED)]) == 0
    marked = json.loads((out / "results.json").read_text())["submissions"]
    assert {each["name"]: sum(result["earned"] for result in each["results"]) for each in marked} == earned
    assert ran == [f"exercises/{ATTENTION}"] * 30
