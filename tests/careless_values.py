"""Slips with arguments and values: ignored, exchanged, of another kind, in another order. See `careless_slips.py`."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tests.careless_slips import INF, Labelled, Seen, mapped, slip

USUAL = {  # what is typed in from memory where an argument stands
    "eps": (1e-5, 1e-6, 1e-8, 0.0),
    "theta": (10_000.0,),
    "dim": (-1, 0, 1),
    "n_heads": (1, 2, 4),
    "d_k": (64,),
    "temperature": (1.0,),
    "ignore_index": (-100, -1, 0),
    "pad_id": (0,),
    "lr": (1e-3, 3e-4),
    "learning_rate": (1e-3, 3e-4),
    "block_size": (1, 2, 10**9),
    "max_norm": (1.0,),
    "multiple_of": (64, 256),
    "rounds": (1, 10),
    "n_shuffles": (1, 10),
}
INTEGERS = (torch.int64, torch.int32)

# --- arguments --------------------------------------------------------------------------------------------------------


@slip
def argument_ignored(seen: Seen) -> Labelled:
    """An argument is not used: a usual number, zeros, ones or nothing stands in its place."""
    for name in seen.names:
        parameter = seen.signature.parameters[name]
        if parameter.default is not inspect.Parameter.empty:
            yield f"{name}, its default", seen.on(name, lambda x, d=parameter.default: d)
        for value in USUAL.get(name, ()):
            yield f"{name} is {value}", seen.on(name, lambda x, v=value: v)
    for name in seen.of_kind(int, float):
        for value in (0, 1):
            yield f"{name} is {value}", seen.on(name, lambda x, v=value: type(x)(v), (int, float))
    for name in seen.of_kind(bool):
        for value in (False, True):
            yield f"{name} is {value}", seen.on(name, lambda x, v=value: v, bool)
    for name in seen.tensors():
        yield f"{name} is zeros", seen.on(name, torch.zeros_like, Tensor)
        yield f"{name} is ones", seen.on(name, torch.ones_like, Tensor)
    for name in seen.names:
        for field, first in fields_of(next(iter(seen.values(name)), None)).items():
            kept = seen.on(name, lambda x, f=field, v=first: x if getattr(x, f) == v else replace(x, **{f: v}))
            yield f"{name}.{field} is {first}", kept
    for name in seen.of_kind(str):
        first = next(value for value in seen.values(name) if isinstance(value, str))
        yield f"{name} is {first}", seen.on(name, lambda x, v=first: v)
    for name in sorted({name for built in seen.built for name in built}):
        first = seen.built[0].get(name, inspect.signature(seen.reference).parameters[name].default)
        for value in (*USUAL.get(name, ()), first):
            yield f"{name} is {value}", seen.altered(init=lambda arguments, n=name, v=value: arguments | {n: v})


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a configuration; nothing of anything else."""
    return {field.name: getattr(value, field.name) for field in fields(value)} if is_dataclass(value) else {}


@slip
def arguments_exchanged(seen: Seen) -> Labelled:
    """Copied and not edited: one argument stands in the place of another, or the two are exchanged."""
    for one in seen.names:
        for other in seen.names:
            if one == other or not alike(seen, one, other):
                continue
            yield f"{other} for {one}", seen.altered(lambda arguments, a=one, b=other: put(arguments, a, b))
            if one < other:
                yield f"{one} and {other}", seen.altered(lambda arguments, a=one, b=other: put(arguments, a, b, True))


def alike(seen: Seen, one: str, other: str) -> bool:
    """Were the two ever of one kind in one call?"""
    return any(kind(a) == kind(b) for a, b in zip(seen.values(one), seen.values(other)))


def kind(value: Any) -> Any:
    return value.dtype if isinstance(value, Tensor) else "function" if callable(value) else type(value)


def put(arguments: dict, one: str, other: str, both: bool = False) -> dict:
    if one not in arguments or other not in arguments or kind(arguments[one]) != kind(arguments[other]):
        return arguments
    new = {one: arguments[other], other: arguments[one] if both else arguments[other]}
    return arguments | new


