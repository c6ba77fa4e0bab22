"""The notebooks of a chapter's exercises, made from their pages: first the solutions, then the learner's notebook.

`_chapter.md` in a chapter's folder of exercises has the text around them:

    ---
    explore: merge                  # the exercise whose hint and explore the opening shows; if none is code, `hint: …`
    ---
    More text for the opening, if any.

    ## Beginning
    A python block: the imports.

    ## For teachers
    Text that only the solutions have.

A cell of prose has at most 120 words; a longer text continues in the next cell.
"""

import ast
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from course_lib.course.contents import BY_SLUG, CHAPTERS, Chapter
from course_lib.grading.exercise import Option
from course_lib.grading.judge.show import plural
from course_lib.grading.kinds import Choice, Exercise
from course_lib.grading.page.catalogue import EXERCISES
from course_lib.grading.page.format import Block, Page, PageError, read_page
from course_lib.grading.page.load import answer_block
from course_lib.grading.page.marks import BEGIN, END, SOLUTION_TAG

MOST_WORDS = 120  # in a cell
TOOLS = """\
print("Loading PyTorch and the exercises …")
from course_lib.device import use_device

device = use_device()  # the CPU, unless you ask for another

from course_lib.grading import check, hint, mine, progress
from course_lib.live import explore, guess
print("Ready, on", device)"""
NUMBERS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"]


def solutions(slug: str) -> NotebookNode:
    """Return the solutions notebook of a chapter, without outputs.

    Errors: PageError if a page lacks something that the notebook needs.
    """
    chapter, folder = BY_SLUG[slug], _folder(slug)
    opening = _page(folder / "_chapter.md")
    exercises = [EXERCISES[each] for each in EXERCISES if each.startswith(f"{slug}.")]
    cells = _Cells()
    cells.prose("opening", [_opening(opening, chapter, exercises), *_texts(opening.statement)])
    cells.prose("teachers", _texts(opening.blocks("For teachers")), SOLUTION_TAG)
    cells.code("tools", TOOLS)
    cells.mixed("beginning", opening.blocks("Beginning"))
    for exercise in exercises:
        page = _page(EXERCISES.path(exercise.id))
        name = exercise.id.partition(".")[2].replace("_", "-")
        cells.mixed(name, page.statement, [_box(exercise)])
        if exercise.options:
            offered = exercise.same_for_all if isinstance(exercise, Choice) else exercise.options
            cells.prose(f"{name}-options", [_offered(option) for option in offered])
        cells.code(f"{name}-answer", _answer(exercise, page))
        cells.code(f"{name}-check", f'check("{exercise.id}", {exercise.answer_name})')
        cells.mixed(f"{name}-after", page.blocks("Afterwards"))
        cells.mixed(f"{name}-teachers", page.blocks("For teachers"), tag=SOLUTION_TAG)
    back = (
        "Shift + Enter makes an empty cell below: `progress()` in it shows where you stand. "
        f"Back to [the chapter](../notebooks/{chapter.notebook})"
    )
    on = [
        f", or on to [{each.number} · {each.title}](../notebooks/{each.notebook})"
        for each in CHAPTERS[chapter.number + 1 : chapter.number + 2]  # none after the last
    ]
    cells.prose("closing", [_grading(chapter), "".join([back, *on, "."])])
    return nbformat.v4.new_notebook(cells=cells.made, metadata=metadata())


def with_outputs(made: NotebookNode, before: NotebookNode) -> NotebookNode:
    """Return a notebook with its cells' earlier outputs, if their source has not changed."""
    ran = {cell.source: cell for cell in before.cells if cell.cell_type == "code"}
    for cell in made.cells:
        if cell.cell_type == "code" and cell.source in ran:
            cell.outputs, cell.execution_count = ran[cell.source].outputs, ran[cell.source].execution_count
    return made


def metadata() -> NotebookNode:
    """Return the metadata that every notebook of the course has."""
    return nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )


class _Cells:
    """Cells with stable ids: the name of the part they belong to, with a number from the second cell on."""

    def __init__(self) -> None:
        self.made: list[NotebookNode] = []

    def _id(self, name: str) -> str:
        taken = {cell.id for cell in self.made}
        return next(each for each in (name, *(f"{name}-{n}" for n in range(2, 99))) if each not in taken)

    def code(self, name: str, source: str, tag: str | None = None) -> None:
        source = source.replace("  # fmt: skip", "")  # this mark is for the formatter
        self._add(new_code_cell(source, id=self._id(name)), tag)

    def prose(self, name: str, texts: Sequence[str], tag: str | None = None) -> None:
        """Fill cells with texts, up to a number of words, without splitting a text."""
        filled: list[str] = []
        for text in texts:
            if filled and len(" ".join([*filled, text]).split()) > MOST_WORDS:
                self._add(new_markdown_cell(_joined(filled), id=self._id(name)), tag)
                filled = []
            filled.append(text)
        if filled:
            self._add(new_markdown_cell(_joined(filled), id=self._id(name)), tag)

    def mixed(self, name: str, blocks: Iterable[Block], before: Sequence[str] = (), tag: str | None = None) -> None:
        """Add prose, and a code cell for each python block."""
        texts = list(before)
        for block in blocks:
            if block.fence == "python":
                self.prose(name, texts, tag)
                self.code(name, block.text.rstrip("\n"), tag)
                texts = []
            else:
                texts += _texts([block])
        self.prose(name, texts, tag)

    def _add(self, cell: NotebookNode, tag: str | None) -> None:
        if tag:
            cell.metadata["tags"] = [tag]
        self.made.append(cell)


