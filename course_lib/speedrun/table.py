"""The records of the speedrun: files of this course, each with its figures and what it teaches."""

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from course_lib.course.files import ASSETS, read_json, save_json
from course_lib.speedrun.judge import Run
from course_lib.speedrun.rules import Entry

FOLDER = Path(__file__).parent / "records"
TABLE = ASSETS / "speedrun.json"


@dataclass(frozen=True)
class Record:
    """One record: its file, a title, what made the difference, and its runs, one for each seed."""

    name: str
    title: str
    lesson: str
    runs: tuple[Run, ...]

    @property
    def arithmetic(self) -> float:
        """Return the mean arithmetic of the runs."""
        return sum(run.arithmetic for run in self.runs) / len(self.runs)

    @property
    def counts(self) -> bool:
        """Return whether every run is within 1% of the entropy."""
        return all(run.within for run in self.runs)


def files() -> dict[str, Entry]:
    """Return name -> file, in the order of the records."""
    return {path.stem: Entry.read(path) for path in sorted(FOLDER.glob("[0-9]*.py"))}


@cache
def records() -> tuple[Record, ...]:
    """Return the records that have figures, the first one first. The first is the recipe of the shipped model."""
    kept = read_json(TABLE)
    return tuple(
        Record(name, *_heading(entry), tuple(Run(**run) for run in kept[name]))
        for name, entry in files().items()
        if name in kept
    )


def keep(name: str, runs: tuple[Run, ...]) -> None:
    """Write the figures of a record."""
    save_json(TABLE, read_json(TABLE) | {name: [asdict(run) for run in runs]})
    records.cache_clear()


def _heading(entry: Entry) -> tuple[str, str]:
    """Return title and lesson of a record from its docstring: the first line, and the first paragraph below it."""
    import ast

    title, _, rest = (ast.get_docstring(ast.parse(entry.source)) or entry.name).partition("\n\n")
    return title.rstrip("."), " ".join(rest.split("\n\n")[0].split())
