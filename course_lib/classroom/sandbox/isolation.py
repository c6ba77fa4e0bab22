"""Isolate learners' processes from each other inside the sandbox, with the Linux kernel's help.

Bubblewrap isolates the sandbox from the machine. Inside, a worker forks a child for every notebook, so torch is loaded
once. The child gets its own namespaces and empty folders to write to, and loses the means to leave them. Landlock
(`restrict_files`) is for level "none", which has no bubblewrap. The numbers come from linux/sched.h, linux/prctl.h and
linux/landlock.h.
"""

import contextlib
import ctypes
import os
import signal
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

try:
    import resource
except ImportError:  # Windows, where `require_platform` explains the error
    resource = None  # type: ignore[assignment]

NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
NOSUID_NODEV = 2 | 4
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 36, 38
SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
# System calls that no notebook needs: memory that belongs to no process (memfd_create, memfd_secret, shmget, msgget,
# semget, mq_open, io_uring_setup), other processes' memory (ptrace, process_vm_readv, process_vm_writev, pidfd_getfd),
# changes of isolation (unshare, setns, mount, umount2, pivot_root, chroot), keys (add_key, request_key, keyctl), calls
# with past kernel vulnerabilities (bpf, perf_event_open, userfaultfd), and watching files that others open
# (inotify_add_watch, fanotify_init).
DENIED = {
    "x86_64": "319 447 29 68 64 240 425 101 310 311 438 272 308 165 166 155 161 248 249 250 321 298 323 254 300",
    "aarch64": "279 447 194 186 190 180 425 117 270 271 438 97 268 40 39 41 51 217 218 219 280 241 282 27 262",
}
# System calls that do nothing but report success. A lock on a shared file would be a signal to other learners (flock),
# and a slot may not choose its own cores (sched_setaffinity).
PRETENDED = {"x86_64": "73 203", "aarch64": "32 122"}
# Allowed calls with some forbidden arguments. fcntl: lock holders (F_GETLK, F_OFD_GETLK), leases and notifications on
# others' files, larger pipes (F_SETPIPE_SZ). setsockopt at socket level: larger buffers (SO_SNDBUF, SO_RCVBUF, and both
# FORCE), whose memory would belong to no process.
FCNTL, FCNTL_DENIED = {"x86_64": 72, "aarch64": 25}, (5, 36, 1024, 1025, 1026, 1031)
SETSOCKOPT, BUFFERS = {"x86_64": 54, "aarch64": 208}, (7, 8, 32, 33)
# Allowed socket families: Unix (1), IPv4 (2), IPv6 (10) and netlink (16), which a network namespace isolates. It does
# not isolate those of virtual machines (AF_VSOCK), of the kernel's ciphers, of Bluetooth and of others.
SOCKET, SOCKET_FAMILIES = {"x86_64": 41, "aarch64": 198}, (1, 2, 10, 16)
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446  # the same on every architecture
LIST = 8  # list a folder
READ = 1 | 4 | LIST  # execute or read a file
_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


def _require_success(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _prctl(option: int, value: int) -> None:
    _require_success(_libc.prctl(option, value, 0, 0, 0), f"prctl {option}")


def unshare_namespaces() -> None:
    """Give this process its own namespaces; its next child is the first process in them.

    Errors: OSError where the kernel or a surrounding container forbids it.
    """
    user, group = os.getuid(), os.getgid()
    _require_success(_libc.unshare(NAMESPACES), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path(f"/proc/self/{name}").write_text(text)


def mount_private_folders(disk: int) -> None:
    """Mount fresh /tmp, /dev/shm and /proc over the old ones, in the first process after `unshare_namespaces`.

    Args:
        disk: size of /tmp in bytes.
    """
    for folder, kind, options in (
        ("/tmp", "tmpfs", f"size={disk},nr_inodes=10000"),
        ("/dev/shm", "tmpfs", f"size={disk // 4},nr_inodes=1000"),
        ("/proc", "proc", ""),
    ):
        mounted = _libc.mount(kind.encode(), folder.encode(), kind.encode(), NOSUID_NODEV, options.encode())
        _require_success(mounted, f"mounting {folder}")
    Path("/proc/sys/user/max_user_namespaces").write_text("0")  # no nested namespaces


def drop_capabilities() -> None:
    """Give up every capability, and any way to gain new ones."""
    for capability in range(64):
        if _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    head, none = struct.pack("Ii", 0x20080522, 0), bytes(24)  # version 3, this process; all sets are empty
    _require_success(_libc.syscall(SYS_CAPSET[os.uname().machine], head, none), "capset")
    no_new_privileges()


def deny_system_calls() -> None:
    """Restrict system calls for this process and its children from now on.

    The calls in `DENIED` return "not permitted", those in `PRETENDED` do nothing, and sockets outside `SOCKET_FAMILIES`
    return "not supported". On an architecture with unknown call numbers, nothing changes.
    Errors: OSError where the kernel has no seccomp.
    """
    machine = os.uname().machine
    if machine not in DENIED:
        return
    kill, pretend, refuse, unknown, allow = 0x80000000, 0x00050000, 0x00050000 | 1, 0x00050000 | 97, 0x7FFF0000
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, AUDIT_ARCH[machine]), (_GIVE, 0, 0, kill), (_LOAD, 0, 0, 0)]
    program += [(_ABOVE, 0, 1, 0x40000000), (_GIVE, 0, 0, kill)]  # x86-64's 32-bit call numbers
    for numbers, verdict in ((DENIED, refuse), (PRETENDED, pretend)):
        for number in map(int, numbers[machine].split()):
            program += [(_EQUAL, 0, 1, number), (_GIVE, 0, 0, verdict)]
    program += _unless(FCNTL[machine], [(1, FCNTL_DENIED)], refuse)
    program += _unless(SETSOCKOPT[machine], [(1, (1,)), (2, BUFFERS)], pretend)
    program += [(_EQUAL, 1, 0, SOCKET[machine]), (_GIVE, 0, 0, allow), (_LOAD, 0, 0, 16)]  # the family's low half
    for family in SOCKET_FAMILIES:
        program += [(_EQUAL, 0, 1, family), (_GIVE, 0, 0, allow)]
    program.append((_GIVE, 0, 0, unknown))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    whole = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    no_new_privileges()
    _require_success(_libc.prctl(22, 2, ctypes.c_char_p(whole), 0, 0), "seccomp")  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


