"""Weights, lateness and a person's word: by hand, by property, and through the command."""

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.__main__ import main
from course_lib.classroom.export.canvas import write_canvas
from course_lib.classroom.export.moodle import write_moodle
from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.mark.policy import Override, Policy, apply_policy
from course_lib.classroom.read.roster import Learner
from course_lib.classroom.read.times import is_late, read_times
from course_lib.classroom.term import read_policy
from course_lib.grading import EXERCISES
from tests.grading.classes import CANVAS
from tests.handed_in import lay_out
from tests.pretended_worker import pretend
from tests.report_pages import Page
from tests.small_class import ANSWERS, EXERCISE, ROOT, refused, write_class

DUE = datetime(2026, 10, 5, 23, 59, tzinfo=timezone(timedelta(hours=2)))
IDS = ("attention.softmax", "attention.memory", "masks.causal")  # 2, 1 and 2 points


def marked(name="ada", learner="11", **earned) -> GradedSubmission:
    """Full points, unless they are given by the last part of an id."""
    results = []
    for id in IDS:
        points = EXERCISES[id].points
        got = earned.get(id.partition(".")[2], points)
        verdict = EXERCISES[id].verdict(
            "passed" if got == points else "failed", ["…"], part=0 if got == points else got
        )
        results.append(verdict)
    return GradedSubmission(name, "", tuple(results), learner=learner)


def count(policy, each, *times):
    [done], doubts = apply_policy(policy, [each], [(Learner("11", "ada"), time) for time in times])
    return done.counted, doubts


def test_weights_of_chapters_and_exercises_multiply():
    assert [EXERCISES[id].points for id in IDS] == [2, 1, 2]
    counted, _ = count(Policy({2: 3.0, "attention.memory": 0.5}), marked(softmax=1))
    assert counted.chapters == {2: (3 * (1 + 0.5), 3 * (2 + 0.5)), 3: (2, 2)}
    assert (counted.earned, counted.points) == (6.5, 9.5)
    assert counted.notes == ("weights: chapter 2 × 3, attention.memory × 0.5",)
    counted, _ = count(Policy({"masks.causal": 0.0}), marked())
    assert counted.chapters[3] == (0, 0)


LATE = Policy(due={2: DUE}, grace=timedelta(minutes=15), percent_per_day=10, floor=65)


@pytest.mark.parametrize(
    ("late", "left"),
    [
        (timedelta(days=-3), 1),
        (timedelta(0), 1),
        (timedelta(minutes=15), 1),
        (timedelta(minutes=15, seconds=1), 0.9),
        (timedelta(days=1, minutes=15), 0.9),
        (timedelta(days=1, minutes=16), 0.8),
        (timedelta(days=40), 0.65),
    ],
    ids=str,
)
def test_each_day_begun_takes_its_part_and_no_more_than_the_floor_leaves(late, left):
    counted, _ = count(LATE, marked(softmax=1), (DUE + late).astimezone(UTC))
    assert counted.chapters == {2: (pytest.approx(left * 2), 3), 3: (2, 2)}, "the points to be had stay, and chapter 3"
    assert bool(counted.notes) == (left < 1)


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0, 100), st.floats(0, 100))
def test_who_is_later_never_has_more_and_never_less_than_the_floor(days, more, percent, floor):
    policy = Policy(due={2: DUE}, percent_per_day=percent, floor=floor)
    sooner, later = (policy.left(2, DUE + timedelta(days=each))[0] for each in (days, days + more))
    assert 1 >= sooner >= later >= min(floor, 100) / 100


