"""Shared tools for all products: safe text, safe file names, and files written in full or not at all."""

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from course_lib.classroom.graded_submission import GradedSubmission, rounded
from course_lib.course.files import write_whole
from course_lib.grading.judge.show import plural, without_towers
from course_lib.grading.page.catalogue import EXERCISES
from course_lib.grading.result import Result

COURSE = "Transformers, Measured"

ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # titles, links
    r"|\x1b.?"
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # the last two: text direction
NO_CHARACTER = re.compile(r"[\ud800-\udfff\ufffe\uffff]")  # not allowed in UTF-8 or XML 1.0
LONGEST = 80  # characters
MOST_BYTES = 180  # of 255 that a file system allows; an extension is added
# Windows reads these names as devices, whatever the extension.
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


def sanitized(text: str) -> str:
    """Return text that is safe for every program: lines and tabs stay, colours and control characters go."""
    text = ESCAPE_SEQUENCE.sub("", text)
    text = re.sub(r"\r\n?|[\u2028\u2029]", "\n", text)
    return without_towers(NO_CHARACTER.sub("\ufffd", CONTROL.sub("", text)))


def one_line(text: str) -> str:
    return " ".join(sanitized(text).split())


def save_text(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda part: part.write_bytes(text.encode(encoding)))
    return path


def save_json(path: Path, content: object) -> Path:
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return save_text(path, NO_CHARACTER.sub("\ufffd", text) + "\n")


def in_order(marked: Sequence[GradedSubmission]) -> list[GradedSubmission]:
    return sorted(marked, key=lambda each: (each.name, each.digest))


def chapter_of(exercise_id: str) -> int | None:
    exercise = EXERCISES.get(exercise_id)
    return exercise.chapter if exercise else None


def feedback(result: Result) -> str:
    """Return feedback without the closing line, which points to `hint` in the learner's own notebook."""
    return replace(result, closing="").feedback


def score(earned: int, points: int) -> str:
    return f"{earned} of {plural(points, 'point')}"


def told_points(marked: GradedSubmission, chapter: int | None = None) -> list[str]:
    """Return sentences on the points earned, in all or in one chapter, and on the final points under a policy."""
    results = [each for each in marked.results if chapter is None or chapter_of(each.exercise_id) == chapter]
    said = [f"{score(sum(each.earned for each in results), sum(each.points for each in results))}."]
    if counted := marked.counted:
        earned, points = (counted.earned, counted.points) if chapter is None else counted.chapters.get(chapter, (0, 0))
        said += [f"In the course this counts {rounded(earned)} of {rounded(points)}.", *counted.notes]
    return said


def save_one_each(
    marked: Sequence[GradedSubmission], folder: Path, name: str, content: Callable[[GradedSubmission], dict]
) -> list[Path]:
    taken: set[str] = set()
    return [save_json(folder / file_name(each.name, taken) / name, content(each)) for each in in_order(marked)]


def file_name(learner: str, taken: set[str]) -> str:
    """Return a file name without an extension: safe on every system, never a path, and different from all in `taken`.

    Letters and digits of every script stay, and other characters become one "_". Names that a file system may confuse
    get a number: "Ada", "ADA-2".

    Args:
        learner: the name of a submission, any text.
        taken: an empty set at first. The name is added, in the form used for comparison.
    """
    text = unicodedata.normalize("NFKC", learner)
    text = "".join(each if each == "-" or unicodedata.category(each)[0] in "LMN" else "_" for each in text)
    stem = re.sub(r"-*_[-_]*", "_", text).strip("-_") or "learner"
    if stem.lower() in RESERVED:
        stem += "_"
    number, name = 1, _cut(stem, "")
    while (key := _key(name)) in taken:
        number += 1
        name = _cut(stem, f"-{number}")
    taken.add(key)
    return name


def _cut(stem: str, ending: str) -> str:
    stem = stem[: LONGEST - len(ending)]
    while len((stem + ending).encode()) > MOST_BYTES:
        stem = stem[:-1]
    return stem + ending


def _key(name: str) -> str:
    """Return a key that is equal for names that differ only in case or in Unicode composition."""
    return unicodedata.normalize("NFKC", name.upper().casefold())
