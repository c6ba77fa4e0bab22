"""A term in one file: `[course]` of `course.toml`, and what follows from it."""

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from course_lib.classroom.policy_file import read_policy
from course_lib.classroom.term import ALWAYS, Term, read_term
from course_lib.contents import CHAPTERS

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
        ("[course]\nplatform = 'blackboard'\n", "canvas, moodle, gradescope, classroom50, nbgrader are"),
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
