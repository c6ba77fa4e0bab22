"""Results for other programs, read back as those programs read them; and the class's figures.

The readers here are not ours: csv, json, ElementTree, html.parser, and importers written from what the LMSs document.
"""

import csv
import io
import json
import random
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.classroom import formats, statistics
from course_lib.classroom.folders import LeftOut
from course_lib.classroom.graded import GradedSubmission
from course_lib.grading.catalogue import EXERCISES
from course_lib.grading.result import Result

HOSTILE = [
    '=HYPERLINK("http://localhost/","you won")',
    " \t '+1+1",
    "-2+3",
    "@SUM(1,1)",
    "＝1+1",
    "\r=1",
    "first line\n=1+1\n\nlast line",
    'cut here;=1+1;"=2',
    "\x1b[31mred\x1b[0m \x1b]8;;http://localhost\x07link\x1b]8;;\x07 \x9b2J",
    "\x00\x08\x0b\x7f\x85 \ud800 \ufffe \uffff \U0001f600",
    "\u202egpj.exe\u2066",
    "</failure></testcase><testcase name='won'/>]]>&amp;<!--",
    "<script>alert(1)</script><img src=x onerror=alert(1)> &lt;= &",
    "ends in a backslash\\",
    '\\",0,0\\"\n1,2,3',
    "../../etc/passwd",
    "CON",
    "nul.txt",
    "a" * 400,
    "李小龙",
    "e\u0301 Zoe\u0308",
    "",
    ".",
]
# Escapes are in the list above: what else a drawn one would take along, nobody can say without being the terminal.
characters = st.characters(exclude_characters="\x1b\x9b\x9d")
texts = st.one_of(st.sampled_from(HOSTILE), st.text(characters, max_size=60))
few = settings(max_examples=60, deadline=None)


@st.composite
def results(draw, exercise_id="attention.softmax"):
    status = draw(st.sampled_from(["passed", "failed", "unanswered", "written"]))
    points = 0 if status == "written" else draw(st.integers(0, 5))
    sentences = tuple(draw(st.lists(texts, max_size=2)))
    mistake = draw(st.one_of(st.none(), texts)) if status == "failed" else None
    return Result(exercise_id, draw(texts), status, points, sentences, draw(texts), mistake, 'Stuck? hint("x")')


@st.composite
def submissions(draw, name=texts):
    ids = draw(st.lists(st.sampled_from([*EXERCISES][:30]), unique=True, min_size=1, max_size=4))
    marks = tuple(draw(results(id)) for id in ids)
    return GradedSubmission(
        draw(name), f"{draw(st.integers(0, 2**32)):064x}", marks, tuple(draw(st.lists(texts, max_size=2)))
    )


classes = st.lists(submissions(), max_size=4)


def result(exercise_id, status, points, misconception=None, sentences=("Because.",), title=None):
    title = title or EXERCISES[exercise_id].title
    closing = f'Stuck? hint("{exercise_id}")' if status == "failed" else ""
    return Result(exercise_id, title, status, points, tuple(sentences), "", misconception, closing)


def marked(name, earned=(True, False), **changes):
    """A submission of two exercises, of 3 and of 2 points."""
    marks = [
        result(id, "passed" if right else "failed", points, None if right else "mask inverted")
        for id, points, right in zip(("attention.softmax", "masks.causal"), (3, 2), earned)
    ]
    return GradedSubmission(name, "0" * 64, tuple(marks), **changes)


def spoken(text):
    """What a program must show of a text, whatever it does with the rest: letters and digits, outside of escapes."""
    text = re.sub(r"\x1b\[[^m]*m|\x1b\]8;;[^\x07]*\x07|\x9b2J", "", text)
    return [each for each in text if each.isalnum() and each.isascii()]


def feedback_of(result):
    return "\n".join(part for part in (*result.sentences, result.evidence, result.sketch) if part)


