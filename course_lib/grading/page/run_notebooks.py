"""Notebooks as files: run them with reproducible outputs, make solutions from pages and exercises from solutions.

`python -m course_lib refresh` uses this module.
"""

import base64
import copy
import io
import os
import re
import subprocess
from pathlib import Path

import nbformat

from course_lib.course.contents import CHAPTERS
from course_lib.course.files import write_whole
from course_lib.course.record import IN_MEMORY
from course_lib.grading.page.catalogue import EXERCISES
from course_lib.grading.page.marks import BEGIN, END, SOLUTION_TAG
from course_lib.grading.page.notebooks import metadata, solutions, with_outputs
from course_lib.live.page import SERVICE, VIEW

PICTURE = re.compile(r"(data:image/png;base64,)([A-Za-z0-9+/=]+)")
GUESS = re.compile(r'(guess|reveal)\("([\w.]+)"\)')
FOLDED = "folded"  # the tag of a cell whose output answers the question above it


# --------------------------------------------------------------------------------------------- exercises from solutions
def student_version(solution: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the exercise notebook of a solutions notebook, without answers, outputs, and cells tagged "solution".

    Inside a function or method, the answer becomes `raise NotImplementedError`. At the top level, every name that it
    assigned becomes `name = ...`, or else the last class. Errors: ValueError for a region without its beginning or its
    end.
    """
    notebook = copy.deepcopy(solution)
    notebook.cells = [cell for cell in notebook.cells if SOLUTION_TAG not in cell.metadata.get("tags", [])]
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.source = _cut_answers(cell.source)
            cell.outputs, cell.execution_count = [], None
    notebook.metadata = metadata()
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
    classes = [match[1] for line in answer if (match := re.match(r"class (\w+)", line))]
    names = names or dict.fromkeys(classes[-1:])  # the last class of a file uses the others
    return [f"{name} = ...  # your answer" for name in names]


def exercise_text(solution: Path) -> str:
    """Return the text of the learners' file for a solutions notebook, whatever exercises/ contains at present."""
    return nbformat.writes(student_version(nbformat.read(solution, as_version=4)), version=4) + "\n"


def write_solution(path: Path) -> bool:
    """Write a solutions notebook from its chapter's pages again, with the outputs of unchanged cells. Return whether it
    changed.

    Errors: ValueError if the file's name is no chapter's.
    """
    slug = next((chapter.slug for chapter in CHAPTERS if chapter.notebook == path.name), None)
    if slug is None:
        raise ValueError(f"{path} is not named like a chapter's notebook, such as {CHAPTERS[1].notebook}: rename it")
    before = nbformat.read(path, as_version=4) if path.exists() else nbformat.v4.new_notebook()
    made = solutions(slug)
    if [(cell.id, cell.source) for cell in made.cells] == [(cell.id, cell.source) for cell in before.cells]:
        return False
    _replace(path, nbformat.writes(with_outputs(made, before), version=4) + "\n")
    return True


def write_exercises(folder: Path, exercises: Path) -> list[Path]:
    """Write the solutions notebooks, the exercise notebooks made from them, and the guide's catalogue; return the
    changed files."""
    changed = [path for path in sorted(folder.glob("*.ipynb")) if write_solution(path)]
    readme = folder / "README.md"
    if (text := guide(readme.read_text(encoding="utf-8"))) != readme.read_text(encoding="utf-8"):
        _replace(readme, text)
        changed.append(readme)
    for path in sorted(folder.glob("*.ipynb")):
        target = exercises / path.name
        text = exercise_text(path)
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            _replace(target, text)
            changed.append(target)
    return changed


GUIDE_BEGIN, GUIDE_END = "<!-- catalogue: written by `python -m course_lib refresh` -->", "<!-- end of catalogue -->"


def guide(text: str) -> str:
    """Return the instructor's guide with an updated catalogue: every exercise and its known mistakes."""
    if GUIDE_BEGIN not in text or GUIDE_END not in text:
        raise ValueError(f"the guide needs the lines {GUIDE_BEGIN!r} and {GUIDE_END!r}: the catalogue goes between")
    before, rest = text.split(GUIDE_BEGIN)
    lines = []
    for chapter in dict.fromkeys(exercise.chapter for exercise in EXERCISES.values()):
        exercises = [exercise for exercise in EXERCISES.values() if exercise.chapter == chapter]
        points, minutes = sum(e.points for e in exercises), sum(e.minutes for e in exercises)
        lines += ["", f"## Chapter {chapter}: {points} points, about {minutes} minutes", ""]
        lines += ["| exercise | kind | points | minutes | mistakes that are recognized |", "|---|---|---|---|---|"]
        for e in exercises:
            mistakes = "; ".join(m.name for m in e.misconceptions) or "–"
            lines.append(f"| `{e.id}` {e.title} | {e.kind} | {e.points or '–'} | {e.minutes} | {mistakes} |")
    return before + GUIDE_BEGIN + "\n".join([*lines, "", GUIDE_END]) + rest.split(GUIDE_END)[1]


# -------------------------------------------------------------------------------------------------------------- refresh
def refresh(path: Path, timeout: int = 180) -> None:
    """Run a notebook from top to bottom in a fresh kernel and save its outputs, in the form that tests compare later.

    Errors: RuntimeError naming the cell, if one raises an error or takes longer than `timeout` seconds. The file then
        stays as it was.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = metadata()
    environment = dict(os.environ, COURSE_PROGRESS=IN_MEMORY, COURSE_DEVICE="cpu")
    client = NotebookClient(
        notebook, timeout=timeout, coalesce_streams=True, resources={"metadata": {"path": str(path.parent)}}
    )
    try:
        client.execute(env=environment, stderr=subprocess.DEVNULL)  # the kernel's own messages, not the cells'
    except (CellExecutionError, CellTimeoutError) as error:
        raise RuntimeError(f"{path} is unchanged: {error}") from error
    _replace(path, nbformat.writes(_portable(notebook), version=4) + "\n")


def _portable(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the notebook without differences between machines and runs: times, widget state, versions.

    Code that serves only living widgets is removed. Pictures are made small, because the repository contains hundreds
    of them.
    """
    notebook.metadata = metadata()
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            data.pop(VIEW, None)
            if "text/html" in data:
                data["text/html"] = data["text/html"].replace(SERVICE, "")
                data["text/html"] = PICTURE.sub(lambda found: found[1] + _small(found[2]), data["text/html"])
        if "outputs" in cell:  # a view without other data leaves an empty output behind
            cell.outputs = [output for output in cell.outputs if output.get("data") != {}]
    _fold_outcomes(notebook.cells)
    return notebook


def _small(code: str) -> str:
    """Return a picture with at most 256 colours, in base64: a third of the bytes without a visible difference."""
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(code))).convert("RGB")
    kept = io.BytesIO()
    picture.quantize(256, dither=Image.Dither.NONE).save(kept, "PNG", optimize=True)
    return base64.b64encode(kept.getvalue()).decode()


def _fold_outcomes(cells: list[nbformat.NotebookNode]) -> None:
    """Fold the outputs between a guess and its verdict, and those of cells with the tag FOLDED.

    Readers who scroll should not see the answer before the question. Running a cell unfolds it.
    """
    waiting: set[str] = set()
    for cell in cells:
        asked = GUESS.fullmatch(cell.source) if cell.cell_type == "code" else None
        if asked and asked[1] == "guess":
            waiting.add(asked[2])
        elif (waiting or FOLDED in cell.metadata.get("tags", [])) and cell.get("outputs"):
            cell.metadata["jupyter"] = {"outputs_hidden": True}
            # JupyterLab shows the first line of the first folded output, so insert an empty one.
            cell.outputs.insert(0, nbformat.v4.new_output("display_data"))
        if asked and asked[1] == "reveal":
            waiting.discard(asked[2])


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
