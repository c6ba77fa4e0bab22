"""The manifest: in whole classes nobody is lost, nobody is merged, nobody takes a neighbour's row; and what it says."""

import csv
import io
import json

import pytest

from course_lib.__main__ import main
from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.read.manifest import make_manifest, told
from course_lib.classroom.read.roster import Roster, read_roster
from course_lib.classroom.read.submissions import find_handed_in
from tests.grading.classes import CANVAS, HONEST_CLASSES, HOSTILE_CLASSES, MOODLE, Class
from tests.handed_in import about, lay_out
from tests.pretended_worker import pretend
from tests.small_class import refused

CASES = {**HONEST_CLASSES, **HOSTILE_CLASSES}


def of(case: Class, folder):
    learners = []
    if case.roster:
        path = folder / "roster of the office.csv"
        path.write_bytes(case.roster if isinstance(case.roster, bytes) else case.roster.encode())
        learners = read_roster(path)
    handed_in = find_handed_in([lay_out(folder / "class", case.files)], learners, case.one_each)
    return handed_in, make_manifest(handed_in, [2], learners)


@pytest.mark.parametrize("name", CASES)
def test_in_a_whole_class_each_is_found_in_what_is_theirs_and_all_else_is_said(name, tmp_path):
    case = CASES[name]
    handed_in, manifest = of(case, tmp_path)
    by_state = {state: {line.name for line in manifest if line.state == state} for state in ("unknown", "missing")}
    found = {line.name: {file.partition("/")[0] for file in line.files} for line in manifest if line.state == "found"}
    assert found == case.found, case.about
    assert by_state == {"unknown": case.unknown, "missing": case.missing}, case.about
    assert {line.name for line in manifest if line.state == "not taken"} == case.not_taken, case.about
    assert len({line.name for line in manifest if line.state == "found"}) == len(case.found), "one row, one learner"
    rows = [each.learner for each in handed_in.submissions if each.learner]
    assert len(rows) == len({*rows}) or not case.roster


def test_there_are_many_classes_and_each_says_what_it_is_about():
    assert len(HONEST_CLASSES) >= 22
    assert len(HOSTILE_CLASSES) >= 26
    assert len({case.about for case in CASES.values()}) == len(CASES)


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("", ("(none)", "ID, Student, Name, Username or Email")),
        ("colour,size\nred,2\n", ("colour, size", "none of them says who the learner is")),
        (CANVAS, ("lists no learners", "export the roster again")),
        ("id,name\n5,ada\n5,bo\n", ("lines 2 and 3", "one id, 5", "one learner is one row")),
        ("id,name\n5,ada\n\n ,\n,\n5 ,bo\n", ("one id, 5",)),
        ("id,mark\n,3\n", ("line 2", "neither an id nor a name", "add one")),
        (b"id,name\n5,Zo\xeb\n", ("cannot be read as a roster", "UTF-8")),
    ],
    ids=["empty", "no column", "no learner", "twice", "twice, with gaps", "a row without a name", "another encoding"],
)
def test_a_roster_that_cannot_be_used_says_why_and_what_to_do(text, reasons, tmp_path, capsys):
    path = tmp_path / "roster.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    class_ = lay_out(tmp_path / "class", {"ada.ipynb": about(3)})
    said = refused(capsys, class_, "--roster", path, "--manifest")
    for reason in ("roster.csv", *reasons):
        assert reason in said
    assert "is not a file" in refused(capsys, class_, "--roster", tmp_path / "absent.csv")


def test_of_a_roster_the_number_of_the_platform_counts_and_every_name_is_known(tmp_path):
    def read(text: str):
        (tmp_path / "roster.csv").write_text(text, encoding="utf-8")
        return [(each.id, each.name, set(each.also)) for each in read_roster(tmp_path / "roster.csv")]

    assert read(CANVAS + '"Lane, Ada",11,S7,ada,A\n') == [("11", "Ada Lane", {"Lane, Ada", "S7", "ada"})]
    assert read(MOODLE + "Participant 11,Ada Lane,ada.l@example.org,,,,\n") == [
        ("11", "Ada Lane", {"Participant 11", "ada.l@example.org", "ada.l"})
    ]
    assert read("Name\nAda Lane\n") == [("Ada Lane", "Ada Lane", set())]


SMALL = {**{f"{name}.ipynb": about(3) for name in ("ada", "bo", "=2+3")}, "cy.html": "<p>"}


