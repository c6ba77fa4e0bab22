"""What points count: weights, lateness and a person's word, from `[grading]` in `course.toml`.

The journal keeps what the grader gave. A policy is applied when results are written: it can be changed without grading
again, and what a person decided stands after a re-mark.
"""

import math
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from course_lib.contents import CHAPTERS
from course_lib.grading.catalogue import EXERCISES
from course_lib.grading.show import plural

from .graded import Counted, GradedSubmission
from .roster import Learner, Roster
from .spreadsheets import Sheet
from .text import one_line

TIMES = ("handed in", "handed_in", "submitted", "submitted at", "submission time", "submitted_at", "time")
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Override:
    """A person's word on one learner's exercise or chapter.

    Fields: learner, an id or name · exercise, chapter, one of them · points, instead of the grader's; None: as they are
    · excused, it does not count for this learner · on_time, no lateness in this chapter · why, by, as they stand there.
    """

    learner: str
    exercise: str = ""
    chapter: int | None = None
    points: float | None = None
    excused: bool = False
    on_time: bool = False
    why: str = ""
    by: str = ""

    def __str__(self) -> str:
        what = self.exercise or f"chapter {self.chapter}"
        done = "excused" if self.excused else "taken as on time" if self.on_time else f"set to {self.points:g}"
        told = f": {one_line(self.why)}" if self.why else ""
        return f"{what}: {done}{f' by {one_line(self.by)}' if self.by else ''}{told}"


@dataclass(frozen=True)
class Policy:
    """How the points of a class count.

    Fields: weights, by exercise or number of a chapter · due, by chapter, with a zone · grace, percent_per_day, floor:
    after the grace each day begun takes so many percent of what was earned, never below the floor's percent.
    """

    weights: Mapping[str | int, float] = field(default_factory=dict)
    due: Mapping[int, datetime] = field(default_factory=dict)
    grace: timedelta = timedelta()
    percent_per_day: float = 0.0
    floor: float = 0.0
    overrides: Sequence[Override] = ()

    def left(self, chapter: int, handed_in: datetime | None) -> tuple[float, int]:
        """Return the share that lateness leaves of a chapter's points, and the days begun after its date."""
        late = handed_in - self.due[chapter] - self.grace if handed_in and chapter in self.due else timedelta()
        if late <= timedelta():
            return 1.0, 0
        days = math.ceil(late / DAY)
        return max(1 - days * self.percent_per_day / 100, self.floor / 100, 0.0), days


# --- read from the file -----------------------------------------------------------------------------------------------


