"""A class of learners who do not exist, to try the grader on: submissions of the full course, drawn by a seed.

    python -m tests.pupils FOLDER --count 500

Each learner solves an exercise, leaves it open or gets it wrong, and does what learners do: prints, plots, notes, other
orders of cells, notebooks that are never handed in. Answers come from solutions/; a wrong one is a solution with one
slip of a token (as `tests/mutants.py` makes them), or a known wrong number, shape or option. Every wrong answer was
graded once and fails, in little time: a class is there to measure the grader, not endless loops.
"""

import argparse
import ast
import base64
import contextlib
import functools
import io
import os
import random
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import nbformat
import torch

from course_lib.course.record import IN_MEMORY
from course_lib.grading import EXERCISES, Exercise, grade
from course_lib.grading.page.run_notebooks import BEGIN, END, SOLUTION_TAG, student_version
from tests import mutants

SOLUTIONS = Path(__file__).parent.parent / "solutions"
CHECK = re.compile(r"""^check\(["']([\w.]+)["']""", flags=re.MULTILINE)
SOLVED, OPEN, WRONG = "solved", "open", "wrong"
SLIPS = 3  # different wrong answers to an exercise
SECONDS = 2.0  # of computing, for a wrong answer
NOTES = ("I think that this is it.", "Ask about this on Monday.", "**Note to self**: read section 3 again.", "TODO")
EXTRAS = (
    "print(torch.arange(6).reshape(2, 3))",
    "for step in range(200):\n    print('step', step)",
    "import matplotlib.pyplot as plt\n\nplt.plot([1, 4, 9])\nplt.show()",
    "x = torch.randn(3, 4)\nx.shape",
    "import numpy as np\nnp.linspace(0, 1, 5)",
)


@dataclass(frozen=True)
class Pupil:
    """A learner: name, the folder that was handed in, and what was done with each exercise: solved, open or wrong.

    An exercise of a notebook that was not handed in is open.
    """

    name: str
    folder: Path
    did: Mapping[str, str]

    @property
    def earned(self) -> int:
        return sum(EXERCISES[id].points for id, what in self.did.items() if what == SOLVED)


def make(folder: Path, count: int, seed: int = 1, chapters: tuple[str, ...] = ()) -> list[Pupil]:
    """Write `count` submissions into `folder`, one folder each, of the notebooks whose names begin as `chapters` say
    (default: all). The same arguments give the same bytes."""
    paths = [path for path in sorted(SOLUTIONS.glob("*.ipynb")) if not chapters or path.name.startswith(chapters)]
    pupils = []
    for number in range(1, count + 1):
        rng = random.Random(f"{seed} {number}")
        name = f"pupil_{number:04}"
        skill, habits = rng.betavariate(5, 2), rng.random()
        did: dict[str, str] = {}
        (folder / name).mkdir(parents=True)
        for path in paths:
            ids = exercises_of(path)
            drawn = _possible(path, {id: _drawn(rng, skill) for id in ids})
            if rng.random() < 0.04:  # not handed in
                did |= dict.fromkeys(ids, OPEN)
                continue
            did |= drawn
            notebook = submission(path, drawn, rng, habits)
            (folder / name / path.name).write_text(nbformat.writes(notebook, version=4) + "\n", encoding="utf-8")
        pupils.append(Pupil(name, folder / name, did))
    return pupils


def _drawn(rng: random.Random, skill: float) -> str:
    return SOLVED if rng.random() < skill else WRONG if rng.random() < 0.6 else OPEN


def _possible(path: Path, did: Mapping[str, str]) -> dict[str, str]:
    """Who has no right answer to one exercise leaves those open that build on it: so what is solved is right."""
    possible = dict(did)
    for id, needed in _needs(path).items():  # in the notebook's order: what is needed stands before
        if any(possible[other] != SOLVED for other in needed):
            possible[id] = OPEN
    return possible


