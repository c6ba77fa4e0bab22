"""What can be read of a hand-in that is not as it should be: each saving is said, and `--salvage no` does none of it.

Nothing is guessed of what a learner meant: what is read stands in the file, in a form whose meaning is certain.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Literal

COPY = re.compile(r"(?: \(theirs\)|-Copy[0-9]+|[ _-]?\([0-9]+\)|-[0-9])+$")  # JupyterLab's, a browser's, Canvas's
THEIRS = " (theirs)"
MOST_VERSIONS = 3  # of one notebook that are graded, the last ones
MOST_CONFLICTS = 1_000
TEXT_NOTEBOOK = re.compile(r"\.ipynb\.(?:txt|json)$", re.IGNORECASE)  # what some browsers and mail programs make of it
PERCENT = re.compile(r"^#[ \t]*%%(.*)$", re.MULTILINE)
TELLS = {  # what is not read, and what to do about it
    ".html": "is a printed page: the notebook itself is wanted (File > Download in JupyterLab)",
    ".pdf": "is a printed page: the notebook itself is wanted (File > Download in JupyterLab)",
    ".md": "is Markdown: the notebook itself is wanted (.ipynb)",
    ".py": "defines no answer of the course: the notebook itself is wanted (.ipynb)",
}


def sides(data: bytes) -> list[bytes]:
    """Return both sides of a file with Git's conflict markers, ours and theirs; nothing if it has none, or broken ones.

    What stood there before both, which `diff3` shows between them, is nobody's.
    """
    if not (data.startswith(b"<<<<<<< ") or b"\n<<<<<<< " in data):
        return []
    ours: list[bytes] = []
    theirs: list[bytes] = []
    both = (ours, theirs)
    kept: tuple[list[bytes], ...] = both
    conflicts = 0
    for line in data.split(b"\n"):
        start = line[:7]
        if start == b"<<<<<<<":
            if kept is not both:
                return []  # one inside another
            kept, conflicts = (ours,), conflicts + 1
        elif start == b"|||||||" and len(kept) == 1 and kept[0] is ours:
            kept = ()
        elif line.rstrip() == b"=======" and kept is not both and (not kept or kept[0] is ours):
            kept = (theirs,)
        elif start == b">>>>>>>" and len(kept) == 1 and kept[0] is theirs:
            kept = both
        else:
            for side in kept:
                side.append(line)
    if kept is not both or conflicts > MOST_CONFLICTS:
        return []
    return [b"\n".join(ours), b"\n".join(theirs)]


def cells_of_script(text: str) -> list[tuple[Literal["code", "raw"], str]]:
    """Return the cells of a Python file as (kind, source): those of the percent format, or one."""
    head, *parts = PERCENT.split(text)
    cells: list[tuple[Literal["code", "raw"], str]] = [("code", head)]
    for mark, source in zip(parts[::2], parts[1::2]):
        cells.append(("code" if "[markdown]" not in mark and "[raw]" not in mark else "raw", source))
    return [(kind, source.strip("\n")) for kind, source in cells if source.strip()]


def versions(paths: Sequence[str]) -> list[list[int]]:
    """Return the places of the paths in groups: versions of one notebook, `x.ipynb` and `x (1).ipynb`, are one."""
    groups: dict[str, list[int]] = {}
    for place, path in enumerate(paths):
        stem = re.sub(r"\.ipynb(?= \(theirs\)$|$)", "", path, flags=re.IGNORECASE)
        groups.setdefault(COPY.sub("", stem), []).append(place)
    return list(groups.values())


def as_notebook(cells: Iterable[tuple[str, str]]) -> str:
    """Return a notebook of these cells, (kind, source), as `%run` reads it."""
    made: list[dict[str, object]] = [
        {"cell_type": kind, "metadata": {}, "source": source}
        | ({"outputs": [], "execution_count": None} if kind == "code" else {})
        for kind, source in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 2})


def python_version(data: bytes) -> tuple[int, ...]:
    """Return the version of Python that a notebook's metadata name, (3, 12); () if none."""
    found = re.search(
        rb'"language_info"\s*:\s*\{[^{}]*(?:\{[^{}]*\}[^{}]*)?"version"\s*:\s*"(\d{1,2})\.(\d{1,3})', data
    )
    return tuple(map(int, found.groups())) if found else ()
