"""Grading: seconds per check in a notebook, per submission of a class, and beside nbgrader where that is there."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import nbformat

from course_lib.bench import nbgrader
from course_lib.bench.report import Row
from course_lib.bench.rounds import in_turns, spread

SOLUTIONS, EXERCISES_FOLDER = nbgrader.ROOT / "solutions", nbgrader.ROOT / "exercises"
NOTEBOOK = "03_masks.ipynb"  # a chapter of plain exercises
CLASS = 10  # submissions
CHECK = 0.3  # seconds that the check of a plain exercise may take after the first
PLAIN = "code"  # the kind of exercises that train nothing


def checks() -> dict[str, Callable[[], object]]:
    """Return, by id, what checks the reference's own answer to each plain exercise of the first chapters."""
    from course_lib.grading import EXERCISES, grade

    plain = [each for each in EXERCISES.values() if each.kind == PLAIN]
    return {each.id: partial(grade, each.id, each.reference, seed=0) for each in plain}


def hand_in(folder: Path, learners: int) -> None:
    """Write a class: the solutions of one chapter, each with a comment of its own, so that no two are equal."""
    for i in range(learners):
        notebook = nbformat.read(SOLUTIONS / NOTEBOOK, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.source += f"\n# learner {i}"
        place = folder / f"learner{i}"
        place.mkdir(parents=True)
        nbformat.write(notebook, place / NOTEBOOK)


def grader(handed_in: Path, scratch: Path, jobs: int) -> Callable[[], None]:
    """Return a function that grades the class once with `python -m course_lib grade`."""
    turns = count()

    def run() -> None:
        out = scratch / f"{handed_in.name}_report{next(turns)}"
        command = [sys.executable, "-m", "course_lib", "grade", str(handed_in), "--out", str(out), "--json"]
        command += ["--seed", "1", "--jobs", str(jobs), "--chapters", NOTEBOOK[:2].lstrip("0")]
        seen = subprocess.run(command, cwd=nbgrader.ROOT, env=nbgrader.quiet(scratch), capture_output=True, text=True)
        if seen.returncode:
            raise RuntimeError(f"the grader ended with {seen.returncode}: {seen.stderr[-2000:]}")
        graded = json.loads((out / "results.json").read_bytes())["submissions"]
        if not all(result["status"] == "passed" for each in graded for result in each["results"]):
            raise RuntimeError("the solutions did not pass: what was timed is not what should be")

    return run


def measure(rounds: int) -> Iterator[Row]:
    """Measure checks, a class, a class of twice the size, and nbgrader on the same class where NBGRADER_PYTHON is."""
    taken = in_turns(checks(), rounds, "checks")
    medians = sorted((taken.of(name), name) for name in taken.seconds)
    slowest = f"the slowest: {medians[-1][1]}, {medians[-1][0]:.2f} s"
    row = spread([seconds for seconds, _ in medians])
    yield Row("grade", f"a check, of {len(medians)} plain exercises", "", row, most=CHECK, note=slowest, sign="s")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        hand_in(scratch / "class", CLASS)
        hand_in(scratch / "twice", 2 * CLASS)
        contestants: dict[str, Callable[[], object]] = {
            "ours": grader(scratch / "class", scratch, 1),
            "twice": grader(scratch / "twice", scratch, 1),
        }
        if nbgrader.nbgrader_python() is not None:
            contestants["nbgrader"] = theirs(scratch)
        contest = in_turns(contestants, max(1, rounds // 3), "a class")
        each = contest.of("ours") / CLASS
        size = contest.times_as_fast("ours", "twice")
        yield Row("grade", f"{CLASS} submissions", "twice as many", size, each, "each", note="starting up included")
        if "nbgrader" in contest.seconds:
            ratio = contest.times_as_fast("ours", "nbgrader")
            yield Row("grade", f"{CLASS} submissions, one worker", "nbgrader autograde", ratio, each, "each")


def theirs(scratch: Path) -> Callable[[], object]:
    """Return a function that lets nbgrader grade the same class, in a course that it has not graded yet."""
    course = nbgrader.Nbgrader(scratch / "nbgrader", [EXERCISES_FOLDER / NOTEBOOK])
    for place in sorted((scratch / "class").iterdir()):
        course.hand_in(place.name, [place / NOTEBOOK])

    def run() -> None:
        shutil.rmtree(course.folder / "autograded", ignore_errors=True)
        course.autograde()

    return run
