"""How the tests of chapter 5 use an answer if one call is not enough: see `grading/fixtures.py`."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


def measured_with_shuffles(answer: Callable, f: Callable, x: Tensor, n_shuffles: int) -> tuple[Any, int]:
    """Return the answer's result, and the number of texts for which it called `f`, apart from x itself.

    An answer may call `f` with x any number of times, and a random order may leave a text unchanged. So we know only
    two bounds: the texts that were certainly shuffled, and all calls but one. If n_shuffles is between them, it is
    returned. It is also returned if the number of calls is at most twice n_shuffles, because an answer may call `f`
    twice with each shuffled text.
    """
    asked = shuffled = 0

    def counted(texts: Tensor) -> Tensor:
        nonlocal asked, shuffled
        known = (texts[:, None] == x).flatten(2).all(2).any(1) if texts.shape[1:] == x.shape[1:] else texts.new_zeros(1)
        number = texts.numel() // x[0].numel()
        asked += number
        shuffled += number - int(known.sum())
        return f(texts)

    value = answer(counted, x, n_shuffles)
    beside = max(0, asked // len(x) - 1)
    as_told = shuffled / len(x) <= n_shuffles <= beside or n_shuffles <= beside <= 2 * n_shuffles
    return value, n_shuffles if as_told else beside
