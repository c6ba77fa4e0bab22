"""Read a term from `course.toml`: `[course]` has chapters, dates, class and platform, `[grading]` the policy.

`release`, `plan` and `grade` use it. `Part` reads one table of the file. A command-line option overrides the file.
Every error gives the file, the line if it is known, the value and the allowed values.
"""

import argparse
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from course_lib.classroom.mark.policy import Override, Policy
from course_lib.classroom.read.times import LIKE, YEARS, later_reading
from course_lib.classroom.report.outputs import FORMATS
from course_lib.course.contents import CHAPTERS
from course_lib.grading.page.catalogue import EXERCISES

# The formats that `grade` writes for a platform, as its options call them. Classroom 50 and nbgrader only take points
# from their own runs, and Blackboard and Brightspace have no known import format: for them, a graded class is a table.
PLATFORMS = {
    "canvas": "canvas",
    "moodle": "moodle",
    "gradescope": "gradescope",
    "classroom50": "csv",
    "nbgrader": "csv",
    "blackboard": "csv",
    "brightspace": "csv",
}
ALWAYS = datetime.min.replace(tzinfo=UTC)  # for a chapter without a date
NAME = "course.toml"  # in the folder where a command runs
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


@dataclass(frozen=True)
class Term:
    """The content of `[course]`; without it, all chapters from the beginning and no other setting.

    Fields:
        chapters: by number, the moment (UTC) at which the class gets a chapter.
        platform: one of `PLATFORMS`, or "".
        roster: a CSV of the class.
        gradebook: Canvas's export or Moodle's worksheet.
        worksheets: Moodle's by chapter, if each chapter is an assignment.
        columns: "total", "chapters", or "" if not set.
        zone: the time zone of the dates; None: this machine's.
        hub: the address of the class's JupyterHub, or "".
    """

    chapters: Mapping[int, datetime] = field(default_factory=lambda: {each.number: ALWAYS for each in CHAPTERS})
    platform: str = ""
    roster: Path | None = None
    gradebook: Path | None = None
    worksheets: Mapping[int, Path] = field(default_factory=dict)
    columns: str = ""
    zone: ZoneInfo | None = None
    hub: str = ""

    @property
    def is_dated(self) -> bool:
        """Return whether the file lists chapters at all."""
        return self.chapters != Term().chapters

    @property
    def dates(self) -> dict[int, str]:
        """Return the release days of chapters with dates, by number, in words and in the file's time zone."""
        days = {number: each.astimezone(self.zone) for number, each in self.chapters.items() if each != ALWAYS}
        return {number: f"{day.day} {day:%B} {day.year}" for number, day in sorted(days.items())}

    def moodle(self, chapters: Sequence[int] | None = None) -> list[str]:
        """Return Moodle's worksheets as `grade --moodle` takes them, by default all that exist so far.

        Errors: ValueError if the worksheet of one of the `chapters` does not exist yet.
        """
        if not self.worksheets:
            return [str(self.gradebook)] if self.gradebook else []
        wanted = [each for each in self.worksheets if chapters is None or each in chapters]
        there = [each for each in wanted if self.worksheets[each].is_file()]
        if chapters is not None and len(there) < len(wanted):
            lacking = next(self.worksheets[each] for each in wanted if each not in there)
            raise ValueError(
                f"{lacking} of [course.worksheets] is not a file: export it in Moodle, or leave the line out"
            )
        return [f"{each}={self.worksheets[each]}" for each in there]

    def released(self, moment: datetime | None = None) -> list[int]:
        """Return the chapters that the class has at a moment, by default now, in the order of the course."""
        moment = moment or datetime.now(UTC)
        return sorted(number for number, begins in self.chapters.items() if begins <= moment)


def read_term(path: Path | None) -> Term:
    """Return the term of a file; the default term without a file or without `[course]` in it.

    Paths in the file are relative to its folder.
    Errors: ValueError that gives the file, the line if known, the key, the value and the allowed values.
    """
    if path is None:
        return Term()
    whole = read_course_file(path)
    part = whole.part("course")
    part.require_known("chapters", "platform", "roster", "gradebook", "worksheets", "columns", "hub")
    platform, columns = part.value("platform", str, ""), part.value("columns", str, "")
    if platform not in ("", *PLATFORMS):
        raise part.wrong("platform", f"is not known: {', '.join(PLATFORMS)} are; leave it out for none")
    if columns not in ("", "total", "chapters"):
        raise part.wrong("columns", 'must be "total", one column for all, or "chapters", one for each')
    sheets = part.part("worksheets")
    term = Term(
        platform=platform,
        roster=_file(part, "roster", path.parent),
        gradebook=_file(part, "gradebook", path.parent),
        worksheets={chapter_number(sheets, key): path.parent / sheets.value(key, str, "") for key in sheets.data},
        columns=columns,
        zone=zone_of(whole.part("grading")),
        hub=part.value("hub", str, ""),
    )
    if term.gradebook and term.worksheets:
        raise part.wrong(
            "gradebook", "is one file for all, and [course.worksheets] names one for each chapter: keep one"
        )
    if (term.gradebook and platform not in ("canvas", "moodle")) or (term.worksheets and platform != "moodle"):
        raise part.wrong(
            "platform", 'does not take these files: a gradebook is for "canvas" or "moodle", worksheets for "moodle"'
        )
    return (
        Term(**{**vars(term), "chapters": _chapters(part, term.zone)})
        if part.data.get("chapters", {}) not in ([], {})
        else term
    )


