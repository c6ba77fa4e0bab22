"""One submission, read as text: notebooks as cells, the .py files beside them, and small files of data as bytes.

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
from dataclasses import asdict, dataclass, field, replace

from course_lib.classroom.file_names import STEMS
from course_lib.classroom.read.data_files import MODULES, named_in
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
from course_lib.classroom.read.other_formats import (
    CHAPTER_OF_ANSWER,
    DEFINED,
    FORMS,
    LARGEST_HELPER,
    cells_of_form,
    is_of_library,
)
from course_lib.classroom.read.repair import MERGE, TEXT_NOTEBOOK, THEIRS, as_notebook, merged, python_version, sides
from course_lib.classroom.read.unchanged import MOST_RECORDS, AsGiven, is_record
from course_lib.grading.judge.show import printable
from course_lib.grading.page.catalogue import EXERCISES

# For one submission. Sizes are in bytes, those of text in characters.
LARGEST_TEXT = 8_000_000  # all cells and helper files together
MOST_READ = 512_000_000  # unpacked, all files together
MOST_NOTEBOOKS = 100
MOST_HELPERS = 100
LARGEST_DATA_FILE = 1_000_000
LARGEST_DATA = 8_000_000  # all data files together
MOST_DATA = 200
MOST_NAMED = 3  # modules of a clone's library that were edited
MOST_FILES = 10_000  # that are looked at: notebooks, helpers, folders, archives
MOST_LISTED = 200_000  # of any kind
MOST_ARCHIVES = 20
MOST_TROUBLES = 50  # that are said of a notebook, and of the rest
DEEPEST_ARCHIVE = 2  # one inside another

NO_NOTEBOOK = "There is no notebook in it"


@dataclass(frozen=True)
class Notebook:
    """One notebook: its cells without outputs, and in sentences what of it could not be read.

    path: below the submission, for messages and for its chapter; it holds no control characters · python, the version
    that it was written with, if it says so.
    """

    path: str
    cells: tuple[Cell, ...]
    troubles: tuple[str, ...] = ()
    python: tuple[int, ...] = ()

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
    all of these and of the data: equal for equal cells, whatever the outputs and the machine · learner, the id of whose
    it is, if that is known · handed_in, the names of what lay in the class and became this submission · times, when
    each of these came, as its platform writes it, or "" · salvaged, in sentences what was read all the same · salvage,
    whether that is wanted · data, other small files beside or below the notebooks that their code names, path -> bytes
    · unfinished, whether what is complete above a syntax error in a cell shall run · unchanged, how many notebooks are
    left out because they are as the course handed them out.
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
        """Return the helper files and the data as a notebook sees them: path from its folder -> text or bytes. If it
        runs notebooks (`%run`), the others are among them."""
        folder = notebook.path.rpartition("/")[0]
        start = f"{folder}/" if folder else ""
        files: dict[str, str | bytes] = {**self.data, **self.files}
        if self.salvage and any(".ipynb" in line for line in _runs(notebook)):
            others = [each for each in self.notebooks if each is not notebook]
            files |= {each.path: as_notebook((c.kind, c.source) for c in each.cells) for each in others}
        return {path.removeprefix(start): text for path, text in files.items() if path.startswith(start)}

    def runs(self, notebook: Notebook) -> list[str]:
        """Return sentences on the notebooks that it runs (`%run`) and finds, after its name."""
        if not self.salvage or not (lines := _runs(notebook)):
            return []
        paths = [path for path in self.beside(notebook) if path.endswith(".ipynb")]
        return [f"it runs {path}, which was also handed in" for path in paths if any(path in line for line in lines)]

    @property
    def all_troubles(self) -> tuple[str, ...]:
        """Return those of the notebooks too, each after its path."""
        own = (f"{notebook.path}: {trouble}" for notebook in self.notebooks for trouble in notebook.troubles)
        return (*self.troubles, *own)


def _runs(notebook: Notebook) -> list[str]:
    return [line for cell in notebook.cells if "%run" in cell.source for line in RUNS.findall(cell.source)]


RUNS = re.compile(r"^[ \t]*+%run[ \t]([^\n]*+)", flags=re.MULTILINE)


def chapters_of(submission: Submission) -> set[int]:
    """Return the chapters that a submission is about, by its notebooks' file names, checks, else by names."""
    return set().union(*(notebook.chapters for notebook in submission.notebooks))


