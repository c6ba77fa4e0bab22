"""Read when each learner submitted: from a list, from Moodle's grading worksheet or from a download.

The modification times of files are never used.
"""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from course_lib.classroom.file_names import downloads
from course_lib.classroom.read.roster import Learner, read_roster
from course_lib.classroom.read.submission_reader import Submission
from course_lib.classroom.read.timestamps import read_moments
from course_lib.classroom.spreadsheets import Sheet

TIMES = (
    *("handed in", "handed_in", "submitted", "submitted at", "submission time", "submitted_at", "time"),
    *("date submitted", "submission date"),
)
MOODLE = "last modified (submission)"


def read_times(path: Path, zone: str = "") -> list[tuple[Learner, datetime]]:
    """Return when each learner submitted, in UTC, from a CSV with a roster's columns and one of `TIMES` or `MOODLE`.

    Args:
        zone: the time zone of times without one, such as "Europe/Berlin" (`read_moments`).

    Errors: ValueError that gives the line.
    """
    sheet = Sheet(path, "a list of when each handed in")
    heads = [head.casefold() for head in sheet.header]
    column = next((heads.index(name) for name in (*TIMES, MOODLE) if name in heads), None)
    if column is None:
        raise ValueError(
            f"{path} has no column {TIMES[0]!r}, nor Moodle's {MOODLE!r}: it has {', '.join(sheet.header)}"
        )
    found = []
    for learner in read_roster(path):
        text = sheet.rows[learner.row - 1][column].strip()
        if text in ("", "-"):  # Moodle writes "-" if nothing was submitted
            continue
        found.append((learner, (f"line {learner.row} of {path}", text)))
    moments = read_moments([written for _, written in found], zone)
    return [(learner, moment) for (learner, _), moment in zip(found, moments)]


def platform_times(submissions: Iterable[Submission], zone: str = "") -> tuple[dict[str, datetime], dict[str, str]]:
    """Return when each submission came according to its download, by name, and why an ambiguous time is not used.

    The last of a submission's files counts. A submission is in neither dictionary if a file's time is missing.
    """
    found, unread = {}, {}
    for each in submissions:
        if each.times and all(each.times):
            try:
                found[each.name] = max(read_moments([("the download", text) for text in each.times], zone))
            except ValueError as error:
                unread[each.name] = str(error)
    return found, unread


def is_late(file: str) -> bool:
    """Return whether Canvas marks a file as late (lastfirst_LATE_12345_678_answers.ipynb). It never says how late."""
    meant = downloads(file)
    if len(meant) != 1 or not meant[0].file:
        return False
    before, _, _ = file.partition(f"_{meant[0].number}_{meant[0].file}_")
    return before.casefold().endswith(("_late", "-late"))  # the learner chooses the text after it
