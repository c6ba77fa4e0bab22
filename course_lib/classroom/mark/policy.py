"""Apply weights, lateness and manual decisions to points, as set in `[grading]` in `course.toml` (`term`).

The journal keeps the grader's points. A policy is applied when results are written, so it can change without grading
again, and manual decisions survive a new grading run.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from course_lib.classroom.graded_submission import Counted, GradedSubmission
from course_lib.classroom.read.roster import Learner, Roster, plain_signs
from course_lib.classroom.read.times import later_reading
from course_lib.classroom.text import one_line
from course_lib.grading.judge.show import plural
from course_lib.grading.page.catalogue import EXERCISES

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Override:
    """A manual decision on one learner's exercise, chapter or total.

    Fields:
        learner: an id or name.
        exercise, chapter, total: one of these is set.
        points: replace the grader's points; None keeps them. An exercise's points are before weights and lateness, a
            chapter's before weights, and the total's are final.
        excused: the item does not count for this learner.
        on_time: ignore lateness in this chapter, or in all.
        why, by: as written in the file.
    """

    learner: str
    exercise: str = ""
    chapter: int | None = None
    points: float | None = None
    excused: bool = False
    on_time: bool = False
    why: str = ""
    by: str = ""
    total: bool = False

    @property
    def target(self) -> str:
        return self.exercise or ("the total" if self.total else f"chapter {self.chapter}")

    def __str__(self) -> str:
        done = "excused" if self.excused else "taken as on time" if self.on_time else f"set to {self.points:g}"
        told = f": {one_line(self.why)}" if self.why else ""
        return f"{self.target}: {done}{f' by {one_line(self.by)}' if self.by else ''}{told}"


@dataclass(frozen=True)
class Policy:
    """The rules that turn points into a class's final points.

    Fields:
        weights: by exercise or chapter number.
        due: the due date by chapter, with a time zone.
        grace, percent_per_day, floor: after the grace period, each day begun takes this percentage of the earned
            points, but never below the floor's percentage.
        none_after: after this many days begun nothing counts, whatever the floor; None: never.
        handed_in: the time of submission by id or name.
        canvas: the gradebook's column of a chapter.
        zone: for times without a zone, and for counting calendar days; without it, a day is 24 hours.
    """

    weights: Mapping[str | int, float] = field(default_factory=dict)
    due: Mapping[int, datetime] = field(default_factory=dict)
    grace: timedelta = timedelta()
    percent_per_day: float = 0.0
    floor: float = 0.0
    overrides: Sequence[Override] = ()
    none_after: float | None = None
    handed_in: Mapping[str, datetime] = field(default_factory=dict)
    canvas: Mapping[int, str] = field(default_factory=dict)
    zone: str = ""

    def left(self, chapter: int, handed_in: datetime | None) -> tuple[float, int]:
        """Return the fraction of a chapter's points left after lateness, and the days begun after its due date."""
        late = handed_in - self.due[chapter] - self.grace if handed_in and chapter in self.due else timedelta()
        if late <= timedelta():
            return 1.0, 0
        days = self._days(self.due[chapter], self.due[chapter] + late)
        if self.none_after is not None and days > self.none_after:
            return 0.0, days
        return max(1 - days * self.percent_per_day / 100, self.floor / 100, 0.0), days

    def _days(self, due: datetime, moment: datetime) -> int:
        """Return the calendar days begun between two moments.

        A day ends when the zone's clock shows the due time again. When clocks change, that is after 23 or 25 hours, and
        at the later moment if there are two.
        """
        if not self.zone:
            return math.ceil((moment - due) / DAY)
        zone = ZoneInfo(self.zone)
        clock, shown = (each.astimezone(zone).replace(tzinfo=None) for each in (due, moment))
        days = max(math.ceil((shown - clock) / DAY), 1)
        before = later_reading(clock + (days - 1) * DAY, zone)  # in an hour that comes twice or never, it may be ahead
        return days - 1 if days > 1 and moment <= before else days


