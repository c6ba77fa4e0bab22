"""Hints follow the mistake that was recognised, and otherwise come in turn."""

import pytest
import torch

from course_lib.grading import EXERCISES, check, hint, standing
from course_lib.grading.button import hint_button

pytestmark = pytest.mark.usefixtures("as_a_learner")
ATTENTION = "masks.masked_attention"


@pytest.fixture(autouse=True)
def new_learner(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.sqlite3"))


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
    ],
)
def test_the_hint_that_speaks_of_the_mistake_comes_first_and_then_they_come_in_turn(wrong, name, speaks_of):
    assert check(ATTENTION, attention(**wrong)).misconception == name
    first = hint(ATTENTION)
    assert first.mistake == name
    assert speaks_of in " ".join(first.text.split())
    assert f"on “{name}”" in repr(first)
    assert [hint(ATTENTION).number for _ in range(3)] == [1, 2, 3]


def test_the_same_mistake_again_gives_no_second_hint_and_another_one_does():
    for expected in ("scaling missing", ""):
        check(ATTENTION, attention(scaled=False))
        assert hint(ATTENTION).mistake == expected
    check(ATTENTION, attention(masked=False))
    assert hint(ATTENTION).mistake == "no mask"


def test_without_a_recognised_mistake_hints_come_in_turn():
    check(ATTENTION, attention(scaled=False))
    check(ATTENTION, lambda *args: args[0])
    first, second = hint(ATTENTION), hint(ATTENTION)
    assert (first.mistake, first.number, second.number) == ("", 1, 2)


def test_a_hint_out_of_turn_leaves_the_button_as_it_was():
    check(ATTENTION, attention(heads=False))
    button, place = hint_button(EXERCISES[ATTENTION]).children
    button.click()
    assert "on “one head”" in place.value
    assert button.description == "Next hint"
    assert not button.disabled
    for _ in EXERCISES[ATTENTION].hints:
        button.click()
    assert button.disabled


def test_the_button_shows_no_hint_twice():
    check(ATTENTION, attention(scaled=False))
    button, place = hint_button(EXERCISES[ATTENTION]).children
    presses = 0
    while not button.disabled:
        button.click()
        presses += 1
    assert presses == len(EXERCISES[ATTENTION].hints)
    numbers = [f"Hint {n} of {presses}" for n in range(1, presses + 1)]
    assert [place.value.count(number) for number in numbers] == [1] * presses


def test_for_nearly_every_mistake_some_hint_is_found(monkeypatch):
    mistakes = [(each, mistake) for each in EXERCISES.values() for mistake in each.misconceptions]
    kept = {}
    monkeypatch.setattr(standing.record, "entries", lambda table: kept)
    monkeypatch.setattr(standing.record, "change", lambda *arguments: None)
    found = 0
    for exercise, mistake in mistakes:
        kept[exercise.id] = {"name": mistake.name, "hinted": ""}
        found += standing._hint_on_the_mistake(exercise) is not None
    assert found > 0.8 * len(mistakes)
