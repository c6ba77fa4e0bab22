"""Moodle's worksheet, read by an importer that is written from what Moodle documents."""

import csv
import io
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.export.moodle import write_moodle
from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.grading.page.catalogue import EXERCISES
from tests.drawn_results import (
    begins_a_formula,
    classes,
    feedback_of,
    few,
    has_no_controls,
    marked,
    result,
    spoken,
    submissions,
)

WORKSHEET = (
    "Identifier,Full name,Email address,ID number,Status,Grade,Maximum Grade,Grade can be changed,"
    "Last modified (submission),Last modified (grade),Feedback comments\r\n"
    'Participant 12345,Ada Lovelace,ada@uni.example,007,Submitted for grading,,50.00,Yes,"1 May 2026, 9:00",-,\r\n'
    'Participant 12346,"Emmy ""N"" Noether",emmy@uni.example,,Submitted for grading,40.00,50.00,Yes,'
    '"Friday, 1 May 2026, 9:00","Saturday, 2 May 2026, 9:00","Well\ndone"\r\n'
    "Participant 12347,=Alan,alan@uni.example,,No submission,,50.00,Yes,-,-,\r\n"
)


def moodle_reads(data):
    """As Moodle imports a worksheet: {participant: (grade, feedback)}. PHP takes a backslash for an escape."""
    text = re.sub(r"\r\n?", "\n", data.decode("utf-8").removeprefix("\ufeff"))
    header, *rows = csv.reader(io.StringIO(text, newline=""), escapechar="\\", strict=True)
    columns = {
        name: header.index(name) for name in ("Identifier", "Grade", "Last modified (grade)", "Feedback comments")
    }
    assert all(len(row) == len(header) for row in rows)
    read = {}
    for row in rows:
        number = row[columns["Identifier"]][len("Participant ") :]
        grade = row[columns["Grade"]]
        read[int(number)] = (float(grade) if grade else None, row[columns["Feedback comments"]])
    return read


class Page(HTMLParser):
    """The elements and the text of a piece of HTML, as a browser sees them."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text = set(), ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.add((tag, *attrs))
        self.text += "\n"

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize(
    "name",
    [
        "Ada Lovelace_12345_assignsubmission_file",
        "Ada Lovelace_12345_assignsubmission_file_x_12346_assignsubmission_file_.ipynb",
        "group A-Ada Lovelace_12345_assignsubmission_file_",
        "Participant_12345_assignsubmission_file",
        "Participant 12345",
        "ada lovelace.ipynb",
        "ADA@uni.example",
        "007",
    ],
)
def test_moodle_gets_the_grade_scaled_and_everything_else_as_it_was(tmp_path, name):
    sheet = tmp_path / "Grades.csv"
    sheet.write_bytes(WORKSHEET.encode())
    (path,) = write_moodle([marked(name)], tmp_path, sheet)
    old, new = (
        list(csv.reader(io.StringIO(text.decode(), newline=""))) for text in (WORKSHEET.encode(), path.read_bytes())
    )
    assert [row[:5] + row[6:10] for row in new] == [row[:5] + row[6:10] for row in old]
    assert new[2:] == old[2:]
    read = moodle_reads(path.read_bytes())
    assert read[12345][0] == 30, "3 of 5 points are 30 of 50"
    assert read[12346] == (40, "Well\ndone")
    page = Page(read[12345][1])
    assert page.elements == {("br",)}
    assert page.text.startswith("3 of 5 points.")
    assert EXERCISES["masks.causal"].title in page.text


def test_a_profile_that_is_called_as_a_neighbours_download_takes_no_neighbours_mark(tmp_path):
    """12347 calls herself "Ada Lovelace_12345_assignsubmission_file", which is what Moodle calls Ada's folder."""
    profile = "Ada Lovelace_12345_assignsubmission_file"
    sheet = tmp_path / "Grades.csv"
    sheet.write_bytes(WORKSHEET.replace("=Alan", profile).encode())
    ada, mallory = marked(profile, (True, True)), marked(f"{profile}_12347_assignsubmission_file", (False, False))
    for handed in ([ada], [mallory], [ada, mallory]):
        path, *left = write_moodle(handed, tmp_path, sheet)
        grades = {number: grade for number, (grade, _) in moodle_reads(path.read_bytes()).items()}
        assert grades == {12345: 50 if ada in handed else None, 12346: 40, 12347: None}
        assert bool(left) == (mallory in handed), "hers can be read in two ways: a person decides"
    sheet.write_bytes(WORKSHEET.replace("=Alan", "Eve_12345_assignsubmission_file").encode())
    own = marked("Eve_12345_assignsubmission_file_12347_assignsubmission_file")
    (path,) = write_moodle([own], tmp_path, sheet)
    assert {number: grade for number, (grade, _) in moodle_reads(path.read_bytes()).items()} == {
        12345: None,
        12346: 40,
        12347: 30,
    }