def apply_policy(
    policy: Policy,
    marked: Sequence[GradedSubmission],
    times: Sequence[tuple[Learner, datetime]] = (),
    late: Collection[str] = (),
    known: Mapping[str, datetime] | None = None,
    unread: Mapping[str, str] | None = None,
) -> tuple[list[GradedSubmission], list[str]]:
    """Return the submissions with their final points, and sentences on rules that could not be applied.

    A person should check these sentences.

    Args:
        times: from `read_times`. A submission without a known time counts as on time, with a note. If no time is known
            at all, only the `late` submissions get a note.
        late: the names of submissions that Canvas marks as late, without saying how late.
        known: from `platform_times`, by the names of submissions; `times` override it.
        unread: why a time that came with a submission is not used.
    """
    words, doubts = _words(policy.overrides, marked)
    when, unknown = _times(policy, marked, times, words, late, known or {}, unread or {})
    doubts += unknown
    counted = []
    for i, each in enumerate(marked):
        done, unfit = _counted(policy, each, words[i], when.get(i))
        counted.append(done)
        doubts += unfit
    return counted, doubts


# --- Learners --------------------------------------------------------------------------------------------------------


def _whose(key: str, marked: Sequence[GradedSubmission]) -> list[int]:
    """Return the submissions of a learner by id, or by name if no one has this id. Punctuation in names is ignored.

    A number is never taken for the name of a learner who has an id, because a profile's name may imitate another's
    number.
    """
    fits, name = [i for i, each in enumerate(marked) if key == each.learner], plain_signs(key)
    return fits or [
        i
        for i, each in enumerate(marked)
        if name == plain_signs(each.name) and not (each.learner and key.strip().isdigit())
    ]


def _named(marked: GradedSubmission) -> str:
    name, id = one_line(marked.name), one_line(marked.learner)
    return f"{name} ({id})" if id and id != name else name


def _fits(count: int) -> str:
    return f"fits {plural(count, 'submission') if count else 'nobody'}"


def _chapters(marked: GradedSubmission) -> set[int]:
    return {EXERCISES.entries[result.exercise_id].chapter for result in marked.results}


def _words(
    overrides: Sequence[Override], marked: Sequence[GradedSubmission]
) -> tuple[dict[int, list[Override]], list[str]]:
    """Return the overrides of each submission, and sentences on those that fit no one or two, or conflict."""
    doubts = []
    own: dict[tuple[int, str], list[Override]] = defaultdict(list)
    for override in overrides:
        fits = _whose(override.learner, marked)
        if len(fits) == 1:
            own[fits[0], override.target].append(override)
        else:
            doubts.append(f"the override for {one_line(override.learner)} ({override}) {_fits(len(fits))}")
    words: dict[int, list[Override]] = defaultdict(list)
    for (i, _), same in own.items():
        override, name = same[0], _named(marked[i])
        if len(same) > 1:
            doubts.append(f"two overrides for {name}, ({same[0]}) and ({same[1]}), are of one thing: neither counts")
        elif override.exercise and override.exercise not in {each.exercise_id for each in marked[i].results}:
            pass  # of a chapter that is not part of this run
        elif override.chapter is None or override.chapter in _chapters(marked[i]):
            words[i].append(override)
    return words, doubts


def _times(
    policy: Policy,
    marked: Sequence[GradedSubmission],
    times: Sequence[tuple[Learner, datetime]],
    words: Mapping[int, Sequence[Override]],
    late: Collection[str],
    known: Mapping[str, datetime],
    unread: Mapping[str, str],
) -> tuple[dict[int, datetime], list[str]]:
    """Return when each submission was handed in, and sentences on unknown times that matter."""
    when = {i: known[each.name] for i, each in enumerate(marked) if each.name in known}
    doubts: list[str] = []
    used: set[int] = set()
    roster = Roster.of([learner for learner, _ in times])
    for i, each in enumerate(marked):
        row = roster.row_of_id(each.learner)
        if row is None and not (each.learner and each.name.strip().isdigit()):
            row = roster.owner(each.name).row
        if row is not None:
            when[i] = times[row][1]
            used.add(row)
    for key, time in policy.handed_in.items():
        fits = _whose(key, marked)
        if len(fits) == 1:
            when[fits[0]] = time
        else:
            doubts.append(f"the time for {one_line(key)} in [grading.handed_in] {_fits(len(fits))}")
    open = []
    for i, each in enumerate(marked):
        decided = {word.chapter for word in words.get(i, ()) if word.chapter is not None}
        total = any(word.total for word in words.get(i, ()))
        if i not in when and not total and (_chapters(each) & policy.due.keys()) - decided:
            open.append(each)
    if late or not (times or policy.handed_in or known or unread):
        # Canvas marks late files. Without any times, no one can be late: nothing failed (`_told`).
        open = [each for each in open if each.name in late]
    for each in open:
        why = "came late, and nothing says how late" if each.name in late else "has no known time"
        if each.name in unread:
            why = f"came with a time that is not used ({unread[each.name]})"
        remedy = "To give a time: --handed-in FILE, or [grading.handed_in] in course.toml"
        doubts.append(f"{_named(each)} {why}: it is taken as on time. {remedy}")
    doubts += [
        f"the time for {one_line(learner.name)}, line {learner.row} of the list of times, fits no submission"
        for row, (learner, _) in enumerate(times)
        if row not in used
    ]
    return when, doubts


