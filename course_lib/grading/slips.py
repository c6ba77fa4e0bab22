"""Generic slips: functions that turn a right function or class into one with a common mistake.

The mistakes of every page may use them without an import: `in_float32(layer_norm)(x, gamma, beta, eps)`.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Any]


def mapped(change: Callable[[Tensor], Any], value: Any) -> Any:
    """Return the value with every floating-point tensor in it changed, also inside lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        return change(value) if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(change, part) for part in value)
    return {key: mapped(change, part) for key, part in value.items()} if isinstance(value, dict) else value


def in_float32(function: Function) -> Function:
    """Return the function with every input tensor converted to float32 first, which loses digits."""

    @wraps(function)
    def wrong(*args, **kwargs):
        return function(*mapped(Tensor.float, args), **mapped(Tensor.float, kwargs))

    return wrong


def losing_dtype(function: Function) -> Function:
    """Return the function with a result in float32, whatever the dtype of its input."""

    @wraps(function)
    def wrong(*args, **kwargs):
        return mapped(Tensor.float, function(*args, **kwargs))

    return wrong


def detached(function: Function) -> Function:
    """Return the function with a result that no gradient can flow through."""

    @wraps(function)
    def wrong(*args, **kwargs):
        return mapped(Tensor.detach, function(*args, **kwargs))

    return wrong


def changing_input(function: Function, name: str, change: Callable[[Tensor], Any] = torch.Tensor.zero_) -> Function:
    """Return the function with a side effect: afterwards its input `name` has been changed in place by `change`.

    Errors: ValueError if the function has no parameter of that name.
    """
    signature = inspect.signature(function)
    if name not in signature.parameters:
        raise ValueError(
            f"{name!r} is not a parameter of {function.__name__}: choose from {', '.join(signature.parameters)}"
        )

    @wraps(function)
    def wrong(*args, **kwargs):
        result = function(*args, **kwargs)
        with torch.no_grad():
            change(signature.bind(*args, **kwargs).arguments[name])
        return result

    return wrong


NAMES = {each.__name__: each for each in (in_float32, losing_dtype, detached, changing_input)}