def read_policy(path: Path) -> Policy:
    """Return the policy in `[grading]` of a file; one that changes nothing if there is no such part.

    Errors: ValueError that names the file, the key, what was given and what is allowed.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): mend it, or name another file with --course") from error
    part = _Part(data, str(path)).part("grading")
    late = part.part("late")
    policy = Policy(
        weights={
            _chapter_or_id(part.part("weights"), key): part.part("weights").number(key, 0, 1000)
            for key in part.part("weights").data
        },
        due={_chapter(part.part("due"), key): part.part("due").time(key) for key in part.part("due").data},
        grace=timedelta(minutes=late.number("grace_minutes", 0, 100_000, 0)),
        percent_per_day=late.number("percent_per_day", 0, 100, 0),
        floor=late.number("floor_percent", 0, 100, 0),
        overrides=tuple(_override(each) for each in part.parts("override")),
    )
    late.require_known("grace_minutes", "percent_per_day", "floor_percent")
    part.require_known("weights", "due", "late", "override")
    return policy


def _override(part: "_Part") -> Override:
    part.require_known("learner", "exercise", "chapter", "points", "excused", "on_time", "why", "by")
    words = {key: part.value(key, str, "") for key in ("learner", "exercise", "why", "by")}
    if not words["learner"]:
        raise part.wrong("learner", "must name the learner, by id or by name")
    if bool(words["exercise"]) == ("chapter" in part.data):
        raise part.wrong("exercise", "must name an exercise, or `chapter` a chapter, and not both")
    chapter, most = None, 0
    if words["exercise"]:
        if words["exercise"] not in EXERCISES.entries:
            raise part.wrong("exercise", "is no exercise of the course")
        most = EXERCISES.entries[words["exercise"]].points
    else:
        chapter = _chapter(part, str(part.data["chapter"]))
        most = sum(each.points for each in EXERCISES.entries.values() if each.chapter == chapter)
    points = part.number("points", 0, most) if "points" in part.data else None
    excused, on_time = part.value("excused", bool, False), part.value("on_time", bool, False)
    if (points is not None) + excused + on_time != 1:
        raise part.wrong("points", "must be given, or `excused = true`, or `on_time = true`: one of the three")
    if on_time and words["exercise"]:
        raise part.wrong("on_time", "is for a whole chapter: name `chapter` in place of `exercise`")
    return Override(**words, chapter=chapter, points=points, excused=excused, on_time=on_time)


def _chapter(part: "_Part", key: str) -> int:
    """Read a chapter by its number or its name in the course."""
    numbers = {str(number): number for number in range(len(CHAPTERS))}
    numbers |= {chapter.slug: number for number, chapter in enumerate(CHAPTERS)}
    if key not in numbers:
        raise part.wrong(key, "names no chapter: give its number or its name, 2 or attention")
    return numbers[key]


def _chapter_or_id(part: "_Part", key: str) -> str | int:
    return key if key in EXERCISES.entries else _chapter(part, key)


class _Part:
    """A table of the file. Whatever is asked of it is there in the right type, or an error says what should be."""

    def __init__(self, data: Any, where: str):
        if not isinstance(data, dict):
            raise ValueError(f"{where} must be a table, as in the sample solutions/course.toml")
        self.data, self.where = data, where

    def wrong(self, key: str, why: str) -> ValueError:
        given = f" = {self.data[key]!r}" if key in self.data else ""
        return ValueError(f"{self.where}: {key}{given} {why}")

    def require_known(self, *known: str) -> None:
        for key in self.data:
            if key not in known:
                raise self.wrong(key, f"is not known here: {', '.join(known)} are")

    def part(self, key: str) -> "_Part":
        return _Part(self.data.get(key, {}), f"{self.where} [{key}]")

    def parts(self, key: str) -> list["_Part"]:
        found = self.data.get(key, [])
        if not isinstance(found, list):
            raise self.wrong(key, f"must be a list of tables, [[grading.{key}]]")
        return [_Part(each, f"{self.where} [[{key}]] number {i}") for i, each in enumerate(found, start=1)]

    def value(self, key: str, kind: type, default: Any) -> Any:
        value = self.data.get(key, default)
        if type(value) is not kind:
            raise self.wrong(key, f"must be {'true or false' if kind is bool else 'text'}")
        return value

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        value = self.data.get(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most:  # NaN is neither
            return float(value)
        raise self.wrong(key, f"must be a number from {least:g} to {most:g}")

    def time(self, key: str) -> datetime:
        value = self.data.get(key)
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise self.wrong(key, "must be a date and time with its zone, as in 2026-10-05T23:59:00+02:00")
        return value


def read_times(path: Path) -> list[tuple[Learner, datetime]]:
    """Return when each learner handed in: a CSV with the columns of a roster and one of `TIMES`, in ISO 8601 with zone.

    Errors: ValueError that names the line.
    """
    from .roster import read_roster

    sheet = Sheet(path, "a list of when each handed in")
    heads = [head.casefold() for head in sheet.header]
    column = next((heads.index(name) for name in TIMES if name in heads), None)
    if column is None:
        raise ValueError(f"{path} has no column {TIMES[0]!r}: it has {', '.join(sheet.header)}")
    found = []
    for learner in read_roster(path):
        text = sheet.rows[learner.row - 1][column].strip()
        if not text:
            continue
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            time = None
        if time is None or time.tzinfo is None:
            raise ValueError(
                f"line {learner.row} of {path}: {text!r} must be a date and time with its zone, as in "
                "2026-10-05T23:59:00+02:00"
            )
        found.append((learner, time))
    return found


# --- applied ----------------------------------------------------------------------------------------------------------


def apply_policy(
    policy: Policy, marked: Sequence[GradedSubmission], times: Sequence[tuple[Learner, datetime]] = ()
) -> tuple[list[GradedSubmission], list[str]]:
    """Return the submissions with what they count, and in sentences what fits nobody: a person should look.

    times: of `read_times`. Who has none is taken as on time.
    """
    doubts = []
    own: dict[int, list[Override]] = defaultdict(list)
    for override in policy.overrides:
        fits = [i for i, each in enumerate(marked) if override.learner == each.learner]
        fits = fits or [i for i, each in enumerate(marked) if override.learner == each.name]
        if len(fits) == 1:
            own[fits[0]].append(override)
        else:
            whom = "nobody" if not fits else plural(len(fits), "submission")
            doubts.append(f"the override for {one_line(override.learner)} ({override}) fits {whom}")
    when: dict[int, datetime] = {}
    if times:
        roster, people = Roster.of([learner for learner, _ in times]), [time for _, time in times]
        for i, each in enumerate(marked):
            row = roster.owner(each.learner or each.name).row
            row = row if row is not None else roster.owner(each.name).row
            if row is not None:
                when[i] = people[row]
    return [_counted(policy, each, own[i], when.get(i)) for i, each in enumerate(marked)], doubts


def _counted(
    policy: Policy, marked: GradedSubmission, overrides: Sequence[Override], handed_in: datetime | None
) -> GradedSubmission:
    by_exercise = {each.exercise: each for each in overrides if each.exercise}
    by_chapter = {each.chapter: each for each in overrides if each.chapter is not None}
    results, notes = [], [str(each) for each in overrides]
    chapters: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for result in marked.results:
        override, weight = by_exercise.get(result.exercise_id), policy.weights.get(result.exercise_id, 1.0)
        earned: float = result.earned
        if override and override.points is not None:
            earned = override.points
        if override:
            result = replace(result, sentences=(f"A person decided: {override}", *result.sentences))
        results.append(result)
        chapter = EXERCISES.entries[result.exercise_id].chapter
        if not (override and override.excused):
            chapters[chapter][0] += weight * earned
            chapters[chapter][1] += weight * result.points
    for chapter, amounts in chapters.items():
        override = by_chapter.get(chapter)
        left, days = (1.0, 0) if override else policy.left(chapter, handed_in)
        amounts[0] *= left
        if days:
            notes.append(f"chapter {chapter}: {plural(days, 'day')} late, {left:.0%} of the points count")
        if override and override.points is not None:
            raw = sum(each.points for each in EXERCISES.entries.values() if each.chapter == chapter)
            amounts[0] = override.points * amounts[1] / raw if raw else 0.0
        if override and override.excused:
            amounts[:] = 0.0, 0.0
        weight = policy.weights.get(chapter, 1.0)
        amounts[:] = weight * amounts[0], weight * amounts[1]
    weighted = [
        f"{key if isinstance(key, str) else f'chapter {key}'} × {each:g}" for key, each in policy.weights.items()
    ]
    notes += [f"weights: {', '.join(weighted)}"] if weighted else []
    totals = [sum(amounts[i] for amounts in chapters.values()) for i in (0, 1)]
    told = {number: (amounts[0], amounts[1]) for number, amounts in sorted(chapters.items())}
    return replace(marked, results=tuple(results), counted=Counted(totals[0], totals[1], told, tuple(notes)))