@slip
def parameter_ignored(seen: Seen) -> Labelled:
    """A parameter of a module is not used: a bias is 0, a gain 1; or another of its shape stands in its place."""
    if not seen.is_class:
        return
    module = seen.reference(**seen.built[0])
    named = dict(module.named_parameters())
    for name, parameter in named.items():
        for value in (0.0, 1.0):
            yield f"{name} is {value:g}", with_parameter(seen, name, lambda own, n=name, v=value: own[n] * 0 + v)
        for other in named:
            if other != name and named[other].shape == parameter.shape:
                yield f"{other} for {name}", with_parameter(seen, name, lambda own, o=other: own[o])


def with_parameter(seen: Seen, name: str, value: Callable[[dict], Tensor]) -> Any:
    """Return the class with one parameter changed while it is called."""
    forward, acted = seen.function, []

    class Changed(seen.reference):
        def forward(self, *args, **kwargs):
            own = dict(self.named_parameters())
            before = own[name].data
            after = value(own).detach().clone()
            if not torch.equal(before, after):
                acted.append(name)
            own[name].data = after
            try:
                return forward(self, *args, **kwargs)
            finally:
                own[name].data = before

    Changed.acted = acted
    return Changed


# --- kinds of numbers -------------------------------------------------------------------------------------------------


@slip
def less_exact(seen: Seen) -> Labelled:
    """Everything is computed in half precision, and handed back in the dtype of the input."""
    floats = seen.tensors(Tensor.is_floating_point)
    if not floats:
        return
    for dtype in (torch.float16, torch.bfloat16):
        yield (
            f"{dtype} all through",
            seen.altered(
                lambda arguments, d=dtype: mapped(lambda x: x.to(d) if x.is_floating_point() else x, arguments),
                lambda value: mapped(lambda x: x.to(floating(seen)) if x.is_floating_point() else x, value),
            ),
        )
        for name in floats:
            yield f"{name} by {dtype}", seen.on(name, lambda x, d=dtype: through(x, d), Tensor)
    yield "autocast", seen.altered(around=lambda: torch.autocast("cpu", torch.bfloat16))


def floating(seen: Seen) -> torch.dtype:
    return next(
        v.dtype for call in seen.calls for v in call.values() if isinstance(v, Tensor) and v.is_floating_point()
    )


def through(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).to(x.dtype) if x.is_floating_point() else x


@slip
def result_of_another_kind(seen: Seen) -> Labelled:
    """The result has another dtype: always float32, always float64, numbers for booleans, floats for ids."""
    for name, test, change in (
        ("float32", Tensor.is_floating_point, Tensor.float),
        ("float64", Tensor.is_floating_point, Tensor.double),
        ("int", lambda x: x.dtype == torch.bool, Tensor.int),
        ("float", lambda x: x.dtype == torch.bool, Tensor.float),
        ("float ids", lambda x: x.dtype in INTEGERS, Tensor.float),
        ("bool", lambda x: x.is_floating_point(), Tensor.bool),
    ):
        yield name, seen.on_result(lambda x, t=test, c=change: c(x) if t(x) else x)


@slip
def rounded_result(seen: Seen) -> Labelled:
    """The result is rounded for printing, or cut to a whole number, before it is returned."""
    for digits in (0, 2, 3, 4):
        change = seen.on_result(lambda x, d=digits: x.round(decimals=d) if x.is_floating_point() else x)
        yield f"tensors to {digits}", change
        if digits:
            yield f"numbers to {digits}", seen.on_result(lambda x, d=digits: round(x, d), float)
    yield "numbers cut", seen.on_result(lambda x: int(x) if abs(x) < INF else x, float)


@slip
def counted_in_32_bits(seen: Seen) -> Labelled:
    """Whole numbers are computed in a tensor of 32 bits: they wrap, or lose their last digits as float32."""
    yield "int32", seen.on_result(lambda n: n if isinstance(n, bool) else (n + 2**31) % 2**32 - 2**31, int)
    yield "float32", seen.on_result(lambda n: n if isinstance(n, bool) else int(torch.tensor(float(n)).item()), int)


