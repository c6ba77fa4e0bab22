"""Find the mistake of the page that an answer makes: one with the same result in the cases where the answer is wrong.

The search tries the following, in this order:

1. a mistake with the same result in every case;
2. an answer that returns an argument or a constant, which gets a sentence and no name;
3. two mistakes at once;
4. a mistake with the same result in all ordinary cases, whatever happens in the edge cases;
5. a mistake with the same result in most of these cases, which is reported as a similarity.

If a second mistake fits equally well, the diagnosis names neither.
"""

import functools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from course_lib.grading.judge.call import Outcome, call
from course_lib.grading.judge.compare import as_number, compare, counted_as, largest, same
from course_lib.grading.judge.limits import limited
from course_lib.grading.judge.show import show
from course_lib.grading.judge.trials import Trial, mistaken, size_of, summed_up
from course_lib.grading.pairs import in_company, pairs_of
from course_lib.grading.result import ALSO, PERHAPS

ENDED = ("time", "exit")  # failures that none of the known mistakes produce
SECONDS = 3.0  # of computing for the search after the single mistakes
SMALL = 1000  # elements
BESIDES = "Something else is wrong as well."
COARSE = 3e-2, 1e-2  # rtol and atol of the first comparison, wider than any tolerance
LARGE = 100.0  # ordinary inputs are smaller
MOST = 2 / 3  # the least fraction of the telling cases for a similarity
SAME, CAREFUL, OTHER = "same", "careful", "other"  # the answer compared with a mistake; careful: right in this case


@dataclass(frozen=True)
class Diagnosis:
    """A mistake that was found.

    Fields:
        name: for the teacher's table; "" for a mistake without a name.
        sentences: for the learner.
        proof: the number of the smallest case in which the answer is wrong in the same way as the mistake.
    """

    name: str
    sentences: tuple[str, ...]
    proof: int


def diagnosis(
    exercise: Any, trials: Sequence[Trial], outcomes: Sequence[Outcome], problems: Sequence[str | None]
) -> Diagnosis | None:
    """Return the mistake, or the two, that the answer makes; None if no mistake has the same results.

    Args:
        exercise: of kind Code.
        trials, outcomes: its cases, and the answer's result in each.
        problems: the problem with each outcome, or None; at least one outcome is wrong.
    """
    if any(outcome.forbidden or (outcome.failure and outcome.failure.kind in ENDED) for outcome in outcomes):
        return None
    return _Search(exercise, trials, outcomes, problems).found()


