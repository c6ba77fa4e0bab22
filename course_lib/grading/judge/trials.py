"""A case that is ready to be tried, and the results of the known mistakes for it."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from course_lib.grading.exercise import Case, Given
from course_lib.grading.judge.call import Call, Outcome, call
from course_lib.grading.judge.values import Foreign, changed


@dataclass(frozen=True, eq=False)
class Trial:
    """A case that is ready to be tried.

    Fields:
        brought: the result of calling the reference.
        expected: the exercise's summary of that result, or the result itself without a summary.
        mistakes: a wrong answer -> its Outcome, once it was needed.
    """

    stage: str
    case: Case
    call: Call
    expected: Any
    brought: Any
    summary: Callable | None = None
    mistakes: dict[Callable, Outcome] = field(default_factory=dict)


def mistaken(wrong: Callable, trial: Trial) -> Outcome:
    """Return the outcome of one of the exercise's own misconceptions in one case."""
    if wrong not in trial.mistakes:
        trial.mistakes[wrong] = summed_up(trial, call(wrong, trial.call))
    return trial.mistakes[wrong]


def summed_up(trial: Trial, outcome: Outcome) -> Outcome:
    """Return the outcome with the value to judge, which some exercises compute from the result of their probe."""
    if trial.summary is None or outcome.failure:
        return outcome
    try:
        return replace(outcome, value=trial.summary(trial.case, outcome.value))
    except Exception:  # the value did not come from the probe
        return replace(outcome, value=Foreign("something that cannot be summed up"))


@functools.cache
def is_drawn(stage: Callable[[int], list[Case]]) -> bool:
    """Return whether the cases of a stage depend on the seed."""
    one, other = ([[_told(case.args), _told(case.init)] for case in stage(seed)] for seed in (0, 1))
    return changed(one, other)


def _told(value: Any) -> Any:
    """Return a case as plain data, with the data of each Given in its place."""
    if isinstance(value, Given):
        return [value.make.__name__, _told(value.data)]
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, dict):
        return [list(value), _told(list(value.values()))]
    return [_told(part) for part in value] if isinstance(value, (tuple, list)) else value


def size_of(value: Any) -> int:
    """Return the number of elements of all tensors in a value. Cases are tried and shown from small to large."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    parts = value.data if isinstance(value, Given) else value.values() if isinstance(value, dict) else value
    return sum(map(size_of, parts)) if isinstance(parts, (tuple, list, type({}.values()))) else 0
