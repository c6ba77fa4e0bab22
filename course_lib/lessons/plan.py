"""Plan a course from the teacher's notes: the sections and exercises of each session.

A third of each session is for exercises. If there is too little time, the plan first leaves out optional sections, and
then entire chapters, beginning at the end of `FIRST`.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.checks import require_at_least_one
from course_lib.course.contents import BY_SLUG, CHAPTERS, Chapter
from course_lib.grading import EXERCISES
from course_lib.lessons.notes import Note, notes_of

MINUTES = 90  # per session
A_DAY, A_WEEK, A_SHORT_WEEK = 4, 2, 5  # sessions; a course of up to SHORT weeks meets every weekday
SHORT = 3
# A short course keeps the first of these chapters. It still teaches them in the order of their numbers.
FIRST = (
    "start_here",
    "attention",
    "masks",
    "sampling",
    "embeddings",
    "heads",
    "positions",
    "gpt",
    "training",
    "blocks",
    "feed_forward",
    "normalization",
    "efficiency",
    "counting",
    "your_gpt",
    "pretrained",
    "assistant",
    "encoder_decoder",
    "claims",
)

Lesson = tuple[Chapter, Note]


@dataclass(frozen=True)
class Row:
    """Hold the part of a session that belongs to one chapter.

    Fields: notes, the sections; in_class and at_home, the ids of the exercises; whole, whether this is the entire
    chapter; left_out, the sections of the chapter that the course leaves out.
    """

    session: int
    chapter: Chapter
    notes: tuple[Note, ...]
    in_class: tuple[str, ...]
    at_home: tuple[str, ...]
    whole: bool
    left_out: tuple[Note, ...]

    @property
    def minutes(self) -> int:
        """Return the minutes of the sections, without the exercises."""
        return sum(note.minutes for note in self.notes)


def sessions_of(days: int | None = None, weeks: int | None = None) -> int:
    """Return the number of sessions in a course of this many days or weeks. Errors: ValueError for fewer than 1."""
    if days is not None:
        require_at_least_one(days=days)
        return days * A_DAY
    require_at_least_one(weeks=weeks)
    assert weeks is not None
    return weeks * (A_SHORT_WEEK if weeks <= SHORT else A_WEEK)


def course(notebooks: Path, sessions: int, chapters: Collection[int] | None = None) -> list[Row]:
    """Return the rows of a course with this many sessions. chapters: the numbers of its chapters; None for all.

    Errors: as for `notes_of`; ValueError for fewer than 1 session or no chapter.
    """
    require_at_least_one(sessions=sessions)
    first = [slug for slug in FIRST if chapters is None or BY_SLUG[slug].number in chapters]
    if not first:
        raise ValueError(f"chapters must name at least one, from 0 to {CHAPTERS[-1].number}, got {chapters!r}")
    notes = {chapter.slug: _notes(chapter, notebooks) for chapter in CHAPTERS}
    lessons = _chosen(notes, sessions, first)
    taught = next(
        minutes for minutes in range(MINUTES // 3, 2 * MINUTES // 3 + 1) if len(_packed(lessons, minutes)) <= sessions
    )
    return _rows(_packed(lessons, taught), notes)


def _notes(chapter: Chapter, notebooks: Path) -> list[Note]:
    """Return a chapter's notes. Errors: as for `notes_of`; ValueError without notes, as in a learner's copy."""
    if notes := notes_of(chapter, notebooks):
        return notes
    raise ValueError(
        f"{notebooks / chapter.notebook} has no notes for the teacher: plan from the course's repository, not from "
        "a learner's copy"
    )


def _lessons(notes: Mapping[str, Sequence[Note]], slugs: Collection[str], extra: Collection[Note]) -> list[Lesson]:
    """Return the sections of these chapters in course order: the required ones and those in `extra`."""
    return [
        (chapter, note)
        for chapter in CHAPTERS
        if chapter.slug in slugs
        for note in notes[chapter.slug]
        if not note.may_go or note in extra
    ]


def _chosen(notes: Mapping[str, Sequence[Note]], sessions: int, first: Sequence[str]) -> list[Lesson]:
    """Return the lessons that fit: first chapters, from the start of `first`, and then optional sections."""

    def fits(slugs: Collection[str], extra: Collection[Note]) -> bool:
        return len(_packed(_lessons(notes, slugs, extra), 2 * MINUTES // 3)) <= sessions

    count = next(count for count in range(len(first), 0, -1) if fits(first[:count], ()) or count == 1)
    extra: list[Note] = []
    for note in (note for slug in first[:count] for note in notes[slug] if note.may_go):
        if fits(first[:count], [*extra, note]):
            extra.append(note)
    return _lessons(notes, first[:count], extra)


def _packed(lessons: Sequence[Lesson], minutes: int) -> list[list[Lesson]]:
    """Divide the sections into sessions, in order. A section longer than `minutes` gets its own session.

    The section "Check yourself" stays with the section before it.
    """
    packed: list[list[Lesson]] = []
    units: list[list[Lesson]] = []
    for lesson in lessons:
        if units and lesson[1].section == "Check yourself":
            units[-1].append(lesson)
        else:
            units.append([lesson])
    for unit in units:
        if not packed or _minutes(packed[-1]) + _minutes(unit) > minutes:
            packed.append([])
        packed[-1] += unit
    return packed


def _minutes(lessons: Sequence[Lesson]) -> int:
    return sum(note.minutes for _, note in lessons)


def _rows(packed: Sequence[Sequence[Lesson]], notes: Mapping[str, Sequence[Note]]) -> list[Row]:
    taught = {note for lessons in packed for _, note in lessons}
    rows = []
    done: dict[str, int] = {}  # minutes of the chapter so far
    given: dict[str, int] = {}  # exercises of the chapter so far
    for session, lessons in enumerate(packed, start=1):
        free = MINUTES - _minutes(lessons)
        for slug in dict.fromkeys(chapter.slug for chapter, _ in lessons):
            here = tuple(note for chapter, note in lessons if chapter.slug == slug)
            whole = sum(note.minutes for note in notes[slug] if note in taught)
            done[slug] = done.get(slug, 0) + sum(note.minutes for note in here)
            exercises = exercises_of(BY_SLUG[slug])
            # Exercises are spread evenly over the minutes of their chapter.
            due = exercises[given.get(slug, 0) : math.floor(len(exercises) * done[slug] / whole)]
            given[slug] = given.get(slug, 0) + len(due)
            in_class: list[str] = []
            for id in due:
                if EXERCISES[id].minutes <= free:
                    in_class.append(id)
                    free -= EXERCISES[id].minutes
            left = [note for note in notes[slug] if note not in taught] if done[slug] == whole else []
            home = tuple(id for id in due if id not in in_class)
            rows.append(
                Row(session, BY_SLUG[slug], here, tuple(in_class), home, here == tuple(notes[slug]), tuple(left))
            )
    return rows


def exercises_of(chapter: Chapter) -> list[str]:
    """Return the ids of a chapter's exercises, in their order."""
    return [id for id, exercise in EXERCISES.items() if exercise.chapter == chapter.number]