@pytest.mark.parametrize(
    ("override", "chapters"),
    [
        (Override("11", "attention.softmax", points=2), {2: (0.8 * 3, 3), 3: (2, 2)}),
        (Override("11", "attention.softmax", excused=True), {2: (0.8 * 1, 1), 3: (2, 2)}),
        (Override("11", chapter=2, on_time=True), {2: (1, 3), 3: (2, 2)}),
        (Override("ada", chapter=2, excused=True), {2: (0, 0), 3: (2, 2)}),
        (Override("ada", "masks.causal", points=0), {2: (0.8 * 1, 3), 3: (0, 2)}),
    ],
    ids=str,
)
def test_a_persons_word_counts_and_is_shown(override, chapters):
    [done], doubts = apply_policy(
        replace(LATE, overrides=[override]), [marked(softmax=0)], [(Learner("11", "ada"), DUE + timedelta(days=1.5))]
    )
    assert doubts == []
    assert done.counted.chapters == {number: pytest.approx(amounts) for number, amounts in chapters.items()}
    assert str(override) in done.counted.notes
    if override.exercise:
        [result] = [each for each in done.results if each.exercise_id == override.exercise]
        assert result.sentences[0] == f"A person decided: {override}"


@pytest.mark.parametrize(
    ("override", "final", "chapters"),
    [
        (Override("11", total=True, points=4.5), (4.5, 5), {2: (3, 3), 3: (2, 2)}),
        (Override("11", total=True, on_time=True), (5, 5), {2: (3, 3), 3: (2, 2)}),
        (Override("11", total=True, excused=True), (0, 0), {2: (0, 0), 3: (0, 0)}),
    ],
    ids=str,
)
def test_a_word_for_the_total_outranks_all_else(override, final, chapters):
    counted, doubts = count(replace(LATE, overrides=[override]), marked(), DUE + timedelta(days=9))
    assert (doubts, counted.chapters) == ([], chapters)
    assert (counted.earned, counted.points) == final
    assert counted.excused == ((2, 3) if override.excused else ())


def test_a_total_beyond_what_there_is_is_not_applied_and_said():
    counted, doubts = count(Policy({3: 0.0}, overrides=[Override("11", total=True, points=4)]), marked())
    assert counted.earned == 3
    assert counted.notes == ("weights: chapter 3 × 0",)
    assert "ada (11)" in doubts[0]
    assert "beyond the 3 there are" in doubts[0]


def test_after_so_many_days_nothing_counts_whatever_the_floor():
    policy = replace(LATE, none_after=2)
    lefts = [policy.left(2, DUE + policy.grace + timedelta(days=days))[0] for days in (0, 1, 2, 2.1, 300)]
    assert lefts == [1, 0.9, 0.8, 0, 0]


def test_what_a_run_is_not_about_is_neither_noted_nor_in_doubt():
    policy = Policy({7: 2.0}, {7: DUE}, overrides=[Override("11", chapter=7, excused=True)])
    counted, doubts = count(
        replace(policy, overrides=[*policy.overrides, Override("11", "heads.merge", points=0)]), marked()
    )
    assert (counted.notes, doubts, counted.earned) == ((), [], 5)


points = st.floats(0, 3, allow_nan=False)


@given(points, st.integers(0, 99), st.floats(0, 100), st.floats(0, 5))
def test_a_persons_word_on_a_chapter_wins_over_lateness_whatever_it_costs(given, days, percent, weight):
    policy = Policy({2: weight}, {2: DUE}, percent_per_day=percent, overrides=[Override("11", chapter=2, points=given)])
    whole = sum(each.points for each in EXERCISES.values() if each.chapter == 2)
    counted, _ = count(policy, marked(softmax=0), DUE + timedelta(days=days))
    assert counted.chapters[2][0] == pytest.approx(weight * given * 3 / whole)


def test_a_word_for_a_whole_chapter_is_of_the_points_that_the_chapter_has():
    whole = sum(each.points for each in EXERCISES.values() if each.chapter == 3)
    results = tuple(each.verdict("failed", ["…"]) for each in EXERCISES.values() if each.chapter == 3)
    counted, _ = count(
        Policy(overrides=[Override("11", chapter=3, points=4)]), GradedSubmission("ada", "", results, learner="11")
    )
    assert counted.chapters == {3: (4, whole)}


