"""A term in one file: `[course]` of `course.toml`, and what follows from it."""

import csv
import io
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from course_lib.__main__ import main
from course_lib.classroom.term import ALWAYS, Term, read_policy, read_term
from course_lib.course.contents import CHAPTERS
from tests.grading.corpus import notebook
from tests.handed_in import lay_out
from tests.pretended_worker import pretend

ROOT = Path(__file__).parent.parent


def term_of(folder: Path, text: str) -> Term:
    path = folder / "course.toml"
    path.write_text(text, encoding="utf-8")
    return read_term(path)


def test_without_a_word_the_class_has_the_whole_course(tmp_path):
    everything = [chapter.number for chapter in CHAPTERS]
    for term in (read_term(None), term_of(tmp_path, ""), term_of(tmp_path, "[grading.weights]\n2 = 2\n")):
        assert (term.released(), term.platform, term.roster) == (everything, "", None)


def test_a_chapter_is_the_classs_from_its_date_on_in_the_files_time_zone(tmp_path):
    """On 25 October clocks in Berlin are set back: before it a day begins at 22:00 UTC, after it at 23:00."""
    term = term_of(
        tmp_path,
        "[course.chapters]\nattention = 2026-10-05\n0 = 2026-10-05\n3 = 2026-10-26\n4 = 2026-10-26T08:00:00Z\n"
        "[grading]\ntime_zone = 'Europe/Berlin'\n",
    )
    for moment, released in [
        (datetime(2026, 10, 4, 21, 59, tzinfo=UTC), []),
        (datetime(2026, 10, 4, 22, 0, tzinfo=UTC), [0, 2]),
        (datetime(2026, 10, 25, 22, 59, tzinfo=UTC), [0, 2]),
        (datetime(2026, 10, 25, 23, 0, tzinfo=UTC), [0, 2, 3]),
        (datetime(2026, 10, 26, 8, 0, tzinfo=UTC), [0, 2, 3, 4]),
    ]:
        assert term.released(moment) == released, moment
    assert term_of(tmp_path, "[course]\nchapters = ['masks', 0]\n").chapters == {3: ALWAYS, 0: ALWAYS}


