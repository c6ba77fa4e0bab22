"""Fill in Moodle's grading worksheet."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.read.platforms import MOODLE_DOWNLOAD
from course_lib.classroom.read.roster import Roster, save_unmatched
from course_lib.classroom.spreadsheets import Sheet, amount, csv_text, points_of, scaled
from course_lib.classroom.text import chapter_of, one_line, sanitized, save_text, told_points
from course_lib.grading.judge.show import plural
from course_lib.grading.result import SIGNS

MOODLE_COLUMNS = ("Identifier", "Grade", "Last modified (grade)", "Feedback comments")
LONGEST_FEEDBACK = 24_000  # characters; a spreadsheet cell takes 32,767
IDENTIFIES = ("Email address", "ID number", "Username")
MOST_TROUBLES, MOST_OF_A_TROUBLE = 10, 300  # the report shows the rest


def write_moodle(
    marked: Sequence[GradedSubmission],
    folder: Path,
    worksheet: Path,
    chapters: Mapping[int, str] | None = None,
    chapter: int | None = None,
) -> list[Path]:
    """Write `moodle.csv`, the completed grading worksheet, and `moodle_unmatched.csv` for submissions without a row.

    A worksheet has one grade, for all chapters or for one `chapter`; the files' names then contain its number
    (`moodle_2.csv`). With `chapters`, titles by number, `moodle_chapters.csv` has a column for each. Import it in the
    gradebook (Grades > Import > CSV file) and map each column to a grade item whose maximum is the chapter's points.
    Sources: Moodle's mod/assign/feedback/offline/importgradeslib.php and locallib.php.

    A submission matches a row by Identifier ("Participant 12345"), Full name, Email address, ID number or Username, or
    by the number in a downloaded folder's name ("Full Name_12345_assignsubmission_file"). Grade, scaled to Maximum
    Grade if that column exists, and Feedback comments are filled in. Everything else stays, including Last modified
    (grade), from which Moodle recognizes grades that were changed since and keeps them. (If it skips rows that were not
    changed, tick "Allow updating records that have been modified more recently in Moodle than in the spreadsheet".)

    Errors: ValueError if the worksheet lacks one of its columns, or its grades are not numbers.
    """
    sheet = Sheet(worksheet, "a Moodle grading worksheet")
    if missing := [name for name in MOODLE_COLUMNS if name not in sheet.header]:
        raise ValueError(
            f"{worksheet} lacks the column {', '.join(map(repr, missing))}. Download the grading worksheet of the "
            "assignment while Moodle speaks English, with the feedback types Feedback comments and Offline grading "
            "worksheet switched on"
        )
    grade, feedback = sheet.header.index("Grade"), sheet.header.index("Feedback comments")
    others = ("Identifier", "Full name", "Email address", "ID number", "Username")
    learners = {
        number: (re.sub(r"\D", "", sheet.values(row, "Identifier")[0]), sheet.values(row, *others))
        for number, row in enumerate(sheet.rows)
        if number
    }
    found, left = Roster(learners, MOODLE_DOWNLOAD).assign(marked)
    maxima = {number: _maximum(sheet, row) for number, row in enumerate(sheet.rows) if number and any(row)}
    for number, each in found.items():
        row, maximum = sheet.rows[number], maxima[number]
        if maximum is None:
            maximum = points_of(each, chapter)[1]
        row[grade], row[feedback] = scaled(each, maximum, chapter), _moodle_feedback(each, chapter)
    name = "moodle" if chapter is None else f"moodle_{chapter}"
    paths = [sheet.save(folder / f"{name}.csv")]
    if chapters:
        paths.append(_chapters_table(sheet, found, left, chapters, folder / "moodle_chapters.csv"))
    return [paths[0], *save_unmatched(folder / f"{name}_unmatched.csv", left), *paths[1:]]


def _maximum(sheet: Sheet, row: Sequence[str]) -> float | None:
    """Return a row's Maximum Grade; None without such a column. Errors: ValueError if it is not a number."""
    for text in sheet.values(row, "Maximum Grade"):
        given = amount(text)
        if given is None:
            raise ValueError(
                f"Maximum Grade is {text!r} in {sheet.path}: give the assignment a number of points in Moodle, "
                "not a scale, and download the worksheet again"
            )
        return given
    return None


