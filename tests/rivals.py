"""What else can grade a notebook, to compare our grader with: a fresh process for each submission. The other one,
nbgrader, is `course_lib.bench.nbgrader`, which says how to make an environment for it."""

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import nbformat

from course_lib.bench.nbgrader import Points, quiet
from course_lib.grading import EXERCISES, grade

ROOT = Path(__file__).parent.parent


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
