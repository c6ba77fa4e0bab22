"""Hints follow the mistake that was recognized, and otherwise come in turn."""

import pytest
import torch

from course_lib.grading import EXERCISES, check, hint
from course_lib.grading.hint_button import hint_button
from course_lib.grading.result import Hint

pytestmark = pytest.mark.usefixtures("as_a_learner", "own_record")
ATTENTION = "masks.masked_attention"


def attention(scaled=True, heads=True, masked=True):
    def answer(x, W_Q, W_K, W_V, W_O, n_heads):
        H = n_heads if heads else 1
        q, k, v = ((x @ W).unflatten(-1, (H, -1)).transpose(1, 2) for W in (W_Q, W_K, W_V))
        scores = q @ k.mT / (q.shape[-1] ** 0.5 if scaled else 1)
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        weights = (scores.masked_fill(later, -torch.inf) if masked else scores).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2) @ W_O

    return answer


@pytest.mark.parametrize(
    ("wrong", "name", "speaks_of"),
    [
        ({"scaled": False}, "scaling missing", "features of"),
        ({"masked": False}, "no mask", "later keys"),
        ({"heads": False}, "one head", "For several heads"),
    ],
)
def test_the_hint_that_speaks_of_the_mistake_comes_first_and_then_they_come_in_turn(wrong, name, speaks_of):
    assert check(ATTENTION, attention(**wrong)).misconception == name
    first = hint(ATTENTION)
    assert first.mistake == name
    assert speaks_of in " ".join(first.text.split())
    assert not first.in_turn
    for shown in (repr(first), first._repr_html_()):
        assert "Hint for this mistake" in shown
        assert f"“{name}” (hint {first.number} of 4, given first because it helps here)" in shown
        assert f"Hint {first.number} of" not in shown, "no hint seems to have been skipped"
    assert [hint(ATTENTION).number for _ in range(3)] == [1, 2, 3]


def test_the_same_mistake_again_gives_no_second_hint_and_another_one_does():
    for expected in ("scaling missing", ""):
        check(ATTENTION, attention(scaled=False))
        assert hint(ATTENTION).mistake == expected
    check(ATTENTION, attention(masked=False))
    assert hint(ATTENTION).mistake == "no mask"


def test_without_a_recognized_mistake_hints_come_in_turn():
    check(ATTENTION, attention(scaled=False))
    check(ATTENTION, lambda *args: args[0])
    first, second = hint(ATTENTION), hint(ATTENTION)
    assert (first.mistake, first.number, second.number) == ("", 1, 2)


def test_a_hint_out_of_turn_leaves_the_button_as_it_was():
    check(ATTENTION, attention(heads=False))
    button, place = hint_button(EXERCISES[ATTENTION]).children
    button.click()
    assert "“one head”" in place.value
    assert button.description == "Next hint"
    assert not button.disabled
    for _ in EXERCISES[ATTENTION].hints:
        button.click()
    assert button.disabled


def test_a_hint_on_the_mistake_that_is_the_next_one_anyway_counts_as_such():
    for answer in ("Q @ K.T / 2", "K @ Q.T / Q.shape[-1] ** 0.5"):
        check("attention.worked_example", eval(f"lambda Q, K: ({answer}).softmax(-1)"))
        first = hint("attention.worked_example")
        assert first.mistake in ("always divided by two", "queries and keys exchanged")
    assert (first.number, first.in_turn) == (1, True)
    assert repr(first).startswith("Hint 1 of 3 · attention.worked_example · on “queries and keys exchanged”")
    assert hint("attention.worked_example").number == 2


def test_a_mistake_for_which_the_page_names_no_hint_leaves_them_in_turn():
    check("attention.softmax", lambda x, dim: x.softmax(dim).float())
    first = hint("attention.softmax")
    assert (first.number, first.mistake) == (1, "")


def test_the_button_shows_no_hint_twice():
    check(ATTENTION, attention(scaled=False))
    button, place = hint_button(EXERCISES[ATTENTION]).children
    presses = 0
    while not button.disabled:
        button.click()
        presses += 1
    assert presses == len(EXERCISES[ATTENTION].hints)
    assert all(place.value.count(html_of(text)) == 1 for text in EXERCISES[ATTENTION].hints)


def html_of(text):
    """A hint as the button shows it, without its name."""
    return Hint("", 1, 1, text)._repr_html_().partition("margin-top: 6px;")[2]


def test_most_mistakes_of_the_pages_name_their_hint():
    mistakes = [mistake for each in EXERCISES.values() for mistake in each.misconceptions]
    assert sum(mistake.hint > 0 for mistake in mistakes) > 0.7 * len(mistakes)
