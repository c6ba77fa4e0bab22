"""Compare a returned value with the expected one, and report the first difference.

The checks follow the order in which a teacher would look: the kind of value, the number of parts, dtype, device and
shape, and only then the numbers. The tolerance is |got − expected| ≤ atol + rtol · |expected|, with `rtol` and `atol`
for the expected dtype. For a float64 tensor, |expected| is the absolute value of its largest finite number. A float32
tensor may also differ by OF_THE_LARGEST times that number anywhere: sums of large numbers near 0 lose digits.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.grading.judge.show import apart, number, plural, shape_of
from course_lib.grading.judge.values import Foreign

# `rtol`, `atol`. A constant or step in float32 has a relative error of about 1e-7, a chain of steps up to 2e-6. That
# is also accepted in float64, relative to the largest number. Any error other than rounding is far larger. Splitting or
# merging heads must be exact, so such exercises set their own `rtol` and `atol`.
TOLERANCE = {
    torch.float64: (1e-5, 1e-10),
    torch.float32: (1e-4, 1e-6),
    torch.float16: (1e-2, 1e-3),
    torch.bfloat16: (3e-2, 1e-2),
}
OF_THE_LARGEST = 2e-6
IN_FULL = (1e-9, 1e-10)  # `rtol`, `atol` of float64 without a detour through float32
WHOLE = "your result"  # the name of the whole result in a sentence
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class OfAnotherType(str):
    """A sentence about a value of the wrong type. Nothing more needs to be reported about the answer."""


def compare(
    expected: Any, got: Any, rtol: float | None = None, atol: float | None = None, names: Sequence[str] = ()
) -> str | None:
    """Return None if `got` is as good as `expected`, otherwise a sentence about the first difference.

    Both are plain data (see `values.plain`). `names` name the parts of a tuple.

    The comparison is as lenient as a teacher would be. A 0-d tensor is a number, a list is a tuple, and any integer
    dtype is an integer. A list of integers is an integer tensor (ids, indices). A list of floats is not a tensor: it
    has no dtype and does not support arithmetic. `counted` returns the remark to the learner.
    """
    return _compare(expected, got, rtol, atol, list(names), WHOLE)


def same(one: Any, other: Any, rtol: float | None = None, atol: float | None = None) -> bool:
    """Return whether two answers behave alike. This works like `compare`, except that NaN equals NaN."""
    return _compare(one, other, rtol, atol, [], "", nan_is_nan=True) is None


def counted_as(expected: Any, got: Any) -> Any:
    """Return `got` as `compare` treats it: a list of integers as the integer tensor that it represents."""
    if isinstance(expected, Tensor) and expected.dtype in INTEGERS and isinstance(got, (list, tuple)):
        return _as_integers(got)
    return got


def counted(expected: Any, got: Any, from_numpy: bool = False) -> str:
    """Return the remark on a right value of another type than requested; "" if the type is right.

    from_numpy: whether the result contained a NumPy array, which is a tensor as plain data.
    """
    for wanted, value in _places(expected, got):
        if isinstance(wanted, Tensor) and wanted.ndim and isinstance(value, (list, tuple)):
            return "You return a list instead of a tensor. Your answer counts."
        if as_number(wanted) is not None and not isinstance(wanted, Tensor) and isinstance(value, Tensor):
            whose = "a NumPy array" if from_numpy else "a tensor"
            return f"You return {whose} instead of a number. Your answer counts."
    if from_numpy and any(isinstance(wanted, Tensor) for wanted, _ in _places(expected, got)):
        return "You return a NumPy array instead of a tensor. Your answer counts."
    return ""


def _places(expected: Any, got: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each expected value with the returned one."""
    if isinstance(expected, (tuple, list)) and isinstance(got, (tuple, list)):
        for wanted, value in zip(expected, got):
            yield from _places(wanted, value)
    elif isinstance(expected, dict) and isinstance(got, dict):
        for key in expected.keys() & got.keys():
            yield from _places(expected[key], got[key])
    else:
        yield expected, got


