"""One line while a long check runs: in a notebook and in a terminal, and gone when the result comes.

Where output is kept to be compared (a notebook that is run as a file, a log) the line leaves nothing behind.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from .limits import tell_while_waiting

PATIENCE = 2.0  # seconds without a word
EVERY = 1.0  # seconds from one line to the next
CLEAR = "\r\x1b[K"  # to the beginning of a terminal's line, and it is empty
Show = Callable[[str], None]  # "" takes the line away


@contextlib.contextmanager
def told_while_it_runs(exercise_id: str) -> Iterator[None]:
    """Say after two seconds, and then now and again, that the check of an exercise still runs, and how far it is."""
    begun = time.monotonic()
    next_line = begun + PATIENCE
    show: Show | None = None

    def tell(most: float, so_far: str) -> None:
        nonlocal next_line, show
        now = time.monotonic()
        if now < next_line:
            return
        next_line = now + EVERY
        with contextlib.suppress(Exception):  # a line that cannot be shown must not spoil the check
            show = show or _place()
            show(line(exercise_id, now - begun, most, so_far))

    try:
        with tell_while_waiting(tell):
            yield
    finally:
        if show:
            with contextlib.suppress(Exception):
                show("")


def line(exercise_id: str, ran: float, most: float, so_far: str = "") -> str:
    """Return the line. ran, most: seconds; most of computing, which on a busy machine takes longer by the clock."""
    far = f"{so_far} so far; " if so_far else ""
    stop = "Stop it with ■ (interrupt)" if _kernel() else "Stop it with Ctrl+C"
    return f"Checking {exercise_id} for {ran:.0f} s: {far}at most {most:.3g} s of computing. {stop}."


def _kernel() -> object:
    """The kernel of the notebook in which this runs, if there is one."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None)


def _place() -> Show:
    if _kernel():
        return _in_the_notebook()
    return _in_the_terminal(sys.stderr) if sys.stderr.isatty() else lambda text: None


def _in_the_notebook() -> Show:
    """An output that begins empty and ends empty: who keeps outputs, or compares them, sees nothing there."""
    from IPython.display import display

    handle = display({}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text} if text else {}, raw=True)


def _in_the_terminal(stream) -> Show:
    def show(text: str) -> None:
        stream.write(CLEAR + text)
        stream.flush()

    return show