@functools.cache
def _needs(path: Path) -> dict[str, set[str]]:
    """By exercise, the others of the notebook whose answers its solution uses."""
    ids = {EXERCISES[id].answer_name: id for id, _ in _answers(path)}
    needs: dict[str, set[str]] = {}
    for id, cell in _answers(path):
        names = {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)}
        needs.setdefault(id, set()).update(ids[name] for name in names & ids.keys() if ids[name] != id)
    return needs


def submission(path: Path, did: Mapping[str, str], rng: random.Random, habits: float = 0.0) -> nbformat.NotebookNode:
    """The notebook of one learner. habits: how often something is done that nobody asked for, from 0 to 1."""
    notebook = nbformat.read(path, as_version=4)
    exercise = student_version(notebook)
    theirs = {cell.id: id for id, cell in _answers(path)}
    solved = {cell.id: cell.source for cell in notebook.cells}
    for cell in exercise.cells:
        what = did.get(theirs.get(cell.id, ""), OPEN)
        if what == SOLVED:
            cell.source = without_marks(solved[cell.id])
        elif what == WRONG:
            cell.source = rng.choice(wrong(path, theirs[cell.id]))
        if cell.cell_type == "code" and what == SOLVED and rng.random() < habits / 8:
            cell.source = chatty(cell.source)
        if cell.cell_type == "code" and rng.random() < habits / 2:
            cell.outputs, cell.execution_count = [_output(rng)], rng.randrange(1, 400)
    if rng.random() < habits / 3:
        _reorder(exercise.cells, rng)
    for _ in range(int(rng.random() * habits * 6)):
        code = rng.random() < 0.7
        made = nbformat.v4.new_code_cell if code else nbformat.v4.new_markdown_cell
        cell = made(rng.choice(EXTRAS if code else NOTES), id=f"{rng.getrandbits(32):08x}")
        exercise.cells.insert(rng.randrange(3, len(exercise.cells)), cell)
    return exercise


def _reorder(cells: list, rng: random.Random) -> None:
    """Exercises in another order; what stands before the first one stays."""
    starts = [i for i, cell in enumerate(cells) if cell.cell_type == "markdown" and cell.source.startswith("## ")]
    blocks = [cells[start:end] for start, end in zip(starts, [*starts[1:], len(cells)])]
    rng.shuffle(blocks)
    cells[starts[0] :] = [cell for block in blocks for cell in block]


def _output(rng: random.Random) -> nbformat.NotebookNode:
    if rng.random() < 0.8:
        return nbformat.v4.new_output("stream", name="stdout", text="".join(f"line {i}\n" for i in range(30)))
    picture = base64.b64encode(rng.randbytes(6000)).decode()
    return nbformat.v4.new_output("display_data", data={"image/png": picture, "text/plain": "<Figure>"})


# --- answers ----------------------------------------------------------------------------------------------------------


def exercises_of(path: Path) -> list[str]:
    """The ids of the exercises of a solution notebook, in its order."""
    return list(dict.fromkeys(id for id, _ in _answers(path)))


@functools.cache
def _answers(path: Path) -> tuple[tuple[str, nbformat.NotebookNode], ...]:
    """Every cell of a solution notebook that holds an answer, with the exercise that the next check names."""
    waiting, found = [], []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        if BEGIN in cell.source:
            waiting.append(cell)
        if named := CHECK.search(cell.source):
            found += [(named[1], each) for each in waiting]
            waiting = []
    return tuple(found)


def without_marks(source: str) -> str:
    """A cell of a solution notebook as a learner would have written it."""
    return "\n".join(line for line in source.splitlines() if line.strip() not in (BEGIN, END))


