"""What people do to a right function without noticing: slips of behaviour, put around any reference.

Each is a function of what was seen of the reference (`Seen`) and yields labels with altered answers: `Seen.altered`
says what an alteration can be. The docstring is the slip in a sentence. `careless.py` tries them all.
"""

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import course_lib
from course_lib.grading.judge.values import changed, plain

INF = float("inf")
TORCH, LIBRARY = (str(Path(package.__file__).parent) for package in (torch, course_lib))
Labelled = Iterator[tuple[str, Any]]
SLIPS: list[Callable[["Seen"], Labelled]] = []


def slip(function: Callable[["Seen"], Labelled]) -> Callable[["Seen"], Labelled]:
    """Put a slip on the list."""
    SLIPS.append(function)
    return function


# --- the reference, and what is put around it -------------------------------------------------------------------------


@dataclass
class Seen:
    """A reference and what its calls on the cases of an exercise were: arguments by name, and results, as plain data.

    is_class: then the arguments are those of `forward`, and `built` holds those of the constructor. torch: the names of
    torch's functions that its code calls.
    """

    reference: Any
    is_class: bool
    names: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    built: list[dict[str, Any]] = field(default_factory=list)
    torch: set[str] = field(default_factory=set)

    def __post_init__(self):
        self.function = self.reference.forward if self.is_class else self.reference
        self.signature = inspect.signature(self.function)
        self.names = [name for name in self.signature.parameters if name != "self"]

    def values(self, name: str) -> list:
        """Return what was given for an argument, one for each call."""
        return [call[name] for call in self.calls if name in call]

    def of_kind(self, *kinds: type) -> list[str]:
        """Return the arguments that were of one of these types at least once; a bool is no int."""
        return [name for name in self.names if any(type(value) in kinds for value in self.values(name))]

    def tensors(self, test: Callable[[Tensor], bool] = lambda x: True) -> list[str]:
        """Return the arguments that were tensors which pass a test at least once."""
        return [n for n in self.names if any(isinstance(v, Tensor) and test(v) for v in self.values(n))]

    def axes(self, name: str) -> range:
        """Return the axes that an argument has at most."""
        return range(max(v.ndim for v in self.values(name) if isinstance(v, Tensor)))

    def result_axes(self) -> range:
        """Return the axes that a tensor in a result has at most."""
        return range(max((x.ndim for result in self.results for x in tensors_in(result)), default=0))

    def altered(
        self,
        given: Callable[[dict], dict] = lambda arguments: arguments,
        result: Callable[[Any], Any] = lambda value: value,
        around: Callable[[], Any] = contextlib.nullcontext,
        init: Callable[[dict], dict] | None = None,
    ) -> Any:
        """Return the reference with its arguments passed through `given`, its result through `result`, while `around`.

        -> a function or class, whose attribute `acted` holds an entry for each time that something was changed.
        `given` gets the arguments by name; `init`, of a class, those of the constructor.
        """
        function, signature, acted = self.function, self.signature, []

        @wraps(function)
        def careless(*args, **kwargs):
            before = dict(signature.bind(*args, **kwargs).arguments)
            after = given(dict(before))
            if before.keys() != after.keys() or any(differs(before[name], after[name]) for name in before):
                acted.append("given")
            with around() as context:
                value = function(**after)
            if getattr(context, "acted", False):
                acted.append("around")
            other = result(value)
            if other is not value and differs(plain(value), plain(other)):
                acted.append("result")
            return other

        careless.acted, careless.parts = acted, (given, result, around, init)
        if not self.is_class:
            return careless
        body = {"forward": careless, "acted": acted, "parts": careless.parts}
        if init:
            build, parameters = self.reference.__init__, inspect.signature(self.reference)

            def careless_init(module, *args, **kwargs):
                before = dict(parameters.bind(*args, **kwargs).arguments)
                after = init(dict(before))
                if before != after:
                    acted.append("init")
                build(module, **after)

            careless_init.__signature__ = inspect.signature(build)
            body["__init__"] = careless_init
        return type(self.reference.__name__, (self.reference,), body)

    def may_act(self, answer: Any) -> bool:
        """Could an altered answer do anything on these calls? False only where that is seen without calling it."""
        given, result, around, init = getattr(answer, "parts", (None, None, None, answer))
        if init or answer.acted:
            return True
        if around is not contextlib.nullcontext:
            context = around()
            return not isinstance(context, Instead) or bool(context.replaced.keys() & self.torch)
        for call, value in zip(self.calls, self.results):
            try:
                after = given(dict(call))
                if call.keys() != after.keys() or any(differs(call[name], after[name]) for name in call):
                    return True
                if differs(value, plain(result(value))):
                    return True
            except Exception:  # the slip ends in an error, here or when it is graded
                return True
        return False

    def on(self, name: str, change: Callable[[Any], Any], kinds: Any = object) -> Any:
        """Return the reference with one argument changed, where it is of these types."""

        def given(arguments: dict) -> dict:
            if name in arguments and isinstance(arguments[name], kinds):
                arguments[name] = change(arguments[name])
            return arguments

        return self.altered(given)

    def on_result(self, change: Callable[[Tensor], Any], kinds: Any = Tensor) -> Any:
        """Return the reference with every tensor in its result changed, or everything of other types."""
        return self.altered(result=lambda value: mapped(change, value, kinds))