def _compare(expected, got, rtol, atol, names, what, nan_is_nan=False) -> str | None:
    sentence = what[:1].upper() + what[1:]
    top = what == WHOLE
    if isinstance(expected, (tuple, list)):
        if not isinstance(got, (tuple, list)):
            return f"{sentence} should be {_parts(expected, names)}; it is {kind_of(got, top)}."
        if len(got) != len(expected):
            return f"{sentence} should be {_parts(expected, names)}; it has {plural(len(got), 'part')}."
        names = [f"`{name}`" for name in names] or [f"part {i} of {what}" for i in range(len(expected))]
        problems = (_compare(e, g, rtol, atol, [], n, nan_is_nan) for e, g, n in zip(expected, got, names))
        return next((problem for problem in problems if problem), None)
    if isinstance(expected, dict):
        if not isinstance(got, dict):
            return f"{sentence} should be a dictionary; it is {kind_of(got, top)}."
        for key in expected:
            if key not in got:
                return f"{sentence} lacks the key {key!r}; it has {', '.join(map(repr, got)) or 'none'}."
            problem = _compare(expected[key], got[key], rtol, atol, [], f"`{key}`", nan_is_nan)
            if problem:
                return problem
        extra = [key for key in got if key not in expected]
        return f"{sentence} has a key {extra[0]!r} that should not be there." if extra else None
    if isinstance(expected, Tensor):
        return _compare_tensor(expected, got, rtol, atol, sentence, nan_is_nan)
    if isinstance(expected, (int, float)) and not isinstance(expected, bool):
        value = as_number(got)
        if value is None:
            return f"{sentence} should be a number; it is {kind_of(got, top)}."
        kind = torch.float32 if isinstance(got, Tensor) and got.dtype != torch.float64 else torch.float64
        exact = isinstance(expected, int)
        tolerance = (0.0 if exact else TOLERANCE[kind][0], 0.0 if exact else TOLERANCE[kind][1])
        rtol = tolerance[0] if rtol is None else rtol
        atol = tolerance[1] if atol is None else atol
        infinite = expected in (math.inf, -math.inf)  # a fraction of infinity is infinite as well
        if expected == value or (not infinite and abs(value - expected) <= atol + rtol * abs(expected)):
            return None
        if nan_is_nan and expected != expected and value != value:
            return None
        got, wanted = apart(value, expected)
        return f"{sentence} is {got}; expected {wanted}."
    if isinstance(expected, bool):
        if isinstance(got, Tensor) and got.numel() == 1 and got.dtype == torch.bool:
            got = bool(got)
        if not isinstance(got, bool):
            return f"{sentence} should be True or False; it is {kind_of(got, top)}."
    if type(expected) is not type(got):
        return f"{sentence} should be {kind_of(expected)}; it is {kind_of(got, top)}."
    return None if expected == got else f"{sentence} is {got!r}; expected {expected!r}."


def _compare_tensor(expected, got, rtol, atol, sentence, nan_is_nan) -> str | None:
    integer = expected.dtype in INTEGERS
    got = counted_as(expected, got)
    if expected.ndim == 0 and isinstance(got, (int, float)) and not isinstance(got, bool):
        with contextlib.suppress(RuntimeError, OverflowError, ValueError):  # a number that this dtype cannot represent
            got = torch.tensor(got, dtype=expected.dtype)
    if not isinstance(got, Tensor):
        many = isinstance(got, (list, tuple)) and len(got) > 0 and all(isinstance(part, Tensor) for part in got)
        stack = " `torch.stack` makes one tensor from many." if many else ""
        kind = kind_of(got, sentence.lower() == WHOLE)
        return f"{sentence} should be a tensor of shape {shape_of(expected)}; it is {kind}.{stack}"
    if got.dtype != expected.dtype and not (integer and got.dtype in INTEGERS):
        return f"{sentence} has dtype {_name(got.dtype)}; expected {_name(expected.dtype)}."
    if got.device.type != expected.device.type:
        where = f"{sentence} is on the device {got.device.type}; expected {expected.device.type}, where the input is."
        return f"{where} Make the tensor there with `device=x.device`, if x is an input."
    if got.shape != expected.shape:
        return f"{sentence} has shape {shape_of(got)}; expected {shape_of(expected)}."
    if got.dtype == expected.dtype and torch.equal(got, expected):  # the usual case, checked in one pass
        return None
    wrong = differences(expected, got, rtol, atol, nan_is_nan)
    if not wrong.any():
        return None
    if got.is_floating_point() and bool((got.isnan() & ~expected.isnan()).any()):
        return f"{sentence} contains NaN: somewhere 0 was divided by 0, or −inf was subtracted from −inf."
    count = int(wrong.sum())
    if count == wrong.numel():
        return (
            f"{sentence} has the right shape and dtype; {'its value is' if count == 1 else 'all its values are'} wrong."
        )
    return f"{sentence} has the right shape and dtype; {count:,} of {wrong.numel():,} values are wrong."


