"""How answers of chapter 5 are used, where one call is not enough: see `grading/fixtures.py`."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


def measured_with_shuffles(answer: Callable, f: Callable, x: Tensor, n_shuffles: int) -> tuple[Any, int]:
    """What the answer measures, and how many texts it asked `f` about beside x itself.

    An answer may ask about x as often as it likes, and a drawn order may leave a text as it is: between the texts that
    were certainly shuffled and all beside one x, n_shuffles is what was asked. So it is for up to twice as many, which
    is asking about each shuffled text again.
    """
    asked = shuffled = 0

    def counted(texts: Tensor) -> Tensor:
        nonlocal asked, shuffled
        known = (texts[:, None] == x).flatten(2).all(2).any(1) if texts.shape[1:] == x.shape[1:] else texts.new_zeros(1)
        texts_now = texts.numel() // x[0].numel()
        asked += texts_now
        shuffled += texts_now - int(known.sum())
        return f(texts)

    value = answer(counted, x, n_shuffles)
    asked, shuffled = max(0, asked // len(x) - 1), shuffled / len(x)
    as_told = shuffled <= n_shuffles <= asked or n_shuffles <= asked <= 2 * n_shuffles
    return value, n_shuffles if as_told else asked
