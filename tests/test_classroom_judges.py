"""The judges meet what nobody would hand in: whatever comes out of a worker, nothing wrong passes and nothing raises.

An untrusted process says what an answer's calls gave. So every judge of the catalogue is handed values that no
reference would give, in the place of one outcome and of all.
"""

import math

import pytest
import torch
from torch import Tensor

from course_lib.classroom.sandbox.protocol import DTYPES
from course_lib.grading.engine import PUBLIC_SEED, judge_calls, judge_value, ready_trials
from course_lib.grading.judge.call import Failure, Outcome
from course_lib.grading.judge.seeds import SECRET
from course_lib.grading.judge.trials import mistaken, summed_up
from course_lib.grading.judge.values import Foreign
from course_lib.grading.kinds import diagnosis
from course_lib.grading.page.catalogue import EXERCISES
from tests.confusion import confusion, late

pytestmark = pytest.mark.usefixtures("as_a_learner")  # the verdicts are those that learners get
ANOTHER_SEED = SECRET | 20_26  # as a class's
by_part = pytest.mark.parametrize(  # both seeds' cases are those of `test_grading.py`: one process makes them for both
    "seed",
    [
        pytest.param(PUBLIC_SEED, id="the public seed"),
        pytest.param(ANOTHER_SEED, id="another seed", marks=pytest.mark.proof),
    ],
)
CALLED = [exercise for exercise in EXERCISES.values() if exercise.kind in ("code", "experiment")]
VALUED = [exercise for exercise in EXERCISES.values() if exercise.kind in ("number", "shapes", "choice")]
by_mistake = pytest.mark.parametrize("exercise", [pytest.param(each, id=each.id, marks=late(each)) for each in CALLED])
SOME_CODE = [exercise for exercise in CALLED if exercise.kind == "code"][::9]
HALF = "\ud800"  # half a surrogate pair: text that no file can hold
NAN, INF = math.nan, math.inf
ODD = [
    None,
    ...,
    True,
    False,
    NAN,
    INF,
    -INF,
    -0.0,
    2**999,
    complex(NAN, 1),
    "",
    "nan",
    HALF,
    "<script>" * 50,
    Foreign("Tensor"),
    (),
    [],
    {},
    frozenset(),
    [[], [[]]],
    ((NAN, NAN), [None, ...]),
    [HALF] * 3,
    {"": NAN},
    {HALF: {HALF: HALF}},
    {None: None, 1.5: [], (): (), True: {}},
    {Foreign("x"): Foreign("y")},
    frozenset([NAN, HALF, None, (1, 2)]),
    torch.tensor(NAN),
    torch.tensor([]),
    torch.zeros(0, 3),
    torch.tensor(True),
    torch.full((3,), INF),
    torch.tensor(1 + 1j),
    torch.empty(3, device="meta"),
    torch.full((1,) * 64, 7.5),
    [torch.tensor(NAN)] * 2,
    {"output": torch.tensor(NAN)},
    {torch.tensor(1.0): torch.tensor(1.0)},
]


