"""What a teacher is asked to act on: answers that did not run because of Python's rule, or because of this Python."""

import json
import re
import sys
from dataclasses import replace

import pytest

from course_lib.__main__ import main
from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.mark import marking
from course_lib.classroom.mark.marking import mark
from course_lib.classroom.read.notebook_reader import Cell
from course_lib.classroom.read.submission_reader import Notebook, Submission
from course_lib.classroom.sandbox.notebook_run import complete_above
from course_lib.grading.page.catalogue import EXERCISES
from tests.pretended_worker import pretend
from tests.report_pages import pages
from tests.small_class import EXERCISE, RIGHT, SEED, write_class

EXPECTED = [EXERCISES["attention.softmax"], EXERCISES["attention.memory"]]
MEMORY = "attention_memory = 2048 * 2048 * 4"
MERGED = f"{RIGHT}\n{MEMORY}\nhelper = 1\nprint(softmax("
NEWER = 'name = t"{1}"\n' + RIGHT  # a template string, of Python 3.14
older = pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python knows the syntax that is new")


def graded(worker_at, *sources: str, expected=EXPECTED, helpers=(), unfinished: bool = False) -> GradedSubmission:
    cells = tuple(Cell(number, "code", source) for number, source in enumerate(sources, start=1))
    submission = Submission("ada", (Notebook("a.ipynb", cells),), dict(helpers), (), "", unfinished=unfinished)
    return mark(submission, expected, worker_at("bwrap"), SEED)


# --- a syntax error below answers -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("source", "complete"),
    [
        ("a = 1\nb = (\n", "a = 1"),
        ("a = 1\n\n@c\ndef f(\n", "a = 1\n"),
        ("a = [\n1\n]\nif a:\n    b = 1\nelse:\n    c = = 2\n", "a = [\n1\n]"),
        ("a = 1\nfor x in a:\nb = 2\n", "a = 1"),
        ('a = 1\nb = """\nc = 3\n', "a = 1"),
        ('a = """\nx = 1\n"""\nb = f(\nc = 3\n', 'a = """\nx = 1\n"""'),
        ("a = 1\ntry:\n    b = 1\nexcept E:\n    pass\nfinally\n", "a = 1"),
        ("a = 1\nb = 2\n  c = 3\n", "a = 1"),
        ("a = 1\ndef f():\n    b = 2\n    c = = 3\n", "a = 1"),  # half a function is none
        ("def f(:\n", ""),
        ("a = (\n", ""),
        ("a = 1\n", ""),
        ("return 1\n", ""),
        ("a = 1\n" * 3_000 + "(\n" * 3_000, ""),  # no more than a few places are tried
    ],
    ids=range(14),
)
def test_complete_above_an_error_is_each_statement_that_ends_before_the_one_that_fails(source, complete):
    assert complete_above(source) == complete


def test_answers_above_an_unfinished_line_of_the_same_cell_are_named_to_learner_and_teacher(worker_at):
    marked = graded(worker_at, MERGED)
    assert marked.earned == 0
    above = "so `softmax`, `attention_memory`, which are complete above it, did not run"
    assert f"a.ipynb: cell 1: Python runs nothing of a cell with a syntax error, {above}" in marked.troubles
    [ask] = marked.asks
    assert above in ask
    assert ask.endswith("did not run. With `--salvage unfinished` they run and count.")


def test_a_teacher_may_count_what_is_complete_above_a_syntax_error(worker_at):
    marked = graded(worker_at, MERGED, unfinished=True)
    assert [result.passed for result in marked.results] == [True, True]
    assert (
        "cell 1 has a syntax error: what is complete above it ran (`softmax`, `attention_memory`)" in marked.salvaged[0]
    )
    assert any("SyntaxError" in trouble for trouble in marked.troubles), "the learner reads of the error all the same"
    assert marked.asks == ()


