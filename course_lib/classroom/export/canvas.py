"""Canvas: a gradebook to import, new or filled in."""

import re
from collections.abc import Sequence
from pathlib import Path

from course_lib.classroom.roster import Roster, save_unmatched
from course_lib.classroom.spreadsheets import Sheet, amount, csv_text, scaled, spreadsheet_cell
from course_lib.classroom.text import COURSE, in_order, one_line, save_text

from ..file_names import CANVAS_DOWNLOAD
from ..graded import GradedSubmission


def write_canvas(
    marked: Sequence[GradedSubmission],
    folder: Path,
    title: str = COURSE,
    assignment_id: str | int = "",
    gradebook: Path | None = None,
) -> list[Path]:
    """Write `canvas.csv`, for Grades › Import in Canvas; and `canvas_unmatched.csv` if a submission found no row.

    Args:
        title, assignment_id: of the assignment: its column is "title (assignment_id)", which may also be the title.
            Without an id, Canvas makes a new assignment of this title.
        gradebook: the gradebook as Canvas exported it. A submission belongs to the row whose ID, SIS User ID, SIS Login
            ID or Student its name is, or whose ID stands in the name that Canvas gives a downloaded file
            (lastfirst_12345_678_file). One column is filled, scaled to its Points Possible; rows without a submission
            and all other columns stay. Without a gradebook the submissions' names stand in the column Student, and
            Canvas asks whom it does not know.

    Errors: ValueError if the gradebook is none, or its column is read only, or two columns may be meant.
    """
    title, assignment_id = one_line(title), str(assignment_id).strip()
    if not assignment_id and (both := re.fullmatch(r"(.*) \((\d+)\)", title)):
        title, assignment_id = both.groups()
    name = f"{title} ({assignment_id})" if assignment_id else title
    points: float = max((each.points for each in marked), default=0)
    if gradebook is None:
        head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", name]
        empty = [""] * 4
        rows = [[spreadsheet_cell(one_line(each.name)), *empty, scaled(each, points)] for each in in_order(marked)]
        # No byte order mark: Canvas would read it as the beginning of "Student".
        return [save_text(folder / "canvas.csv", csv_text([head, ["    Points Possible", *empty, points], *rows]))]

    sheet = Sheet(gradebook, "a Canvas gradebook")
    if "ID" not in sheet.header or "Section" not in sheet.header or not {"Student", "LastName"} & {*sheet.header}:
        raise ValueError(
            f"{gradebook} has the columns {', '.join(sheet.header) or '(none)'}, but a Canvas gradebook has Student, "
            "ID and Section: export it in Canvas with Grades › Export"
        )
    column = _canvas_column(sheet, name, title, assignment_id)
    possible = next((row for row in sheet.rows[1:] if "Points Possible" in row[0]), None)
    if possible is not None:
        if "read only" in possible[column]:
            raise ValueError(f"the column {name!r} of {gradebook} is read only in Canvas: name another assignment")
        given = amount(possible[column])
        if given is None:
            possible[column] = str(points)
        points = given or points  # of no points: the scores stand as they are
    learners = {
        number: (sheet.values(row, "ID")[0], _canvas_names(sheet, row))
        for number, row in enumerate(sheet.rows)
        if number and row is not possible
    }
    found, left = Roster(learners, CANVAS_DOWNLOAD).assign(marked)
    for number, each in found.items():
        sheet.rows[number][column] = scaled(each, points)
    return [sheet.save(folder / "canvas.csv"), *save_unmatched(folder / "canvas_unmatched.csv", left)]


def _canvas_column(sheet: Sheet, name: str, title: str, assignment_id: str) -> int:
    """Return the column of the assignment; a new one at the end if there is none."""
    ending = f" ({assignment_id})"
    heads = [(i, head) for i, head in enumerate(sheet.header) if i > sheet.header.index("Section")]
    columns = [i for i, head in heads if head == name or (assignment_id and head.endswith(ending))]
    if not columns and not assignment_id:
        columns = [i for i, head in heads if re.sub(r" \(\d+\)$", "", head) == title]
    if len(columns) > 1:
        raise ValueError(f"{sheet.path} has {len(columns)} columns {name!r}: give the assignment's number as well")
    if columns:
        return columns[0]
    sheet.header.append(name)
    for i, row in enumerate(sheet.rows):
        row.append("" if i else name)
    return len(sheet.header) - 1


def _canvas_names(sheet: Sheet, row: Sequence[str]) -> list[str]:
    """Return all by which a learner's submission may be named: "Lovelace, Ada" is also "Ada Lovelace"."""
    names = sheet.values(row, "SIS User ID", "SIS Login ID", "Student")
    names.append(" ".join(sheet.values(row, "FirstName", "LastName")))
    names.append(", ".join(sheet.values(row, "LastName", "FirstName")))
    last, comma, first = sheet.values(row, "Student")[0].partition(",") if "Student" in sheet.header else ("", "", "")
    return [*names, f"{first} {last}"] if comma else names
