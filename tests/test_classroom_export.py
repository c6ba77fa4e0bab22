"""What is written of a class: the same bytes in whatever order it comes, and every mark in JSON and CSV."""

import csv
import io
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.export.canvas import write_canvas
from course_lib.classroom.export.classroom50 import write_classroom50
from course_lib.classroom.export.gradescope import write_gradescope
from course_lib.classroom.export.results import write_csv, write_json, write_junit
from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.read.folders import LeftOut
from course_lib.classroom.report.terminal import terminal_table
from course_lib.classroom.spreadsheets import spreadsheet_cell
from course_lib.classroom.text import sanitized
from course_lib.grading.page.catalogue import EXERCISES
from tests.drawn_results import (
    ENVIRON,
    HOSTILE,
    begins_a_formula,
    classes,
    feedback_of,
    few,
    has_no_controls,
    marked,
    result,
    spoken,
    texts,
)


def test_equal_results_give_equal_bytes_in_whatever_order_they_come(tmp_path):
    many = [marked(f"learner {i}", (i % 2 == 0, i % 3 == 0)) for i in range(12)]
    shuffled = random.Random(3).sample(many, len(many))
    for write in (
        write_json,
        write_csv,
        write_junit,
        write_gradescope,
        write_canvas,
        lambda marked, folder: write_classroom50(marked, folder, ENVIRON),
    ):
        one, other = (write(each, tmp_path / name) for each, name in ((many, "a"), (shuffled, "b")))
        assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
        assert [path.relative_to(tmp_path / "a") for path in one] == [
            path.relative_to(tmp_path / "b") for path in other
        ]
        assert not [*tmp_path.rglob("*.part")]
    assert terminal_table(many) == terminal_table(shuffled)


@few
@given(classes)
def test_json_holds_every_mark(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("results")
    (path,) = write_json(drawn, folder)
    read = json.loads(path.read_bytes().decode("utf-8"))
    assert read["schema"] == "transformers-measured/results/1"
    assert read["summary"]["submissions"] == len(drawn)
    by_place = sorted(drawn, key=lambda each: (each.name, each.digest))
    assert [each["digest"] for each in read["submissions"]] == [each.digest for each in by_place]
    for got, want in zip(read["submissions"], by_place):
        assert (got["earned"], got["points"]) == (want.earned, want.points)
        assert len(got["troubles"]) == len(want.troubles)
        for row, mark in zip(got["results"], want.results, strict=True):
            assert row["exercise"] == mark.exercise_id
            assert row["chapter"] == EXERCISES[mark.exercise_id].chapter
            assert (row["status"], row["earned"], row["points"]) == (mark.status, mark.earned, mark.points)
            assert spoken(row["feedback"]) == spoken(feedback_of(mark))
            assert "hint(" not in row["feedback"]
            assert (row["misconception"] is None) == (mark.misconception is None)


def test_an_exercise_that_the_course_no_longer_has_is_still_written(tmp_path):
    gone = GradedSubmission("Ada", "0" * 64, (result("gone.exercise", "passed", 2, title="Gone"),))
    (path,) = write_json([gone], tmp_path)
    assert json.loads(path.read_text("utf-8"))["submissions"][0]["results"][0]["chapter"] is None
    (path,) = write_csv([gone], tmp_path)
    assert "gone.exercise,,Gone" in path.read_text("utf-8-sig")
    assert "Ada" in terminal_table([gone])


COLUMNS = [
    "learner",
    "exercise",
    "chapter",
    "title",
    "status",
    "earned",
    "points",
    "misconception",
    "feedback",
    "text",
    "id",
    "chapter counts",
    "chapter of",
    "total counts",
    "total of",
    "salvaged",
]


@few
@given(classes)
def test_csv_gives_every_mark_back_and_no_cell_is_a_formula(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("results")
    (path,) = write_csv(drawn, folder)
    assert path.read_bytes().startswith(b"\xef\xbb\xbf"), "Excel takes a file without the mark for another encoding"
    rows = list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline=""), strict=True))
    marks = [(each, mark) for each in sorted(drawn, key=lambda each: (each.name, each.digest)) for mark in each.results]
    assert len(rows) == len(marks)
    for row, (each, mark) in zip(rows, marks):
        assert list(row) == COLUMNS
        assert (int(row["earned"]), int(row["points"])) == (mark.earned, mark.points)
        assert (row["exercise"], row["status"]) == (mark.exercise_id, mark.status)
        assert row["chapter"] == str(EXERCISES[mark.exercise_id].chapter)
        assert spoken(row["learner"]) == spoken(each.name)
        assert spoken(row["title"]) == spoken(mark.title)
        assert spoken(row["feedback"]) == spoken(feedback_of(mark))
        assert spoken(row["misconception"]) == spoken(mark.misconception or "")
        assert spoken(row["text"]) == spoken(each.texts.get(mark.exercise_id, ""))
        assert spoken(row["salvaged"]) == spoken(" · ".join(each.salvaged))
        for value in row.values():
            assert has_no_controls(value)
            assert not begins_a_formula(value)


@pytest.mark.parametrize("text", HOSTILE[:8])
def test_what_would_be_calculated_gets_an_apostrophe(text):
    assert begins_a_formula(text), "the test's own reader must know it"
    assert not begins_a_formula(spreadsheet_cell(text))


@pytest.mark.parametrize("text", ["attention.softmax", "a = b", "x - 1; y", "[1, -2]", "two\n\nlines\n  of text", "5"])
def test_a_harmless_cell_stays_as_it_is(text):
    assert spreadsheet_cell(text) == text


def test_colours_and_links_leave_their_words():
    text = "\x1b[1;31mred\x1b[0m and \x1b]8;;http://localhost/\x1b\\a link\x1b]8;;\x1b\\\r\nnext\x1b"
    assert sanitized(text) == "red and a link\nnext"
    assert "\x1b" not in sanitized("\x1b\x1b[31m[31m"), "what is left after a removal is no escape either"


@few
@given(classes, st.lists(st.tuples(texts, texts), max_size=3))
def test_what_was_not_taken_stands_in_json_and_csv(tmp_path_factory, drawn, pairs):
    folder = tmp_path_factory.mktemp("results")
    left = [LeftOut(*pair) for pair in pairs]
    (path,) = write_json(drawn, folder, left)
    told = json.loads(path.read_text(encoding="utf-8"))["not_taken"]
    assert len(told) == len(left)
    (path,) = write_csv(drawn, folder, left)
    rows = list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")))
    rows = [row for row in rows if row["status"] == "not taken"]
    assert len(rows) == len(left)
    for (name, why), row, entry in zip(pairs, rows, told):
        assert spoken(row["learner"]) == spoken(entry["name"]) == spoken(name)
        assert spoken(row["feedback"]) == spoken(why)
        assert {row[key] for key in ("exercise", "earned", "points")} == {""}
        assert not any(begins_a_formula(value) for value in row.values())
