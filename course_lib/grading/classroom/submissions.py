"""What was handed in, read as text: notebooks as cells, and the .py files beside them.

Nothing of a submission is run, imported or written. Links are not followed, archives are read in memory, and whatever
is read has a limit: what a learner handed in never raises here, it becomes a sentence in `troubles`.

Notebooks are read by a cursor that steps over outputs: a million of them cost time, but no memory. nbformat would build
them all, and refuse notebooks that can still be graded.
"""

import hashlib
import io
import json
import os
import re
import stat
import unicodedata
import zipfile
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from ..catalogue import EXERCISES
from ..show import printable

# For one submission. Sizes are in bytes, those of text in characters.
LARGEST_NOTEBOOK = 64_000_000  # as a file: its outputs may be huge
LARGEST_CELL = 1_000_000
LARGEST_HELPER = 1_000_000
LARGEST_TEXT = 8_000_000  # all cells and helper files together
LARGEST_ARCHIVE = 64_000_000  # inside another, which is held in memory
LARGEST_LIST = 16_000_000  # of the members of an archive
MOST_READ = 256_000_000  # unpacked, all files together
MOST_RATIO = 500  # unpacked over packed: a million equal outputs stay below it, a bomb does not
MOST_NOTEBOOKS = 100
MOST_CELLS = 5_000  # of a notebook
MOST_HELPERS = 100
MOST_FILES = 10_000  # that are looked at
MOST_ARCHIVES = 20
MOST_TROUBLES = 50  # that are said of a notebook, and of the rest
DEEPEST_ARCHIVE = 2  # one inside another
DEEPEST_FOLDER = 32
DEEPEST_JSON = 1_000  # brackets inside brackets
MOST_KEYS = 100  # of an object in a notebook
LARGEST_VALUE = 10_000  # of a notebook, that is no cell's text
PIECE = 1_000_000  # bytes that are read at once

STEMS = (  # of the exercise notebooks, by chapter
    "embeddings",
    "positions",
    "attention",
    "masks",
    "multi_head_attention",
    "feed_forward",
    "normalization",
    "residuals_and_blocks",
    "gpt",
    "parameter_counting",
    "encoder_decoder",
    "training",
    "sampling",
    "efficiency",
    "pretrained_models",
)


@dataclass(frozen=True)
class Cell:
    """One cell. number: its place among all cells of the notebook, from 1."""

    number: int
    kind: Literal["code", "markdown", "raw"]
    source: str


@dataclass(frozen=True)
class Notebook:
    """One notebook: its cells without outputs, and in sentences what of it could not be read.

    path: below the submission, for messages and for its chapter; it holds no control characters.
    """

    path: str
    cells: tuple[Cell, ...]
    troubles: tuple[str, ...] = ()

    @property
    def chapters(self) -> set[int]:
        """As its file name and its calls of `check` say; without these, as the names that it defines say."""
        text = "\n".join(cell.source for cell in self.cells)
        ids = re.findall(r"""\bcheck\(\s*["']([\w.]+)["']""", text)
        found = _chapters_in(self.path) | {EXERCISES[each].chapter for each in ids if each in EXERCISES}
        return found or {CHAPTERS[name] for names in DEFINED.findall(text) for name in names if name in CHAPTERS}


@dataclass(frozen=True)
class Submission:
    """What one learner handed in.

    Fields: name, unique among those found together · notebooks, in the natural order of their paths · files, the .py
    files beside or below them, path -> text · troubles, what else could not be read, in sentences · digest, SHA-256 of
    all of these but the name: equal for equal cells, whatever the outputs and the machine.
    """

    name: str
    notebooks: tuple[Notebook, ...]
    files: Mapping[str, str]
    troubles: tuple[str, ...]
    digest: str

    def beside(self, notebook: Notebook) -> dict[str, str]:
        """The helper files as a notebook sees them: path from its folder -> text."""
        folder = notebook.path.rpartition("/")[0]
        start = f"{folder}/" if folder else ""
        return {path.removeprefix(start): text for path, text in self.files.items() if path.startswith(start)}

    @property
    def all_troubles(self) -> tuple[str, ...]:
        """Those of the notebooks too, each after its path."""
        own = (f"{notebook.path}: {trouble}" for notebook in self.notebooks for trouble in notebook.troubles)
        return (*self.troubles, *own)


