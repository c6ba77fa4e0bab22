"""`[grading]` in `course.toml`, read: what is wrong is named with its line, what was given and what may be."""

import re
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from course_lib.contents import CHAPTERS
from course_lib.grading.catalogue import EXERCISES

from .grading_policy import Override, Policy

LIKE = "a date and time with its zone, as in 2026-10-05T23:59:00+02:00"
LONGEST = 80  # characters of a value that is shown


def read_policy(path: Path) -> Policy:
    """Return the policy in `[grading]` of a file; one that changes nothing if there is no such part.

    Errors: ValueError that names the file, the line if it can be told, the key, what was given and what is allowed.
    """
    try:
        text = path.read_text("utf-8")
        data = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:  # ValueError also for a number of 5,000 digits
        raise ValueError(f"{path} cannot be read ({error}): mend it, or name another file with --course") from error
    part = _Part(data, str(path), text).part("grading")
    part.require_known("weights", "due", "late", "override", "handed_in", "canvas", "time_zone")
    late, weights, due, canvas = (part.part(name) for name in ("late", "weights", "due", "canvas"))
    late.require_known("grace_minutes", "percent_per_day", "floor_percent", "none_after_days")
    canvas.require_known("columns")
    zone, handed_in, columns = _zone(part), part.part("handed_in"), canvas.part("columns")
    last = late.number("none_after_days", 0, 10_000) if "none_after_days" in late.data else None
    return Policy(
        weights={_chapter_or_id(weights, key): weights.number(key, 0, 1000) for key in weights.data},
        due={_chapter(due, key): due.time(key, zone) for key in due.data},
        grace=timedelta(minutes=late.number("grace_minutes", 0, 100_000, 0)),
        percent_per_day=late.number("percent_per_day", 0, 100, 0),
        floor=late.number("floor_percent", 0, 100, 0),
        overrides=_overrides(part.parts("override")),
        none_after=last,
        handed_in={key: handed_in.time(key, zone) for key in handed_in.data},
        canvas={_chapter(columns, key): columns.value(key, str, "") for key in columns.data},
        zone=zone.key if zone else "",
    )


def _zone(part: "_Part") -> ZoneInfo | None:
    name = part.value("time_zone", str, "")
    try:
        return ZoneInfo(name) if name else None
    except (OSError, ValueError) as error:  # ZoneInfoNotFoundError is a KeyError of its own
        raise part.wrong("time_zone", "is no time zone: give a name as in Europe/Berlin") from error
    except KeyError as error:
        raise part.wrong(
            "time_zone", "is not known on this machine: give a name as in Europe/Berlin, or install tzdata"
        ) from error


def _overrides(parts: "Sequence[_Part]") -> tuple[Override, ...]:
    found: dict[tuple[str, str], int] = {}
    overrides = []
    for i, part in enumerate(parts, start=1):
        override = _override(part)
        first = found.setdefault((override.learner, override.target), i)
        if first < i:
            raise part.wrong("learner", f"has another override for {override.target}, number {first}: keep one")
        overrides.append(override)
    return tuple(overrides)


def _override(part: "_Part") -> Override:
    part.require_known("learner", "exercise", "chapter", "total", "points", "excused", "on_time", "why", "by")
    words = {key: part.value(key, str, "") for key in ("learner", "exercise", "why", "by")}
    total = part.value("total", bool, False)
    if not words["learner"]:
        raise part.wrong("learner", "must name the learner, by id or by name")
    if bool(words["exercise"]) + ("chapter" in part.data) + total != 1:
        raise part.wrong("exercise", "must name an exercise, or `chapter` a chapter, or `total = true`: one of them")
    chapter, most = None, 1e6  # how much there is in all is known when the policy is applied
    if words["exercise"]:
        if words["exercise"] not in EXERCISES.entries:
            raise part.wrong("exercise", "is no exercise of the course")
        most = EXERCISES.entries[words["exercise"]].points
    elif not total:
        chapter = _chapter(part, str(part.data["chapter"]), "chapter")
        most = sum(each.points for each in EXERCISES.entries.values() if each.chapter == chapter)
    points = part.number("points", 0, most) if "points" in part.data else None
    excused, on_time = part.value("excused", bool, False), part.value("on_time", bool, False)
    if (points is not None) + excused + on_time != 1:
        raise part.wrong("points", "must be given, or `excused = true`, or `on_time = true`: one of the three")
    if on_time and words["exercise"]:
        raise part.wrong("on_time", "is for a whole chapter, or all: name `chapter` in place of `exercise`")
    return Override(**words, chapter=chapter, points=points, excused=excused, on_time=on_time, total=total)


def _chapter(part: "_Part", name: str, key: str = "") -> int:
    """Read a chapter by its number or its name in the course. key: where it stands, if it is not the key itself."""
    numbers = {str(number): number for number in range(len(CHAPTERS))}
    numbers |= {chapter.slug: number for number, chapter in enumerate(CHAPTERS)}
    if name not in numbers:
        raise part.wrong(key or name, "names no chapter: give its number or its name, 2 or attention")
    return numbers[name]


def _chapter_or_id(part: "_Part", key: str) -> str | int:
    return key if key in EXERCISES.entries else _chapter(part, key)


class _Part:
    """A table of the file. Whatever is asked of it is there in the right type, or an error says what should be.

    Args:
        where: the file and the names of the tables around. text: of the whole file. name: "grading.late" in its head.
        number: which one of that name it is, from 1.
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
        """Return the line of a key, or that of the table's head; 0 where it cannot be told (dotted, inline tables)."""
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

    def part(self, key: str) -> "_Part":
        name = f"{self._name}.{key}".lstrip(".")
        return _Part(self.data.get(key, {}), f"{self.where} [{key}]", self._text, name)

    def parts(self, key: str) -> list["_Part"]:
        found = self.data.get(key, [])
        if not isinstance(found, list):
            raise self.wrong(key, f"must be a list of tables, [[grading.{key}]]")
        return [
            _Part(each, f"{self.where} [[{key}]] number {i}", self._text, f"{self._name}.{key}", i)
            for i, each in enumerate(found, start=1)
        ]

    def value(self, key: str, kind: type, default: Any) -> Any:
        value = self.data.get(key, default)
        if type(value) is not kind:
            raise self.wrong(key, f"must be {'true or false' if kind is bool else 'text, in quotes'}")
        return value

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        value = self.data.get(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most:  # NaN is neither
            return float(value)
        raise self.wrong(key, f"must be a number from {least:g} to {most:g}")

    def time(self, key: str, zone: ZoneInfo | None) -> datetime:
        """Return a moment in UTC, in which differences are true when clocks are changed."""
        value = self.data.get(key)
        try:
            if isinstance(value, datetime) and (value.tzinfo or zone):
                return (value if value.tzinfo else value.replace(tzinfo=zone)).astimezone(UTC)
        except OverflowError:
            pass
        raise self.wrong(key, f"must be {LIKE}; or name `time_zone` in [grading] for all")


def _shown(value: object) -> str:
    try:
        text = repr(value) if not isinstance(value, datetime) else value.isoformat()
    except ValueError:  # a number of thousands of digits
        return "(a very long number)"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
