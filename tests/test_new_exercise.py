"""`new exercise`: what it writes passes at once, what is there is kept, and what is wrong is told."""

import os

import pytest

from course_lib.__main__ import main
from course_lib.grading import EXERCISES
from course_lib.grading.page import catalogue

pytestmark = pytest.mark.usefixtures("as_a_learner")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Exercises and variables that a test added are gone after it."""
    monkeypatch.delenv(catalogue.VARIABLE, raising=False)
    before = set(EXERCISES)
    yield
    for exercise_id in set(EXERCISES) - before:
        del EXERCISES[exercise_id]
    os.environ.pop(catalogue.VARIABLE, None)


def test_what_is_written_passes_at_once_and_is_never_written_over(tmp_path, capsys):
    path = tmp_path / "heads" / "count"
    assert main(["new", "exercise", str(path)]) == 0
    assert "heads.count: the reference passes, 4 mistakes fail and are recognized" in capsys.readouterr().out
    page = path.with_suffix(".md")
    page.write_text(page.read_text("utf-8").replace("The mean of each row", "Mine"), encoding="utf-8")
    assert main(["new", "exercise", str(path)]) == 0
    assert "title: Mine" in page.read_text("utf-8")


def test_a_mistake_that_passes_is_told(tmp_path, capsys):
    path = tmp_path / "heads" / "count"
    main(["new", "exercise", str(path)])
    page = path.with_suffix(".md")
    page.write_text(page.read_text("utf-8").replace("`x.mean()`", "`x.sum(-1) / x.shape[-1]`"), encoding="utf-8")
    capsys.readouterr()
    assert main(["new", "exercise", str(path)]) == 1
    assert "'one mean for all' (form 1, seed 0) passes: add a case" in capsys.readouterr().out


def test_a_mistake_added_in_three_lines_is_named_in_a_class_of_ones_own(tmp_path, capsys):
    path = tmp_path / "pages" / "heads" / "count"
    main(["new", "exercise", str(path)])
    page = path.with_suffix(".md")
    added = "\n### negative\n`-(x.sum(-1) / x.shape[-1])`\nThe sign is lost.\n"
    page.write_text(page.read_text("utf-8") + added, encoding="utf-8")
    assert main(["new", "exercise", str(path)]) == 0
    assert "5 mistakes fail and are recognized" in capsys.readouterr().out
    del EXERCISES["heads.count"]
    assert main(["--catalogue", str(tmp_path / "pages"), "claims", "--list"]) == 0
    assert EXERCISES["heads.count"].misconceptions[-1].sentence == "The sign is lost."
    assert os.environ[catalogue.VARIABLE] == str(tmp_path / "pages")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("hads/count", "there is no chapter 'hads'"),
        ("heads/two words", "name must be a word"),
        ("heads/merge", "the exercise heads.merge exists already"),
    ],
)
def test_a_place_for_no_exercise_is_refused(tmp_path, capsys, path, told):
    assert main(["new", "exercise", str(tmp_path / path)]) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.md"))


def test_a_faulty_page_is_told_with_its_line(tmp_path, capsys):
    path = tmp_path / "heads" / "count"
    main(["new", "exercise", str(path)])
    page = path.with_suffix(".md")
    page.write_text(page.read_text("utf-8").replace("points: 2", "poinst: 2"), encoding="utf-8")
    del EXERCISES["heads.count"]
    assert main(["new", "exercise", str(path)]) == 2
    assert "count.md:" in (said := capsys.readouterr().err)
    assert "points" in said
