"""The table for the terminal: a line for each, in columns, whatever script a name is in."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.graded_submission import Counted, GradedSubmission
from course_lib.classroom.report.terminal import terminal_answers, terminal_table
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


def test_the_table_shows_the_mark_that_counts_where_the_course_has_a_policy():
    late = Counted(2.4, 5, {2: (2.4, 3), 3: (0, 2)}, ("2 days late: 80%.", "Chapter 3 counts half."))
    ada, bo = marked("Ada", (True, False), counted=late), marked("Bo", (True, True), troubles=("Cell 4 is cut off.",))
    head, first, second, *_ = terminal_table([ada, bo]).split("\n")
    assert head.split() == ["learner", "points", "share", "counts"]
    assert re.split(" {2,}", first)[3:] == ["60%", "2.4 of 5", "least in chapter 3: 0 of 2"]
    assert re.split(" {2,}", second)[3:] == ["100%", "5 of 5", "Cell 4 is cut off."]
    last = ["3 of 5 points.", "In the course this counts 2.4 of 5.", *late.notes]
    assert terminal_answers(ada).split("\n")[-4:] == last


def test_a_learner_of_whom_nothing_counts_is_excused_in_the_table():
    ada = marked("Ada", (True, False), counted=Counted(0, 0, {}, ("Excused: ill.",), (2, 3)))
    assert "  excused  " in terminal_table([ada, marked("Bo")]).split("\n")[1]


def test_what_nearly_all_solved_is_not_called_hard():
    most = [marked(str(number), (number > 0, number > 4)) for number in range(12)]  # 92% and 58%
    table = terminal_table(most)
    assert "58% of  12  masks.causal" in table
    assert "attention.softmax ·" not in table.partition("most common")[0]
    easy = terminal_table(most[5:])
    assert "no exercise was hard: in each, those who tried earned at least two thirds of the points" in easy


def test_the_bar_is_full_only_if_all_points_are_there():
    nearly = GradedSubmission(
        "Ada", "0" * 64, (result("attention.softmax", "passed", 999), result("masks.causal", "failed", 1))
    )
    barely = GradedSubmission(
        "Bo", "0" * 64, (result("attention.softmax", "failed", 999), result("masks.causal", "passed", 1))
    )
    first, second = terminal_table([nearly, barely]).split("\n")[1:3]
    assert (first.count("░"), second.count("█")) == (1, 1)
