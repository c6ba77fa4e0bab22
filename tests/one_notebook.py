"""One notebook in one worker, for tests of the sandbox."""

import time

from course_lib.classroom.read.notebook_reader import Cell
from course_lib.classroom.read.submission_reader import Notebook
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.remote import Worker
from course_lib.classroom.sandbox.session import Session

LIMITS = Quotas(cell_timeout=3, exercise_timeout=3, timeout=120)


def notebook(*sources: str) -> Notebook:
    return Notebook("notebook.ipynb", tuple(Cell(i, "code", source) for i, source in enumerate(sources, start=1)))


def asked(worker: Worker, *sources: str, name: str = "found"):
    """What a notebook leaves under a name, and what was said of its cells."""
    session = Session(worker, notebook(*sources), {}, {name: False}, time.monotonic() + 100)
    try:
        count = session.found.answers.get(name, 0)
        return (session.read(name, count - 1, 3).value if count else None), session.found.troubles
    finally:
        session.close()