def chatty(source: str) -> str:
    """The same answer, which prints where it is called."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body.insert(bool(ast.get_docstring(node)), ast.parse(f"print('in', {node.name!r})").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


@functools.cache
def wrong(path: Path, exercise_id: str) -> tuple[str, ...]:
    """Cells with a wrong answer to an exercise: each fails when it is graded, and soon."""
    exercise = EXERCISES[exercise_id]
    cell = next(cell for id, cell in _answers(path) if id == exercise_id)
    call = "".join(f"\n\n{line}" for line in cell.source.splitlines() if CHECK.match(line))
    if exercise.kind not in ("code", "experiment"):
        return tuple(f"{exercise.answer_name} = {value!r}{call}" for value in _values(exercise))
    found = []
    for source in _slips(without_marks(cell.source), random.Random(exercise_id), exercise.kind == "code"):
        if _fails(exercise, source, _solved(path)):
            found.append(source)
            if len(found) == SLIPS:
                break
    if not found:
        raise ValueError(f"no slip in the solution of {exercise_id} fails")
    return tuple(found)


def _values(exercise: Exercise) -> list:
    """Wrong values: of a number or shape the known mistakes, of a choice the wrong options, of a text too few words."""
    if exercise.kind == "reflect":
        return ["It is what it is."]
    if exercise.kind == "choice":
        return [option.key for option in exercise.options if not option.right][:SLIPS]
    reference = exercise.reference
    wrongs = [mistake.wrong for mistake in exercise.misconceptions[:SLIPS]]
    return [{**reference, **each} if isinstance(reference, Mapping) else each for each in wrongs]


def _slips(source: str, rng: random.Random, tokens: bool) -> Iterator[str]:
    """The cell with one slip of a token, in drawn order; at last with a `return` that gives nothing back.

    tokens=False: the last kind alone. What an experiment makes of another slip may be a matter of chance or of time.
    """
    tree = ast.parse(source)
    slips = []
    for place, node in enumerate(tree.body):
        if tokens and isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            slips += [(place, mutated) for mutated, _ in mutants.variants(node)]
    rng.shuffle(slips)
    for place, mutated in slips:
        body = [*tree.body[:place], mutated, *tree.body[place + 1 :]]
        yield ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))
    for node in ast.walk(tree):
        if isinstance(node, ast.Return):
            value, node.value = node.value, None
            yield ast.unparse(tree)
            node.value = value


@functools.cache
def _solved(path: Path) -> dict:
    """What the solution notebook defines."""
    space: dict = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and SOLUTION_TAG not in cell.metadata.get("tags", []):
                _define(cell.source, space)
    return space


def _define(source: str, space: dict) -> None:
    """Run a cell; what it shows and checks is left away."""
    silent = {name: lambda *_, **__: None for name in ("check", "explore", "hint", "progress")}
    for line in ast.parse(source).body:
        space.update(silent)
        exec(compile(ast.Module([line], []), "<answer>", "exec"), space)


def _fails(exercise: Exercise, source: str, space: dict) -> bool:
    quick = replace(exercise, misconceptions=(), time_limit=SECONDS)
    space = dict(space)
    with mock.patch.dict(EXERCISES, {exercise.id: quick}), contextlib.redirect_stdout(io.StringIO()):
        try:
            _define(source, space)
        except Exception:
            return False  # a cell that cannot be run is another kind of mistake
        result = grade(exercise.id, space[exercise.answer_name], seed=0)
    return not result.passed and "still running" not in result.feedback


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pupils", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a folder that is new or empty")
    parser.add_argument("--count", type=int, default=500, help="submissions (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="decides all that is drawn (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.folder.exists() and any(arguments.folder.iterdir()):
        parser.error(f"{arguments.folder} is not empty")
    os.environ["COURSE_PROGRESS"] = IN_MEMORY
    torch.set_num_threads(1)
    pupils = make(arguments.folder, arguments.count, arguments.seed)
    points = sum(exercise.points for exercise in EXERCISES.values())
    mean = sum(pupil.earned for pupil in pupils) / len(pupils)
    print(f"{len(pupils)} submissions in {arguments.folder}: {mean:.1f} of {points} points on average")
    return 0


if __name__ == "__main__":
    sys.exit(main())
