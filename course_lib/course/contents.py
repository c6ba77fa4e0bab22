"""The table of contents: `chapters.toml`, the only file that defines the chapters' numbers and names."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

LIBRARY = Path(__file__).parent.parent  # the folder course_lib


@dataclass(frozen=True)
class Chapter:
    """Hold a chapter's number, the slug used in all its file names and ids, its title, its promise and its minutes."""

    number: int
    slug: str
    title: str
    promise: str
    minutes: int

    @property
    def notebook(self) -> str:
        """Return the name of its notebook, such as "04_heads.ipynb", the same in every folder."""
        return f"{self.number:02d}_{self.slug}.ipynb"

    def part(self, name: str) -> ModuleType | None:
        """Import one of its modules, "claims", "figures" or "widgets"; return None if it has no such module."""
        module = f"course_lib.chapters.{self.slug}.{name}"
        return import_module(module) if find_spec(module) else None


CHAPTERS = tuple(
    Chapter(number, **fields)
    for number, fields in enumerate(tomllib.loads((LIBRARY / "chapters.toml").read_text(encoding="utf-8"))["chapter"])
)
BY_SLUG = {chapter.slug: chapter for chapter in CHAPTERS}
TITLES = {chapter.number: chapter.title for chapter in CHAPTERS}


def chapter_of(name: str) -> Chapter:
    """Return the chapter of an exercise, a claim or a guess, from an id such as "heads.merge" or a slug.

    Errors: KeyError if no chapter has that slug.
    """
    return BY_SLUG[name.partition(".")[0]]


RELEASED = "chapters/released.json"  # in course_lib of a learner's package: the numbers of its chapters


def released(library: Path = LIBRARY) -> list[int] | None:
    """Return the chapters of a learner's package; None if this `course_lib` is not from such a package."""
    try:
        return [int(each) for each in json.loads((library / RELEASED).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def named(numbers: list[int]) -> str:
    """Return a description of chapters: "chapters 0–2, 4", "all chapters"."""
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


def readme(text: str, exercises: Path, minutes: Mapping[int, int]) -> str:
    """Return README.md's text with its table of chapters updated from `chapters.toml`.

    exercises: the folder of exercises; a chapter without a notebook there gets no link to exercises.
    minutes: the number of a chapter -> the minutes of its exercises.
    Errors: ValueError if one of the two lines around the table is missing.
    """
    before, begin, rest = text.partition(TABLE_BEGIN)
    _, end, after = rest.partition(TABLE_END)
    if not (begin and end):
        raise ValueError(
            f"README.md needs the lines {TABLE_BEGIN!r} and {TABLE_END!r}: the table of chapters goes between them"
        )
    lines = ["", "", "| | Chapter | What it is about | Minutes | Notebook | Exercises |"]
    lines.append("|---|---|---|---|---|---|")
    solving = 0
    for each in CHAPTERS:
        solve = "–"
        if (exercises / each.notebook).is_file():
            solve = f"[solve](exercises/{each.notebook}), {minutes[each.number]} minutes"
            solving += minutes[each.number]
        read = f"[read](notebooks/{each.notebook})"
        lines.append(f"| {each.number} | {each.title} | {each.promise} | {each.minutes} | {read} | {solve} |")
    hours = sum(each.minutes for each in CHAPTERS) / 60
    rest = f", and the exercises another {solving / 60:.0f}" if solving else ""
    lines += ["", f"The chapters take about {hours:.0f} hours in all{rest}."]
    return before + begin + "\n".join([*lines, "", end]) + after