@pytest.mark.parametrize(
    ("learner", "fits"), [("nobody", "nobody"), ("bo", "2 submissions"), ("1", "nobody"), ("ADA", "nobody")]
)
def test_a_word_that_may_be_for_two_or_for_nobody_is_applied_to_nobody_and_said(learner, fits):
    class_ = [marked(), marked("bo", "22"), marked("bo", "33"), marked("22", "44")]
    done, doubts = apply_policy(Policy(overrides=[Override(learner, IDS[0], points=0)]), class_)
    assert [each.counted.earned for each in done] == [5, 5, 5, 5]
    assert f"fits {fits}" in doubts[0]


def test_whose_id_it_is_outranks_whose_name():
    """A profile called as a neighbour's number does not take the neighbour's word, for good or ill."""
    done, doubts = apply_policy(
        Policy(overrides=[Override("22", IDS[0], points=0)]), [marked("22", "66"), marked("bo", "22")]
    )
    assert doubts == []
    assert [each.counted.earned for each in done] == [5, 3]


# --- the file ---------------------------------------------------------------------------------------------------------
def policy_of(tmp_path, text):
    path = tmp_path / "course.toml"
    path.write_text(text, encoding="utf-8")
    return read_policy(path)


def test_the_sample_changes_nothing_and_with_its_marks_taken_away_everything(tmp_path):
    text = (ROOT / "solutions" / "course.toml").read_text("utf-8")
    assert policy_of(tmp_path, text) == Policy()
    keys = [line[2:] if line.startswith("# ") and ("=" in line.partition("#  ")[0] or "[[" in line) else line
            for line in text.splitlines() if " = " in line or "[" in line]  # fmt: skip
    policy = policy_of(tmp_path, "\n".join(keys))
    assert policy.weights == {2: 2, "attention.memory": 0}
    assert policy.due[2] == DUE
    assert (policy.grace, policy.percent_per_day, policy.floor) == (timedelta(minutes=15), 10, 50)
    assert [(each.learner, each.exercise, each.chapter) for each in policy.overrides] == [
        ("12345", "attention.softmax", None),
        ("12346", "", 3),
        ("12348", "", None),
    ]
    assert (policy.none_after, policy.zone, policy.overrides[2].total) == (14, "Europe/Berlin", True)
    assert policy.handed_in == {"12347": datetime(2026, 10, 6, 6, 30, tzinfo=UTC)}
    assert policy.canvas == {2: "Homework 1 (123)", 3: "Homework 2 (124)"}
    assert policy_of(tmp_path, "[other]\nx = 1") == Policy(), "other parts are others'"


