"""Every exercise of the course, found by folder: `chapters/<slug>/exercises/<name>.md` is the exercise `<slug>.<name>`.

A teacher's own pages are in another folder, `DIR/<slug>/<name>.md`. Add it with `add_catalogue(DIR)` or the environment
variable COURSE_CATALOGUE. How to write a page: `format.py`.
"""

import difflib
import importlib
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from course_lib.course.contents import BY_SLUG, released
from course_lib.grading.judge.show import printable
from course_lib.grading.kinds import Exercise
from course_lib.grading.page.format import PageError, read_head, require_known_head
from course_lib.grading.page.load import exercise_of
from course_lib.grading.page.sealed import NAME, Sealed

CHAPTERS = Path(__file__).parents[2] / "chapters"
PACKAGE = "course_lib.chapters"
VARIABLE = "COURSE_CATALOGUE"


class Folder:
    """A folder of pages: `<slug>/<inner>/<name>.md`, with their modules in the same place."""

    def __init__(self, root: Path, inner: str = ""):
        self.root, self.inner = root, inner
        self.package = PACKAGE if inner else f"course_catalogue_{abs(hash(root.resolve())):x}"

    def names(self) -> list[str]:
        """Return the names of all files: "heads/merge.md", "heads/merge.py"."""
        found = [*self.root.glob(f"*/{self.inner}/*.md"), *self.root.glob(f"*/{self.inner}/*.py")]
        return sorted(f"{path.relative_to(self.root).parts[0]}/{path.name}" for path in found)

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return self.path(name).exists()

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        slug, _, file = name.partition("/")
        return self.root / slug / self.inner / file

    def text(self, name: str) -> str:
        """Return the content of a file."""
        return self.path(name).read_text(encoding="utf-8")

    def module(self, slug: str, name: str) -> ModuleType:
        """Import the module of a page."""
        if self.inner:
            return importlib.import_module(f"{PACKAGE}.{slug}.exercises.{name}")
        fullname = f"{self.package}.{slug}.{name}"
        if fullname not in sys.modules:
            spec = importlib.util.spec_from_file_location(fullname, self.path(f"{slug}/{name}.py"))
            assert spec is not None  # neither is its loader, because the path ends in .py
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[fullname] = module
        return sys.modules[fullname]


class Package:
    """The pages of a learner's package, sealed in one file, with the same methods as a folder."""

    def __init__(self, path: Path):
        self.sealed = Sealed(path, PACKAGE)

    def names(self) -> list[str]:
        """Return the names of all files: "heads/merge.md", "heads/merge.py"."""
        return sorted(self.sealed.files)

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return name in self.sealed.files

    def path(self, name: str) -> Path:
        """Return a path that says where the text was."""
        return self.sealed.path / name

    def text(self, name: str) -> str:
        """Return the content of a file."""
        return self.sealed.files[name]

    def module(self, slug: str, name: str) -> ModuleType:
        """Import the module of a page."""
        return importlib.import_module(f"{PACKAGE}.{slug}.exercises.{name}")


@dataclass(frozen=True)
class Entry:
    """The front matter of a page: enough for lists and tables, without reading the page."""

    id: str
    chapter: int
    place: int
    title: str
    kind: str
    points: int
    difficulty: int
    minutes: int
    answer_name: str
    file: str = ""  # the name of a file that is the answer, such as my_gpt.py


