"""What learners hand in, laid out in folders, and what is read of it."""

from pathlib import Path

from course_lib.classroom.read import submission_reader
from course_lib.classroom.read.submissions import find_handed_in, find_submissions
from tests.grading.archives import HONEST
from tests.grading.corpus import notebook

CELLS = [("markdown", "# Attention"), ("code", "def softmax(x, dim):\n    return x.softmax(dim)"), ("raw", "")]
TEXT = notebook(CELLS)


def about(chapter: int) -> str:
    """A notebook whose content says its chapter."""
    checks = {3: "attention.softmax", 4: "masks.causal", 5: "heads.split"}
    return notebook([("code", f'check("{checks[chapter]}", answer)')])


def lay_out(folder: Path, files: dict[str, str | bytes | None]) -> Path:
    """Files by path; None makes an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def read(folder: Path, data: bytes | str) -> submission_reader.Submission:
    """The submission that is one notebook file."""
    lay_out(folder, {HONEST: data})
    [submission] = find_submissions([folder / HONEST])
    return submission


def sources(submission: submission_reader.Submission) -> list[tuple[str, str]]:
    return [(cell.kind, cell.source) for book in submission.notebooks for cell in book.cells]


def names(paths: list[Path]) -> list[str]:
    return [submission.name for submission in find_submissions(paths)]


def not_taken(paths: list[Path]) -> dict[str, str]:
    return {left.name: left.why for left in find_handed_in(paths)[1]}


def said(submission: submission_reader.Submission) -> str:
    return "\n".join(submission.all_troubles)
