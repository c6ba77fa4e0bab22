"""One line during a long check, in a notebook or a terminal. It disappears when the result comes.

If output is saved for comparison (a notebook run as a file, a log), the line leaves no trace.
"""

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from course_lib.grading.judge.limits import tell_while_waiting

PATIENCE = 2.0  # seconds before the first line
EVERY = 1.0  # seconds from one line to the next
CLEAR = "\r\x1b[K"  # move to the beginning of a terminal's line and clear it
Show = Callable[[str], None]  # "" removes the line


@contextlib.contextmanager
def told_while_it_runs(exercise_id: str) -> Iterator[None]:
    """Report after two seconds, and then regularly, that the check of an exercise is still running, and its
    progress."""
    stderr = sys.stderr  # another stream replaces it while an answer runs
    begun = time.monotonic()
    next_line = begun + PATIENCE
    show: Show | None = None

    def tell(most: float, so_far: str) -> None:
        nonlocal next_line, show
        now = time.monotonic()
        if now < next_line:
            return
        next_line = now + EVERY
        with contextlib.suppress(Exception):  # a line that cannot be shown must not affect the check
            show = show or _place(stderr)
            show(line(exercise_id, now - begun, most, so_far))

    try:
        with tell_while_waiting(tell):
            yield
    finally:
        if show:
            with contextlib.suppress(Exception):
                show("")


def line(exercise_id: str, ran: float, most: float, so_far: str = "") -> str:
    """Return the line. ran, most: seconds; `most` is computing time, and a busy machine takes longer by the clock."""
    far = f"{so_far} so far, " if so_far else ""
    key = "■ (interrupt)" if _kernel() else "Ctrl+C"
    return f"Checking {exercise_id} for {ran:.0f} s: {far}at most {most:.3g} s of computing. {key} stops it."


def _kernel() -> object:
    """Return the kernel of the notebook in which this runs, if there is one."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None)


def _place(stderr: TextIO) -> Show:
    if _kernel():
        return _in_the_notebook()
    return _in_the_terminal(stderr) if stderr.isatty() else lambda text: None


def _in_the_notebook() -> Show:
    """Return a function for an output that begins empty and ends empty, so that saved outputs contain nothing of it."""
    from IPython.display import display

    handle = display({}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text} if text else {}, raw=True)


def _in_the_terminal(stream: TextIO) -> Show:
    def show(text: str) -> None:
        stream.write(CLEAR + text[: shutil.get_terminal_size().columns - 1])  # a second row could not be cleared
        stream.flush()

    return show