def has_no_controls(text):
    return not any(unicodedata.category(each) in ("Cc", "Cs") for each in text if each not in "\n\t") and not re.search(
        "[\u202a-\u202e\u2066-\u2069]", text
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Hypothesis draws many classes for one test: each overwrites the files of the one before."""
    return tmp_path_factory.mktemp("results")


# --- JSON, CSV --------------------------------------------------------------------------------------------------------


@few
@given(classes)
def test_json_holds_every_mark(folder, drawn):
    (path,) = formats.write_json(drawn, folder)
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


def test_equal_results_give_equal_bytes_in_whatever_order_they_come(tmp_path):
    many = [marked(f"learner {i}", (i % 2 == 0, i % 3 == 0)) for i in range(12)]
    shuffled = random.Random(3).sample(many, len(many))
    environ = ENVIRON
    for write in (
        formats.write_json,
        formats.write_csv,
        formats.write_junit,
        formats.write_gradescope,
        formats.write_canvas,
        lambda marked, folder: formats.write_classroom50(marked, folder, environ),
    ):
        one, other = (write(each, tmp_path / name) for each, name in ((many, "a"), (shuffled, "b")))
        assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
        assert [path.relative_to(tmp_path / "a") for path in one] == [
            path.relative_to(tmp_path / "b") for path in other
        ]
        assert not [*tmp_path.rglob("*.part")]
    assert formats.terminal_table(many) == formats.terminal_table(shuffled)


def test_an_exercise_that_the_course_no_longer_has_is_still_written(tmp_path):
    gone = GradedSubmission("Ada", "0" * 64, (result("gone.exercise", "passed", 2, title="Gone"),))
    (path,) = formats.write_json([gone], tmp_path)
    assert json.loads(path.read_text("utf-8"))["submissions"][0]["results"][0]["chapter"] is None
    (path,) = formats.write_csv([gone], tmp_path)
    assert "gone.exercise,,Gone" in path.read_text("utf-8-sig")
    assert "Ada" in formats.terminal_table([gone])


COLUMNS = ["learner", "exercise", "chapter", "title", "status", "earned", "points", "misconception", "feedback"]


def begins_a_formula(text):
    """Would a spreadsheet calculate this cell? Also after it has cut the cell where another separator stands."""
    parts = [text, *re.split(r"[;\n\t]", text)]
    return text[:1] in ("\t", "\n", "\r") or any(
        part.lstrip(" \t\n\"'\xa0")[:1] in tuple("=+-@＝＋－＠") and not part.startswith("'") for part in parts if part
    )


@few
@given(classes)
def test_csv_gives_every_mark_back_and_no_cell_is_a_formula(folder, drawn):
    (path,) = formats.write_csv(drawn, folder)
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
        for value in row.values():
            assert has_no_controls(value)
            assert not begins_a_formula(value)


@pytest.mark.parametrize("text", HOSTILE[:8])
def test_what_would_be_calculated_gets_an_apostrophe(text):
    assert begins_a_formula(text), "the test's own reader must know it"
    assert not begins_a_formula(formats.cell(text))


@pytest.mark.parametrize("text", ["attention.softmax", "a = b", "x - 1; y", "[1, -2]", "two\n\nlines\n  of text", "5"])
def test_a_harmless_cell_stays_as_it_is(text):
    assert formats.cell(text) == text


def test_colours_and_links_leave_their_words():
    text = "\x1b[1;31mred\x1b[0m and \x1b]8;;http://localhost/\x1b\\a link\x1b]8;;\x1b\\\r\nnext\x1b"
    assert formats.plain(text) == "red and a link\nnext"
    assert "\x1b" not in formats.plain("\x1b\x1b[31m[31m"), "what is left after a removal is no escape either"


@few
@given(classes, st.lists(st.tuples(texts, texts), max_size=3))
def test_what_was_not_taken_stands_in_json_and_csv(folder, drawn, pairs):
    left = [LeftOut(*pair) for pair in pairs]
    (path,) = formats.write_json(drawn, folder, left)
    told = json.loads(path.read_text(encoding="utf-8"))["not_taken"]
    assert len(told) == len(left)
    (path,) = formats.write_csv(drawn, folder, left)
    rows = list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")))
    rows = [row for row in rows if row["status"] == "not taken"]
    assert len(rows) == len(left)
    for (name, why), row, entry in zip(pairs, rows, told):
        assert spoken(row["learner"]) == spoken(entry["name"]) == spoken(name)
        assert spoken(row["feedback"]) == spoken(why)
        assert {row[key] for key in ("exercise", "earned", "points")} == {""}
        assert not any(begins_a_formula(value) for value in row.values())


# --- JUnit ------------------------------------------------------------------------------------------------------------

# pytest's published schema (junit-10): children and attributes that it knows, and those that must be there.
KNOWN = {
    "testsuites": ({"testsuite"}, {"name", "time", "tests", "failures", "errors"}, set()),
    "testsuite": (
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname"},
        {"name", "tests", "failures", "errors"},
    ),
    "properties": ({"property"}, set(), set()),
    "property": (set(), {"name", "value"}, {"name", "value"}),
    "testcase": ({"skipped", "failure", "system-out", "system-err"}, {"name", "time", "classname"}, {"name"}),
    "failure": (set(), {"type", "message"}, set()),
    "skipped": (set(), {"type", "message"}, set()),
    "system-err": (set(), set(), set()),
}


@few
@given(classes)
def test_junit_follows_pytests_schema_and_its_properties_hold_the_points(folder, drawn):
    (path,) = formats.write_junit(drawn, folder)
    root = ElementTree.fromstring(path.read_bytes())
    assert root.tag == "testsuites"
    for element in root.iter():
        children, attributes, needed = KNOWN[element.tag]
        assert {child.tag for child in element} <= children
        assert needed <= {*element.keys()} <= attributes
    by_place = sorted(drawn, key=lambda each: (each.name, each.digest))
    for suite, each in zip(root, by_place, strict=True):
        points = {item.get("name"): int(item.get("value")) for item in suite.find("properties")}
        assert (points.pop("earned"), points.pop("points")) == (each.earned, each.points)
        assert points == {
            f"{mark.exercise_id}.{what}": getattr(mark, what) for mark in each.results for what in ("earned", "points")
        }
        cases = suite.findall("testcase")
        assert [f"{case.get('classname')}.{case.get('name')}" for case in cases] == [
            mark.exercise_id for mark in each.results
        ]
        for case, mark in zip(cases, each.results):
            assert (case.find("failure") is not None) == (not mark.passed and mark.points > 0)
            assert (case.find("skipped") is not None) == (not mark.passed and mark.points == 0)
            for outcome in case:
                assert spoken(outcome.text or "") == spoken(feedback_of(mark))
        assert suite.get("tests") == str(len(cases))
        assert suite.get("failures") == str(len(suite.findall("testcase/failure")))
        assert suite.get("skipped") == str(len(suite.findall("testcase/skipped")))


# --- Gradescope -------------------------------------------------------------------------------------------------------

FORMATS, VISIBILITIES = {"text", "html", "simple_format", "md", "ansi"}, {"hidden", "after_due_date", "after_published"}
VISIBILITIES |= {"visible"}
KINDS = {
    "score": (int, float),
    "execution_time": (int, float),
    "output": str,
    "output_format": FORMATS,
    "visibility": VISIBILITIES,
    "stdout_visibility": VISIBILITIES,
    "extra_data": dict,
    "tests": list,
}
TEST_KINDS = {
    "score": (int, float),
    "max_score": (int, float),
    "status": {"passed", "failed"},
    "name": str,
    "name_format": FORMATS,
    "number": str,
    "output": str,
    "output_format": FORMATS,
    "tags": list,
    "visibility": VISIBILITIES,
    "extra_data": dict,
}


def fits(content, kinds):
    assert content.keys() <= kinds.keys()
    for name, value in content.items():
        kind = kinds[name]
        assert value in kind if isinstance(kind, set) else isinstance(value, kind), (name, value)


def gradescope_score(content):
    """The score that Gradescope gives, or None where it says that the autograder failed."""
    fits(content, KINDS)
    for test in content.get("tests", []):
        fits(test, TEST_KINDS)
    if "score" in content:
        return content["score"]
    return sum(test["score"] for test in content["tests"]) if content.get("tests") else None


@few
@given(classes)
def test_gradescope_gives_the_points_and_interprets_nothing(folder, drawn):
    paths = formats.write_gradescope(drawn, folder)
    by_place = sorted(drawn, key=lambda each: (each.name, each.digest))
    assert len(set(paths)) == len(drawn)
    for path, each in zip(paths, by_place, strict=True):
        assert path.name == "results.json"
        assert path.parent.parent == folder / "gradescope", "a name is never a path"
        content = json.loads(path.read_bytes().decode("utf-8"))
        assert gradescope_score(content) == each.earned
        assert sum(test["score"] for test in content["tests"]) == each.earned
        assert sum(test["max_score"] for test in content["tests"]) == each.points
        assert content["output_format"] == "text"
        for test, mark in zip(content["tests"], each.results, strict=True):
            assert test["output_format"] == test["name_format"] == "text"
            assert (test["status"] == "passed") == mark.passed
            assert spoken(test["output"]) == spoken(feedback_of(mark))
            assert has_no_controls(test["output"] + test["name"])


def test_a_fault_of_ours_is_no_score_for_gradescope():
    content = formats.gradescope_failure("the sandbox \x1b[31mdid not start")
    assert gradescope_score(content) is None
    assert "the sandbox did not start" in content["output"]


def test_gradescope_may_be_told_how_long_it_took():
    content = formats.gradescope_result(marked("Ada"), seconds=12.345)
    assert gradescope_score(content) == 3
    assert content["execution_time"] == 12.3


# --- Classroom 50 -----------------------------------------------------------------------------------------------------

ENVIRON = {
    "CLASSROOM": "transformers",
    "ASSIGNMENT": "measured",
    "SUBMISSION_TAG": "submit/2026-06-01T14-32-05Z-a1b2c3d",
    "COMMIT_URL": "https://git.example/commit/a1b2c3d",
    "RELEASE_URL": "https://git.example/releases/1",
    "REVIEW_URL": "https://git.example/compare/0...1",
}


def classroom50_reads(content):
    """The rules by which Classroom 50 takes a result; owner and assignment_type are stamped by its runner."""
    assert content["schema"] == "classroom50/result/v1"
    assert (content["classroom"], content["assignment"]) == ("transformers", "measured")
    assert content["submission"].startswith("submit/")
    for field in ("commit", "release", "review", "datetime"):
        assert isinstance(content[field], str)
        assert content[field]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", content["datetime"])
    for part in (content, *content["tests"]):
        assert type(part["score"]) is type(part["max-score"]) is int
        assert 0 <= part["score"] <= part["max-score"]
    for test in content["tests"]:
        assert set(test) == {"test-name", "passed", "score", "max-score"}
        assert isinstance(test["passed"], bool)
        assert test["test-name"]
    assert sum(test["score"] for test in content["tests"]) == content["score"]
    return content["score"]


@few
@given(classes)
def test_classroom50_takes_every_result(folder, drawn):
    paths = formats.write_classroom50(drawn, folder, ENVIRON)
    by_place = sorted(drawn, key=lambda each: (each.name, each.digest))
    for path, each in zip(paths, by_place, strict=True):
        content = json.loads(path.read_bytes().decode("utf-8"))
        assert classroom50_reads(content) == each.earned
        assert content["datetime"] == "2026-06-01T14:32:05Z", "the moment of submission, not of grading"
        assert content["review"] == ENVIRON["REVIEW_URL"]


def test_without_a_review_the_commit_is_reviewed():
    environ = {name: value for name, value in ENVIRON.items() if name != "REVIEW_URL"}
    assert formats.classroom50_fields(environ)["review"] == ENVIRON["COMMIT_URL"]


def test_a_missing_variable_of_classroom50_is_named():
    with pytest.raises(ValueError, match=r"ASSIGNMENT, COMMIT_URL must be set"):
        formats.classroom50_fields(ENVIRON | {"COMMIT_URL": "", "ASSIGNMENT": ""})
    with pytest.raises(ValueError, match=r"SUBMISSION_TAG='v1' must begin"):
        formats.classroom50_fields(ENVIRON | {"SUBMISSION_TAG": "v1"})


# --- Canvas -----------------------------------------------------------------------------------------------------------

GRADEBOOK = (
    'Student,ID,SIS User ID,SIS Login ID,Section,Essay (11),"Transformers, Measured (42)",Current Score,Final Score\r\n'
    ",,,,,Manual Posting,,,\r\n"
    "    Points Possible,,,,,10,100.00,(read only),(read only)\r\n"
    '"Lovelace, Ada",101,S-1,ada@uni.example,"A, morning",7,,70,35\r\n'
    '"Noether, Emmy",102,S-2,emmy,A,8.5,12,85,42\r\n'
    '"Turing, Alan ""T""",103,,=alan,B,EX,,,\r\n'
    '"Hopper, Grace",104,S-4,grace,B,,33,,\r\n'
    '"Müller, Jo",105,S-5,jo1,B,,,,\r\n'
    '"Müller, Jo",106,S-6,jo2,B,,,,\r\n'
)