# --------------------------------------------------------------------------------------------------------- as Markdown
def table(rows: Sequence[Row]) -> str:
    """Return a course as a Markdown table, with a line that lists the chapters that it leaves out."""
    lines = [
        "| session | chapter | sections | minutes | exercises in class | at home | skip |",
        "|--:|---|---|--:|---|---|---|",
    ]
    for row in rows:
        skip = [f"{note.number}: {note.skip}" for note in row.notes if note.skip and not note.may_go]
        skip += [f"{note.number} left out" for note in row.left_out]
        cells = (
            str(row.session),
            f"{row.chapter.number} · {row.chapter.title}",
            _span(row),
            str(row.minutes),
            _named(row.in_class),
            _named(row.at_home),
            " ".join(f"{part.rstrip('.')}." for part in skip) or "–",
        )
        lines.append(f"| {' | '.join(cells)} |")
    missing = [chapter for chapter in CHAPTERS if chapter.slug not in {row.chapter.slug for row in rows}]
    if missing:
        names = ", ".join(f"{chapter.number} ({chapter.title})" for chapter in missing)
        lines += ["", f"Not in this course: chapters {names}."]
    return "\n".join(lines)


def _span(row: Row) -> str:
    """Return the sections of a row: "all", or their numbers with consecutive ones joined, such as "1.1–1.3, 1.5"."""
    if row.whole:
        return "all"
    runs: list[list[str]] = []
    for number in (note.number for note in row.notes):
        chapter, _, last = (runs[-1][-1] if runs else "").rpartition(".")
        if chapter and number == f"{chapter}.{int(last) + 1}":
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _named(ids: Sequence[str]) -> str:
    """Return the names of exercises, without their chapter, and the sum of their minutes."""
    names = ", ".join(f"`{id.partition('.')[2]}`" for id in ids)
    return f"{names} ({sum(EXERCISES[id].minutes for id in ids)} min)" if ids else "–"


def sheet(chapter: Chapter, notebooks: Path) -> str:
    """Return the plan of one chapter: each section's minutes, and its note. Errors: as for `notes_of`."""
    notes = _notes(chapter, notebooks)
    lines = [f"# {chapter.number} · {chapter.title}: {sum(note.minutes for note in notes)} minutes"]
    for note in notes:
        minutes, *said = note.lines()
        lines += ["", f"## {note.section} ({minutes})", "", *(f"- {line}" for line in said)]
    if ids := exercises_of(chapter):
        each = "; ".join(f"`{id}` {EXERCISES[id].title}, {EXERCISES[id].minutes} min" for id in ids)
        lines += ["", "## Exercises", "", each]
    return "\n".join(lines)


GUIDE_BEGIN, GUIDE_END = "<!-- courses: written by `python -m course_lib refresh` -->", "<!-- end of courses -->"
COURSES = (
    ("A workshop of one day", "days", 1),
    ("A course of two weeks", "weeks", 2),
    ("A course of ten weeks", "weeks", 10),
)


def guide(text: str, notebooks: Path) -> str:
    """Return the text of the instructor's guide with its three courses updated.

    Errors: ValueError if one of the two lines around the courses is missing.
    """
    before, begin, rest = text.partition(GUIDE_BEGIN)
    _, end, after = rest.partition(GUIDE_END)
    if not (begin and end):
        raise ValueError(f"the guide needs the lines {GUIDE_BEGIN!r} and {GUIDE_END!r}: its courses go between them")
    lines = [""]
    for title, unit, count in COURSES:
        sessions = sessions_of(**{unit: count})
        lines += ["", f"### {title}: {sessions} sessions of {MINUTES} minutes", "", table(course(notebooks, sessions))]
    return before + begin + "\n".join([*lines, "", end]) + after