ENTRY = "[[grading.override]]\n"


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("[grading", ("cannot be read", "--course")),
        ("grading = 3", ("[grading] must be a table",)),
        ("[grading]\nwieghts = 1", ("wieghts = 1 is not known here", "weights")),
        ("[grading.late]\npercent = 3", ("percent = 3 is not known here", "percent_per_day")),
        ("[grading.late]\npercent_per_day = nan", ("percent_per_day = nan must be a number from 0 to 100",)),
        ("[grading.late]\nfloor_percent = 1e400", ("must be a number from 0 to 100",)),
        ("[grading.late]\ngrace_minutes = -1", ("must be a number from 0",)),
        ("[grading.late]\ngrace_minutes = true", ("must be a number",)),
        ("[grading.weights]\nattention = -1", ("attention = -1 must be a number from 0 to 1000",)),
        ("[grading.weights]\natention = 1", ("atention = 1 names no chapter", "2 or attention")),
        ("[grading.due]\n2 = 2026-10-05T23:59:00", ("with its zone",)),
        ("[grading.due]\n2 = 'tomorrow'", ("must be a date and time with its zone",)),
        ("[grading]\noverride = 3", ("must be a list of tables",)),
        (ENTRY + "exercise = 'attention.softmax'\npoints = 1", ("number 1", "must name the learner")),
        (ENTRY + "learner = 11\nchapter = 2\npoints = 1", ("learner = 11 must be text",)),
        (ENTRY + "learner = 'a'\npoints = 1", ("must name an exercise, or `chapter`",)),
        (ENTRY + "learner = 'a'\nchapter = 2\ntotal = true\npoints = 1", ("one of them",)),
        (2 * (ENTRY + "learner = 'a'\nchapter = 2\nexcused = true\n"), ("line 6: learner", "chapter 2, number 1")),
        ("[grading]\ntime_zone = 'Berlin'", ("line 2: time_zone = 'Berlin' is not known",)),
        ("[grading]\ntime_zone = '/etc/passwd'", ("is no time zone",)),
        ("[grading.handed_in]\n11 = 2026-10-05T23:59:00", ("with its zone", "time_zone")),
        ("[grading.canvas]\ncolumns = {2 = 3}", ("must be text",)),
        ("# [grading.late]\n[grading.late]\ngrace_minutes = 1\n'none_after_days' = -1 # x", ("line 4: none_after",)),
        ("[grading.late]\nfloor_percent = 0x" + "F" * 6000, ("a very long number",)),
        (ENTRY + "learner = 'a'\nexercise = 'attention.softmx'\npoints = 1", ("is no exercise of the course",)),
        (ENTRY + "learner = 'a'\nexercise = 'attention.softmax'\npoints = 3", ("points = 3 must be", "0 to 2")),
        (ENTRY + "learner = 'a'\nchapter = 2", ("one of the three",)),
        (ENTRY + "learner = 'a'\nchapter = 2\npoints = 1\nexcused = true", ("one of the three",)),
        (ENTRY + "learner = 'a'\nchapter = 99\nexcused = true", ("names no chapter",)),
        (ENTRY + "learner = 'a'\nexercise = 'attention.softmax'\non_time = true", ("whole chapter",)),
    ],
    ids=range(30),
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_named_with_what_is_allowed(tmp_path, capsys, text, reasons):
    with pytest.raises(ValueError, match=r"course\.toml") as error:
        policy_of(tmp_path, text)
    for reason in reasons:
        assert reason in str(error.value)
    if "wieghts" in text:
        said = refused(capsys, write_class(tmp_path / "class", "ada"), "--course", tmp_path / "course.toml")
        assert reasons[0] in said


def test_when_each_handed_in_is_read_with_its_zone_or_refused(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("id,name,Handed in\n11,ada,2026-10-05T21:59:00+00:00\n12,bo,\n", encoding="utf-8")
    assert [(each.id, time) for each, time in read_times(path)] == [("11", DUE)]
    for text, reason in [
        ("id\n11\n", "no column 'handed in'"),
        ("id,handed in\n11,2026-10-05 21:59\n", "line 2 .*with its zone"),
        ("id,handed in\n11,Monday\n", "line 2 .*'Monday' must be"),
    ]:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=reason):
            read_times(path)


def test_moodles_worksheet_says_when_each_handed_in_and_needs_a_zone(tmp_path):
    path = tmp_path / "sheet.csv"
    path.write_text(
        "Identifier,Full name,Status,Grade,Last modified (submission),Last modified (grade),Feedback comments\n"
        'Participant 11,ada,,,"Monday, 5 October 2026, 11:59 PM",-,\n'
        'Participant 12,bo,,,"Sunday, October 25, 2026, 12:05\N{NARROW NO-BREAK SPACE}AM",-,\n'
        'Participant 13,cy,,,"Donnerstag, 1 January 2026, 00:30",-,\nParticipant 14,di,,,-,-,\n',
        encoding="utf-8",
    )
    times = {each.id: time for each, time in read_times(path, "Europe/Berlin")}
    assert times == {
        "11": DUE,
        "12": datetime(2026, 10, 24, 22, 5, tzinfo=UTC),
        "13": datetime(2025, 12, 31, 23, 30, tzinfo=UTC),
    }
    with pytest.raises(ValueError, match=r"line 2 .*time_zone.*course\.toml"):
        read_times(path)
    for text in ("2026-10-05", "13:00 PM", "Monday, 31 June 2026, 1:00 PM", "5 October 2026, 13:00 PM"):
        path.write_text(f'id,handed in\n11,"{text}"\n', encoding="utf-8")
        with pytest.raises(ValueError, match="must be a date and time"):
            read_times(path, "Europe/Berlin")


