"""The learner's package: the course without solutions and tests, with the exercises sealed.

`python -m course_lib release FOLDER` uses this module. A package may contain only the first chapters and receive the
others week by week. A placeholder page announces each missing chapter, so that no link is broken. Anything written into
a package stays, by the rule of `handout`.
"""

import copy
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

import nbformat

from course_lib.course.contents import CHAPTERS as ALL
from course_lib.course.contents import RELEASED, Chapter, readme, released
from course_lib.course.files import save_json
from course_lib.course.handout import EARLIER, RECORD, Handed, for_learners, hand_package
from course_lib.grading.page.catalogue import EXERCISES, minutes_by_chapter
from course_lib.grading.page.run_notebooks import metadata, student_version
from course_lib.grading.page.sealed import NAME, seal

CHAPTERS = Path("course_lib/chapters")
WHOLE = ["notebooks", "course_lib", "LICENSE"]
UNWANTED = shutil.ignore_patterns(
    *("__pycache__", ".ipynb_checkpoints", ".virtual_documents", "*.pyc", "*.egg-info", "*.part"),
    *("runs", "my_gpt.py"),  # files that a user trained or wrote next to the notebooks
)
IGNORED = f"""\
.venv/
my
__pycache__/
*.egg-info/
.ipynb_checkpoints/
.virtual_documents/
runs/
*.part
my_gpt.py
# What an update keeps of a notebook that it renewed, and its lock.
{EARLIER}/
{RECORD}.lock
"""
TRIED = re.compile(r"""\b(?:check|hint|explore)\(\\?["'](\w+)\.(\w+)""")  # in the raw text of a notebook
CHECK = re.compile(r"""(?:\A|\n+)(?P<call>check\(["'](?P<id>[\w.]+)["'], \w+\))\Z""")  # as a cell's last line


def release(
    root: Path,
    folder: Path,
    chapters: Collection[int] | None = None,
    dates: Mapping[int, str] | None = None,
    update: bool = False,
    hub: str = "",
) -> list[Handed]:
    """Write the learner's package of the repository `root` into `folder`, and return what was done with each of its
    files.

    The exercises are made from the solutions. Answers in `root`'s own exercise notebooks are not copied.

    Args:
        chapters: their numbers, by default all. Chapters of an earlier package in `folder` stay in it.
        dates: when the other chapters come, in words, as far as known.
        update: whether `folder` may already contain files. Any file that did not come from the package stays unchanged.
        hub: the link that brings the package to a JupyterHub, for its README; "" without one.

    Errors: ValueError in these cases:
        - `root` is not a repository of the course, or its README.md lacks a part that learners need.
        - The folder is inside the repository, or is not empty without `update`.
        - A chapter does not exist.
    """
    _require_ready(root, folder, update)
    chosen = {each.number for each in ALL} if chapters is None else {*chapters}
    if unknown := sorted(chosen - {each.number for each in ALL}):
        raise ValueError(f"there is no chapter {unknown[0]}: name chapters from 0 to {ALL[-1].number}")
    held = released(folder / "course_lib")
    chosen |= {*(held if held is not None else ())}
    with tempfile.TemporaryDirectory(prefix="course-package-") as made:
        _make(root, Path(made), [each for each in ALL if each.number in chosen], dates or {}, hub)
        return hand_package(Path(made), folder)


