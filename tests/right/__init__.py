"""Right answers in other styles, one module per chapter: `RIGHT = {exercise id: [answers]}`, each of which must pass.

A checker that knows one way to write an answer rejects the others. So every code exercise has at least two more here:
loops, einsum, numpy, PyTorch's own function, in-place work on a copy, and float32 on the way: a constant made as
`torch.tensor(2.0)`, a softmax or a norm taken in float32 and brought back to the dtype of x, as models in half
precision do it. What is right to 1e-6 is right.
"""

from collections.abc import Callable
from functools import wraps


def by_way_of(function: Callable) -> Callable:
    """An answer that calls a function of the library: as it stands there that is nobody's answer."""

    @wraps(function)
    def answer(*args, **kwargs):
        return function(*args, **kwargs)

    return answer
