"""Measure the resources of a slot's processes in a separate thread, even while the grader judges answers.

The sum includes the processes' share of memory pages, the files in their /tmp and /dev/shm, and the largest possible
content of their sockets. Where the kernel keeps this sum (`cgroups`), that value is used.
"""

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from course_lib.classroom.sandbox.cgroups import Group

LOOKING = 0.25  # seconds between measurements
CLOSELY = 10.0  # seconds between exact measurements of memory, while it is clearly below the limit
MOST_OWED = 5.0  # maximum waiting time, in seconds, that a later measurement may still subtract
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
SOCKET = 212_992  # bytes that a socket can contain, if the kernel does not report it


@dataclass(frozen=True)
class Look:
    """A measurement. memory: bytes. processes: their number. killed: processes killed by the kernel for memory."""

    memory: int
    processes: int
    killed: int = 0


class Meter:
    """Measures a process with all its children.

    Args:
        pid: the first process, which does not end.
        most: the limit in bytes; exact measurements begin at a quarter of it.
        apart: whether the processes have their own /tmp, /dev/shm and network, as with bubblewrap. Otherwise files and
            sockets may belong to other processes.
        group: the control group in which the kernel counts, if there is one.
    """

    def __init__(self, pid: int, most: int, apart: bool, group: Group | None = None):
        self.pid, self.most, self.apart, self.group = pid, most, apart, group
        self.waited = 0.0  # seconds of waiting for a core
        self._least, self._next, self._memory = math.inf, 0.0, 0
        self._at, self._computed, self._delayed = time.monotonic(), *self._clocks(self.family())
        self._owed = 0.0

    def family(self) -> list[int]:
        """Return the processes, children after their parents."""
        return self.group.processes() if self.group else family(self.pid)

    def look(self) -> Look:
        processes = self.family()
        self._count_waiting(processes)
        if self.group:
            return Look(self.group.memory(), len(processes), self.group.killed())
        # "rss" counts shared pages in each process. "pss" divides them among processes, but takes the kernel a fifth of
        # a second. So "pss" is only read now and then, and when "rss" has grown, as it does with every fork.
        now, rss = time.monotonic(), sum(map(_rss, processes))
        self._least = min(self._least, rss)
        if rss - self._least > self.most / 4 or now > self._next or self._memory > self.most:  # it may have fallen
            self._next, self._memory = now + CLOSELY, sum(map(_pss, processes))
        self._memory = min(self._memory, rss)
        return Look(self._memory + (self._outside(processes[-1]) if self.apart and processes else 0), len(processes))

    def _outside(self, pid: int) -> int:
        """Return the bytes that belong to no process: files in memory, and the maximum content of sockets."""
        held = 0
        for folder in ("tmp", "dev/shm"):
            with contextlib.suppress(OSError):  # it has just ended
                there = os.statvfs(f"/proc/{pid}/root/{folder}")
                held += (there.f_blocks - there.f_bfree) * there.f_frsize
        return held + _sockets(pid) * _most_in_a_socket()

    def _count_waiting(self, processes: Iterable[int]) -> None:
        """Add up the time in which the processes were ready to compute but had no core.

        Processes that fill one core together are not waiting, however many of them queue for it.
        """
        now, (computed, delayed) = time.monotonic(), self._clocks(processes)
        passed, worked = now - self._at, max(0.0, computed - self._computed)
        self._owed = min(MOST_OWED, self._owed + max(0.0, delayed - self._delayed))
        waited = min(self._owed, max(0.0, passed - worked))
        self._owed -= waited
        self.waited += waited
        self._at, self._computed, self._delayed = now, computed, delayed

    @staticmethod
    def _clocks(processes: Iterable[int]) -> tuple[float, float]:
        """Return the seconds for which the processes, including ended ones, have computed, and waited for a core."""
        ticks = nanoseconds = 0
        for pid in processes:
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                ticks += sum(map(int, fields[11:15]))  # its own time, and its ended children's
            with contextlib.suppress(OSError, ValueError, IndexError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    nanoseconds += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_bytes().split()[1])
        return ticks / TICK, nanoseconds / 1e9


class Watcher:
    """A thread that measures several times a second and reports the measurements.

    Args:
        which: returns the number of the measured child. `tell` gets it with the measurement, because another child may
            have replaced it by then.

    `error` is the exception that ended the thread, if any; from then on nothing is measured.
    """

    def __init__(self, meter: Meter, which: Callable[[], int], tell: Callable[[Look, int], None]):
        self.meter, self._which, self._tell, self.error = meter, which, tell, ""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing.wait(LOOKING):
                which = self._which()
                self._tell(self.meter.look(), which)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"


def family(pid: int) -> list[int]:
    """Return a process and all its descendants, children after their parents."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{each}/task"):
                found += map(int, Path(f"/proc/{each}/task/{task}/children").read_bytes().split())
    if len(found) == 1:  # a kernel without CONFIG_PROC_CHILDREN
        with contextlib.suppress(psutil.Error):
            found += [each.pid for each in psutil.Process(pid).children(recursive=True)]
    return found


def _rss(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * PAGE
    except (OSError, IndexError):  # it has just ended
        return 0


def _pss(pid: int) -> int:
    """Return a process's share of the memory that it uses; all of that memory if the process is not readable."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(text.partition("\nPss:")[2].split()[0]) << 10
    except ProcessLookupError:
        return 0
    except (OSError, ValueError, IndexError):
        return _rss(pid)


def _sockets(pid: int) -> int:
    """Return how many sockets the network of a process has, including sockets in transit between processes."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/net/sockstat").read_text().partition("used")[2].split()[0])
    return 0


def _most_in_a_socket() -> int:
    """Return the bytes that a socket may contain: twice the send buffer, as the kernel counts it.

    Processes in the sandbox cannot ask for more (`isolation`).
    """
    with contextlib.suppress(OSError, ValueError):
        return 2 * int(Path("/proc/sys/net/core/wmem_default").read_text())
    return 2 * SOCKET
