"""Verdicts: each follows from figures, could have been another one, and held where it was tried again."""

import importlib
import inspect
from pathlib import Path

import nbformat
import pytest

from course_lib.claims import find, in_order, recorded
from course_lib.course.contents import CHAPTERS

HERE = Path(__file__).parent
CLAIMS = in_order()
IDS = [each.id for each in CLAIMS]


def possible() -> dict[str, dict[str, dict]]:
    """id -> outcome -> figures that a measurement could give; each chapter's are in its tests of the experiments."""
    found: dict[str, dict[str, dict]] = {}
    for chapter in CHAPTERS:
        if (HERE / f"test_experiments_{chapter.slug}.py").exists():
            found |= getattr(importlib.import_module(f"test_experiments_{chapter.slug}"), "OUTCOMES", {})
    return found


POSSIBLE = possible()


def test_figures_are_given_for_the_claims_of_the_course_and_no_others():
    assert POSSIBLE.keys() == set(IDS)


@pytest.mark.parametrize("id", IDS)
def test_every_outcome_that_is_stated_is_reached_by_figures_that_are_possible(id):
    each = find(id)
    assert POSSIBLE[id].keys() == each.outcomes.keys()
    for outcome, figures in POSSIBLE[id].items():
        assert each.decide(**figures) == outcome


@pytest.mark.parametrize("id", IDS)
def test_what_could_not_have_come_out_otherwise_is_by_construction(id):
    outcomes = find(id).outcomes
    assert ("by construction" in outcomes) == (len(outcomes) == 1)


@pytest.mark.parametrize("id", IDS)
def test_a_verdict_on_record_follows_from_its_figures(id):
    each, found = find(id), recorded()[id]
    assert found.figures.keys() == inspect.signature(each.decide).parameters.keys()
    assert each.decide(**found.figures) == found.verdict


@pytest.mark.parametrize("id", [each.id for each in CLAIMS if each.trained])
def test_a_trained_verdict_was_tried_at_four_times_the_steps_and_none_turned(id):
    found = recorded()[id]
    assert any(each.steps == 4 for each in found.tried), f"run: course_lib claims --stress {id}"
    assert not found.turned


@pytest.mark.parametrize("id", IDS)
def test_a_claim_is_shown_in_its_chapter(id):
    path = HERE.parent / "notebooks" / CHAPTERS[find(id).chapter].notebook
    cells = nbformat.read(path, as_version=4).cells
    assert any("settle(" in cell.source and f'"{id}"' in cell.source for cell in cells if cell.cell_type == "code")


QUICK = [each.id for each in CLAIMS if not each.trained and not each.timed]
SAMPLE = sorted(each.id for each in CLAIMS if each.trained)[::12]


@pytest.mark.proof
@pytest.mark.parametrize("id", [*QUICK, *SAMPLE])
def test_what_is_on_record_is_measured_again(id):
    found, known = find(id)(), recorded()[id]
    told = ("measured", "verdict", "because", "rows")
    assert [getattr(found, each) for each in told] == [getattr(known, each) for each in told]