def canvas_reads(data, students):
    """As Canvas imports a gradebook: {student id: score} of the last assignment column, its id, its points possible.

    students: {id: (sis id, login, name, sortable name)} of the course.
    """
    text = data.decode("utf-8")
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    header, rows = rows[0], rows[1:]
    assert "Student" in header[0]
    assert "ID" in header[1]
    assert re.search(r"SIS\s+User\s+ID", header[2])
    assert re.search(r"SIS\s+Login\s+ID", header[3])
    assert "Section" in header[4]
    columns = [i for i in range(5, len(header)) if not re.search(r"(Current|Final) Score", header[i])]
    title, id = re.fullmatch(r"(.*?)(?:\s\((\d+)\))?", header[columns[-1]]).groups()
    scores, possible, unknown = {}, None, []
    for row in rows:
        if "Points Possible" in row[0]:
            possible = row[columns[-1]]
            continue
        if all(re.fullmatch(r"\s*(Muted|Manual Posting.*)?\s*", value) for value in row):
            continue
        found = [key for key in students if str(key) == row[1]]
        found = found or [key for key, names in students.items() if row[2] and names[0] == row[2]]
        found = found or [key for key, names in students.items() if row[3] and names[1] == row[3]]
        found = found or [key for key, names in students.items() if row[0] in names[2:]]
        if found:
            scores[found[0]] = row[columns[-1]].strip()
        else:
            unknown.append(row[0])
    return scores, (title, id), possible, unknown


