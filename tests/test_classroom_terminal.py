"""The table for the terminal: a line for each, in columns, whatever script a name is in."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.graded import GradedSubmission
from course_lib.classroom.terminal import terminal_table
from tests.drawn_results import few, has_no_controls, marked, result, submissions


@few
@given(st.lists(submissions(), min_size=1, max_size=4), st.integers(60, 160))
def test_the_table_has_a_line_for_each_and_nothing_that_steers_a_terminal(drawn, width):
    table = terminal_table(drawn, width)
    assert has_no_controls(table)
    assert "\t" not in table
    lines = table.split("\n")
    body = lines[1 : 1 + len(drawn)]
    for line, each in zip(body, sorted(drawn, key=lambda each: (each.name, each.digest))):
        assert f"{each.earned} of {each.points}" in line
    assert lines[1 + len(drawn)] == ""


def test_columns_stand_below_each_other_in_every_script():
    wcwidth = pytest.importorskip("wcwidth")
    names = ["Ada", "李小龙", "Zoe\u0308 Müller", "ﾊﾝｶｸ", "x" * 90, "\x1b[31mred"]
    many = [marked(name, (True, True)) for name in names] + [marked("名" * 60, troubles=("字" * 200, "more"))]
    for width in (60, 80, 100, 140):
        lines = terminal_table(many, width).split("\n")
        body = lines[1 : 1 + len(many)]
        assert len({wcwidth.wcswidth(re.split("[█░]", line)[0]) for line in body}) == 1
        assert all(wcwidth.wcswidth(line) <= width for line in lines)


def test_the_table_tells_the_worst_chapter_the_troubles_and_what_the_class_finds_hard():
    ada = GradedSubmission(
        "Ada",
        "0" * 64,
        (
            result("attention.softmax", "passed", 2),
            result("masks.causal", "failed", 2, "mask inverted"),
            result("normalization.layer_norm", "unanswered", 3),
            result("normalization.rms_norm", "passed", 1),
        ),
    )
    table = terminal_table([marked("Emmy", (True, True)), ada, marked("Bo", troubles=("Cell 4 is cut off.", "…"))])
    lines = table.split("\n")
    assert [line.split()[0] for line in lines[1:4]] == ["Ada", "Bo", "Emmy"]
    assert "3 of 8" in lines[1]
    assert "least in chapter 3: 0 of 2" in lines[1]
    assert "38%" in lines[1]
    assert "Cell 4 is cut off. (and 1 more)" in lines[2]
    assert lines[3].endswith("100%")
    assert "3 submissions · mean 66% · median 60%" in table
    assert "33% of   3  masks.causal" in table
    assert "2 ×  masks.causal · mask inverted" in table
    assert terminal_table([]) == "no submissions"


def test_the_bar_is_full_only_if_all_points_are_there():
    nearly = GradedSubmission(
        "Ada", "0" * 64, (result("attention.softmax", "passed", 999), result("masks.causal", "failed", 1))
    )
    barely = GradedSubmission(
        "Bo", "0" * 64, (result("attention.softmax", "failed", 999), result("masks.causal", "passed", 1))
    )
    first, second = terminal_table([nearly, barely]).split("\n")[1:3]
    assert (first.count("░"), second.count("█")) == (1, 1)
