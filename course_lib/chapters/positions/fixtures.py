"""How answers of chapter 5 are used, where one call is not enough: see `grading/fixtures.py`."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


def measured_with_shuffles(answer: Callable, f: Callable, x: Tensor, n_shuffles: int) -> tuple[Any, int]:
    """What the answer measures, and how many texts it asked `f` about beside x itself.

    Up to twice n_shuffles count as n_shuffles: an answer may ask about x anew each time.
    """
    numbers = 0

    def counted(texts: Tensor) -> Tensor:
        nonlocal numbers
        numbers += texts.numel()
        return f(texts)

    value = answer(counted, x, n_shuffles)
    asked = max(0, numbers // x.numel() - 1)
    return value, n_shuffles if n_shuffles <= asked <= 2 * n_shuffles else asked