STUDENTS = {
    101: ("S-1", "ada@uni.example", "Ada Lovelace", "Lovelace, Ada"),
    102: ("S-2", "emmy", "Emmy Noether", "Noether, Emmy"),
    103: ("", "=alan", 'Alan "T" Turing', 'Turing, Alan "T"'),
    104: ("S-4", "grace", "Grace Hopper", "Hopper, Grace"),
}


@pytest.mark.parametrize("arguments", [("Transformers, Measured", 42), ("Transformers, Measured (42)",)])
def test_canvas_without_a_gradebook_finds_learners_by_name(tmp_path, arguments):
    handed = [marked("Ada Lovelace", (True, True)), marked("Noether, Emmy"), marked("=1+1;@x")]
    (path,) = formats.write_canvas(handed, tmp_path, *arguments)
    scores, title, possible, unknown = canvas_reads(path.read_bytes(), STUDENTS)
    assert scores == {101: "5", 102: "3"}
    assert title == ("Transformers, Measured", "42")
    assert possible == "5"
    assert unknown == ["'=1+1;'@x"]


@pytest.mark.parametrize(
    "name",
    [
        "102",
        "S-2",
        "EMMY",
        "emmy.ipynb",
        "Noether, Emmy",
        "Emmy Noether",
        "emmy_noether.zip",
        "noetheremmy_102_9001_02_attention.ipynb",
        "noetheremmy_LATE_102_9001_101_77_x.ipynb",
        "noetheremmy_102_9001_hw_101_9002_again",
    ],
)
def test_canvas_fills_one_column_of_its_gradebook_and_keeps_the_rest(tmp_path, name):
    book = tmp_path / "export.csv"
    book.write_bytes(GRADEBOOK.encode())
    (path,) = formats.write_canvas([marked(name)], tmp_path / "out", "Another name here", 42, gradebook=book)
    old, new = (
        list(csv.reader(io.StringIO(text.decode(), newline=""))) for text in (GRADEBOOK.encode(), path.read_bytes())
    )
    changes = {(i, j): new[i][j] for i, row in enumerate(old) for j, value in enumerate(row) if value != new[i][j]}
    assert changes == {(4, 6): "60"}, "3 of 5 points are 60 of 100"
    scores, (_, id), possible, _ = canvas_reads(path.read_bytes(), STUDENTS)
    assert scores == {101: "", 102: "60", 103: "", 104: "33"}
    assert (id, possible) == ("42", "100.00")


