"""Checks that every part shares: a wrong size is named where it enters, not ten calls later."""

from numbers import Integral, Real

from torch import Tensor


def at_least_one(**sizes: object) -> None:
    """ValueError unless every named size is a whole number of at least 1."""
    for name, value in sizes.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def one_of(allowed: tuple, **choices: object) -> None:
    """ValueError unless every named choice is one of the allowed values."""
    for name, value in choices.items():
        if value not in allowed:
            raise ValueError(f"{name}={value!r} is not known: choose one of {', '.join(map(repr, allowed))}")


def dropout_rate(dropout: object) -> None:
    """ValueError unless dropout is a probability below 1: at 1 nothing would be left to learn from."""
    if not isinstance(dropout, Real) or isinstance(dropout, bool) or not 0 <= dropout < 1:
        raise ValueError(f"dropout must be a number in [0, 1), got {dropout!r}")


def divisible_heads(d_model: int, n_heads: int) -> None:
    """ValueError unless d_model features can be shared evenly among n_heads heads."""
    at_least_one(d_model=d_model, n_heads=n_heads)
    if d_model % n_heads:
        fitting = ", ".join(str(h) for h in range(1, d_model + 1) if d_model % h == 0)
        raise ValueError(
            f"d_model={d_model} cannot be shared among n_heads={n_heads} heads: each takes d_model / n_heads features. "
            f"Choose n_heads from {fitting}"
        )


def last_size(x: Tensor, d_model: int) -> None:
    """ValueError unless the last dimension of x holds d_model features."""
    if x.ndim == 0 or x.shape[-1] != d_model:
        raise ValueError(f"x has shape {tuple(x.shape)}, but its last dimension must be d_model={d_model}")
