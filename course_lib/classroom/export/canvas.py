"""Write a gradebook for import into Canvas, either new or filled in."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.read.platforms import CANVAS_DOWNLOAD
from course_lib.classroom.read.roster import Roster, save_unmatched
from course_lib.classroom.spreadsheets import Sheet, amount, csv_text, points_of, scaled, spreadsheet_cell
from course_lib.classroom.text import COURSE, in_order, one_line, save_text
from course_lib.course.contents import CHAPTERS


def write_canvas(
    marked: Sequence[GradedSubmission],
    folder: Path,
    title: str = COURSE,
    assignment_id: str | int = "",
    gradebook: Path | None = None,
    chapters: Mapping[int, str] | None = None,
    named: Mapping[int, str] | None = None,
) -> list[Path]:
    """Write `canvas.csv`, for Grades › Import in Canvas, and `canvas_unmatched.csv` for submissions without a row.

    Args:
        title, assignment_id: the assignment's column is "title (assignment_id)", which may also be given as the title.
            Without an id, Canvas makes a new assignment with this title.
        gradebook: the gradebook as Canvas exported it. A submission matches a row by ID, SIS User ID, SIS Login ID or
            Student, or by the ID in the name of a downloaded file (lastfirst_12345_678_file). One column is filled,
            scaled to its Points Possible. Rows without a submission and all other columns stay. Without a gradebook,
            the column Student contains the submissions' names, and Canvas asks about unknown ones.
        chapters: titles by number. Then each chapter has its own column instead of one for all: "Attention", "Attention
            (123)", or either after "Chapter 2 · ".
        named: the names of some chapters' columns in the gradebook. These columns must exist.

    An excused learner gets EX. Source: Canvas's lib/gradebook_importer.rb, which matches columns by the number at the
    end, then by the full title, and rows by ID, then by SIS ids, then by name.

    Errors: ValueError if the file is not a gradebook; if its column is read-only, missing or shared by two chapters; or
        if two columns match.
    """
    wanted: list[tuple[str, str, int | None]] = [(*_title_and_id(title, str(assignment_id).strip()), None)]
    if chapters:
        titles = {**chapters, **{number: name for number, name in (named or {}).items() if number in chapters}}
        wanted = [(*_title_and_id(name), number) for number, name in titles.items()]
    if gradebook is None:
        names = [f"{name} ({id})" if id else name for name, id, _ in wanted]
        head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *names]
        empty = [""] * 4
        most = [_most(marked, chapter) for _, _, chapter in wanted]
        rows = []
        for each in in_order(marked):
            cells = [scaled(each, points, chapter, excused="EX") for points, (_, _, chapter) in zip(most, wanted)]
            rows.append([spreadsheet_cell(one_line(each.name)), *empty, *cells])
        # No byte order mark: Canvas would read it as part of "Student".
        return [save_text(folder / "canvas.csv", csv_text([head, ["    Points Possible", *empty, *most], *rows]))]

    sheet = Sheet(gradebook, "a Canvas gradebook")
    if "ID" not in sheet.header or "Section" not in sheet.header or not {"Student", "LastName"} & {*sheet.header}:
        raise ValueError(
            f"{gradebook} has the columns {', '.join(sheet.header) or '(none)'}, but a Canvas gradebook has Student, "
            "ID and Section: export it in Canvas with Grades › Export"
        )
    possible = next((row for row in sheet.rows[1:] if "Points Possible" in row[0]), None)
    columns = [_canvas_column(sheet, name, id, number, number in (named or {})) for name, id, number in wanted]
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        raise ValueError(f"two chapters have the column {sheet.header[twice]!r} of {gradebook}: [grading.canvas]")
    learners = {
        number: (sheet.values(row, "ID")[0], _canvas_names(sheet, row))
        for number, row in enumerate(sheet.rows)
        if number and row is not possible
    }
    found, left = Roster(learners, CANVAS_DOWNLOAD).assign(marked)
    for column, (_, _, chapter) in zip(columns, wanted):
        points = _points_possible(sheet, possible, column, _most(marked, chapter))
        for number, each in found.items():
            sheet.rows[number][column] = scaled(each, points, chapter, excused="EX")
    return [sheet.save(folder / "canvas.csv"), *save_unmatched(folder / "canvas_unmatched.csv", left)]


def columns_of(gradebook: Path) -> list[str]:
    """Return the columns of a gradebook that may belong to an assignment."""
    header = Sheet(gradebook, "a Canvas gradebook").header
    return header[header.index("Section") + 1 :]


def _most(marked: Sequence[GradedSubmission], chapter: int | None) -> float:
    """Return the maximum points, as an int if the number is whole."""
    most = max((points_of(each, chapter)[1] for each in marked), default=0)
    return int(most) if most == int(most) else most


def _points_possible(sheet: Sheet, possible: list[str] | None, column: int, points: float) -> float:
    """Return Canvas's maximum points of a column; fill them in if empty. Errors: ValueError if read-only."""
    if possible is None:
        return points
    if "read only" in possible[column]:
        raise ValueError(
            f"the column {sheet.header[column]!r} of {sheet.path} is read only in Canvas: name another assignment"
        )
    given = amount(possible[column])
    if given is None:
        possible[column] = str(points)
    return given or points  # without points, the scores stay unscaled


