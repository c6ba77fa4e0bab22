"""Results for other programs: JSON, CSV, JUnit, Gradescope, Classroom 50, Canvas, Moodle; a table for the terminal.

Every `write_...` takes the submissions' results and a folder, writes each file whole or not at all, and returns its
files. Equal results give equal bytes: no times, a fixed order. Names and feedback may hold anything that a learner
wrote; what the program that reads the file could take for a command, a formula, a tag or a path is made harmless.
"""

import csv
import io
import json
import os
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from course_lib.files import write_whole
from course_lib.grading.catalogue import EXERCISES
from course_lib.grading.result import SIGNS, Result
from course_lib.grading.show import plural

from . import statistics
from .file_names import CANVAS_DOWNLOAD, MOODLE_DOWNLOAD, downloads, file_name
from .folders import LeftOut
from .graded import GradedSubmission

COURSE = "Transformers, Measured"

# --- text -------------------------------------------------------------------------------------------------------------

ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, moves
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # titles, links
    r"|\x1b.?"
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # the last two turn the reading order
NO_CHARACTER = re.compile(r"[\ud800-\udfff\ufffe\uffff]")  # neither UTF-8 nor XML 1.0 has them


def plain(text: str) -> str:
    """Text that every program takes for text: lines and tabs stay, other control characters and colours go."""
    text = ESCAPE_SEQUENCE.sub("", text)
    text = re.sub(r"\r\n?|[\u2028\u2029]", "\n", text)
    return NO_CHARACTER.sub("\ufffd", CONTROL.sub("", text))


def one_line(text: str) -> str:
    return " ".join(plain(text).split())


# A spreadsheet calculates a cell that begins so, whatever spaces and quotes stand before. Where its separator is not
# ours (";" in much of Europe) it also cuts our cells there and at line ends: a part may begin a cell as well.
FORMULA = re.compile(r"^(?=[\t\n])|(^|[\n;\t])(?=[\s\"'\ufeff\u200b]*[=+\-@＝＋－＠])")


def cell(text: str) -> str:
    """Text for a spreadsheet, in which nothing is a formula: an apostrophe before what would begin one."""
    return FORMULA.sub(r"\1'", plain(text))


def _table(rows: Iterable[Sequence], delimiter: str = ",") -> str:
    written = io.StringIO(newline="")
    csv.writer(written, delimiter=delimiter).writerows(rows)
    return written.getvalue()


def _save(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda part: part.write_bytes(text.encode(encoding)))
    return path


def _save_json(path: Path, content: object) -> Path:
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return _save(path, NO_CHARACTER.sub("\ufffd", text) + "\n")


def _in_order(marked: Sequence[GradedSubmission]) -> list[GradedSubmission]:
    return sorted(marked, key=lambda each: (each.name, each.digest))


def _chapter(exercise_id: str) -> int | None:
    exercise = EXERCISES.get(exercise_id)
    return exercise.chapter if exercise else None


def _feedback(result: Result) -> str:
    """Without the closing line, which points to `hint` in the learner's own notebook."""
    return replace(result, closing="").feedback


def _score(earned: int, points: int) -> str:
    return f"{earned} of {plural(points, 'point')}"


# --- JSON and CSV -----------------------------------------------------------------------------------------------------


