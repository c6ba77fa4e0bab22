"""Layers: PyTorch's modules with errors that name the argument of a failed call."""

import inspect
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin

from jaxtyping import AbstractArray
from torch import Tensor, nn

# What PyTorch and Python raise deep inside a call that does not fit. More exact errors stay as they are, such as
# torch.OutOfMemoryError.
RAW = (RuntimeError, NotImplementedError, AttributeError, IndexError, TypeError, ValueError, KeyError)
NUMBERS = {int: Integral, float: Real}  # from any library; True is not a number
WORDS = {int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}


class Layer(nn.Module):
    """A `torch.nn.Module` whose errors name the arguments. Calls that succeed are no slower.

    If `forward` fails, PyTorch's message is about inner matrices. We replace it by a ValueError or TypeError that names
    the argument, its value and what its annotation allows.
    """

    def __call__(self, *args, **kwargs):
        try:
            return super().__call__(*args, **kwargs)
        except RAW as error:
            _require_fitting_call(self, args, kwargs, error)
            raise


def _require_fitting_call(layer: nn.Module, args: tuple, kwargs: dict, error: Exception) -> None:
    """Raise an error that names the arguments of a failed call; do nothing if the error names its cause already."""
    frame = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
    checked = frame.f_code.co_name.lstrip("_").startswith("require_")
    elsewhere = frame.f_globals["__name__"].partition(".")[0] not in ("course_lib", "torch")
    if type(error) not in RAW or checked or elsewhere:
        return
    given = _by_name(layer.forward, args, kwargs)
    hints = {name: hint for name, hint in layer.forward.__annotations__.items() if not isinstance(hint, str)}
    for name, value in given.items():
        if name in hints and not _fits(value, hints[name]):
            kind = ValueError if isinstance(value, Tensor) and _is_tensor(hints[name]) else TypeError
            raise kind(f"{name} must be {_in_words(hints[name])}, got {_shown(value)}") from error
    _require_equal_sizes(given, hints)
    if given and not isinstance(error, ValueError):
        said = "; ".join(f"{name}: {_shown(value)}" for name, value in given.items() if value is not None)
        weight = next((f", with weights like {_shown(weight)}" for weight in layer.parameters()), "")
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{type(layer).__name__}{weight} cannot compute with {said} ({why})") from error


def _by_name(function: Callable, args: tuple, kwargs: dict) -> dict[str, Any]:
    """Return the arguments of a call by name; an empty dictionary if they do not match, which Python reports itself."""
    signature = inspect.signature(function)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return {}
    others = [name for name, parameter in signature.parameters.items() if parameter.kind is parameter.VAR_KEYWORD]
    return given | {name: value for other in others for name, value in given.get(other, {}).items()}


def _require_equal_sizes(given: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Raise ValueError if two tensors differ in a size that has one name in the signature, such as B or T."""
    sizes: dict[str, tuple[str, int]] = {}
    for name, value in given.items():
        for dim, size in _named_sizes(value, hints.get(name)):
            other, before = sizes.setdefault(dim, (name, size))
            if before != size:
                raise ValueError(f"{name} has {dim}={size}, but {other} has {dim}={before}: they must be equal")


def _named_sizes(value: Any, hint: Any) -> Iterable[tuple[str, int]]:
    if not isinstance(value, Tensor):
        return []
    fitting = (part for part in _parts(hint) if _is_array(part) and isinstance(value, part))
    dims: list[str] = next((part.dim_str.split() for part in fitting), [])
    pairs = zip(reversed(dims), reversed(value.shape))
    return [(dim, size) for dim, size in pairs if dim.isidentifier() and dim != "_"]


def _is_array(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


def _is_tensor(hint: Any) -> bool:
    return any(part is Tensor or _is_array(part) for part in _parts(hint))


def _parts(hint: Any) -> tuple:
    """Return the alternatives in a hint: a value must fit one of them."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value fits one of a hint's alternatives. Of a collection, only its own type is checked."""
    for part in _parts(hint):
        if part is Any or (part in NUMBERS and isinstance(value, NUMBERS[part]) and not isinstance(value, bool)):
            return True
        kind = get_origin(part) or part
        if part not in NUMBERS and (not isinstance(kind, type) or isinstance(value, kind)):
            return True
    return False


def _in_words(hint: Any) -> str:
    """Describe what a hint allows: "a whole number", "a tensor of shape (B, T, d_model), Float"."""
    said = []
    for part in _parts(hint):
        if _is_array(part):
            dims = ", ".join("…" if dim.startswith("*") else dim for dim in part.dim_str.split())
            said.append(f"a tensor of shape ({dims.replace('...', '…')}), {part.__name__.partition('[')[0]}")
        else:
            kind = get_origin(part) or part
            said.append(WORDS.get(part, f"a {getattr(kind, '__name__', kind)}"))
    return " or ".join(said)


def _shown(value: Any) -> str:
    """Describe a value: a tensor by its shape, dtype and device, anything else by its repr and its type."""
    if isinstance(value, Tensor):
        where = "" if value.device.type == "cpu" else f" on {value.device}"
        return f"a tensor of shape {tuple(value.shape)}, {value.dtype}{where}"
    return f"a {type(value).__name__}" if isinstance(value, nn.Module) else f"{value!r:.80} ({type(value).__name__})"
