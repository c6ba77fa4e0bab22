"""Read `course.toml`. Errors give the line, the value and the allowed values. `term` describes the content.

This module does not need torch.
"""

import re
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from course_lib.course.contents import CHAPTERS

NAME = "course.toml"  # in the folder where a command runs
LIKE = "a date and time with its zone, as in 2026-10-05T23:59:00+02:00"
YEARS = range(1900, 9000)  # outside this range, a date may have no next day, or none in some time zones
LONGEST = 80  # characters of a value in a message


def find_course_file(given: Path | None = None) -> Path | None:
    """Return the file given by --course, or else course.toml here; None if there is none."""
    return given or (Path(NAME) if Path(NAME).is_file() else None)


def read_course_file(path: Path) -> "Part":
    """Return the full file as a table. Errors: ValueError if it cannot be read."""
    try:
        text = path.read_text("utf-8")
        return Part(tomllib.loads(text), str(path), text)
    except (OSError, ValueError, RecursionError) as error:  # also raised for a number of 5,000 digits
        raise ValueError(f"{path} cannot be read ({error}): correct it, or name another file with --course") from error


def zone_of(part: "Part") -> ZoneInfo | None:
    """Return the time zone in `[grading]` for all times in the file; None if there is none."""
    name = part.value("time_zone", str, "")
    try:
        return ZoneInfo(name) if name else None
    except (OSError, ValueError) as error:  # ZoneInfoNotFoundError is a KeyError subclass
        raise part.wrong("time_zone", "is no time zone: give a name as in Europe/Berlin") from error
    except KeyError as error:
        raise part.wrong(
            "time_zone", "is not known on this machine: give a name as in Europe/Berlin, or install tzdata"
        ) from error


def later_reading(clock: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment, in UTC, at which a clock in the zone shows a time; the later of two when clocks change."""
    return max(clock.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))


def chapter_number(part: "Part", name: str, key: str = "") -> int:
    """Read a chapter by its number or its name in the course. key: the value's key, if it is not the name itself."""
    numbers = {str(number): number for number in range(len(CHAPTERS))}
    numbers |= {chapter.slug: number for number, chapter in enumerate(CHAPTERS)}
    if name not in numbers:
        raise part.wrong(key or name, "names no chapter: give its number or its name, 2 or attention")
    return numbers[name]


class Part:
    """A table of the file. Values that are read have the right type, or an error describes the expected one.

    Args:
        where: the file and the names of the surrounding tables.
        text: the full file.
        name: the table's name in its head, such as "grading.late".
        number: the position among tables of that name, from 1.
    """

    def __init__(self, data: Any, where: str, text: str, name: str = "", number: int = 1):
        if not isinstance(data, dict):
            raise ValueError(f"{where} must be a table, as in the sample solutions/course.toml")
        self.data, self.where, self._text, self._name, self._number = data, where, text, name, number

    def wrong(self, key: str, why: str) -> ValueError:
        given = f" = {_shown(self.data[key])}" if key in self.data else ""
        line = self._line(key)
        return ValueError(f"{self.where}{f', line {line}' if line else ''}: {key}{given} {why}")

    def _line(self, key: str) -> int:
        """Return the line of a key, or of the table's head; 0 if it is unknown (dotted keys, inline tables)."""
        seen, head = 0, 0
        for number, line in enumerate(self._text.splitlines(), start=1):
            bare = line.partition("#")[0].strip()
            if bare.startswith("["):
                seen += (is_it := bare.strip("[] ") == self._name)
                head = number if is_it and seen == self._number else 0 if seen <= self._number else head
                if seen > self._number:
                    break
            elif head and re.match(rf"[\"']?{re.escape(key)}[\"']?\s*=", bare):
                return number
        return head

    def require_known(self, *known: str) -> None:
        for key in self.data:
            if key not in known:
                raise self.wrong(key, f"is not known here: {', '.join(known)} are")

    def part(self, key: str) -> "Part":
        name = f"{self._name}.{key}".lstrip(".")
        return Part(self.data.get(key, {}), f"{self.where} [{key}]", self._text, name)

    def parts(self, key: str) -> list["Part"]:
        found = self.data.get(key, [])
        if not isinstance(found, list):
            raise self.wrong(key, f"must be a list of tables, [[grading.{key}]]")
        return [
            Part(each, f"{self.where} [[{key}]] number {i}", self._text, f"{self._name}.{key}", i)
            for i, each in enumerate(found, start=1)
        ]

    def value(self, key: str, kind: type, default: Any) -> Any:
        value = self.data.get(key, default)
        if type(value) is not kind:
            raise self.wrong(key, f"must be {'true or false' if kind is bool else 'text, in quotes'}")
        return value

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        value = self.data.get(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most:  # NaN fails both
            return float(value)
        raise self.wrong(key, f"must be a number from {least:g} to {most:g}")

    def day(self, key: str, zone: ZoneInfo | None) -> datetime:
        """Return a date and time as a moment in UTC; a date begins at midnight. The default zone is this machine's."""
        value = self.data.get(key)
        try:
            if isinstance(value, date):  # a datetime is also a date
                moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
                return (moment if moment.tzinfo or not zone else moment.replace(tzinfo=zone)).astimezone(UTC)
        except (OverflowError, OSError):
            pass
        raise self.wrong(key, "must be a date without quotes, as in 2026-10-05, or with a time, 2026-10-05T08:00:00")

    def time(self, key: str, zone: ZoneInfo | None, is_due: bool = False) -> datetime:
        """Return a moment in UTC, which counts seconds. Days are counted by the zone's clock (`mark.policy`).

        If clocks show a time twice, work that `is_due` then may come until the later moment.
        """
        value = self.data.get(key)
        if isinstance(value, datetime) and value.year in YEARS:
            if value.tzinfo:
                return value.astimezone(UTC)
            if zone:
                return later_reading(value, zone) if is_due else value.replace(tzinfo=zone).astimezone(UTC)
        raise self.wrong(key, f"must be {LIKE}; or name `time_zone` in [grading] for all")


def _shown(value: object) -> str:
    try:
        text = value.isoformat() if isinstance(value, date) else repr(value)
    except ValueError:  # a number with thousands of digits
        return "(a very long number)"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