def write_json(marked: Sequence[GradedSubmission], folder: Path, left: Sequence[LeftOut] = ()) -> list[Path]:
    """`results.json`, everything in one object:

    schema         "transformers-measured/results/1"
    submissions    by name: name, digest, earned, points, troubles [text], and results, in the course's order:
                   exercise, chapter (null if the course no longer has it), title, status (passed, failed,
                   unanswered, written), earned, points, misconception (text or null), feedback
    not_taken      what was handed in and has no results: name, why (the end of a sentence that begins with the name)
    summary        of all: submissions, mean and median share of points (null without submissions), hardest
                   [exercise, title, share, tried], misconceptions [exercise, name, count]
    """
    mean, median = statistics.average(marked) if marked else (None, None)
    content = {
        "schema": "transformers-measured/results/1",
        "submissions": [
            {
                "name": each.name,
                "digest": each.digest,
                "earned": each.earned,
                "points": each.points,
                "troubles": list(each.troubles),
                "results": [_as_object(result) for result in each.results],
            }
            for each in _in_order(marked)
        ],
        "not_taken": [{"name": each.name, "why": each.why} for each in left],
        "summary": {
            "submissions": len(marked),
            "mean": mean,
            "median": median,
            "hardest": statistics.hardest(marked),
            "misconceptions": statistics.misconceptions(marked),
        },
    }
    return [_save_json(folder / "results.json", content)]


def _as_object(result: Result) -> dict:
    return {
        "exercise": result.exercise_id,
        "chapter": _chapter(result.exercise_id),
        "title": result.title,
        "status": result.status,
        "earned": result.earned,
        "points": result.points,
        "misconception": result.misconception,
        "feedback": _feedback(result),
    }


def write_csv(marked: Sequence[GradedSubmission], folder: Path, left: Sequence[LeftOut] = ()) -> list[Path]:
    """`results.csv`, a row for every exercise of every submission. What was not taken has one row: the status says so,
    the feedback says why, and all else is empty."""
    rows = [["learner", "exercise", "chapter", "title", "status", "earned", "points", "misconception", "feedback"]]
    for each in _in_order(marked):
        learner = cell(one_line(each.name))
        for result in each.results:
            row = _as_object(result)
            rows.append([learner] + [cell(value) if isinstance(value, str) else value for value in row.values()])
    rows += [[cell(one_line(each.name)), "", "", "", "not taken", "", "", "", cell(each.why)] for each in left]
    # The byte order mark tells Excel that this is UTF-8: without it, it shows "Zoë" as "ZoÃ«".
    return [_save(folder / "results.csv", _table(rows), "utf-8-sig")]


# --- JUnit ------------------------------------------------------------------------------------------------------------