def test_canvas_says_whom_it_did_not_find_and_never_guesses(tmp_path):
    book = tmp_path / "export.csv"
    book.write_bytes(GRADEBOOK.encode())
    handed = [
        marked("Jo Müller"),
        marked("nobody"),
        marked("x_999_1_known.ipynb"),
        marked("ada@uni.example"),
        marked("lovelaceada_101_7_b.ipynb"),
        marked("grace", (True, True)),
        marked("=evil\x1b[2J"),
        marked("Points Possible"),
    ]
    path, left = formats.write_canvas(handed, tmp_path, gradebook=book)
    scores, *_ = canvas_reads(path.read_bytes(), STUDENTS)
    assert scores == {101: "", 102: "12", 103: "", 104: "100"}
    rows = list(csv.DictReader(io.StringIO(left.read_bytes().decode("utf-8-sig"), newline="")))
    reasons = {row["submission"]: row["not entered because"] for row in rows}
    assert reasons == {
        "Jo Müller": "it fits several rows",
        "nobody": "no row has this name or number",
        "x_999_1_known.ipynb": "no row has this name or number",
        "'=evil": "no row has this name or number",
        "Points Possible": "no row has this name or number",
        "ada@uni.example": "another submission fits the same row",
        "lovelaceada_101_7_b.ipynb": "another submission fits the same row",
    }
    assert all((row["earned"], row["points"]) == ("3", "5") for row in rows)
    assert formats.write_canvas([marked("grace")], tmp_path, gradebook=book) == [path]
    assert not left.exists(), "a table of an earlier run would mislead"


