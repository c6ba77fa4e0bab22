"""Canvas's gradebook, read by an importer that is written from what Canvas documents."""

import csv
import io
import re

import pytest

from course_lib.classroom.export.canvas import write_canvas
from tests.drawn_results import marked

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
    (path,) = write_canvas(handed, tmp_path, *arguments)
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
    (path,) = write_canvas([marked(name)], tmp_path / "out", "Another name here", 42, gradebook=book)
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
    path, left = write_canvas(handed, tmp_path, gradebook=book)
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
    assert write_canvas([marked("grace")], tmp_path, gradebook=book) == [path]
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
    path, left = write_canvas([marked(name) for name in names], tmp_path, gradebook=book)
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
    path, *left = write_canvas([marked(name)], tmp_path, gradebook=book)
    scores, *_ = canvas_reads(path.read_bytes(), STUDENTS)
    entered = {id for id, score in scores.items() if score == "60"}
    assert entered == ({row} if row else set())
    assert bool(left) == (row is None)


def test_a_new_assignment_gets_a_column_of_its_own(tmp_path):
    book = tmp_path / "export.csv"
    book.write_bytes("\ufeff".encode() + GRADEBOOK.replace(",", ";").encode())  # as Canvas writes it in some countries
    (path,) = write_canvas([marked("grace")], tmp_path, "Chapter 7", gradebook=book)
    data = path.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=";"))
    assert [row[-1] for row in rows] == ["Chapter 7", "", "5", "", "", "", "3", "", ""]
    (path,) = write_canvas([marked("grace")], tmp_path, "ID", gradebook=book)
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
        write_canvas([marked("grace")], tmp_path, gradebook=book)
    assert not (tmp_path / "canvas.csv").exists()


def test_a_column_with_a_chapters_short_name_is_its_own(tmp_path):
    book = tmp_path / "book.csv"
    book.write_text(
        "Student,ID,SIS User ID,SIS Login ID,Section,Attention (501),Causal masking (502)\nAda,11,,ada,1,,\n"
    )
    titles = {2: "Scaled dot-product attention", 3: "Causal masking"}
    [path] = write_canvas([marked("Ada", (True, True))], tmp_path / "out", gradebook=book, chapters=titles)
    head, row = csv.reader(io.StringIO(path.read_text("utf-8-sig")))
    assert head[5:] == ["Attention (501)", "Causal masking (502)"]
    assert all(row[5:])