def write_junit(marked: Sequence[GradedSubmission], folder: Path) -> list[Path]:
    """`junit.xml` as pytest writes it (xunit2): a test suite per learner, a test case per exercise.

    The suite's properties hold the points: "earned" and "points", and "EXERCISE.earned" and "EXERCISE.points" for each
    (the schema has no properties in a test case). What earned no points is a failure, also what was not answered; an
    exercise without points that was not answered is skipped.
    """
    root = ElementTree.Element("testsuites", name=COURSE)
    for each in _in_order(marked):
        suite = ElementTree.SubElement(root, "testsuite", name=one_line(each.name) or "(no name)", errors="0")
        properties = ElementTree.SubElement(suite, "properties")
        amounts = {"earned": each.earned, "points": each.points}
        outcomes = {"failure": 0, "skipped": 0}
        for result in each.results:
            id = plain(result.exercise_id)
            amounts |= {f"{id}.earned": result.earned, f"{id}.points": result.points}
            chapter, _, name = id.rpartition(".")
            case = ElementTree.SubElement(suite, "testcase", classname=chapter, name=name)
            if not result.passed:
                outcome = "failure" if result.points else "skipped"
                outcomes[outcome] += 1
                message = one_line(result.misconception or SIGNS[result.status][1])
                ElementTree.SubElement(case, outcome, message=message, type=result.status).text = plain(
                    _feedback(result)
                )
        for name, value in amounts.items():
            ElementTree.SubElement(properties, "property", name=name, value=str(value))
        if each.troubles:
            ElementTree.SubElement(suite, "system-err").text = plain("\n".join(each.troubles))
        suite.attrib |= {"tests": str(len(each.results)), "failures": str(outcomes["failure"])}
        suite.set("skipped", str(outcomes["skipped"]))
    ElementTree.indent(root, " ")
    text = ElementTree.tostring(root, encoding="unicode")
    return [_save(folder / "junit.xml", f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')]


# --- Gradescope -------------------------------------------------------------------------------------------------------


def gradescope_result(marked: GradedSubmission, seconds: float | None = None) -> dict:
    """What Gradescope reads from `results.json`. seconds: how long grading took, if it should be shown.

    All is plain text, which Gradescope shows as it stands.
    """
    result = {
        "score": marked.earned,
        "output": "\n".join([f"{_score(marked.earned, marked.points)}.", *map(plain, marked.troubles)]),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "extra_data": {"digest": marked.digest},
        "tests": [
            {
                "score": each.earned,
                "max_score": each.points,
                "status": "passed" if each.passed else "failed",
                "name": one_line(each.title),
                "name_format": "text",
                "number": plain(each.exercise_id),
                "output": plain(_feedback(each)),
                "output_format": "text",
                "tags": [plain(each.exercise_id).partition(".")[0]],
                "visibility": "visible",
                "extra_data": {"answer": each.status},
            }
            for each in marked.results
        ],
    }
    return result if seconds is None else {**result, "execution_time": round(seconds, 1)}


def gradescope_failure(reason: str) -> dict:
    """What Gradescope reads when a submission could not be graded, by no fault of the learner.

    It has no score and no tests. Gradescope then says that the autograder failed and leaves the submission ungraded: a
    fault of ours is not a zero.
    """
    return {
        "output": f"This submission could not be graded, and that is not its fault: {plain(reason)}",
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "extra_data": {},
        "tests": [],
    }


def write_gradescope(marked: Sequence[GradedSubmission], folder: Path) -> list[Path]:
    """`gradescope/NAME/results.json` for each submission."""
    return _one_each(marked, folder / "gradescope", "results.json", gradescope_result)


def _one_each(
    marked: Sequence[GradedSubmission], folder: Path, name: str, content: Callable[[GradedSubmission], dict]
) -> list[Path]:
    taken: set[str] = set()
    return [_save_json(folder / file_name(each.name, taken) / name, content(each)) for each in _in_order(marked)]


# --- Classroom 50 -----------------------------------------------------------------------------------------------------

VARIABLES = {  # field of result.json -> environment variable, as Classroom 50's runner sets it
    "classroom": "CLASSROOM",
    "assignment": "ASSIGNMENT",
    "submission": "SUBMISSION_TAG",
    "commit": "COMMIT_URL",
    "release": "RELEASE_URL",
}


def classroom50_fields(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What Classroom 50 says of a submission in environment variables. Without REVIEW_URL, COMMIT_URL stands for it.

    `datetime` is the moment of submission, which the tag tells ("submit/2026-06-01T14-32-05Z-a1b2c3d"): it is the same
    however often the submission is graded.

    Errors: ValueError that names the variables that are missing, or a tag without a time. An empty field would only be
    turned down later, when Classroom 50 collects the scores, and the learner would seem not to have submitted.
    """
    if missing := sorted(name for name in VARIABLES.values() if not environ.get(name)):
        raise ValueError(
            f"{', '.join(missing)} must be set for Classroom 50's result.json: its runner sets them. "
            "Elsewhere, ask for another format."
        )
    fields = {field: environ[name] for field, name in VARIABLES.items()}
    when = re.match(r"submit/(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)Z", fields["submission"])
    if not when:
        raise ValueError(
            f"SUBMISSION_TAG={fields['submission']!r} must begin as submit/2026-06-01T14-32-05Z does: "
            "let Classroom 50's workflow make the tag"
        )
    day, *clock = when.groups()
    review = environ.get("REVIEW_URL") or fields["commit"]
    return {**fields, "review": review, "datetime": f"{day}T{':'.join(clock)}Z"}


def classroom50_result(marked: GradedSubmission, fields: Mapping[str, str]) -> dict:
    """What Classroom 50 reads from `result.json`. fields: those of `classroom50_fields`."""
    return {
        "schema": "classroom50/result/v1",
        **fields,
        "score": marked.earned,
        "max-score": marked.points,
        "tests": [
            {
                "test-name": f"{plain(each.exercise_id)} · {one_line(each.title)}",
                "passed": each.passed,
                "score": each.earned,
                "max-score": each.points,
            }
            for each in marked.results
        ],
    }


def write_classroom50(
    marked: Sequence[GradedSubmission], folder: Path, environ: Mapping[str, str] = os.environ
) -> list[Path]:
    """`classroom50/NAME/result.json` for each submission. Errors: as `classroom50_fields`."""
    fields = classroom50_fields(environ)
    return _one_each(marked, folder / "classroom50", "result.json", lambda each: classroom50_result(each, fields))


# --- whose row it is --------------------------------------------------------------------------------------------------


def _key(text: str) -> str:
    """Equal for what people take for the same name: "Ada_Lovelace", "ada lovelace"."""
    return " ".join(unicodedata.normalize("NFKC", plain(text)).replace("_", " ").casefold().split())


def _letters(text: str) -> str:
    """The same without spaces and signs, of which Canvas leaves none in the name of a download."""
    return "".join(filter(str.isalnum, _key(text)))


class _Roster:
    """Rows of a gradebook, found by the name of a submission.

    Args:
        rows: for each row its number there (the LMS's own, which stands in the names of downloaded submissions), and
            everything else by which a submission may be named: logins, addresses, the person's name.
        number: how that number stands in the name of a download (`names.downloads`).
    """

    def __init__(self, rows: Mapping[int, tuple[str, Sequence[str]]], number: re.Pattern):
        self._number = number
        self._numbers, self._names = defaultdict(set), defaultdict(set)
        self._letters = {row: {_letters(name) for name in names} - {""} for row, (_, names) in rows.items()}
        for row, (id, names) in rows.items():
            if id.strip():
                self._numbers[id.strip()].add(row)
            for name in (id, *names):
                if key := _key(name):
                    self._names[key].add(row)

    def _rows(self, name: str) -> set[int]:
        stem = re.sub(r"\.(?:ipynb|zip)$", "", name, flags=re.IGNORECASE)
        named = self._names.get(_key(name), set()) | self._names.get(_key(stem), set())
        meant = downloads(name, self._number)
        numbered = [(row, each.learner) for each in meant for row in self._numbers.get(each.number, ())]
        rows = named | {row for row, _ in numbered}
        if len(rows) > 1 or len(meant) > 1:  # a profile, or a file, may be called as somebody else's download is
            agreed = {row for row, learner in numbered if _letters(learner) in self._letters[row]}
            rows = agreed or (rows if len(rows) > 1 else named)
        return rows

    def share_out(
        self, marked: Sequence[GradedSubmission]
    ) -> tuple[dict[int, GradedSubmission], list[tuple[GradedSubmission, str]]]:
        """The submission of each row, and the submissions without one, with the reason. Nothing is guessed."""
        claims, left = defaultdict(list), []
        for each in _in_order(marked):
            rows = self._rows(each.name)
            if len(rows) == 1:
                claims[next(iter(rows))].append(each)
            else:
                left.append((each, "it fits several rows" if rows else "no row has this name or number"))
        for claimants in claims.values():
            if len(claimants) > 1:
                left += [(each, "another submission fits the same row") for each in claimants]
        return {row: claimants[0] for row, claimants in claims.items() if len(claimants) == 1}, left


def _save_left(path: Path, left: Sequence[tuple[GradedSubmission, str]]) -> list[Path]:
    """A table of the submissions that found no row, if there are any; one of an earlier run is removed."""
    if not left:
        path.unlink(missing_ok=True)
        return []
    rows = [["submission", "earned", "points", "not entered because"]]
    rows += [[cell(one_line(each.name)), each.earned, each.points, why] for each, why in left]
    return [_save(path, _table(rows), "utf-8-sig")]


class _Sheet:
    """A CSV file as another program exported it, to be given back as it was but for some cells.

    Values that are not ours stay as they are, also what looks like a formula: they come from that program.
    """

    def __init__(self, path: Path, what: str):
        try:
            data = path.read_bytes()
            text = data.decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path} cannot be read as {what} ({type(error).__name__}): export it again and do not save it anew "
                "with a spreadsheet program, or save it as CSV UTF-8"
            ) from error
        self.path = path
        # With the mark, or without it, as it came: Moodle passes over it, Canvas wants what Canvas wrote.
        self._encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8"
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
        """The cells of a row in those of these columns that there are."""
        return [row[self.header.index(name)] for name in names if name in self.header]

    def save(self, path: Path) -> Path:
        return _save(path, _table(self.rows, self._delimiter), self._encoding)


def _scaled(marked: GradedSubmission, maximum: float) -> str:
    """The share of the points, of `maximum`, to the hundredth: LMSs show no more."""
    return f"{marked.earned * maximum / marked.points if marked.points else 0:.2f}".rstrip("0").rstrip(".")


def _amount(text: str) -> float | None:
    """A number in a gradebook, "1,000.00" or "1.000,00" or "10"; None if it is none."""
    text = text.strip()
    if not re.fullmatch(r"\d[\d.,]*", text):
        return None
    whole, mark, rest = re.fullmatch(r"(.*?)([.,]?)(\d*)", text).groups()
    return float(re.sub(r"[.,]", "", whole) + ("." if mark else "") + rest)


# --- Canvas -----------------------------------------------------------------------------------------------------------


def write_canvas(
    marked: Sequence[GradedSubmission],
    folder: Path,
    title: str = COURSE,
    assignment_id: str | int = "",
    gradebook: Path | None = None,
) -> list[Path]:
    """`canvas.csv`, for Grades › Import in Canvas; and `canvas_unmatched.csv` if a submission found no row.

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
    points = max((each.points for each in marked), default=0)
    if gradebook is None:
        head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", name]
        empty = [""] * 4
        rows = [[cell(one_line(each.name)), *empty, _scaled(each, points)] for each in _in_order(marked)]
        # No byte order mark: Canvas would read it as the beginning of "Student".
        return [_save(folder / "canvas.csv", _table([head, ["    Points Possible", *empty, points], *rows]))]

    sheet = _Sheet(gradebook, "a Canvas gradebook")
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
        given = _amount(possible[column])
        if given is None:
            possible[column] = str(points)
        points = given or points  # of no points: the scores stand as they are
    learners = {
        number: (sheet.values(row, "ID")[0], _canvas_names(sheet, row))
        for number, row in enumerate(sheet.rows)
        if number and row is not possible
    }
    found, left = _Roster(learners, CANVAS_DOWNLOAD).share_out(marked)
    for number, each in found.items():
        sheet.rows[number][column] = _scaled(each, points)
    return [sheet.save(folder / "canvas.csv"), *_save_left(folder / "canvas_unmatched.csv", left)]


def _canvas_column(sheet: _Sheet, name: str, title: str, assignment_id: str) -> int:
    """The column of the assignment; a new one at the end if there is none."""
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


def _canvas_names(sheet: _Sheet, row: Sequence[str]) -> list[str]:
    """Everything by which a learner's submission may be named: "Lovelace, Ada" is also "Ada Lovelace"."""
    names = sheet.values(row, "SIS User ID", "SIS Login ID", "Student")
    names.append(" ".join(sheet.values(row, "FirstName", "LastName")))
    names.append(", ".join(sheet.values(row, "LastName", "FirstName")))
    last, comma, first = sheet.values(row, "Student")[0].partition(",") if "Student" in sheet.header else ("", "", "")
    return [*names, f"{first} {last}"] if comma else names


# --- Moodle -----------------------------------------------------------------------------------------------------------

MOODLE_COLUMNS = ("Identifier", "Grade", "Last modified (grade)", "Feedback comments")
LONGEST_FEEDBACK = 24_000  # characters; a spreadsheet takes 32,767 in a cell
MOST_TROUBLES, MOST_OF_A_TROUBLE = 10, 300  # the rest stands in the report


def write_moodle(marked: Sequence[GradedSubmission], folder: Path, worksheet: Path) -> list[Path]:
    """`moodle.csv`, the grading worksheet filled in; and `moodle_unmatched.csv` if a submission found no row.

    A submission belongs to the row whose Identifier ("Participant 12345"), Full name, Email address, ID number or
    Username its name is, or whose number stands in the name that Moodle gives a downloaded folder ("Full
    Name_12345_assignsubmission_file"). Grade, scaled to Maximum Grade where there is that column, and Feedback comments
    are filled; everything else stays, also Last modified (grade), by which Moodle sees that a grade was changed since
    and leaves it alone. (If it passes over rows that nobody changed, tick "Allow updating records that have been
    modified more recently in Moodle than in the spreadsheet".)

    Errors: ValueError if the worksheet lacks one of its columns, or its grades are no numbers.
    """
    sheet = _Sheet(worksheet, "a Moodle grading worksheet")
    if missing := [name for name in MOODLE_COLUMNS if name not in sheet.header]:
        raise ValueError(
            f"{worksheet} lacks the column {', '.join(map(repr, missing))}. Download the grading worksheet of the "
            "assignment while Moodle speaks English, with the feedback types Feedback comments and Offline grading "
            "worksheet switched on"
        )
    grade, feedback = sheet.column("Grade"), sheet.column("Feedback comments")
    others = ("Identifier", "Full name", "Email address", "ID number", "Username")
    learners = {
        number: (re.sub(r"\D", "", sheet.values(row, "Identifier")[0]), sheet.values(row, *others))
        for number, row in enumerate(sheet.rows)
        if number
    }
    found, left = _Roster(learners, MOODLE_DOWNLOAD).share_out(marked)
    for number, each in found.items():
        row = sheet.rows[number]
        maximum = each.points
        for text in sheet.values(row, "Maximum Grade"):
            maximum = _amount(text)
            if maximum is None:
                raise ValueError(
                    f"Maximum Grade is {text!r} in {worksheet}: give the assignment a number of points in Moodle, "
                    "not a scale, and download the worksheet again"
                )
        row[grade], row[feedback] = _scaled(each, maximum), _moodle_feedback(each)
    return [sheet.save(folder / "moodle.csv"), *_save_left(folder / "moodle_unmatched.csv", left)]


def _moodle_feedback(marked: GradedSubmission) -> str:
    """What was not solved, as HTML: Moodle takes the comment for it."""
    troubles = [trouble[:MOST_OF_A_TROUBLE] for trouble in marked.troubles[:MOST_TROUBLES]]
    if more := len(marked.troubles) - len(troubles):
        troubles.append(f"… and {plural(more, 'trouble')} more.")
    lines = [f"{_score(marked.earned, marked.points)}.", *troubles]
    blocks = [_html("\n".join(lines))]
    failed = [result for result in marked.results if result.status == "failed"]
    for i, result in enumerate(failed):
        head = f"{' '.join(SIGNS['failed'][:2])}: {result.title} ({result.exercise_id})"
        block = _html("\n".join([head, *result.sentences]))
        if shown := "\n".join(part for part in (result.evidence, result.sketch) if part):
            block += f"<pre>{_html(shown)}</pre>"  # numbers below each other
        if sum(map(len, blocks)) + len(block) > LONGEST_FEEDBACK:
            blocks.append(_html(f"… and {plural(len(failed) - i, 'exercise')} more that did not pass."))
            break
        blocks.append(block)
    if opened := [result.exercise_id for result in marked.results if result.status == "unanswered"]:
        blocks.append(_html(f"Not answered yet: {', '.join(opened)}"))
    return "<br><br>".join(blocks)


def _html(text: str) -> str:
    """Escaped, on one line. Also escaped: a backslash, which PHP's reader of CSV would take for the escape of the quote
    that ends the cell; and what begins a formula, where a spreadsheet would cut the cell at the ";" of an escape."""
    text = escape(plain(text)).replace("\\", "&#92;").replace("\t", " ").replace("\n", "<br>")
    return re.sub(r"(?<=;)(\s*)([=+\-@＝＋－＠])", lambda found: f"{found[1]}&#{ord(found[2])};", text)


# --- the terminal -----------------------------------------------------------------------------------------------------


def terminal_table(marked: Sequence[GradedSubmission], width: int = 100) -> str:
    """A line per submission, by name: points, a bar, the share, and what tells most; then what the class says together.

    width: of the terminal, in cells; 60 at least.
    """
    if not marked:
        return "no submissions"
    width = max(width, 60)
    rows = [(one_line(each.name), f"{each.earned} of {each.points}", each) for each in _in_order(marked)]
    names = min(max(7, *(_cells(name) for name, _, _ in rows)), width // 4)
    amounts = max(6, *(len(amount) for _, amount, _ in rows))
    bar = 20 if width >= 90 else 10
    lines = [f"{'learner':<{names}}  {'points':>{amounts}}  {'':<{bar}}  share"]
    for name, amount, each in rows:
        share = statistics.share_of_points(each)
        start = f"{_fitted(name, names)}  {amount:>{amounts}}  {_bar(share, bar)}  {share:>5.0%}  "
        lines.append((start + _fitted(_telling(each), width - _cells(start))).rstrip())
    mean, median = statistics.average(marked)
    lines += ["", f"{plural(len(marked), 'submission')} · mean {mean:.0%} · median {median:.0%}"]
    if hardest := statistics.hardest(marked, 5):
        lines.append("hardest, by share of points of those who tried:")
        lines += [
            _fitted(f"  {share:>4.0%} of {tried:>3}  {id} · {one_line(title)}", width).rstrip()
            for id, title, share, tried in hardest
        ]
    if mistakes := statistics.misconceptions(marked, 5):
        lines.append("most common misconceptions:")
        lines += [_fitted(f"  {count:>4} ×  {id} · {one_line(name)}", width).rstrip() for id, name, count in mistakes]
    return "\n".join(lines)


def _telling(marked: GradedSubmission) -> str:
    """The first trouble, or the chapter with the least share of its points."""
    if marked.troubles:
        more = f" (and {len(marked.troubles) - 1} more)" if len(marked.troubles) > 1 else ""
        return one_line(marked.troubles[0]) + more
    chapters = defaultdict(list)
    for result in marked.results:
        if result.points:
            chapter = _chapter(result.exercise_id)
            chapters[f"chapter {chapter}" if chapter is not None else result.exercise_id.partition(".")[0]].append(
                result
            )
    worst = min(chapters, key=lambda name: statistics.share_of_points(chapters[name]), default=None)
    if worst is None or statistics.share_of_points(chapters[worst]) == 1:
        return ""
    earned, points = (sum(getattr(each, what) for each in chapters[worst]) for what in ("earned", "points"))
    return f"least in {worst}: {earned} of {points}"


def _bar(share: float, cells: int) -> str:
    """Full only if all is there, empty only if nothing is."""
    full = round(share * cells)
    full = min(max(full, 1 if share else 0), cells if share == 1 else cells - 1)
    return "█" * full + "░" * (cells - full)


def _cells(text: str) -> int:
    """How wide text is in a terminal: Chinese letters take two cells, marks above a letter none."""
    return sum(_cell_width(each) for each in text)


def _cell_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fitted(text: str, cells: int) -> str:
    """Text of exactly this width: filled up, or cut with "…"."""
    width = _cells(text)
    if width > cells:
        kept, width = "", 0
        for each in text:
            if width + _cell_width(each) > cells - 1:
                break
            kept, width = kept + each, width + _cell_width(each)
        text, width = kept + "…", width + 1
    return text + " " * (cells - width)