def _chapters_table(
    sheet: Sheet,
    found: Mapping[int, GradedSubmission],
    left: list[tuple[GradedSubmission, str]],
    chapters: Mapping[int, str],
    path: Path,
) -> Path:
    """Write a column for each chapter, and add learners who cannot be identified there to `left`.

    Moodle finds a person by one of `IDENTIFIES`. If that cell is empty, it uses the person of the row above, so only
    columns without empty cells are written. An empty grade means no grade, not a zero.
    Source: Moodle's grade/import/csv/classes/load_data.php, `map_user_data_with_value` and `update_grade_item`.
    """
    filled = {
        name: {number for number in found if sheet.values(sheet.rows[number], name)[0].strip()}
        for name in IDENTIFIES
        if name in sheet.header
    }
    named = max(filled.values(), key=len, default=set())
    who = [name for name, rows in filled.items() if rows == named and rows]
    nobody = (
        f"Moodle's gradebook needs one of {', '.join(IDENTIFIES)}, and the same for all: not in moodle_chapters.csv"
    )
    left += [(found[number], nobody) for number in sorted(set(found) - named)]
    names = [name for name in ("Full name",) if name in sheet.header]
    rows = [[*names, *who, *map(one_line, chapters.values())]]
    points = {chapter: max((points_of(each, chapter)[1] for each in found.values()), default=0) for chapter in chapters}
    for number in sorted(named):
        grades = [scaled(found[number], points[chapter], chapter, excused="-") for chapter in chapters]
        rows.append([*sheet.values(sheet.rows[number], *names, *who), *grades])
    return save_text(path, csv_text(rows), "utf-8")


def _moodle_feedback(marked: GradedSubmission, chapter: int | None = None) -> str:
    """Return the unsolved exercises of all chapters or of one, as HTML, the format of Moodle's comments."""
    results = [each for each in marked.results if chapter is None or chapter_of(each.exercise_id) == chapter]
    troubles = [trouble[:MOST_OF_A_TROUBLE] for trouble in marked.troubles[:MOST_TROUBLES]]
    if more := len(marked.troubles) - len(troubles):
        troubles.append(f"… and {plural(more, 'trouble')} more.")
    lines = [*told_points(marked, chapter), *troubles]
    blocks = [_html("\n".join(lines))]
    failed = [result for result in results if result.status == "failed"]
    for i, result in enumerate(failed):
        head = f"{' '.join(SIGNS['failed'][:2])}: {result.title} ({result.exercise_id})"
        block = _html("\n".join([head, *result.sentences, *filter(None, [result.case])]))
        if shown := "\n".join(part for part in (result.evidence, result.sketch) if part):
            block += f"<pre>{_html(shown)}</pre>"  # numbers aligned below each other
        if sum(map(len, blocks)) + len(block) > LONGEST_FEEDBACK:
            blocks.append(_html(f"… and {plural(len(failed) - i, 'exercise')} more that did not pass."))
            break
        blocks.append(block)
    if opened := [result.exercise_id for result in results if result.status == "unanswered"]:
        blocks.append(_html(f"Not answered yet: {', '.join(opened)}"))
    return "<br><br>".join(blocks)


def _html(text: str) -> str:
    """Escape text, on one line.

    A backslash is also escaped, because PHP's CSV reader would let it escape the closing quote of the cell. So is the
    beginning of a formula, where a spreadsheet would split the cell at the ";" of an escape.
    """
    text = escape(sanitized(text)).replace("\\", "&#92;").replace("\t", " ").replace("\n", "<br>")
    return re.sub(r"(?<=;)(\s*)([=+\-@＝＋－＠])", lambda found: f"{found[1]}&#{ord(found[2])};", text)
