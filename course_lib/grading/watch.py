"""Which of torch's operations run in a `with` block, by their names."""

import contextlib
from collections.abc import Callable, Sequence

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


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
