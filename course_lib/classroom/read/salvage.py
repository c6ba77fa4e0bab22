"""Read submissions that are damaged or saved in another format, as far as possible; `--salvage no` disables this.

No code here guesses a learner's intention: it only reads text whose meaning is certain, so no output or quotation
becomes an answer, and every repair is reported. The other formats are Python script, Jupyter web page, Markdown,
Quarto and Org. Time and memory are proportional to the size of the file.
"""

import html
import json
import re
import sys
import textwrap
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Literal

from course_lib.classroom.read.fingerprints import is_of_library
from course_lib.classroom.read.folders import File, Refused, ending
from course_lib.classroom.read.notebook_reader import LARGEST_NOTEBOOK
from course_lib.grading.page.catalogue import EXERCISES

COPY = re.compile(r"(?: \(theirs\)|-Copy[0-9]+|[ _-]?\([0-9]+\)|-[0-9])+$")  # added by JupyterLab, a browser or Canvas
THEIRS = " (theirs)"
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
LARGEST_HELPER = 1_000_000  # bytes
Cells = list[tuple[Literal["code", "raw"], str]]

# The first line of a cell in the percent format, which many editors use, in nbconvert's scripts, and in Jupytext's
# light format.
PERCENT = r"#[ \t]*+%%([^\n]*+)"
NUMBERED = r"# In ?\[[ 0-9*]{0,9}\]:()"
LIGHT = r"# [+-]((?: [^\n]*+)?)"
IS_LIGHT = re.compile(r"^#\s{1,20}format_name: light$", re.MULTILINE)

DIVISION = re.compile(rb'<div class="([^"<>]*+)"[^<>]*+>')
TAG = re.compile(rb"<[^<>]*+>")
FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})[ \t]*+(.*)")
PYTHON = re.compile(r"(?:i?python3?|py|\{code-cell\}.*|\{\.?python\b.*)", re.IGNORECASE)  # after the marks of a fence
ORG = re.compile(r"^[ \t]*+#\+(begin|end)_src\b[ \t]*+([^\n]*+)$", re.IGNORECASE | re.MULTILINE)
IS_MARIMO = [re.compile(line, re.MULTILINE) for line in (rb"^import marimo\b", rb"^(?:@app\.|with app\.setup)")]
MARIMO = (
    "is a marimo notebook, whose cells are functions, and was not read: hand in the .ipynb that `marimo export ipynb` "
    "makes of it"
)


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


def cells_of_script(text: str) -> Cells:
    """Return the cells of a Python file: the marked ones, or the entire file as one cell."""
    marks = [PERCENT, NUMBERED, *([LIGHT] if IS_LIGHT.search(text, 0, 5_000) else [])]
    head, *parts = re.split(rf"^(?:{'|'.join(marks)})[ \t]*$", text, flags=re.MULTILINE)
    cells: Cells = [("code", head)]
    step = len(marks) + 1
    for *said, source in (parts[i : i + step] for i in range(0, len(parts), step)):
        is_text = re.search(r"\[(?:markdown|md|raw)\]", "".join(filter(None, said)))
        cells.append(("raw" if is_text else "code", source))
    return [(kind, source.strip("\n")) for kind, source in cells if source.strip()]


def cells_of_page(data: bytes) -> Cells:
    """Return the code cells of a web page made by nbconvert or Jupyter; none for any other page."""
    cells: Cells = []
    at, in_cell = 0, False
    while found := DIVISION.search(data, at):
        at, classes = found.end(), found[1].split()
        if b"jp-CodeCell" in classes or b"code_cell" in classes:
            in_cell = True
        elif b"jp-OutputArea" in classes or b"output_wrapper" in classes:
            in_cell = False  # an output may also show code
        elif in_cell and b"highlight" in classes and any(each.startswith(b"hl-") for each in classes):
            in_cell = False
            end = data.find(b"</pre>", at)
            if end < 0:
                break
            with suppress(ValueError):  # a character reference may have any number of digits
                cells.append(("code", html.unescape(TAG.sub(b"", data[at:end]).decode("utf-8", "replace"))))
            at = end
    return [(kind, source.strip("\n")) for kind, source in cells if source.strip()]


