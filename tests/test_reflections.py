"""Reflections: kept for the learner, and shown to the teacher under the exercise, as text and not without end."""

import csv
import io
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from report_pages import HOSTILE, Page, pages, small_class

from course_lib.classroom.export.gradescope import gradescope_result
from course_lib.classroom.export.results import write_csv, write_json
from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.mark import marking
from course_lib.classroom.read.notebook_reader import Cell
from course_lib.classroom.read.submission_reader import Notebook, Submission
from course_lib.classroom.report.pages import EXCERPT, write_reflections
from course_lib.course import record
from course_lib.grading import EXERCISES, check, grade, mine, progress
from course_lib.grading.judge.call import Outcome

REFLECTION, OTHER = "attention.why_scale", "feed_forward.why_expand"
THOUGHT = (
    "Products add up, their variance is d_k, and softmax of large scores passes no gradient at all, so it is slow."
)


pytestmark = pytest.mark.usefixtures("own_record")


# --- for the learner --------------------------------------------------------------------------------------------------


def test_what_was_written_is_kept_and_given_back():
    with pytest.raises(ValueError, match=r"You have no answer to 'attention\.why_scale' that passed"):
        mine(REFLECTION)
    assert "Kept" not in check(REFLECTION, ...).feedback
    assert "Kept" not in check(REFLECTION, "too short").feedback
    result = check(REFLECTION, THOUGHT)
    assert result.status == "written"
    assert 'Kept: mine("attention.why_scale") gives it back.' in result.feedback
    assert mine(REFLECTION) == mine(" Attention.why-scale") == THOUGHT
    opened_again = check(REFLECTION, ...)
    assert opened_again.status == "unanswered"
    assert 'What you wrote before is kept: mine("attention.why_scale") gives it back.' in opened_again.feedback
    assert mine(REFLECTION) == THOUGHT, "dots take nothing away"
    check(REFLECTION, THOUGHT + " More.")
    assert mine(REFLECTION).endswith("More.")
    assert [row.last for row in progress().rows if row.exercise_id == REFLECTION] == ["written"]


@pytest.mark.parametrize("odd", ["\ud800 half ", "nul \0 ", "☃ \u202e ", "'; DROP TABLE answers; -- "])
def test_any_text_can_be_kept(odd):
    assert check(REFLECTION, odd + THOUGHT).status == "written"
    assert mine(REFLECTION).endswith(THOUGHT)


def test_a_very_long_reflection_is_cut():
    check(REFLECTION, THOUGHT * 1000)
    assert len(mine(REFLECTION)) == 20_000


def test_mine_says_what_it_does_not_keep():
    check("attention.memory", EXERCISES["attention.memory"].reference)
    with pytest.raises(ValueError, match="does not ask for a function"):
        mine("attention.memory")


def test_grade_keeps_no_text():
    grade(REFLECTION, THOUGHT, 0)
    assert not record.entries("answers")


# --- for the teacher --------------------------------------------------------------------------------------------------


class Session:
    """In place of a notebook that runs: it holds a text for each of some names."""

    def __init__(self, worker, notebook, *_, **options):
        self.written = json.loads(notebook.cells[0].source)
        self.worker, self.doubts = worker, 0
        self.found = SimpleNamespace(answers=dict.fromkeys(self.written, 1), open=frozenset(), troubles=(), salvaged=())

    def read(self, name, which, seconds):
        return Outcome(self.written[name])

    def close(self):
        pass


def marked(monkeypatch, *notebooks) -> GradedSubmission:
    """A submission of notebooks that hold these texts by name, as (file's name, texts)."""
    monkeypatch.setattr(marking, "Session", Session)
    worker = SimpleNamespace(quotas=SimpleNamespace(timeout=100, exercise_timeout=3), doubted=set())
    made = [Notebook(name, (Cell(1, "code", json.dumps(texts)),)) for name, texts in notebooks]
    submission = Submission("Ada", tuple(made), {}, (), "0" * 64)
    return marking.mark(submission, [EXERCISES[REFLECTION], EXERCISES[OTHER]], worker, 5)


def test_the_text_that_is_kept_is_the_one_that_was_judged(monkeypatch):
    name, other = (EXERCISES[id].answer_name for id in (REFLECTION, OTHER))
    graded = marked(monkeypatch, ("02_attention.ipynb", {name: THOUGHT, other: "too short"}))
    assert graded.texts == {REFLECTION: THOUGHT}
    assert [result.status for result in graded.results] == ["written", "unanswered"]
    graded = marked(
        monkeypatch,
        ("06_feed_forward.ipynb", {name: THOUGHT + " Elsewhere.", other: THOUGHT * 2}),
        ("02_attention.ipynb", {name: THOUGHT}),
    )
    assert graded.texts == {REFLECTION: THOUGHT, OTHER: THOUGHT * 2}, "the chapter's own notebook counts"


def test_a_text_beyond_all_bounds_is_cut_and_that_is_said(monkeypatch):
    name = EXERCISES[REFLECTION].answer_name
    text = marked(monkeypatch, ("02_attention.ipynb", {name: "word " * 100_000})).texts[REFLECTION]
    assert len(text) < marking.MOST_TEXT + 50
    assert text.endswith("more characters)")


@pytest.fixture(scope="module")
def graded():
    zoe, emile, ada = small_class()
    return [replace(zoe, texts={REFLECTION: THOUGHT}), replace(emile, texts={REFLECTION: "É. " + "long " * 900}), ada]


