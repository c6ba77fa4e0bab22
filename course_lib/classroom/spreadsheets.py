"""Read and write CSV for spreadsheets and learning platforms: no cell becomes a formula, and sheets keep their form."""

import codecs
import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from course_lib.classroom.graded_submission import GradedSubmission, rounded
from course_lib.classroom.text import chapter_of, sanitized, save_text

# A spreadsheet evaluates a cell with this beginning, whatever spaces and quotes precede it. With another separator (";"
# in much of Europe), it also splits our cells there and at line ends, so a part may begin a cell as well.
FORMULA = re.compile(r"^(?=[\t\n])|(^|[\n;\t])(?=[\s\"'\ufeff\u200b]*[=+\-@＝＋－＠])")


def spreadsheet_cell(text: str) -> str:
    """Return text without formulas for a spreadsheet: an apostrophe is put before each possible beginning of one."""
    return FORMULA.sub(r"\1'", sanitized(text))


def csv_text(rows: Iterable[Sequence], delimiter: str = ",") -> str:
    written = io.StringIO(newline="")
    csv.writer(written, delimiter=delimiter).writerows(rows)
    return written.getvalue()


class Sheet:
    """A CSV file exported by another program, to be returned unchanged except for some cells.

    Other values stay as they are, even if they look like formulas, because they come from that program.
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
        # Keep the mark as it is: Moodle skips it, and Canvas expects its own form.
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
        """Return the cells of a row in those of these columns that exist."""
        return [row[self.header.index(name)] for name in names if name in self.header]

    def save(self, path: Path) -> Path:
        return save_text(path, csv_text(self.rows, self._delimiter), self._encoding)


def points_of(marked: GradedSubmission, chapter: int | None = None) -> tuple[float, float]:
    """Return the final (earned, points), of all chapters or of one."""
    if chapter is None:
        return marked.final
    if marked.counted:
        return marked.counted.chapters.get(chapter, (0.0, 0.0))
    results = [each for each in marked.results if chapter_of(each.exercise_id) == chapter]
    return sum(each.earned for each in results), sum(each.points for each in results)


def scaled(marked: GradedSubmission, maximum: float, chapter: int | None = None, excused: str = "") -> str:
    """Return the points scaled to `maximum`, rounded to the hundredth, because LMSs show no more digits.

    If the policy leaves no points, a zero would be a mark. Then an excused learner gets `excused`, the LMS's word for
    it, and other learners get an empty text.
    """
    earned, points = points_of(marked, chapter)
    if points:
        return rounded(earned * maximum / points)
    if marked.counted and (chapter in marked.counted.excused or (chapter is None and marked.counted.excused)):
        return excused
    had = any(each.points for each in marked.results if chapter is None or chapter_of(each.exercise_id) == chapter)
    return "" if had else "0"


def amount(text: str) -> float | None:
    """Read a number in a gradebook, "1,000.00" or "1.000,00" or "10"; None if it is not a number."""
    text = text.strip()
    if not re.fullmatch(r"\d[\d.,]*", text):
        return None
    [(whole, mark, rest)] = re.findall(r"^(.*?)([.,]?)(\d*)$", text)
    return float(re.sub(r"[.,]", "", whole) + ("." if mark else "") + rest)
