"""Shared tools for all products: text that every program can read safely, and files written in full or not at all."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from course_lib.classroom.file_names import file_name
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
