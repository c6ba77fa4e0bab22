"""What a slot's processes take, looked at by a thread of its own: also while the grader judges what they have answered.

Counted is what the machine has to find for them: their share of the pages of memory that they use, the files in their
/tmp and /dev/shm, and the most that their sockets may hold. Where the kernel keeps the sum itself (`cgroups`), that is
read.
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

LOOKING = 0.25  # seconds from one look to the next
CLOSELY = 10.0  # seconds from one look at the true memory to the next, as long as it cannot be too much
MOST_OWED = 5.0  # seconds for which one waited for a core and that a later look may still take off
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
SOCKET = 212_992  # bytes that a socket holds, where the kernel does not say it


@dataclass(frozen=True)
class Look:
    """What was seen. memory: bytes · processes: how many · killed: those that the kernel has ended for their memory."""

    memory: int
    processes: int
    killed: int = 0


class Meter:
    """Measures a process with all its children.

    Args:
        pid: of the first one, which does not end. most: bytes from a quarter of which on it is looked at closely.
        apart: have they /tmp, /dev/shm and a network of their own, as behind bubblewrap? Otherwise what lies in files
        and sockets is the machine's. group: in which the kernel counts, if there is one.
    """

    def __init__(self, pid: int, most: int, apart: bool, group: Group | None = None):
        self.pid, self.most, self.apart, self.group = pid, most, apart, group
        self.waited = 0.0  # seconds in which they waited for a core that others had
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
        # "rss" counts shared pages in each process; "pss" shares them out, but takes the kernel a fifth of a second: so
        # that is asked when "rss" has grown, as it does with every process that is forked, and now and then.
        now, rss = time.monotonic(), sum(map(_rss, processes))
        self._least = min(self._least, rss)
        if rss - self._least > self.most / 4 or now > self._next or self._memory > self.most:  # that may be over by now
            self._next, self._memory = now + CLOSELY, sum(map(_pss, processes))
        self._memory = min(self._memory, rss)
        return Look(self._memory + (self._outside(processes[-1]) if self.apart and processes else 0), len(processes))

    def _outside(self, pid: int) -> int:
        """Return the bytes that belong to no process: of files in memory, and at most of sockets."""
        held = 0
        for folder in ("tmp", "dev/shm"):
            with contextlib.suppress(OSError):  # it has just ended
                there = os.statvfs(f"/proc/{pid}/root/{folder}")
                held += (there.f_blocks - there.f_bfree) * there.f_frsize
        return held + _sockets(pid) * _most_in_a_socket()

    def _count_waiting(self, processes: Iterable[int]) -> None:
        """Take off the time in which they could have computed and had no core. Who computes as much as one core does
        waits for nothing, however many processes of its own wait beside it."""
        now, (computed, delayed) = time.monotonic(), self._clocks(processes)
        passed, worked = now - self._at, max(0.0, computed - self._computed)
        self._owed = min(MOST_OWED, self._owed + max(0.0, delayed - self._delayed))
        waited = min(self._owed, max(0.0, passed - worked))
        self._owed -= waited
        self.waited += waited
        self._at, self._computed, self._delayed = now, computed, delayed

    @staticmethod
    def _clocks(processes: Iterable[int]) -> tuple[float, float]:
        """Return the seconds for which they have computed, those that have ended included, and waited for a core."""
        ticks = nanoseconds = 0
        for pid in processes:
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                ticks += sum(map(int, fields[11:15]))  # its own and its ended children's
            with contextlib.suppress(OSError, ValueError, IndexError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    nanoseconds += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_bytes().split()[1])
        return ticks / TICK, nanoseconds / 1e9


class Watcher:
    """A thread that measures several times a second, and tells what it saw.

    Args:
        which: says whom it is about to look at; `tell` gets that with what was seen, for by then it may be another.

    `error`: what ended the thread, if anything did: from then on nothing is watched.
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
    """Return a process and all below it, children after their parents."""
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
    """Return a process's share of the memory that it uses; where it does not let itself be looked at, all of it."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(text.partition("\nPss:")[2].split()[0]) << 10
    except ProcessLookupError:
        return 0
    except (OSError, ValueError, IndexError):
        return _rss(pid)


def _sockets(pid: int) -> int:
    """Return how many sockets there are in the network of a process, also those on their way from one to another."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/net/sockstat").read_text().partition("used")[2].split()[0])
    return 0


def _most_in_a_socket() -> int:
    """Return the bytes that a socket may hold: twice what is waiting to be sent, as the kernel counts it. More cannot
    be asked for behind the wall (`isolation`)."""
    with contextlib.suppress(OSError, ValueError):
        return 2 * int(Path("/proc/sys/net/core/wmem_default").read_text())
    return 2 * SOCKET
