"""What a run says on its terminal, which must never end it."""

import os
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
