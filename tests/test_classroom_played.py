"""A term as a teacher plays it: what is wrong is said before anything is graded, and what is new is announced."""

import csv
import io
import subprocess

import pytest

from course_lib.__main__ import main
from course_lib.course.contents import TITLES
from tests.pretended_worker import pretend
from tests.small_class import EXERCISE, ROOT, refused, write_class
from tests.test_classroom_platforms import about, blackboard, lay_out, people

SHEET = (
    "Identifier,Full name,Email address,Grade,Maximum Grade,Last modified (grade),Feedback comments\n"
    "Participant 11,ada,ada@example.org,,{},,\n"
)
GERMAN = (
    "Identifikator,Vollständiger Name,E-Mail-Adresse,Status,Bewertung,Bestwertung,Bewertung geändert am,Feedback\n"
    "Teilnehmer/in11,ada,ada@example.org,,,10,-,\n"
)
BOOK = "Student,ID,SIS Login ID,Section,Quiz (5),Final\n    Points Possible,,,,10,(read only)\nada,11,ada,A,9,\n"


@pytest.fixture
def marks(monkeypatch):
    return pretend(monkeypatch)


@pytest.mark.parametrize(
    ("option", "text", "more", "reason"),
    [
        ("--moodle", GERMAN, [], "while Moodle speaks English"),
        ("--moodle", SHEET.format("Good"), [], "not a scale"),
        ("--moodle", "Identifier\n", [], "lacks the column"),
        ("--canvas", "no,gradebook\n", [], "export it in Canvas"),
        ("--canvas", BOOK, ["--title", "Final"], "is read only in Canvas"),
        ("--canvas", BOOK.replace("Quiz (5)", "Final"), ["--title", "Final"], "has 2 columns 'Final'"),
        ("--canvas", BOOK, ["--columns", "chapters", "--course", "course.toml"], "[grading.canvas]"),
    ],
)
def test_a_sheet_that_cannot_be_filled_is_refused_before_anything_is_graded(
    marks, tmp_path, monkeypatch, capsys, option, text, more, reason
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sheet.csv").write_text(text, encoding="utf-8")
    (tmp_path / "course.toml").write_text('[grading.canvas]\ncolumns = {2 = "Week 1"}\n')
    class_ = write_class(tmp_path / "class", "ada")
    said = refused(capsys, class_, "--exercises", EXERCISE, "--out", "out", option, "sheet.csv", *more)
    assert reason in said
    assert marks.names == []
    assert not (tmp_path / "out").exists()


def test_a_new_column_of_the_gradebook_is_announced_and_one_that_is_filled_is_not(marks, tmp_path, capsys):
    (tmp_path / "book.csv").write_text(BOOK.replace("Quiz", "Week 1"), encoding="utf-8")
    (tmp_path / "course.toml").write_text("")
    class_ = write_class(tmp_path / "class", "ada")
    arguments = ["grade", str(class_), "--exercises", EXERCISE, "--canvas", str(tmp_path / "book.csv")]
    arguments += ["--course", str(tmp_path / "course.toml"), "--out", str(tmp_path / "out")]
    assert main([*arguments, "--columns", "chapters"]) == 0
    said = capsys.readouterr().out
    assert f"made a new column “{TITLES[2]}”" in said
    assert "[grading.canvas]" in said
    assert "“Week 1 (5)”, “Final”" in said, "those that could be meant"
    (tmp_path / "course.toml").write_text('[grading.canvas]\ncolumns = {2 = "Week 1 (5)"}\n')
    assert main([*arguments, "--columns", "chapters", "--resume"]) == 0
    assert "new column" not in capsys.readouterr().out
    assert main([*arguments, "--resume"]) == 0
    said = capsys.readouterr().out
    assert "made a new column “Transformers, Measured”" in said
    assert "--title" in said


DUE = (
    "[grading]\ntime_zone = 'Europe/Berlin'\n[grading.due]\n2 = 2026-10-05T23:59:00\n"
    "[grading.late]\npercent_per_day = 10\n"
)


def test_dates_without_any_time_to_judge_by_are_a_note_and_no_failure(marks, tmp_path, capsys):
    (tmp_path / "course.toml").write_text(DUE)
    class_ = write_class(tmp_path / "class", "ada", "bert")
    arguments = ["grade", str(class_), "--exercises", EXERCISE, "--course", str(tmp_path / "course.toml")]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert said.out.count("all are taken as on time") == 1
    assert "--handed-in" in said.out
    assert "NOT APPLIED" not in said.err
    (tmp_path / "times.csv").write_text("id,handed in\nada,2026-10-05T21:59:00Z\n")
    out = tmp_path / "out"
    arguments += ["--handed-in", str(tmp_path / "times.csv"), "--out", str(out), "--json"]
    assert main(arguments) == 1, "bert may be late"
    assert "NOT APPLIED: bert has no known time" in capsys.readouterr().err
    assert "bert has no known time" in (out / "report" / "index.html").read_text("utf-8"), "also for tomorrow's reader"
    assert "bert has no known time" in (out / "results.json").read_text("utf-8")


def test_a_time_that_the_download_tells_counts_and_is_said(marks, tmp_path, capsys):
    laid = blackboard(people(3))
    (tmp_path / "course.toml").write_text(DUE.replace("5T23:59", "4T23:59"))
    (tmp_path / "roster.csv").write_bytes(laid.roster)
    arguments = ["grade", str(lay_out(tmp_path / "class", laid.files)), "--exercises", EXERCISE, "--csv"]
    arguments += ["--course", str(tmp_path / "course.toml"), "--roster", str(tmp_path / "roster.csv")]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    assert "when each handed in: the download tells it of 5 of 5" in capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "results.csv").read_text("utf-8-sig"), newline="")))
    assert {row["total counts"] for row in rows} == {"1.8"}, "a day late, of 2 points"
    (tmp_path / "times.csv").write_text(f"id,handed in\n{people(3)[0].id},2026-10-04T08:00:00Z\n")
    assert (
        main([*arguments, "--resume", "--out", str(tmp_path / "out"), "--handed-in", str(tmp_path / "times.csv")]) == 0
    )
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "results.csv").read_text("utf-8-sig"), newline="")))
    assert {row["id"]: row["total counts"] for row in rows}[people(3)[0].id] == "2", "the list outranks the download"


def test_a_folder_that_holds_another_run_is_refused_with_both_remedies(marks, tmp_path, capsys):
    class_ = write_class(tmp_path / "class", "ada")
    arguments = [class_, "--exercises", EXERCISE, "--out", tmp_path / "out"]
    assert main(["grade", *map(str, arguments)]) == 0
    capsys.readouterr()
    said = refused(capsys, *arguments)
    assert "--resume" in said
    assert "each week" in said


@pytest.mark.parametrize("path", ["course.toml", "roster.csv", "Grades.csv", "class/ada.ipynb", "results/marks.jsonl"])
def test_at_the_top_git_sees_nothing_of_a_class(path):
    if not (ROOT / ".git").exists():
        pytest.skip("a copy without git")
    assert subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT, check=False).returncode == 0
    assert subprocess.run(["git", "check-ignore", "-q", "solutions/course.toml"], cwd=ROOT, check=False).returncode == 1
    assert about