def _make(root: Path, folder: Path, chosen: list[Chapter], dates: Mapping[int, str], hub: str) -> None:
    """Write a package with the chosen chapters into an empty folder."""
    for name in WHOLE:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=left_out)
        else:
            shutil.copy(root / name, folder / name)
    for path in (folder / "notebooks").glob("*.ipynb"):
        path.write_bytes(for_learners(path.read_bytes()))
    pages = {path: path.read_text("utf-8") for path in sorted((folder / CHAPTERS).glob("*/exercises/*.*"))}
    by_name = {f"{path.parents[1].name}/{path.name}": text for path, text in pages.items()}
    (folder / CHAPTERS / NAME).write_bytes(seal({name: by_name[name] for name in _needed(by_name, folder, chosen)}))
    for hidden in {path.parent for path in pages}:
        shutil.rmtree(hidden)
    save_json(folder / "course_lib" / RELEASED, [each.number for each in chosen])
    (folder / "exercises").mkdir()
    read = "".join((folder / "notebooks" / each.notebook).read_text("utf-8") for each in chosen)
    for each in ALL:
        path = root / "solutions" / each.notebook
        if each not in chosen:
            text = nbformat.writes(to_come(each, dates.get(each.number, "")), version=4) + "\n"
            (folder / "notebooks" / each.notebook).write_text(text, encoding="utf-8")
            if f"(../exercises/{each.notebook})" in read:
                (folder / "exercises" / each.notebook).write_text(text, encoding="utf-8")
        elif path.exists():
            notebook = for_nbgrader(student_version(nbformat.read(path, as_version=4)))
            text = nbformat.writes(notebook, version=4) + "\n"
            (folder / "exercises" / path.name).write_text(text, encoding="utf-8")
    for name, made in (
        ("README.md", partial(_readme, hub=hub)),
        ("requirements.txt", requirements),
        ("pyproject.toml", _project),
    ):
        text = made((root / name).read_text("utf-8"))
        (folder / name).write_text(
            readme(text, folder / "exercises", minutes_by_chapter()) if name == "README.md" else text, encoding="utf-8"
        )
    (folder / ".gitignore").write_text(IGNORED, encoding="utf-8")
    (folder / ".gitattributes").write_text("* -text\n", encoding="utf-8")  # also on Windows, files keep their bytes


def left_out(folder: str, names: list[str]) -> set[str]:
    """Return the files of a folder that are not copied, including links, whose content is not the course's."""
    return UNWANTED(folder, names) | {name for name in names if (Path(folder) / name).is_symlink()}


def _needed(names: Collection[str], folder: Path, chosen: list[Chapter]) -> list[str]:
    """Return the pages and modules of exercises in a package with these chapters.

    These are the chapters' own, and those that their notebooks use from other chapters.
    """
    texts = [(folder / "notebooks" / each.notebook).read_text("utf-8") for each in chosen]
    tried = {(slug, name) for text in texts for slug, name in TRIED.findall(text)}
    slugs, helped = {each.slug for each in chosen}, {slug for slug, _ in tried}
    needed = []
    for each in names:
        slug, _, file = each.partition("/")
        is_helper = file.startswith("_") and slug in helped
        if slug in slugs or (slug, file.rpartition(".")[0]) in tried or is_helper:
            needed.append(each)
    return needed


def to_come(chapter: Chapter, when: str = "") -> nbformat.NotebookNode:
    """Return the page in place of a chapter that is not released yet; links to the chapter lead here."""
    text = (
        f"# {chapter.number} · {chapter.title}\n\n"
        f"**This chapter is still to come{f': on {when}' if when else ''}.** It is about {chapter.promise}.\n\n"
        "When your course is updated (`python -m course_lib start --pull`, or as your teacher says), the chapter takes "
        "the place of this page. If you write here, your page stays, and the chapter is added next to it."
    )
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell(text, id=f"to-come-{chapter.number}")], metadata=metadata()
    )