# --- Counting --------------------------------------------------------------------------------------------------------


def _counted(
    policy: Policy, marked: GradedSubmission, words: Sequence[Override], handed_in: datetime | None
) -> tuple[GradedSubmission, list[str]]:
    """Return the submission with its final points, and sentences on overrides that do not fit it."""
    by_exercise = {each.exercise: each for each in words if each.exercise}
    by_chapter = {each.chapter: each for each in words if each.chapter is not None}
    total = next((each for each in words if each.total), None)
    results, notes = [], [str(each) for each in words]
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
        amounts = chapters[chapter]
        if not (override and override.excused):
            amounts[0] += weight * earned
            amounts[1] += weight * result.points
    excused = []
    for chapter, amounts in chapters.items():
        override = by_chapter.get(chapter)
        exempt = override or (total and not total.excused)
        left, days = (1.0, 0) if exempt else policy.left(chapter, handed_in)
        amounts[0] *= left
        if days:
            notes.append(f"chapter {chapter}: {plural(days, 'day')} late, {left:.0%} of the points count")
        if override and override.points is not None:
            raw = sum(each.points for each in EXERCISES.entries.values() if each.chapter == chapter)
            amounts[0] = override.points * amounts[1] / raw if raw else 0.0
        if (override and override.excused) or (total and total.excused) or _all_excused(marked, chapter, by_exercise):
            excused.append(chapter)
            amounts[:] = 0.0, 0.0
        weight = policy.weights.get(chapter, 1.0)
        amounts[:] = weight * amounts[0], weight * amounts[1]
    notes += _weights(policy, marked)
    totals, doubts = [sum(amounts[i] for amounts in chapters.values()) for i in (0, 1)], []
    if total and total.points is not None:
        if total.points <= totals[1]:
            totals[0] = total.points
        else:
            notes.remove(str(total))
            doubts.append(f"the override for {_named(marked)} ({total}) is beyond the {totals[1]:g} there are")
    told = {number: (amounts[0], amounts[1]) for number, amounts in sorted(chapters.items())}
    counted = Counted(totals[0], totals[1], told, tuple(notes), tuple(sorted(excused)))
    return replace(marked, results=tuple(results), counted=counted), doubts


def _all_excused(marked: GradedSubmission, chapter: int, by_exercise: Mapping[str, Override]) -> bool:
    """Return whether every exercise of a chapter that has points is excused."""
    own = [
        each.exercise_id
        for each in marked.results
        if each.points and EXERCISES.entries[each.exercise_id].chapter == chapter
    ]
    return bool(own) and all(id in by_exercise and by_exercise[id].excused for id in own)


def _weights(policy: Policy, marked: GradedSubmission) -> list[str]:
    """Return a sentence on the weights of this submission's exercises; nothing if there are none."""
    here = _chapters(marked) | {each.exercise_id for each in marked.results}
    told = [
        f"{key if isinstance(key, str) else f'chapter {key}'} × {weight:g}"
        for key, weight in policy.weights.items()
        if key in here
    ]
    return [f"weights: {', '.join(told)}"] if told else []