def test_results_travel_through_json(graded):
    for each in graded:
        assert GradedSubmission.from_dict(json.loads(json.dumps(each.as_dict()))) == each


def test_the_class_page_shows_who_wrote_what_under_the_exercise(tmp_path, graded):
    index, *_ = (page for page in pages(graded, tmp_path).values())
    text = " ".join(index.text().split())
    assert f"{EXERCISES[REFLECTION].title} {REFLECTION} · 2 of 3 submissions" in text
    assert index.text("figcaption").endswith("ÉmileZoë")
    assert THOUGHT in index.text("blockquote")
    assert f"({len(graded[1].texts[REFLECTION]) - EXCERPT:,} more characters)" in text
    assert ("href", "#reflections") in [item for _, given in index.elements for item in given.items()]


def test_the_texts_of_a_class_stand_on_one_page_whole_with_the_criteria_to_tick(tmp_path, graded):
    page_path, table_path = write_reflections(graded, tmp_path)
    page, rubric = Page(page_path.read_bytes().decode()), EXERCISES[REFLECTION].rubric
    assert page.text("blockquote") == graded[1].texts[REFLECTION] + THOUGHT, "É beside E, before Z"
    assert page.text("label").count(rubric[0].partition("`")[0]) == 2
    boxes = [attributes for tag, attributes in page.elements if tag == "input"]
    assert [box["type"] for box in boxes] == ["checkbox"] * 2 * len(rubric)
    assert len([tag for tag, _ in page.elements if tag == "label"]) == len(boxes)
    assert page.text("details").startswith("A model answer")
    rows = list(csv.DictReader(io.StringIO(table_path.read_text("utf-8-sig"), newline="")))
    assert [(row["name"], row["exercise"], row["text"]) for row in rows] == [
        (each.name, REFLECTION, each.texts[REFLECTION]) for each in (graded[1], graded[0])
    ]
    for row in rows:
        assert [row[f"criterion {i}"] for i in range(1, len(rubric) + 1)] == [f"☐ {each}" for each in rubric]
    assert write_reflections([replace(each, texts={}) for each in graded], tmp_path) == []
    assert not page_path.exists()
    assert not table_path.exists()


@pytest.mark.parametrize("text", [*HOSTILE, "=1+1", "@SUM(1)", "<textarea>", "x" * 100_000])
def test_whatever_was_written_stays_text_on_the_page_and_in_the_table(tmp_path, graded, text):
    def pages_of(text):
        marked = [replace(graded[0], name=f"0{text[:500]}", texts={REFLECTION: text})]
        page, table = write_reflections(marked, tmp_path)
        return Page(page.read_bytes().decode()), list(csv.reader(io.StringIO(table.read_text("utf-8-sig"), newline="")))

    (harmless, _), (page, table) = pages_of("words"), pages_of(text)
    assert page.skeleton == harmless.skeleton
    assert len(table) == 2
    assert not [cell for cell in table[1] if cell.lstrip()[:1] in ("=", "+", "-", "@")]


def test_gradescope_shows_the_text_above_its_criteria(graded):
    output = next(test["output"] for test in gradescope_result(graded[0])["tests"] if test["number"] == REFLECTION)
    assert output.index(THOUGHT) < output.index(EXERCISES[REFLECTION].rubric[0])


def test_a_class_without_reflections_has_no_place_for_them(tmp_path, graded):
    index, *_ = pages([replace(each, texts={}) for each in graded], tmp_path).values()
    assert "Reflections" not in index.text()


def test_a_learners_page_holds_the_whole_text_and_nobody_elses(tmp_path, graded):
    found = {path.stem: page for path, page in pages(graded, tmp_path).items()}
    own = {name: page.text("blockquote") for name, page in found.items()}
    assert own["Zoë"] == THOUGHT
    assert own["Émile"] == graded[1].texts[REFLECTION]
    assert own["Ada"] == ""
    text = found["Zoë"].text("article")
    assert text.index("What you wrote") < text.index("A model answer")


def test_what_was_cut_once_is_not_cut_again(tmp_path, graded, monkeypatch):
    text = marked(monkeypatch, ("02_attention.ipynb", {EXERCISES[REFLECTION].answer_name: "word " * 9000})).texts
    _, *learners = pages([replace(graded[0], texts=text)], tmp_path).values()
    assert learners[0].text("blockquote").count("more characters") == 1
    assert learners[0].text("blockquote").endswith("(35,000 more characters)")


@pytest.mark.parametrize("text", HOSTILE)
def test_what_was_written_stays_text(tmp_path, graded, text):
    harmless = pages([replace(each, texts={REFLECTION: "words"}) for each in graded], tmp_path / "a")
    attacked = pages([replace(each, texts={REFLECTION: text}) for each in graded], tmp_path / "b")
    assert [page.skeleton for page in attacked.values()] == [page.skeleton for page in harmless.values()]


def test_results_in_json_and_csv_hold_the_texts(tmp_path, graded):
    (path,) = write_json(graded, tmp_path)
    for each in json.loads(path.read_text(encoding="utf-8"))["submissions"]:
        texts = next(submission.texts for submission in graded if submission.name == each["name"])
        assert {row["exercise"]: row["text"] for row in each["results"] if row["text"]} == texts
        assert all(row["text"] is None for row in each["results"] if row["exercise"] != REFLECTION)
    (path,) = write_csv(graded, tmp_path)
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))
    assert {row["learner"]: row["text"] for row in rows if row["text"]} == {
        each.name: each.texts[REFLECTION] for each in graded if each.texts
    }