def _texts(blocks: Iterable[Block]) -> list[str]:
    """Return the texts of blocks, and each item of a list separately, so that two cells can share a long list."""
    texts: list[str] = []
    for block in blocks:
        if block.fence is not None:
            texts.append(f"```{block.fence}\n{block.text.rstrip()}\n```")
        elif block.token.type == "bullet_list_open":
            for line in block.text.splitlines():
                if line.startswith(("- ", "* ")):
                    texts.append(line)
                else:
                    texts[-1] += "\n" + line
        else:
            texts.append(block.text)
    return texts


def _joined(texts: list[str]) -> str:
    """Return the texts in one, with items of one list on adjacent lines and blank lines between all others."""
    source = texts[0]
    for before, text in pairwise(texts):
        source += ("\n" if before.startswith("- ") and text.startswith("- ") else "\n\n") + text
    return source


def _folder(slug: str) -> Path:
    from course_lib.grading.page.catalogue import CHAPTERS as root

    return root / slug / "exercises"


def _page(path: Path) -> Page:
    return read_page(path.read_text(encoding="utf-8"), str(path))


def _opening(page: Page, chapter: Chapter, exercises: Sequence[Exercise]) -> str:
    key = "explore" if "explore" in page.head else "hint"
    shown = f"{chapter.slug}.{page.head.get(key)}"
    if shown not in EXERCISES:
        raise page.error(2, f"{key}: {page.head.get(key)} is not an exercise of this chapter")
    drives, gives_back = "", ""
    if key == "explore":
        drives = f' `explore("{shown}", {EXERCISES[shown].answer_name})` lets your own function drive a live figure.'
        gives_back = f', and `mine("{shown}")` gives back, in any notebook, what has passed'
    points, minutes = sum(each.points for each in exercises), sum(each.minutes for each in exercises)
    return (
        f"# Exercises {chapter.number} · {chapter.title}\n\n"
        "1. Write your answer where a cell says so, and run the cell.\n"
        "2. Run the `check` below it: it says what is right, what is wrong, and, if it knows the mistake, its name. "
        "Check as often as you like.\n"
        f'3. Stuck? The button *Next hint* below a check, or `hint("{shown}")`, gives the next hint.{drives}\n'
        f"4. `progress()` shows your points{gives_back}.\n\n"
        f"The chapter: [{chapter.number} · {chapter.title}](../notebooks/{chapter.notebook}). "
        f"{NUMBERS[len(exercises)]} exercises, {points} points, about {minutes} minutes."
    )


def _grading(chapter: Chapter) -> str:
    return (
        "**Before you hand in**, save the notebook and grade it as your class will be graded: in a terminal "
        "(*File > New > Terminal*), in the folder that holds `exercises`, run\n\n"
        f"```\npython -m course_lib grade exercises/{chapter.notebook}\n```\n\n"
        "It runs the saved file from the top and checks your answers on other cases; `exercises` in place of the file "
        "grades all chapters. The command needs Linux and bubblewrap; without bubblewrap add `--sandbox none`. On "
        "macOS and Windows, *Kernel > Restart Kernel and Run All Cells* shows what a fresh run lacks."
    )


def _box(exercise: Exercise) -> str:
    points = plural(exercise.points, "point") if exercise.points else "No points"
    signs = "●" * exercise.difficulty + "○" * (5 - exercise.difficulty)
    return (
        f"## {exercise.id} · {exercise.title}\n\n"
        f"**{points} · {signs} · {plural(exercise.minutes, 'minute')}.** *{exercise.why}*"
    )


def _offered(option: Option) -> str:
    return f"- **{option.key}** {option.text}" if len(option.key) == 1 else f'- `"{option.key}"`: {option.text}'


def _answer(exercise: Exercise, page: Page) -> str:
    """Return the cell with the answer between its marks."""
    if exercise.kind == "choice":
        right = ", ".join(f'"{option.key}"' for option in exercise.options if option.right)
        return f"{BEGIN}\n{exercise.answer_name} = {{{right}}}\n{END}"
    if "Answer" in page.parts:
        text = answer_block(page).text.rstrip()
        return text if BEGIN in text else f"{BEGIN}\n{text}\n{END}"
    source = EXERCISES.source(exercise.id, ".py")
    assert source is not None  # a page without its own answer has a module
    if exercise.kind == "file":
        return f"{BEGIN}\n{_file(source, exercise)}\n{END}"
    lines = source.splitlines()
    definitions = (each for each in ast.parse(source).body if isinstance(each, (ast.FunctionDef, ast.ClassDef)))
    node = next(each for each in definitions if each.name == exercise.answer_name)
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
    last = _end(node)
    while last < len(lines) and lines[last].strip() == END:  # a comment at the end is not part of the node
        last += 1
    written = lines[first:last]
    if not any(line.strip() == BEGIN for line in written):
        if not isinstance(node, ast.FunctionDef) or ast.get_docstring(node) is None:
            beside = page.path.removesuffix(".md") + ".py"
            raise PageError(
                beside,
                node.lineno,
                f"`{node.name}` needs a docstring, or the marks {BEGIN} and {END}: learners see what is above them",
            )
        told = _end(node.body[0]) - first
        indent = " " * node.body[0].col_offset
        written = [*written[:told], indent + BEGIN, *written[told:], indent + END]
    return "\n".join(written)


def _file(source: str, exercise: Exercise) -> str:
    """Return the part of a module that is the answer, from its first definition to the last one that counts."""
    nodes = {each.name: each for each in ast.parse(source).body if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
    last = max(_end(nodes[name]) for name in (exercise.answer_name, *exercise.functions))
    first = min(node.lineno for node in nodes.values())
    return "\n".join(source.splitlines()[first - 1 : last])


def _end(node: ast.stmt) -> int:
    """Return the last line of a statement."""
    assert node.end_lineno is not None  # parsed nodes always have one
    return node.end_lineno
