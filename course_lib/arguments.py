"""Arguments: a signature declares what each argument may be, and errors repeat it when a call does not fit.

`require_arguments` checks a call before it runs; `require_fitting_call` explains a layer's call that failed.
"""

import inspect
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

from jaxtyping import AbstractArray
from torch import Tensor, nn

from course_lib import checks

NUMBERS = {int: Integral, float: Real}  # from any library; True is not a number
WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a string", type(None): "None"}
MADE = {"TransformerConfig": ", made by TransformerConfig(…), preset(name) or TransformerConfig.from_dict(values)"}
RAW = (  # errors from a call deep inside
    RuntimeError, NotImplementedError, AttributeError, IndexError, TypeError, ValueError, KeyError,
)  # fmt: skip


def require_arguments(function: Callable, given: Mapping[str, Any], numbers: bool = False) -> None:
    """Raise TypeError or ValueError unless every argument fits the function's signature.

    given: the arguments by name, such as `locals()` in the function's first line. numbers: also check single
        numbers; most of them have a range and a separate check that names it.
    """
    sizes: dict[str, tuple[str, int]] = {}
    for name, hint in _hints(getattr(function, "__func__", function)).items():
        value = given.get(name)
        if isinstance(value, Tensor) and value.is_meta and _is_tensor(hint):
            raise ValueError(f"{name} is on the meta device, where a tensor has a shape but no numbers: give it some")
        if name in given and _is_tensor(hint) and not _allows_more(hint) and value is not None:
            checks.require_tensors(**{name: value})
        if name in given and (numbers or not _is_number(hint)) and not fits(value, hint):
            kind = ValueError if isinstance(value, Tensor) and _is_tensor(hint) else TypeError
            raise kind(f"{name} must be {in_words(hint)}, got {shown(value)}")
        for dim, size in _named_sizes(value, hint):
            other, before = sizes.setdefault(dim, (name, size))
            if before != size:
                raise ValueError(f"{name} has {dim}={size}, but {other} has {dim}={before}: they must be equal")


def named(function: Callable, *args, **kwargs) -> dict[str, Any]:
    """Return the arguments of a call by name; an empty dictionary if they do not match, which Python reports itself."""
    signature = inspect.signature(function)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return {}
    others = [name for name, parameter in signature.parameters.items() if parameter.kind is parameter.VAR_KEYWORD]
    return given | {name: value for other in others for name, value in given.get(other, {}).items()}


def require_fitting_call(layer: nn.Module, args: tuple, kwargs: dict, error: Exception) -> None:
    """Raise an error that names the arguments of a failed call; do nothing if the error came from elsewhere."""
    where = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
    # A check has reported it already, the error is more exact than ours (out of memory, or training has diverged), or
    # it comes from code that is neither ours nor PyTorch's.
    if type(error) not in RAW or where == checks.__name__ or where.partition(".")[0] not in ("course_lib", "torch"):
        return
    if given := named(layer.forward, *args, **kwargs):
        require_arguments(layer.forward, given, numbers=True)
    if given and not isinstance(error, ValueError):
        _refuse(layer, given, error)


def _refuse(layer: nn.Module, given: Mapping[str, Any], error: Exception) -> NoReturn:
    said = "; ".join(f"{name}: {shown(value)}" for name, value in given.items() if value is not None)
    weight = next((f", with weights like {shown(weight)}" for weight in layer.parameters()), "")
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise ValueError(f"{type(layer).__name__}{weight} cannot compute with {said} ({why})") from error


@cache
def _hints(function: Callable) -> dict[str, Any]:
    """Return the type hint of each argument that has one."""
    hints = getattr(function, "__annotations__", {})
    return {name: hint for name, hint in hints.items() if name != "return" and not isinstance(hint, str)}


def _is_array(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


def _is_tensor(hint: Any) -> bool:
    return any(part is Tensor or _is_array(part) for part in _parts(hint))


def _parts(hint: Any) -> tuple:
    """Return the alternatives in a hint: a value must fit one of them."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_number(hint: Any) -> bool:
    return all(part in NUMBERS or part is type(None) for part in _parts(hint))


def _allows_more(hint: Any) -> bool:
    """Return whether the hint allows anything other than a tensor or None."""
    return not all(_is_tensor(part) or part is type(None) for part in _parts(hint))


def _named_sizes(value: Any, hint: Any) -> Iterable[tuple[str, int]]:
    """Return the sizes of a tensor that have names in the signature, such as B and T."""
    if not isinstance(value, Tensor):
        return []
    dims: list[str] = next(
        (part.dim_str.split() for part in _parts(hint) if _is_array(part) and isinstance(value, part)), []
    )
    return [
        (dim, size) for dim, size in zip(reversed(dims), reversed(value.shape)) if dim.isidentifier() and dim != "_"
    ]


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value fits a hint. Also check a collection's entries, unless iterating would consume them."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin in (Callable, Callable.__class__) or (origin is not None and origin.__name__ == "Callable"):
        return callable(value)
    if origin is not None:
        return _fits_collection(value, origin, parts)
    if hint in NUMBERS:
        return isinstance(value, NUMBERS[hint]) and not isinstance(value, bool) and not _beyond(value, hint)
    return isinstance(value, hint)


def _beyond(value: Any, hint: type) -> bool:
    """Return whether a number is too large for a tensor of this type."""
    return isinstance(value, int) and abs(value) >= (1 << 63 if hint is int else 10**300)


def _fits_collection(value: Any, origin: Any, parts: tuple) -> bool:
    if not isinstance(value, origin) or isinstance(value, str | bytes | Tensor):
        return False
    if origin is tuple and parts[-1] is not ...:
        return len(value) == len(parts) and all(map(fits, value, parts))
    if isinstance(value, Iterator) or not isinstance(value, Iterable):
        return True
    if isinstance(value, Mapping) and not all(fits(entry, parts[-1]) for entry in value.values()):
        return False
    return all(fits(entry, parts[0]) for entry in value)


def in_words(hint: Any) -> str:
    """Describe what a hint allows: "a whole number", "a float tensor of shape (B, T, d_model)", "one of …"."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(part) for part in parts)
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        dims = ", ".join("…" if dim.startswith("*") else dim for dim in hint.dim_str.split())
        return f"a tensor of shape ({dims.replace('...', '…')}), {hint.__name__.partition('[')[0]}"
    if origin is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if origin is not None:
        entries = [in_words(part) for part in parts if part is not ... and isinstance(part, type)]
        return f"a {origin.__name__}" + (f" of {', '.join(entries)}" if entries else "")
    name = getattr(hint, "__name__", str(hint))
    return WORDS.get(hint, f"a {name}") + MADE.get(name, "")


def shown(value: Any) -> str:
    """Describe a value: a tensor by its shape, dtype and device, anything else by its repr and its type."""
    if isinstance(value, Tensor):
        where = "" if value.device.type == "cpu" else f" on {value.device}"
        return f"a tensor of shape {tuple(value.shape)}, {value.dtype}{where}"
    if isinstance(value, nn.Module | Iterator):
        return f"a {type(value).__name__}"
    return f"{value!r:.80} ({type(value).__name__})"