def spoiled(value):
    """Values with the form of `value` that are nowhere right."""
    if isinstance(value, Tensor):
        yield from _spoiled_tensor(value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield from (NAN, INF, -INF, value + 1 + abs(value), str(value), [value], {"value": value}, complex(value, 1))
        yield from (
            torch.tensor([NAN], dtype=torch.float64),
            torch.full((2,), float(value)),
            torch.zeros(1, device="meta"),
        )
    elif isinstance(value, (tuple, list)):
        kind = type(value)
        yield kind()
        yield kind([*value, None])
        yield kind([*value, *value]) if value else kind([()])
        for each in (None, ..., NAN, HALF, {}, torch.tensor(NAN), torch.empty(2, device="meta")):
            if value:
                yield kind([each] * len(value))
        for i, part in list(enumerate(value))[:8]:
            for wrong in spoiled(part):
                yield kind([*value[:i], wrong, *value[i + 1 :]])
    elif isinstance(value, dict):
        for each in (
            None,
            ...,
            NAN,
            -INF,
            HALF,
            [],
            {},
            (HALF, HALF),
            torch.tensor(NAN),
            torch.empty(2, device="meta"),
        ):
            yield dict.fromkeys(value, each)
            yield {f"{key}{HALF}": each for key in value}
            yield dict.fromkeys(range(len(value)), each)
        yield dict(list(value.items())[1:])
        for key, part in list(value.items())[:8]:
            for wrong in spoiled(part):
                yield {**value, key: wrong}
    elif isinstance(value, str):
        yield from (value + " ", value.upper() + HALF, [value], {value: value})


def _spoiled_tensor(value):
    for dtype in DTYPES.values():
        if dtype != value.dtype and (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool):
            yield torch.full(value.shape, 99, dtype=dtype)
    yield torch.empty(value.shape, dtype=value.dtype, device="meta")
    if value.is_floating_point():
        if not value.numel() or value.isnan().all():
            return
        yield from (torch.full_like(value, each) for each in (NAN, 3e30 if value.dtype != torch.float16 else 3e4))
        if not (value == INF).all():
            yield torch.full_like(value, INF)
        one = value.clone().flatten()
        one[int((~one.isnan()).nonzero()[0])] = NAN
        yield one.view(value.shape)
    elif value.dtype == torch.bool:
        yield ~value
    else:
        yield value + 1
        yield torch.full_like(value, torch.iinfo(value.dtype).max)
    if value.ndim:  # a number may stand in a list
        yield value.unsqueeze(0)
    yield value.flatten()[:0]


def right(expected):
    """Is this what was expected? An odd value may be the right one, where nothing or None is asked for."""

    def same(one, other):
        if isinstance(one, bool) and isinstance(other, Tensor):  # as welcome as a number in a tensor
            return other.dtype == torch.bool and other.numel() == 1 and bool(other) is one
        if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
            return len(one) == len(other) and all(map(same, one, other))
        if type(one) is not type(other):
            return False
        if isinstance(one, Tensor):
            return one.device == other.device and one.shape == other.shape and torch.equal(one, other)
        if isinstance(one, dict):
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        return one == other

    return lambda value: same(expected, value)


@pytest.fixture(autouse=True)
def short_search(monkeypatch, request):
    """Odd outcomes are looked up among pairs of mistakes, too; which of the hundreds is found does not matter here. Of
    an experiment none is tried: each would train anew."""
    called = getattr(request.node, "callspec", None)
    exercise = called.params.get("exercise") if called else None
    monkeypatch.setattr(diagnosis, "SECONDS", -1.0 if exercise and exercise.kind == "experiment" else 0.002)


def form(value):
    """What kind of thing a value is, without its numbers: one case of every form is enough."""
    if isinstance(value, Tensor):
        return value.dtype, value.ndim
    if isinstance(value, dict):
        return tuple(value)
    return type(value), len(value) if isinstance(value, (tuple, list)) else 0


def with_mistakes(exercise, seed):
    """The cases, and what mistakes make of them: each wrong outcome is held against all of that."""
    confusion(exercise, seed, first=True)  # written as test_grading writes it: the cache is by arguments
    return ready_trials(exercise, seed)


@pytest.mark.parametrize("first", [True, pytest.param(False, marks=pytest.mark.proof)], ids=["first", "others"])
@by_mistake
def test_no_odd_outcome_of_a_call_passes_or_raises(exercise, first):
    """What is odd is so beside the values of any seed, so each form is tried with one: the first in every run, the
    others in the proofs, with the seed whose mistakes are known there anyway."""
    trials = with_mistakes(exercise, PUBLIC_SEED if first else ANOTHER_SEED)
    whole = [Outcome(trial.brought) for trial in trials]
    stages = list(dict.fromkeys(trial.stage for trial in trials))
    assert judge_calls(exercise, trials, whole).passed or exercise.kind == "experiment"
    forms = list({form(trial.brought): i for i, trial in enumerate(trials)}.values())
    for i in forms[:1] if first else forms[1:]:
        is_right = right(trials[i].brought)
        for value in filter(lambda value: not is_right(value), ODD):
            result = judge_calls(exercise, trials, [*whole[:i], Outcome(value), *whole[i + 1 :]])
            assert not result.passed, f"{value!r} passes in place of {trials[i].expected!r}"
            assert result.earned <= exercise.points * stages.index(trials[i].stage) // len(stages)


@by_part
@pytest.mark.parametrize("exercise", CALLED, ids=lambda exercise: exercise.id)
def test_no_spoiled_outcome_of_a_call_passes_or_raises(exercise, seed):
    """Something must be said of it: a sentence without a word would be none."""
    trials = {form(trial.brought): trial for trial in ready_trials(exercise, seed)}.values()
    for trial in trials:
        is_right = right(trial.brought)
        # Of a training that went well, any weights do.
        brought = trial.brought if exercise.id != "training.overfit" else {**trial.brought, "weights": {}}
        for value in spoiled(brought):
            if not is_right(value):
                problem = exercise.problem_of(trial, summed_up(trial, Outcome(value)))
                assert problem, f"{value!r} passes in place of {trial.brought!r}"


@by_part
@by_mistake
def test_an_odd_value_for_every_call_never_passes(exercise, seed):
    trials = with_mistakes(exercise, seed)
    for value in ODD:
        if not all(right(trial.brought)(value) for trial in trials):
            assert not judge_calls(exercise, trials, [Outcome(value)] * len(trials)).passed, repr(value)


@by_part
@by_mistake
def test_outcomes_that_are_missing_or_too_many_or_failed_never_pass(exercise, seed):
    trials = with_mistakes(exercise, seed)
    whole = [Outcome(trial.brought) for trial in trials]
    failed = [
        Outcome(trial.brought, Failure(kind, HALF)) for trial in trials[:1] for kind in ("unanswered", "raised", "x")
    ]
    for outcomes in (
        [],
        whole[:-1],
        [*whole, whole[-1]],
        *([each, *whole[1:]] for each in failed),
        failed[:1] * len(trials),
    ):
        assert not judge_calls(exercise, trials, outcomes).passed
    assert not judge_calls(exercise, (), []).passed
    assert not judge_calls(exercise, (), [Outcome(failure=Failure("exit", "It ended."))]).passed
    assert not judge_calls(exercise, (), [Outcome(True)]).passed


@pytest.mark.parametrize(
    "exercise", [pytest.param(each, id=each.id, marks=late(each)) for each in CALLED if each.kind == "code"][::6]
)
def test_a_mistake_whose_last_outcome_is_missing_is_judged_by_the_others(exercise):
    trials = with_mistakes(exercise, PUBLIC_SEED)
    for mistake in exercise.misconceptions[:5]:
        outcomes = [mistaken(mistake.variants[0], trial) for trial in trials]
        assert not judge_calls(exercise, trials, outcomes[:-1]).passed


@pytest.mark.parametrize("exercise", VALUED, ids=lambda exercise: exercise.id)
def test_no_odd_value_passes_or_raises(exercise):
    reference = exercise.reference
    if exercise.kind == "choice":
        keys = [option.key for option in exercise.options]
        reference = [option.key for option in exercise.options if option.right]
        wrong = [
            keys,
            keys * 2,
            [[key] for key in reference],
            dict.fromkeys(reference, True),
            " ".join(reference),
            (HALF,),
        ]
    else:
        wrong = list(spoiled(reference))
    if exercise.kind == "shapes":
        loose = (reference if isinstance(reference, dict) else {}).items()
        wrong += [{**reference, key: (*shape, 1)} for key, shape in loose]
        wrong = [value for value in wrong if not _same_shapes(reference, value)]
    for value in [*ODD, *wrong]:
        result = judge_value(exercise, Outcome(value))
        assert not result.passed, f"{value!r} passes in place of {reference!r}"
    assert not judge_value(exercise, Outcome(reference, Failure("time", "Too late."))).passed


def _same_shapes(reference, value):
    """Equal but for lists in place of tuples, or in the order of the names: both are welcome."""
    if isinstance(reference, dict) and isinstance(value, dict):
        return reference.keys() == value.keys() and all(_same_shapes(reference[key], value[key]) for key in reference)
    plain = isinstance(reference, tuple) and isinstance(value, (tuple, list))
    return plain and len(value) == len(reference) and all(type(v) is int and v == r for v, r in zip(value, reference))
