"""What is said of an answer with more than one mistake, or with one and a bit; and what is told in points and lines.

A toy exercise with two changes, an expression and an edge case, and answers written without a look at its reference.
"""

import inspect
from types import ModuleType

import pytest
import torch

from course_lib import masks
from course_lib.grading import EXERCISES, check, grade, progress
from course_lib.grading.judge.watch import _codes
from course_lib.grading.kinds import diagnosis
from course_lib.grading.kinds.evidence import _pair
from course_lib.grading.page import catalogue
from course_lib.grading.page.load import exercise_of
from course_lib.grading.pairs import pairs_of
from course_lib.masks import causal_mask

MODULE = '''
import torch

from course_lib.grading.exercise import Case, generator, stage


def shares(x, scale):
    """Each entry's share of the sum of squares, times scale; zeros where there is nothing to share."""
    squares = x ** 2
    total = squares.sum(dim=-1, keepdim=True)
    return (squares / total * scale).nan_to_num(0.0)


@stage
def single(seed):
    "A single entry has the whole."
    return [Case(torch.tensor([[2.0]]), 1.0)]


@stage
def drawn(seed):
    "Several rows."
    rng = generator(seed)
    return [Case(torch.rand(rows, 3, generator=rng) + 0.5, 2.0 + rows) for rows in (2, 4, 5, 3)]


@stage
def nothing(seed):
    "Nothing to share."
    return [Case(torch.zeros(1, 2), 1.0)]


@stage
def double(seed):
    "Numbers in float64."
    return [Case(torch.rand(2, 3, generator=generator(seed), dtype=torch.float64) + 0.5, 3.0)]
'''
PAGE = """---
place: 1
title: Shares
kind: code
points: 4
difficulty: 1
minutes: 5
signature: shares(x, scale)
---
Write `shares(x, scale)`.

## Why
Everything is shared somewhere.

## Hints
1. What must the result sum to?
2. Divide by the sum.
3. What is 0 / 0?

## Mistakes
### no squares
`x ** 2` → `x`
You share the numbers, not their squares.

### down the columns
```diff
-total = squares.sum(dim=-1, keepdim=True)
+total = squares.sum(dim=0, keepdim=True)
```
You sum down the columns.

### scale forgotten
` * scale` → nothing
You leave out the scale.

### one added
`shares(x, scale) + 1`
You add 1.

### nothing to share
`.nan_to_num(0.0)` → nothing
0 / 0 is NaN.
"""


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    def load():
        module = ModuleType("shares")
        exec(MODULE, module.__dict__)
        return module

    exercise = exercise_of(PAGE, "masks/shares.md", "masks.shares", 3, MODULE, load)
    monkeypatch.setitem(catalogue.EXERCISES, "masks.shares", exercise)
    return exercise


def answer(square=True, dim=-1, scaled=True, plus=0.0, zeros=True, dtype=None):
    def mine(x, scale):
        x = x.to(dtype or x.dtype)
        part = torch.pow(x, 2) if square else x
        out = part / part.sum(dim, keepdim=True)
        out = out * scale if scaled else out
        out = torch.where(out.isnan(), torch.zeros_like(out), out) if zeros else out
        return out + plus

    return mine


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"square": False}, ["no squares"]),
        ({"square": False, "scaled": False}, ["no squares", "scale forgotten"]),
        ({"square": False, "dim": 0}, ["no squares", "down the columns"]),
        ({"dim": 0, "scaled": False}, ["down the columns", "scale forgotten"]),
        ({"square": False, "plus": 1}, ["no squares", "one added"]),  # a change below an expression
        (
            {"dim": 0, "zeros": False},
            ["down the columns", "nothing to share"],
        ),  # shows in an edge case
    ],
)
def test_two_mistakes_are_named_both(wrong, named):
    result = grade("masks.shares", answer(**wrong), 0)
    assert result.mistakes == named
    sentences = {mistake.name: mistake.sentence for mistake in EXERCISES["masks.shares"].misconceptions}
    for name in named:
        assert sentences[name] in result.feedback
    assert (result.sentences[0] == "Two mistakes at once.") == (len(named) == 2)


def test_indices_in_a_list_show_a_mistake_as_those_in_a_tensor_do():
    """Whoever knows lists sorts in one; the check takes it for a tensor, and so does the search for the mistake."""

    def nearest(weight, index, k):
        scores = [row @ weight[index] for row in weight]
        return sorted(range(len(scores)), key=lambda i: -scores[i])[1 : k + 1]

    named = ["always the first left out", "dot product"]
    assert grade("embeddings.nearest", nearest, 0).mistakes == named
    assert grade("embeddings.nearest", lambda *of: torch.tensor(nearest(*of)), 0).mistakes == named


