"""When each learner handed in: from a list, or Moodle's grading worksheet; never from the times of files."""

import re
import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from .course_file import LIKE, YEARS
from .file_names import downloads
from .roster import Learner, read_roster
from .spreadsheets import Sheet

TIMES = ("handed in", "handed_in", "submitted", "submitted at", "submission time", "submitted_at", "time")
MOODLE = "last modified (submission)"
MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
# Moodle's own way to write a time, English (5 October 2026) and American, with whatever day of the week before it.
ENGLISH = re.compile(
    rf"(?:[^\W\d]+, )?(?:(?P<day>\d\d?) (?P<month>{MONTH})|(?P<month_first>{MONTH}) (?P<day_then>\d\d?),) "
    r"(?P<year>\d{4}), (?P<hour>\d\d?):(?P<minute>\d\d) ?(?P<half>[AaPp][Mm])?"
)


def read_times(path: Path, zone: str = "") -> list[tuple[Learner, datetime]]:
    """Return when each learner handed in, in UTC: a CSV with the columns of a roster and one of `TIMES` or `MOODLE`.

    A time is ISO 8601, or as Moodle writes it in English. zone: of those that name none, as "Europe/Berlin".
    Errors: ValueError that names the line.
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
        if text in ("", "-"):  # Moodle writes "-" for who handed in nothing
            continue
        found.append((learner, _moment(text, zone, f"line {learner.row} of {path}")))
    return found


def _moment(text: str, zone: str, where: str) -> datetime:
    time = _written(text)
    if time is None or time.year not in YEARS:
        raise ValueError(f"{where}: {text!r} must be {LIKE}")
    if time.tzinfo is None and not zone:
        raise ValueError(
            f"{where}: {text!r} must be {LIKE}; or say `time_zone`, as in Europe/Berlin, in [grading] of course.toml"
        )
    return (time if time.tzinfo else time.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)


def _written(text: str) -> datetime | None:
    """Read a time; None if it is none. A day without an hour is none: its midnight would be a guess."""
    text = " ".join(unicodedata.normalize("NFKC", text).split())
    try:
        if found := ENGLISH.fullmatch(text):
            hour, half = int(found["hour"]), (found["half"] or "").upper()
            if half and not 1 <= hour <= 12:
                return None
            hour = hour % 12 + (12 if half == "PM" else 0) if half else hour
            month = MONTH.split("|").index(found["month"] or found["month_first"]) + 1
            day = int(found["day"] or found["day_then"])
            return datetime(int(found["year"]), month, day, hour, int(found["minute"]))
        return datetime.fromisoformat(text) if ":" in text else None
    except ValueError:
        return None


def is_late(file: str) -> bool:
    """Say whether Canvas calls a file late, lastfirst_LATE_12345_678_answers.ipynb; how late it never says."""
    meant = downloads(file)
    if len(meant) != 1 or not meant[0].file:
        return False
    before, _, _ = file.partition(f"_{meant[0].number}_{meant[0].file}_")
    return before.casefold().endswith(("_late", "-late"))  # what follows is of the learner's own choice
