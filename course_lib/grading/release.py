"""The learner's package: the course without solutions and tests, with the exercises sealed.

`python -m course_lib release FOLDER` is the door to this module.
"""

import copy
import re
import shutil
from pathlib import Path

import nbformat

from .catalogue import EXERCISES
from .notebook import student_version
from .sealed import NAME, seal

CHAPTERS = Path("course_lib/chapters")
WHOLE = ["notebooks", "course_lib", "LICENSE"]
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "*.pyc", "*.egg-info", "*.part")
CHECK = re.compile(r"""(?:\A|\n+)(?P<call>check\(["'](?P<id>[\w.]+)["'], \w+\))\Z""")  # as a cell's last line


def release(root: Path, folder: Path) -> list[Path]:
    """Write the learner's package of the repository `root` into `folder`; returns its files.

    The exercises are made from the solutions: answers that somebody wrote into `root`'s own copies stay there.

    Errors: ValueError if `root` is no repository of the course, if the folder lies in the repository or holds anything,
        or if README.md lacks a part that learners need.
    """
    _require_ready(root, folder)
    for name in WHOLE:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=LEFT_OUT)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
    pages = {path: path.read_text("utf-8") for path in sorted((folder / CHAPTERS).glob("*/exercises/*.*"))}
    (folder / CHAPTERS / NAME).write_bytes(
        seal({f"{path.parents[1].name}/{path.name}": text for path, text in pages.items()})
    )
    for hidden in {path.parent for path in pages}:
        shutil.rmtree(hidden)
    (folder / "exercises").mkdir()
    for path in sorted((root / "solutions").glob("*.ipynb")):
        notebook = for_nbgrader(student_version(nbformat.read(path, as_version=4)))
        text = nbformat.writes(notebook, version=4) + "\n"
        (folder / "exercises" / path.name).write_text(text, encoding="utf-8")
    for name, made in (("README.md", _readme), ("requirements.txt", requirements), ("pyproject.toml", _project)):
        (folder / name).write_text(made((root / name).read_text("utf-8")), encoding="utf-8")
    return sorted(path for path in folder.rglob("*") if path.is_file())


def for_nbgrader(exercise: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The exercise notebook with nbgrader's metadata on the cells that check an answer: they are its tests.

    Of the others none is marked: an answer may be copied, split and moved, and `nbgrader generate_assignment` takes the
    notebook as it is. Where a cell holds an answer and its check, the check gets a cell of its own, because nbgrader
    writes a test back as it was. The question of a reflection, which has no points, is a task: whoever grades by hand
    finds it in the form grader, with the text below it, and can leave a comment or points of their own.
    Source: nbgrader's cell metadata, schema 3. Errors: KeyError for a check of an unknown exercise.
    """
    notebook = copy.deepcopy(exercise)
    cells, notebook.cells = notebook.cells, []
    for cell in cells:
        notebook.cells.append(cell)
        found = CHECK.search(cell.source) if cell.cell_type == "code" else None
        if not found:
            continue
        if answer := cell.source[: found.start()]:
            cell.source = answer
            cell = nbformat.v4.new_code_cell(found["call"], id=f"{cell.id}-check")
            notebook.cells.append(cell)
        name = found["id"].replace(".", "__")  # letters, digits, - and _ alone
        mark = {"schema_version": 3, "grade_id": name, "solution": False, "locked": True}
        if points := EXERCISES[found["id"]].points:
            cell.metadata["nbgrader"] = nbformat.from_dict(mark | {"grade": True, "task": False, "points": points})
        else:
            question = next(each for each in reversed(notebook.cells) if each.cell_type == "markdown")
            question.metadata["nbgrader"] = nbformat.from_dict(mark | {"grade": False, "task": True, "points": 0})
    return notebook


def _require_ready(root: Path, folder: Path) -> None:
    if not all((root / name).exists() for name in (*WHOLE, "solutions", str(CHAPTERS))):
        raise ValueError(f"{root} is not the course's repository: run this at its top")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is not empty: name a new folder, or move that one away")
    if root.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise ValueError(f"{folder} lies in the repository: name a folder outside of it")


def _readme(text: str) -> str:
    """The parts of README.md that concern learners, with the command that opens the course."""
    opening = text.partition("\n## ")[0].strip()
    commands = [line for line in text.splitlines() if re.search(r"-m venv .* -m course_lib start$", line)]
    unix, windows = commands[:1], commands[1:2]
    if not (unix and windows):
        raise ValueError("README.md should hold the command that opens the course, for Linux or macOS and for Windows")
    start = [
        "## One command",
        "It makes its own environment, copies the notebooks and exercises into a folder of your own, `my/`, and opens "
        "it in JupyterLab. Python 3.11 or newer; no GPU needed.",
        f"```\n{unix[0]}\n```",
        "On Windows (PowerShell 7):",
        f"```\n{windows[0]}\n```",
        "The next day `.venv/bin/python -m course_lib start` alone opens the notebook that you saved last.",
        "If anything is amiss, `.venv/bin/python -m course_lib doctor` says what, and how to mend it.",
    ]
    learners = re.sub(r" The tests of these models [^.]*\.", "", _section(text, "For learners"))
    parts = [opening, *start, _section(text, "The chapters"), learners, "MIT licence."]
    return "\n\n".join(parts) + "\n"


def _section(text: str, title: str) -> str:
    found = re.search(rf"^## {title}\n.*?(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    if not found:
        raise ValueError(f"README.md should have a part {title!r}")
    return found[0].strip()


def requirements(text: str) -> str:
    """The lines of requirements.txt without what only the tests need."""
    return re.sub(r"^# The tests\n(?:[^#\n].*\n)*", "", text, flags=re.MULTILINE)


def _project(text: str) -> str:
    """Without the tools of contributors; with the sealed exercises among the files of the package."""
    parts = re.split(r"(?=^\[)", text, flags=re.MULTILINE)
    kept = "".join(part for part in parts if not re.match(r"\[+tool\.(ruff|pytest|mypy|importlinter)", part))
    kept = re.sub(r"^(?:# .*\n)?dev = \[\n(?:  .*\n)*\]\n", "", kept, flags=re.MULTILINE)
    return kept.replace('"assets/**/*"', f'"assets/**/*", "chapters/{NAME}"')
