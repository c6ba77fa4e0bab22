"""Limits for a learner's answer: its time, its memory, its ways to exit, and its side effects.

`limited` runs a job in its own thread and ends it when its time is up or an interrupt arrives. `undisturbed` restores
the process.
"""

import builtins
import contextlib
import ctypes
import getpass
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, no_type_check

import numpy as np
import torch

from course_lib.device import chosen, on

MEMORY = 4 << 30  # bytes that an answer may take beyond what the process has
PATIENCE = 2.0  # seconds during which a thread is asked to stop
BUSY = 3  # on a busy machine, an answer may take this many times its limit in wall-clock time
WORKER = "a learner's answer"  # the name of the thread
OURS = str(Path(__file__).parents[1]) + os.sep

# --- time -------------------------------------------------------------------------------------------------------------


@no_type_check  # here and below: wrappers that check annotations would add frames to the learner's
class Stop(BaseException):
    """The exception thrown into a thread whose time is up.

    A bare `except:` in the learner's loop catches it. Creating this exception therefore sets a trap in the learner's
    frames: the next line that runs there, already outside that `try`, raises another one.
    """

    def __init__(self):
        theirs: list[FrameType] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith(OURS):
            theirs.append(frame)
            frame = frame.f_back
        if frame is not None:  # otherwise the thread is already ending
            for frame in theirs:
                frame.f_trace = _trap
            sys.settrace(_no_trace)


@no_type_check
def _no_trace(frame, event, argument):
    """Set no traps in functions called from now on: the calls on the way out are ours."""


@no_type_check
def _trap(frame, event, argument):
    if event == "line":
        raise Stop
    return _trap


class Interrupted(KeyboardInterrupt):
    """An interrupt from the keyboard while a job ran. stopped: whether the job ended; if not, its thread still runs."""

    def __init__(self, stopped: bool):
        super().__init__()
        self.stopped = stopped


Tell = Callable[[float, str], None]  # the most seconds that a job may take, and its progress
_tell: ContextVar[Tell] = ContextVar("tell", default=lambda most, so_far: None)


@contextlib.contextmanager
def tell_while_waiting(tell: Tell) -> Iterator[None]:
    """Call `tell` about twenty times a second while this thread waits for a job."""
    before = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(before)


def still_running(most: float, so_far: str) -> None:
    """Report that a job is running: the most seconds it may take, and its progress."""
    _tell.get()(most, so_far)


def limited(job: Callable[[], None], seconds: float, so_far: Callable[[], str] = str) -> str:
    """Run `job` in its own thread. Return "done", "stopped" (its time was up) or "lost" (it would not stop).

    Args:
        seconds: of the thread's own computing, if the system counts it, so that a busy machine makes no answer fail:
            while the thread waits for a core, its clock stands still. `told` explains this to the learner.
        so_far: returns the progress of the job ("2 of 11 cases"), for display during the wait.
    Errors: Interrupted, once the thread has been asked to stop.
    """

    def work():
        if _COUNTED:
            clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        try:
            try:
                with on(chosen()):  # a thread has defaults of its own
                    job()
                finished.append(True)
            finally:
                left.append(True)
                sys.settrace(None)
        except Stop:  # a second one may arrive on the way out and must not end the thread with an error
            pass

    finished: list[bool] = []
    left: list[bool] = []  # the job has ended in some way: there is nothing left to stop
    clocks: list[int] = []  # the worker's clock
    worker = threading.Thread(target=work, name=WORKER, daemon=True)
    interrupted = False
    worker.start()
    try:
        end = time.monotonic() + seconds * (BUSY if _COUNTED else 1)
        while (
            worker.is_alive() and time.monotonic() < end + _seconds_waited(worker) and _seconds_used(clocks) < seconds
        ):
            worker.join(0.05)
            still_running(seconds, so_far())
    except KeyboardInterrupt:
        interrupted = True
    finally:
        stopped = _stop(worker, left)
    if interrupted:
        raise Interrupted(stopped)
    return "done" if finished else "stopped" if stopped else "lost"