CHAPTERS = {exercise.answer_name: exercise.chapter for exercise in EXERCISES.values()}
DEFINED = re.compile(r"^[ \t]*(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", flags=re.MULTILINE)


def chapters_of(submission: Submission) -> set[int]:
    """The chapters that a submission is about, by its notebooks' file names, checks and, without these, names."""
    return set().union(*(notebook.chapters for notebook in submission.notebooks))


def _chapters_in(path: str) -> set[int]:
    """03_attention.ipynb, and whatever a browser, a learner or a learning platform put around it."""
    name = re.sub(r"[^0-9a-z]+", "_", path.rpartition("/")[2].lower())
    return {n for n, stem in enumerate(STEMS, start=1) if re.search(rf"(?<![0-9])0?{n}_{stem}(?![a-z])", name)}


# ---------------------------------------------------------------------------------------------------- files and folders
Place = tuple[str, ...]  # names from the submission down


class _Refused(Exception):
    """What cannot be read; the message says why, as the end of a sentence that begins with the file's name."""


@dataclass(frozen=True)
class _File:
    """A file. packed: its bytes inside the archive, None on disk."""

    name: str
    open: Callable[[], BinaryIO]
    packed: int | None = None

    def read(self, most: int, charge: Callable[[int], None]) -> bytes:
        """All of it. `charge` is told of every piece, and may refuse.

        Errors: _Refused if there is more than `most`, or more than the packed bytes can honestly hold.
        """
        pieces, size = [], 0
        charge(0)
        try:
            with self.open() as stream:
                while piece := stream.read(PIECE):
                    charge(len(piece))
                    pieces.append(piece)
                    size += len(piece)
                    if size > most:
                        raise _Refused(f"is larger than {_megabytes(most)}")
                    if self.packed is not None and size > PIECE + MOST_RATIO * self.packed:
                        raise _Refused(f"unpacks to more than {MOST_RATIO} times its size")
        except _Refused:
            raise
        except Exception as error:  # a damaged archive raises nearly anything
            raise _Refused("is damaged or cannot be opened") from error
        return b"".join(pieces)


@dataclass(frozen=True)
class _Folder:
    """A folder, or an archive that was opened."""

    name: str
    items: Callable[[], Iterable["_Item"]]  # in natural order


@dataclass(frozen=True)
class _LeftOut:
    """What is not even opened."""

    name: str
    why: str


_Item = _File | _Folder | _LeftOut
LINK = "is a symbolic link, which is not followed"
NO_FILE = "is no ordinary file"
AMBIGUOUS = "stands in the archive twice: which one counts cannot be told"
TOO_DEEP = f"lies more than {DEEPEST_FOLDER} folders deep"
ENCRYPTED, UTF8 = 0x1, 0x800  # flags of a member
OUTSIDE = "has a name that leads out of the archive"
NOWHERE = (OUTSIDE, TOO_DEEP)
OTHER_ARCHIVES = (".7z", ".bz2", ".gz", ".rar", ".tar", ".tgz", ".xz")
IGNORED = {"__MACOSX", "__pycache__", "node_modules", "site-packages", "venv"}


def _on_disk(path: Path) -> _Item:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return _LeftOut(path.name, "cannot be opened")
    if stat.S_ISDIR(mode):
        return _Folder(path.name, lambda: _inside(path))
    if stat.S_ISREG(mode):
        return _File(path.name, lambda: _opened(path))
    return _LeftOut(path.name, LINK if stat.S_ISLNK(mode) else NO_FILE)


