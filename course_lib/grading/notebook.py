"""Notebooks as files: run them and keep their outputs equal everywhere; make the exercises from the solutions; grade
one.

`python -m course_lib refresh` and `python -m course_lib grade` are the doors to this module.
"""

import contextlib
import copy
import io
import linecache
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import nbformat

from course_lib.files import write_whole

from .catalogue import EXERCISES
from .engine import grade
from .exercise import Exercise
from .limits import Stop, limited, undisturbed
from .record import IN_MEMORY
from .result import SIGNS, Result

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
SOLUTION_TAG = "solution"  # a cell with this tag stands in solutions/ alone
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


# --------------------------------------------------------------------------------------------- exercises from solutions
def student_version(solution: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The exercise notebook of a solution notebook: answers cut out, outputs gone, cells tagged "solution" left away.

    Inside a function or method the answer becomes `raise NotImplementedError`; at the top level every name that it
    assigned becomes `name = ...`. Errors: ValueError for a region that is opened and not closed, or closed and not
    opened.
    """
    notebook = copy.deepcopy(solution)
    notebook.cells = [cell for cell in notebook.cells if SOLUTION_TAG not in cell.metadata.get("tags", [])]
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.source = _cut_answers(cell.source)
            cell.outputs, cell.execution_count = [], None
    notebook.metadata = _metadata()
    return notebook


def _cut_answers(source: str) -> str:
    kept: list[str] = []
    answer: list[str] | None = None
    for line in source.splitlines():
        marker = line.strip()
        if marker == BEGIN and answer is None:
            answer, indent = [], line[: len(line) - len(line.lstrip())]
        elif marker == END and answer is not None:
            kept += _placeholder(answer, indent)
            answer = None
        elif marker in (BEGIN, END):
            raise ValueError(f"{marker!r} without its partner in a cell that begins {source.splitlines()[0]!r}")
        elif answer is None:
            kept.append(line)
        else:
            answer.append(line)
    if answer is not None:
        raise ValueError(f"{BEGIN!r} is never closed in a cell that begins {source.splitlines()[0]!r}")
    return "\n".join(kept)


def _placeholder(answer: list[str], indent: str) -> list[str]:
    if indent:
        return [f"{indent}# Your answer goes here, in place of the next line.", f"{indent}raise NotImplementedError"]
    names = dict.fromkeys(match[1] for line in answer if (match := re.match(r"(\w+)\s*=[^=]", line)))
    return [f"{name} = ...  # your answer" for name in names]


def write_exercises(solutions: Path, exercises: Path) -> list[Path]:
    """Write the exercise notebook of every solution notebook, and the guide's catalogue; returns what changed."""
    changed = []
    readme = solutions / "README.md"
    if (text := guide(readme.read_text(encoding="utf-8"))) != readme.read_text(encoding="utf-8"):
        _replace(readme, text)
        changed.append(readme)
    for path in sorted(solutions.glob("*.ipynb")):
        target = exercises / path.name
        text = nbformat.writes(student_version(nbformat.read(path, as_version=4)), version=4) + "\n"
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            _replace(target, text)
            changed.append(target)
    return changed


GUIDE_BEGIN, GUIDE_END = "<!-- catalogue: written by `python -m course_lib refresh` -->", "<!-- end of catalogue -->"


def guide(text: str) -> str:
    """The instructor's guide with its catalogue brought up to date: every exercise and its known mistakes."""
    if GUIDE_BEGIN not in text or GUIDE_END not in text:
        raise ValueError(f"the guide needs the lines {GUIDE_BEGIN!r} and {GUIDE_END!r}: its catalogue stands there")
    before, rest = text.split(GUIDE_BEGIN)
    lines = []
    for chapter in dict.fromkeys(exercise.chapter for exercise in EXERCISES.values()):
        exercises = [exercise for exercise in EXERCISES.values() if exercise.chapter == chapter]
        points, minutes = sum(e.points for e in exercises), sum(e.minutes for e in exercises)
        lines += ["", f"## Chapter {chapter}: {points} points, about {minutes} minutes", ""]
        lines += ["| exercise | kind | points | minutes | mistakes that are recognised |", "|---|---|---|---|---|"]
        for e in exercises:
            mistakes = "; ".join(m.name for m in e.misconceptions) or "–"
            lines.append(f"| `{e.id}` {e.title} | {e.kind} | {e.points or '–'} | {e.minutes} | {mistakes} |")
    return before + GUIDE_BEGIN + "\n".join([*lines, "", GUIDE_END]) + rest.split(GUIDE_END)[1]


# -------------------------------------------------------------------------------------------------------------- refresh
def refresh(path: Path, timeout: int = 180) -> None:
    """Run a notebook from top to bottom in a fresh kernel and keep what it printed, in the form that is compared later.

    Errors: RuntimeError naming the cell, if one raises or takes longer than `timeout` seconds; the file then stays as
        it was.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = _metadata()
    environment = dict(os.environ, COURSE_PROGRESS=IN_MEMORY)
    client = NotebookClient(
        notebook, timeout=timeout, coalesce_streams=True, resources={"metadata": {"path": str(path.parent)}}
    )
    try:
        client.execute(env=environment, stderr=subprocess.DEVNULL)  # the kernel's own remarks, not the cells'
    except (CellExecutionError, CellTimeoutError) as error:
        raise RuntimeError(f"{path} was left as it was: {error}") from error
    _replace(path, nbformat.writes(_portable(notebook), version=4) + "\n")


def _portable(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without what differs from machine to machine and run to run: times, widget state, versions."""
    notebook.metadata = _metadata()
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        if cell.source.startswith("Predict("):  # its source holds the answer: JupyterLab folds it away
            cell.metadata["jupyter"] = {"source_hidden": True}
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)
    return notebook


