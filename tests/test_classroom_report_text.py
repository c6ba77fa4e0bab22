"""Reports and what is not ours to choose: whatever text is handed in, it stays text."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_pages import HOSTILE, pages, small_class

from course_lib.classroom.export import results
from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.report.pages import TROUBLES
from course_lib.classroom.report.terminal import terminal_table
from course_lib.grading import grade
from course_lib.grading.judge.show import printable
from course_lib.grading.result import SIGNS, Result


@pytest.fixture(scope="module")
def graded() -> list[GradedSubmission]:
    return small_class()


def hostile(text: str) -> list[GradedSubmission]:
    """Two submissions in which every text that may be a learner's holds `text`."""
    result = replace(grade("attention.softmax", lambda x, dim: x, 7), picture="")
    verdicts = tuple(
        Result(result.exercise_id, text, status, 2, (text, text), text, text, text, "", text) for status in SIGNS
    )
    texts = {result.exercise_id: text}
    return [GradedSubmission(f"{number}{text}", "same", verdicts, (text, text), texts) for number in range(2)]


def assert_it_stays_text(text: str, folder: Path):
    harmless = pages(hostile("words"), folder / "a", {2: "words"}, {"words": "words"})
    attacked = pages(hostile(text), folder / "b", {2: text}, {text: text})
    assert [page.skeleton for page in attacked.values()] == [page.skeleton for page in harmless.values()]
    for page in attacked.values():
        for target in page.attributes("href"):
            assert re.fullmatch(r"#[a-z0-9-]+|reflections\.html|learners/[\w%-]+\.html", target, re.ASCII)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_every_field_makes_no_element_and_no_attribute(text, tmp_path):
    assert_it_stays_text(text, tmp_path)


@settings(max_examples=15)
@given(st.text(st.sampled_from("<>&\"'`=/!-;#x0\0\x1b\r\n\u202e\ud800") | st.characters(codec=None), min_size=1))
def test_no_text_at_all_makes_an_element(tmp_path_factory, text):
    assert_it_stays_text(text, tmp_path_factory.mktemp("report"))


def test_what_was_written_can_be_read_as_it_was_written(tmp_path):
    text = "<script>alert('&amp;')</script> & \"quotes\""
    index, *learners = pages(hostile(text), tmp_path, {2: text}, {"who": text}).values()
    assert index.text().count(text) >= 2 * 3 + 1 + 1  # both names in table, matrix and groups; chapter; foot
    for page in learners:
        # name, two troubles, the chapter twice; title of four results, two sentences each, mistake, evidence and sketch
        assert page.text().count(text) >= 1 + 2 + 2 + 4 + 2 * 4 + 3 + 2 * 3


def test_text_loses_what_turns_the_reading_direction_and_what_steers_a_terminal(tmp_path):
    for page in pages(hostile("a\u202eb\u2066c\0d\x1b[31me\x07f"), tmp_path).values():
        assert not re.search("[\u202a-\u202e\u2066-\u2069\0\x07\x1b]", page.text("html"))
        assert "abcdef" in page.text()


def test_marks_above_a_letter_do_not_climb_over_the_rows_around_it(tmp_path):
    """A letter may have some, as in Vietnamese or pointed Hebrew; a tower of them hides other learners' lines."""
    tower, written = "e" + 91 * "\u0301", "ệ שָּׁ ก็้"
    marked = hostile(f"{tower} {written}")
    shown = [page.text("html") for page in pages(marked, tmp_path).values()]
    shown += [terminal_table(marked), *map(printable, (tower, written))]
    shown += [path.read_text("utf-8-sig") for path in results.write_csv(marked, tmp_path)]
    assert not [text for text in shown if re.search("[\u0300-\u036f]{5}", text)]
    assert all(written in text for text in shown[:-3] + shown[-2:-1])


def test_a_very_long_text_is_cut_and_a_very_long_list_too_and_both_are_said(tmp_path, graded):
    result = replace(graded[0].results[0], status="failed", evidence="x" * 10**6)
    marked = GradedSubmission("Ada", "d", (result,), tuple(f"trouble {i}" for i in range(TROUBLES + 1200)))
    index, page = pages([marked], tmp_path)
    assert page.stat().st_size < 100_000
    text = page.read_text(encoding="utf-8")
    assert "more characters)" in text
    assert "… and 1,200 more." in text
    assert f"trouble {TROUBLES - 1}" in text
    assert f"⚠ {TROUBLES + 1200:,} notes" in index.read_text(encoding="utf-8")
