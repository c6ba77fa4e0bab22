"""What else can grade a notebook, to compare our grader with: nbgrader, and a fresh process for each submission.

nbgrader is no requirement of the course. Give it an environment of its own that has the course's packages, too, and
name the Python of that environment:

    python3 -m venv elsewhere && elsewhere/bin/python -m pip install -r requirements.txt nbgrader
    NBGRADER_PYTHON=elsewhere/bin/python .venv/bin/python -m pytest tests/test_classroom_standin.py
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat

from course_lib.grading import EXERCISES, grade
from course_lib.grading.release import for_nbgrader
from course_lib.record import IN_MEMORY

ROOT = Path(__file__).parent.parent
ASSIGNMENT = "course"
CELL_SECONDS = 180
Points = dict[str, float]  # by exercise


def quiet(folder: Path) -> dict[str, str]:
    """An environment in which a program finds the course, computes with one thread and writes nothing at home."""
    places = {name: str(folder / "home") for name in ("HOME", "IPYTHONDIR", "MPLCONFIGDIR")}
    places |= {f"JUPYTER_{name}_DIR": str(folder / "home" / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    (folder / "home").mkdir(parents=True, exist_ok=True)
    settings = {"COURSE_PROGRESS": IN_MEMORY, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}
    return os.environ | places | settings


# --- nbgrader ---------------------------------------------------------------------------------------------------------


def nbgrader_python() -> str | None:
    """The Python that has nbgrader: NBGRADER_PYTHON, or this one; None if there is none."""
    python = os.environ.get("NBGRADER_PYTHON", sys.executable)
    seen = subprocess.run([python, "-c", "import nbgrader"], capture_output=True)
    return str(Path(python).absolute()) if seen.returncode == 0 else None


class Nbgrader:
    """A course of nbgrader in `folder`, with the exercises as one assignment, made as a teacher makes it."""

    def __init__(self, folder: Path, exercises: Sequence[Path]):
        self.folder = folder
        self.python = nbgrader_python()
        if self.python is None:
            raise ValueError("there is no nbgrader here: set NBGRADER_PYTHON, as tests/rivals.py says")
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
        """Notebooks that were begun as the released ones: their checks carry nbgrader's marks."""
        place = self.folder / "submitted" / learner / ASSIGNMENT
        place.mkdir(parents=True)
        for path in notebooks:
            self._write(nbformat.read(path, as_version=4), place / path.name)

    def autograde(self) -> dict[str, Points]:
        """Grade what was handed in: points by learner and exercise."""
        self._run("autograde", ASSIGNMENT)
        return json.loads(self._python(GRADES, ASSIGNMENT))

    def validate(self, notebook: Path) -> str:
        """What a learner reads who asks nbgrader whether a notebook is right."""
        return self._run("validate", str(notebook))

    def _write(self, notebook: nbformat.NotebookNode, path: Path) -> None:
        path.write_text(nbformat.writes(for_nbgrader(notebook), version=4) + "\n", encoding="utf-8")

    def _run(self, *arguments: str) -> str:
        return self._python("import sys; from nbgrader.apps.nbgraderapp import main; sys.exit(main())", *arguments)

    def _python(self, code: str, *arguments: str) -> str:
        environment = quiet(self.folder)
        environment["PATH"] = os.pathsep.join([str(Path(self.python).parent), environment["PATH"]])  # it calls alembic
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


# --- a process for each submission ------------------------------------------------------------------------------------


def alone(folder: Path, scratch: Path) -> Points:
    """Grade one submission in a process of its own, without any wall: what the simplest grader does."""
    command = [sys.executable, "-m", "tests.rivals", str(folder)]
    seen = subprocess.run(command, cwd=ROOT, env=quiet(scratch), capture_output=True, text=True, check=True)
    return json.loads(seen.stdout)


def grade_here(folder: Path, seed: int = 0) -> Points:
    """Run every notebook of a submission in this process and grade the answers that its names hold."""
    points: Points = {}
    for path in sorted(folder.glob("*.ipynb")):
        space: dict = {"__name__": "__main__"}
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                    exec(_silenced(cell.source), space)
        chapter = int(path.name[:2])
        for exercise in (each for each in EXERCISES.values() if each.chapter == chapter):
            points[exercise.id] = grade(exercise.id, space.get(exercise.answer_name, ...), seed).earned
    return points


def _silenced(source: str) -> str:
    """A cell without the calls that show or check something."""
    silent = ("check(", "explore(", "hint(", "progress(")
    return "\n".join("" if line.startswith(silent) else line for line in source.splitlines())


if __name__ == "__main__":
    print(json.dumps(grade_here(Path(sys.argv[1]))))