class _Search:
    def __init__(self, exercise, trials, outcomes, problems):
        self.exercise = exercise
        trials = trials[: len(outcomes)]  # an untrusted worker may omit some
        outcomes = [replace(each, value=counted_as(t.expected, each.value)) for t, each in zip(trials, outcomes)]
        self.trials, self.outcomes, self.problems = trials, outcomes, problems
        wrong = [i for i, problem in enumerate(problems) if problem]
        self.core = [i for i in range(len(trials)) if _is_ordinary(trials[i])]
        self.first = min(wrong, key=lambda i: (i not in self.core, size_of(trials[i].case.args)))
        self.order = [self.first, *(i for i in range(len(trials)) if i != self.first)]  # the cheapest telling case

    def found(self) -> Diagnosis | None:
        for mistake in self.exercise.misconceptions:
            for wrong in mistake.variants:
                if self._does_the_same(wrong, mistaken):
                    return self._told(mistake.name, (mistake.sentence,), wrong)
        outcome = self.outcomes[self.first]
        if not outcome.failure and not _is_alike_in_form(self.trials[self.first].expected, outcome.value):
            return None
        if said := self._without_work():
            return Diagnosis("", (said,), self.first)
        likely: list[Diagnosis] = []

        def search() -> None:
            end = time.process_time() + SECONDS
            warnings.simplefilter("ignore")  # torch's warnings about a mistake are not for the learner
            for tried in (self._pairs, self._in_ordinary_cases, self._likenesses):
                likely.extend(tried(end))
                if likely:
                    return

        with warnings.catch_warnings():
            # Two mistakes together may never end.
            limited(search, 4 * SECONDS, lambda: "comparing it with known mistakes")
        return likely[0] if likely else None

    # --- comparing an answer with a mistake ---

    def _does_the_same(self, wrong: Callable, what: Callable[[Callable, Trial], Outcome], only: Any = None) -> bool:
        """Return whether a mistake has the same result as the answer in all cases, or in the cases of `only`."""
        cases = (i for i in self.order if only is None or i in only)
        return all(self._beside(what(wrong, self.trials[i]), i) == SAME for i in cases)

    def _beside(self, outcome: Outcome, i: int) -> str:
        if self.exercise.alike(outcome, self.outcomes[i]):
            return SAME
        return OTHER if self.problems[i] else CAREFUL

    def _is_far_off(self, outcome: Outcome) -> bool:
        """Return whether a result clearly differs from the answer's in the first case. With hundreds of pairs, one
        number decides."""
        one, other = outcome.value, self.outcomes[self.first].value
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            return isinstance(one, torch.Tensor) != isinstance(other, torch.Tensor)
        if one.shape != other.shape or one.is_meta or other.is_meta:  # meta tensors have no numbers
            return True
        if not one.is_floating_point() or not one.numel():
            return False
        (a, b), (rtol, atol) = (each.flatten()[0].item() for each in (one, other)), COARSE
        room = max(atol, self.exercise.atol or 0.0) + max(rtol, self.exercise.rtol or 0.0) * self.largest
        return abs(a - b) > room

    @functools.cached_property
    def largest(self) -> float:
        value = self.outcomes[self.first].value
        return max((largest(tensor.double()) for tensor in _tensors(value)), default=0.0)

    # --- the steps of the search ---

    def _without_work(self) -> str:
        """Return the sentence about an answer that returns an argument or a constant in every case; "" for any other.

        Two mistakes together can have this result as well; the sentence of one of them would then be wrong.
        """
        values = [outcome.value for outcome in self.outcomes]
        if self.exercise.probe or len(values) < 2 or any(outcome.failure for outcome in self.outcomes):
            return ""
        for place, name in enumerate(self.trials[0].call.names):
            args = [trial.case.args[place] if place < len(trial.case.args) else ... for trial in self.trials]
            if all(_is_just(arg, value) for arg, value in zip(args, values)):
                return f"In every case your function returns `{name}` unchanged."
        first, wanted = values[0], [trial.expected for trial in self.trials]
        varies = any(not same(wanted[0], each) for each in wanted[1:])
        if varies and _is_scalar(first, wanted[0]) and all(_is_just(first, value) for value in values[1:]):
            return f"In every case your function returns {show(first)}, whatever the input."
        return ""

    def _pairs(self, end: float) -> Iterator[Diagnosis]:
        """Yield the pair with the same results in every case; if there are several pairs, the mistake that they
        share."""
        alike: list[tuple[Any, Any, Callable]] = []
        self.ordinary_pairs: list[tuple[str, tuple[str, ...], Callable]] = []
        for one, other, wrong in pairs_of(self.exercise):
            if time.process_time() > end:
                break
            if self._is_far_off(_done(wrong, self.trials[self.first])):
                continue
            if not self._does_the_same(wrong, _done, self.core if self.first in self.core else None):
                continue
            if self._does_the_same(wrong, _done):
                alike.append((one, other, wrong))
            else:
                self.ordinary_pairs.append((*_both(one, other), wrong))
        shared = [mistake for mistake in alike[0][:2] if all(mistake in pair for pair in alike)] if alike else []
        if len(shared) == 2:
            yield self._told(*_both(*shared), alike[0][2])
        elif shared:
            yield self._told(shared[0].name, (in_company(shared[0].sentence), BESIDES), alike[0][2])

    def _in_ordinary_cases(self, end: float) -> Iterator[Diagnosis]:
        """Yield the mistake with the same results in all ordinary cases, a single one before a pair. Of several, choose
        the one that also agrees in the most edge cases."""
        if self.first not in self.core:
            return
        singles = [
            (mistake.name, (mistake.sentence,), wrong)
            for mistake, wrong in self._singles(end)
            if self._does_the_same(wrong, mistaken, self.core)
        ]
        alike: dict[str, tuple[int, tuple[str, ...], Callable]] = {}
        for name, sentences, wrong in singles or self.ordinary_pairs:
            count = sum(self._beside(_done(wrong, trial), i) == SAME for i, trial in enumerate(self.trials))
            if count > alike.get(name, (0,))[0]:
                alike[name] = count, sentences, wrong
        best = sorted(alike.items(), key=lambda each: -each[1][0])
        if not best or (len(best) > 1 and best[0][1][0] == best[1][1][0]):
            return
        name, (_, sentences, wrong) = best[0]
        rest = (i for i, problem in enumerate(self.problems) if problem and self._fails_further(wrong, i))
        besides = [f"{BESIDES} A case that shows it: {self.trials[i].stage}" for i in rest][:1]
        if besides:
            sentences = tuple(map(in_company, sentences))
        yield self._told(name, (*sentences, *besides), wrong)

    def _fails_further(self, wrong: Callable, i: int) -> bool:
        """Return whether a case has an error that the mistake does not explain, in another part of the result or of
        another kind."""
        outcome = _done(wrong, self.trials[i])
        if self._beside(outcome, i) == SAME:
            return False
        expected = self.trials[i].expected
        return not _faults(expected, self.outcomes[i]) <= _faults(expected, outcome)

    def _likenesses(self, end: float) -> Iterator[Diagnosis]:
        found: dict[str, tuple[float, Any, Callable, int, int]] = {}
        if sum(self.problems[i] is not None for i in self.core) < 2:
            return
        for mistake, wrong in self._singles(end):
            beside = {i: self._beside(mistaken(wrong, self.trials[i]), i) for i in self.core}
            telling = [i for i, how in beside.items() if self.problems[i] or how != SAME]
            agreed = [i for i in telling if beside[i] == SAME and _says_much(self.outcomes[i].value)]
            share = len(agreed) / max(1, len(telling))
            if len(agreed) > 1 and share >= MOST and share > found.get(mistake.name, (0.0,))[0]:
                found[mistake.name] = share, mistake, wrong, len(agreed), len(telling)
        best = sorted(found.values(), key=lambda each: -each[0])
        if best and (len(best) == 1 or best[0][0] > best[1][0]):
            _, mistake, wrong, count, of = best[0]
            likeness = (
                f"In {count} of {of} cases that could show this mistake, your answer has the result of the mistake:"
            )
            yield self._told(f"{mistake.name}{PERHAPS}", (f"{likeness} {in_company(mistake.sentence)}",), wrong)

    def _singles(self, end: float) -> Iterator[tuple[Any, Callable]]:
        for mistake in self.exercise.misconceptions:
            for wrong in mistake.variants:
                if time.process_time() > end:
                    return
                yield mistake, wrong

    def _told(self, name: str, sentences: tuple[str, ...], wrong: Callable) -> Diagnosis:
        same = (
            i
            for i, problem in enumerate(self.problems)
            if problem and self._beside(_done(wrong, self.trials[i]), i) == SAME
        )
        proof = min(same, key=lambda i: (i not in self.core, size_of(self.trials[i].case.args)))
        return Diagnosis(name, sentences, proof)


