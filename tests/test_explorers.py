"""Every live figure that a learner's own function drives: with the reference, and with mistakes that learners make."""

import pytest
from sliders import corners, drawn

from course_lib.grading import EXERCISES
from course_lib.live import explorable, explore
from course_lib.live.attempts import UNWRITTEN

pytestmark = pytest.mark.usefixtures("no_pixels", "as_a_learner")


def of_each_fourth(first):
    """Every explorer; but in every run each fourth from this one on, so that the four tests below open all of them."""
    return pytest.mark.parametrize(
        "exercise_id",
        [pytest.param(each, marks=[pytest.mark.proof] * (i % 4 != first)) for i, each in enumerate(explorable())],
    )


@of_each_fourth(0)
def test_the_outermost_corners_of_an_explorer_differ(exercise_id):
    live = explore(exercise_id, EXERCISES[exercise_id].reference)
    (low, *_, high), shown = corners(live), []
    for state in (low, high):
        live.render(**state)
        shown.append((drawn(live.figure), live.text))
    assert shown[0] != shown[1], "the controls at their ends change nothing"
    assert min(len(text) for _, text in shown) > 20


@of_each_fourth(1)
def test_an_explorer_survives_mistakes_and_some_of_them_show(exercise_id):
    def look(function):
        live = explore(exercise_id, function)
        return drawn(live.figure), live.text

    right = look(EXERCISES[exercise_id].reference)
    assert any(look(each.wrong) != right for each in EXERCISES[exercise_id].misconceptions[:5]), "no mistake shows"


def unwritten(*arguments, **named):
    raise NotImplementedError


def without_a_kernel(*arguments, **named):
    raise NotImplementedError("\"softmax\" not implemented for 'Half'\nand more lines")


@of_each_fourth(2)
def test_an_explorer_waits_for_what_is_not_written(exercise_id):
    assert UNWRITTEN in explore(exercise_id, unwritten).text


@of_each_fourth(3)
def test_what_torch_has_not_written_is_an_error_and_no_empty_answer(exercise_id):
    text = explore(exercise_id, without_a_kernel).text
    assert "Your function raised NotImplementedError: \"softmax\" not implemented for 'Half'" in text
    assert "more lines" not in text
