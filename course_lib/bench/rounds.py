"""Comparable times: contestants take turns, round by round, so that disturbances affect them all equally."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tqdm.auto import tqdm

from course_lib.device import finish


class Spread(NamedTuple):
    """A median and its quartiles."""

    median: float
    low: float
    high: float


def spread(numbers: Sequence[float]) -> Spread:
    """Return the median and quartiles of numbers. Errors: ValueError if there are none."""
    if not numbers:
        raise ValueError("numbers is empty: give at least one measured number")
    if len(numbers) == 1:
        return Spread(numbers[0], numbers[0], numbers[0])
    low, median, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return Spread(median, low, high)


@dataclass(frozen=True)
class Contest:
    """The seconds of each contestant, round by round: seconds[name][round]."""

    seconds: Mapping[str, Sequence[float]]

    def of(self, name: str) -> float:
        """Return the median time in seconds."""
        return statistics.median(self.seconds[name])

    def times_as_fast(self, name: str, other: str) -> Spread:
        """Return the speed of `name` divided by that of `other`: the spread of the ratios within each round.

        A disturbance of a full round cancels out."""
        return spread([theirs / ours for ours, theirs in zip(self.seconds[name], self.seconds[other], strict=True)])


def in_turns(
    contestants: Mapping[str, Callable[[], object]], rounds: int = 7, what: str = "measuring", warm: bool = False
) -> Contest:
    """Time each contestant once per round, always in the same order.

    An additional first round is for warming up and does not count. The garbage collector runs only between contestants.
    On a GPU the clock waits until the work is done.

    Args:
        contestants: name -> the function to time. what: the label of the progress bar.
        warm: call each contestant once, untimed, before its timed call. The system may have reclaimed a large model's
            memory while the others ran, and this call brings it back.
    Errors: ValueError if rounds < 1 or there is no contestant.
    """
    if rounds < 1 or not contestants:
        raise ValueError(f"give at least one contestant and rounds ≥ 1, got {len(contestants)} and rounds={rounds}")
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    with tqdm(total=(rounds + 1) * len(contestants), desc=what, unit="run", leave=False) as bar:
        for turn in range(rounds + 1):
            for name, contestant in contestants.items():
                bar.set_postfix_str(name, refresh=True)
                if warm and turn:
                    contestant()
                taken = _seconds(contestant)
                if turn:
                    seconds[name].append(taken)
                bar.update()
    return Contest(seconds)


def _seconds(function: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    try:
        finish()
        began = time.perf_counter()
        function()
        finish()
        return time.perf_counter() - began
    finally:
        gc.enable()
