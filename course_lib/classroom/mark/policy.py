"""What points count: weights, lateness and a person's word, as `[grading]` in `course.toml` says (`term`).

The journal keeps what the grader gave. A policy is applied when results are written: it can be changed without grading
again, and what a person decided stands after a re-mark.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from course_lib.classroom.course_file import later_reading
from course_lib.classroom.graded_submission import Counted, GradedSubmission
from course_lib.classroom.read.roster import Learner, Roster, plain_signs
from course_lib.classroom.text import one_line
from course_lib.grading.judge.show import plural
from course_lib.grading.page.catalogue import EXERCISES

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Override:
    """A person's word on one learner's exercise, chapter or total.

    Fields: learner, an id or name · exercise, chapter, total, one of them · points, instead of the grader's: of an
    exercise before weights and lateness, of a chapter before weights, of the total as they count; None: as they are ·
    excused, it does not count for this learner · on_time, no lateness in this chapter, or in all · why, by, as they
    stand there.
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
    """How the points of a class count.

    Fields: weights, by exercise or number of a chapter · due, by chapter, with a zone · grace, percent_per_day, floor:
    after the grace each day begun takes so many percent of what was earned, never below the floor's percent ·
    none_after: after so many days begun nothing counts, whatever the floor; None: never · handed_in, when, by id or
    name · canvas, the gradebook's column of a chapter · zone, of times that name none, and of the calendar that counts
    the days; without it a day is 24 hours.
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
        """Return the share that lateness leaves of a chapter's points, and the days begun after its date."""
        late = handed_in - self.due[chapter] - self.grace if handed_in and chapter in self.due else timedelta()
        if late <= timedelta():
            return 1.0, 0
        days = self._days(self.due[chapter], self.due[chapter] + late)
        if self.none_after is not None and days > self.none_after:
            return 0.0, days
        return max(1 - days * self.percent_per_day / 100, self.floor / 100, 0.0), days

    def _days(self, due: datetime, moment: datetime) -> int:
        """Return the calendar days begun between two moments. A day ends when the clock of the zone shows the due time
        again: after 23 or 25 hours where clocks are changed, and at the later of two such moments."""
        if not self.zone:
            return math.ceil((moment - due) / DAY)
        zone = ZoneInfo(self.zone)
        clock, shown = (each.astimezone(zone).replace(tzinfo=None) for each in (due, moment))
        days = max(math.ceil((shown - clock) / DAY), 1)
        before = later_reading(clock + (days - 1) * DAY, zone)  # in an hour that comes twice, or never, it may be ahead
        return days - 1 if days > 1 and moment <= before else days


def apply_policy(
    policy: Policy,
    marked: Sequence[GradedSubmission],
    times: Sequence[tuple[Learner, datetime]] = (),
    late: Collection[str] = (),
    known: Mapping[str, datetime] | None = None,
    unread: Mapping[str, str] | None = None,
) -> tuple[list[GradedSubmission], list[str]]:
    """Return the submissions with what they count, and in sentences what could not be applied: a person should look.

    Args:
        times: of `read_times`. A submission whose time is not known is taken as on time, and named; where no time is
            known at all, only those that are `late`.
        late: the names of submissions that came late, as Canvas says without saying how late.
        known: of `platform_times`, by the names of submissions; `times` outrank it. unread: why a time that came with a
            submission is not used.
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


# --- whose ------------------------------------------------------------------------------------------------------------


def _whose(key: str, marked: Sequence[GradedSubmission]) -> list[int]:
    """Return the submissions of a learner: by id, and where nobody has it, by name, with whatever signs it is written.

    A number is the name of nobody who has an id: a profile may be called as somebody else's number is.
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
    """Return the overrides of each submission, and what fits nobody, or two, or says two things of one."""
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
            pass  # of a chapter that this run is not about
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
    """Return when each submission was handed in, and whose time is not known although it matters."""
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
        # Canvas marks what is late. Where nothing tells any time, nobody can be late: no failure (`_told`).
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


# --- counted ----------------------------------------------------------------------------------------------------------


def _counted(
    policy: Policy, marked: GradedSubmission, words: Sequence[Override], handed_in: datetime | None
) -> tuple[GradedSubmission, list[str]]:
    """Return the submission with what it counts, and what of the overrides does not fit it."""
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
    """Say whether every exercise of a chapter that has points is excused."""
    own = [
        each.exercise_id
        for each in marked.results
        if each.points and EXERCISES.entries[each.exercise_id].chapter == chapter
    ]
    return bool(own) and all(id in by_exercise and by_exercise[id].excused for id in own)


def _weights(policy: Policy, marked: GradedSubmission) -> list[str]:
    """Return the weights of what this submission was graded on, in a sentence; nothing if there are none."""
    here = _chapters(marked) | {each.exercise_id for each in marked.results}
    told = [
        f"{key if isinstance(key, str) else f'chapter {key}'} × {weight:g}"
        for key, weight in policy.weights.items()
        if key in here
    ]
    return [f"weights: {', '.join(told)}"] if told else []
