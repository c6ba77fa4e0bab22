"""What a live figure makes of a learner's own function: its result, or one sentence on what happened instead."""

from collections.abc import Callable

from torch import Tensor

UNWRITTEN = "Nothing to show yet: your function is still empty. Write it, run its cell, then run this one again."
LONGEST = 200  # characters of an error's message: the sentence stands below a figure


def went_wrong(error: Exception) -> str:
    """What to say of an error that somebody's function raised."""
    message = str(error).strip().split("\n")[0][:LONGEST]
    if isinstance(error, NotImplementedError) and not message:  # torch raises it, too, and says of what
        return UNWRITTEN
    return f"Your function raised {type(error).__name__}" + (f": {message}" if message else "")


def attempt(function: Callable, *args, shape: tuple[int, ...]) -> tuple[Tensor | None, str]:
    """(what the function returns, "") if it is a tensor of this shape without NaN; otherwise (None, what happened)."""
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
    return result.detach().cpu(), ""


def attempt_numbers(function: Callable, *args, shape: tuple[int, ...]) -> tuple[Tensor | None, str]:
    """As `attempt`, but finite and real as well: what can be drawn."""
    result, problem = attempt(function, *args, shape=shape)
    if result is not None and (result.is_complex() or not result.isfinite().all()):
        return None, "Your result holds complex numbers or infinity: this picture needs ordinary numbers."
    return result, problem
