"""Read one submission as text: the cells of its notebooks, the .py files next to them, and small data files as bytes.

No part of a submission is run, imported or written, and everything read has a size limit. The content of a submission
never raises an error here: problems become sentences in `troubles`.
"""

import hashlib
import json
import os
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from importlib.machinery import all_suffixes

from course_lib.classroom.read.fingerprints import MOST_RECORDS, AsGiven, is_of_library, is_record
from course_lib.classroom.read.folders import (
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
from course_lib.classroom.read.notebook_reader import MOST_CELLS, Cell, mended, read_cells, read_notebook
from course_lib.classroom.read.platforms import STEMS
from course_lib.classroom.read.salvage import (
    CHAPTER_OF_ANSWER,
    DEFINED,
    FORMS,
    LARGEST_HELPER,
    MERGE,
    TEXT_NOTEBOOK,
    THEIRS,
    as_notebook,
    cells_of_form,
    cells_of_script,
    exercise_of_file,
    merged,
    python_version,
    sides,
)
from course_lib.grading.judge.show import printable
from course_lib.grading.page.catalogue import EXERCISES

# Limits for one submission: file sizes in bytes, text in characters.
LARGEST_TEXT = 8_000_000  # all cells and helper files together
MOST_READ = 512_000_000  # unpacked size of all files together
MOST_NOTEBOOKS = 100
MOST_HELPERS = 100
LARGEST_DATA_FILE = 1_000_000
LARGEST_DATA = 8_000_000  # all data files together
MOST_DATA = 200
MOST_NAMED = 3  # edited modules of a clone's library
MOST_FILES = 10_000  # examined files: notebooks, helpers, folders, archives
MOST_LISTED = 200_000  # files of any kind
MOST_ARCHIVES = 20
MOST_TROUBLES = 50  # reported for each notebook, and for the rest
DEEPEST_ARCHIVE = 2  # archives inside archives

NO_NOTEBOOK = "There is no notebook in it"
WORD = re.compile(r"\.?[\w-]+")  # ".csv", "data", "listdir"
LISTS = frozenset(("glob", "rglob", "iglob", "iterdir", "listdir", "scandir", "walk"))
MODULES = frozenset((*(ending(f"x{suffix}") for suffix in all_suffixes()), ".so", ".pyd", ".dll", ".dylib"))


@dataclass(frozen=True)
class Notebook:
    """One notebook: its cells without outputs, and sentences about its unreadable parts.

    Fields:
        path: the path below the submission, for messages and for the chapter; without control characters.
        python: the version in the notebook's metadata, if there is one.
    """

    path: str
    cells: tuple[Cell, ...]
    troubles: tuple[str, ...] = ()
    python: tuple[int, ...] = ()

    @property
    def answers(self) -> str:
        """Return the exercise for which the complete file is the answer, as my_gpt.py is; "" for a notebook."""
        return exercise_of_file(self.path.rpartition("/")[2])

    @property
    def chapters(self) -> set[int]:
        """Return the chapters given by the file name and the calls of `check`; without these, by the names defined."""
        if self.answers:
            return {EXERCISES.entries[self.answers].chapter}
        text = "\n".join(cell.source for cell in self.cells)
        ids = re.findall(r"""\bcheck\(\s*["']([\w.]+)["']""", text)
        found = chapters_in_name(self.path) | {EXERCISES.entries[each].chapter for each in ids if each in EXERCISES}
        return found or {
            CHAPTER_OF_ANSWER[name] for names in DEFINED.findall(text) for name in names if name in CHAPTER_OF_ANSWER
        }


@dataclass(frozen=True)
class Submission:
    """The submission of one learner.

    Fields:
        name: unique among the submissions found together.
        notebooks: in the natural order of their paths.
        files: the .py files next to or below the notebooks, path -> text.
        troubles: sentences about everything else that could not be read.
        digest: SHA-256 of all of these and the data: equal for equal cells, whatever the outputs and the machine.
        learner: the learner's id, if known.
        handed_in: the names of the items in the class folder that form this submission.
        times: the time of each item as its platform writes it, or "".
        salvaged: sentences about everything that was repaired.
        salvage: whether repairs are allowed.
        data: other small files next to or below the notebooks that their code mentions, path -> bytes.
        unfinished: whether to run the complete statements above a syntax error in a cell.
        unchanged: the number of notebooks left out because the learner did not change them.
    """

    name: str
    notebooks: tuple[Notebook, ...]
    files: Mapping[str, str]
    troubles: tuple[str, ...]
    digest: str
    learner: str = ""
    handed_in: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    salvaged: tuple[str, ...] = ()
    salvage: bool = True
    data: Mapping[str, bytes] = field(default_factory=dict)
    unchanged: int = 0
    unfinished: bool = False

    def beside(self, notebook: Notebook) -> dict[str, str | bytes]:
        """Return the helper files and data as a notebook sees them: path from its folder -> text or bytes.

        If the notebook runs other notebooks (`%run`), they are included.
        """
        folder = notebook.path.rpartition("/")[0]
        start = f"{folder}/" if folder else ""
        files: dict[str, str | bytes] = {**self.data, **self.files}
        if self.salvage and any(".ipynb" in line for line in _runs(notebook)):
            others = [each for each in self.notebooks if each is not notebook]
            files |= {each.path: as_notebook((c.kind, c.source) for c in each.cells) for each in others}
        return {path.removeprefix(start): text for path, text in files.items() if path.startswith(start)}

    def runs(self, notebook: Notebook) -> list[str]:
        """Return sentences, without the notebook's name, about the notebooks that it runs (`%run`) and that exist."""
        if not self.salvage or not (lines := _runs(notebook)):
            return []
        paths = [path for path in self.beside(notebook) if path.endswith(".ipynb")]
        return [f"it runs {path}, which was also handed in" for path in paths if any(path in line for line in lines)]

    @property
    def all_troubles(self) -> tuple[str, ...]:
        """Return all troubles, including those of each notebook after its path."""
        own = (f"{notebook.path}: {trouble}" for notebook in self.notebooks for trouble in notebook.troubles)
        return (*self.troubles, *own)


def _runs(notebook: Notebook) -> list[str]:
    return [line for cell in notebook.cells if "%run" in cell.source for line in RUNS.findall(cell.source)]


RUNS = re.compile(r"^[ \t]*+%run[ \t]([^\n]*+)", flags=re.MULTILINE)


def chapters_of(submission: Submission) -> set[int]:
    """Return the chapters of a submission, by its notebooks' file names and checks, or else by the names defined."""
    return set().union(*(notebook.chapters for notebook in submission.notebooks))


def chapters_in_name(path: str) -> set[int]:
    """Return the chapters in a file name such as 02_attention.ipynb, ignoring additions by browsers or learners."""
    name = re.sub(r"[^0-9a-z]+", "_", path.rpartition("/")[2].lower())
    return {n for n, stem in enumerate(STEMS, start=1) if re.search(rf"(?<![0-9])0?{n}_{stem}(?![a-z])", name)}


class Reading:
    """A submission while it is read: the files found so far, and the limits left."""

    def __init__(self, salvage: bool = True, own: bool = True):
        self.salvage, self.given = salvage, AsGiven(own)
        self.records = self.unchanged = 0
        self.salvaged: list[str] = []
        self.notebooks: list[tuple[Place, Notebook]] = []
        self.files: dict[str, str] = {}
        self.data: dict[str, bytes] = {}
        self.troubles: list[str] = []
        self.found: dict[str, list[tuple[Place, File]]] = {".ipynb": [], ".py": []}
        self.forms: list[tuple[Place, File]] = []  # possible notebooks in another format
        self.others: list[tuple[Place, File]] = []  # files of other kinds
        self.bytes_left, self.text_left = MOST_READ, LARGEST_TEXT
        self.seen = self.listed = self.archives = 0

    def look(self, item: Item, until: ExitStack) -> None:
        """Find the files, nearest first, so that a limit only cuts off deeply nested ones."""
        # A single file is named by its chapter: its own name may contain the learner's, which is reported elsewhere.
        start: Place = (_plain_name(item.name),) if ending(item.name) == ".ipynb" else (item.name,)
        if answered := exercise_of_file(item.name):
            start = (EXERCISES.entries[answered].file,)
        if isinstance(item, Folder) or ending(item.name) in (".zip", *OTHER_ARCHIVES):
            start = ()
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
                    if item.note:
                        self.salvaged.append(f"{_shown(path) or item.name} {item.note}")
                    for child in item.items():
                        self.listed += 1
                        # A folder of ten thousand pictures must not hide a notebook that follows it.
                        self.seen += isinstance(child, Folder) or ending(child.name) in (".ipynb", ".py", ".zip")
                        if self.seen > MOST_FILES or self.listed > MOST_LISTED:
                            break
                        if is_record(child.name) and isinstance(child, File) and self.records < MOST_RECORDS:
                            self.records += 1
                            self.given.add(child)
                        if not ignored(child.name):
                            waiting.append(((*path, child.name), child, archives))
                else:
                    self._enter(path, item)
            except Refused as refused:
                self._leave_out(path, str(refused))
        if self.seen > MOST_FILES or self.listed > MOST_LISTED:
            most = MOST_FILES if self.seen > MOST_FILES else MOST_LISTED
            self.troubles.append(f"It holds more than {most:,} files: the rest was not looked at")

    def _enter(self, path: Place, file: File) -> None:
        """Add a file to the list for its kind."""
        kind = ".ipynb" if self.salvage and TEXT_NOTEBOOK.search(file.name) else ending(file.name)
        if kind in self.found:
            self.found[kind].append((path, file))
        elif len(self.others) < MOST_FILES:
            self.others.append((path, file))
        if kind in FORMS and len(self.forms) < MOST_FILES:
            self.forms.append((path, file))

    def _unpacked(self, file: File, archives: int, until: ExitStack) -> Folder:
        if ending(file.name) != ".zip":
            raise Refused("is an archive that is not opened here: a notebook, a folder or a zip file is")
        self.archives += 1
        if archives == DEEPEST_ARCHIVE or self.archives > MOST_ARCHIVES:
            raise Refused("is an archive too many: it was not opened")
        return unpacked(file, self._charge, until, self.salvage)

    def _charge(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise Refused(f"was not read: the files of a submission may hold {megabytes(MOST_READ)} together")

    def _leave_out(self, path: Place, why: str) -> None:
        """Keep an unreadable notebook as a submitted one; report any other file in a sentence."""
        is_notebook = path and ending(path[-1]) == ".ipynb" and why not in NOWHERE
        if is_notebook and len(self.notebooks) < MOST_NOTEBOOKS:
            self.notebooks.append((path, Notebook(_shown(path), (), (f"it {why}",))))
        else:
            self.troubles.append(f"{_shown(path) or 'It'} {why}")

    def read(self) -> None:
        """Read the notebooks that were found, then the helper files, then the data files that these mention."""
        for number, (path, file) in enumerate(sorted(self.found[".ipynb"], key=_by_path), start=1):
            try:
                if number > MOST_NOTEBOOKS:
                    raise Refused(f"was not read: of a submission {MOST_NOTEBOOKS} notebooks are")
                data = read_notebook(file, self._charge)
            except Refused as refused:
                self._leave_out(path, str(refused))
                continue
            self._read_notebook(path, data)
        self._leave_out_unchanged()
        if self.salvage and not self.notebooks:
            self._read_other_forms()
        self._read_answer_files()
        self.notebooks.sort(key=_by_path)
        homes, read = {path[:-1] for path, _ in self.notebooks}, {path for path, _ in self.notebooks}
        below = [(path, file) for path, file in self.found[".py"] if any(path[:i] in homes for i in range(len(path)))]
        self._pass_by_library([(path, file) for path, file in below if "course_lib" in path[:-1]])
        for path, file in sorted(below, key=_by_path):
            if "course_lib" not in path[:-1]:
                try:
                    self._read_helper(path, file)
                except Refused as refused:
                    if path not in read and f"{_shown(path)} {refused}" not in self.troubles:
                        self._leave_out(path, str(refused))
        self._read_data({path: file for path, file in self.others if path not in read}, homes)

    def _pass_by_library(self, modules: list[tuple[Place, File]]) -> None:
        """Report in one line the modules of a clone's library that differ from this course's; skip the others."""
        edited = []
        for path, file in sorted(modules, key=_by_path):
            try:
                if not is_of_library(file.read(LARGEST_HELPER, self._charge)):
                    edited.append(path)
            except Refused:
                edited.append(path)
        if edited:
            named = ", ".join(map(_shown, edited[:MOST_NAMED]))
            more = f" and {len(edited) - MOST_NAMED:,} more" if len(edited) > MOST_NAMED else ""
            was, own = ("was", "is") if len(edited) == 1 else ("were", "are")
            self.troubles.append(f"{named}{more} {was} not read: the course's own {own} used")

    def _leave_out_unchanged(self) -> None:
        """Leave out notebooks that the learner did not change.

        These are chapters, and exercises when others were changed: in a clone of the course, nearly all are unchanged.
        """
        own = [each for each in self.notebooks if not self.given.is_chapter(each[1].cells)]
        if len(own) > 1:
            open_ = [
                self.given.is_exercise(each.cells, chapters_in_name(each.path) & {*CHAPTER_OF_ANSWER.values()})
                for _, each in own
            ]
            own = [each for each, is_open in zip(own, open_) if not is_open] or own
        self.unchanged, self.notebooks = len(self.notebooks) - len(own), own

    def _read_notebook(self, path: Place, data: bytes) -> None:
        """Add a notebook. One with an unfinished merge becomes two versions, if both can be read."""
        versions = sides(data) if self.salvage else []
        if versions:
            self.salvaged.append(f"{_shown(path)} {MERGE}: both sides were read, and the better one counts")
        elif ending(path[-1]) != ".ipynb":
            self.salvaged.append(f"{_shown(path)} was read as a notebook, whatever its ending: hand in the .ipynb")
        cells_of: list[list[str]] = []
        for ending_, version in zip(("", THEIRS), versions or [data]):
            cells, troubles = read_cells(version)
            if not versions and merged(data):
                troubles.append(f"it {MERGE}: it must be finished, and handed in again")
            sources = [cell.source for cell in cells]
            if sources in cells_of:
                continue
            cells_of.append(sources)
            cells = [cell for cell in cells if self._affords(cell, troubles)]
            made = Notebook(_shown(path) + ending_, tuple(cells), _first(troubles), python_version(version))
            self.notebooks.append((path, made))

    def _read_other_forms(self) -> None:
        """Read files with answers in other formats, such as scripts and pages, if no notebook was submitted."""
        for path, file in sorted(self.forms, key=_by_path)[:MOST_NOTEBOOKS]:
            if exercise_of_file(path[-1]):
                continue  # these are read in any case
            try:
                cells = [] if "course_lib" in path else cells_of_form(file, self._charge)
            except Refused as refused:
                self._leave_out(path, str(refused))
                continue
            if cells:
                troubles = [f"only its first {MOST_CELLS:,} cells were read"] if len(cells) > MOST_CELLS else []
                made = [Cell(i, kind, mended(source)) for i, (kind, source) in enumerate(cells[:MOST_CELLS], start=1)]
                kept = tuple(cell for cell in made if self._affords(cell, troubles))
                self.notebooks.append((path, Notebook(_shown(path), kept, _first(troubles))))
                self.salvaged.append(f"{_shown(path)} was read as a notebook, for there is none: hand in the .ipynb")

    def _read_answer_files(self) -> None:
        """Read files that are the answer to an exercise, such as my_gpt.py, wherever they are."""
        for path, file in sorted(self.found[".py"], key=_by_path):
            if not exercise_of_file(path[-1]) or "course_lib" in path or len(self.notebooks) >= MOST_NOTEBOOKS:
                continue
            try:
                text = file.read(LARGEST_HELPER, self._charge).decode("utf-8-sig", "replace")
            except Refused as refused:
                self._leave_out(path, str(refused))
                continue
            troubles: list[str] = []
            cells = [Cell(i, kind, mended(source)) for i, (kind, source) in enumerate(cells_of_script(mended(text)), 1)]
            kept = tuple(cell for cell in cells[:MOST_CELLS] if self._affords(cell, troubles))
            self.notebooks.append((path, Notebook(_shown(path), kept, _first(troubles))))

    def _affords(self, cell: Cell, troubles: list[str]) -> bool:
        if len(cell.source) > self.text_left:
            troubles.append(f"cell {cell.number} was left out: a submission may hold {LARGEST_TEXT:,} characters")
            return False
        self.text_left -= len(cell.source)
        return True

    def _read_helper(self, path: Place, file: File) -> None:
        if "course_lib" in (*path, path[-1].removesuffix(".py")):
            raise Refused("was not read: the course's own is used")
        if not (
            path[-1][:-3].isidentifier() and all(map(str.isprintable, path)) and len("/".join(path).encode()) <= 200
        ):
            raise Refused("was not read: no notebook can import a file of that name")
        if len(self.files) == MOST_HELPERS:
            raise Refused(f"was not read: of a submission {MOST_HELPERS} helper files are")
        text = mended(file.read(LARGEST_HELPER, self._charge).decode("utf-8-sig", "replace"))
        if len(text) > self.text_left:
            raise Refused(f"was not read: a submission may hold {LARGEST_TEXT:,} characters")
        self.text_left -= len(text)
        self.files["/".join(path)] = text

    def _read_data(self, files: Mapping[Place, File], homes: set[Place]) -> None:
        """Read the small files next to and below notebooks that their code may open; report the files left out."""
        below = {}  # path -> path from the notebook's folder, the topmost one if there are several
        for path in sorted(
            (each for each in files if "course_lib" not in each), key=lambda each: _by_path((each, None))
        ):
            if depths := [depth for depth in range(len(path)) if path[:depth] in homes]:
                below[path] = path[depths[0] :]
        code = [cell.source for _, notebook in self.notebooks for cell in notebook.cells if cell.kind == "code"]
        wanted = named_in([*below.values()], [*code, *self.files.values()])
        for path in (path for path, is_named in zip(below, wanted) if is_named):
            try:
                self.data["/".join(path)] = self._data(path, files[path])
            except Refused as refused:
                self.troubles.append(f"{_shown(path)} was handed in and is not given to notebooks: it {refused}")

    def _data(self, path: Place, file: File) -> bytes:
        if ending(path[-1]) in MODULES:
            raise Refused("could be taken for a module")
        if not (all(map(str.isprintable, path)) and len("/".join(path).encode()) <= 200):
            raise Refused("has a name that is too long or cannot be printed")
        if len(self.data) == MOST_DATA:
            raise Refused(f"is one too many: a submission may have {MOST_DATA} data files")
        data = file.read(LARGEST_DATA_FILE, self._charge)
        if sum(map(len, self.data.values())) + len(data) > LARGEST_DATA:
            raise Refused(f"is too much: the data files of a submission may have {megabytes(LARGEST_DATA)} together")
        return data

    def submission(self, name: str) -> Submission:
        if not self.notebooks and self.unchanged:
            self.troubles.append("All of its notebooks are as the course handed them out")
        elif not self.notebooks:
            names = [_shown(path) for path, _ in (*self.found[".py"], *self.others)]
            more = [f"and {len(names) - 5:,} more"] if len(names) > 5 else []
            self.troubles.append(f"{NO_NOTEBOOK}{', but ' if names else ''}{', '.join(names[:5] + more)}")
        notebooks, troubles = tuple(notebook for _, notebook in self.notebooks), _first(self.troubles)
        cells = [asdict(replace(notebook, python=())) for notebook in notebooks]
        read: list = [cells, sorted(self.files.items()), troubles]
        read += [] if self.salvage else ["no salvage"]
        read += (
            [sorted((path, hashlib.sha256(data).hexdigest()) for path, data in self.data.items())] if self.data else []
        )
        digest = hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()
        salvaged = _first(self.salvaged)
        made = Submission(name, notebooks, self.files, troubles, digest, salvaged=salvaged, salvage=self.salvage)
        return replace(made, data=self.data, unchanged=self.unchanged)


def read_submission(name: str, item: Item, salvage: bool = True, own: bool = True) -> Submission:
    """Read the submission of one learner. own: whether to leave out notebooks equal to those of this course on disk."""
    reading = Reading(salvage, own)
    with ExitStack() as until:
        reading.look(item, until)
        reading.read()
    return reading.submission(name)


def _plain_name(name: str) -> str:
    """Return the name of the course's notebook that a file name stands for, if any."""
    numbers = sorted(chapters_in_name(name))
    return f"{numbers[0]:02}_{STEMS[numbers[0] - 1]}.ipynb" if numbers else "notebook.ipynb"


def _by_path(found: tuple[Place, object]) -> list:
    """Return a sort key: folders by name, then files by name without extension; a notebook precedes its copies."""
    *folders, name = found[0]
    return [natural(folder) for folder in folders] + [natural(os.path.splitext(name)[0])]


def _shown(path: Place) -> str:
    return printable("/".join(path))


def _first(troubles: list[str]) -> tuple[str, ...]:
    more = len(troubles) - MOST_TROUBLES
    return (*troubles[:MOST_TROUBLES], *([f"And there are {more:,} more such troubles"] if more > 0 else []))


def named_in(places: Sequence[Place], texts: Iterable[str]) -> list[bool]:
    """Return for each file whether the code may read it.

    A file counts if the code contains its name, its extension or a folder above it, or if the code lists a folder.
    Nothing is run to find out. A name that matches by chance only copies one file too many. Reports and pictures that
    no cell opens are left out: two learners with the same cells still have equal submissions, and no message mentions
    a file that no code needs.

    Args:
        places: the path of each file below the notebook's folder.
    """
    wanted = {word for place in places for word in _words(place)} | LISTS
    found = {
        word for text in texts for each in WORD.finditer(text.casefold()) for word in (each[0], each[0].lstrip("."))
    } & wanted
    return [bool(found & LISTS) or not found.isdisjoint(_words(place)) for place in places]


def _words(place: Place) -> list[str]:
    *folders, name = map(str.casefold, place)
    stem, suffix = os.path.splitext(name)
    return [*folders, stem, suffix] if suffix else [*folders, stem]