@pytest.mark.parametrize(
    "names",
    [
        ("grace", "hopper_104_7_x"),
        ("104", "Grace Hopper"),
        ("grace", "GRACE"),
        ("jo1",) * 2,
        ("hopper_104_7_x", "hopper_104_8_y"),
    ],
)
def test_of_two_submissions_for_one_row_neither_is_entered(tmp_path, names):
    """Also where both are found in the same way: the first one must not take the row away from the second."""
    book = tmp_path / "export.csv"
    book.write_bytes(GRADEBOOK.encode())
    path, left = formats.write_canvas([marked(name) for name in names], tmp_path, gradebook=book)
    assert path.read_bytes() == book.read_bytes()
    rows = csv.DictReader(io.StringIO(left.read_bytes().decode("utf-8-sig"), newline=""))
    assert [row["not entered because"] for row in rows] == ["another submission fits the same row"] * 2


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("lovelaceada_101_7_102_9001_x", None),  # of 102, whose profile is as Ada's file; or Ada's, with an odd name
        ("noetheremmy_101_7_102_9001_x", 102),  # of 102, with such a profile as well, but nobody else's name in it
        ("noetheremmy_102_9001_101_7_x", 102),
        ("mallory_101_7_999_9_x", None),  # 999 is in no row: the file is not Ada's for that
        ("mallory_999_9_101_7_x", None),
    ],
)
def test_a_name_with_two_numbers_of_canvas_goes_by_the_learners_name_or_nowhere(tmp_path, name, row):
    book = tmp_path / "export.csv"
    profile = {"lovelaceada_101_7": "Lovelace, Ada_101_7", "noetheremmy_101_7": "Noether, Emmy_101_7"}
    student = profile.get(name.removesuffix("_102_9001_x"), "Noether, Emmy")
    book.write_bytes(GRADEBOOK.replace("Noether, Emmy", student).encode())
    path, *left = formats.write_canvas([marked(name)], tmp_path, gradebook=book)
    scores, *_ = canvas_reads(path.read_bytes(), STUDENTS)
    entered = {id for id, score in scores.items() if score == "60"}
    assert entered == ({row} if row else set())
    assert bool(left) == (row is None)


