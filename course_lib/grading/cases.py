"""The prepared cases of an exercise: how to call an answer, and the reference's result for each case."""

import functools
import inspect

import torch
from torch import nn

from course_lib.grading.exercise import Case, Given
from course_lib.grading.fixtures import generator_at
from course_lib.grading.judge.call import Call, ready, settle
from course_lib.grading.judge.seeds import scheme_of, seed_of_call, seed_of_stage, without_seed
from course_lib.grading.judge.trials import Trial, size_of
from course_lib.grading.judge.values import fresh, plain
from course_lib.grading.kinds import Code


@functools.lru_cache(maxsize=128)
def prepare(exercise: Code, seed: int) -> tuple[Trial, ...]:
    """Return every case of every stage in the order of testing, with the reference's result.

    The cases are cached, because a learner checks the same exercise repeatedly, and a class is graded with one seed.
    """
    trials: list[Trial] = []
    for place, stage in enumerate(exercise.stages):
        drawn = seed_of_stage(seed, exercise.id, stage.__name__)
        settle(drawn)
        for case in sorted(stage(drawn), key=lambda case: size_of(case.args)):
            if scheme_of(seed) != 1:
                case = Case(*without_seed(case.args, drawn), init=without_seed(case.init, drawn))
            settle(drawn)
            function, weights = exercise.reference, None
            if exercise.module:
                function = _moved(exercise.reference(*fresh(case.init)), drawn)
                weights = fresh(function.state_dict())
                function = ready(function, weights, case.args)
            how = Call(
                exercise.signature,
                _told(case.args),
                argument_names(exercise),
                seed_of_call(seed, exercise.id, place),
                _told(case.init) if exercise.module else None,
                weights,
                exercise.probe,
                tuple(exercise.forbidden),
                tuple(exercise.may_change),
                tuple(exercise.library),
            )
            settle(how.seed)
            args = fresh(how.args)
            value = plain(exercise.probe(function, *args) if exercise.probe else function(*args))
            expected = exercise.summary(case, value) if exercise.summary else value
            trials.append(Trial(inspect.cleandoc(stage.__doc__ or ""), case, how, expected, value, exercise.summary))
    return tuple(trials)


def argument_names(exercise: Code) -> tuple[str, ...]:
    """Return the names of the arguments of one call, as in the reference."""
    function = exercise.reference.forward if exercise.module else exercise.reference
    return tuple(inspect.signature(function).parameters)[1 if exercise.module else 0 :]


def _told(args: tuple) -> tuple:
    """A random generator cannot be sent to another process; its state can."""
    return tuple(Given(generator_at, x.get_state()) if isinstance(x, torch.Generator) else x for x in args)


def _moved(module: nn.Module, seed: int) -> nn.Module:
    """Change every parameter from its initial value, so that no gain of 1 and no bias of 0 hides a mistake."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng).to(parameter))
    return module
