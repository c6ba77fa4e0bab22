"""Make a control group for each slot where possible, so that the kernel itself counts and limits its resources.

This needs version 2 and a delegated group: in a container, or with
`systemd-run --user --scope -p Delegate=yes python -m course_lib grade …`. Otherwise `watcher` counts.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

from course_lib.classroom.sandbox.quotas import Quotas

ROOT, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
NEEDED, WANTED = {"memory", "pids"}, ("cpu",)  # controllers; cpu divides the cores equally among slots
LEAF, SLOT = "course-grader", "course-slot-"  # a group with subgroups cannot contain processes: ours move to a leaf
HELD = 16  # allowance for a slot's processes that are not the learner's


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