@pytest.mark.parametrize(
    ("sources", "named"),
    [
        ((MERGED, RIGHT), "`attention_memory`"),  # one of the two is answered elsewhere
        ((MERGED, f"{RIGHT}\n{MEMORY}"), ""),
        (("def softmax(x, dim):\n    ...\nattention_memory = ...\nx = (",), ""),  # as it was handed out
        (("x = 1\ny = (",), ""),
        ((f"x = (\n{RIGHT}",), ""),  # below the error
    ],
    ids=range(5),
)
def test_a_teacher_is_asked_of_answers_alone_that_are_written_and_not_right_elsewhere(worker_at, sources, named):
    asks = graded(worker_at, *sources).asks
    assert [ask.partition("so ")[2].partition(", which")[0] for ask in asks] == [named] * bool(named)


def test_of_a_whole_term_in_one_cell_every_answer_is_named(worker_at):
    """However long the sentence: it is said in several."""
    expected = [EXERCISES[id] for id, entry in EXERCISES.entries.items() if entry.kind == "code"][:25]
    asks = graded(
        worker_at, "\n".join(f"{each.answer_name} = max" for each in expected) + "\n(", expected=expected
    ).asks
    assert set(re.findall(r"`(\w+)`", "".join(asks))) == {each.answer_name for each in expected}


# --- a newer Python ---------------------------------------------------------------------------------------------------
@older
def test_syntax_of_a_newer_python_asks_the_teacher_to_grade_with_it(worker_at):
    marked = graded(worker_at, NEWER)
    assert any("may need a newer Python: it uses a t-string, which came with 3.14" in each for each in marked.troubles)
    [ask] = marked.asks
    assert ask.startswith("a.ipynb: cell 1 did not run: it uses a t-string, which came with 3.14")
    assert ask.endswith(". Grade it with Python 3.14 or newer.")


@older
def test_a_helper_file_in_newer_syntax_is_named_as_a_cell_is(worker_at):
    helpers = {"lib/own.py": 'name = t"{1}"\n', "other.py": "x = 1\n"}
    marked = graded(worker_at, f"from lib.own import *\n{RIGHT}", "import other", helpers=helpers)
    [ask] = marked.asks
    assert ask.startswith("a.ipynb: cell 1 did not run: it uses a t-string, which came with 3.14")


@older
def test_a_teacher_is_not_asked_for_a_newer_python_where_nothing_is_lost(worker_at):
    assert graded(worker_at, NEWER, RIGHT, MEMORY).asks == ()


# --- where it is said -------------------------------------------------------------------------------------------------
def test_what_a_teacher_is_asked_stands_on_the_terminal_and_in_the_report_and_the_exit_status_is_1(
    monkeypatch, tmp_path, capsys
):
    pretend(monkeypatch)
    marks = marking.mark

    def asks(submission, *rest):
        marked = marks(submission, *rest)
        return replace(marked, asks=("a.ipynb: cell 1 <b>did not run</b>",)) if submission.name == "bert" else marked

    monkeypatch.setattr(marking, "mark", asks)
    class_ = write_class(tmp_path / "class", "ada", "bert")
    command = ["grade", str(class_), "--out", str(tmp_path / "out"), "--json", "--exercises", EXERCISE]
    for more in ([], ["--resume"]):
        assert main([*command, *more]) == 1
        assert "PLEASE LOOK: bert: a.ipynb: cell 1 <b>did not run</b>" in capsys.readouterr().err
    found = {
        each["name"]: each["asks"] for each in json.loads((tmp_path / "out/results.json").read_text())["submissions"]
    }
    assert found == {"ada": [], "bert": ["a.ipynb: cell 1 <b>did not run</b>"]}
    monkeypatch.setattr(marking, "mark", marks)
    assert main([*command[:3], str(tmp_path / "other"), *command[4:]]) == 0


def test_the_class_report_asks_the_teacher_to_look_and_no_learners_page_does(tmp_path):
    marked = GradedSubmission("Ada", "", (), asks=("a.ipynb: cell 1 <b>did not run</b>",))
    index, learner = (page.text("html") for page in pages([marked], tmp_path).values())
    assert "Please look at these: 1" in index
    assert "a.ipynb: cell 1 <b>did not run</b>" in index
    assert "did not run" not in learner
