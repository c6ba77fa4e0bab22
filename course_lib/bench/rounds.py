"""Times that may be compared: taken in turns, round by round, so that every contestant meets the same disturbances."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from tqdm.auto import tqdm


class Spread(NamedTuple):
    """A median and its quartiles."""

    median: float
    low: float
    high: float


def spread(numbers: Sequence[float]) -> Spread:
    """Return median and quartiles of some numbers. Errors: ValueError if there is none."""
    if not numbers:
        raise ValueError("numbers must hold at least one: nothing was measured")
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
        """Return how many times as fast `name` is as `other`: the ratio within each round, then its spread. What slows
        a whole round down cancels out."""
        return spread([theirs / ours for ours, theirs in zip(self.seconds[name], self.seconds[other], strict=True)])


def in_turns(
    contestants: Mapping[str, Callable[[], object]], rounds: int = 7, what: str = "measuring", warm: bool = False
) -> Contest:
    """Time each contestant once per round, always in the same order.

    One round before them warms up and is not counted. The garbage collector runs between two contestants and not
    within one. On a GPU the clock waits until the work is done.

    Args:
        contestants: name -> what to time. what: stands before the progress bar.
        warm: call each once, untimed, before it is timed: a large model's memory, which the system may have taken back
            while the others ran, is there again. Otherwise who comes first would pay for all.
    Errors: ValueError if rounds < 1 or there is no contestant.
    """
    if rounds < 1 or not contestants:
        raise ValueError(f"need a contestant and rounds ≥ 1, got {len(contestants)} and rounds={rounds}")
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
        _finish()
        began = time.perf_counter()
        function()
        _finish()
        return time.perf_counter() - began
    finally:
        gc.enable()


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
