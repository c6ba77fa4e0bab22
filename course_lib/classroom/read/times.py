"""Read when each learner submitted: from a list, from Moodle's grading worksheet or from a download.

The modification times of files are never used. Times are in the forms that spreadsheets and learning platforms write;
ambiguous ones are refused.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

from course_lib.classroom.read.platforms import downloads
from course_lib.classroom.read.roster import Learner, read_roster
from course_lib.classroom.spreadsheets import Sheet

if TYPE_CHECKING:  # `term` uses this module, and reads no submission
    from course_lib.classroom.read.submission_reader import Submission

LIKE = "a date and time with its zone, as in 2026-10-05T23:59:00+02:00"
YEARS = range(1900, 9000)  # outside this range, a date may have no next day, or none in some time zones
TIMES = (
    *("handed in", "handed_in", "submitted", "submitted at", "submission time", "submitted_at", "time"),
    *("date submitted", "submission date"),
)
MOODLE = "last modified (submission)"
MONTHS = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]
CLOCK = r",? (?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d))?(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?(?: o'clock)?"
FORMS = [
    re.compile(form + CLOCK)
    for form in (
        r"(?:[^\W\d]+\.?, )?(?P<day>\d\d?) (?P<month>[A-Za-z]+)\.?,? (?P<year>\d{4})",  # 5 October 2026, 23:59
        r"(?:[^\W\d]+\.?, )?(?P<month>[A-Za-z]+)\.? (?P<day>\d\d?),? (?P<year>\d{4})",  # Oct 5, 2026 11:59 PM
        r"(?P<year>\d{4})/(?P<month>\d\d?)/(?P<day>\d\d?)",
        r"(?P<day>\d\d?)\.(?P<month>\d\d?)\.(?P<year>\d{4})",
    )
]
EITHER = r"(?P<{}>\d\d?)(?P<sign>[/-])(?P<{}>\d\d?)(?P=sign)(?P<year>\d{{4}})" + CLOCK
DAY_FIRST, MONTH_FIRST = (re.compile(EITHER.format(*order)) for order in (("day", "month"), ("month", "day")))
LETTERS = re.compile(r"(?P<time>.*\d.*) (?!AM$|PM$)(?P<zone>[A-Z]{1,5})")  # the letters of a zone: UTC, CEST
UNIVERSAL = ("UTC", "GMT", "Z")


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


def platform_times(submissions: Iterable["Submission"], zone: str = "") -> tuple[dict[str, datetime], dict[str, str]]:
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


class Written(NamedTuple):
    """A written time, read with the day first and with the month first.

    Both are equal unless the text is like 10/5/2026; a reading is None if there is no such day. zone: its letters, or
    "".
    """

    day_first: datetime | None
    month_first: datetime | None
    zone: str


def read_moments(texts: Sequence[tuple[str, str]], zone: str = "") -> list[datetime]:
    """Return moments in UTC for (where, text) pairs of one list, which all write either the day or the month first.

    A time is ISO 8601, or in the format of Moodle (English), Blackboard, Brightspace, Canvas, Gradescope or a
    spreadsheet.

    Args:
        zone: the time zone of times without one, such as "Europe/Berlin".

    Errors: ValueError that gives the position.
    """
    found = [(where, text, _written(where, text)) for where, text in texts]
    is_month_first = _is_month_first(found)
    return [_moment(where, text, each, zone, is_month_first) for where, text, each in found]


def _is_month_first(found: Sequence[tuple[str, str, Written]]) -> bool:
    """Return whether the list writes the month first. One unambiguous row decides it for all."""
    days = next((each for each in found if not each[2].month_first), None)
    months = next((each for each in found if not each[2].day_first), None)
    doubt = next((each for each in found if each[2].day_first != each[2].month_first), None)
    again = "write times as 2026-10-05 23:59 (in a spreadsheet: format the cells as yyyy-mm-dd hh:mm)"
    if days and months:
        raise ValueError(f"{days[0]}: {days[1]!r} has the day first, and {months[0]}: {months[1]!r} the month: {again}")
    if doubt and not days and not months:
        one, other = (f"{each.day} {each:%B %Y}" for each in reversed(doubt[2][:2]))
        raise ValueError(
            f"{doubt[0]}: {doubt[1]!r} may be {one} or {other}, and no other time there settles it: {again}"
        )
    return bool(months)


def _moment(where: str, text: str, each: Written, zone: str, is_month_first: bool) -> datetime:
    time = each.month_first if is_month_first else each.day_first
    if time is None or time.year not in YEARS:
        raise ValueError(f"{where}: {text!r} must be {LIKE}")
    if time.tzinfo or each.zone in UNIVERSAL:
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    if not zone:
        raise ValueError(
            f"{where}: {text!r} must be {LIKE}; or say `time_zone`, as in Europe/Berlin, in [grading] of course.toml"
        )
    for fold in (0, 1):
        local = time.replace(tzinfo=ZoneInfo(zone), fold=fold)
        if each.zone in ("", local.tzname()):
            return local.astimezone(UTC)
    raise ValueError(
        f"{where}: {text!r} is in {each.zone}, which clocks in {zone} (`time_zone`) do not show then: it must be {LIKE}"
    )


def _written(where: str, text: str) -> Written:
    """Read a time in both orders. A date without an hour is refused, because midnight would be a guess."""
    plain, zone = " ".join(unicodedata.normalize("NFKC", text).split()), ""
    if letters := LETTERS.fullmatch(plain):
        plain, zone = letters["time"], letters["zone"]
    day_first, month_first = (_dated(form.fullmatch(plain)) for form in (DAY_FIRST, MONTH_FIRST))
    if not (day_first or month_first):
        day_first = _iso(plain) or next(filter(None, (_dated(form.fullmatch(plain)) for form in FORMS)), None)
        month_first = day_first
    if not (day_first or month_first):
        raise ValueError(f"{where}: {text!r} must be {LIKE}")
    return Written(day_first, month_first, zone)


def _iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if ":" in text else None
    except ValueError:
        return None


def _dated(found: re.Match | None) -> datetime | None:
    if not found:
        return None
    month, hour, half = found["month"].lower(), int(found["hour"]), (found["half"] or "").lower()
    named = [i for i, name in enumerate(MONTHS, start=1) if month in (name, name[:3], name[:4] if i == 9 else name)]
    if half and not 1 <= hour <= 12:
        return None
    hour = hour % 12 + (12 if half == "p" else 0) if half else hour
    try:
        number = int(month) if month.isdecimal() else named[0]
        clock = hour, int(found["minute"]), int(found["second"] or 0)
        return datetime(int(found["year"]), number, int(found["day"]), *clock)
    except (ValueError, IndexError):
        return None


def later_reading(clock: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment, in UTC, at which a clock in the zone shows a time; the later of two when clocks change."""
    return max(clock.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
