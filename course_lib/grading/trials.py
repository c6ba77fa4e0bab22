"""The cases of an exercise made ready: how to call, what the reference makes of it, and what the known mistakes do."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .exercise import Case, Given
from .given import generator_at
from .run import Call, Outcome, call, ready, settle
from .values import Foreign, fresh, plain

if TYPE_CHECKING:
    from .kinds import Code


@dataclass(frozen=True, eq=False)
class Trial:
    """A case made ready.

    brought: what the call of the reference gives, and expected: what the exercise's summary makes of that, if it has
    one · mistakes: id of a wrong answer -> its Outcome, once it was needed.
    """

    stage: str
    case: Case
    call: Call
    expected: Any
    brought: Any
    summary: Callable | None = None
    mistakes: dict[int, Outcome] = field(default_factory=dict)


@functools.lru_cache(maxsize=128)
def prepare(exercise: "Code", seed: int) -> tuple[Trial, ...]:
    """Every case of every stage in the order in which they are tried, with what the reference makes of it.

    Kept, because a learner checks the same exercise again and again, and a class is graded with one seed.
    """
    trials = []
    settle(seed)
    for stage in exercise.stages:
        for case in sorted(stage(seed), key=lambda case: _size(case.args)):
            settle(seed)
            function, weights = exercise.reference, None
            if exercise.module:
                function = _moved(exercise.reference(*fresh(case.init)), seed)
                weights = fresh(function.state_dict())
                function = ready(function, weights, case.args)
            how = Call(
                exercise.signature,
                _told(case.args),
                argument_names(exercise),
                seed,
                _told(case.init) if exercise.module else None,
                weights,
                exercise.probe,
                tuple(exercise.forbidden),
                tuple(exercise.may_change),
            )
            settle(seed)
            args = fresh(how.args)
            value = plain(exercise.probe(function, *args) if exercise.probe else function(*args))
            expected = exercise.summary(case, value) if exercise.summary else value
            trials.append(Trial(inspect.cleandoc(stage.__doc__), case, how, expected, value, exercise.summary))
    return tuple(trials)


def mistaken(wrong: Callable, trial: Trial) -> Outcome:
    """What one of the exercise's own misconceptions does with one case."""
    if id(wrong) not in trial.mistakes:
        trial.mistakes[id(wrong)] = summed_up(trial, call(wrong, trial.call))
    return trial.mistakes[id(wrong)]


def summed_up(trial: Trial, outcome: Outcome) -> Outcome:
    """The outcome with what is to be judged, where the exercise computes that from what its probe brought."""
    if trial.summary is None or outcome.failure:
        return outcome
    try:
        return replace(outcome, value=trial.summary(trial.case, outcome.value))
    except Exception:  # brought by something else than the probe
        return replace(outcome, value=Foreign("something that cannot be summed up"))


def argument_names(exercise: "Code") -> tuple[str, ...]:
    """The names of the arguments of one call, as the reference calls them."""
    function = exercise.reference.forward if exercise.module else exercise.reference
    return tuple(inspect.signature(function).parameters)[1 if exercise.module else 0 :]


def _told(args: tuple) -> tuple:
    """A random generator cannot be sent to another process; its state can."""
    return tuple(Given(generator_at, x.get_state()) if isinstance(x, torch.Generator) else x for x in args)


def _moved(module: nn.Module, seed: int) -> nn.Module:
    """Every parameter off its initial value, so that no gain of 1 and no bias of 0 hides a mistake."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng).to(parameter))
    return module


def _size(value: Any) -> int:
    """The number of elements of all tensors in there: cases are tried from small to large."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    parts = value.data if isinstance(value, Given) else value.values() if isinstance(value, dict) else value
    return sum(map(_size, parts)) if isinstance(parts, (tuple, list, type({}.values()))) else 0
