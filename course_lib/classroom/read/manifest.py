"""Make the manifest: who was found, in which files and roster rows, what is missing and what was not taken.

It is printed before grading starts, so that no learner is lost unnoticed, and saved with the results.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from course_lib.classroom.read.roster import Learner
from course_lib.classroom.read.submission_reader import chapters_of
from course_lib.classroom.read.submissions import HandedIn
from course_lib.classroom.spreadsheets import csv_text, spreadsheet_cell
from course_lib.classroom.text import one_line, save_text
from course_lib.grading.judge.show import plural

MOST_LINES = 40  # printed on a terminal; the file has all of them
State = Literal["found", "unknown", "missing", "not taken"]
WORDS: dict[State, str] = {"found": "found", "unknown": "UNKNOWN", "missing": "MISSING", "not taken": "NOT TAKEN"}


@dataclass(frozen=True)
class Line:
    """One learner, or one other item found in the class folder.

    Fields:
        state: one of the states above.
        name: as in the report.
        learner: the learner's id, if known.
        files: the notebooks and the files that they may use, as paths below the submission.
        chapters: the chapters that the files cover.
        absent: the expected chapters that the files do not cover.
        why: what is wrong, if anything.
    """

    state: State
    name: str
    learner: str = ""
    files: tuple[str, ...] = ()
    chapters: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    why: str = ""

    @property
    def is_doubtful(self) -> bool:
        """Return whether a person should check this line: work may be lost or listed under the wrong name."""
        return self.state in ("unknown", "not taken")

    def as_dict(self) -> dict:
        return {
            "state": self.state,
            "learner": self.learner,
            "name": self.name,
            "files": list(self.files),
            "chapters": list(self.chapters),
            "chapters_absent": list(self.absent),
            "why": self.why,
        }


def make_manifest(handed_in: HandedIn, expected: Iterable[int], learners: Sequence[Learner] = ()) -> list[Line]:
    """Return a line for every submission, then for every learner without one, then for every item not taken.

    Args:
        expected: the chapters that everyone is graded on.
        learners: the learners on the roster, if there is one.
    """
    expected, lines = sorted(set(expected)), []
    for each in handed_in.submissions:
        about = chapters_of(each)
        why = handed_in.unknown.get(each.name, "")
        state: State = "unknown" if why else "found"
        if not why and each.all_troubles:
            why = each.all_troubles[0]
        lines.append(
            Line(
                state,
                each.name,
                each.learner,
                _files(each),
                tuple(sorted(about)),
                tuple(chapter for chapter in expected if chapter not in about),
                why,
            )
        )
    found = {each.learner for each in handed_in.submissions}
    lines += [
        Line("missing", each.name, each.id, absent=tuple(expected), why="nothing was handed in under this name or id")
        for each in learners
        if each.id not in found
    ]
    return lines + [Line("not taken", each.name, why=each.why) for each in handed_in.left]


def _files(submission) -> tuple[str, ...]:
    """Return the files of a submission, each with the path of the item that contains it."""
    paths = (notebook.path for notebook in submission.notebooks)
    inside = list(dict.fromkeys([*paths, *submission.files, *submission.data]))  # my_gpt.py is both
    if submission.unchanged:
        inside.append(f"{plural(submission.unchanged, 'unchanged notebook')} of the course, left out")
    if len(submission.handed_in) != 1:  # several items of one learner, joined: keep their original names
        return submission.handed_in or tuple(inside)
    [outer] = submission.handed_in
    if outer.lower().endswith(".ipynb"):
        return (outer,)
    return tuple(f"{outer}/{path}" for path in inside) or (outer,)


def told(lines: Sequence[Line], has_roster: bool, width: int = 100) -> str:
    """Return the manifest for a terminal: all lines for a small class, only the doubtful ones for a large class."""
    counts = {state: sum(line.state == state for line in lines) for state in WORDS}
    parts = [plural(counts["found"] + counts["unknown"], "submission")]
    if has_roster:
        parts += [f"{counts['found']} in the roster", f"{counts['unknown']} unknown", f"{counts['missing']} missing"]
    parts += [f"{counts['not taken']} not taken"]
    shown = lines if len(lines) <= MOST_LINES else [line for line in lines if line.state != "found"][:MOST_LINES]
    names = min(max((len(one_line(line.name)) for line in shown), default=0), 30)
    rows = []
    for line in shown:
        name, about = one_line(line.name), _about(line)
        row = f"  {WORDS[line.state]:<9}  {name[:names]:<{names}}  {about}".rstrip()
        rows.append(row if len(row) <= max(width, 60) else row[: max(width, 60) - 1] + "…")
    if more := len(lines) - len(shown):
        rows.append(f"  … and {more:,} more, whole in manifest.csv where --out names a folder")
    return "\n".join([", ".join(parts), *rows])


def _about(line: Line) -> str:
    """Return the line's details, most important first, because a narrow terminal cuts them off."""
    parts = [f"({line.learner})"] if line.learner not in ("", line.name) else []
    if line.why:
        parts.append(one_line(line.why))
    if line.state in ("found", "unknown"):
        about = [chapters(line.chapters)] if line.chapters else []
        about += [f"nothing about {chapters(line.absent)}"] if line.absent else []
        parts += [", ".join(about), one_line(", ".join(line.files))]
    return " · ".join(filter(None, parts))


def chapters(numbers: Sequence[int]) -> str:
    return f"chapter{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def save_manifest(lines: Sequence[Line], folder: Path) -> Path:
    """Write `manifest.csv`, one row per line."""
    head = ["state", "learner", "name", "files", "chapters", "chapters absent", "why"]
    rows = []
    for line in lines:
        texts = [line.state, line.learner, one_line(line.name), one_line(" | ".join(line.files))]
        numbers = [" ".join(map(str, each)) for each in (line.chapters, line.absent)]
        rows.append([spreadsheet_cell(text) for text in (*texts, *numbers, one_line(line.why))])
    return save_text(folder / "manifest.csv", csv_text([head, *rows]), "utf-8-sig")