def differs(before: Any, after: Any) -> bool:
    """Is this another value? What has no values of its own, a model or a function, is another if it is not the same."""
    if before is after:
        return False
    if type(before) is not type(after):
        return True
    if isinstance(before, Tensor):
        return changed(before, after)
    return changed(before, after) if isinstance(before, (list, tuple, dict, int, float, str)) else True


def mapped(change: Callable[[Any], Any], value: Any, kinds: Any = Tensor) -> Any:
    """Return the value with everything of these types in it changed, in lists, tuples and dictionaries too."""
    if isinstance(value, kinds):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(change, part, kinds) for part in value)
    return {key: mapped(change, part, kinds) for key, part in value.items()} if isinstance(value, dict) else value


def tensors_in(value: Any) -> list[Tensor]:
    """Return all tensors in there."""
    found: list[Tensor] = []
    mapped(found.append, value)
    return found


class Instead(TorchFunctionMode):
    """Has torch's functions replaced by name where an exercise's own code calls them: models that it is given are left
    alone. `replaced[name](function, args, kwargs)` is what is computed.

    A replacement that returns NotImplemented leaves things as they are. acted: has one given another value, or one that
    was drawn?
    """

    def __init__(self, drawn: bool = False, **replaced: Callable):
        super().__init__()
        self.drawn, self.replaced, self.acted = drawn, replaced, False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        other = self.replaced.get(getattr(function, "__name__", ""))
        if other is None or not called_by_an_exercise():
            return function(*args, **kwargs)
        value = other(function, args, kwargs)
        if value is NotImplemented:
            return function(*args, **kwargs)
        if not self.acted:
            in_place = function.__name__.endswith("_")
            self.acted = self.drawn or in_place or differs(plain(function(*args, **kwargs)), plain(value))
        return value


class Recorder(TorchFunctionMode):
    """Notes the names of torch's functions that an exercise's own code calls."""

    def __init__(self, names: set[str]):
        super().__init__()
        self.names = names

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if called_by_an_exercise():
            self.names.add(getattr(function, "__name__", ""))
        return function(*args, **(kwargs or {}))


def called_by_an_exercise() -> bool:
    """Is the code that called torch's function an exercise's own, not that of a model or a fixture of the library?"""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith((__file__, TORCH)):
        frame = frame.f_back
    path = frame.f_code.co_filename
    return "exercises" in Path(path).parts or not path.startswith(LIBRARY)


# --- only part of it is computed --------------------------------------------------------------------------------------


@slip
def first_for_all(seen: Seen) -> Labelled:
    """Only the first entry along an axis (a row of the batch, a head) is computed, and repeated for all."""
    for axis in seen.result_axes():
        yield f"result, axis {axis}", seen.on_result(lambda x, a=axis: repeated(x, a, 0))
    for name in seen.tensors():
        for axis in seen.axes(name):
            yield f"{name}, axis {axis}", seen.on(name, lambda x, a=axis: repeated(x, a, 0), Tensor)
    for name in seen.of_kind(list, tuple):
        yield name, seen.on(name, lambda x: type(x)(x[:1] * len(x)), (list, tuple))


