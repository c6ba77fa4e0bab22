"""A term as `[course]` in `course.toml` tells it: which chapters when, whose class, on which platform.

`release`, `grade` and whatever else follows a term read it here; what the command line names outranks it.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from course_lib.contents import CHAPTERS

from .course_file import Part, chapter_number, read_course_file, zone_of
from .outputs import FORMATS

# What `grade` writes for a platform, as its options call it. Classroom 50 and nbgrader take points only from their own
# runs, and no file is known that Blackboard or Brightspace would import: for them a graded class is a table.
PLATFORMS = {
    "canvas": "canvas",
    "moodle": "moodle",
    "gradescope": "gradescope",
    "classroom50": "csv",
    "nbgrader": "csv",
    "blackboard": "csv",
    "brightspace": "csv",
}
ALWAYS = datetime.min.replace(tzinfo=UTC)  # of a chapter without a date


@dataclass(frozen=True)
class Term:
    """What `[course]` says; without it, all chapters from the beginning, and nothing else.

    Fields: chapters, by number the moment, in UTC, from which a chapter is the class's · platform, one of `PLATFORMS`,
    or "" · roster, a CSV of the class · gradebook, Canvas's export or Moodle's worksheet · worksheets, Moodle's by
    chapter, where each is an assignment · columns, "total" or "chapters", "" if nothing is said · zone, of
    the dates; None: this machine's.
    """

    chapters: Mapping[int, datetime] = field(default_factory=lambda: {each.number: ALWAYS for each in CHAPTERS})
    platform: str = ""
    roster: Path | None = None
    gradebook: Path | None = None
    worksheets: Mapping[int, Path] = field(default_factory=dict)
    columns: str = ""
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

    def moodle(self, chapters: Sequence[int] | None = None) -> list[str]:
        """Return Moodle's worksheets as `grade --moodle` takes them, by default those that have been exported yet.

        Errors: ValueError if that of one of the `chapters` has not.
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
    """Fill in what the command line of `grade` leaves open; returns in words what came from the file.

    A format that is asked for stands in place of the platform's; without --out there is nothing to write. Canvas gets a
    column for each chapter where chapters have dates: one for all would be another each week.
    Errors: ValueError for a platform that needs a file which is not named.
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
