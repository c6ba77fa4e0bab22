"""CSV as spreadsheets and learning platforms read and write it: cells that nothing calculates, sheets given back."""

import codecs
import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from course_lib.classroom.graded_submission import GradedSubmission, rounded
from course_lib.classroom.text import chapter_of, sanitized, save_text

# A spreadsheet calculates a cell that begins so, whatever spaces and quotes stand before. Where its separator is not
# ours (";" in much of Europe) it also cuts our cells there and at line ends: a part may begin a cell as well.
FORMULA = re.compile(r"^(?=[\t\n])|(^|[\n;\t])(?=[\s\"'\ufeff\u200b]*[=+\-@＝＋－＠])")


def spreadsheet_cell(text: str) -> str:
    """Return text in which a spreadsheet finds no formula: an apostrophe stands before what would begin one."""
    return FORMULA.sub(r"\1'", sanitized(text))


def csv_text(rows: Iterable[Sequence], delimiter: str = ",") -> str:
    written = io.StringIO(newline="")
    csv.writer(written, delimiter=delimiter).writerows(rows)
    return written.getvalue()


class Sheet:
    """A CSV file as another program exported it, to be given back as it was but for some cells.

    Values that are not ours stay as they are, also what looks like a formula: they come from that program.
    """

    def __init__(self, path: Path, what: str):
        try:
            data = path.read_bytes()
            is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # Blackboard's
            text = data.decode("utf-16" if is_wide else "utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path} cannot be read as {what} ({type(error).__name__}): export it again and do not save it again "
                "with a spreadsheet program, or save it as CSV UTF-8"
            ) from error
        self.path = path
        # With the mark, or without it, as it came: Moodle passes over it, Canvas wants what Canvas wrote.
        self._encoding = "utf-16" if is_wide else "utf-8-sig" if data.startswith(codecs.BOM_UTF8) else "utf-8"
        first = text.partition("\n")[0]
        self._delimiter = max(",;\t", key=first.count)  # Canvas writes ";" for some languages
        try:
            self.rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            raise ValueError(f"{path} is no CSV file ({error}): export {what} again") from error
        self.header = [name.strip() for name in self.rows[0]] if self.rows else []
        for row in self.rows[1:]:
            row += [""] * (len(self.header) - len(row))

    def column(self, *names: str) -> int | None:
        return next((self.header.index(name) for name in names if name in self.header), None)

    def values(self, row: Sequence[str], *names: str) -> list[str]:
        """Return the cells of a row in those of these columns that there are."""
        return [row[self.header.index(name)] for name in names if name in self.header]

    def save(self, path: Path) -> Path:
        return save_text(path, csv_text(self.rows, self._delimiter), self._encoding)


def points_of(marked: GradedSubmission, chapter: int | None = None) -> tuple[float, float]:
    """Return (earned, points) as they count, of all or of one chapter."""
    if chapter is None:
        return marked.final
    if marked.counted:
        return marked.counted.chapters.get(chapter, (0.0, 0.0))
    results = [each for each in marked.results if chapter_of(each.exercise_id) == chapter]
    return sum(each.earned for each in results), sum(each.points for each in results)


def scaled(marked: GradedSubmission, maximum: float, chapter: int | None = None, excused: str = "") -> str:
    """Return the share of the points, of `maximum`, to the hundredth: LMSs show no more.

    Where a policy leaves no points to be had, there is no share, and a zero would be a mark: then `excused`, as the LMS
    writes it, for who is excused, and nothing for everybody else.
    """
    earned, points = points_of(marked, chapter)
    if points:
        return rounded(earned * maximum / points)
    if marked.counted and (chapter in marked.counted.excused or (chapter is None and marked.counted.excused)):
        return excused
    had = any(each.points for each in marked.results if chapter is None or chapter_of(each.exercise_id) == chapter)
    return "" if had else "0"


def amount(text: str) -> float | None:
    """Read a number in a gradebook, "1,000.00" or "1.000,00" or "10"; None if it is none."""
    text = text.strip()
    if not re.fullmatch(r"\d[\d.,]*", text):
        return None
    [(whole, mark, rest)] = re.findall(r"^(.*?)([.,]?)(\d*)$", text)
    return float(re.sub(r"[.,]", "", whole) + ("." if mark else "") + rest)
