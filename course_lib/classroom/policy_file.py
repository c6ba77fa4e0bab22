"""`[grading]` in `course.toml`, read: what is wrong is named with its line, what was given and what may be."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from course_lib.grading.catalogue import EXERCISES

from .course_file import Part, chapter_number, read_course_file, zone_of
from .grading_policy import Override, Policy


def read_policy(path: Path) -> Policy:
    """Return the policy in `[grading]` of a file; one that changes nothing if there is no such part.

    Errors: ValueError that names the file, the line if it can be told, the key, what was given and what is allowed.
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
    chapter, most = None, 1e6  # how much there is in all is known when the policy is applied
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
