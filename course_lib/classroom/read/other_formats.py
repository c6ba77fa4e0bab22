"""Read the cells of a notebook saved in another format: Python script, Jupyter web page, Markdown, Quarto or Org.

Each reader takes only what is certainly a code cell, so no output or quotation becomes an answer. Time and memory are
proportional to the size of the file.
"""

import hashlib
import html
import re
import textwrap
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

import course_lib
from course_lib.classroom.read.folders import File, Refused, ending
from course_lib.classroom.read.notebook_reader import LARGEST_NOTEBOOK
from course_lib.grading.page.catalogue import EXERCISES

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
DEFINED = re.compile(r"^[ \t]*(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", flags=re.MULTILINE)
LEFT_OPEN = re.compile(r"\bNotImplementedError\b|[=:][ \t]*\.\.\.")


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


def is_of_library(data: bytes) -> bool:
    """Return whether a Python file is a module of this course's library."""
    return _digest(data) in _library()


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(b"".join(data.split())).digest()  # the same for all line ends and indentation


@cache
def _library() -> frozenset[bytes]:
    return frozenset(_digest(path.read_bytes()) for path in Path(course_lib.__file__).parent.rglob("*.py"))
