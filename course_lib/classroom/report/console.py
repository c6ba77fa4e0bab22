"""Print to the terminal in a way that never ends a run, and handle the signals that do."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class Console:
    """Standard output or error that never ends a run.

    Characters that the console cannot show become "?". If the reader has gone, output is discarded.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # `tqdm` uses other attributes of a terminal
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
        except (OSError, ValueError, AttributeError):  # the reader has gone, the disk is full, or it is closed or none
            with suppress(
                OSError, ValueError, AttributeError
            ):  # pending output would raise an error when the program ends
                number = self._stream.fileno()
                with open(os.devnull, "wb") as null:
                    os.dup2(null.fileno(), number)


class Signalled(KeyboardInterrupt):
    """The run received a signal to end. number: the signal's number."""

    def __init__(self, number: int):
        super().__init__()
        self.number = signal.Signals(number)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this block with an exception, as Ctrl-C does, so that everything is cleaned up.

    Only the first signal counts: pressing Ctrl-C again does not interrupt the clean-up. Signals that were ignored from
    the beginning, such as SIGHUP under `nohup`, stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
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
