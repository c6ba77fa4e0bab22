"""Records the names of what runs in a `with` block: torch's operations, and functions of the course's library."""

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
    """A record of the first forbidden operation: as Python calls it (`F.softmax`), or one level lower
    (`aten::_softmax`).

    The lower level also covers operations inside compiled code or other torch functions. The watch works only in this
    thread. It does not interfere: it raises nothing that an answer could catch.

    Args:
        forbidden: parts of names.

    used: the name of the first operation that contains one of them; "" if there was none.
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
            self.used = name.partition(".")[0].strip("_")  # for `torch.ops.aten.softmax.int` and `_softmax`


class _Called(TorchFunctionMode):
    """A mode that passes the name of each torch function that Python calls to `note`."""

    def __init__(self, note: Callable[[str], None]):
        self.note = note

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.note(getattr(function, "__name__", ""))
        return function(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    """The base of modes that observe the operations inside torch's functions."""

    @classmethod
    def _should_skip_dynamo(cls):
        """Return False, because torch would otherwise import its compiler, which takes seconds."""
        return False


class _Beneath(Dispatched):
    """A mode that passes the name of each operation to `note`."""

    def __init__(self, note: Callable[[str], None]):
        super().__init__()
        self.note = note

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.note(operation.overloadpacket.__name__)
        return operation(*args, **(kwargs or {}))


class LibraryWatch:
    """A record of the first call to a library function that is the answer to the exercise.

    It detects every kind of call: behind a lambda, in a subclass, by a copy of the code. It works only in this thread,
    and only if there are names to look for, because it slows every Python call slightly.

    Args:
        names: below `course_lib`, "attention.softmax"; for a class, all its methods.

    used: the first name that was called, or "".
    """

    def __init__(self, names: tuple[str, ...]):
        self.codes, self.used = _codes(names), ""
        self.called = {code.co_name for code in self.codes}  # comparing names is faster than comparing code objects

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
    """Return the code of each function named, and of each method of a class named, with the name."""
    found: dict[CodeType, str] = {}
    for name in names:
        home, _, own = name.rpartition(".")
        thing = getattr(importlib.import_module(f"course_lib.{home}"), own, None)  # an answer may have deleted it
        parts = vars(thing).values() if isinstance(thing, type) else [thing]
        functions = [inspect.unwrap(part) for part in parts if callable(part)]
        codes = [part.__code__ for part in functions if isinstance(part, FunctionType)]
        found |= {code: name for code in codes if code.co_filename.startswith(LIBRARY)}  # not code that replaced it
    return found
