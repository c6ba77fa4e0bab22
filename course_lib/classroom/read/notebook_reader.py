"""Read a notebook's cells as text. Reading ends whatever the file contains, and every loss is reported.

A cursor steps over outputs, so a million of them take time but no memory. nbformat would build all of them in memory
and reject notebooks that can still be graded.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from course_lib.classroom.read.folders import File, Refused, megabytes
from course_lib.grading.judge.show import printable

LARGEST_NOTEBOOK = 64_000_000  # bytes; a larger file is read without its outputs
LARGEST_FILE = 512_000_000  # bytes including outputs: saved plots may be a hundred times larger than the code
LARGEST_CELL = 1_000_000  # characters
MOST_CELLS = 5_000  # per notebook
DEEPEST_JSON = 1_000  # nested brackets
MOST_KEYS = 100  # per object in a notebook
LARGEST_VALUE = 10_000  # bytes, for values other than a cell's text


@dataclass(frozen=True)
class Cell:
    """One cell. number: its position among all cells of the notebook, counted from 1."""

    number: int
    kind: Literal["code", "markdown", "raw"]
    source: str


def mended(text: str) -> str:
    """Return text with normal line ends and without lone surrogates, which no file can contain."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub("[\ud800-\udfff]", "�", text)


# --- A partial JSON reader --------------------------------------------------------------------------------------------


class _Unreadable(Exception):
    """Text that is not JSON from here on. The message gives the reason if there is a special one."""


# Every repetition is possessive (*+, ++): the regex engine never backtracks, so the time is linear.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT = rb'[^"\[\]{}]++|' + _STRING
_PAIR = rb"\[(?:%(in)s)*+\]|\{(?:%(in)s)*+\}"  # brackets that contain at most ...
_PAIRS = _PAIR % {b"in": _FLAT + b"|" + _PAIR % {b"in": _FLAT}}  # ... such brackets: most outputs, in one step
_TO_BRACKET = re.compile(rb"(?:" + _FLAT + b"|" + _PAIRS + rb")*+", flags=re.DOTALL)
_SCALAR = re.compile(_STRING + rb'|[^\s,:"\[\]{}]+', flags=re.DOTALL)
_TEXT = re.compile(_STRING + rb"|\[(?:[\s,]++|" + _STRING + rb")*+\]", flags=re.DOTALL)
_SPACE, _BETWEEN = re.compile(rb"[\s\0]*+"), re.compile(rb"[\s\0,]*+")
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def _end(pattern: re.Pattern[bytes], data: bytes, at: int, until: int = sys.maxsize) -> int:
    """Return where the pattern's match at this position ends. These patterns also match an empty string."""
    found = pattern.match(data, at, until)
    return found.end() if found else at


