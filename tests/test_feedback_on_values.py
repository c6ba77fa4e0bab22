"""Feedback on answers that are values: choices are counted before reasons are given; all of it fits a screen."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch

from course_lib.course import record
from course_lib.grading import EXERCISES, check, grade
from course_lib.grading.judge.show import show
from course_lib.grading.result import Result

CHOICE = "masks.patterns"


pytestmark = pytest.mark.usefixtures("own_record")


# --- choices ----------------------------------------------------------------------------------------------------------

CHOICES = [exercise for exercise in EXERCISES.values() if exercise.kind == "choice"]


def keys(exercise, right):
    return [option.key for option in exercise.options if option.right is right]


def gives_away(exercise, feedback):
    words = " ".join(feedback.split())  # however its lines are broken
    return [option.key for option in exercise.options if option.why in words or option.text in words]


@pytest.mark.parametrize("exercise", CHOICES, ids=lambda each: each.id)
def test_the_first_attempt_at_a_choice_is_counted_and_the_next_one_explained(exercise):
    right, wrong = keys(exercise, True), keys(exercise, False)
    first = {right[0], wrong[0]}
    for _ in range(2):  # the same again teaches nothing more
        result = check(exercise.id, first)
        assert "1 of your 2 picks is right, and" in result.feedback
        missing = len(right) - 1
        assert f"and {missing} right option{'s are' if missing > 1 else ' is'} missing." in result.feedback
        assert result.misconception is None
        assert not gives_away(exercise, result.feedback)
    changed = check(exercise.id, {*right, wrong[1]}).feedback
    assert gives_away(exercise, changed) == [wrong[1]]
    assert gives_away(exercise, check(exercise.id, first).feedback) == [wrong[0]], "from now on, the first picks too"
    assert check(exercise.id, set(right)).passed
    assert gives_away(exercise, grade(exercise.id, first, 5).feedback) == [wrong[0]], "a class is told at once"


@pytest.mark.parametrize("exercise", CHOICES, ids=lambda each: each.id)
def test_picking_everything_reveals_nothing_however_often(exercise):
    everything = {option.key for option in exercise.options}
    for picks in (everything, everything, set(keys(exercise, True)[:1]), set(keys(exercise, False)[:1]), everything):
        result = check(exercise.id, picks)
    assert result.feedback.startswith("You picked every option, but not all are right. Leave out those that you doubt.")
    assert not gives_away(exercise, result.feedback)
    assert result.misconception is None


@pytest.mark.parametrize("exercise", CHOICES, ids=lambda each: each.id)
def test_two_reasons_at_a_time_and_never_one_for_a_right_option(exercise):
    wrong = keys(exercise, False)
    check(exercise.id, set(wrong[:1]))
    for picks in (set(wrong), {*wrong, keys(exercise, True)[0]}):
        feedback = check(exercise.id, picks).feedback
        assert gives_away(exercise, feedback) == wrong[:2]
        left = len(wrong) - 2
        assert f"{left} more of your picks {'is' if left == 1 else 'are'} wrong." in feedback or not left
    assert gives_away(exercise, grade(exercise.id, set(wrong), 0).feedback) == wrong, "a class is told all"


def test_what_is_counted_is_true_of_every_set_of_picks():
    exercise = EXERCISES[CHOICE]
    right = set(keys(exercise, True))
    every = [option.key for option in exercise.options]
    for size in range(1, len(every)):
        for picks in combinations(every, size):
            count, missing = len(right & {*picks}), len(right - {*picks})
            said = exercise.counted(exercise.picked(list(picks))).sentences[0]
            if size > 1:
                assert said.split()[0] == (str(count) if count else "None")
                assert f"of your {size} picks" in said
            else:
                assert f"Your pick is {'right' if count else 'wrong'}" in said
            assert f"and {missing} right option" in said if missing else "and none is missing" in said


def test_a_choice_with_one_right_option_gives_its_reason_at_once(monkeypatch):
    exercise = EXERCISES[CHOICE]
    first, *rest = exercise.options
    options = [replace(first, right=True), *(replace(each, right=False) for each in rest)]
    monkeypatch.setitem(EXERCISES, CHOICE, replace(exercise, options=options))
    assert rest[0].why in check(CHOICE, rest[0].key).feedback


def test_a_pick_that_is_no_option_is_no_attempt_at_choosing():
    assert "There is no option" in check(CHOICE, {"a", "zebra"}).feedback
    assert "There is no option" in check(CHOICE, "z" * 10_000).feedback
    assert not record.entries("choices")


# --- all of them fit a screen -----------------------------------------------------------------------------------------


VALUED = [exercise for exercise in EXERCISES.values() if not exercise.called]


def answers_of_all_sorts(exercise):
    """Right, every known mistake, and what nobody asks for; the longest that a careless cell may hold."""
    odd = [
        None,
        3,
        -1.0,
        1e300,
        2**900,
        float("nan"),
        "x" * 5000,
        list(range(9999)),
        {"k" * 5000: 1},
        (1,) * 500,
        len,
    ]
    if exercise.kind == "choice":
        every = [option.key for option in exercise.options]
        return [*odd, set(every), set(keys(exercise, True)), set(keys(exercise, False)), {"x" * 3000, *every}]
    if exercise.kind == "reflect":
        return [*odd, "a thought " * 500]
    wrong = [answer for mistake in exercise.misconceptions for answer in mistake.variants]
    if isinstance(exercise.reference, dict):
        odd += [dict.fromkeys(exercise.reference, each) for each in odd]
    return [*odd, exercise.reference, *wrong]


@pytest.mark.parametrize("exercise", VALUED, ids=lambda each: each.id)
def test_feedback_on_a_value_fits_a_screen(exercise):
    for answer in answers_of_all_sorts(exercise):
        for result in (grade(exercise.id, answer, 0), check(exercise.id, answer)):
            lines = result.feedback.splitlines()
            assert len(lines) <= 30, f"{len(lines)} lines: {result.feedback[:300]}"
            assert max(map(len, lines)) <= 100, f"no page is so wide: {max(lines, key=len)[:300]}"


# --- what is not right, and how it is written -------------------------------------------------------------------------


def test_a_known_wrong_shape_says_where_and_what_else_is_not_right():
    right = EXERCISES["heads.shape_trace"].reference
    turned = {**right, "keys_transposed": (3, 6, 7, 16)}
    assert grade("heads.shape_trace", turned, 0).sentences[1:] == ("Not right yet: `keys_transposed`.",)
    result = grade("heads.shape_trace", {**turned, "merged": (3, 7, 16)}, 0)
    assert result.misconception == "keys as they were"
    assert result.sentences[1:] == ("Not right yet: `keys_transposed`, `merged`.",)
    assert grade("heads.parameters", 4 * 512**2, 0).sentences[1:] == (), "one number has no parts"


def test_words_are_set_in_italics_and_products_are_not():
    def shown(text):
        return Result("toy.double", "Double", "failed", 1, (text,))._repr_html_()

    assert "True means <em>may attend</em>; <code>a *b* c</code>" in shown("True means *may attend*; `a *b* c`")
    for text in ("2 * 3 * 4", "f(*args, **kw)", "x*y*z", "d_model**2 and 3**2"):
        assert text in shown(text)


def test_tensors_within_a_list_are_told_by_their_shapes():
    assert show([(torch.zeros(2, 3), torch.zeros(4, dtype=torch.int64))]) == "[(float32 (2, 3), int64 (4,))]"
