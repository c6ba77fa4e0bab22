"""Learning rates: train each arm of a comparison at its own best rate.

With a single rate for all arms, an experiment would measure how well that rate suits each arm.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.training import TrainingDiverged

EXTENSIONS = 2  # how often we extend the grid of rates if the best is at its edge


@dataclass(frozen=True)
class Best:
    """An arm at its best rate.

    rate: the peak. results: the results of training, one for each seed. tried: rate -> loss of the first seed.
    """

    rate: float
    results: tuple[Any, ...]
    tried: dict[float, float]

    @property
    def losses(self) -> tuple[float, ...]:
        """Return the loss of each seed."""
        return tuple(map(_loss, self.results))

    @property
    def mean(self) -> float:
        """Return the mean loss over the seeds."""
        return statistics.fmean(self.losses)


def at_best_rate(train: Callable[[float, int], Any], rates: Sequence[float], seeds: Sequence[int]) -> Best:
    """Find an arm's best learning rate with the first seed, then train with this rate for every seed.

    If the best rate is the smallest or the largest so far, the next rate beyond it is tried as well, at most twice. A
    run that diverges has an infinite loss.

    Args:
        train: train(rate, seed) -> the loss, or a tuple that begins with it.
        rates: at least three, in ascending order, spaced by about the same factor.
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
            f"training diverged at every rate of {', '.join(f'{rate:g}' for rate in runs)}: add lower rates"
        )
    results = (runs[best], *(run(best, seed) for seed in seeds[1:]))
    return Best(best, results, {rate: _loss(runs[rate]) for rate in sorted(runs)})


def _loss(result: Any) -> float:
    """Return the loss of a training result; infinity for NaN."""
    loss = float(result[0] if isinstance(result, tuple) else result)
    return math.inf if math.isnan(loss) else loss