class _Cursor:
    """A position in JSON text (UTF-8). It reads requested values and steps over the rest without building it."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def next(self, over: re.Pattern = _SPACE) -> bytes:
        """Return the next character that is not a space; b"" at the end."""
        self.at = _end(over, self.data, self.at)
        return self.data[self.at : self.at + 1]

    def inside(self, opening: bytes) -> Iterator:
        """Stop at each value of the array (b"[") or object (b"{") that begins here, and yield its number or key.

        Numbers count from 1. A value that the caller does not read is stepped over. So is a value that begins with
        something other than `opening`, and everything after the maximum number of values.
        """
        if self.next() != opening:
            return
        most = MOST_CELLS if opening == b"[" else MOST_KEYS
        self.at += 1
        count = 0
        while self.next(_BETWEEN) != (b"]" if opening == b"[" else b"}"):
            count += 1
            key: object = count
            if opening == b"{":
                key = self.value()
                if self.next() != b":":
                    raise _Unreadable
                self.at += 1
                self.next()
            before = self.at
            yield key
            if count > most:
                self.at = _end(_TO_BRACKET, self.data, self.at)
                self._skip_brackets(1)
                return
            if self.at == before:
                self.skip()
        self.at += 1

    def skip(self) -> None:
        if scalar := _SCALAR.match(self.data, self.at):
            self.at = scalar.end()
        else:
            self._skip_brackets(0)

    def _skip_brackets(self, depth: int) -> None:
        """Step over a value in brackets when `depth` brackets are already open."""
        data, at = self.data, self.at
        while True:
            step = _STEP.get(data[at]) if at < len(data) else None
            if step is None:
                raise _Unreadable
            at, depth = at + 1, depth + step
            if depth > DEEPEST_JSON:
                raise _Unreadable(f"more than {DEEPEST_JSON:,} brackets are nested")
            if depth <= 0:
                break
            at = _end(_TO_BRACKET, data, at)
        if depth < 0:
            raise _Unreadable
        self.at = at

    def value(self) -> object:
        """Return the small value that begins here; None for any other value."""
        self.next()
        begin = self.at
        self.skip()
        with suppress(ValueError, RecursionError):  # not JSON, an integer with too many digits, or too many brackets
            return json.loads(self._decoded(begin)) if self.at - begin <= LARGEST_VALUE else None
        return None

    def text(self) -> str | None:
        """Return the string or joined list of strings that begins here; None for any other or too long a value."""
        self.next()
        begin = self.at
        self.skip()
        if self.at - begin > 8 * LARGEST_CELL or not _TEXT.fullmatch(self.data, begin, self.at):
            return None
        with suppress(ValueError):
            text = "".join(json.loads(self._decoded(begin), strict=False))
            return text if len(text) <= LARGEST_CELL else None
        return None

    def _decoded(self, begin: int) -> str:
        return self.data[begin : self.at].decode(errors="replace")


# --- Files of any size ------------------------------------------------------------------------------------------------

_NAME = rb'"(?:outputs|attachments|widgets)"'  # keys whose values may be large and are never read
_KEY = re.compile(_NAME + rb"\s*+:\s*+[\[{]")
_TO_KEY = re.compile(  # or to a possible key, when more of the file is needed to decide
    rb'(?:[^"]++|(?!' + _NAME + rb"\s*+(?:\Z|:\s*+(?:\Z|[\[{])))" + _STRING + rb")*+", flags=re.DOTALL
)
_TO_QUOTE = re.compile(rb'(?:[^"\\]++|\\.)*+', flags=re.DOTALL)
_NEAR = 100  # bytes: a key that begins in one piece may end in the next one
MOST_STEPS = 5_000_000  # while stepping over outputs; takes seconds


def read_notebook(file: File, charge: Callable[[int], None]) -> bytes:
    """Return a notebook's bytes for `read_cells`. Outputs of a large notebook are dropped and never kept in memory.

    Errors: Refused, as in `File.pieces`, and if the rest is still too large.
    """
    pieces = file.pieces(LARGEST_FILE, charge)
    begin, size = list[bytes](), 0
    for piece in pieces:
        begin.append(piece)
        size += len(piece)
        if size > LARGEST_NOTEBOOK:
            break
    else:
        return b"".join(begin)
    if json.detect_encoding(begin[0]) != "utf-8":
        raise Refused(f"is larger than {megabytes(LARGEST_NOTEBOOK)}, and not in UTF-8")
    kept, size = list[bytes](), 0
    begin.reverse()
    for piece in without_outputs(chain((begin.pop() for _ in range(len(begin))), pieces)):
        kept.append(piece)
        size += len(piece)
        if size > LARGEST_NOTEBOOK:
            raise Refused(f"is larger than {megabytes(LARGEST_NOTEBOOK)} without its outputs")
    return b"".join(kept)


def without_outputs(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield JSON (UTF-8) as it is read, with outputs, attachments and widgets emptied: `"outputs": []`.

    Errors: Refused if they are nested so often that this would take minutes.
    """
    left, depth, in_string = b"", 0, False  # unread bytes; open brackets in the skipped part
    steps = 0
    for piece in chain(filter(None, pieces), [b""]):
        data, at = left + piece, 0
        known = len(data) - _NEAR if piece else len(data)  # a name before this position is known to be a key or not
        stopped = False
        while not stopped:
            steps += 1
            if steps > MOST_STEPS:
                raise Refused("has outputs of too many parts")
            begin, is_kept, key = at, not depth, None
            if in_string:
                at = _end(_TO_QUOTE, data, at)
            elif depth:
                at = _end(_TO_BRACKET, data, at)
            else:
                at = _end(_TO_KEY, data, at, max(at, known))
                key = _KEY.match(data, at)
            sign = data[at : at + 1]
            if key:
                at, depth = key.end(), 1
            elif sign == b'"' and (in_string or depth or at < known):
                at, in_string = at + 1, not in_string
            elif sign and depth and not in_string:
                at, depth = at + 1, depth + _STEP[sign[0]]
                if not depth:
                    yield sign
            else:
                stopped = True
            if is_kept:
                yield data[begin:at]
        left = data[at:]
    if not depth:
        yield left


# --- Cells ------------------------------------------------------------------------------------------------------------