def apply_term(term: Term, arguments: argparse.Namespace) -> list[str]:
    """Fill in settings missing from the command line of `grade`; return in words the settings taken from the file.

    A requested format replaces the platform's; without --out, nothing is written. If chapters have dates, Canvas gets a
    column for each: a single column would change its meaning each week.
    Errors: ValueError for a platform that needs a file which is not given.
    """
    told = []
    sheets = [path for path in (term.gradebook, *term.worksheets.values()) if path and path.is_file()]
    if not arguments.roster and (roster := term.roster or next(iter(sheets), None)):
        arguments.roster = roster
        told.append(f"the roster {roster}")
    if not arguments.columns:
        arguments.columns = term.columns or ("chapters" if term.platform == "canvas" and term.is_dated else "total")
    asked = [name for name in FORMATS if getattr(arguments, name) not in (False, None)]
    if term.platform and arguments.out and not asked:
        option = PLATFORMS[term.platform]
        values = {"canvas": str(term.gradebook or ""), "moodle": term.moodle()}
        if option == "moodle" and not term.moodle():
            raise ValueError(
                'platform = "moodle" in course.toml needs the grading worksheet that you exported: name it there, '
                "gradebook = …, or give --moodle FILE"
            )
        setattr(arguments, option, values.get(option, True))
        told.append(f"results for {term.platform}")
    return told


def _file(part: Part, key: str, folder: Path) -> Path | None:
    name = part.value(key, str, "")
    return folder / name if name else None


def _chapters(part: Part, zone: ZoneInfo | None) -> dict[int, datetime]:
    """Read `chapters`: a list of numbers or names, or a table that gives each its date."""
    given = part.data["chapters"]
    if isinstance(given, list):
        found = {chapter_number(part, str(each), "chapters"): ALWAYS for each in given}
    else:
        dates = part.part("chapters")
        found = {chapter_number(dates, key): dates.day(key, zone) for key in dates.data}
    if len(found) < len(given):
        raise part.wrong("chapters", "names a chapter twice: once by its number or by its name is enough")
    return found


def read_policy(path: Path) -> Policy:
    """Return the policy in `[grading]` of a file; without that part, one that changes nothing.

    Errors: ValueError that gives the file, the line if known, the key, the value and the allowed values.
    """
    part = read_course_file(path).part("grading")
    part.require_known("weights", "due", "late", "override", "handed_in", "canvas", "time_zone")
    late, weights, due, canvas = (part.part(name) for name in ("late", "weights", "due", "canvas"))
    late.require_known("grace_minutes", "percent_per_day", "floor_percent", "none_after_days")
    canvas.require_known("columns")
    zone, handed_in, columns = zone_of(part), part.part("handed_in"), canvas.part("columns")
    last = late.number("none_after_days", 0, 10_000) if "none_after_days" in late.data else None
    return Policy(
        weights={_chapter_or_id(weights, key): weights.number(key, 0, 1000) for key in weights.data},
        due={chapter_number(due, key): due.time(key, zone, is_due=True) for key in due.data},
        grace=timedelta(minutes=late.number("grace_minutes", 0, 100_000, 0)),
        percent_per_day=late.number("percent_per_day", 0, 100, 0),
        floor=late.number("floor_percent", 0, 100, 0),
        overrides=_overrides(part.parts("override")),
        none_after=last,
        handed_in={key: handed_in.time(key, zone) for key in handed_in.data},
        canvas={chapter_number(columns, key): columns.value(key, str, "") for key in columns.data},
        zone=zone.key if zone else "",
    )


def _overrides(parts: Sequence[Part]) -> tuple[Override, ...]:
    found: dict[tuple[str, str], int] = {}
    overrides = []
    for i, part in enumerate(parts, start=1):
        override = _override(part)
        first = found.setdefault((override.learner, override.target), i)
        if first < i:
            raise part.wrong("learner", f"has another override for {override.target}, number {first}: keep one")
        overrides.append(override)
    return tuple(overrides)


def _override(part: Part) -> Override:
    part.require_known("learner", "exercise", "chapter", "total", "points", "excused", "on_time", "why", "by")
    words = {key: part.value(key, str, "") for key in ("learner", "exercise", "why", "by")}
    total = part.value("total", bool, False)
    if not words["learner"]:
        raise part.wrong("learner", "must name the learner, by id or by name")
    if bool(words["exercise"]) + ("chapter" in part.data) + total != 1:
        raise part.wrong("exercise", "must name an exercise, or `chapter` a chapter, or `total = true`: one of them")
    chapter, most = None, 1e6  # the total is only known when the policy is applied
    if words["exercise"]:
        if words["exercise"] not in EXERCISES.entries:
            raise part.wrong("exercise", "is no exercise of the course")
        most = EXERCISES.entries[words["exercise"]].points
    elif not total:
        chapter = chapter_number(part, str(part.data["chapter"]), "chapter")
        most = sum(each.points for each in EXERCISES.entries.values() if each.chapter == chapter)
    points = part.number("points", 0, most) if "points" in part.data else None
    excused, on_time = part.value("excused", bool, False), part.value("on_time", bool, False)
    if (points is not None) + excused + on_time != 1:
        raise part.wrong("points", "must be given, or `excused = true`, or `on_time = true`: one of the three")
    if on_time and words["exercise"]:
        raise part.wrong("on_time", "is for a whole chapter, or all: name `chapter` in place of `exercise`")
    return Override(**words, chapter=chapter, points=points, excused=excused, on_time=on_time, total=total)


def _chapter_or_id(part: Part, key: str) -> str | int:
    return key if key in EXERCISES.entries else chapter_number(part, key)