# Instructions of a classic BPF program: (instruction, jump if true, jump if false, number).
_LOAD, _EQUAL, _ABOVE, _GIVE = 0x20, 0x15, 0x35, 0x06


def _unless(
    number: int, arguments: Iterable[tuple[int, Iterable[int]]], verdict: int
) -> list[tuple[int, int, int, int]]:
    """Return the steps that give a verdict on a system call if each of these arguments has one of these values."""
    steps: list[tuple[int, int, int, int]] = [(_GIVE, 0, 0, verdict)]
    for place, values in reversed(list(arguments)):
        known = list(values)
        # A known value jumps behind all tests; if the last test fails too, skip everything.
        tests = [(_EQUAL, len(known) - i, 0, value) for i, value in enumerate(known, start=1)]
        tests[-1] = (_EQUAL, 0, len(steps), known[-1])
        steps = [(_LOAD, 0, 0, 16 + 8 * place), *tests, *steps]  # the low half of the argument
    return [(_EQUAL, 0, len(steps), number), *steps, (_LOAD, 0, 0, 0)]


def no_new_privileges() -> None:
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Adopt the orphans of a child, so that this process can end them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def set_dumpable(by_others: bool) -> None:
    """Set whether processes of the same user may read this process's memory; a child inherits the setting."""
    _prctl(PR_SET_DUMPABLE, by_others)


def set_rlimits(memory: int, processes: int, file: int, seconds: float) -> None:
    """Limit this process and those it starts: bytes beyond current use, processes, bytes per file, seconds."""
    limit_memory(memory)
    for kind, most in (
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_FSIZE, file),
        (resource.RLIMIT_CPU, int(seconds) + 1),
        (resource.RLIMIT_NOFILE, 128),
        (resource.RLIMIT_CORE, 0),
    ):
        _limit(kind, most)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # the first to be killed if memory runs out


def limit_memory(memory: int) -> None:
    """Limit this process, and each that it starts, to `memory` bytes beyond its current use."""
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _limit(resource.RLIMIT_AS, has + memory)


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def landlock_version() -> int:
    """Return the version of Landlock that the kernel offers; 0 for none."""
    return max(0, _libc.syscall(LANDLOCK_CREATE, None, 0, 1))


def restrict_files(read: Iterable[Path], write: Iterable[Path], listed: Iterable[Path] = ()) -> None:
    """Restrict this process and its children to these files and folders from now on.

    In the `listed` folders, they only see names. TCP and signals to other processes are forbidden.
    Errors: OSError where the kernel has no Landlock.
    """
    version = landlock_version()
    files = (1 << (13 + (version > 1) + (version > 2))) - 1 | ((1 << 15) if version > 4 else 0)
    attributes = struct.pack("QQQ", files, 3 if version > 3 else 0, 3 if version > 5 else 0)
    size = 24 if version > 5 else 16 if version > 3 else 8
    rules = _require_success(_libc.syscall(LANDLOCK_CREATE, attributes, size, 0), "Landlock")
    try:
        for paths, access in ((read, READ), (write, files), (listed, LIST)):
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
                    allowed = access if os.path.isdir(path) else access & (1 | 2 | 4 | (1 << 14 if version > 2 else 0))
                    try:
                        rule = struct.pack("=Qi", allowed, place)
                        _require_success(_libc.syscall(LANDLOCK_ADD, rules, 1, rule, 0), f"Landlock, {path}")
                    finally:
                        os.close(place)
        no_new_privileges()
        _require_success(_libc.syscall(LANDLOCK_RESTRICT, rules, 0), "Landlock")
    finally:
        os.close(rules)
