"""What was handed in, read as text: notebooks as cells, and the .py files beside them.

Nothing of a submission is run, imported or written, and whatever is read has a limit: what a learner handed in never
raises here, it becomes a sentence in `troubles`.
"""

import hashlib
import json
import os
import re
import unicodedata
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from course_lib.grading.catalogue import EXERCISES
from course_lib.grading.show import printable

from .file_names import COURSE_FILE, STEMS, downloads
from .folders import (
    DEEPEST_FOLDER,
    LINK,
    LITTER,
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
    items_of,
    megabytes,
    natural,
    on_disk,
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
        return found or {
            CHAPTER_OF_ANSWER[name] for names in DEFINED.findall(text) for name in names if name in CHAPTER_OF_ANSWER
        }


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


CHAPTER_OF_ANSWER = {exercise.answer_name: exercise.chapter for exercise in EXERCISES.values()}
DEFINED = re.compile(r"^[ \t]*(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", flags=re.MULTILINE)


def chapters_of(submission: Submission) -> set[int]:
    """The chapters that a submission is about, by its notebooks' file names, checks and, without these, names."""
    return set().union(*(notebook.chapters for notebook in submission.notebooks))


def _chapters_in(path: str) -> set[int]:
    """02_attention.ipynb, and whatever a browser, a learner or a learning platform put around it."""
    name = re.sub(r"[^0-9a-z]+", "_", path.rpartition("/")[2].lower())
    return {n for n, stem in enumerate(STEMS, start=1) if re.search(rf"(?<![0-9])0?{n}_{stem}(?![a-z])", name)}


# ------------------------------------------------------------------------------------------------------- one submission
class _Reading:
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
        """A notebook that cannot be read still is one that was handed in."""
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


def _read(name: str, item: Item) -> Submission:
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
    return [natural(folder) for folder in folders] + [natural(os.path.splitext(name)[0])]


def _shown(path: Place) -> str:
    return printable("/".join(path))


def _first(troubles: list[str]) -> tuple[str, ...]:
    more = len(troubles) - MOST_TROUBLES
    return (*troubles[:MOST_TROUBLES], *([f"And there are {more:,} more such troubles"] if more > 0 else []))


# --------------------------------------------------------------------------------------------------------------- layout
def find_submissions(paths: Sequence[Path]) -> list[Submission]:
    """The submissions of `find_all`, without what was not taken."""
    return find_submissions_and_rest(paths)[0]


def find_submissions_and_rest(paths: Sequence[Path]) -> tuple[list[Submission], list[LeftOut]]:
    """Every submission among `paths`, in the natural order of their names; and what was not taken, and why.

    A notebook or a zip file is a submission, named after itself. A folder that is given alone is
      - one submission, if it holds nothing but one notebook, or if its notebooks bear the course's own file names, each
        of another chapter (02_attention-Copy1.ipynb is no other notebook than 02_attention.ipynb), and no folder or
        archive in it holds a notebook; or if its only notebook's name begins as the course's (02_attention_final.ipynb,
        with helper files beside it); so is a copy of the course;
      - otherwise a class: each notebook, archive and folder in it is a submission. One without a notebook is one too,
        of no points. So `submitted/NAME/ASSIGNMENT/x.ipynb` works. What else is in it, is told as not taken.
    A zip file that is given alone is read as such a folder. Of several paths each is one submission. A submission's
    notebooks are looked for at any depth, and in zip files within it; names that begin with a dot, `__MACOSX` and
    installed packages are passed by.

    What Canvas or Moodle says by its file names to be of one learner is one submission. If in doubt, two files are two
    submissions: what was split is seen, and what was merged is not.

    Two submissions of one name are told apart by the folder around them, or by a number.

    Errors: ValueError for a path that is not there or can hold no submission, and if there is none at all. What a
        learner handed in raises nothing: see `troubles`.
    """
    if not paths:
        raise ValueError("paths is empty: name the notebooks, zip files or folders to be graded")
    places = sorted({Path(os.path.abspath(path)) for path in paths}, key=lambda place: natural(str(place)))
    for place in places:
        if not os.path.lexists(place):
            raise ValueError(f"{place} is not there: name a notebook (.ipynb), a zip file or a folder of them")
        if os.path.isfile(place) and ending(place.name) not in (".ipynb", ".zip"):
            raise ValueError(f"{place} is no submission: name a notebook (.ipynb), a zip file or a folder of them")
    with ExitStack() as until:
        if len(places) == 1:
            [place] = places
            # The teacher's own link to a folder is followed; one inside of it is not.
            alone = Folder(place.name, lambda: items_of(place)) if os.path.isdir(place) else on_disk(place)
            handed_in = [(item, place.name) for item in _split(alone, until)]
            is_class = handed_in[0:1] != [(alone, place.name)]
        else:
            handed_in = [(on_disk(place), place.parent.name) for place in places]
            is_class = False
        found, left = _by_learner(handed_in)
        submissions = []
        for name, (item, _) in zip(_names(found), found):
            submission = _read(name, item)
            links = [trouble for trouble in submission.all_troubles if trouble.endswith(LINK)]
            empty = not any(notebook.cells for notebook in submission.notebooks)
            if is_class and links and empty and f"{NO_NOTEBOOK}, but" not in "".join(submission.troubles):
                left.append(LeftOut(name, f"holds no notebook that can be read: {links[0]}"))
            else:
                submissions.append(submission)
    if not submissions:
        why = "; ".join(f"{each.name} {each.why}" for each in left[:5])
        raise ValueError(
            f"{places[0]} holds no submission: neither a notebook nor a zip file nor a folder{why and f' ({why})'}"
        )
    return sorted(submissions, key=lambda submission: natural(submission.name)), left


NO_NOTEBOOK = "There is no notebook in it"


def _split(item: Item, until: ExitStack) -> list[Item]:
    """What lies in a class that is given alone; the item itself if it is one submission."""
    folder = item
    if isinstance(item, File) and ending(item.name) == ".zip":
        with suppress(Refused):
            folder = unpacked(item, lambda size: None, until)
    if not isinstance(folder, Folder):
        return [item]
    items = _handed_in(folder)
    if folder is not item and len(visible := _visible(items)) == 1 and isinstance(visible[0], Folder):
        items = [each for each in items if each is not visible[0]] + _handed_in(visible[0])  # the archive of a folder
    visible = _visible(items)
    names = {each.name for each in visible if isinstance(each, Folder)}
    if "exercises" in names and names & {"course_lib", "notebooks"}:  # a copy of the course, whatever else lies in it
        return [item]
    is_empty_archive = folder is not item and not any(map(_is_submission, visible))
    return [item] if is_empty_archive or _is_one_learners(visible) else items


def _handed_in(folder: Folder) -> list[Item]:
    """All but what systems leave in a folder. What is passed by says so."""
    items = [each for each in folder.items() if each.name not in LITTER and not each.name.startswith("._")]
    return [LeftOut(each.name, "is hidden or no work of a learner") if ignored(each.name) else each for each in items]


def _visible(items: Sequence[Item]) -> list[Item]:
    """Without what is no place in an archive, too."""
    return [each for each in items if not (ignored(each.name) or getattr(each, "why", "") in NOWHERE)]


def _is_notebook(item: Item) -> bool:
    return ending(item.name) == ".ipynb" and not isinstance(item, Folder)


def _is_submission(item: Item) -> bool:
    named = ending(item.name) in (".ipynb", ".zip", *OTHER_ARCHIVES)
    return isinstance(item, Folder) or (isinstance(item, File) and named)


def _is_one_learners(items: Sequence[Item]) -> bool:
    """Whether what lies side by side is surely of one learner: see `find_all`."""
    notebooks = [each for each in items if _is_notebook(each)]
    others = [each for each in items if not _is_notebook(each) and _is_submission(each)]
    if not notebooks:
        return False
    copied = re.compile(r"-Copy[0-9]+$| \([0-9]+\)$")  # JupyterLab's own, and a browser's second download
    originals = {copied.sub("", os.path.splitext(notebook.name)[0]) for notebook in notebooks}
    if len(originals) == 1 and len(notebooks) == len(items):
        return not downloads(notebooks[0].name)
    if len(originals) == 1 and not others and re.match(COURSE_FILE, next(iter(originals))):
        return True  # 02_attention_final.ipynb, with what it imports
    chapters = [_chapters_in(name) for name in originals if re.fullmatch(rf"({COURSE_FILE})( \([0-9]+\))?", name)]
    others_work = any(map(_may_hold_notebook, others))
    return len(chapters) == len(originals) == len(set().union(*chapters)) and not others_work


def _may_hold_notebook(item: Item) -> bool:
    """Whether a folder or an archive holds a notebook; an archive that cannot be opened may."""
    reading = _Reading()
    with ExitStack() as until:
        reading.look(item, until)
    return bool(reading.found[".ipynb"] or reading.notebooks or (isinstance(item, File) and reading.troubles))


def _by_learner(handed_in: Sequence[tuple[Item, str]]) -> tuple[list[tuple[Item, str]], list[LeftOut]]:
    """The submissions, each with the folder around it: what is one learner's in a download is one. And what is none."""
    together = defaultdict(list)
    for i, (item, around) in enumerate(handed_in):
        meant = downloads(item.name)
        together[meant[0][:2] if len(meant) == 1 else i].append((item, around))
    found, left = [], []
    for files in together.values():
        numbers = Counter(each.file for item, _ in files for each in downloads(item.name)[:1] if each.file)
        if len(files) == 1 or any(count > 1 for count in numbers.values()):  # Canvas gives each file its own
            groups = [[file] for file in files]
        else:
            groups = [files]
        for group in groups:
            items = [item for item, _ in group]
            if not any(map(_is_submission, items)):
                left += map(_not_taken, items)
            else:
                found.append(group[0] if len(group) == 1 else (_joined(items), group[0][1]))
    return found, left


def _not_taken(item: Item) -> LeftOut:
    why = item.why if isinstance(item, LeftOut) else "is neither a notebook (.ipynb) nor a zip file nor a folder"
    return LeftOut(printable(item.name), why)


def _joined(items: Sequence[Item]) -> Folder:
    """Files of one learner as a folder, in which each bears the name that it had before it was handed in."""
    rests = [downloads(item.name)[0].rest for item in items]
    names = [rest if rest and not ignored(rest) else item.name for item, rest in zip(items, rests)]
    if len(set(names)) < len(names):
        names = [f"{number} {item.name}" for number, item in enumerate(items, start=1)]
    inside = [replace(item, name=name) for item, name in zip(items, names)]
    return Folder(
        _stem(next(filter(_is_submission, items))), lambda: sorted(inside, key=lambda each: natural(each.name))
    )


def _names(found: Sequence[tuple[Item, str]]) -> list[str]:
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


def _name(item: Item) -> str:
    return _clean(_stem(item))


def _stem(item: Item) -> str:
    stem, suffix = os.path.splitext(item.name)
    is_file = not isinstance(item, Folder) and suffix.lower() in (".ipynb", ".zip", *OTHER_ARCHIVES)
    return stem if is_file else item.name


def _clean(name: str) -> str:
    return printable(unicodedata.normalize("NFC", name), 300).strip() or "(without a name)"
