"""nbgrader in a separate course, for comparison with our grader.

The course does not require nbgrader. Install it in a separate environment together with the course's packages, and set
NBGRADER_PYTHON to the Python of that environment:

    python3 -m venv elsewhere && elsewhere/bin/python -m pip install -r requirements.txt -e . nbgrader
    NBGRADER_PYTHON=elsewhere/bin/python .venv/bin/python -m course_lib bench grade
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat

from course_lib.course.record import IN_MEMORY
from course_lib.grading.page.package import for_nbgrader

ROOT = Path(__file__).resolve().parents[2]  # nbgrader's notebooks import course_lib from here
ASSIGNMENT = "course"
CELL_SECONDS = 180
Points = dict[str, float]  # by exercise


def quiet(folder: Path) -> dict[str, str]:
    """Return an environment in which a program finds the course, uses one thread and leaves the user's home alone."""
    places = {name: str(folder / "home") for name in ("HOME", "IPYTHONDIR", "MPLCONFIGDIR")}
    places |= {f"JUPYTER_{name}_DIR": str(folder / "home" / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    (folder / "home").mkdir(parents=True, exist_ok=True)
    settings = {"COURSE_PROGRESS": IN_MEMORY, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}
    return os.environ | places | settings


def nbgrader_python() -> str | None:
    """Return the Python with nbgrader: NBGRADER_PYTHON, or this Python; None if it cannot import nbgrader."""
    python = os.environ.get("NBGRADER_PYTHON", sys.executable)
    seen = subprocess.run([python, "-c", "import nbgrader"], capture_output=True)
    return str(Path(python).absolute()) if seen.returncode == 0 else None


class Nbgrader:
    """An nbgrader course in `folder`, with the exercises as one assignment, set up like a teacher's."""

    def __init__(self, folder: Path, exercises: Sequence[Path]):
        self.folder = folder
        if (python := nbgrader_python()) is None:
            raise ValueError(
                "nbgrader is not installed here: set NBGRADER_PYTHON, as course_lib/bench/nbgrader.py explains"
            )
        self.python = python
        source = folder / "source" / ASSIGNMENT
        source.mkdir(parents=True)
        for path in exercises:
            self._write(nbformat.read(path, as_version=4), source / path.name)
        (folder / "nbgrader_config.py").write_text(
            f"c = get_config()\nc.CourseDirectory.course_id = {ASSIGNMENT!r}\nc.Execute.timeout = {CELL_SECONDS}\n",
            encoding="utf-8",
        )
        self._run("generate_assignment", ASSIGNMENT)

    def hand_in(self, learner: str, notebooks: Sequence[Path]) -> None:
        """Submit a learner's notebooks. They must come from the released ones, which have nbgrader's cell marks."""
        place = self.folder / "submitted" / learner / ASSIGNMENT
        place.mkdir(parents=True)
        for path in notebooks:
            self._write(nbformat.read(path, as_version=4), place / path.name)

    def autograde(self) -> dict[str, Points]:
        """Grade the submissions; return points by learner and exercise."""
        self._run("autograde", ASSIGNMENT)
        return json.loads(self._python(GRADES, ASSIGNMENT))

    def validate(self, notebook: Path) -> str:
        """Return the text that nbgrader shows a learner who validates a notebook."""
        return self._run("validate", str(notebook))

    def _write(self, notebook: nbformat.NotebookNode, path: Path) -> None:
        path.write_text(nbformat.writes(for_nbgrader(notebook), version=4) + "\n", encoding="utf-8")

    def _run(self, *arguments: str) -> str:
        return self._python("import sys; from nbgrader.apps.nbgraderapp import main; sys.exit(main())", *arguments)

    def _python(self, code: str, *arguments: str) -> str:
        environment = quiet(self.folder)
        environment["PATH"] = os.pathsep.join([str(Path(self.python).parent), environment["PATH"]])  # it runs alembic
        command = [self.python, "-c", code, *arguments]
        seen = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        if seen.returncode:
            raise RuntimeError(f"nbgrader {' '.join(arguments)} failed:\n{seen.stdout[-2000:]}\n{seen.stderr[-4000:]}")
        return seen.stdout


GRADES = """
import json, sys
from nbgrader.api import Gradebook

with Gradebook("sqlite:///gradebook.db") as book:
    found = {}
    for submission in book.assignment_submissions(sys.argv[1]):
        points = found.setdefault(submission.student.id, {})
        for notebook in submission.notebooks:
            for grade in notebook.grades:
                points[grade.name.replace("__", ".")] = grade.score
    print(json.dumps(found))
"""
