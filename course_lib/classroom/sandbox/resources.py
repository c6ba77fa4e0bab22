"""Measure and limit the resources of a slot's processes.

Where possible, each slot gets a control group (`Group`), so that the kernel itself counts and limits its resources.
This needs version 2 and a delegated group: in a container, or with
`systemd-run --user --scope -p Delegate=yes python -m course_lib grade …`.

A separate thread (`Watcher`) measures, even while the grader judges answers. Without a control group, the sum includes
the processes' share of memory pages, the files in their /tmp and /dev/shm, and the largest possible content of their
sockets.
"""

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from course_lib.classroom.sandbox.quotas import Quotas

ROOT, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
NEEDED, WANTED = {"memory", "pids"}, ("cpu",)  # controllers; cpu divides the cores equally among slots
LEAF, SLOT = "course-grader", "course-slot-"  # a group with subgroups cannot contain processes: ours move to a leaf
HELD = 16  # allowance for a slot's processes that are not the learner's
LOOKING = 0.25  # seconds between measurements
CLOSELY = 10.0  # seconds between exact measurements of memory, while it is clearly below the limit
MOST_OWED = 5.0  # maximum waiting time, in seconds, that a later measurement may still subtract
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
SOCKET = 212_992  # bytes that a socket can contain, if the kernel does not report it


class Group:
    """The control group of a slot. folder: its folder. `make_group` makes it, and `close` removes it."""

    def __init__(self, folder: Path):
        self.folder = folder

    def joined(self, command: list[str]) -> list[str]:
        """Return a command that enters the group before it runs, so that all its processes are inside."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs"), *command]

    def processes(self) -> list[int]:
        return [int(each) for each in self._read("cgroup.procs").split()]

    def memory(self) -> int:
        """Return the bytes in use by processes, files in memory, sockets and the kernel on their behalf."""
        return int(self._read("memory.current") or 0)

    def killed(self) -> int:
        """Return how many processes of the group the kernel has killed for lack of memory."""
        return int(dict(line.split() for line in self._read("memory.events").splitlines()).get("oom_kill", 0))

    def close(self) -> None:
        """End the remaining processes and remove the group; after the last group, also the leaf."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")  # from Linux 5.14
        deadline = time.monotonic() + 5
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        with contextlib.suppress(OSError):
            self.folder.rmdir()
            _leave(self.folder.parent)

    def _read(self, name: str) -> str:
        try:
            return (self.folder / name).read_text()
        except OSError:  # the group no longer exists
            return ""


def delegated_group(root: Path = ROOT, membership: Path = MEMBERSHIP) -> Path | None:
    """Return the group in which this process may make others; None if there is none."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:  # not Linux
        return None
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if own is None or ".." in own:  # not version 2, or outside the part that this container sees
        return None
    folder = root / own.lstrip("/")
    folder = folder.parent if folder.name == LEAF else folder
    try:
        has = set((folder / "cgroup.controllers").read_text().split())
    except OSError:
        return None
    may_write = all(os.access(folder / name, os.W_OK) for name in ("", "cgroup.procs", "cgroup.subtree_control"))
    # Root may write anywhere, but groups that systemd has not delegated are left to systemd.
    given = os.geteuid() != 0 or folder == root or _marked(folder)
    return folder if has >= NEEDED and may_write and given else None


def make_group(quotas: Quotas, slot: int, within: Path) -> Group:
    """Make a slot's group below `within`, limited to these quotas. Errors: OSError."""
    _enable(within)
    folder = within / f"{SLOT}{os.getpid()}-{slot}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    try:
        (folder / "memory.max").write_text(str(quotas.tree))
        (folder / "pids.max").write_text(str(quotas.processes + HELD))
        with contextlib.suppress(OSError):  # a kernel that does not count swap
            (folder / "memory.swap.max").write_text("0")
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise
    return Group(folder)


def _enable(folder: Path) -> None:
    control = folder / "cgroup.subtree_control"
    on, has = set(control.read_text().split()), (folder / "cgroup.controllers").read_text().split()
    missing = [f"+{name}" for name in (*sorted(NEEDED), *WANTED) if name in has and name not in on]
    if not missing:
        return
    try:
        control.write_text(" ".join(missing))
    except OSError:  # "busy": this group contains processes
        _move(folder, folder / LEAF)
        control.write_text(" ".join(missing))


def _leave(folder: Path) -> None:
    """Undo `_enable` once no slot is left."""
    if (folder / LEAF).is_dir() and not any(folder.glob(f"{SLOT}*")):
        on = (folder / "cgroup.subtree_control").read_text().split()
        (folder / "cgroup.subtree_control").write_text(" ".join(f"-{name}" for name in on))
        _move(folder / LEAF, folder)
        (folder / LEAF).rmdir()


def _move(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for pid in (source / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            (target / "cgroup.procs").write_text(pid)


def _marked(folder: Path) -> bool:
    """Return whether systemd has delegated this group."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError, AttributeError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


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