def test_an_hour_that_the_clocks_jump_over_is_not_counted_as_late(tmp_path):
    """On 25 October clocks in Berlin go back from 3 to 2: from 1:30 to 3:30 pass three hours, in UTC."""
    policy = policy_of(
        tmp_path,
        "[grading]\ntime_zone = 'Europe/Berlin'\n[grading.due]\n2 = 2026-10-25T01:30:00\n"
        "[grading.late]\npercent_per_day = 10\ngrace_minutes = 180\n[grading.handed_in]\n11 = 2026-10-25T03:30:00\n",
    )
    assert policy.handed_in["11"] - policy.due[2] == timedelta(hours=3)
    assert count(policy, marked())[0].earned == 5
    [done], doubts = apply_policy(policy, [marked()], [(Learner("11", "ada"), DUE + timedelta(days=99))])
    assert (done.counted.earned, doubts) == (5, []), "the time that a person gives outranks the list"


@pytest.mark.parametrize(
    ("name", "late"),
    [
        ("roebo_LATE_12_203_02_attention.ipynb", True),
        ("roebo_12_203_my_LATE_99_homework.ipynb", False),
        ("roebo_12_203_02_attention.ipynb", False),
        ("chocolate_12_203_x.ipynb", False),
        ("so_LATE.ipynb", False),
    ],
)
def test_canvas_says_late_before_the_learners_number_alone(name, late):
    assert is_late(name) == late


# --- through the command ----------------------------------------------------------------------------------------------
def test_a_word_outlives_a_second_grading_and_is_in_every_result(tmp_path, capsys, monkeypatch):
    pretend(monkeypatch)
    class_, out = write_class(tmp_path / "class", "ada", "bert"), tmp_path / "out"
    course = tmp_path / "course.toml"
    course.write_text(
        "[grading.weights]\nattention = 2\n" + ENTRY + f"learner = 'ada'\nexercise = '{EXERCISE}'\npoints = 1.5\n"
        "why = '=cmd() <b>see mail</b>'\nby = 'A. Teacher'\n"
        + ENTRY
        + "learner = 'zoe'\nchapter = 2\nexcused = true\n",
        encoding="utf-8",
    )
    arguments = ["grade", str(class_), "--exercises", EXERCISE, "--out", str(out), "--json", "--csv", "--canvas"]
    arguments += ["--gradescope", "--course", str(course)]
    for more in ([], ["--resume"], ["--seed", "5"]):
        if "--seed" in more:  # a re-mark: other cases, and another folder
            place, out = arguments.index(str(out)), tmp_path / "again"
            arguments[place] = str(out)
        assert main([*arguments, *more]) == 1, "a word for somebody who is not there"
        said = capsys.readouterr()
        assert "NOT APPLIED: the override for zoe" in said.err
        results = json.loads((out / "results.json").read_text("utf-8"))
        assert {each["name"]: each["earned"] for each in results["submissions"]} == {"ada": 2, "bert": 2}, "as graded"
        assert {each["name"]: each["counted"]["earned"] for each in results["submissions"]} == {"ada": 3, "bert": 4}
        canvas = list(csv.reader(io.StringIO((out / "canvas.csv").read_text("utf-8"), newline="")))
        assert [(row[0], row[-1]) for row in canvas[1:]] == [("    Points Possible", "4"), ("ada", "3"), ("bert", "4")]
        scores = {path.parent.name: json.loads(path.read_text("utf-8"))["score"] for path in out.glob("gradescope/*/*")}
        assert scores == {"ada": 3, "bert": 4}
        for path in (out / "report" / "index.html", out / "report" / "learners" / "ada.html"):
            page = Page(path.read_text("utf-8"))
            assert "set to 1.5 by A. Teacher: =cmd() <b>see mail</b>" in " ".join(page.text().split())
    assert '"counted"' not in (out / "marks.jsonl").read_text("utf-8"), "the journal keeps what the grader gave"
    course.write_text("", encoding="utf-8")
    assert main([*arguments, "--resume"]) == 0
    capsys.readouterr()
    canvas = list(csv.reader(io.StringIO((out / "canvas.csv").read_text("utf-8"), newline="")))
    assert [(row[0], row[-1]) for row in canvas[2:]] == [("ada", "2"), ("bert", "2")]


