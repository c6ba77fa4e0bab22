"""Policies and exports that somebody would like to bend: nobody gets another's word, time or zero."""

import csv
import io
import json
from datetime import UTC, timedelta

import pytest

from course_lib.classroom.export.canvas import write_canvas
from course_lib.classroom.export.classroom50 import write_classroom50
from course_lib.classroom.export.gradescope import gradescope_result
from course_lib.classroom.export.moodle import write_moodle
from course_lib.classroom.export.results import write_csv, write_junit
from course_lib.classroom.mark.policy import Override, Policy, apply_policy
from course_lib.classroom.read.roster import Learner, save_unmatched
from course_lib.classroom.term import read_policy
from tests.drawn_results import ENVIRON, begins_a_formula
from tests.test_classroom_policy import DUE, IDS, LATE, marked

TITLES = {2: "Attention", 3: "Masks"}
FORMULA = '=HYPERLINK("http://localhost","see") \x1b[31m</td><script>'


def rows_of(path):
    return list(csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")))


def moodle_gradebook_reads(text, by):
    """As Moodle imports grades from a CSV file: {who: {item: grade}}.

    A person is found by id number, e-mail address or user name. Where that cell is empty, Moodle goes on with the
    person of the row above (grade/import/csv/classes/load_data.php: `studentid` is not set anew).
    """
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert by in ("ID number", "Email address", "Username")
    items = [i for i, name in enumerate(header) if name in TITLES.values()]
    who, found = "", {}
    for row in rows:
        who = row[header.index(by)] or who
        grades = {header[i]: None if row[i] in ("", "-") else float(row[i]) for i in items}
        found[who] = grades
    return found


# --- excused is no zero -----------------------------------------------------------------------------------------------
EXCUSED = Policy(overrides=[Override("11", chapter=2, excused=True)])
WORKSHEET = (
    "Identifier,Full name,Email address,ID number,Grade,Maximum Grade,Last modified (grade),Feedback comments\n"
    "Participant 11,Ada Lane,ada@example.org,,,100,,\nParticipant 12,Bo Roe,bo@example.org,7,,100,,\n"
)
GRADEBOOK = (
    "Student,ID,SIS Login ID,Section,Attention (77)\n    Points Possible,,,,30\n"
    '"Lane, Ada",11,ada,A,\n"Roe, Bo",12,bo,A,\n'
)


def test_who_is_excused_from_a_chapter_gets_no_zero_for_it(tmp_path):
    class_, _ = apply_policy(EXCUSED, [marked(softmax=0), marked("bo", "12", softmax=0, memory=0)])
    (tmp_path / "book.csv").write_text(GRADEBOOK, encoding="utf-8")
    (tmp_path / "sheet.csv").write_text(WORKSHEET, encoding="utf-8")
    [path] = write_canvas(class_, tmp_path, gradebook=tmp_path / "book.csv", chapters=TITLES)
    assert [row[4] for row in rows_of(path)[2:]] == ["EX", "0"], "Canvas excuses who has EX"
    [path] = write_canvas(class_, tmp_path, chapters=TITLES)
    assert [row[5] for row in rows_of(path)[2:]] == ["EX", "0"]
    _, path = write_moodle(class_, tmp_path, tmp_path / "sheet.csv", chapters=TITLES)
    grades = moodle_gradebook_reads(path.read_text("utf-8"), "Email address")
    assert grades["ada@example.org"] == {"Attention": None, "Masks": 2}
    assert grades["bo@example.org"] == {"Attention": 0, "Masks": 2}


def test_who_is_excused_from_an_exercise_has_a_share_of_the_same_points_as_all(tmp_path):
    class_, _ = apply_policy(Policy(overrides=[Override("11", IDS[0], excused=True)]), [marked(), marked("bo", "12")])
    (tmp_path / "sheet.csv").write_text(WORKSHEET, encoding="utf-8")
    _, path = write_moodle(class_, tmp_path, tmp_path / "sheet.csv", chapters=TITLES)
    assert [row[-2] for row in rows_of(path)] == ["Attention", "3", "3"], "1 of 1 is 3 of 3"


def test_who_is_excused_from_everything_is_excused_in_every_format(tmp_path):
    both = [Override("11", chapter=number, excused=True) for number in TITLES]
    class_, _ = apply_policy(Policy(overrides=both), [marked()])
    (tmp_path / "sheet.csv").write_text(WORKSHEET, encoding="utf-8")
    assert rows_of(write_canvas(class_, tmp_path)[0])[2][5] == "EX"
    assert rows_of(write_moodle(class_, tmp_path, tmp_path / "sheet.csv")[0])[1][4] == "", "Moodle passes over it"


def test_a_chapter_of_no_weight_takes_no_points_where_it_has_a_column(tmp_path):
    class_, _ = apply_policy(Policy({2: 0.0}), [marked()])
    (tmp_path / "book.csv").write_text(GRADEBOOK, encoding="utf-8")
    [path] = write_canvas(class_, tmp_path, gradebook=tmp_path / "book.csv", chapters=TITLES)
    assert rows_of(path)[2][4] == "", "neither a zero nor excused: left as it is"


# --- another's row ----------------------------------------------------------------------------------------------------
def test_no_row_for_moodles_gradebook_is_read_as_the_row_above(tmp_path):
    """Ada has no ID number: by that column Moodle would give her grade to whoever stands above."""
    (tmp_path / "sheet.csv").write_text(
        WORKSHEET.replace("Participant 11", "Participant 13").replace("Participant 12", "Participant 11")
        + "Participant 14,Cy Poe,cy@example.org,9,,100,,\n",
        encoding="utf-8",
    )
    class_ = [marked("x", "11"), marked("y", "13", softmax=0, memory=0), marked("z", "14")]
    _, path = write_moodle(class_, tmp_path, tmp_path / "sheet.csv", chapters=TITLES)
    header = rows_of(path)[0]
    assert "ID number" not in header
    assert len(moodle_gradebook_reads(path.read_text("utf-8"), "Email address")) == 3
    sheet = (tmp_path / "sheet.csv").read_text("utf-8").replace("cy@example.org", "").replace("ada@example.org", "")
    (tmp_path / "sheet.csv").write_text(sheet, encoding="utf-8")
    _, unmatched, path = write_moodle(class_, tmp_path, tmp_path / "sheet.csv", chapters=TITLES)
    assert [row[0] for row in rows_of(unmatched)[1:]] == ["y"], "who cannot be named there is listed"
    assert list(moodle_gradebook_reads(path.read_text("utf-8"), "ID number")) == ["7", "9"]


@pytest.mark.parametrize("name", ["11", "Ada Lane"])
def test_a_profile_that_bears_anothers_id_takes_no_row_and_blocks_none(tmp_path, name):
    (tmp_path / "book.csv").write_text(GRADEBOOK.replace('"Roe, Bo"', f'"{name}"'), encoding="utf-8")
    [path] = write_canvas(
        [marked("x", "11"), marked(name, "12", softmax=0, memory=0)],
        tmp_path,
        "Attention",
        gradebook=tmp_path / "book.csv",
    )
    assert {row[1]: row[4] for row in rows_of(path)[2:]} == {"11": "30", "12": "12"}


def test_a_word_for_somebody_who_is_not_there_is_not_taken_by_a_name():
    """22 handed in nothing; 66 called themself 22."""
    done, doubts = apply_policy(Policy(overrides=[Override("22", IDS[0], points=2)]), [marked("22", "66", softmax=0)])
    assert done[0].counted.earned == 3
    assert "fits nobody" in doubts[0]


def test_two_words_for_one_thing_are_applied_to_nobody_and_said(tmp_path):
    words = [Override("11", IDS[0], points=0), Override("ada", IDS[0], points=2)]
    done, doubts = apply_policy(Policy(overrides=words), [marked(softmax=1)])
    assert done[0].counted.earned == 4
    assert "two" in doubts[0]
    assert "attention.softmax" in doubts[0]


# --- another's time ---------------------------------------------------------------------------------------------------
def counted_at(class_, times):
    return apply_policy(LATE, class_, [(Learner(id, name), DUE + late) for id, name, late in times])


DAYS = timedelta(days=3)


def test_nobody_is_on_time_by_a_name_that_is_anothers_id():
    """66, who was early, calls themself 11: 11, who was late, is late all the same, and 66 is not."""
    done, doubts = counted_at([marked("x", "11"), marked("11", "66")], [("11", "ada", DAYS), ("66", "11", -DAYS)])
    assert [each.counted.chapters[2] for each in done] == [(pytest.approx(0.7 * 3), 3), (3, 3)]
    assert doubts == []
    done, doubts = counted_at([marked("11", "66")], [("11", "ada", -DAYS)])
    assert "66" in doubts[0], "whose time is not known is said"


def test_whose_time_is_not_known_is_taken_as_on_time_and_said():
    done, doubts = counted_at([marked("bo", "12"), marked()], [("11", "ada", DAYS)])
    assert done[0].counted.chapters[2] == (3, 3)
    assert "bo" in doubts[0]
    assert "on time" in doubts[0]
    assert len(doubts) == 1
    done, doubts = apply_policy(LATE, [marked(), marked("bo", "12")])
    assert doubts == [], "nothing tells when anybody handed in: the command notes it once, and nobody can be late"
    done, doubts = apply_policy(LATE, [marked(), marked("bo", "12")], late=["bo"])
    assert [doubt.partition(":")[0] for doubt in doubts] == ["bo (12) came late, and nothing says how late"]


def test_where_canvas_marks_what_is_late_the_times_of_those_are_enough():
    times = [(Learner("12", "bo"), DUE + timedelta(hours=1))]
    done, doubts = apply_policy(LATE, [marked(), marked("bo", "12")], times, late=["bo"])
    assert doubts == []
    assert done[1].counted.chapters[2] < (3, 3)


def test_a_time_that_fits_no_submission_is_said():
    _, doubts = counted_at([marked()], [("11", "ada", -DAYS), ("13", "cy", DAYS)])
    assert [doubt.rpartition(", fits")[2] for doubt in doubts] == [" no submission"]
    assert "cy" in doubts[0]


def test_a_time_that_came_and_is_not_used_is_said_with_the_reason():
    _, doubts = apply_policy(LATE, [marked("bo", "12")], unread={"bo": "its clock is another"})
    assert doubts[0].startswith(
        "bo (12) came with a time that is not used (its clock is another): it is taken as on time"
    )


# --- what a person reads, and what a formula in `why` does ------------------------------------------------------------
POLICY = Policy(
    {3: 2.0}, {2: DUE}, percent_per_day=10, overrides=[Override("11", IDS[2], points=1, why=FORMULA, by="-2+3")]
)


def test_every_format_tells_what_counts_beside_what_was_graded(tmp_path):
    class_, _ = apply_policy(POLICY, [marked()], [(Learner("11", "ada"), (DUE + timedelta(hours=30)).astimezone(UTC))])
    earned, points = 0.8 * 3 + 2 * 1, 3 + 2 * 2
    assert class_[0].final == (pytest.approx(earned), points)
    (tmp_path / "sheet.csv").write_text(WORKSHEET, encoding="utf-8")
    feedback = rows_of(write_moodle(class_, tmp_path, tmp_path / "sheet.csv")[0])[1][7]
    assert "5 of 5 points" in feedback
    assert "4.4 of 7" in feedback
    assert "<script>" not in feedback
    assert "4.4 of 7" in gradescope_result(class_[0])["output"]
    head, *rows = rows_of(write_csv(class_, tmp_path)[0])
    told = [dict(zip(head, row)) for row in rows]
    assert {(row["chapter"], row["chapter counts"], row["chapter of"]) for row in told} == {
        ("2", "2.4", "3"),
        ("3", "2", "4"),
    }
    assert {(row["total counts"], row["total of"]) for row in told} == {("4.4", "7")}
    assert not [cell for row in rows for cell in row if begins_a_formula(cell)]
    text = write_junit(class_, tmp_path)[0].read_text("utf-8")
    assert '<property name="counts.earned" value="4.4" />' in text
    assert '<property name="counts.points" value="7" />' in text
    [path] = write_classroom50(class_, tmp_path, ENVIRON)
    content = json.loads(path.read_text("utf-8"))
    assert (content["score"], content["max-score"]) == (3, 5), "whole numbers: 4.4 of 7 is 3.14 of 5"
    [path] = save_unmatched(tmp_path / "x_unmatched.csv", [(class_[0], "no row")])
    assert rows_of(path)[1][1:3] == ["4.4", "7"], "who enters it by hand enters what counts"


# --- the file ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "[grading.late]\nfloor_percent = " + "9" * 5000,
        "[grading.weights]\nattention = " + "[" * 5000,
        "[grading.due]\n2 = 9999-12-31T23:59:59-12:00",
        "[grading.due]\n2 = 0001-01-01T00:00:00+12:00",
        "[[grading.override]]\nlearner = '11'\nchapter = 2\npoints = inf",
        "[[grading.override]]\nlearner = '11'\nchapter = 2\npoints = -0.5",
        "[[grading.override]]\nlearner = '11'\nchapter = 2\npoints = 1e400",
    ],
    ids=["digits", "depth", "last day", "first day", "inf", "negative", "huge"],
)
def test_numbers_and_dates_beyond_all_measure_are_refused_with_the_files_name(tmp_path, text):
    path = tmp_path / "course.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"course\.toml") as error:
        read_policy(path)
    assert len(str(error.value)) < 700