@slip
def range_of_numbers(seen: Seen) -> Labelled:
    """Only ordinary numbers are thought of: negative ones, fractions or large ones are read as the nearest such."""
    for name in seen.of_kind(int, float):
        yield f"{name} not negative", seen.on(name, lambda x: max(x, type(x)(0)), (int, float))
        yield f"{name} without sign", seen.on(name, abs, (int, float))
        yield f"{name} at least 1", seen.on(name, lambda x: max(x, type(x)(1)), (int, float))
    for name in seen.of_kind(float):
        yield f"{name} whole", seen.on(name, lambda x: float(int(x)), float)
    for name in seen.tensors(lambda x: x.dtype != torch.bool):
        yield f"{name} without sign", seen.on(name, Tensor.abs, Tensor)
        yield f"{name} at least 1", seen.on(name, lambda x: x if x.is_floating_point() else x.clamp(min=1), Tensor)
    for name in {"x", "scores", "logits"} & {*seen.tensors(Tensor.is_floating_point)}:
        for most in (50.0, 80.0, 1e4):
            yield f"{name} up to {most:g}", seen.on(name, lambda x, m=most: clamped(x, m), Tensor)
    yield "result NaN as 0", seen.on_result(lambda x: x.nan_to_num(0.0, INF, -INF))
    yield "result up to 100", seen.on_result(lambda x: x.clamp(-100, 100) if x.is_floating_point() else x)


def clamped(x: Tensor, most: float) -> Tensor:
    return torch.where(x.isinf(), x, x.clamp(-most, most)) if x.is_floating_point() else x


@slip
def minus_infinity(seen: Seen) -> Labelled:
    """−inf, given or returned, is a large negative number, or is not there."""
    for low in (-1e9, -1e4, -100.0, torch.finfo(torch.float32).min, 0.0, torch.nan):
        for name in seen.tensors(Tensor.is_floating_point):
            yield f"{name} by {low:g}", seen.on(name, lambda x, v=low: x.masked_fill(x == -INF, v), Tensor)
        yield f"result by {low:g}", seen.on_result(lambda x, v=low: low_for(x, v))


def low_for(x: Tensor, low: float) -> Tensor:
    return x.masked_fill(x == -INF, low) if x.is_floating_point() else x


@slip
def rows_of_zeros(seen: Seen) -> Labelled:
    """A row of zeros gives NaN, is skipped, or counts as ones."""
    for name in seen.tensors(lambda x: x.is_floating_point() and x.ndim > 0):
        for value in (torch.nan, 1.0):
            yield f"{name} by {value}", seen.on(name, lambda x, v=value: no_zeros(x, v), Tensor)
        skipped = seen.on(name, lambda x: x[(x != 0).any(-1)] if x.ndim == 2 else x, Tensor)
        yield f"{name} skipped", skipped


def no_zeros(x: Tensor, value: float) -> Tensor:
    if not x.ndim or not x.is_floating_point():
        return x
    return torch.where((x == 0).all(-1, keepdim=True), torch.full_like(x, value), x)


# --- layout and order -------------------------------------------------------------------------------------------------


@slip
def memory_order(seen: Seen) -> Labelled:
    """A tensor that is a view is read in the order in which its numbers lie in memory, or refused."""
    for name in seen.tensors(lambda x: x.ndim > 1):
        yield f"{name} read", seen.on(name, in_memory, Tensor)


def in_memory(x: Tensor) -> Tensor:
    return x if x.is_contiguous() else x.as_strided(x.shape, torch.empty(x.shape).stride(), 0)


@slip
def equal_axes_exchanged(seen: Seen) -> Labelled:
    """Two axes are exchanged where their sizes are equal: no shape shows it."""
    for name in seen.tensors(lambda x: x.ndim > 1):
        for one in seen.axes(name):
            for other in range(one):
                change = seen.on(name, lambda x, a=one, b=other: exchanged(x, a, b), Tensor)
                yield f"{name}, axes {other} and {one}", change
    for one in seen.result_axes():
        for other in range(one):
            yield f"result, axes {other} and {one}", seen.on_result(lambda x, a=one, b=other: exchanged(x, a, b))


