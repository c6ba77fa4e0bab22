"""Comparable times: measure functions in turns, and take the shortest time of each."""

import math
import time
from collections.abc import Callable, Sequence

from course_lib.device import finish


def best_seconds(functions: Sequence[Callable[[], object]], rounds: int = 7) -> list[float]:
    """Return each function's shortest time in seconds; the functions take turns, so disturbances affect them all."""
    best = [math.inf] * len(functions)
    for turn in range(rounds + 1):
        for i, function in enumerate(functions):
            finish()
            start = time.perf_counter()
            function()
            finish()
            if turn:  # the first turn warms up
                best[i] = min(best[i], time.perf_counter() - start)
    return best