def test_what_canvas_calls_late_and_nobody_timed_is_said(tmp_path, capsys, monkeypatch):
    pretend(monkeypatch)
    text = (write_class(tmp_path / "one", "ada") / "ada" / "answers.ipynb").read_text("utf-8")
    files = {f"class/{name}_02_attention.ipynb": text for name in ("roebo_LATE_12_203", "poecy_13_204")}
    class_, course = lay_out(tmp_path, files) / "class", tmp_path / "course.toml"
    course.write_text("[grading.due]\n2 = 2026-10-05T23:59:00+02:00\n[grading.handed_in]\n13 = 2026-10-05T23:59:00Z\n")
    assert main(["grade", str(class_), "--exercises", EXERCISE, "--course", str(course)]) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("NOT APPLIED")]
    assert len(said) == 1
    assert "(12) came late, and nothing says how late" in said[0]


def test_dates_without_times_are_asked_for_and_a_course_file_here_is_taken_and_said(tmp_path, capsys, monkeypatch):
    pretend(monkeypatch)
    class_ = lay_out(tmp_path, {"times.csv": "id,handed in\nada,2026-10-05T21:59:00+00:00\n"}) / "class"
    write_class(class_, "ada")
    assert "[grading.due]" in refused(capsys, class_, "--handed-in", tmp_path / "times.csv")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "course.toml").write_text("[grading.weights]\nattention = 2\n", encoding="utf-8")
    assert main(["grade", str(class_), "--exercises", EXERCISE]) == 0
    assert "points count as course.toml says" in capsys.readouterr().out
    assert ANSWERS


# --- a column for each chapter ----------------------------------------------------------------------------------------
TITLES = {2: "Attention", 3: "Masks"}


def test_canvas_gets_a_column_for_each_chapter_scaled_to_what_it_is_worth_there(tmp_path):
    gradebook = tmp_path / "book.csv"
    gradebook.write_text(
        "Student,ID,SIS Login ID,Section,Attention (77),Quiz (5)\n    Points Possible,,,,30,10\n"
        '"Lane, Ada",11,ada,A,,9\n"Roe, Bo",12,bo,A,1,8\n',
        encoding="utf-8",
    )
    [path] = write_canvas([marked("somebody", "11", softmax=1)], tmp_path, gradebook=gradebook, chapters=TITLES)
    rows = list(csv.reader(io.StringIO(path.read_text("utf-8"), newline="")))
    assert rows[0][4:] == ["Attention (77)", "Quiz (5)", "Masks"]
    assert rows[1][4:] == ["30", "10", "2"]
    assert rows[2][4:] == ["20", "9", "2"], "by the id, whatever the submission is called"
    assert rows[3][4:] == ["1", "8", ""], "nobody else's row is touched"
    [path] = write_canvas([marked(softmax=1)], tmp_path, chapters=TITLES)
    rows = list(csv.reader(io.StringIO(path.read_text("utf-8"), newline="")))
    assert [row[-2:] for row in rows] == [["Attention", "Masks"], ["3", "2"], ["2", "2"]]
    assert CANVAS.startswith("Student,ID")


