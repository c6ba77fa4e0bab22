"""Progress bars without a terminal, for example in a log: complete lines at long intervals."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

SECONDS = 30.0  # the minimum between two lines of progress


class Lines:
    """A stream that thins out the updates of progress bars, which begin with a carriage return.

    It passes on a bar's last state when the bar ends its line, and before that at most once in `SECONDS`. All other
    text passes through unchanged."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic):
        self._stream, self._clock = stream, clock
        self._written = clock()
        self._state: str | None = None  # a bar's text in the current line; None: no bar
        self._said = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        for part in re.split(r"([\r\n])", text.replace("\x1b[A", "")):  # [A moves up a line in a terminal
            if part == "\r":
                self._state = ""
            elif self._state is None:
                self._stream.write(part)
            elif part == "\n":
                self._say()
                self._state = None
            elif part:
                self._state = part
                if self._clock() - self._written >= SECONDS:
                    self._say()
        return len(text)

    def _say(self) -> None:
        line = (self._state or "").rstrip()
        if line and line != self._said:
            self._stream.write(f"{line}\n")
            self._stream.flush()
            self._said, self._written = line, self._clock()


@contextmanager
def whole_lines() -> Iterator[None]:
    """Make every bar in this block write complete lines if standard error is not a terminal."""
    before = sys.stderr
    if before is not None and not before.isatty():  # None without a console
        sys.stderr = Lines(before)
    try:
        yield
    finally:
        sys.stderr = before