def cells_of_markdown(text: str) -> Cells:
    """Return the fenced blocks of a Markdown file that are marked as Python."""
    cells: Cells = []
    mark = ""
    kept: list[str] | None = None
    for line in text.split("\n"):
        found = FENCE.fullmatch(line)
        if not mark and found and "`" not in found[2]:
            mark, kept = found[1], [] if PYTHON.fullmatch(found[2].strip()) else None
        elif found and found[1].startswith(mark) and not found[2].strip():
            if kept is not None:
                cells.append(("code", "\n".join(kept)))
            mark, kept = "", None
        elif kept is not None:
            kept.append(line)
    return cells


def cells_of_org(text: str) -> Cells:
    """Return the source blocks of an Org file that are marked as Python, without their indentation."""
    _, *parts = ORG.split(text)
    marks = zip(parts[0::3], parts[1::3], parts[2::3], parts[3::3])
    is_python = re.compile(r"(?:jupyter-)?python\b(?!-)", re.IGNORECASE).match
    return [
        ("code", textwrap.dedent(body).strip("\n"))
        for kind, language, body, then in marks
        if kind.lower() == "begin" and then.lower() == "end" and is_python(language)
    ]


def _as_text(read: Callable[[str], Cells]) -> Callable[[bytes], Cells]:
    return lambda data: read(data.decode("utf-8-sig", "replace").replace("\r\n", "\n"))


FORMS: dict[str, Callable[[bytes], Cells]] = {  # by file extension
    ".py": _as_text(cells_of_script),
    ".html": cells_of_page,
    ".htm": cells_of_page,
    ".md": _as_text(cells_of_markdown),
    ".markdown": _as_text(cells_of_markdown),
    ".qmd": _as_text(cells_of_markdown),
    ".org": _as_text(cells_of_org),
}


# --- Answers ----------------------------------------------------------------------------------------------------------

CHAPTER_OF_ANSWER = {exercise.answer_name: exercise.chapter for exercise in EXERCISES.entries.values()}
ANSWER_FILES = {exercise.file: exercise for exercise in EXERCISES.entries.values() if exercise.file}
DEFINED = re.compile(r"^[ \t]*(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", flags=re.MULTILINE)
LEFT_OPEN = re.compile(r"\bNotImplementedError\b|[=:][ \t]*\.\.\.")


def exercise_of_file(name: str) -> str:
    """Return the id of the exercise for which a file of this name is the answer, such as my_gpt.py; "" for any other.

    Additions of browsers and platforms do not matter: my_gpt (1).py, ada_my_gpt.py.
    """
    stem, dot, kind = name.lower().rpartition(".")
    for file, exercise in ANSWER_FILES.items():
        wanted, _, needed = file.rpartition(".")
        if dot and kind == needed and re.search(rf"(?:^|[^a-z]){re.escape(wanted)}$", COPY.sub("", stem)):
            return exercise.id
    return ""


def cells_of_form(file: File, charge: Callable[[int], None]) -> Cells:
    """Return the cells of a notebook in another format, if they contain an answer of the course.

    A module of the course's library does not count, because its code is not the learner's.
    Errors: Refused, with MARIMO for a Marimo notebook.
    """
    kind = ending(file.name)
    data = file.read(LARGEST_HELPER if kind == ".py" else LARGEST_NOTEBOOK, charge)
    if kind == ".py" and is_of_library(data):
        return []
    if kind == ".py" and all(line.search(data) for line in IS_MARIMO):
        raise Refused(MARIMO)
    cells = FORMS[kind](data)
    return cells if defines_answer("\n".join(source for what, source in cells if what == "code")) else []


def defines_answer(text: str) -> bool:
    """Return whether the code defines an answer of the course by name and the answer is more than a stub."""
    places = list(DEFINED.finditer(text))
    tops = [place.start() for place in places if not text[place.start()].isspace()]
    still_open = [place.start() for place in LEFT_OPEN.finditer(text)]
    for place in places:
        if (place[1] or place[2]) in CHAPTER_OF_ANSWER:
            here = place.start()
            end = _next(tops, here + 1, len(text))
            if _next(still_open, here, end) == end:
                return True
    return False


def _next(places: list[int], here: int, end: int) -> int:
    """Return the first of the sorted positions from `here` on; `end` if there is none before it."""
    i = bisect_left(places, here)
    return min(places[i], end) if i < len(places) else end
