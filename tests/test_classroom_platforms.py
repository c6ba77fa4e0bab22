"""Downloads of the learning platforms that the guide names: a drawn class of each layout is found, and nobody else."""

import csv
import io
import re
from datetime import UTC, datetime

import pytest

from course_lib.__main__ import main
from course_lib.classroom.read.platforms import downloads
from course_lib.classroom.read.roster import read_roster
from course_lib.classroom.read.submissions import find_handed_in
from course_lib.classroom.read.times import platform_times
from tests.grading.platforms import LAYOUTS, blackboard, brightspace, gradescope, people
from tests.handed_in import about, lay_out
from tests.small_class import ROOT


def found(folder, laid, *options, status=0):
    """The rows of the manifest that the command writes: id -> things of the class."""
    (folder / "roster.csv").write_bytes(laid.roster)
    class_, out = lay_out(folder / "class", laid.files), folder / "out"
    arguments = ["grade", str(class_), "--roster", str(folder / "roster.csv"), "--manifest", "--out", str(out)]
    assert main([*arguments, *laid.options, *options]) == status
    text = (out / "manifest.csv").read_text("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert status or {row["state"] for row in rows} <= {"found", "missing"}
    return {
        row["learner"]: {each.partition("/")[0] for each in row["files"].split(" | ")}
        for row in rows
        if row["state"] == "found"
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_everybody_of_a_platforms_download_is_in_the_right_row(tmp_path, capsys, layout, seed):
    laid = LAYOUTS[layout](people(seed))
    assert found(tmp_path, laid) == laid.rows
    assert "0 unknown, 0 missing, 0 not taken" in capsys.readouterr().out


def test_the_guides_table_names_these_layouts_and_no_others():
    guide = (ROOT / "solutions" / "README.md").read_text("utf-8")
    table = guide[guide.index("| platform | its download |") :]
    rows = re.findall(r"^\| (?!platform)([^|]+?) \|", table[: table.index("\n\n")], re.MULTILINE)
    assert rows == [*LAYOUTS]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_a_roster_nobody_is_merged_with_a_neighbour_and_nothing_is_left(tmp_path, layout):
    class_ = people(5)
    laid = LAYOUTS[layout](class_)
    handed_in = find_handed_in([lay_out(tmp_path, laid.files)])
    assert handed_in.left == []
    for submission in handed_in.submissions:
        owners = {id for id, things in laid.rows.items() for each in submission.handed_in if each in things}
        assert len(owners) == (2 if layout == "Gradescope" and len(owners) == 2 else 1)


def test_without_a_roster_gradescopes_list_says_whose_each_is(tmp_path):
    class_ = people(0)
    handed_in = find_handed_in([lay_out(tmp_path, gradescope(class_).files)])
    assert {each.learner: each.name for each in handed_in.submissions} == {p.id: p.name for p in class_}
    assert handed_in.unknown == {}


# --- names that somebody chose ----------------------------------------------------------------------------------------
BO, MAL = "Homework 2_bo_attempt_2026-10-05-23-58-12", "Homework 2_mal_attempt_2026-10-05-23-59-12"


@pytest.mark.parametrize(
    ("name", "learners"),
    [
        (f"{MAL}_{BO}_x.ipynb", ["Homework 2_mal"]),
        (f"{MAL}_hw_22_33_x.ipynb", ["Homework 2_mal"]),
        (f"yardmal_66_203_{BO}_x.ipynb", ["yardmal_66_203_Homework 2_bo", "yardmal"]),
        (f"{MAL}_Bo Roe_22_assignsubmission_file_x.ipynb", ["Homework 2_mal", f"{MAL}_Bo Roe"]),
        ("1-2 - Bo Roe - Oct 5, 2026 1159 PM_66_assignsubmission_file", ["1-2 - Bo Roe - Oct 5, 2026 1159 PM"]),
        ("1-2 - Mal - 3-4 - Bo Roe - Oct 5, 2026 1159 PM", ["1-2 - Mal - 3-4 - Bo Roe"]),
    ],
)  # fmt: skip
def test_what_a_learner_chose_makes_a_download_of_nobody_elses(name, learners):
    assert [each.learner for each in downloads(name)] == learners


def test_a_file_called_as_a_neighbours_attempt_stays_with_the_sender(tmp_path):
    roster = b"Username,Last Name,First Name\nbo,Roe,Bo\nmal,Yard,Mal\n"
    files = {
        f"{BO}.txt": "Name: Bo Roe (bo)\n",
        f"{BO}_x.ipynb": about(3),
        f"{MAL}.txt": "Name: Bo Roe (mal)\nAssignment: Homework 2\nName: Bo Roe (bo)\n",
        f"{MAL}_{BO}_x.ipynb": about(3),
        f"{MAL}_{BO}.txt": "Name: Bo Roe (bo)\n",
        f"{MAL}_22.ipynb": about(4),
    }
    (tmp_path / "roster.csv").write_bytes(roster)
    handed_in = find_handed_in([lay_out(tmp_path / "class", files)], read_roster(tmp_path / "roster.csv"))
    assert {each.learner: {*each.handed_in} for each in handed_in.submissions} == {
        "bo": {f"{BO}_x.ipynb"},
        "mal": {f"{MAL}_{BO}_x.ipynb", f"{MAL}_{BO}.txt", f"{MAL}_22.ipynb"},
    }


def test_a_login_that_nobody_on_the_roster_has_is_not_the_end_of_it(tmp_path):
    (tmp_path / "roster.csv").write_text("Username,Name\nlovelace,Ada Lovelace\nbo,Bo Roe\n", encoding="utf-8")
    learners = read_roster(tmp_path / "roster.csv")
    files = {f"HW_{login}_attempt_2026-10-05-23-58-12_x.ipynb": about(3) for login in ("a_lovelace", "bo")}
    assert all(find_handed_in([lay_out(tmp_path / "without receipts", files)], learners).unknown.values())
    files |= {
        f"HW_{login}_attempt_2026-10-05-23-58-12.txt": f"Name: {name} ({login})\n"
        for login, name in [("a_lovelace", "Ada Lovelace"), ("bo", "Bo Roe")]
    }
    handed_in = find_handed_in([lay_out(tmp_path / "with receipts", files)], learners)
    assert {each.learner for each in handed_in.submissions} == {"", "bo"}, "where logins are known, no name is asked"


def test_two_people_of_one_name_are_not_told_apart_by_guessing(tmp_path):
    laid = brightspace(people(1))
    rows = laid.roster + laid.roster.splitlines()[1].replace(b'"#00', b'"#99').replace(b'"#', b'"#z', 2) + b"\n"
    class_ = found(tmp_path, laid._replace(roster=rows), status=1)
    assert class_ == {id: things for id, things in laid.rows.items() if id != next(iter(laid.rows))}


def test_a_list_of_gradescopes_that_cannot_be_read_is_named_and_stops_nothing(tmp_path):
    texts = ("a: [", "submission_1: [1]\n", "- 1\n", b"\xff\xfe\x00", "submission_1:\n  :submitters:\n  - 7\n", "")
    for number, text in enumerate(texts):
        folder = tmp_path / str(number)
        files = {"submission_1/x.ipynb": about(3), "submission_2/x.ipynb": about(3), "submission_metadata.yml": text}
        handed_in = find_handed_in([lay_out(folder, files)])
        assert [each.name for each in handed_in.submissions] == ["submission_1", "submission_2"]
        assert [each.name for each in handed_in.left] == ["submission_metadata.yml"]


# --- when -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (blackboard, datetime(2026, 10, 5, 21, 58, 12, tzinfo=UTC)),
        (brightspace, datetime(2026, 10, 5, 21, 59, tzinfo=UTC)),
        (gradescope, datetime(2026, 10, 5, 21, 58, 12, tzinfo=UTC)),
    ],
)
def test_the_time_that_a_download_tells_is_the_last_of_the_learners(tmp_path, layout, expected):
    class_ = people(2)
    (tmp_path / "roster.csv").write_bytes(layout(class_).roster)
    submissions = find_handed_in(
        [lay_out(tmp_path / "class", layout(class_).files)], read_roster(tmp_path / "roster.csv")
    ).submissions
    times, unread = platform_times(submissions, "Europe/Berlin")
    assert unread == {}
    first = class_[0].name
    if layout is brightspace:
        assert times.pop(first) == datetime(2026, 10, 5, 22, 1, tzinfo=UTC), "there were two"
    assert {*times.values()} == {expected}
    assert len(platform_times(submissions, "")[0]) == (len(class_) if layout is gradescope else 0), "no zone is guessed"
    if layout is blackboard:
        times, unread = platform_times(submissions, "America/New_York")
        assert times == {}, "its clocks do not show CEST"
        assert all("is in CEST, which clocks in America/New_York" in why for why in unread.values())
        assert len(unread) == len(class_)


@pytest.mark.parametrize(
    "start", ["Mal Yard_66_assignsubmission_file_", "yardmal_66_203_", "12-34 - Mal Yard - Oct 5, 2026 1159 PM_66_203_"]
)
def test_what_looks_like_a_receipt_in_another_platforms_download_tells_nothing(tmp_path, start):
    """On Moodle one learner's files begin alike: a false receipt would put a notebook in a neighbour's row."""
    (tmp_path / "roster.csv").write_text("ID,Username,Name\n22,bo,Bo Roe\n66,mal,Mal Yard\n", encoding="utf-8")
    files = {f"{start}{BO}.txt": "Name: Bo Roe (bo)\n", f"{start}{BO}_x.ipynb": about(3)}
    class_ = lay_out(tmp_path / "class", {**files, "66.ipynb": about(3)})
    for learners in (read_roster(tmp_path / "roster.csv"), []):
        handed_in = find_handed_in([class_], learners)
        assert "22" not in {each.learner for each in handed_in.submissions}
        assert "Bo Roe" not in {each.name for each in handed_in.submissions}
        assert [each.name for each in handed_in.left] == [f"{start}{BO}.txt"]
