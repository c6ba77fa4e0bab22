"""A page's second slips: tried on top of each mistake that is a change of the reference, which keeps its name."""

import pickle
from types import ModuleType

import pytest
import torch

from course_lib.grading import EXERCISES, grade
from course_lib.grading.page import catalogue
from course_lib.grading.page.format import PageError
from course_lib.grading.page.load import exercise_of

MODULE = '''
import torch

from course_lib.grading.exercise import Case, generator, stage


def shares(x):
    """Each entry's share of the sum; zeros where there is nothing to share."""
    total = x.sum()
    return (x / total).nan_to_num(0.0)


@stage
def drawn(seed):
    "Three numbers."
    return [Case(torch.rand(3, generator=generator(seed)))]


@stage
def nothing(seed):
    "Nothing to share."
    return [Case(torch.zeros(2))]
'''
PAGE = """---
place: 1
title: Shares
kind: code
points: 1
difficulty: 1
minutes: 5
signature: shares(x)
---
Write `shares(x)`.

## Why
Everything is shared somewhere.

## Hints
1. What must the result sum to?
2. Divide by the sum.
3. What is 0 / 0?

## Mistakes
### the largest
`x.sum()` → `x.max()`
You divide by the largest.

### squares
```diff
-total = x.sum()
+total = x.square().sum()
```
You divide by the sum of the squares.

### the mean
`x.mean().nan_to_num(0.0) + torch.zeros_like(x)`
You return the mean.

### nothing to share
`.nan_to_num(0.0)` → nothing
0 / 0 is NaN.

## Second slips
`.nan_to_num(0.0)` → nothing
`x / total` → `x.float() / total`
"""


def declared(page=PAGE):
    def load():
        module = ModuleType("shares")
        exec(MODULE, module.__dict__)
        return module

    return exercise_of(page, "masks/shares.md", "masks.shares", 3, MODULE, load)


def test_each_change_is_tried_with_every_slip_that_has_a_place_in_it():
    mistakes = {mistake.name: mistake for mistake in declared().misconceptions}
    assert {name: len(mistake.variants) for name, mistake in mistakes.items()} == {
        "the largest": 3,
        "squares": 3,
        "the mean": 1,  # an expression: no words of the reference to change
        "nothing to share": 2,  # what it takes away cannot be taken away again
    }
    plain, with_slip, _ = mistakes["squares"].variants
    x = torch.tensor([1.0, 2.0])
    assert plain(x).tolist() == with_slip(x).tolist() == pytest.approx([0.2, 0.4])
    assert plain(torch.zeros(2)).tolist() == [0.0, 0.0]
    assert with_slip(torch.zeros(2)).isnan().all()


def test_an_answer_with_both_slips_is_named_after_the_first(monkeypatch):
    monkeypatch.setitem(catalogue.EXERCISES, "masks.shares", declared())
    assert grade("masks.shares", lambda x: x / x.square().sum(), 0).misconception == "squares"
    assert grade("masks.shares", lambda x: x / x.sum(), 0).misconception == "nothing to share"
    assert grade("masks.shares", lambda x: (x / x.sum()).nan_to_num(0.0), 0).passed


@pytest.mark.parametrize(
    ("slip", "told"),
    [
        ("`nan_to_num(1.0)` → nothing", "Second slips: `nan_to_num(1.0)` does not occur"),
        ("`x / x.sum()`", "Second slips: a second slip must be a change of the reference"),
        ("`x / total` → `x /`", "Second slips: this is not valid Python"),
    ],
)
def test_a_slip_that_does_not_fit_the_reference_is_refused_with_its_line(slip, told):
    with pytest.raises(PageError) as refused:
        declared(PAGE.replace("`.nan_to_num(0.0)` → nothing\n`x / total` → `x.float() / total`", slip))
    assert str(refused.value).startswith("masks/shares.md:41: ")
    assert told in str(refused.value)


def test_only_pages_with_a_reference_have_second_slips():
    number = PAGE.replace("kind: code", "kind: number").replace("signature: shares(x)\n", "")
    with pytest.raises(PageError, match="a page of kind number has no part 'Second slips'"):
        declared(number)


def test_a_refusal_reaches_another_process_whole():
    refused = pickle.loads(pickle.dumps(PageError("masks/shares.md", 42, "no such words")))
    assert str(refused) == "masks/shares.md:42: no such words"


def test_the_catalogue_uses_them():
    twice = [
        exercise.id
        for exercise in EXERCISES.values()
        for mistake in exercise.misconceptions
        for form in getattr(mistake, "forms", ())
        if type(form).__name__ == "Along"
    ]
    assert {"training.get_batch", "heads.module", "gpt.forward"} <= set(twice)
