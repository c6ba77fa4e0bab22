"""What a live figure makes of a learner's own function: the result, or one sentence about what went wrong."""

from collections.abc import Callable

import torch
from torch import Tensor

UNWRITTEN = "Nothing to show yet: your function is still empty. Write it, run its cell, then run this one again."
LONGEST = 200  # characters of an error's message: the sentence must fit below a figure


def went_wrong(error: Exception) -> str:
    """Return the sentence about an error that a learner's function raised."""
    message = str(error).strip().split("\n")[0][:LONGEST]
    if isinstance(error, NotImplementedError) and not message:  # torch also raises it, with a message
        return UNWRITTEN
    return f"Your function raised {type(error).__name__}" + (f": {message}" if message else "")


def attempt(function: Callable, *args, shape: tuple[int, ...]) -> tuple[Tensor | None, str]:
    """Return (the function's result, "") if it is a tensor of this shape without NaN, otherwise (None, what
    happened)."""
    try:
        result = function(*args)
    except Exception as error:
        return None, went_wrong(error)
    if not isinstance(result, Tensor):
        return None, f"Your function returned {type(result).__name__}, not a tensor."
    if tuple(result.shape) != shape:
        return None, f"Your function returned shape {tuple(result.shape)}; expected {shape}."
    if result.isnan().any():
        return None, "Your function returned NaN."
    return result.detach().to(torch.get_default_device()), ""


def attempt_numbers(function: Callable, *args, shape: tuple[int, ...]) -> tuple[Tensor | None, str]:
    """Do the same as `attempt`, but also refuse infinite and complex values, because a figure cannot show them."""
    result, problem = attempt(function, *args, shape=shape)
    if result is not None and (result.is_complex() or not result.isfinite().all()):
        return None, "Your result holds complex numbers or infinity: this picture needs ordinary numbers."
    return result, problem