def test_files_are_seen_from_the_course_files_folder(tmp_path):
    text = "[course]\nplatform = 'moodle'\nroster = 'who.csv'\n[course.worksheets]\n2 = 'a.csv'\n"
    term = term_of(tmp_path, text)
    assert (term.roster, term.worksheets) == (tmp_path / "who.csv", {2: tmp_path / "a.csv"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[course]\nplatfrom = 'canvas'\n", "line 2: platfrom = 'canvas' is not known here"),
        (
            "[course]\nplatform = 'sakai'\n",
            "canvas, moodle, gradescope, classroom50, nbgrader, blackboard, brightspace are",
        ),
        ("[course]\ncolumns = 'all'\n", "line 2: columns = 'all' must be"),
        ("[course]\nroster = 3\n", "must be text, in quotes"),
        ("[course]\nchapters = 3\n", "must be a table"),
        ("[course]\nchapters = [2, 'attention']\n", "names a chapter twice"),
        ("[course.chapters]\n\n99 = 2026-10-05\n", "line 3: 99 = 2026-10-05 names no chapter"),
        ("[course.chapters]\n2 = '2026-10-05'\n", "line 2: 2 = '2026-10-05' must be a date without quotes"),
        ("[course.chapters]\n2 = 1\n", "must be a date"),
        ("[course]\nplatform = 'gradescope'\ngradebook = 'a.csv'\n", "does not take these files"),
        ("[course]\nplatform = 'moodle'\ngradebook = 'a.csv'\n[course.worksheets]\n2 = 'b.csv'\n", "keep one"),
        ("[course\n", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_what_may_be(tmp_path, text, said):
    with pytest.raises(ValueError, match=r"course\.toml") as error:
        term_of(tmp_path, text)
    assert said in str(error.value)


def test_the_sample_says_nothing_and_every_line_of_it_can_be_used(tmp_path):
    sample = ROOT / "solutions" / "course.toml"
    assert read_term(sample) == Term()
    bare = tmp_path / "course.toml"
    lines = [line.removeprefix("# ") for line in sample.read_text("utf-8").splitlines()]
    kept = [line for line in lines if line.startswith("[") or " = " in line.partition("#")[0].partition("`")[0]]
    kept = [line for line in kept if not line.startswith(("gradebook", "points = 7"))]
    bare.write_text("\n".join(kept).replace('"canvas" ', '"moodle" '), encoding="utf-8")
    assert set(tomllib.loads(bare.read_text("utf-8"))["course"]) >= {"platform", "roster", "chapters", "worksheets"}
    assert len(read_term(bare).chapters) == 3
    assert read_policy(bare).overrides


# --- what `grade` takes from it ---------------------------------------------------------------------------------------
BOOK = (
    "Student,ID,SIS Login ID,Section,Scaled dot-product attention (7)\n    Points Possible,,,,30\n"
    "ada,11,a,A,\nbert,12,b,A,\ncarl,13,c,A,\n"
)
SHEET = (
    "Identifier,Full name,Grade,Maximum Grade,Last modified (grade),Feedback comments\n"
    "Participant 11,ada,,100,,\nParticipant 12,bert,,100,,\nParticipant 13,carl,,100,,\n"
)


@pytest.fixture
def class_(tmp_path, monkeypatch):
    """Two of three handed in chapter 2, one of them chapter 3, too; everybody gets full points for what is asked."""
    pretend(monkeypatch)
    monkeypatch.chdir(tmp_path)
    names = ("ada/02_attention", "bert/02_attention", "bert/03_masks", "dora/02_attention")
    lay_out(tmp_path, {f"class/{name}.ipynb": notebook([("code", "answer = 1")]) for name in names})
    lay_out(tmp_path, {"book.csv": BOOK, "sheet.csv": SHEET})
    return tmp_path


def grade(*more: str, course: str) -> int:
    Path("course.toml").write_text(course, encoding="utf-8")
    return main(["grade", "class", *more])


def test_canvas_gets_a_column_for_each_chapter_and_its_gradebook_is_the_roster(class_, capsys):
    """Whose folder bears no name of the roster is said, as with --roster."""
    course = (
        "[course]\nplatform = 'canvas'\ngradebook = 'book.csv'\n[course.chapters]\n2 = 2020-01-01\n3 = 2020-01-08\n"
    )
    assert grade("--out", "out", course=course) == 1
    said = capsys.readouterr()
    assert "from course.toml: the roster book.csv, results for canvas" in said.out
    assert "not asked yet, since few have begun and it is not due: chapter 3" in said.out
    rows = list(csv.reader(io.StringIO(Path("out/canvas.csv").read_text("utf-8"), newline="")))
    assert [row[4:] for row in rows] == [["Scaled dot-product attention (7)"], ["30"], ["30"], ["30"], [""]]
    assert not Path("out/moodle.csv").exists()
    assert main(["grade", "class", "--out", "other", "--csv", "--columns", "total"]) == 1
    assert sorted(path.name for path in Path("other").glob("*.csv")) == ["manifest.csv", "results.csv"], "flags win"


def test_a_chapter_that_is_due_is_asked_of_all_and_one_that_is_not_released_of_nobody(class_, capsys):
    course = "[course.chapters]\n2 = 2020-01-01\n3 = 2020-01-08\n[grading.due]\n3 = 2020-01-15T00:00:00Z\n"
    grade("--manifest", course=course)
    assert "of chapters 2, 3\n" in capsys.readouterr().out
    grade("--manifest", course=course.replace("3 = 2020-01-08", "3 = 2999-01-08"))
    assert "of chapter 2\n" in capsys.readouterr().out
    assert grade("--manifest", course="[course.chapters]\n7 = 2020-01-01\n") == 2
    assert "--chapters" in capsys.readouterr().err
    grade("--manifest", "--chapters", "3", course="[course.chapters]\n7 = 2020-01-01\n")
    assert "of chapter 3\n" in capsys.readouterr().out


def test_moodle_gets_the_worksheets_of_what_is_graded_and_those_to_come_need_not_be_there(class_, capsys):
    course = "[course]\nplatform = 'moodle'\n[course.worksheets]\n2 = 'sheet.csv'\n3 = 'later.csv'\n"
    assert grade("--out", "out", "--chapters", "2", course=course) == 1
    rows = list(csv.DictReader(io.StringIO(Path("out/moodle_2.csv").read_text("utf-8"), newline="")))
    assert [row["Grade"] for row in rows] == ["100", "100", ""]
    capsys.readouterr()
    assert grade("--out", "both", "--chapters", "2", "3", course=course) == 2
    assert "later.csv of [course.worksheets] is not a file" in capsys.readouterr().err
    assert grade("--out", "none", course="[course]\nplatform = 'moodle'\n") == 2
    assert "needs the grading worksheet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("platform", "file"),
    [("gradescope", "gradescope/ada/results.json"), ("nbgrader", "results.csv"), ("blackboard", "results.csv")],
)
def test_other_platforms_get_what_they_read(class_, platform, file):
    assert grade("--out", "out", "--chapters", "2", course=f"[course]\nplatform = '{platform}'\n") == 0
    assert Path("out", file).is_file()