def for_nbgrader(exercise: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the exercise notebook with nbgrader's metadata on the cells that check an answer, which are its tests.

    The other cells have no marks: an answer may be copied, split and moved, and `nbgrader generate_assignment` accepts
    the notebook. If a cell contains an answer and its check, the check moves to a separate cell, because nbgrader
    restores its tests. The question of a reflection, which has no points, becomes a task. A teacher then finds it in
    the form grader, with the text below it, and can add a comment or points.
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
        name = found["id"].replace(".", "__")  # only letters, digits, - and _
        mark = {"schema_version": 3, "grade_id": name, "solution": False, "locked": True}
        if points := EXERCISES[found["id"]].points:
            cell.metadata["nbgrader"] = nbformat.from_dict(mark | {"grade": True, "task": False, "points": points})
        else:
            question = next(each for each in reversed(notebook.cells) if each.cell_type == "markdown")
            question.metadata["nbgrader"] = nbformat.from_dict(mark | {"grade": False, "task": True, "points": 0})
    return notebook


def _require_ready(root: Path, folder: Path, update: bool) -> None:
    if not all((root / name).exists() for name in (*WHOLE, "solutions", str(CHAPTERS))):
        raise ValueError(f"{root} is not the course's repository: run this command at its top")
    holds = folder.is_dir() and any(path.name != ".git" for path in folder.iterdir())
    if folder.exists() and (not folder.is_dir() or (holds and not update)):
        raise ValueError(
            f"{folder} is not empty: name a new folder; or add --update, which updates a package there and keeps "
            "what people wrote"
        )
    if root.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise ValueError(f"{folder} is inside the repository: name a folder outside of it")
    if (folder / "solutions").exists():
        raise ValueError(f"{folder} holds solutions: it looks like the course's repository; name another folder")


def _readme(text: str, hub: str = "") -> str:
    """Return the parts of README.md that concern learners, with the command that opens the course, and with the link
    to a JupyterHub if there is one."""
    opening = text.partition("\n## ")[0].strip()
    inside = re.sub(r"^\| teachers \|.*\n(?:\| \|.*\n)*", "", _section(text, "What is in it"), flags=re.MULTILINE)
    windows = re.findall(r"^py -m venv .* -m course_lib start$", text, flags=re.MULTILINE)
    cuda = re.findall(r"^On Linux, a plain installation of torch .*\n(?:.+\n)*", text, flags=re.MULTILINE)
    licences = re.findall(r"^The code is under .*$", text, flags=re.MULTILINE)
    if not (windows and cuda and licences):
        raise ValueError(
            "README.md should have the command that opens the course on Windows, a paragraph that begins with “On "
            "Linux, a plain installation of torch”, and a line on the licences that begins with “The code is under”"
        )
    on_hub = f"""## On our JupyterHub

There is nothing to install on the hub: [this link]({hub}) gets the course and opens it. Follow the same link again to
get what your teacher has released since. What you wrote stays."""
    commands = [
        *([on_hub] if hub else []),
        "## Everyday use and other systems",
        "If you have cloned the course with git, `.venv/bin/python -m course_lib start --pull` first fetches what your "
        "teacher has released since. Nothing that you wrote is overwritten.",
        "If something is wrong, `.venv/bin/python -m course_lib doctor` says what it is and how to fix it.",
        "### Windows",
        "In the Command Prompt or in PowerShell 7, this command installs the course and opens it. (Windows PowerShell "
        "5, which comes with Windows, does not accept `&&`.)",
        f"```\n{windows[0]}\n```",
        "In every other command on this page, write `.venv\\Scripts\\python` instead of `.venv/bin/python`.",
        "### Linux",
        cuda[0].strip(),
    ]
    chapters, learners = _section(text, "The chapters"), _section(text, "For learners")
    parts = [opening, inside, chapters, *commands, learners, *licences[-1:]]
    return "\n\n".join(parts) + "\n"


def _section(text: str, title: str) -> str:
    found = re.search(rf"^## {title}\n.*?(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    if not found:
        raise ValueError(f"README.md should have a part {title!r}")
    return found[0].strip()


def requirements(text: str) -> str:
    """Return requirements.txt without the lines that only the tests need."""
    return re.sub(r"^# The tests\n(?:[^#\n].*\n)*", "", text, flags=re.MULTILINE)


def _project(text: str) -> str:
    """Return pyproject.toml without the tools of contributors, and with the sealed exercises among the package's
    files."""
    parts = re.split(r"(?=^\[)", text, flags=re.MULTILINE)
    kept = "".join(part for part in parts if not re.match(r"\[+tool\.(ruff|pytest|mypy|importlinter)", part))
    kept = re.sub(r"^(?:# .*\n)?dev = \[\n(?:  .*\n)*\]\n", "", kept, flags=re.MULTILINE)
    return kept.replace('"assets/**/*"', f'"assets/**/*", "chapters/{NAME}", "{RELEASED}"')