def differences(
    expected: Tensor, got: Tensor, rtol: float | None = None, atol: float | None = None, nan_is_nan: bool = False
) -> Tensor:
    """Return a mask: True where `got` differs from `expected` by more than the tolerance. Both have the same shape."""
    if not expected.is_floating_point():
        return got != expected
    e, g = expected.double(), got.double()
    default = TOLERANCE.get(expected.dtype, (1e-4, 1e-6))
    if expected.dtype == torch.float64 and rtol is None and atol is None:
        rtol, atol = 0.0, default[1] + default[0] * largest(e)
    rtol = default[0] if rtol is None else rtol
    if atol is None:
        atol = max(default[1], OF_THE_LARGEST * largest(e) if expected.dtype == torch.float32 else 0.0)
    near = (g - e).abs() <= atol + rtol * e.abs()  # False where either is NaN or an infinity meets another value
    near = torch.where(e.isinf() | g.isinf(), e == g, near)
    if nan_is_nan or bool(e.isnan().any()):
        near |= e.isnan() & g.isnan()
    return ~near


def rounded(expected: Any, got: Any) -> bool:
    """Return whether a float64 in `got`, accepted by `compare`, has lost digits, as happens in float32."""
    if isinstance(expected, Tensor):
        if expected.dtype != torch.float64 or not isinstance(got, Tensor):
            return False
        return bool(differences(expected, got, 0.0, IN_FULL[1] + IN_FULL[0] * largest(expected)).any())
    if isinstance(expected, (tuple, list)):
        return any(map(rounded, expected, got))
    return isinstance(expected, dict) and any(rounded(expected[key], got[key]) for key in expected)


def largest(tensor: Tensor) -> float:
    """Return the largest finite absolute value, or 0 if there is none."""
    finite = tensor[tensor.isfinite()].abs()
    return finite.max().item() if finite.numel() else 0.0


def as_number(value: Any) -> int | float | None:
    """Return the number in a plain value, or None. A bool does not count; a tensor with a single element does."""
    if isinstance(value, Tensor) and value.numel() == 1 and value.device.type != "meta" and not value.is_complex():
        value = value.item()
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def kind_of(value: Any, returned: bool = False) -> str:
    """Return a short description of a plain value: 'a tensor of shape (2, 3)', 'None', 'a list'.

    returned: whether the value is the complete result of a function, not a part of it.
    """
    if value is None:
        return "None (is there a `return`?)" if returned else "None"
    if isinstance(value, Tensor):
        return f"a tensor of shape {shape_of(value)}"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    if isinstance(value, (bool, complex)):
        return repr(value)
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, (tuple, list)):
        return (
            f"a {type(value).__name__} of {plural(len(value), 'part')}" if value else f"an empty {type(value).__name__}"
        )
    if isinstance(value, Foreign):
        return f"of type {value.type_name}"
    return KINDS.get(type(value), f"a {type(value).__name__}")


KINDS: dict[type, str] = {frozenset: "a set", dict: "a dictionary"}  # a returned set is a frozenset at this point


def _parts(expected: Sequence, names: Sequence[str]) -> str:
    return f"({', '.join(names)})" if names else kind_of(expected)


def _as_integers(value: Any) -> Any:
    """Return a nested list of integers as a tensor; anything else unchanged."""
    if not len(value):
        return torch.tensor(value, dtype=torch.int64)
    try:
        tensor = torch.tensor(value)
    except (TypeError, ValueError, RuntimeError):  # ragged, or not numbers
        return value
    return tensor if tensor.dtype in INTEGERS else value


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
