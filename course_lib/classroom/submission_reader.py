"""One submission, read as text: notebooks as cells, and the .py files beside them.

Nothing of a submission is run, imported or written, and whatever is read has a limit: what a learner handed in never
raises here, it becomes a sentence in `troubles`.
"""

import hashlib
import json
import os
import re
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from course_lib.grading.catalogue import EXERCISES
from course_lib.grading.show import printable

from .file_names import STEMS
from .folders import (
    DEEPEST_FOLDER,
    NOWHERE,
    OTHER_ARCHIVES,
    TOO_DEEP,
    File,
    Folder,
    Item,
    LeftOut,
    Place,
    Refused,
    ending,
    ignored,
    megabytes,
    natural,
    unpacked,
)
from .notebook_reader import Cell, mended, read_cells

# For one submission. Sizes are in bytes, those of text in characters.
LARGEST_NOTEBOOK = 64_000_000  # as a file: its outputs may be huge
LARGEST_HELPER = 1_000_000
LARGEST_TEXT = 8_000_000  # all cells and helper files together
MOST_READ = 256_000_000  # unpacked, all files together
MOST_NOTEBOOKS = 100
MOST_HELPERS = 100
MOST_FILES = 10_000  # that are looked at
MOST_ARCHIVES = 20
MOST_TROUBLES = 50  # that are said of a notebook, and of the rest
DEEPEST_ARCHIVE = 2  # one inside another

NO_NOTEBOOK = "There is no notebook in it"


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
        """Return what its file name and its calls of `check` say; without these, what the names that it defines say."""
        text = "\n".join(cell.source for cell in self.cells)
        ids = re.findall(r"""\bcheck\(\s*["']([\w.]+)["']""", text)
        found = chapters_in_name(self.path) | {EXERCISES.entries[each].chapter for each in ids if each in EXERCISES}
        return found or {
            CHAPTER_OF_ANSWER[name] for names in DEFINED.findall(text) for name in names if name in CHAPTER_OF_ANSWER
        }


@dataclass(frozen=True)
class Submission:
    """What one learner handed in.

    Fields: name, unique among those found together · notebooks, in the natural order of their paths · files, the .py
    files beside or below them, path -> text · troubles, what else could not be read, in sentences · digest, SHA-256 of
    all of these but the name: equal for equal cells, whatever the outputs and the machine · learner, the id of whose it
    is, if that is known · handed_in, the names of what lay in the class and became this submission.
    """

    name: str
    notebooks: tuple[Notebook, ...]
    files: Mapping[str, str]
    troubles: tuple[str, ...]
    digest: str
    learner: str = ""
    handed_in: tuple[str, ...] = ()

    def beside(self, notebook: Notebook) -> dict[str, str]:
        """Return the helper files as a notebook sees them: path from its folder -> text."""
        folder = notebook.path.rpartition("/")[0]
        start = f"{folder}/" if folder else ""
        return {path.removeprefix(start): text for path, text in self.files.items() if path.startswith(start)}

    @property
    def all_troubles(self) -> tuple[str, ...]:
        """Return those of the notebooks too, each after its path."""
        own = (f"{notebook.path}: {trouble}" for notebook in self.notebooks for trouble in notebook.troubles)
        return (*self.troubles, *own)


CHAPTER_OF_ANSWER = {exercise.answer_name: exercise.chapter for exercise in EXERCISES.entries.values()}
DEFINED = re.compile(r"^[ \t]*(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", flags=re.MULTILINE)


def chapters_of(submission: Submission) -> set[int]:
    """Return the chapters that a submission is about, by its notebooks' file names, checks, else by names."""
    return set().union(*(notebook.chapters for notebook in submission.notebooks))


def chapters_in_name(path: str) -> set[int]:
    """Read 02_attention.ipynb, and whatever a browser, a learner or a learning platform put around it."""
    name = re.sub(r"[^0-9a-z]+", "_", path.rpartition("/")[2].lower())
    return {n for n, stem in enumerate(STEMS, start=1) if re.search(rf"(?<![0-9])0?{n}_{stem}(?![a-z])", name)}


