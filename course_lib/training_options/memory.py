"""Memory: keep freed memory for the next update instead of returning it to the system.

Chapter 14. An update frees its activations and gradients, and the next update needs the same amount again. The C
library of Linux (glibc) returns large pieces to the system at once. The system then clears every page before it lends
it again, and this takes about a tenth of an update on a CPU.
"""

import ctypes
import os
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's numbers for two parameters of mallopt (malloc.h)
LARGE = 1 << 30  # bytes: freed memory is returned only if it is more than this
SETTING = "COURSE_KEEP_MEMORY"


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees until it ends, and return whether it does.

    The process then holds the largest amount that it has used so far. Results do not change. Without glibc nothing
    happens. COURSE_KEEP_MEMORY=0 in the environment prevents it.
    """
    if not _is_possible():
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(MMAP_THRESHOLD, LARGE) and libc.mallopt(TRIM_THRESHOLD, LARGE))


def keeping_freed_memory() -> dict[str, str]:
    """Return the environment variables that do the same for a program that starts with them; empty if impossible."""
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
    return dict.fromkeys(names, str(LARGE)) if _is_possible() else {}


def _is_possible() -> bool:
    return os.environ.get(SETTING) != "0" and platform.libc_ver()[0] == "glibc"
