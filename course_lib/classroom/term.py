"""A term as `[course]` in `course.toml` tells it: which chapters when, whose class, on which platform.

`release`, `grade` and whatever else follows a term read it here; what the command line names outranks it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from course_lib.contents import CHAPTERS

from .course_file import Part, chapter_number, read_course_file, zone_of

# What `grade` writes for a platform, as its options call it. Classroom 50 and nbgrader take points from their own runs
# alone: a class that is graded here is a table for them.
PLATFORMS = {
    "canvas": "canvas",
    "moodle": "moodle",
    "gradescope": "gradescope",
    "classroom50": "csv",
    "nbgrader": "csv",
}
ALWAYS = datetime.min.replace(tzinfo=UTC)  # of a chapter without a date


@dataclass(frozen=True)
class Term:
    """What `[course]` says; without it, all chapters from the beginning, and nothing else.

    Fields: chapters, by number the moment, in UTC, from which a chapter is the class's · platform, one of `PLATFORMS`,
    or "" · roster, a CSV of the class · gradebook, Canvas's export or Moodle's worksheet · worksheets, Moodle's by
    chapter, where each is an assignment · columns, "total" or "chapters" · zone, of the dates;
    None: this machine's.
    """

    chapters: Mapping[int, datetime] = field(default_factory=lambda: {each.number: ALWAYS for each in CHAPTERS})
    platform: str = ""
    roster: Path | None = None
    gradebook: Path | None = None
    worksheets: Mapping[int, Path] = field(default_factory=dict)
    columns: str = "total"
    zone: ZoneInfo | None = None

    @property
    def is_dated(self) -> bool:
        """Say whether the file names chapters at all."""
        return self.chapters != Term().chapters

    @property
    def dates(self) -> dict[int, str]:
        """Return the days on which chapters come, by number, in words and in the file's time zone; of no others."""
        days = {number: each.astimezone(self.zone) for number, each in self.chapters.items() if each != ALWAYS}
        return {number: f"{day.day} {day:%B} {day.year}" for number, day in sorted(days.items())}

    def released(self, moment: datetime | None = None) -> list[int]:
        """Return the chapters that the class has by a moment, by default now, in the order of the course."""
        moment = moment or datetime.now(UTC)
        return sorted(number for number, begins in self.chapters.items() if begins <= moment)


def read_term(path: Path | None) -> Term:
    """Return the term of a file; the usual one if there is no file, or no `[course]` in it.

    Paths in it are seen from the file's own folder.
    Errors: ValueError that names the file, the line if it can be told, the key, what was given and what is allowed.
    """
    if path is None:
        return Term()
    whole = read_course_file(path)
    part = whole.part("course")
    part.require_known("chapters", "platform", "roster", "gradebook", "worksheets", "columns")
    platform, columns = part.value("platform", str, ""), part.value("columns", str, "total")
    if platform not in ("", *PLATFORMS):
        raise part.wrong("platform", f"is not known: {', '.join(PLATFORMS)} are; leave it out for none")
    if columns not in ("total", "chapters"):
        raise part.wrong("columns", 'must be "total", one column for all, or "chapters", one for each')
    sheets = part.part("worksheets")
    term = Term(
        platform=platform,
        roster=_file(part, "roster", path.parent),
        gradebook=_file(part, "gradebook", path.parent),
        worksheets={chapter_number(sheets, key): path.parent / sheets.value(key, str, "") for key in sheets.data},
        columns=columns,
        zone=zone_of(whole.part("grading")),
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