def _metadata() -> dict:
    return nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


# ---------------------------------------------------------------------------------------------------------------- grade
CELL_SECONDS = 60  # for one cell of a notebook that is graded


@dataclass(frozen=True)
class Report:
    """The grade of one notebook: a result per exercise, and what went wrong while its cells ran."""

    notebook: str
    results: tuple[Result, ...]
    troubles: tuple[str, ...]

    @property
    def earned(self) -> int:
        return sum(result.earned for result in self.results)

    @property
    def points(self) -> int:
        return sum(result.points for result in self.results)

    def as_text(self) -> str:
        """A line per exercise, with the first sentence of the feedback where something is wrong."""
        lines = [self.notebook, "─" * len(self.notebook)]
        for result in self.results:
            score = f"{result.earned}/{result.points}" if result.points else "–"
            sign, word, _ = SIGNS[result.status]
            lines.append(f"{sign} {result.exercise_id:<32}{score:>6}  {result.misconception or ''}".rstrip())
            if not result.passed:
                lines.append(f"      {word if result.status == 'unanswered' else result.sentences[0]}")
        lines += [f"  ! {trouble}" for trouble in self.troubles]
        return "\n".join([*lines, f"{self.earned} of {self.points} points", ""])


def grade_notebook(path: Path, seed: int = 1) -> Report:
    """Run a notebook's code cells in this process and grade the answers by their names, on cases drawn by `seed`.

    The chapters are those whose exercises the notebook checks. A cell that raises, ends the program or runs for ever
    costs only what it would have defined. Errors: ValueError if the file is not a notebook, or checks no exercise.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as a notebook ({type(error).__name__}): give the .ipynb file with your answers"
        ) from error
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    named = re.findall(r"""\bcheck\(\s*["']([\w.]+)["']""", "\n".join(cells))
    chapters = {EXERCISES[name].chapter for name in named if name in EXERCISES}
    if not chapters:
        raise ValueError(
            f'{path} checks no exercise of this course: it has no cell such as check("attention.softmax", softmax)'
        )
    namespace, troubles = _run_cells(cells)
    exercises = [exercise for exercise in EXERCISES.values() if exercise.chapter in chapters]
    results = tuple(grade(exercise.id, namespace.get(answer_name(exercise), ...), seed) for exercise in exercises)
    return Report(path.name, results, tuple(troubles))


def answer_name(exercise: Exercise) -> str:
    """The name under which a notebook holds the answer: that of the function or class, otherwise the id with "_" for
    "."."""
    return (
        exercise.signature.split("(")[0] if exercise.kind in ("code", "experiment") else exercise.id.replace(".", "_")
    )


def _run_cells(cells: list[str]) -> tuple[dict, list[str]]:
    namespace: dict = {"__name__": "__main__"}
    troubles = []
    with mock.patch.dict(os.environ, COURSE_PROGRESS=IN_MEMORY):
        for number, source in enumerate(cells, start=1):
            if trouble := _run_cell(number, source, namespace):
                troubles.append(f"code cell {number}: {trouble}")
    return namespace, troubles


def _run_cell(number: int, source: str, namespace: dict) -> str | None:
    """Run one cell; what went wrong in a sentence, or None."""
    source = re.sub(r"^\s*[%!?].*$", "pass", source, flags=re.MULTILINE)  # IPython's commands mean nothing here
    filename = f"<code cell {number}>"
    linecache.cache[filename] = (
        len(source),
        None,
        source.splitlines(keepends=True),
        filename,
    )  # so that feedback can quote the line
    trouble: list[str] = []

    def run():
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                exec(compile(source, filename, "exec"), namespace)
        except Exception as error:
            trouble.append(f"{type(error).__name__}: {error}")
        except Stop:
            raise
        except BaseException:  # sys.exit() and whatever else means to end the program
            trouble.append("it ends the program")

    with undisturbed():
        ended = limited(run, CELL_SECONDS)
    return f"stopped after {CELL_SECONDS} seconds" if ended != "done" and not trouble else next(iter(trouble), None)
