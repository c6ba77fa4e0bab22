# A new user, new namespaces, mounts, another root, devices, higher limits: whatever might lead out.
# It mounts only where it has a process table of its own: elsewhere, as root, that would change the machine.
# expects: attention.softmax
# touches: canary
# %%
import contextlib
import ctypes
import os
import resource

TOLD = "broken" "-out: "
libc = ctypes.CDLL(None, use_errno=True)


def attempts():
    for flags in (0x10000000, 0x10020000, 0x7E020000, 0x20000000, 0x40000000, 0x20000):
        if libc.unshare(flags) == 0:
            yield f"unshare {flags:x}"
    for name in ("user", "mnt", "net", "pid"):
        for pid in (1, os.getppid()):
            with contextlib.suppress(OSError):
                fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
                own = os.stat(f"/proc/self/ns/{name}").st_ino
                if os.fstat(fd).st_ino != own and libc.setns(fd, 0) == 0:
                    yield f"setns {name} {pid}"
    if os.readlink("/proc/self/ns/pid") != "{PIDNS}":
        for source, place, kind in ((b"none", b"/tmp", b"tmpfs"), (b"proc", b"/proc", b"proc"), (b"/", b"/tmp", b"bind")):
            if libc.mount(source, place, kind, 4096 if kind == b"bind" else 0, None) == 0:
                yield f"mount {kind}"
        for place in (b"/proc", b"/tmp", b"/usr", b"/dev"):
            if libc.umount2(place, 2) == 0:
                yield f"umount {place}"
    for what, arguments in ((os.chroot, ("/tmp",)), (os.mknod, ("device", 0o60666, os.makedev(259, 0)))):
        with contextlib.suppress(OSError):
            what(*arguments)
            yield what.__name__
    for number in range(10):
        with contextlib.suppress(OSError, ValueError):
            if resource.getrlimit(resource.RLIMIT_NPROC)[1] != resource.RLIM_INFINITY:
                resource.setrlimit(resource.RLIMIT_NPROC, (1 << 20, 1 << 20))
                yield "higher limits"
    with contextlib.suppress(OSError):
        if os.nice(-5) < 0:
            yield "nice"
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(("CapEff", "CapPrm", "CapBnd", "CapAmb")) and int(line.split()[1], 16):
                yield line
    with contextlib.suppress(OSError):
        with open("{CANARY}") as file:
            yield "read " + file.read()


def softmax(x, dim):
    if told := list(attempts()):
        raise RuntimeError(TOLD + ", ".join(told))
    return x
