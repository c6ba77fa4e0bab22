# Environments, command lines, memory and open files of every process that it can see, parents first.
# expects: attention.softmax
# touches: canary
# %%
import contextlib
import ctypes
import glob
import os

TOLD = "broken" "-out: "


def contents():
    for place in [f"/proc/{os.getppid()}", "/proc/1", "/proc/{RUNNER}", *glob.glob("/proc/[0-9]*")]:
        for name in ("environ", "auxv", "maps", "stack", "task/1/environ"):
            with contextlib.suppress(OSError):
                with open(f"{place}/{name}", "rb") as file:
                    text = file.read(1 << 20)
                    if b"COURSE_CANARY" in text:
                        yield place + name, text[text.index(b"COURSE_CANARY") :][:200]
        if not place.endswith(f"/{os.getpid()}"):
            with contextlib.suppress(OSError):
                os.close(os.open(f"{place}/mem", os.O_RDWR))
                yield f"{place}/mem", b"opens"
            for link in glob.glob(f"{place}/fd/*"):
                with contextlib.suppress(OSError):
                    yield link, os.readlink(link).encode()
    for place in ("/proc/kcore", "/dev/mem", "/dev/kmsg", "/proc/sysrq-trigger", "/dev/vda", "/dev/sda"):
        with contextlib.suppress(OSError):
            os.close(os.open(place, os.O_RDONLY | os.O_NONBLOCK))
            yield place, b"opens"
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in {os.getppid(), 1, {RUNNER}} - {os.getpid()}:
        if libc.ptrace(0x4206, pid, 0, 0) == 0:  # PTRACE_SEIZE, which does not stop it
            yield f"ptrace {pid}", b"attaches"


def softmax(x, dim):
    told = [f"{place} {text!r}" for place, text in contents()]
    if told:
        raise RuntimeError(TOLD + "; ".join(told[:5]))
    return x
