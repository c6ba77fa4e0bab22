"""Times that can be compared: taken side by side, in turns, the shortest of each."""

import math
import time
from collections.abc import Callable, Sequence


def best_seconds(functions: Sequence[Callable[[], object]], rounds: int = 7) -> list[float]:
    """Return the shortest time of each function in seconds, taken in turns so that all meet the same disturbances."""
    best = [math.inf] * len(functions)
    for turn in range(rounds + 1):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            if turn:  # the first turn warms up
                best[i] = min(best[i], time.perf_counter() - start)
    return best
