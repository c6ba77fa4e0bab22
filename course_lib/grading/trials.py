"""A case that is ready to be tried, and what the known mistakes do with it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .exercise import Case, Given
from .run import Call, Outcome, call
from .values import Foreign


@dataclass(frozen=True, eq=False)
class Trial:
    """A case made ready.

    brought: what the call of the reference gives, and expected: what the exercise's summary makes of that, if it has
    one · mistakes: a wrong answer -> its Outcome, once it was needed.
    """

    stage: str
    case: Case
    call: Call
    expected: Any
    brought: Any
    summary: Callable | None = None
    mistakes: dict[Callable, Outcome] = field(default_factory=dict)


def mistaken(wrong: Callable, trial: Trial) -> Outcome:
    """What one of the exercise's own misconceptions does with one case."""
    if wrong not in trial.mistakes:
        trial.mistakes[wrong] = summed_up(trial, call(wrong, trial.call))
    return trial.mistakes[wrong]


def summed_up(trial: Trial, outcome: Outcome) -> Outcome:
    """The outcome with what is to be judged, where the exercise computes that from what its probe brought."""
    if trial.summary is None or outcome.failure:
        return outcome
    try:
        return replace(outcome, value=trial.summary(trial.case, outcome.value))
    except Exception:  # brought by something else than the probe
        return replace(outcome, value=Foreign("something that cannot be summed up"))


def size_of(value: Any) -> int:
    """The number of elements of all tensors in there: cases are tried, and shown, from small to large."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    parts = value.data if isinstance(value, Given) else value.values() if isinstance(value, dict) else value
    return sum(map(size_of, parts)) if isinstance(parts, (tuple, list, type({}.values()))) else 0
