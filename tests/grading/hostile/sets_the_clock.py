# Asks to set the clock of the machine, to what it shows, and to nothing at all: who may do that, may do more.
# expects: attention.softmax
# %%
import contextlib
import ctypes
import os
import time

TOLD = "broken" "-out: "
libc = ctypes.CDLL(None, use_errno=True)


def ways():
    number = {"x86_64": 164, "aarch64": 170}.get(os.uname().machine, -1)
    if libc.syscall(number, None, None) == 0:
        yield "settimeofday"
    shown = (ctypes.c_uint * 64)(1)  # ADJ_OFFSET by none
    if libc.adjtimex(shown) >= 0:
        yield "adjtimex"
    for clock in ("/dev/rtc0", "/dev/rtc", "/dev/ptp0"):
        with contextlib.suppress(OSError):
            os.close(os.open(clock, os.O_RDONLY))
            yield clock


def softmax(x, dim):
    if found := list(ways()):
        raise RuntimeError(TOLD + ", ".join(found))
    return x
