"""The table of contents: `chapters.toml`, the one place that numbers and names the chapters."""

import json
import tomllib
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Chapter:
    """A chapter: its number, the slug that names all that belongs to it, its title, what it promises, its minutes."""

    number: int
    slug: str
    title: str
    promise: str
    minutes: int

    @property
    def notebook(self) -> str:
        """Return the name of its notebook, in every folder: "04_heads.ipynb"."""
        return f"{self.number:02d}_{self.slug}.ipynb"

    def part(self, name: str) -> ModuleType | None:
        """Import one of its modules, "claims", "figures" or "widgets"; None if it has none of that name."""
        module = f"course_lib.chapters.{self.slug}.{name}"
        return import_module(module) if find_spec(module) else None


CHAPTERS = tuple(
    Chapter(number, **fields)
    for number, fields in enumerate(
        tomllib.loads((Path(__file__).parent / "chapters.toml").read_text(encoding="utf-8"))["chapter"]
    )
)
BY_SLUG = {chapter.slug: chapter for chapter in CHAPTERS}
TITLES = {chapter.number: chapter.title for chapter in CHAPTERS}


def chapter_of(name: str) -> Chapter:
    """Return the chapter of an exercise, a claim or a guess: an id begins with the slug, "heads.merge".

    Errors: KeyError if no chapter has that slug.
    """
    return BY_SLUG[name.partition(".")[0]]


RELEASED = "chapters/released.json"  # of course_lib in a learner's package: the numbers of its chapters


def released(library: Path = Path(__file__).parent) -> list[int] | None:
    """Return the chapters that a learner's package holds; None for a `course_lib` that is no such package's."""
    try:
        return [int(each) for each in json.loads((library / RELEASED).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def named(numbers: list[int]) -> str:
    """Return chapters in words: "chapters 0–2, 4", "all chapters"."""
    if len(numbers) == len(CHAPTERS):
        return "all chapters"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    told = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
    return f"chapter{'s' if len(numbers) != 1 else ''} {told}" if numbers else "no chapter yet"


TABLE_BEGIN, TABLE_END = "<!-- chapters: written by `python -m course_lib refresh` -->", "<!-- end of chapters -->"


def readme(text: str, exercises: Path) -> str:
    """Return README.md's text with its table of chapters as `chapters.toml` has it.

    exercises: the folder of exercises; a chapter without a notebook there gets no link to solve them.
    Errors: ValueError if a line between which the table stands is missing.
    """
    before, begin, rest = text.partition(TABLE_BEGIN)
    _, end, after = rest.partition(TABLE_END)
    if not (begin and end):
        raise ValueError(
            f"README.md needs the lines {TABLE_BEGIN!r} and {TABLE_END!r}: its chapters stand between them"
        )
    lines = ["", "", "| | Chapter | What it is about | Minutes | Notebook | Exercises |"]
    lines.append("|---|---|---|---|---|---|")
    for each in CHAPTERS:
        solve = f"[solve](exercises/{each.notebook})" if (exercises / each.notebook).is_file() else "–"
        read = f"[read](notebooks/{each.notebook})"
        lines.append(f"| {each.number} | {each.title} | {each.promise} | {each.minutes} | {read} | {solve} |")
    return before + begin + "\n".join([*lines, "", end]) + after
