"""The mutation run works and leaves no survivor without a reason: a sample. The whole: `python -m tests.mutants`."""

import ast

import pytest
import torch

from course_lib.grading import EXERCISES, Case, Code
from tests import mutants

SAMPLE = ["attention.softmax", "embeddings.merge_pair", "embeddings.one_hot", "counting.flops", "sampling.top_k"]


@pytest.mark.proof
@pytest.mark.parametrize("exercise_id", SAMPLE)
def test_no_slip_in_the_reference_passes(exercise_id, monkeypatch):
    monkeypatch.setattr(mutants, "SECONDS", 1.0)  # here they take a hundredth of one, unless they never end
    count, alive = mutants.survivors(exercise_id)
    open_ = [f"{mutant.before} -> {mutant.after}" for mutant in alive if not mutants.explained(exercise_id, mutant)]
    assert count > len(alive)
    assert open_ == []


def test_reasons_belong_to_exercises():
    assert {name for name, _, _ in mutants.EQUIVALENT} <= set(EXERCISES)


def changes(source):
    function = ast.parse(source).body[0]
    return {mutants.difference(function, mutated)[1] for mutated, _ in mutants.variants(function)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return a - b", {"return a + b", "return b - a"}),
        ("return a @ b", {"return a * b", "return b @ a"}),
        ("return a < b", {"return a <= b", "return a > b"}),
        ("return -a", {"return a"}),
        ("return a and b", {"return a or b"}),
        ("return True", {"return False"}),
        ("return a + 3", {"return a - 3", "return a + 2", "return a + 4", "return a + 0"}),
        ("return sum(a, -1)", {f"return sum(a, {axis})" for axis in (-2, 0, 1)} | {"return sum(-1, a)"}),
        ("return f(a, keepdim=b)", {"return f(a)"}),
        ("return a.abs()", {"return a"}),
        ("return a if b else c", {"return a", "return c"}),
        ("return (a, b)", {"return (b, a)"}),
        ("a += b", {"a -= b", "(dropped) of a += b"}),
    ],
)
def test_what_is_changed(line, expected):
    assert changes(f"def f(a, b, c):\n    {line}") == expected


def scaled(x):
    return squared(x) + 2


def squared(x):
    return x * x


def one_and_two(seed):
    "One and two."
    return [Case(torch.tensor([1.0, 2.0]))]


def ones_alone(seed):
    "Ones: x · x and x / x are then the same."
    return [Case(torch.ones(2))]


@pytest.mark.parametrize(("stage", "missing"), [(one_and_two, set()), (ones_alone, {"return x / x"})])
def test_a_missing_case_shows_as_a_survivor(monkeypatch, stage, missing):
    exercise = Code(
        id="toy.scaled", chapter=0, title="Scaled", points=1, difficulty=1, minutes=1, hints=["?"],
        signature="scaled(x)", reference=scaled, stages=[stage],
    )  # fmt: skip
    monkeypatch.setitem(EXERCISES, "toy.scaled", exercise)
    count, alive = mutants.survivors("toy.scaled")
    assert count == 5, "two operators, three constants"
    assert {mutant.after for mutant in alive} == missing
    assert EXERCISES["toy.scaled"] is exercise
