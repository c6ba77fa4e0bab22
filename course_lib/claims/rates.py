"""The learning rate of an arm: each arm of a comparison is trained at its own best rate, not at one that suits another.

With one rate for all, an experiment compares how well that rate fits each arm.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.training import TrainingDiverged

EXTENSIONS = 2  # how often a grid grows while the best rate is at its edge


@dataclass(frozen=True)
class Best:
    """An arm at its best rate. rate: the peak; results: what training gave, one for each seed, in their order.

    tried: rate -> loss of the first seed, for each rate that was tried.
    """

    rate: float
    results: tuple[Any, ...]
    tried: dict[float, float]

    @property
    def losses(self) -> tuple[float, ...]:
        """The loss of each seed."""
        return tuple(map(_loss, self.results))

    @property
    def mean(self) -> float:
        """The mean loss over the seeds."""
        return statistics.fmean(self.losses)


def at_best_rate(train: Callable[[float, int], Any], rates: Sequence[float], seeds: Sequence[int]) -> Best:
    """Train an arm at its best learning rate: chosen on the first seed, then used for every seed.

    While the best rate is the smallest or the largest of those tried, the next one beyond is tried as well, twice at
    most. A run that diverges counts as infinitely bad.

    Args:
        train: train(rate, seed) -> the loss, or a tuple that begins with it.
        rates: at least three, each larger than the one before by about the same factor.
    Errors: ValueError if there are fewer than three rates or no seed, or if every rate diverges.
    """
    if len(rates) < 3 or list(rates) != sorted(set(rates)):
        raise ValueError(f"rates must be at least three, in ascending order, got {tuple(rates)}")
    if not seeds:
        raise ValueError("seeds is empty: give at least one")

    def run(rate: float, seed: int) -> Any:
        try:
            return train(rate, seed)
        except TrainingDiverged:
            return math.inf

    runs = {rate: run(rate, seeds[0]) for rate in rates}
    factor = rates[1] / rates[0]
    for _ in range(EXTENSIONS):
        best = min(runs, key=lambda rate: _loss(runs[rate]))
        beyond = {min(runs): best / factor, max(runs): best * factor}.get(best)
        if beyond is None or math.isinf(_loss(runs[best])):
            break
        runs[beyond] = run(beyond, seeds[0])
    best = min(runs, key=lambda rate: _loss(runs[rate]))
    if math.isinf(_loss(runs[best])):
        raise ValueError(
            f"training diverged at every rate of {', '.join(f'{rate:g}' for rate in runs)}: add lower ones"
        )
    results = (runs[best], *(run(best, seed) for seed in seeds[1:]))
    return Best(best, results, {rate: _loss(runs[rate]) for rate in sorted(runs)})


def _loss(result: Any) -> float:
    """Return the loss of a training result; infinite if it is not a number."""
    loss = float(result[0] if isinstance(result, tuple) else result)
    return math.inf if math.isnan(loss) else loss
