"""What can be read of a hand-in that is not as it should be: each saving is said, and `--salvage no` does none of it.

Nothing is guessed of what a learner meant: what is read stands in the file, in a form whose meaning is certain.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence

COPY = re.compile(r"(?: \(theirs\)|-Copy[0-9]+|[ _-]?\([0-9]+\)|-[0-9])+$")  # JupyterLab's, a browser's, Canvas's
THEIRS = " (theirs)"
ABOVE = "Python runs nothing of a cell with a syntax error, so {names}, which are complete above it, did not run"
MOST_VERSIONS = 3  # of one notebook that are compared, the last ones
MOST_CONFLICTS = 1_000
TEXT_NOTEBOOK = re.compile(r"\.ipynb\.(?:txt|json)$", re.IGNORECASE)  # what some browsers and mail programs make of it
ENDINGS = re.compile(r"(?:\.ipynb)?\.(?:ipynb|txt|json|py|html?|md|markdown|qmd|org)$", re.IGNORECASE)
TELLS = {  # what is not read, and what to do about it
    **dict.fromkeys((".html", ".htm", ".pdf"), "is a printed page without answers that could be read back"),
    **dict.fromkeys(
        (".md", ".markdown", ".qmd"), "is Markdown without a block of Python that defines an answer of the course"
    ),
    ".org": "is an Org file without a block of Python that defines an answer of the course",
    ".py": "defines no answer of the course",
}
WANTED = ": hand in the notebook itself (.ipynb; in JupyterLab File > Download)"
MERGE = "holds the marks of a merge that was not finished (<<<<<<<)"
_MARK = re.compile(rb"^(?:<{7}|\|{7}|={7}|>{7})(?=[ \r\n]|\Z)[^\n]*+\n?", re.MULTILINE)
_NEXT = {  # the state of a merge, and the mark that follows -> the state then; what both had is of neither side
    ("both", b"<"): "ours",
    ("ours", b"|"): "base",
    ("ours", b"="): "theirs",
    ("base", b"="): "theirs",
    ("theirs", b">"): "both",
}


def merged(data: bytes) -> bool:
    """Say whether a file holds the marks of a merge: no line of JSON begins in this way."""
    return data.startswith(b"<<<<<<<") or b"\n<<<<<<<" in data


def sides(data: bytes) -> list[bytes]:
    """Return both sides of a file with Git's conflict markers, ours and theirs; nothing if it has none, or broken ones.

    What stood there before both, which `diff3` shows between them, is nobody's. A file is cut at its marks alone: its
    lines may be millions.
    """
    if not merged(data):
        return []
    parts: dict[str, list[memoryview]] = {"ours": [], "theirs": []}
    whole, state, at, conflicts = memoryview(data), "both", 0, 0
    for mark in _MARK.finditer(data):
        for side in ("ours", "theirs") if state == "both" else (state,):
            parts.setdefault(side, []).append(whole[at : mark.start()])
        sign = data[mark.start() : mark.start() + 1]
        state, at = _NEXT.get((state, sign), ""), mark.end()
        conflicts += state == "ours"
        if not state or conflicts > MOST_CONFLICTS:
            return []  # one inside another, or a mark that belongs to none
    if state != "both":
        return []
    return [b"".join([*parts[side], whole[at:]]) for side in ("ours", "theirs")]


def versions(paths: Sequence[str]) -> list[list[int]]:
    """Return the places of the paths in groups: versions of one notebook, `x.ipynb` and `x (1).ipynb`, are one."""
    groups: dict[str, list[int]] = {}
    for place, path in enumerate(paths):
        stem = re.sub(r"\.ipynb(?:\.txt|\.json)?(?= \(theirs\)$|$)", "", path, flags=re.IGNORECASE)
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


# --- a newer Python ---------------------------------------------------------------------------------------------------

Version = tuple[int, ...]
_F = r"""\b(?:[fF][rR]?|[rR][fF])"""
_FIELDS = r"""(?:[^"'\n{}]|\{\{|\}\}|\{[^"'{}\n]*+\})*+"""  # of an f-string, up to the brace in question
_STRING = re.compile(  # or a comment; what is never closed ends with the line, or the text
    r"""#[^\n]*+|("{3}|'{3})(?:\\.|(?!\1).)*+(?:\1|\Z)|(["'])(?:\\.|(?!\2)[^\n\\])*+(?:\2|\n|\Z)""", re.DOTALL
)
_IS_T = re.compile(r"(?:\W|^)(?:tr?|rt)$", re.IGNORECASE)


def _t_string(source: str) -> bool:
    return any(_IS_T.search(source[max(0, each.start() - 3) : each.start()]) for each in _STRING.finditer(source))


def _found(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern, re.MULTILINE).search


_NEWER: list[tuple[Version, str, Callable[[str], object]]] = [  # since when, what, and how it is recognized
    ((3, 12), "type parameters", _found(r"^[ \t]*+(?:async[ \t]++)?(?:def|class)[ \t]++\w++\[")),
    ((3, 12), "a `type` statement", _found(r"^[ \t]*+type[ \t]++\w++(?:\[[^\]\n]*+\])?[ \t]*+=")),
    ((3, 12), "quotes inside of an f-string's quotes", _found(rf"""{_F}(["']){_FIELDS}\{{(?!\{{)[^"'}}\n]*+\1""")),
    (
        (3, 12),
        "a backslash inside of an f-string's braces",
        _found(rf"""{_F}(["'])(?!\1){_FIELDS}\{{(?!\{{)[^{{}}\n\\]*+\\[^{{}}\n]*+\}}"""),
    ),
    (
        (3, 13),
        "defaults of type parameters",
        _found(r"^[ \t]*+(?:async[ \t]++)?(?:def|class|type)[ \t]++\w++\[[^]=\n]*+="),
    ),
    ((3, 14), "a t-string", _t_string),
]


def python_version(data: bytes) -> Version:
    """Return the version of Python that a notebook's metadata name, (3, 12); () if none."""
    found = re.search(
        rb'"language_info"\s*:\s*\{[^{}]*(?:\{[^{}]*\}[^{}]*)?"version"\s*:\s*"(\d{1,2})\.(\d{1,3})', data
    )
    return tuple(map(int, found.groups())) if found else ()


def newest(source: str, said: Version) -> Version:
    """Return the oldest Python that may read a cell, as far as it shows: the newest of what it uses and says."""
    return max([said, *(since for since, _, uses in _NEWER if uses(source))])


def newer_syntax(source: str, said: Version, ours: Version = sys.version_info[:2]) -> str:
    """Return why a cell with a syntax error may be none in a newer Python than ours; "" if nothing speaks for that.

    Args:
        said: the version that the notebook says it was written with, () if it says none.
    """
    told = [f"was written with Python {_dotted(said)}"] if said > ours else []
    told += [
        f"uses {what}, which came with {_dotted(since)}"
        for since, what, uses in _NEWER
        if since > ours and uses(source)
    ]
    return f"it {' and '.join(told)}, and this grader runs {_dotted(ours)}" if told else ""


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
