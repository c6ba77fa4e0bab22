"""Grading: seconds per check in a notebook and per submission of a class, compared with nbgrader if it is installed."""

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
CHECK = 0.3  # seconds allowed for the check of a plain exercise, after the first check
PLAIN = "code"  # the kind of exercise without training


def checks() -> dict[str, Callable[[], object]]:
    """Return a check of the reference answer, by id, for each plain exercise of the first chapters."""
    from course_lib.grading import EXERCISES, grade

    plain = [each for each in EXERCISES.values() if each.kind == PLAIN]
    return {each.id: partial(grade, each.id, each.reference, seed=0) for each in plain}


def hand_in(folder: Path, learners: int) -> None:
    """Write the submissions of a class: one chapter's solutions, each with a different comment so that no two match."""
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
            raise RuntimeError(f"the grader ended with exit status {seen.returncode}: {seen.stderr[-2000:]}")
        graded = json.loads((out / "results.json").read_bytes())["submissions"]
        if not all(result["status"] == "passed" for each in graded for result in each["results"]):
            raise RuntimeError("the solutions did not pass, so their times mean nothing: fix the exercises first")

    return run


def measure(rounds: int) -> Iterator[Row]:
    """Measure checks, a class, a class of twice the size, and nbgrader on the same class if it is installed."""
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
    """Return a function that grades the same class with nbgrader, from scratch each time."""
    course = nbgrader.Nbgrader(scratch / "nbgrader", [EXERCISES_FOLDER / NOTEBOOK])
    for place in sorted((scratch / "class").iterdir()):
        course.hand_in(place.name, [place / NOTEBOOK])

    def run() -> None:
        shutil.rmtree(course.folder / "autograded", ignore_errors=True)
        course.autograde()

    return run
