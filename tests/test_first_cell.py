"""The first cell of every exercise notebook: after it, every call that any page's prose names runs."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

from course_lib.course import record
from course_lib.course.contents import CHAPTERS
from course_lib.grading import EXERCISES
from course_lib.grading.page import catalogue
from course_lib.grading.page.notebooks import TOOLS
from course_lib.grading.page.run_notebooks import exercise_text
from course_lib.grading.result import Hint, Progress, Result
from course_lib.live.guesses import questions

pytestmark = pytest.mark.usefixtures("no_pixels", "as_a_learner")

ROOT = Path(__file__).parent.parent
NAMES = ("check", "hint", "progress", "explore", "guess", "mine")
CALL = re.compile(rf"\b(?:{'|'.join(NAMES)})\((?:[^()\n]|\([^()\n]*\))*\)")


def calls(prose: str) -> list[str]:
    """The calls that a text names; not those in which dots stand for what a reader puts there."""
    return [call for call in CALL.findall(prose) if "…" not in call and "..." not in call]


def prose() -> dict[str, str]:
    """Every text that a learner may read beside an exercise, by file: pages, their chapters, notebooks' Markdown."""
    texts = {}
    for page in sorted(catalogue.CHAPTERS.glob("*/exercises/*.md")):
        texts[f"{page.parent.parent.name}/{page.name}"] = page.read_text(encoding="utf-8")
    exercises = {path: exercise_text(path) for path in sorted(ROOT.glob("solutions/*.ipynb"))}
    chapters = {path: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("notebooks/*.ipynb"))}
    for path, text in [*exercises.items(), *chapters.items()]:
        cells = nbformat.reads(text, as_version=4).cells
        markdown = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        texts[f"{'exercises' if path in exercises else 'notebooks'}/{path.name}"] = markdown
    return texts


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    """What a learner's kernel holds after the first cell, with a record of its own."""
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.sqlite3"))
    space = {}
    exec(TOOLS, space)
    return space


def solve_all(space):
    """Put every solution into a kernel, under the name that is asked; what is kept of it is an empty function."""
    called = {exercise.id: exercise for exercise in EXERCISES.values() if exercise.called}
    space |= {exercise.answer_name: exercise.reference for exercise in called.values()}

    def keep(entries):
        for id, exercise in called.items():
            entries[id] = {"name": exercise.answer_name, "source": f"def {exercise.answer_name}(): ..."}

    record.entries("answers", keep)


def test_the_first_cell_gives_all_that_learners_call_and_nothing_else(kernel):
    assert sorted(kernel.keys() - {"__builtins__"}) == sorted([*NAMES, "device", "use_device"])


def test_every_exercise_notebook_has_the_same_first_cell():
    """Also a solutions notebook that was not written anew since: what learners get is made of it."""
    for path in sorted(ROOT.glob("solutions/*.ipynb")):
        cells = nbformat.reads(exercise_text(path), as_version=4).cells
        assert next(cell.source for cell in cells if cell.cell_type == "code") == TOOLS, path.name


def test_the_first_cell_says_at_once_that_it_loads_and_at_the_end_that_it_has():
    """PyTorch takes seconds to load, the first time many: nobody should take that for a fault."""
    for folder in ("notebooks", "exercises", "solutions"):
        for path in sorted((ROOT / folder).glob("*.ipynb")):
            cells = nbformat.read(path, as_version=4).cells
            lines = next(cell.source for cell in cells if cell.cell_type == "code").splitlines()
            assert lines[0].startswith('print("Loading PyTorch and '), path.name
            assert lines[-1] == 'print("Ready, on", device)', path.name


def test_every_call_that_prose_names_runs_after_the_first_cell(kernel):
    solve_all(kernel)
    named = {call: where for where, text in prose().items() for call in calls(text)}
    kinds = {name: [call for call in named if call.startswith(f"{name}(")] for name in NAMES}
    assert len(kinds["hint"]) >= 15
    assert len(kinds["explore"]) >= 15
    assert kinds["progress"] == ["progress()"]
    assert kinds["mine"]
    for call, where in named.items():
        try:
            found = eval(call, kernel)
        except Exception as error:
            raise AssertionError(f"{where}: {call} raises {type(error).__name__}: {error}") from error
        assert found is not None, f"{where}: {call} gives nothing"
        if call.startswith(("hint(", "progress(")):
            assert isinstance(found, (Hint, Progress)), f"{where}: {call} gives {found!r}"


def test_a_chapter_that_names_a_call_imports_it_or_says_from_where():
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        lines = re.findall(r"^from course_lib\.\w+ import [\w, ]+", code, flags=re.MULTILINE)
        imported = {alias.name for line in lines for alias in ast.parse(line).body[0].names}
        for cell in cells:
            named = calls(cell.source) if cell.cell_type == "markdown" else []
            missing = {call.partition("(")[0] for call in named} - imported
            assert not missing or "`course_lib.grading`" in cell.source or (
                f"from course_lib.grading import {', '.join(sorted(missing))}" in cell.source
            ), f"{path.name}: {missing}"  # fmt: skip


def test_a_chapters_guesses_can_be_asked_again_in_its_exercises(kernel):
    for chapter in CHAPTERS:
        for name in list(questions(chapter.slug))[:1]:
            assert kernel["guess"](name).question.id == name
            assert kernel["guess"](f" {name.upper()} ").question.id == name


@pytest.mark.parametrize("name", ["guess", "explore", "mine"])
@pytest.mark.parametrize("said", ["attention.sofmax", "softmax", 3, None, len, "q" * 10_000])
def test_what_raises_says_one_short_sentence(kernel, name, said):
    arguments = (said, len) if name == "explore" else (said,)
    with pytest.raises((KeyError, TypeError, ValueError)) as raised:
        kernel[name](*arguments)
    said = str(raised.value.args[0])
    assert len(said) < 200
    assert "\n" not in said


def test_a_check_after_the_first_cell_is_a_result_whatever_it_is_given(kernel):
    assert isinstance(kernel["check"]("attention.sofmax", len), Result)