class Exercises(MutableMapping[str, Exercise]):
    """Exercises by id, in the order of the course. A page is read when its exercise is first used."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._homes: dict[str, Folder | Package] = {}
        self._read: dict[str, Exercise] = {}

    def add(self, home: Folder | Package) -> None:
        """Add all pages of a folder.

        Errors: PageError for a page with wrong front matter, in a folder that is not a chapter's, or with an id that
            already exists.
        """
        for file in home.names():
            slug, _, name = file.removesuffix(".md").partition("/")
            if not file.endswith(".md") or name.startswith("_"):
                continue
            path, text = str(home.path(file)), home.text(file)
            if slug not in BY_SLUG:
                raise PageError(path, 1, f"there is no chapter {slug!r}: choose from {', '.join(BY_SLUG)}")
            exercise_id = f"{slug}.{name}"
            if exercise_id in self.entries:
                taken = self._homes[exercise_id].path(file)
                raise PageError(path, 1, f"the exercise {exercise_id} exists already, in {taken}: choose another name")
            head, _ = read_head(text, path)
            require_known_head(head, text, path)
            fields = {each: head[each] for each in ("place", "title", "kind", "points", "difficulty", "minutes")}
            answer_name = head.get("signature", exercise_id.replace(".", "_")).partition("(")[0].strip()
            self.entries[exercise_id] = Entry(
                exercise_id, BY_SLUG[slug].number, **fields, answer_name=answer_name, file=head.get("file", "")
            )
            self._homes[exercise_id] = home
        ordered = sorted(self.entries.values(), key=lambda entry: (entry.chapter, entry.place, entry.id))
        self.entries = {entry.id: entry for entry in ordered}

    def source(self, exercise_id: str, ending: str = ".md") -> str | None:
        """Return the text of a page, or with ".py" the text of its module; None if there is no such file."""
        file = exercise_id.replace(".", "/") + ending
        home = self._homes[exercise_id]
        return home.text(file) if home.has(file) else None

    def path(self, exercise_id: str) -> Path:
        """Return the path of a page."""
        return self._homes[exercise_id].path(exercise_id.replace(".", "/") + ".md")

    def __getitem__(self, exercise_id: str) -> Exercise:
        if exercise_id not in self._read:
            entry = self.entries[exercise_id]
            slug, _, name = exercise_id.partition(".")
            home = self._homes[exercise_id]
            called = entry.kind in ("code", "experiment", "file")
            self._read[exercise_id] = exercise_of(
                home.text(f"{slug}/{name}.md"),
                str(self.path(exercise_id)),
                exercise_id,
                entry.chapter,
                self.source(exercise_id, ".py") if called else None,
                lambda: home.module(slug, name),
            )
        return self._read[exercise_id]

    def __setitem__(self, exercise_id: str, exercise: Exercise) -> None:
        fields = ("id", "title", "kind", "points", "difficulty", "minutes", "answer_name")
        place = len(self.entries)
        entry = Entry(
            chapter=exercise.chapter,
            place=place,
            **{name: getattr(exercise, name) for name in fields},
            file=getattr(exercise, "file", ""),
        )
        self.entries[exercise_id] = self.entries.get(exercise_id, entry)
        self._read[exercise_id] = exercise

    def __delitem__(self, exercise_id: str) -> None:
        del self.entries[exercise_id]
        self._read.pop(exercise_id, None)  # the location of its page is kept, so that it can be added again

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, exercise_id: object) -> bool:
        return exercise_id in self.entries


def _collect() -> Exercises:
    exercises = Exercises()
    sealed = CHAPTERS / NAME
    exercises.add(Package(sealed) if sealed.exists() else Folder(CHAPTERS, "exercises"))
    for folder in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        _require_folder(Path(folder))
        exercises.add(Folder(Path(folder)))
    return exercises


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: name the folder that contains <slug>/<name>.md")


EXERCISES = _collect()


def minutes_by_chapter() -> Counter[int]:
    """Return the number of a chapter -> the minutes of all its exercises."""
    minutes = Counter[int]()
    for exercise in EXERCISES.values():
        minutes[exercise.chapter] += exercise.minutes
    return minutes


def add_catalogue(folder: str | Path) -> None:
    """Add a teacher's own pages, `folder/<slug>/<name>.md`, with their modules in the same place.

    Errors: ValueError if there is no such folder. PageError, a ValueError with file, line and remedy, for an invalid
        page or an id that already exists.
    """
    _require_folder(Path(folder))
    EXERCISES.add(Folder(Path(folder)))


def get(exercise_id: str) -> Exercise:
    """Return the exercise with this id. Errors: KeyError for an unknown id, with the nearest ids."""
    if isinstance(exercise_id, str) and exercise_id in EXERCISES:
        return EXERCISES[exercise_id]
    said = type(exercise_id).__name__  # a learner may pass any object here, and its repr is not safe to call
    if type(exercise_id) in (str, int, type(None)):
        said = repr(printable(exercise_id, 40) if isinstance(exercise_id, str) else exercise_id)
    close = (difflib.get_close_matches(said.strip("'").lower(), EXERCISES, n=3, cutoff=cutoff) for cutoff in (0.8, 0.5))
    nearest = next(filter(None, close), [])
    chapter = BY_SLUG.get(said.strip("'").partition(".")[0])
    if chapter and chapter.number not in (released() or [chapter.number]):
        raise KeyError(f"there is no exercise {said} yet: chapter {chapter.number}, {chapter.title}, is still to come")
    advice = f"Did you mean {' or '.join(map(repr, nearest))}?" if nearest else "progress() lists every exercise."
    raise KeyError(f"there is no exercise {said}. {advice}")


def meant(exercise_id: str) -> Exercise:
    """Return the exercise that a learner means: capitals, spaces, and "-" for "_" do not matter.

    Errors: KeyError as `get`.
    """
    if isinstance(exercise_id, str):
        alike = (known for known in EXERCISES if known == "".join(exercise_id.split()).lower().replace("-", "_"))
        return get(next(alike, exercise_id))
    return get(exercise_id)