def exchanged(x: Tensor, one: int, other: int) -> Tensor:
    square = max(one, other) < x.ndim and x.shape[one] == x.shape[other] > 1
    return x.transpose(one, other) if square else x


@slip
def axis_of_one_squeezed(seen: Seen) -> Labelled:
    """Axes of size 1 are squeezed away, of an argument or of the result."""
    yield "result", seen.on_result(Tensor.squeeze)
    for axis in seen.result_axes():
        yield f"result, axis {axis}", seen.on_result(lambda x, a=axis: x.squeeze(a) if a < x.ndim else x)
    for name in seen.tensors():
        yield name, seen.on(name, Tensor.squeeze, Tensor)


@slip
def order_assumed(seen: Seen) -> Labelled:
    """What is given is read as sorted, without repeats, counted from 0, or without gaps."""
    for name in seen.of_kind(list, tuple):
        for how, change in (("sorted", sorted), ("backwards", lambda x: x[::-1]), ("once each", dict.fromkeys)):
            yield f"{name} {how}", seen.on(name, lambda x, c=change: reordered(x, c), (list, tuple))
    for name in seen.of_kind(dict):
        yield f"{name} sorted", seen.on(name, lambda x: dict(sorted(x.items())), dict)
        yield f"{name} backwards", seen.on(name, lambda x: dict(reversed(x.items())), dict)
        once = seen.on(name, lambda x: {k: 1 if isinstance(v, int) else v for k, v in x.items()}, dict)
        yield f"{name} once each", once
    for name in seen.tensors(lambda x: x.dtype in INTEGERS and x.ndim == 1):
        yield f"{name} sorted", seen.on(name, lambda x: x.sort(-1).values, Tensor)
        yield f"{name} counted up", seen.on(name, lambda x: torch.arange(x.shape[-1]).expand_as(x), Tensor)
        yield f"{name} counted from its first", seen.on(name, lambda x: x[..., :1] + torch.arange(x.shape[-1]), Tensor)


def reordered(x: Any, change: Callable) -> Any:
    try:
        return type(x)(change(x))
    except TypeError:  # what has no order, or cannot be a key
        return x


@slip
def text_joined(seen: Seen) -> Labelled:
    """Token borders are ignored: the text is joined, and split into characters again."""
    for name in seen.of_kind(list):
        if any(isinstance(part, str) for value in seen.values(name) for part in value):
            yield name, seen.on(name, lambda x: list("".join(x)), list)
    yield "result", seen.on_result(lambda x: list("".join(x)) if x and isinstance(x[0], str) else x, list)


@slip
def empty_refused(seen: Seen) -> Labelled:
    """Nothing given is refused, or gives nothing."""

    def filled(value):
        if (isinstance(value, Tensor) and value.numel() == 0) or (isinstance(value, (list, dict)) and not value):
            raise IndexError("there is nothing")
        return value

    yield "any", seen.altered(lambda arguments: {name: filled(value) for name, value in arguments.items()})


@slip
def input_changed(seen: Seen) -> Labelled:
    """What was given is altered in place."""

    def altering(x):
        with torch.no_grad():
            if isinstance(x, Tensor):
                x.zero_() if x.any() else x.fill_(1)
            elif isinstance(x, list) and x:
                x.pop()
            elif isinstance(x, dict) and x:
                x.popitem()

    for name in [*seen.tensors(), *seen.of_kind(list, dict)]:
        yield name, afterwards(seen, lambda given, n=name: altering(given.get(n)))


def modules(seen: Seen) -> list[str]:
    """Return the arguments that are models with parameters."""
    return [n for n in seen.names if any(isinstance(v, nn.Module) and list(v.parameters()) for v in seen.values(n))]


def afterwards(seen: Seen, do: Callable[[dict], Any]) -> Any:
    """Return the reference, with something done to its arguments after it has computed."""
    kept: dict = {}

    def given(arguments):
        kept.clear()
        kept.update(arguments)
        return arguments

    def result(value):
        value = mapped(torch.clone, value)  # else the result would be altered with the input that it is a view of
        do(kept)
        return value

    careless = seen.altered(given, result)
    careless.acted.append("afterwards")
    return careless
