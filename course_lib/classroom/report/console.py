"""What a run says on its terminal, which must never end it; and the signals that do."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class Console:
    """Standard output or error that takes all that is said to it, so that no console ends a run: what it has no letters
    for becomes "?", and when nobody listens any more, nothing is said."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # `tqdm` asks for what a terminal can do
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        with self._listening():
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        with self._listening():
            self._stream.flush()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, AttributeError):  # the reader has gone, the disk is full; it is closed, or none
            with suppress(
                OSError, ValueError, AttributeError
            ):  # what waits to be written would be an error when the program ends
                number = self._stream.fileno()
                with open(os.devnull, "wb") as null:
                    os.dup2(null.fileno(), number)


class Signalled(KeyboardInterrupt):
    """The run was asked to end. number: of the signal."""

    def __init__(self, number: int):
        super().__init__()
        self.number = signal.Signals(number)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end what runs in this block as Ctrl-C does: by an exception, so that all is tidied up.

    The first one counts: whoever is impatient and presses again does not interrupt the tidying. What is ignored from
    the beginning, as SIGHUP is below `nohup`, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():  # only there may signals be handled
        yield
        return
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    asked = False

    def end(number: int, frame: object) -> None:
        nonlocal asked
        if not asked:
            asked = True
            raise Signalled(number)

    for number in numbers:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
