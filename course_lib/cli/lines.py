"""Progress where no terminal shows it, as in a log: whole lines, rarely."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

SECONDS = 30.0  # at least, between two lines of progress


class Lines:
    """A stream that keeps what a bar writes over itself, after a carriage return, and passes on its last state: when
    the bar ends its line, and in between at most once in `SECONDS`. Everything else goes through as it is."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic):
        self._stream, self._clock = stream, clock
        self._written = clock()
        self._state: str | None = None  # of a bar, in the line that is being written; None: no bar writes there
        self._said = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        for part in re.split(r"([\r\n])", text.replace("\x1b[A", "")):  # [A: up a line, which only a terminal can
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
    """Let every bar in this block write whole lines where standard error is no terminal."""
    before = sys.stderr
    if before is not None and not before.isatty():  # None where there is no console
        sys.stderr = Lines(before)
    try:
        yield
    finally:
        sys.stderr = before
