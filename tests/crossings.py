"""What crosses between the CPU and the pretend device, and at which lines: a table at the end of a run of notebooks.

A kernel may be killed at any time, so it appends each crossing to a file, and the run counts the lines of the files.
"""

import linecache
import os
import sys
from collections import Counter
from functools import cache
from pathlib import Path

FILE = "COURSE_CROSSINGS"  # the environment variable with the file of a kernel's notebook
HELPERS = ("course_lib/device.py", "course_lib/checks.py")  # they move and read tensors for their callers
SHOWN = 3  # lines per notebook


def count(way: str) -> None:
    """Append a crossing, "in" (from the CPU) or "out" (to the CPU, single numbers included), and the line it is for."""
    frame = sys._getframe(1) if os.environ.get(FILE) else None
    while frame and not (place := named(frame.f_code.co_filename, frame.f_lineno)):
        frame = frame.f_back
    if frame:
        opened(os.environ[FILE]).write(f"{way} {place}\n")


@cache
def named(file: str, number: int) -> str:
    """Return a line's name if it is of the library or of a cell."""
    if "/ipykernel_" in file:
        return f"cell: {linecache.getline(file, number).strip()}"
    _, course, path = file.rpartition("course_lib/")
    return f"{path}:{number}" if course and not file.endswith(HELPERS) else ""


@cache
def opened(file: str):
    return open(file, "a", buffering=1, encoding="utf-8")


def table(folder: Path) -> list[str]:
    """Return a line per notebook: its crossings in and out, and the lines with the most of them."""
    lines = [f"\n{'crossings to and from the device':<32}{'in':>9}{'out':>9}  most of them at"]
    for path in sorted(folder.iterdir()):
        each = [line.partition(" ")[::2] for line in path.read_text("utf-8").splitlines()]
        ways, places = Counter(way for way, _ in each), Counter(place for _, place in each)
        worst = " · ".join(f"{place} {times:,}" for place, times in places.most_common(SHOWN))
        lines.append(f"{path.name:<32}{ways['in']:>9,}{ways['out']:>9,}  {worst}")
    return lines if len(lines) > 1 else []