def test_a_new_assignment_gets_a_column_of_its_own(tmp_path):
    book = tmp_path / "export.csv"
    book.write_bytes("\ufeff".encode() + GRADEBOOK.replace(",", ";").encode())  # as Canvas writes it in some countries
    (path,) = formats.write_canvas([marked("grace")], tmp_path, "Chapter 7", gradebook=book)
    data = path.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=";"))
    assert [row[-1] for row in rows] == ["Chapter 7", "", "5", "", "", "", "3", "", ""]
    (path,) = formats.write_canvas([marked("grace")], tmp_path, "ID", gradebook=book)
    assert b'"Hopper; Grace";104;S-4' in path.read_bytes(), "an assignment is no column of the learners' own"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Name,Mark\nAda,1\n", "has the columns Name, Mark"),
        ("", r"has the columns \(none\)"),
        (GRADEBOOK.replace("100.00", "(read only)"), "read only in Canvas"),
        (GRADEBOOK.replace("Essay (11)", '"Transformers, Measured (43)"'), "2 columns"),
        ("\udcff", "cannot be read"),
    ],
)
def test_a_gradebook_that_cannot_be_filled_is_turned_down(tmp_path, text, message):
    book = tmp_path / "export.csv"
    book.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=message):
        formats.write_canvas([marked("grace")], tmp_path, gradebook=book)
    assert not (tmp_path / "canvas.csv").exists()


# --- Moodle -----------------------------------------------------------------------------------------------------------

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
    (path,) = formats.write_moodle([marked(name)], tmp_path, sheet)
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
        path, *left = formats.write_moodle(handed, tmp_path, sheet)
        grades = {number: grade for number, (grade, _) in moodle_reads(path.read_bytes()).items()}
        assert grades == {12345: 50 if ada in handed else None, 12346: 40, 12347: None}
        assert bool(left) == (mallory in handed), "hers can be read in two ways: a person decides"
    sheet.write_bytes(WORKSHEET.replace("=Alan", "Eve_12345_assignsubmission_file").encode())
    own = marked("Eve_12345_assignsubmission_file_12347_assignsubmission_file")
    (path,) = formats.write_moodle([own], tmp_path, sheet)
    assert {number: grade for number, (grade, _) in moodle_reads(path.read_bytes()).items()} == {
        12345: None,
        12346: 40,
        12347: 30,
    }


@few
@given(st.lists(submissions(st.just("12345")), min_size=1, max_size=1), classes)
def test_moodle_reads_its_worksheet_whatever_a_learner_wrote(folder, known, others):
    sheet = folder / "Grades.csv"
    sheet.write_bytes(WORKSHEET.encode())
    path, *left = formats.write_moodle([*known, *others], folder, sheet)
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
    (path,) = formats.write_moodle([GradedSubmission("007", "0" * 64, (failed,))], tmp_path, sheet)
    read = moodle_reads(path.read_bytes())
    assert Page(read[12345][1]).text.endswith('a "quote", a comma, and\\')
    assert read[12346] == (40, "Well\ndone")


def test_very_long_feedback_still_fits_a_cell(tmp_path):
    sheet = tmp_path / "Grades.csv"
    sheet.write_bytes(WORKSHEET.encode())
    failed = tuple(result(id, "failed", 1, sentences=["<" * 900]) for id in EXERCISES)
    each = GradedSubmission("007", "0" * 64, failed, tuple("'" * 5000 for _ in range(500)))
    (path,) = formats.write_moodle([each], tmp_path, sheet)
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
        formats.write_moodle([marked("007")], tmp_path, sheet)
    assert not (tmp_path / "moodle.csv").exists()


def test_without_a_maximum_the_points_are_the_grade(tmp_path):
    sheet = tmp_path / "Grades.csv"
    sheet.write_bytes(b"Identifier,Grade,Last modified (grade),Feedback comments\nParticipant 7,,-,\n")
    (path,) = formats.write_moodle([marked("Participant_7_assignsubmission_file")], tmp_path, sheet)
    assert moodle_reads(path.read_bytes())[7][0] == 3


# --- the terminal -----------------------------------------------------------------------------------------------------


@few
@given(st.lists(submissions(), min_size=1, max_size=4), st.integers(60, 160))
def test_the_table_has_a_line_for_each_and_nothing_that_steers_a_terminal(drawn, width):
    table = formats.terminal_table(drawn, width)
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
        lines = formats.terminal_table(many, width).split("\n")
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
    table = formats.terminal_table(
        [marked("Emmy", (True, True)), ada, marked("Bo", troubles=("Cell 4 is cut off.", "…"))]
    )
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
    assert formats.terminal_table([]) == "no submissions"


