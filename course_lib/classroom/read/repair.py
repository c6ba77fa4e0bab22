"""Read damaged or unusual submissions as far as possible. Every repair is reported; `--salvage no` disables them.

No code here guesses a learner's intention: it only reads text whose meaning is certain.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence

COPY = re.compile(r"(?: \(theirs\)|-Copy[0-9]+|[ _-]?\([0-9]+\)|-[0-9])+$")  # added by JupyterLab, a browser or Canvas
THEIRS = " (theirs)"
ABOVE = "Python runs nothing of a cell with a syntax error, so {names}, which are complete above it, did not run"
MOST_VERSIONS = 3  # of one notebook, the last ones, are compared
MOST_CONFLICTS = 1_000
TEXT_NOTEBOOK = re.compile(r"\.ipynb\.(?:txt|json)$", re.IGNORECASE)  # added by browsers and mail programs
ENDINGS = re.compile(r"(?:\.ipynb)?\.(?:ipynb|txt|json|py|html?|md|markdown|qmd|org)$", re.IGNORECASE)
TELLS = {  # unreadable formats, and how to fix them
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
_NEXT = {  # (state of a merge, next mark) -> next state; text of the common ancestor is on neither side
    ("both", b"<"): "ours",
    ("ours", b"|"): "base",
    ("ours", b"="): "theirs",
    ("base", b"="): "theirs",
    ("theirs", b">"): "both",
}


def merged(data: bytes) -> bool:
    """Return whether a file contains merge conflict markers. No line of JSON begins like one."""
    return data.startswith(b"<<<<<<<") or b"\n<<<<<<<" in data


def sides(data: bytes) -> list[bytes]:
    """Return both sides of a file with Git's conflict markers, ours and theirs; nothing without complete markers.

    The common ancestor, which `diff3` shows between the sides, is dropped. The file is split only at its markers,
    because it may have millions of lines.
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
            return []  # nested markers, or a marker without its partner
    if state != "both":
        return []
    return [b"".join([*parts[side], whole[at:]]) for side in ("ours", "theirs")]


def versions(paths: Sequence[str]) -> list[list[int]]:
    """Return the indices of the paths in groups. Versions of one notebook, `x.ipynb` and `x (1).ipynb`, are a group."""
    groups: dict[str, list[int]] = {}
    for place, path in enumerate(paths):
        stem = re.sub(r"\.ipynb(?:\.txt|\.json)?(?= \(theirs\)$|$)", "", path, flags=re.IGNORECASE)
        groups.setdefault(COPY.sub("", stem), []).append(place)
    return list(groups.values())


def as_notebook(cells: Iterable[tuple[str, str]]) -> str:
    """Return a notebook of these cells, (kind, source), in the form that `%run` reads."""
    made: list[dict[str, object]] = [
        {"cell_type": kind, "metadata": {}, "source": source}
        | ({"outputs": [], "execution_count": None} if kind == "code" else {})
        for kind, source in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 2})


# --- Newer versions of Python -----------------------------------------------------------------------------------------

Version = tuple[int, ...]
_F = r"""\b(?:[fF][rR]?|[rR][fF])"""
_FIELDS = r"""(?:[^"'\n{}]|\{\{|\}\}|\{[^"'{}\n]*+\})*+"""  # of an f-string, up to the replacement field in question
_STRING = re.compile(  # or a comment; an unclosed one ends with the line, or with the text
    r"""#[^\n]*+|("{3}|'{3})(?:\\.|(?!\1).)*+(?:\1|\Z)|(["'])(?:\\.|(?!\2)[^\n\\])*+(?:\2|\n|\Z)""", re.DOTALL
)
_IS_T = re.compile(r"(?:\W|^)(?:tr?|rt)$", re.IGNORECASE)


def _t_string(source: str) -> bool:
    return any(_IS_T.search(source[max(0, each.start() - 3) : each.start()]) for each in _STRING.finditer(source))


def _found(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern, re.MULTILINE).search


_NEWER: list[tuple[Version, str, Callable[[str], object]]] = [  # first version, feature, how to recognize it
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
    """Return the version of Python in a notebook's metadata, such as (3, 12); () if there is none."""
    found = re.search(
        rb'"language_info"\s*:\s*\{[^{}]*(?:\{[^{}]*\}[^{}]*)?"version"\s*:\s*"(\d{1,2})\.(\d{1,3})', data
    )
    return tuple(map(int, found.groups())) if found else ()


def newest(source: str, said: Version) -> Version:
    """Return the oldest Python that may be able to read a cell, judged by its syntax and the notebook's version."""
    return max([said, *(since for since, _, uses in _NEWER if uses(source))])


def newer_syntax(source: str, said: Version, ours: Version = sys.version_info[:2]) -> str:
    """Return why a cell with a syntax error may be valid in a newer Python than ours; "" if nothing suggests it.

    Args:
        said: the version in the notebook's metadata; () if there is none.
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