def _inside(path: Path) -> Iterator[_Item]:
    try:
        names = sorted(os.listdir(path), key=_natural)
    except OSError:
        names = []
        yield _LeftOut(path.name, "cannot be opened")
    for name in names:
        yield _on_disk(path / name)


def _opened(path: Path) -> BinaryIO:
    """Opened only if it still is an ordinary file: it neither follows a link nor waits for a pipe's other end."""
    flags = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    descriptor = os.open(path, os.O_RDONLY | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _Refused(NO_FILE)
    return os.fdopen(descriptor, "rb")


class _Bounded:
    """A file for `zipfile`, which reads an archive's list of members at once, however long it claims to be."""

    def __init__(self, stream: BinaryIO):
        self.stream, self.seek, self.tell = stream, stream.seek, stream.tell

    def seekable(self) -> bool:
        return True

    def read(self, count: int = -1) -> bytes:
        if count > LARGEST_LIST:
            raise _Refused("lists too many members")
        return self.stream.read(count)


def _unpacked(file: _File, charge: Callable[[int], None], until: ExitStack) -> _Folder:
    """An archive as a folder, to be read until `until` closes. Errors: _Refused if it is none."""
    try:
        on_disk = file.packed is None
        stream = until.enter_context(file.open() if on_disk else io.BytesIO(file.read(LARGEST_ARCHIVE, charge)))
        archive = until.enter_context(zipfile.ZipFile(_Bounded(stream)))
        members = [_member(archive, info) for info in archive.infolist()]
    except _Refused:
        raise
    except Exception as error:  # a damaged archive raises nearly anything
        raise _Refused("is no zip archive that can be read") from error
    inside: dict[Place, dict[str, _Item]] = {}
    for path, item in members:
        _register(inside, path[:-1] if item else path)
    count = Counter(path for path, item in members if item)
    for path, item in members:
        if item:
            twice = isinstance(item, _File) and (count[path] > 1 or path in inside)  # the latter: it is a folder too
            inside[path[:-1]][path[-1]] = _LeftOut(path[-1], AMBIGUOUS) if twice else item
    _register(inside, ())
    return _Folder(file.name, lambda: _sorted(inside[()]))


def _register(inside: dict[Place, dict[str, _Item]], path: Place) -> None:
    """Enter a folder of an archive, and those around it, which the archive need not name."""
    if path not in inside:
        inside[path] = {}
        if path:
            _register(inside, path[:-1])
            inside[path[:-1]][path[-1]] = _Folder(path[-1], lambda: _sorted(inside[path]))


def _sorted(items: Mapping[str, _Item]) -> list[_Item]:
    return [items[name] for name in sorted(items, key=_natural)]


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[Place, _Item | None]:
    """A member's path below the archive, and the member; None for a folder."""
    name = info.orig_filename  # as it stands there: `filename` ends at the first NUL
    if not info.flag_bits & UTF8:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode()  # macOS writes UTF-8 and does not say so
    path = tuple(part for part in name.split("/") if part not in ("", "."))
    if not path or ".." in path or name.startswith("/") or re.search(r"\\|\0|^[A-Za-z]:", name):
        return (name,), _LeftOut(name, OUTSIDE)
    if len(path) > DEEPEST_FOLDER:
        return (name,), _LeftOut(name, TOO_DEEP)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return path, _LeftOut(path[-1], LINK if kind == stat.S_IFLNK else NO_FILE)
    if name.endswith("/"):
        return path, None
    if info.flag_bits & ENCRYPTED:
        return path, _LeftOut(path[-1], "is encrypted: hand it in without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others may ask for any memory
        return path, _LeftOut(path[-1], "is packed in an unusual way: pack it as an ordinary zip file")
    return path, _File(path[-1], lambda: archive.open(info), info.compress_size)


def _natural(name: str) -> list:
    """A key for sorting: 2 before 10, capitals beside small letters; the same on every machine."""
    parts = re.split(r"([0-9]+)", unicodedata.normalize("NFC", name).casefold())
    return [(len(part.lstrip("0")), part.lstrip("0")) if i % 2 else part for i, part in enumerate(parts)] + [(), name]


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _ignored(name: str) -> bool:
    return name in IGNORED or (name.startswith(".") and not name.startswith(".."))


# ------------------------------------------------------------------------------------------------------- one submission
class _Reading:
    """One submission while it is read: what was found, and what may still be read."""

    def __init__(self):
        self.notebooks: list[tuple[Place, Notebook]] = []
        self.files: dict[str, str] = {}
        self.troubles: list[str] = []
        self.found: dict[str, list[tuple[Place, _File]]] = {".ipynb": [], ".py": []}
        self.bytes_left, self.text_left = MOST_READ, LARGEST_TEXT
        self.seen = self.archives = 0

    def look(self, item: _Item, until: ExitStack) -> None:
        """Find the files, the near ones first, so that a limit cuts off what lies deep."""
        # A file that is handed in alone goes by its chapter: its own name may hold the learner's, and is said already.
        start = () if isinstance(item, _Folder) or _ending(item.name) != ".ipynb" else (_plain_name(item.name),)
        waiting: deque[tuple[Place, _Item, int]] = deque([(start, item, 0)])
        while waiting:
            path, item, archives = waiting.popleft()
            try:
                if isinstance(item, _LeftOut):
                    raise _Refused(item.why)
                if isinstance(item, _File) and _ending(item.name) in (".zip", *OTHER_ARCHIVES):
                    item, archives = self._unpacked(item, archives, until), archives + 1
                if isinstance(item, _Folder):
                    if len(path) > DEEPEST_FOLDER:
                        raise _Refused(TOO_DEEP)
                    for child in item.items():
                        self.seen += 1
                        if self.seen > MOST_FILES:
                            break
                        if not _ignored(child.name):
                            waiting.append(((*path, child.name), child, archives))
                elif _ending(item.name) in self.found:
                    self.found[_ending(item.name)].append((path, item))
            except _Refused as refused:
                self._leave_out(path, str(refused))
        if self.seen > MOST_FILES:
            self.troubles.append(f"It holds more than {MOST_FILES:,} files: the rest was not looked at")

    def _unpacked(self, file: _File, archives: int, until: ExitStack) -> _Folder:
        if _ending(file.name) != ".zip":
            raise _Refused("is an archive that is not opened here: a notebook, a folder or a zip file is")
        self.archives += 1
        if archives == DEEPEST_ARCHIVE or self.archives > MOST_ARCHIVES:
            raise _Refused("is an archive too many: it was not opened")
        return _unpacked(file, self._charge, until)

    def _charge(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise _Refused(f"was not read: the files of a submission may hold {_megabytes(MOST_READ)} together")

    def _leave_out(self, path: Place, why: str) -> None:
        """A notebook that cannot be read still is one that was handed in."""
        is_notebook = path and _ending(path[-1]) == ".ipynb" and why not in NOWHERE
        if is_notebook and len(self.notebooks) < MOST_NOTEBOOKS:
            self.notebooks.append((path, Notebook(_shown(path), (), (f"it {why}",))))
        else:
            self.troubles.append(f"{_shown(path) or 'It'} {why}")

    def read(self) -> None:
        """Read the notebooks that were found, then the helper files."""
        for number, (path, file) in enumerate(sorted(self.found[".ipynb"], key=_by_path), start=1):
            try:
                if number > MOST_NOTEBOOKS:
                    raise _Refused(f"was not read: of a submission {MOST_NOTEBOOKS} notebooks are")
                cells, troubles = _cells(file.read(LARGEST_NOTEBOOK, self._charge))
            except _Refused as refused:
                self._leave_out(path, str(refused))
                continue
            cells = [cell for cell in cells if self._affords(cell, troubles)]
            self.notebooks.append((path, Notebook(_shown(path), tuple(cells), _first(troubles))))
        self.notebooks.sort(key=_by_path)
        homes = {path[:-1] for path, _ in self.notebooks}
        for path, file in sorted(self.found[".py"], key=_by_path):
            if any(path[:depth] in homes for depth in range(len(path))):
                try:
                    self._read_helper(path, file)
                except _Refused as refused:
                    self._leave_out(path, str(refused))

    def _affords(self, cell: Cell, troubles: list[str]) -> bool:
        if len(cell.source) > self.text_left:
            troubles.append(f"cell {cell.number} was left out: a submission may hold {LARGEST_TEXT:,} characters")
            return False
        self.text_left -= len(cell.source)
        return True

    def _read_helper(self, path: Place, file: _File) -> None:
        if "course_lib" in (*path, path[-1].removesuffix(".py")):
            raise _Refused("was not read: the course's own is used")
        if not (path[-1][:-3].isidentifier() and all(map(str.isprintable, path)) and len("/".join(path)) <= 200):
            raise _Refused("was not read: no notebook can import a file of that name")
        if len(self.files) == MOST_HELPERS:
            raise _Refused(f"was not read: of a submission {MOST_HELPERS} helper files are")
        text = _plain(file.read(LARGEST_HELPER, self._charge).decode("utf-8-sig", "replace"))
        if len(text) > self.text_left:
            raise _Refused(f"was not read: a submission may hold {LARGEST_TEXT:,} characters")
        self.text_left -= len(text)
        self.files["/".join(path)] = text

    def submission(self, name: str) -> Submission:
        if not self.notebooks:
            self.troubles.append("There is no notebook in it")
        notebooks, troubles = tuple(notebook for _, notebook in self.notebooks), _first(self.troubles)
        read = [[asdict(notebook) for notebook in notebooks], sorted(self.files.items()), troubles]
        digest = hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()
        return Submission(name, notebooks, self.files, troubles, digest)


def _read(name: str, item: _Item) -> Submission:
    reading = _Reading()
    with ExitStack() as until:
        reading.look(item, until)
        reading.read()
    return reading.submission(name)


def _plain_name(name: str) -> str:
    """The name of the course's notebook that a file name means, if any."""
    numbers = sorted(_chapters_in(name))
    return f"{numbers[0]:02}_{STEMS[numbers[0] - 1]}.ipynb" if numbers else "notebook.ipynb"


def _by_path(found: tuple[Place, object]) -> list:
    """Folders by name, then files by name without their ending: a notebook stands before its copies."""
    *folders, name = found[0]
    return [_natural(folder) for folder in folders] + [_natural(os.path.splitext(name)[0])]


def _shown(path: Place) -> str:
    return printable("/".join(path))


def _first(troubles: list[str]) -> tuple[str, ...]:
    more = len(troubles) - MOST_TROUBLES
    return (*troubles[:MOST_TROUBLES], *([f"And there are {more:,} more such troubles"] if more > 0 else []))


def _megabytes(size: int) -> str:
    return f"{size // 1_000_000} MB"


def _plain(text: str) -> str:
    """With the line ends that Python makes of all, and without halves of characters, which no file can hold."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub("[\ud800-\udfff]", "�", text)


# --------------------------------------------------------------------------------------------------------- one notebook
class _Unreadable(Exception):
    """Text that is no JSON from here on; the message says why, if anything special."""


# Every repetition is possessive (*+, ++): what was stepped over is never tried in another way, so time is linear.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT = rb'[^"\[\]{}]++|' + _STRING
_PAIR = rb"\[(?:%(in)s)*+\]|\{(?:%(in)s)*+\}"  # brackets that hold no more than ...
_PAIRS = _PAIR % {b"in": _FLAT + b"|" + _PAIR % {b"in": _FLAT}}  # ... such brackets: most outputs, in one step
_TO_BRACKET = re.compile(rb"(?:" + _FLAT + b"|" + _PAIRS + rb")*+", flags=re.DOTALL)
_SCALAR = re.compile(_STRING + rb'|[^\s,:"\[\]{}]+', flags=re.DOTALL)
_TEXT = re.compile(_STRING + rb"|\[(?:[\s,]++|" + _STRING + rb")*+\]", flags=re.DOTALL)
_SPACE, _BETWEEN = re.compile(rb"[\s\0]*+"), re.compile(rb"[\s\0,]*+")
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class _Cursor:
    """A place in JSON text (UTF-8): it goes into what is asked for and steps over the rest without building it."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def next(self, over: re.Pattern = _SPACE) -> bytes:
        """The next character that is no space; b"" at the end."""
        self.at = over.match(self.data, self.at).end()
        return self.data[self.at : self.at + 1]

    def inside(self, opening: bytes) -> Iterator:
        """Stop at each value of the array (b"[") or object (b"{") that begins here: yields its place, from 1, or key.

        A value that is left alone is stepped over; so is what begins otherwise than `opening`, and what comes behind
        the first that is too many.
        """
        if self.next() != opening:
            return
        most = MOST_CELLS if opening == b"[" else MOST_KEYS
        self.at += 1
        count = 0
        while self.next(_BETWEEN) != (b"]" if opening == b"[" else b"}"):
            count += 1
            key = count
            if opening == b"{":
                key = self.value()
                if self.next() != b":":
                    raise _Unreadable
                self.at += 1
                self.next()
            before = self.at
            yield key
            if count > most:
                self.at = _TO_BRACKET.match(self.data, self.at).end()
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
        """Step over a value in brackets, of which `depth` are open here."""
        data, at = self.data, self.at
        while True:
            step = _STEP.get(data[at]) if at < len(data) else None
            if step is None:
                raise _Unreadable
            at, depth = at + 1, depth + step
            if depth > DEEPEST_JSON:
                raise _Unreadable(f"more than {DEEPEST_JSON:,} brackets stand in each other")
            if depth <= 0:
                break
            at = _TO_BRACKET.match(data, at).end()
        if depth < 0:
            raise _Unreadable
        self.at = at

    def value(self) -> object:
        """The small value that begins here; None for any other."""
        self.next()
        begin = self.at
        self.skip()
        with suppress(ValueError, RecursionError):  # no JSON; an integer of too many digits; too many brackets
            return json.loads(self._decoded(begin)) if self.at - begin <= LARGEST_VALUE else None

    def text(self) -> str | None:
        """The text that begins here, one string or a list of them; None for anything else, and for too much."""
        self.next()
        begin = self.at
        self.skip()
        if self.at - begin > 8 * LARGEST_CELL or not _TEXT.fullmatch(self.data, begin, self.at):
            return None
        with suppress(ValueError):
            text = "".join(json.loads(self._decoded(begin), strict=False))
            return text if len(text) <= LARGEST_CELL else None

    def _decoded(self, begin: int) -> str:
        return self.data[begin : self.at].decode(errors="replace")


KINDS = {"code": "code", "markdown": "markdown", "raw": "raw", "heading": "markdown", "html": "raw"}
BEGINNINGS = {  # of what is no notebook
    b"PK": "it is a zip file under the name of a notebook",
    b"%PDF": "it is a PDF, not a notebook",
    b"<": "it is a web page, not a notebook: the file itself must be downloaded",
    b"version https://git-lfs": "it stands for a file that Git LFS keeps elsewhere: that file must be handed in",
}


def _cells(data: bytes) -> tuple[list[Cell], list[str]]:
    """The cells of a notebook, and what could not be read, in sentences. Damage costs what stands behind it."""
    if (encoding := json.detect_encoding(data)) != "utf-8":
        data = data.decode(encoding, "replace").encode()
    cursor = _Cursor(data)
    if cursor.next() != b"{":
        begins = data[cursor.at : cursor.at + 40]
        what = "it is no notebook" if begins else "it is empty"
        return [], [next((said for start, said in BEGINNINGS.items() if begins.startswith(start)), what)]
    cells: dict[str, list[Cell]] = {}  # "cells", or "worksheets" where nbformat 3 keeps them
    troubles: list[str] = []
    said: dict = {}
    try:
        for key in cursor.inside(b"{"):
            if key in cells:
                cells.clear()
                raise _Unreadable("its cells stand there twice")
            if key == "cells":
                cells[key] = []
                _add_cells(cursor, cells[key], troubles)
            elif key == "worksheets":
                cells[key] = []
                for _ in cursor.inside(b"["):  # its sheets, which Jupyter shows as one
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
    """The language of a notebook's kernel, if it says one."""
    kernel, language = (
        said.get(part) if isinstance(said.get(part), dict) else {} for part in ("kernelspec", "language_info")
    )
    names = [language.get("name"), kernel.get("language"), *re.findall(r"^(?:ir|julia)\b", str(kernel.get("name")))]
    return next((name for name in names if isinstance(name, str)), None)


def _add_cells(cursor: _Cursor, cells: list[Cell], troubles: list[str]) -> None:
    """Read the list of cells that begins at the cursor, after those that are there."""
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
            elif part in ("source", "input"):  # the latter in code cells of nbformat 3
                texts[part] = cursor.text()
        source = texts.get("source", texts.get("input"))
        if source is None:
            troubles.append(f"cell {number} was left out: no text, or more than {LARGEST_CELL:,} characters")
            continue
        if not isinstance(kind, str) or kind not in KINDS:
            troubles.append(f"cell {number} is of no known type: it was read as raw text")
            kind = "raw"
        cells.append(Cell(number, KINDS[kind], _plain(source)))


# --------------------------------------------------------------------------------------------------------------- layout
def find(paths: Sequence[Path]) -> list[Submission]:
    """Every submission among `paths`, in the natural order of their names.

    A notebook or a zip file is a submission, named after itself. A folder that is given alone is
      - one submission, if it holds the only notebook, or notebooks about different chapters (03_attention-Copy1.ipynb
        is no other notebook than 03_attention.ipynb), or the course's own folder `exercises`;
      - otherwise a class: each notebook, zip file and folder in it is a submission. One without a notebook is one too,
        of no points: nobody is lost. So `submitted/NAME/ASSIGNMENT/x.ipynb` works, and what Canvas and Moodle make.
    A zip file that is given alone is read as such a folder. Of several paths each is one submission. A submission's
    notebooks are looked for at any depth, and in zip files within it; names that begin with a dot, `__MACOSX` and
    installed packages are passed by.

    Two submissions of one name are told apart by the folder around them, or by a number.

    Errors: ValueError for a path that is not there or can hold no submission, and if there is none at all. What a
        learner handed in raises nothing: see `troubles`.
    """
    if not paths:
        raise ValueError("paths is empty: name the notebooks, zip files or folders to be graded")
    places = sorted({Path(os.path.abspath(path)) for path in paths}, key=lambda place: _natural(str(place)))
    for place in places:
        if not os.path.lexists(place):
            raise ValueError(f"{place} is not there: name a notebook (.ipynb), a zip file or a folder of them")
        if os.path.isfile(place) and _ending(place.name) not in (".ipynb", ".zip"):
            raise ValueError(f"{place} is no submission: name a notebook (.ipynb), a zip file or a folder of them")
    with ExitStack() as until:
        if len(places) == 1:
            [place] = places
            # The teacher's own link to a folder is followed; one inside of it is not.
            alone = _Folder(place.name, lambda: _inside(place)) if os.path.isdir(place) else _on_disk(place)
            found = [(item, place.name) for item in _split(alone, until)]
        else:
            found = [(_on_disk(place), place.parent.name) for place in places]
        if not found:
            raise ValueError(f"{places[0]} holds no submission: neither a notebook nor a zip file nor a folder")
        submissions = [_read(name, item) for name, (item, _) in zip(_names(found), found)]
    return sorted(submissions, key=lambda submission: _natural(submission.name))


def _split(item: _Item, until: ExitStack) -> list[_Item]:
    """The submissions in what is given alone; the item itself if it is one."""
    folder = item
    if isinstance(item, _File) and _ending(item.name) == ".zip":
        with suppress(_Refused):
            folder = _unpacked(item, lambda size: None, until)
    if not isinstance(folder, _Folder):
        return [item]
    items = _visible(folder)
    if folder is not item and len(items) == 1 and isinstance(items[0], _Folder):
        items = _visible(items[0])  # the archive of a folder
    notebooks = [each for each in items if _is_notebook(each)]
    others = [each for each in items if not _is_notebook(each) and _may_be_submission(each)]
    if notebooks:  # then a folder without any is no learner's, but a folder of data
        others = [each for each in others if not isinstance(each, _Folder) or _holds_notebook(each)]
    one = any(folder.name == "exercises" for folder in _folders(items))  # a copy of the course
    if one or (notebooks and _belong_together(notebooks, others)) or (folder is not item and not notebooks + others):
        return [item]
    return sorted(notebooks + others, key=lambda each: _natural(each.name))


def _visible(folder: _Folder) -> list[_Item]:
    """Without what is ignored, and what is no place in an archive: nobody handed that in."""
    return [each for each in folder.items() if not (_ignored(each.name) or getattr(each, "why", "") in NOWHERE)]


def _is_notebook(item: _Item) -> bool:
    return _ending(item.name) == ".ipynb" and not isinstance(item, _Folder)


def _may_be_submission(item: _Item) -> bool:
    return not isinstance(item, _File) or _ending(item.name) in (".zip", *OTHER_ARCHIVES)


def _holds_notebook(item: _Item) -> bool:
    """Whether a folder or an archive holds a notebook; an archive that cannot be opened may."""
    reading = _Reading()
    with ExitStack() as until:
        reading.look(item, until)
    return bool(reading.found[".ipynb"] or reading.notebooks or (isinstance(item, _File) and reading.troubles))


def _belong_together(notebooks: Sequence[_Item], others: Sequence[_Item]) -> bool:
    """Whether notebooks side by side are one learner's: the only one, or each about chapters of its own."""
    originals = defaultdict(list)
    for notebook in notebooks:
        originals[re.sub(r"-Copy[0-9]+$", "", os.path.splitext(notebook.name)[0])].append(notebook)  # JupyterLab's own
    if len(originals) == 1:  # a folder beside it may be an older state; two, or an archive, are other learners
        archives = [other for other in others if isinstance(other, _File) and _holds_notebook(other)]
        return not archives and len(_folders(others)) < 2
    known: set[int] = set()
    for copies in originals.values():
        chapters = set().union(*(chapters_of(_read("", notebook)) for notebook in copies))
        if not chapters or chapters & known:
            return False
        known |= chapters
    return True


def _folders(items: Iterable[_Item]) -> list[_Folder]:
    return [item for item in items if isinstance(item, _Folder)]


def _names(found: Sequence[tuple[_Item, str]]) -> list[str]:
    """A name of its own for each item, given the folder around it."""
    own = [_name(item) for item, _ in found]
    counts = Counter(own)
    around = defaultdict(set)
    for name, (_, folder) in zip(own, found):
        around[name].add(folder)
    taken = {name for name in own if counts[name] == 1}
    names = []
    for name, (_, folder) in zip(own, found):
        if counts[name] > 1:
            label = f"{name} ({_clean(folder)})" if len(around[name]) > 1 else name
            numbered = (f"{label} ({number})" for number in range(2, len(found) + 2))
            name = next(each for each in (label, *numbered) if each not in taken)
            taken.add(name)
        names.append(name)
    return names


def _name(item: _Item) -> str:
    stem, ending = os.path.splitext(item.name)
    is_file = not isinstance(item, _Folder) and ending.lower() in (".ipynb", ".zip", *OTHER_ARCHIVES)
    return _clean(stem if is_file else item.name)


def _clean(name: str) -> str:
    return printable(unicodedata.normalize("NFC", name), 100).strip() or "(without a name)"