def test_the_bar_is_full_only_if_all_points_are_there():
    nearly = GradedSubmission(
        "Ada", "0" * 64, (result("attention.softmax", "passed", 999), result("masks.causal", "failed", 1))
    )
    barely = GradedSubmission(
        "Bo", "0" * 64, (result("attention.softmax", "failed", 999), result("masks.causal", "passed", 1))
    )
    first, second = formats.terminal_table([nearly, barely]).split("\n")[1:3]
    assert (first.count("░"), second.count("█")) == (1, 1)


# --- the class's figures ----------------------------------------------------------------------------------------------


def test_the_hardest_exercise_is_the_one_that_cost_most_of_those_who_tried():
    def handed(*statuses):
        ids = ("attention.softmax", "masks.causal", "normalization.layer_norm", "normalization.rms_norm")
        return GradedSubmission("x", "0" * 64, tuple(result(id, status, 4) for id, status in zip(ids, statuses)))

    drawn = [
        handed("passed", "failed", "unanswered", "passed"),
        handed("failed", "failed", "unanswered", "passed"),
        handed("unanswered", "passed", "unanswered", "passed"),
    ]
    titles = {id: EXERCISES[id].title for id in ("masks.causal", "attention.softmax")}
    assert statistics.hardest(drawn) == [
        ("masks.causal", titles["masks.causal"], pytest.approx(1 / 3), 3),
        ("attention.softmax", titles["attention.softmax"], 0.5, 2),
    ]
    assert len(statistics.hardest(drawn, 1)) == 1
    written = GradedSubmission(
        "x", "0" * 64, (result("normalization.layer_norm", "unanswered", 0), result("masks.causal", "written", 0))
    )
    assert statistics.hardest([written]) == []


def test_misconceptions_are_counted_once_for_each_who_fell_for_them():
    both = [
        marked("a", (False, False)),
        marked("b", (False, True)),
        marked("c", (True, False)),
        marked("d", (False, True)),
    ]
    assert statistics.misconceptions(both) == [
        ("attention.softmax", "mask inverted", 3),
        ("masks.causal", "mask inverted", 2),
    ]
    assert statistics.misconceptions(both, 1) == [("attention.softmax", "mask inverted", 3)]
    assert statistics.misconceptions([]) == []


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=30), st.integers(1, 12))
def test_every_submission_stands_in_the_bin_of_its_share(pairs, bins):
    drawn = [
        GradedSubmission(
            "x", "0" * 64, (result("attention.softmax", "passed", right), result("masks.causal", "failed", wrong))
        )
        for right, wrong in pairs
    ]
    table = statistics.distribution(drawn, bins)
    assert [low for low, _, _ in table] == pytest.approx([i / bins for i in range(bins)])
    assert [high for _, high, _ in table] == pytest.approx([(i + 1) / bins for i in range(bins)])
    for i, (_, _, count) in enumerate(table):
        inside = [
            i * (right + wrong) <= right * bins < (i + 1) * (right + wrong) or (wrong == 0 and i == bins - 1)
            for right, wrong in pairs
            if right + wrong
        ]
        assert count == sum(inside) + (i == 0) * sum(right + wrong == 0 for right, wrong in pairs)


def test_a_share_on_a_border_stands_in_the_upper_bin():
    each = GradedSubmission(
        "x", "0" * 64, (result("attention.softmax", "passed", 29), result("masks.causal", "failed", 71))
    )
    counts = [count for _, _, count in statistics.distribution([each], 100)]
    assert counts.index(1) == 29, "0.29 × 100 is 28.999… in binary"


def test_mean_and_median_are_of_shares():
    drawn = [marked("a", (True, True)), marked("b", (True, False)), marked("c", (False, False))]
    assert statistics.average(drawn) == pytest.approx(((1 + 0.6 + 0) / 3, 0.6))
    assert statistics.share_of_points(drawn[1]) == pytest.approx(0.6)
    with pytest.raises(ValueError, match="marked is empty"):
        statistics.average([])
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        statistics.distribution(drawn, 0)