def told(seconds: float) -> tuple[str, str]:
    """Return the limit of `limited` in words, and a sentence about the time that does not count, if any."""
    if not _COUNTED:
        return f"{seconds:g} seconds", ""
    uncounted = "Time in which other programs used the processor does not count, so the real time may be longer."
    return f"{seconds:g} seconds of computing, or {seconds * BUSY:g} with waiting", uncounted


def inside_an_answer() -> bool:
    """Return whether this thread runs an answer. If so, the answer has called `check`."""
    return threading.current_thread().name == WORKER


_COUNTED = hasattr(time, "pthread_getcpuclockid")  # Linux


def _seconds_used(clocks: list[int]) -> float:
    """Return a thread's computing time without sleeping and waiting, or 0 if the system does not provide it."""
    try:
        return time.clock_gettime(clocks[0]) if clocks else 0.0
    except OSError:  # the thread has ended
        return 0.0


def _seconds_waited(worker: threading.Thread) -> float:
    """Return the time for which a thread was ready but had no core, or 0 if the system does not provide it."""
    try:
        return int(Path(f"/proc/self/task/{worker.native_id}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):  # not Linux, or the thread has ended
        return 0.0


def _stop(worker: threading.Thread, left: list[bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while worker.is_alive() and time.monotonic() < end:
        with contextlib.suppress(KeyboardInterrupt):  # impatient users press the keys twice
            if not left and worker.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident), ctypes.py_object(Stop))
            worker.join(0.02)
    return not worker.is_alive()


# --- the process ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the process after an answer has run: exits, streams, settings and random states."""
    settings = torch.get_default_dtype(), torch.get_num_threads(), torch.get_deterministic_debug_mode()
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    streams, limit, folder = (sys.stdout, sys.stderr), sys.getrecursionlimit(), os.getcwd()
    try:
        torch.set_num_threads(1)  # two threads would mostly wait for each other while another notebook computes
        with exits_closed(), _memory_limited(), on(chosen()), torch.enable_grad():
            yield
    finally:
        sys.stdout, sys.stderr = streams
        sys.setrecursionlimit(limit)
        os.chdir(folder)
        torch.set_default_dtype(settings[0])
        if torch.get_num_threads() != settings[1]:
            torch.set_num_threads(settings[1])
        torch.set_deterministic_debug_mode(settings[2])
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


@contextlib.contextmanager
def exits_closed() -> Iterator[None]:
    """Make `os._exit`, `exit`, `quit` (including IPython's), `input` and `getpass` raise an error.

    Processes that an answer forks may still end in any way.
    """
    here, real_exit = os.getpid(), os._exit

    def no_hard_exit(code: int) -> None:
        real_exit(code) if os.getpid() != here else _no_exit()

    doors = [(os, "_exit", no_hard_exit), (os, "abort", _no_exit), (builtins, "input", _no_input)]
    doors += [(getpass, "getpass", _no_input)]
    doors += [(builtins, name, _no_exit) for name in ("exit", "quit")]
    if "IPython.core.autocall" in sys.modules:
        autocall = sys.modules["IPython.core.autocall"]
        doors += [(kind, "__call__", _no_exit) for kind in (autocall.ExitAutocall, autocall.ZMQExitAutocall)]
    absent = object()
    before = [(place, name, getattr(place, name, absent)) for place, name, _ in doors]
    for place, name, replacement in doors:
        setattr(place, name, replacement)
    try:
        yield
    finally:
        for place, name, original in before:
            delattr(place, name) if original is absent else setattr(place, name, original)


@contextlib.contextmanager
def _memory_limited() -> Iterator[None]:
    """Turn an absurd allocation into a MemoryError instead of the end of the kernel (on Linux)."""
    try:
        import resource

        if torch.cuda.is_available():  # the driver of a GPU maps far more addresses than it uses
            raise OSError
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, OSError):  # Windows, macOS, a GPU
        yield
        return
    room = taken + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (room if soft == resource.RLIM_INFINITY else min(room, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class Exit(BaseException):
    """The exception raised instead of ending the process."""


def _no_exit(*_: Any, **__: Any) -> None:
    raise Exit


def _no_input(*_: Any, **__: Any) -> None:
    raise RuntimeError("input() and getpass() cannot be used while an answer is being checked")
