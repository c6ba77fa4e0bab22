"""The conversion of a learner's results into plain data, and the comparison of inputs before and after a call.

An answer may return anything, including objects that lie about their class or their equality. Every judged value first
goes through `plain`, which trusts only `type()` and the base classes' own methods.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.grading.exercise import Given

MOST_ENTRIES = 10_000  # of a list, tuple, dictionary or set
MOST_BITS = 1000  # of an integer; a larger one does not fit a float
MOST_ELEMENTS = 50_000_000  # of a tensor to be copied


@dataclass(frozen=True)
class Foreign:
    """A value that no exercise asks for; only the name of its type is kept."""

    type_name: str


def plain(value: Any, depth: int = 0) -> Any:
    """Return `value` as None, ..., bool, int, float, complex, str, Tensor, tuple, list, dict, frozenset, or Foreign.

    A tensor is detached, dense and copied, so that nothing the answer does later can change it. A NumPy array or scalar
    counts as the tensor or number it contains.
    """
    kind = type(value)
    if value is None or value is Ellipsis or kind is complex:
        return value
    if issubclass(kind, Tensor):
        return _plain_tensor(value)
    if issubclass(kind, np.generic):
        value = np.generic.item(value)
        kind = type(value)
    if kind is bool:
        return value
    if issubclass(kind, int):  # for IntEnum and similar types, the number without the class
        value = int.__pos__(value)
        return Foreign("huge integer") if value.bit_length() > MOST_BITS else value
    if issubclass(kind, float):
        return float.__pos__(value)
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, np.ndarray):
        try:
            return torch.from_numpy(np.array(value, copy=True, subok=False))
        except TypeError:  # an array of text or objects
            return Foreign("numpy array of text or objects")
    too_much = depth > 5 or (issubclass(kind, (tuple, list, dict, set, frozenset)) and _length(value) > MOST_ENTRIES)
    if too_much:
        return Foreign(f"deep or very long {kind.__name__}")
    if issubclass(kind, tuple):
        return tuple(plain(part, depth + 1) for part in tuple.__iter__(value))
    if issubclass(kind, list):
        return [plain(part, depth + 1) for part in list.__iter__(value)]
    if issubclass(kind, dict):
        return {plain(key, depth + 1): plain(part, depth + 1) for key, part in dict.items(value)}
    if issubclass(kind, set):
        return frozenset(plain(part, depth + 1) for part in set.__iter__(value))
    if issubclass(kind, frozenset):
        return frozenset(plain(part, depth + 1) for part in frozenset.__iter__(value))
    return Foreign(kind.__name__)


def holds_an_array(value: Any, depth: int = 0) -> bool:
    """Return whether a value contains a NumPy array, which `plain` turns into a tensor."""
    kind = type(value)
    if issubclass(kind, np.ndarray):
        return True
    if depth > 5 or not issubclass(kind, (tuple, list, dict)) or _length(value) > MOST_ENTRIES:
        return False
    base = next(base for base in (tuple, list, dict) if issubclass(kind, base))
    parts = dict.values(value) if base is dict else base.__iter__(value)
    return any(holds_an_array(part, depth + 1) for part in parts)


def _plain_tensor(value: Tensor) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        value = Tensor.detach(value)
        if type(value) is not Tensor:
            value = value.as_subclass(Tensor)
        if value.layout != torch.strided:
            value = value.to_dense()
        if value.is_quantized:
            value = value.dequantize()
        return value.clone() if value.numel() <= MOST_ELEMENTS else value


def _length(value: Any) -> int:
    return next(base.__len__(value) for base in (tuple, list, dict, set, frozenset) if issubclass(type(value), base))


def fresh(value: Any) -> Any:
    """Return a copy of an input, so that every answer receives the same one. Functions and plain data need no copy."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, torch.Generator):
        return value.clone_state()
    if isinstance(value, Given):
        made = value.make(*fresh(value.data))
        if value.weights is None and isinstance(made, nn.Module):
            value.weights = fresh(made.state_dict())  # stored, because making a second module for comparison is slow
        return made
    if isinstance(value, (tuple, list)):
        return type(value)(fresh(part) for part in value)
    if isinstance(value, dict):
        return {key: fresh(part) for key, part in value.items()}
    return copy.deepcopy(value) if isinstance(value, (nn.Module, np.ndarray, set)) else value


def changed(before: Any, after: Any) -> bool:
    """Return whether a call changed this input. The state of a random generator may change."""
    if isinstance(before, Tensor):
        return not same_tensor(before, after)
    if isinstance(before, Given):
        return isinstance(after, nn.Module) and changed(before.weights, after.state_dict())
    if isinstance(before, nn.Module):
        return changed(before.state_dict(), after.state_dict())
    if isinstance(before, np.ndarray):
        return not np.array_equal(before, after)
    if isinstance(before, (tuple, list)):
        return len(before) != len(after) or any(changed(b, a) for b, a in zip(before, after))
    if isinstance(before, dict):
        return before.keys() != after.keys() or any(changed(before[key], after[key]) for key in before)
    return before != after if isinstance(before, (bool, int, float, str, set)) else False


def same_tensor(a: Any, b: Any) -> bool:
    """Return whether two tensors have equal shape, dtype and values (NaN equals NaN)."""
    if not isinstance(b, Tensor) or a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())