@slip
def last_for_all(seen: Seen) -> Labelled:
    """Only the last entry along an axis is computed, and repeated for all."""
    for axis in seen.result_axes():
        yield f"result, axis {axis}", seen.on_result(lambda x, a=axis: repeated(x, a, -1))
    for name in seen.tensors():
        for axis in seen.axes(name):
            yield f"{name}, axis {axis}", seen.on(name, lambda x, a=axis: repeated(x, a, -1), Tensor)


def repeated(x: Tensor, axis: int, index: int) -> Tensor:
    if axis >= x.ndim or not x.shape[axis]:
        return x
    return x.narrow(axis, index % x.shape[axis], 1).expand_as(x)


@slip
def end_left_out(seen: Seen) -> Labelled:
    """The loop ends one too early or begins one too late: the last or first entry of the result stays zero."""
    for axis in seen.result_axes():
        for where, index in (("last", -1), ("first", 0)):
            yield f"{where} of axis {axis}", seen.on_result(lambda x, a=axis, i=index: without(x, a, i))


def without(x: Tensor, axis: int, index: int) -> Tensor:
    if axis >= x.ndim or not x.shape[axis]:
        return x
    return x.index_fill(axis, torch.tensor([index % x.shape[axis]]), 0)


@slip
def end_not_worked_on(seen: Seen) -> Labelled:
    """The last entry of the result along an axis is left as it was in an input of the same shape."""
    for name in seen.tensors():
        for axis in seen.result_axes():
            yield (
                f"{name}, axis {axis}",
                with_arguments(seen, lambda x, given, n=name, a=axis: as_given(x, given[n], a)),
            )


def with_arguments(seen: Seen, change: Callable[[Tensor, dict], Any]) -> Any:
    """Return the reference with the tensors of its result changed with respect to the arguments."""
    kept: dict = {}

    def given(arguments: dict) -> dict:
        kept.clear()
        kept.update(arguments)
        return arguments

    return seen.altered(given, lambda value: mapped(lambda x: change(x, kept), value))


def as_given(x: Tensor, given: Any, axis: int) -> Tensor:
    if not isinstance(given, Tensor) or given.shape != x.shape or axis >= x.ndim or not x.shape[axis]:
        return x
    return torch.cat([x.narrow(axis, 0, x.shape[axis] - 1), given.narrow(axis, -1, 1).to(x.dtype)], axis)


@slip
def argument_cut_short(seen: Seen) -> Labelled:
    """An argument is read without its last entry, or without its first: off by one."""
    for name in seen.tensors():
        for axis in seen.axes(name):
            yield f"{name}, axis {axis}, last", seen.on(name, lambda x, a=axis: cut(x, a, 0), Tensor)
            yield f"{name}, axis {axis}, first", seen.on(name, lambda x, a=axis: cut(x, a, 1), Tensor)
    for name in seen.of_kind(list, tuple):
        yield f"{name}, last", seen.on(name, lambda x: x[:-1], (list, tuple))
        yield f"{name}, first", seen.on(name, lambda x: x[1:], (list, tuple))
    for name in seen.of_kind(dict):
        yield f"{name}, last", seen.on(name, lambda x: dict(list(x.items())[:-1]), dict)


def cut(x: Tensor, axis: int, first: int) -> Tensor:
    return x.narrow(axis, first, x.shape[axis] - 1) if axis < x.ndim and x.shape[axis] else x


@slip
def one_off(seen: Seen) -> Labelled:
    """A whole number is read as one more or one less: a width, a window, a position, an id."""
    for step in (-1, 1):
        for name in seen.of_kind(int):
            yield f"{name} {step:+d}", seen.on(name, lambda x, s=step: x if isinstance(x, bool) else x + s, int)
        for name in seen.tensors(lambda x: not x.is_floating_point() and x.dtype != torch.bool):
            yield f"{name} {step:+d}", seen.on(name, lambda x, s=step: x + s, Tensor)