def _title_and_id(title: str, id: str = "") -> tuple[str, str]:
    """Split "Attention (123)" into the title and the assignment's number, or "" without a number."""
    title = one_line(title)
    if not id and (both := re.fullmatch(r"(.*) \((\d+)\)", title)):
        return both[1], both[2]
    return title, id


def _canvas_column(sheet: Sheet, title: str, assignment_id: str, chapter: int | None, must: bool) -> int:
    """Return the assignment's column. If it is missing, add one at the end, unless `must` is set."""
    name = f"{title} ({assignment_id})" if assignment_id else title
    heads = [(i, head) for i, head in enumerate(sheet.header) if i > sheet.header.index("Section")]
    columns = [i for i, head in heads if head == name or (assignment_id and head.endswith(f" ({assignment_id})"))]
    if not columns and not assignment_id:
        titles = {title, f"Chapter {chapter} · {title}"} if chapter is not None else {title}
        plain = [(i, re.sub(r" \(\d+\)$", "", head)) for i, head in heads]
        columns = [i for i, head in plain if head in titles]
        if not columns and chapter is not None:  # its short name, as in the commands: "Attention"
            short = CHAPTERS[chapter].slug.replace("_", " ")
            columns = [i for i, head in plain if head.casefold().replace("-", " ") == short]
    if must and not columns:
        raise ValueError(
            f"{sheet.path} has no column {name!r}, which [grading.canvas] names: write it as the file has it, "
            f"one of {', '.join(head for _, head in heads) or '(none)'}"
        )
    if len(columns) > 1:
        raise ValueError(f"{sheet.path} has {len(columns)} columns {name!r}: give the assignment's number as well")
    if columns:
        return columns[0]
    sheet.header.append(name)
    for i, row in enumerate(sheet.rows):
        row.append("" if i else name)
    return len(sheet.header) - 1


def _canvas_names(sheet: Sheet, row: Sequence[str]) -> list[str]:
    """Return all names of a learner: "Lovelace, Ada" is also "Ada Lovelace"."""
    names = sheet.values(row, "SIS User ID", "SIS Login ID", "Student")
    names.append(" ".join(sheet.values(row, "FirstName", "LastName")))
    names.append(", ".join(sheet.values(row, "LastName", "FirstName")))
    last, comma, first = sheet.values(row, "Student")[0].partition(",") if "Student" in sheet.header else ("", "", "")
    return [*names, f"{first} {last}"] if comma else names