def _both(one: Any, other: Any) -> tuple[str, tuple[str, ...]]:
    """Return the name of two mistakes, and the sentences about them."""
    said = (f"{number}. {in_company(mistake.sentence)}" for number, mistake in enumerate((one, other), 1))
    return f"{one.name}{ALSO}{other.name}", ("Two mistakes at once.", *said)


def _is_scalar(value: Any, wanted: Any) -> bool:
    """Return whether the value is a number or text, as the exercise asks."""
    numbers = as_number(value) is not None and as_number(wanted) is not None
    return (numbers and not isinstance(value, torch.Tensor)) or (
        isinstance(value, (bool, str)) and type(value) is type(wanted)
    )


def _is_just(wanted: Any, value: Any) -> bool:
    """Return whether two values are the same, to the last bit."""
    return type(wanted) is type(value) and same(wanted, value, 0.0, 0.0)


def _faults(expected: Any, outcome: Outcome) -> set[tuple]:
    """Return the wrong parts of a result with the kind of error: dtype, shape, NaN, or other values."""
    if outcome.failure:
        return {("failure", outcome.failure.kind)}
    return {("changed", name) for name in outcome.changed} | set(_parts_at_fault(expected, outcome.value, ()))


def _parts_at_fault(expected: Any, got: Any, place: tuple) -> Iterator[tuple]:
    if isinstance(expected, (tuple, list)) and isinstance(got, (tuple, list)) and len(expected) == len(got):
        for number, parts in enumerate(zip(expected, got)):
            yield from _parts_at_fault(*parts, (*place, number))
    elif isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        for key in expected:
            yield from _parts_at_fault(expected[key], got[key], (*place, key))
    elif compare(expected, got):
        if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
            yield (*place, "type" if type(expected) is not type(got) else "values")
        elif expected.dtype != got.dtype or expected.shape != got.shape:
            yield (*place, "dtype" if expected.dtype != got.dtype else "shape")
        else:
            yield (*place, "NaN" if bool(got.isnan().any()) else "values")


def _done(wrong: Callable, trial: Trial) -> Outcome:
    """Return the outcome of a mistake, or of a pair, in one case.

    The outcome is cached, because a class makes the same mistakes repeatedly. A pair's outcome is cached only if it is
    small, because there are hundreds.
    """
    if wrong in trial.mistakes:
        return trial.mistakes[wrong]
    outcome = summed_up(trial, call(wrong, trial.call))
    if size_of(outcome.value) <= SMALL:
        trial.mistakes[wrong] = outcome
    return outcome


def _is_ordinary(trial: Trial) -> bool:
    """Return whether a case is ordinary: not empty, in float32 or whole numbers, and too small to overflow."""
    sound = not any(bool(tensor.isnan().any()) for tensor in _tensors(trial.expected))
    return sound and all(map(_is_usual, _tensors(trial.case.args)))


def _is_usual(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point():
        return tensor.numel() > 0
    if tensor.dtype != torch.float32 or tensor.numel() == 0 or tensor.device.type == "meta":
        return False
    return bool(tensor.isfinite().all()) and tensor.abs().max().item() < LARGE


def _is_alike_in_form(expected: Any, got: Any) -> bool:
    """Return whether a value has the expected kind, or is a part of it, or contains it. Only then is a longer search
    useful."""
    for one, other in ((expected, got), (got, expected)):
        if isinstance(one, (tuple, list)) and not isinstance(other, (tuple, list)):
            return any(_is_alike_in_form(part, other) for part in one)
    kinds = (torch.Tensor, (tuple, list), dict, (int, float), str)
    return any(isinstance(expected, kind) and isinstance(got, kind) for kind in kinds)


def _says_much(value: Any) -> bool:
    """Return whether two answers are unlikely to agree in this value by chance: numbers with a fraction, not True or
    3."""
    if isinstance(value, float):
        return not value.is_integer()
    return any(tensor.is_floating_point() and len(tensor.unique()) > 1 for tensor in _tensors(value))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)