@few
@given(st.lists(submissions(st.just("12345")), min_size=1, max_size=1), classes)
def test_moodle_reads_its_worksheet_whatever_a_learner_wrote(tmp_path_factory, known, others):
    folder = tmp_path_factory.mktemp("results")
    sheet = folder / "Grades.csv"
    sheet.write_bytes(WORKSHEET.encode())
    path, *left = write_moodle([*known, *others], folder, sheet)
    read = moodle_reads(path.read_bytes())
    assert read[12346] == (40, "Well\ndone")
    assert read[12347] == (None, "")
    (each,) = known
    assert read[12345][0] == pytest.approx(50 * each.earned / each.points if each.points else 0, abs=0.005)
    page = Page(read[12345][1])
    assert page.elements <= {("br",), ("pre",)}
    for mark in each.results:
        if mark.status == "failed":
            assert "".join(spoken(feedback_of(mark))) in "".join(spoken(page.text))
    assert has_no_controls(read[12345][1])
    assert not begins_a_formula(read[12345][1])
    named = csv.DictReader(io.StringIO(left[0].read_bytes().decode("utf-8-sig"), newline="")) if left else []
    assert len([*named]) == len(others), "nobody is lost"


def test_feedback_that_ends_in_a_backslash_does_not_swallow_the_next_row(tmp_path):
    sheet = tmp_path / "Grades.csv"
    sheet.write_bytes(WORKSHEET.encode())
    failed = result("masks.causal", "failed", 2, sentences=['a "quote", a comma, and\\'])
    (path,) = write_moodle([GradedSubmission("007", "0" * 64, (failed,))], tmp_path, sheet)
    read = moodle_reads(path.read_bytes())
    assert Page(read[12345][1]).text.endswith('a "quote", a comma, and\\')
    assert read[12346] == (40, "Well\ndone")


def test_very_long_feedback_still_fits_a_cell(tmp_path):
    sheet = tmp_path / "Grades.csv"
    sheet.write_bytes(WORKSHEET.encode())
    failed = tuple(result(id, "failed", 1, sentences=["<" * 900]) for id in EXERCISES)
    each = GradedSubmission("007", "0" * 64, failed, tuple("'" * 5000 for _ in range(500)))
    (path,) = write_moodle([each], tmp_path, sheet)
    feedback = moodle_reads(path.read_bytes())[12345][1]
    assert len(feedback) < 32_767
    text = Page(feedback).text
    assert "… and 490 troubles more." in text
    shown = text.count("<" * 900)
    assert shown > 0
    assert f"… and {len(EXERCISES) - shown} exercises more that did not pass." in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WORKSHEET.replace("Grade,", "Bewertung,", 1), "lacks the column 'Grade'"),
        (WORKSHEET.replace("Feedback comments", "Comments"), "lacks the column 'Feedback comments'"),
        (WORKSHEET.replace("50.00", "Good"), "Maximum Grade is 'Good'"),
    ],
)
def test_a_worksheet_that_cannot_be_filled_is_turned_down(tmp_path, text, message):
    sheet = tmp_path / "Grades.csv"
    sheet.write_bytes(text.encode())
    with pytest.raises(ValueError, match=message):
        write_moodle([marked("007")], tmp_path, sheet)
    assert not (tmp_path / "moodle.csv").exists()


def test_without_a_maximum_the_points_are_the_grade(tmp_path):
    sheet = tmp_path / "Grades.csv"
    sheet.write_bytes(b"Identifier,Grade,Last modified (grade),Feedback comments\nParticipant 7,,-,\n")
    (path,) = write_moodle([marked("Participant_7_assignsubmission_file")], tmp_path, sheet)
    assert moodle_reads(path.read_bytes())[7][0] == 3
