"""The teacher's notes: notebook cells that learners do not get. Only this module reads them.

A note is a folded Markdown cell with the tag `teacher`, below the heading of its section:

    <details><summary>For the teacher</summary>

    - minutes: 11
    - ask: Four times the features: how much larger is a score?
    - they guess: four times, because they add lengths; the products partly cancel.
    - they stumble: on dividing by d_k, not its root (attention.scaled_dot_product: scaled by D).
    - skip: the gradient plot, if the class has not met gradients.

    </details>

The keys have this order. `minutes` is required and, in a numbered section, `ask` too; the other lines are optional.
The brackets in `they stumble` contain mistakes of the exercises. If `skip` begins with "all", a short course can leave
out the entire section.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.course.contents import Chapter
from course_lib.course.handout import TEACHER

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
FRAME = re.compile(r"<details><summary>For the teacher</summary>\n\n(.+?)\n\n</details>", re.DOTALL)
KEYS = ("minutes", "ask", "they guess", "they stumble", "skip")
LINE = re.compile(rf"- ({'|'.join(KEYS)}): (\S.*)")
MISTAKE = re.compile(r"([a-z_]+\.[a-z0-9_]+): ([^;()]+)")
MISTAKES = re.compile(rf"\(({MISTAKE.pattern}(?:; {MISTAKE.pattern})*)\)")


@dataclass(frozen=True)
class Note:
    """Hold the note on a section.

    Fields: section, the heading; minutes; ask, a question for the class; guess, the likely answers; stumble, the common
    mistakes; skip, the parts that can be skipped; mistakes, pairs of an exercise's id and a mistake's name on its page.
    """

    section: str
    minutes: int
    ask: str = ""
    guess: str = ""
    stumble: str = ""
    skip: str = ""
    mistakes: tuple[tuple[str, str], ...] = ()

    @property
    def number(self) -> str:
        """Return the number of the section, such as "2.4" for "2.4 Why √d_k?"; its heading if it has no number."""
        first = self.section.partition(" ")[0]
        return first if re.fullmatch(r"\d+\.\d+", first) else self.section

    @property
    def may_go(self) -> bool:
        """Return whether a short course can leave out the section."""
        return self.skip.startswith("all")

    def lines(self) -> list[str]:
        """Return the note as lines, one for each key that is used."""
        told = ((KEYS[1], self.ask), (KEYS[2], self.guess), (KEYS[3], self.stumble), (KEYS[4], self.skip))
        return [f"{self.minutes} minutes", *(f"{key}: {text}" for key, text in told if text)]


def is_note(cell: NotebookNode) -> bool:
    """Return whether a cell has the tag `teacher`."""
    return TEACHER in cell.metadata.get("tags", [])


def notes_of(chapter: Chapter, notebooks: Path) -> list[Note]:
    """Return a chapter's notes, in notebook order. Errors: as for `read_notes`; ValueError without the notebook."""
    path = notebooks / chapter.notebook
    if not path.is_file():
        raise ValueError(f"{path} is missing: run this at the top of the course's repository")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]  # nbformat validates outputs: slow
    shown = [cell | {"source": "".join(cell["source"]), "outputs": []} for cell in cells]
    return read_notes(nbformat.from_dict({"cells": shown}), path.name)


def read_notes(notebook: NotebookNode, name: str) -> list[Note]:
    """Return the notes of a notebook. Errors: ValueError, with notebook and section, for a note in a wrong format."""
    notes: list[Note] = []
    heading = ""
    for cell in notebook.cells:
        if is_note(cell):
            if cell.cell_type != "markdown" or not heading or any(note.section == heading for note in notes):
                raise ValueError(
                    f"{name}: a section must have one note, a Markdown cell below its heading; see “{heading}”"
                )
            notes.append(_note(cell.source, heading, f"{name}, “{heading}”"))
        elif cell.cell_type == "markdown" and (found := HEADING.findall(cell.source)):
            heading = found[-1]
    return notes


def _note(text: str, heading: str, where: str) -> Note:
    frame = FRAME.fullmatch(text.strip())
    lines = [LINE.fullmatch(line) for line in frame[1].split("\n")] if frame else [None]
    if not all(lines):
        raise ValueError(
            f"{where}: a note must be a folded list of lines “- key: text” with the keys {', '.join(KEYS)}"
        )
    said = {line[1]: line[2].strip() for line in lines if line}
    if list(said) != [key for key in KEYS if key in said] or len(said) < len(lines) or not said.get(KEYS[0]):
        raise ValueError(f"{where}: each key may occur once, in the order {', '.join(KEYS)}, and minutes are needed")
    if not re.fullmatch(r"[1-9]\d*", said[KEYS[0]]):
        raise ValueError(f"{where}: minutes must be a whole number, got {said[KEYS[0]]!r}")
    if re.match(r"\d+\.\d+ ", heading) and KEYS[1] not in said:
        raise ValueError(f"{where}: a numbered section needs a question: add a line “- ask: …”")
    stumble = said.get(KEYS[3], "")
    linked = MISTAKES.search(stumble)
    mistakes = tuple(MISTAKE.findall(linked[1])) if linked else ()
    return Note(
        heading,
        int(said[KEYS[0]]),
        said.get(KEYS[1], ""),
        said.get(KEYS[2], ""),
        stumble,
        said.get(KEYS[4], ""),
        mistakes,
    )