def chapters_in_name(path: str) -> set[int]:
    """Read 02_attention.ipynb, and whatever a browser, a learner or a learning platform put around it."""
    name = re.sub(r"[^0-9a-z]+", "_", path.rpartition("/")[2].lower())
    return {n for n, stem in enumerate(STEMS, start=1) if re.search(rf"(?<![0-9])0?{n}_{stem}(?![a-z])", name)}


class Reading:
    """One submission while it is read: what was found, and what may still be read."""

    def __init__(self, salvage: bool = True, own: bool = True):
        self.salvage, self.given = salvage, AsGiven(own)
        self.records = self.unchanged = 0
        self.salvaged: list[str] = []
        self.notebooks: list[tuple[Place, Notebook]] = []
        self.files: dict[str, str] = {}
        self.data: dict[str, bytes] = {}
        self.troubles: list[str] = []
        self.found: dict[str, list[tuple[Place, File]]] = {".ipynb": [], ".py": []}
        self.forms: list[tuple[Place, File]] = []  # what may be a notebook in another form
        self.others: list[tuple[Place, File]] = []  # files of another kind
        self.bytes_left, self.text_left = MOST_READ, LARGEST_TEXT
        self.seen = self.listed = self.archives = 0

    def look(self, item: Item, until: ExitStack) -> None:
        """Find the files, the near ones first, so that a limit cuts off what lies deep."""
        # A file that is handed in alone goes by its chapter: its own name may hold the learner's, and is said already.
        start: Place = (_plain_name(item.name),) if ending(item.name) == ".ipynb" else (item.name,)
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
                        # A folder of ten thousand pictures must not hide the notebook that comes behind them.
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
        """Put a file to those of its kind."""
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
        """Keep a notebook that cannot be read as one that was handed in; say the rest in a sentence."""
        is_notebook = path and ending(path[-1]) == ".ipynb" and why not in NOWHERE
        if is_notebook and len(self.notebooks) < MOST_NOTEBOOKS:
            self.notebooks.append((path, Notebook(_shown(path), (), (f"it {why}",))))
        else:
            self.troubles.append(f"{_shown(path) or 'It'} {why}")

    def read(self) -> None:
        """Read the notebooks that were found, then the helper files, then the data that these name."""
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
        """Say in one line which modules of a clone's library are not those of this course; the others are nobody's."""
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
        """Leave out chapters as they were given, and exercises as they were given beside others that were changed: in a
        clone of the course nearly all are so."""
        own = [each for each in self.notebooks if not self.given.is_chapter(each[1].cells)]
        if len(own) > 1:
            open_ = [
                self.given.is_exercise(each.cells, chapters_in_name(each.path) & {*CHAPTER_OF_ANSWER.values()})
                for _, each in own
            ]
            own = [each for each, is_open in zip(own, open_) if not is_open] or own
        self.unchanged, self.notebooks = len(self.notebooks) - len(own), own

    def _read_notebook(self, path: Place, data: bytes) -> None:
        """Add a notebook; one whose merge was never finished as two versions, if both can be read."""
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
        """Where no notebook was handed in, read the files that hold answers in another form: scripts, pages."""
        for path, file in sorted(self.forms, key=_by_path)[:MOST_NOTEBOOKS]:
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
        """Read the small files beside and below notebooks that their code may open; name those that do not travel."""
        below = {}  # path -> from the folder of the notebook, the topmost if there are several
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
    """Read what one learner handed in. own: notebooks that are as this course has them on disk are left out."""
    reading = Reading(salvage, own)
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