@pytest.fixture
def class_of_four(tmp_path):
    """Ada and Bo are on the roster, so is Dee, who handed in nothing; Cy handed in a printed page."""
    (tmp_path / "roster.csv").write_text("login,name\nada,Ada Lane\nbo,Bo Roe\ndee,Dee\n", encoding="utf-8")
    return ["grade", str(lay_out(tmp_path / "class", SMALL)), "--roster", str(tmp_path / "roster.csv")]


def rows_of(path) -> list[dict]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"), newline="")))


def test_the_manifest_alone_grades_nothing_and_tells_who_is_in_doubt(class_of_four, tmp_path, capsys, monkeypatch):
    marks = pretend(monkeypatch)
    assert main([*class_of_four, "--manifest", "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().out
    assert "3 submissions, 2 in the roster, 1 unknown, 1 missing, 1 not taken" in said
    for state, name in [("found", "Ada Lane"), ("UNKNOWN", "=2+3"), ("MISSING", "Dee"), ("NOT TAKEN", "cy.html")]:
        assert any(line.split()[: len(state.split())] == state.split() and name in line for line in said.splitlines())
    assert marks.names == []
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"manifest.csv"}
    rows = rows_of(tmp_path / "out" / "manifest.csv")
    assert [(row["state"], row["learner"], row["name"]) for row in rows] == [
        ("unknown", "", "'=2+3"),
        ("found", "ada", "Ada Lane"),
        ("found", "bo", "Bo Roe"),
        ("missing", "dee", "Dee"),
        ("not taken", "", "cy.html"),
    ]
    (tmp_path / "class" / "cy.html").unlink()
    (tmp_path / "class" / "=2+3.ipynb").unlink()
    assert main([*class_of_four, "--manifest"]) == 0, "who is missing is in no doubt"


def test_a_run_says_its_manifest_first_and_keeps_it_in_every_result(class_of_four, tmp_path, capsys, monkeypatch):
    pretend(monkeypatch)
    out = tmp_path / "out"
    assert main([*class_of_four, "--out", str(out), "--json"]) == 1, "somebody is in no row"
    said = capsys.readouterr()
    assert said.out.index("MISSING") < said.out.index("expected of everyone") < said.out.index("points")
    assert "UNKNOWN: =2+3: no row has this name" in said.err
    results = json.loads((out / "results.json").read_text("utf-8"))
    assert {each["name"]: each["learner"] for each in results["submissions"]} == {
        "=2+3": "",
        "Ada Lane": "ada",
        "Bo Roe": "bo",
    }
    assert [line["state"] for line in results["manifest"]] == ["unknown", "found", "found", "missing", "not taken"]
    assert len(rows_of(out / "manifest.csv")) == 5
    page = (out / "report" / "index.html").read_text("utf-8")
    assert "Missing: 1" in page
    assert "In no row: 1" in page


@pytest.mark.parametrize(("answer", "graded"), [("y\n", True), ("Yes\n", True), ("\n", False), ("no\n", False)])
def test_with_confirm_nothing_is_graded_before_a_yes(class_of_four, capsys, monkeypatch, answer, graded):
    marks = pretend(monkeypatch)

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert main([*class_of_four, "--confirm"]) == 1
    said = capsys.readouterr().out
    assert bool(marks.names) is graded
    assert ("Nothing was graded" in said) is not graded
    assert said.index("MISSING") < said.index("Grade these?")


def test_where_nobody_can_answer_confirm_is_refused(class_of_four, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert "--manifest" in refused(capsys, *class_of_four[1:], "--confirm")


def test_of_a_large_class_the_doubtful_are_shown_and_the_rest_is_counted(tmp_path):
    files = {f"learner{i}.ipynb": about(3) for i in range(60)}
    case = Class("", files, {}, "login\n" + "".join(f"learner{i}\n" for i in range(59)))
    text = told(of(case, tmp_path)[1], True)
    assert "60 submissions, 59 in the roster, 1 unknown" in text
    assert text.count("\n") == 2
    assert "UNKNOWN" in text
    assert "59 more" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_mark_by_id_outranks_one_by_a_name(tmp_path):
    """Whoever names a file as a neighbour's download does not keep the neighbour's mark from its row."""
    case = HOSTILE_CLASSES["a profile called as a neighbour's download, with the roster of another office"]
    handed_in, _ = of(case, tmp_path)
    marked = [GradedSubmission(each.name, "", (), learner=each.learner) for each in handed_in.submissions]
    roster = Roster({0: ("22", ["Bo Roe"]), 1: ("66", ["Mal Yard"])})
    rows, left = roster.assign(marked)
    assert {row: each.name for row, each in rows.items()} == {0: "Bo Roe"}
    assert [why for _, why in left] == ["another submission fits the same row"]
