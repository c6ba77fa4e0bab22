"""What runs in a `with` block, by name: torch's operations, and functions of the course's library."""

import contextlib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

LIBRARY = str(Path(__file__).parents[2]) + os.sep


class Watch:
    """Notes the first forbidden operation: as Python calls it (`F.softmax`), or beneath (`aten::_softmax`).

    Beneath, it is also seen where compiled code or another function of torch's uses it. In this thread alone. The watch
    does not interfere: an answer cannot catch what is not raised.

    Args:
        forbidden: parts of names. used: the name of the first operation that holds one; "" if there was none.
    """

    def __init__(self, forbidden: Sequence[str]):
        self.forbidden, self.used = tuple(forbidden), ""

    def __enter__(self) -> "Watch":
        self._modes = contextlib.ExitStack()
        if self.forbidden:
            self._modes.enter_context(_Called(self._note))
            self._modes.enter_context(_Beneath(self._note))
        return self

    def __exit__(self, *error) -> None:
        self._modes.close()

    def _note(self, name: str) -> None:
        if not self.used and any(part in name for part in self.forbidden):
            self.used = name.partition(".")[0].strip("_")  # of `torch.ops.aten.softmax.int`, and of `_softmax`


class _Called(TorchFunctionMode):
    """Tells `note` the name of each of torch's functions that Python calls."""

    def __init__(self, note: Callable[[str], None]):
        self.note = note

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.note(getattr(function, "__name__", ""))
        return function(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    """Base of what looks at the operations that torch's functions consist of."""

    @classmethod
    def _should_skip_dynamo(cls):
        """Otherwise torch imports its compiler, which takes seconds."""
        return False


class _Beneath(Dispatched):
    """Tells `note` the name of each operation."""

    def __init__(self, note: Callable[[str], None]):
        super().__init__()
        self.note = note

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.note(operation.overloadpacket.__name__)
        return operation(*args, **(kwargs or {}))


class LibraryWatch:
    """Notes the first function of the library's that is called, of those that are an exercise's answer.

    However it is reached: behind a lambda, in a subclass, by a copy of its code. In this thread alone, and only where
    something is looked for: it costs a little with every call that Python makes.

    Args:
        names: below `course_lib`, "attention.softmax"; of a class, its methods. used: the name that was met, or "".
    """

    def __init__(self, names: tuple[str, ...]):
        self.codes, self.used = _codes(names), ""
        self.called = {code.co_name for code in self.codes}  # quicker to ask than whether two codes are equal

    def __enter__(self) -> "LibraryWatch":
        if self.codes:
            self._before = sys.getprofile()
            sys.setprofile(self._look)
        return self

    def __exit__(self, *error) -> None:
        if self.codes:
            sys.setprofile(self._before)

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name in self.called and frame.f_code in self.codes:
            self.used = self.used or self.codes[frame.f_code]


@functools.cache
def _codes(names: tuple[str, ...]) -> dict[CodeType, str]:
    """The code of each function named, and of each method of a class, with its name."""
    found: dict[CodeType, str] = {}
    for name in names:
        home, _, own = name.rpartition(".")
        thing = getattr(importlib.import_module(f"course_lib.{home}"), own, None)  # an answer may have taken it away
        parts = vars(thing).values() if isinstance(thing, type) else [thing]
        functions = [inspect.unwrap(part) for part in parts if callable(part)]
        codes = [part.__code__ for part in functions if isinstance(part, FunctionType)]
        found |= {code: name for code in codes if code.co_filename.startswith(LIBRARY)}  # not what was put in its place
    return found