KINDS: dict[str, Literal["code", "markdown", "raw"]] = {
    "code": "code",
    "markdown": "markdown",
    "raw": "raw",
    "heading": "markdown",
    "html": "raw",
}
BEGINNINGS = {  # the first bytes of files that are not notebooks
    b"PK": "it is a zip file under the name of a notebook",
    b"%PDF": "it is a PDF, not a notebook",
    b"<": "it is a web page, not a notebook: the file itself must be downloaded",
    b"version https://git-lfs": "it stands for a file that Git LFS keeps elsewhere: that file must be handed in",
}


def read_cells(data: bytes) -> tuple[list[Cell], list[str]]:
    """Return a notebook's cells, and sentences about the unreadable parts. Damage only affects the cells after it."""
    if (encoding := json.detect_encoding(data)) != "utf-8":
        data = data.decode(encoding, "replace").encode()
    cursor = _Cursor(data)
    if cursor.next() != b"{":
        begins = data[cursor.at : cursor.at + 40]
        what = "it is no notebook" if begins else "it is empty"
        return [], [next((said for start, said in BEGINNINGS.items() if begins.startswith(start)), what)]
    cells: dict[str, list[Cell]] = {}  # under "cells", or under "worksheets" in nbformat 3
    troubles: list[str] = []
    said: dict = {}
    try:
        for key in cursor.inside(b"{"):
            if key in cells:
                cells.clear()
                raise _Unreadable("it has its cells twice")
            if key == "cells":
                cells[key] = []
                _add_cells(cursor, cells[key], troubles)
            elif key == "worksheets":
                cells[key] = []
                for _ in cursor.inside(b"["):  # its worksheets, which Jupyter shows as one notebook
                    for part in cursor.inside(b"{"):
                        if part == "cells":
                            _add_cells(cursor, cells[key], troubles)
            elif key == "metadata":
                for part in cursor.inside(b"{"):
                    if part in ("kernelspec", "language_info"):
                        said[part] = cursor.value()
            elif key == "nbformat":
                said[key] = cursor.value()
        if cursor.next():
            troubles.append("there is text behind its end, which was not read")
        if said.get("nbformat") == 2:
            return [], ["it is in nbformat 2, of 2011, which is not read: it must be opened in Jupyter and saved"]
        if said.get("nbformat") not in (3, 4):
            troubles.append("it is in no known nbformat (3 or 4): its cells were read as well as they could be")
    except _Unreadable as why:
        troubles.append(f"it is damaged at byte {cursor.at:,}, where its reading ended{f': {why}' if str(why) else ''}")
    if (language := _language(said)) and "python" not in language.lower():
        troubles.append(f"its kernel speaks {printable(language, 40)}: its cells were read as Python")
    order = ("worksheets", "cells") if said.get("nbformat") == 3 else ("cells", "worksheets")
    read = next((cells[key] for key in order if cells.get(key)), [])
    return read, troubles if read else [*troubles, "it has no cells"]


def _language(said: Mapping) -> str | None:
    """Return the language of a notebook's kernel, if the notebook gives one."""
    kernel, language = (_dictionary(said.get(part)) for part in ("kernelspec", "language_info"))
    names = [language.get("name"), kernel.get("language"), *re.findall(r"^(?:ir|julia)\b", str(kernel.get("name")))]
    return next((name for name in names if isinstance(name, str)), None)


def _dictionary(value: Any) -> dict:
    return value if isinstance(value, dict) else {}


def _add_cells(cursor: _Cursor, cells: list[Cell], troubles: list[str]) -> None:
    """Read the list of cells at the cursor and append them to `cells`."""
    before = cells[-1].number if cells else 0
    for number in cursor.inside(b"["):
        number += before
        if number > MOST_CELLS:
            troubles.append(f"only its first {MOST_CELLS:,} cells were read")
            continue
        kind, texts = None, {}
        for part in cursor.inside(b"{"):
            if part == "cell_type":
                kind = cursor.value()
            elif part in ("source", "input"):  # code cells of nbformat 3 use "input"
                texts[part] = cursor.text()
        source = texts.get("source", texts.get("input"))
        if source is None:
            troubles.append(f"cell {number} was left out: no text, or more than {LARGEST_CELL:,} characters")
            continue
        if not isinstance(kind, str) or kind not in KINDS:
            troubles.append(f"cell {number} is of no known type: it was read as raw text")
            kind = "raw"
        cells.append(Cell(number, KINDS[kind], mended(source)))
