"""Recognize the course's own files by fingerprint, because an unchanged file is not a learner's answer.

A clone of the course contains all of its notebooks and modules. Unchanged ones, run or not, are left out.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import course_lib
from course_lib.classroom.read.folders import File, Refused
from course_lib.classroom.read.notebook_reader import Cell
from course_lib.course.contents import CHAPTERS
from course_lib.course.files import COURSE, parsed
from course_lib.course.handout import RECORD, fingerprint, fingerprint_of_cells, for_learners
from course_lib.grading.page.notebooks import solutions
from course_lib.grading.page.run_notebooks import student_version

LARGEST_RECORD = 4_000_000  # bytes; the record of the full course has 60,000
MOST_RECORDS = 20  # per submission


class AsGiven:
    """Tells which notebooks of a submission are unchanged.

    Args:
        own: whether to compare with the chapters on this disk as well. That is meaningless if those are being graded.
    """

    def __init__(self, own: bool = True):
        self._chapters, self._exercises = set(_chapters() if own else ()), set[str]()

    def add(self, record: File) -> None:
        """Add the fingerprints in a package's own record (`.course.json`), possibly of another version of the course.

        A learner could forge it, but would only lose their own work. An unreadable record is skipped.
        """
        try:
            found = parsed(record.read(LARGEST_RECORD, lambda size: None))
            for name, entry in found.items():
                (self._chapters if name.startswith("notebooks/") else self._exercises).add(str(entry.get("given")))
        except (Refused, ValueError, AttributeError):
            return

    def is_chapter(self, cells: Iterable[Cell]) -> bool:
        return _fingerprint(cells) in self._chapters

    def is_exercise(self, cells: Iterable[Cell], chapters: Iterable[int]) -> bool:
        """Return whether the cells are the unanswered exercise notebook of one of these chapters."""
        own = _fingerprint(cells)
        return own in self._exercises or any(own == _exercises(chapter) for chapter in chapters)


def is_record(name: str) -> bool:
    return name == RECORD


@cache
def _exercises(chapter: int) -> str:
    notebook = student_version(solutions(CHAPTERS[chapter].slug))
    return fingerprint_of_cells((cell.cell_type, cell.source) for cell in notebook.cells)


@cache
def _chapters() -> frozenset[str]:
    contents = [path.read_bytes() for path in (COURSE / "notebooks").glob("*.ipynb")]
    return frozenset(fingerprint(each) for content in contents for each in (content, for_learners(content)))


def _fingerprint(cells: Iterable[Cell]) -> str:
    return fingerprint_of_cells((cell.kind, cell.source) for cell in cells)


def is_of_library(data: bytes) -> bool:
    """Return whether a Python file is a module of this course's library."""
    return _digest(data) in _library()


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(b"".join(data.split())).digest()  # the same for all line ends and indentation


@cache
def _library() -> frozenset[bytes]:
    return frozenset(_digest(path.read_bytes()) for path in Path(course_lib.__file__).parent.rglob("*.py"))