def test_who_does_something_unknown_in_an_edge_case_is_told_the_mistake_and_the_case():
    result = grade("masks.shares", answer(square=False, dtype=torch.float32), 0)
    assert result.mistakes == ["no squares"]
    assert "Something else is wrong as well. A case that shows it: Numbers in float64." in result.feedback


def test_two_mistakes_and_something_unknown_in_an_edge_case():
    result = grade("masks.shares", answer(square=False, scaled=False, dtype=torch.float32), 0)
    assert result.mistakes == ["no squares", "scale forgotten"]
    assert "Something else is wrong as well" in result.feedback


def sometimes(x, scale):
    """Forgets to square all but three rows."""
    return answer()(x, scale) if len(x) == 3 else answer(square=False)(x, scale)


def test_a_likeness_is_told_as_one_and_counts_the_cases():
    result = grade("masks.shares", sometimes, 0)
    assert result.misconception == "no squares (perhaps)"
    assert result.mistakes == ["no squares"]
    assert result.sentences[0].startswith(
        "In 3 of 4 cases that could show this mistake, your answer has the result of the mistake: You"
    )


def test_what_is_like_nothing_known_is_not_named():
    for wrong in (lambda x, scale: x * scale, lambda x, scale: x.softmax(-1) * scale, lambda x, scale: None):
        assert grade("masks.shares", wrong, 0).misconception is None


def test_the_case_that_is_shown_proves_the_mistake_and_is_the_smallest_that_does():
    """With a single entry all but the sum of what is added are right."""
    shown = grade("masks.shares", answer(square=False, scaled=False), 0)
    assert "The case (stage 2): Several rows." in shown.feedback
    assert "x: float32 (2, 3)" in shown.evidence
    assert "got, the result of these mistakes: float32 (2, 3)" in shown.evidence
    assert "x: float32 (1, 1)" in grade("masks.shares", answer(plus=1), 0).evidence
    assert ", the result of" not in grade("masks.shares", lambda x, scale: x, 0).evidence


def test_the_search_ends_where_two_mistakes_together_never_do(toy, monkeypatch):
    def never(x, scale):
        while True:
            pass

    monkeypatch.setattr(diagnosis, "pairs_of", lambda exercise: [(*toy.misconceptions[:2], never)])
    monkeypatch.setattr(diagnosis, "SECONDS", 0.1)
    assert grade("masks.shares", answer(square=False, scaled=False), 0).status == "failed"


def test_pairs_are_made_once_and_in_the_order_of_the_page(toy):
    first, again = list(pairs_of(toy)), list(pairs_of(toy))
    names = [(one.name, other.name) for one, other, _ in first]
    places = [mistake.name for mistake in toy.misconceptions]
    assert names == sorted(names, key=lambda pair: [places.index(name) for name in pair])
    assert all(one[2] is other[2] for one, other in zip(first, again, strict=True))
    assert len(names) == 10


# --- points and lines -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "marks", "earned"),
    [
        ({"plus": 1}, "✗ ✗ ✗ ✗", 0),
        ({"square": False}, "✓ ✗ ✓ ✗", 0),  # a case that everybody sees could be typed in
        ({"zeros": False}, "✓ ✓ ✗ ✓", 2),
        ({"dtype": torch.float32}, "✓ ✓ ✓ ✗", 2),
        ({}, None, 4),
    ],
)
def test_stages_earn_their_share_up_to_the_first_that_fails(wrong, marks, earned):
    result = check("masks.shares", answer(**wrong))
    assert result.earned == earned
    line = f"{marks.count('✓')} of 4 stages passed: {marks}" if marks else ""
    told = f": {earned} point{'s' * (earned > 1)} for those before the first ✗" if earned else ""
    assert (line + told in result.sentences) == (marks is not None)
    assert f"{earned} of 4 points" in repr(result)