class Reading:
    """One submission while it is read: what was found, and what may still be read."""

    def __init__(self):
        self.notebooks: list[tuple[Place, Notebook]] = []
        self.files: dict[str, str] = {}
        self.troubles: list[str] = []
        self.found: dict[str, list[tuple[Place, File]]] = {".ipynb": [], ".py": []}
        self.others: list[str] = []  # files of another kind
        self.bytes_left, self.text_left = MOST_READ, LARGEST_TEXT
        self.seen = self.archives = 0

    def look(self, item: Item, until: ExitStack) -> None:
        """Find the files, the near ones first, so that a limit cuts off what lies deep."""
        # A file that is handed in alone goes by its chapter: its own name may hold the learner's, and is said already.
        start = () if isinstance(item, Folder) or ending(item.name) != ".ipynb" else (_plain_name(item.name),)
        waiting: deque[tuple[Place, Item, int]] = deque([(start, item, 0)])
        while waiting:
            path, item, archives = waiting.popleft()
            try:
                if isinstance(item, LeftOut):
                    raise Refused(item.why)
                if isinstance(item, File) and ending(item.name) in (".zip", *OTHER_ARCHIVES):
                    item, archives = self._unpacked(item, archives, until), archives + 1
                if isinstance(item, Folder):
                    if len(path) > DEEPEST_FOLDER:
                        raise Refused(TOO_DEEP)
                    for child in item.items():
                        self.seen += 1
                        if self.seen > MOST_FILES:
                            break
                        if not ignored(child.name):
                            waiting.append(((*path, child.name), child, archives))
                elif ending(item.name) in self.found:
                    self.found[ending(item.name)].append((path, item))
                else:
                    self.others.append(_shown(path))
            except Refused as refused:
                self._leave_out(path, str(refused))
        if self.seen > MOST_FILES:
            self.troubles.append(f"It holds more than {MOST_FILES:,} files: the rest was not looked at")

    def _unpacked(self, file: File, archives: int, until: ExitStack) -> Folder:
        if ending(file.name) != ".zip":
            raise Refused("is an archive that is not opened here: a notebook, a folder or a zip file is")
        self.archives += 1
        if archives == DEEPEST_ARCHIVE or self.archives > MOST_ARCHIVES:
            raise Refused("is an archive too many: it was not opened")
        return unpacked(file, self._charge, until)

    def _charge(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise Refused(f"was not read: the files of a submission may hold {megabytes(MOST_READ)} together")

    def _leave_out(self, path: Place, why: str) -> None:
        """Keep a notebook that cannot be read as one that was handed in; say the rest in a sentence."""
        is_notebook = path and ending(path[-1]) == ".ipynb" and why not in NOWHERE
        if is_notebook and len(self.notebooks) < MOST_NOTEBOOKS:
            self.notebooks.append((path, Notebook(_shown(path), (), (f"it {why}",))))
        else:
            self.troubles.append(f"{_shown(path) or 'It'} {why}")

    def read(self) -> None:
        """Read the notebooks that were found, then the helper files."""
        for number, (path, file) in enumerate(sorted(self.found[".ipynb"], key=_by_path), start=1):
            try:
                if number > MOST_NOTEBOOKS:
                    raise Refused(f"was not read: of a submission {MOST_NOTEBOOKS} notebooks are")
                cells, troubles = read_cells(file.read(LARGEST_NOTEBOOK, self._charge))
            except Refused as refused:
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
                except Refused as refused:
                    self._leave_out(path, str(refused))

    def _affords(self, cell: Cell, troubles: list[str]) -> bool:
        if len(cell.source) > self.text_left:
            troubles.append(f"cell {cell.number} was left out: a submission may hold {LARGEST_TEXT:,} characters")
            return False
        self.text_left -= len(cell.source)
        return True

    def _read_helper(self, path: Place, file: File) -> None:
        if "course_lib" in (*path, path[-1].removesuffix(".py")):
            raise Refused("was not read: the course's own is used")
        if not (path[-1][:-3].isidentifier() and all(map(str.isprintable, path)) and len("/".join(path)) <= 200):
            raise Refused("was not read: no notebook can import a file of that name")
        if len(self.files) == MOST_HELPERS:
            raise Refused(f"was not read: of a submission {MOST_HELPERS} helper files are")
        text = mended(file.read(LARGEST_HELPER, self._charge).decode("utf-8-sig", "replace"))
        if len(text) > self.text_left:
            raise Refused(f"was not read: a submission may hold {LARGEST_TEXT:,} characters")
        self.text_left -= len(text)
        self.files["/".join(path)] = text

    def submission(self, name: str) -> Submission:
        if not self.notebooks:
            names = [*(_shown(path) for path, _ in self.found[".py"]), *self.others]
            more = [f"and {len(names) - 5:,} more"] if len(names) > 5 else []
            self.troubles.append(f"{NO_NOTEBOOK}{', but ' if names else ''}{', '.join(names[:5] + more)}")
        notebooks, troubles = tuple(notebook for _, notebook in self.notebooks), _first(self.troubles)
        read = [[asdict(notebook) for notebook in notebooks], sorted(self.files.items()), troubles]
        digest = hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()
        return Submission(name, notebooks, self.files, troubles, digest)


def read_submission(name: str, item: Item) -> Submission:
    reading = Reading()
    with ExitStack() as until:
        reading.look(item, until)
        reading.read()
    return reading.submission(name)


def _plain_name(name: str) -> str:
    """Return the name of the course's notebook that a file name means, if any."""
    numbers = sorted(chapters_in_name(name))
    return f"{numbers[0]:02}_{STEMS[numbers[0] - 1]}.ipynb" if numbers else "notebook.ipynb"


def _by_path(found: tuple[Place, object]) -> list:
    """Sort folders by name, then files by name without their ending: a notebook stands before its copies."""
    *folders, name = found[0]
    return [natural(folder) for folder in folders] + [natural(os.path.splitext(name)[0])]


def _shown(path: Place) -> str:
    return printable("/".join(path))


def _first(troubles: list[str]) -> tuple[str, ...]:
    more = len(troubles) - MOST_TROUBLES
    return (*troubles[:MOST_TROUBLES], *([f"And there are {more:,} more such troubles"] if more > 0 else []))