@pytest.mark.parametrize("head", ["Chapter 2 · Attention (77)", "Chapter 2 · Attention", "Homework (77)"])
def test_a_chapters_column_is_known_by_its_number_or_as_the_course_file_says(tmp_path, head):
    gradebook = tmp_path / "book.csv"
    gradebook.write_text(
        f'Student,ID,SIS Login ID,Section,Quiz (5),{head}\n"Lane, Ada",11,ada,A,9,\n', encoding="utf-8"
    )
    named = {2: "HW (77)", 7: "x"} if head.startswith("Homework") else {}
    [path] = write_canvas([marked()], tmp_path, gradebook=gradebook, chapters=TITLES, named=named)
    rows = list(csv.reader(io.StringIO(path.read_text("utf-8"), newline="")))
    assert rows == [["Student", "ID", "SIS Login ID", "Section", "Quiz (5)", head, "Masks"],
                    ["Lane, Ada", "11", "ada", "A", "9", "3", "2"]]  # fmt: skip
    for named, reason in [
        ({2: "Hw 2"}, r"no column 'Hw 2'.*Quiz \(5\)"),
        ({2: "Quiz (5)", 3: "Quiz (5)"}, "two chapters"),
    ]:
        with pytest.raises(ValueError, match=reason):
            write_canvas([marked()], tmp_path, gradebook=gradebook, chapters=TITLES, named=named)


def test_each_assignment_of_moodle_gets_the_grade_of_its_chapter(tmp_path, capsys, monkeypatch):
    pretend(monkeypatch)
    class_, out = write_class(tmp_path / "class", "ada"), tmp_path / "out"
    for name in ("a", "b"):
        (tmp_path / f"{name}=.csv").write_text(
            "Identifier,Full name,Grade,Maximum Grade,Last modified (grade),Feedback comments\n"
            "Participant 11,ada,,100,,\n"
        )
    course = tmp_path / "course.toml"
    course.write_text(ENTRY + "learner = 'ada'\nexercise = 'masks.causal'\npoints = 1\n", encoding="utf-8")
    options = ["--exercises", *IDS, "--out", out, "--course", course]
    sheets = [f"2={tmp_path / 'a=.csv'}", f"3={tmp_path / 'b=.csv'}"]

    def grade(given):
        return main(
            ["grade", *map(str, options), *(part for each in given for part in ("--moodle", each)), str(class_)]
        )

    assert grade(sheets) == 0
    capsys.readouterr()
    grades = {
        name: next(csv.DictReader(io.StringIO((out / name).read_text("utf-8"))))
        for name in ("moodle_2.csv", "moodle_3.csv")
    }
    assert [grades[name]["Grade"] for name in grades] == ["100", "50"]
    assert "3 of 3 points" in grades["moodle_2.csv"]["Feedback comments"]
    for wrong, reason in [
        (sheets[:1] * 2, "of several worksheets say which chapter"),
        ([sheets[0], str(tmp_path / "b=.csv")], "of several worksheets say which chapter"),
        ([f"9={tmp_path / 'a=.csv'}"], "--chapters as well"),
        (["2=nowhere.csv"], "nowhere.csv is not a file"),
    ]:
        assert grade(wrong) == 2
        assert reason in capsys.readouterr().err


def test_moodles_gradebook_gets_a_column_for_each_chapter(tmp_path):
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(
        "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Last modified (grade),Feedback comments\n"
        "Participant 11,Ada Lane,ada@example.org,,,100,,\nParticipant 12,Bo Roe,bo@example.org,,,100,,\n",
        encoding="utf-8",
    )
    _, path = write_moodle([marked("somebody", "11", softmax=1)], tmp_path, sheet, chapters=TITLES)
    rows = list(csv.reader(io.StringIO(path.read_text("utf-8"), newline="")))
    assert rows == [["Full name", "Email address", "Attention", "Masks"], ["Ada Lane", "ada@example.org", "2", "2"]]