def test_the_points_of_stages_are_kept_and_never_lost(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.sqlite3"))

    def kept():
        return next((row.earned, row.last) for row in progress().rows if row.exercise_id == "attention.softmax")

    def naive(x, dim):
        return x.exp() / x.exp().sum(dim, keepdim=True)

    assert check("attention.softmax", naive).earned == 1
    check("attention.softmax", lambda x, dim: None)
    assert kept() == (1, "failed")


@pytest.mark.parametrize("rows", [1, 40, 3000])
def test_feedback_fits_thirty_lines_of_a_hundred_columns_whatever_is_returned(rows):
    for wrong in (
        lambda x, scale: torch.rand(rows, 36),
        lambda x, scale: [1.23456789] * rows,
        lambda x, scale: print("words " * 200, *["line"] * rows, sep="\n"),
        lambda x, scale: {f"key {i}": torch.rand(6, 6) for i in range(rows)},
        lambda x, scale: 1 / (0 * len("long " * rows)),
    ):
        lines = repr(grade("masks.shares", wrong, 0)).splitlines()
        assert len(lines) <= 30
        assert max(map(len, lines)) <= 100


# --- the library's own function ---------------------------------------------------------------------------------------


class Subclass:
    """Holds the library's function; calls it with what it is given."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        return self.function(*args)


def copied(function):
    """The same code in another function."""
    function = inspect.unwrap(function)
    return type(function)(function.__code__.replace(), function.__globals__, "mine", function.__defaults__)


@pytest.mark.parametrize(
    "wrapped",
    [lambda f: lambda T, S=None: f(T, S), Subclass, copied, lambda f: lambda T, S=None: f(T, S) & torch.tensor(True)],
    ids=["lambda", "object", "copied code", "and something on top"],
)
def test_the_librarys_function_is_told_behind_any_wrapper(wrapped, monkeypatch):
    exercise = EXERCISES["masks.causal"]
    monkeypatch.setitem(vars(exercise), "library", ("masks.causal_mask",))
    for seed in (1001, 1002):  # cases that no other test has made ready
        result = grade("masks.causal", wrapped(causal_mask), seed)
        assert (result.status, result.earned) == ("unanswered", 0)
        assert "the library's own `masks.causal_mask`" in result.feedback
        assert grade("masks.causal", exercise.reference, seed).passed


def test_who_takes_the_librarys_function_away_is_judged_all_the_same(monkeypatch):
    """The names are looked up beside the answer, which may have replaced or deleted what they stand for."""

    def right(T, S=None):
        S = T if S is None else S
        return torch.ones(T, S, dtype=torch.bool).tril(S - T)

    for change in (
        lambda: monkeypatch.setattr(masks, "causal_mask", right),
        lambda: monkeypatch.delattr(masks, "causal_mask"),
    ):
        _codes.cache_clear()
        change()
        assert grade("masks.causal", right, 0).passed
    _codes.cache_clear()


def test_every_function_that_a_page_calls_the_librarys_own_exists():
    for exercise in EXERCISES.values():
        for name in getattr(exercise, "library", ()):
            assert _codes((name,)), f"{exercise.id}: {name}"


# --- what a case shows ------------------------------------------------------------------------------------------------


def test_an_answer_whose_time_is_up_is_told_which_stages_were_not_tried(toy):
    def waits(x, scale):
        while len(x) == 4:
            pass
        return answer()(x, scale)

    object.__setattr__(toy, "time_limit", 0.5)
    result = grade("masks.shares", waits, 0)
    assert "still running" in result.sentences[0]
    assert "1 of 4 stages passed: ✓ ✗ – – (– was not tried)" in result.sentences


def test_a_right_result_with_a_changed_input_is_not_shown_as_a_difference():
    def in_place(x, scale):
        shares = answer()(x, scale)
        x.zero_()
        return shares

    result = grade("masks.shares", in_place, 0)
    assert "changes its input" in result.feedback
    assert "x: float32 (1, 1)" in result.evidence
    assert "expected" not in result.evidence


@pytest.mark.proof
def test_the_inputs_of_a_module_bear_their_names():
    class Wrong(torch.nn.Module):
        def __init__(self, d_model, n_heads):
            super().__init__()
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                setattr(self, name, torch.nn.Linear(d_model, d_model))

        def forward(self, x, mask=None):
            return self.out_proj(self.v_proj(x)) if mask is None and x.shape[1] == 1 else x

    shown = grade("heads.module", Wrong, 0).evidence
    assert "\nx: float32" in shown
    assert "input:" not in shown


def test_a_dictionary_shows_what_differs():
    expected = {"same": [1, 2], "losses": {2: 0.5, 4: 0.25}}
    got = {"same": [1, 2], "losses": {2: 0.5, 4: 0.75}}
    lines = [line for entry in _pair(EXERCISES["masks.shares"], expected, got, 0) for line in entry.lines]
    assert lines == ["expected: {'losses': {2: 0.5, 4: 0.25}}", "got: {'losses': {2: 0.5, 4: 0.75}}"]
