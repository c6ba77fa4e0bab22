"""Everything that a run writes beside its journal: the report, and the formats that were asked for."""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what is needed is imported when it runs
    from .manifest import Line

FORMATS = ("json", "csv", "junit", "gradescope", "classroom50", "canvas", "moodle")


def worksheets(given: Sequence[str] | None) -> dict[int | None, Path]:
    """Return Moodle's worksheets by chapter, as in 2=FILE; one alone may be of all, None.

    Errors: ValueError for several of which it is not said, or said twice, whose they are.
    """
    found: dict[int | None, Path] = {}
    for text in given or ():
        number, equals, name = text.partition("=")
        chapter, path = (int(number), Path(name)) if equals and number.isdecimal() else (None, Path(text))
        if chapter in found or (found and None in (chapter, *found)):
            raise ValueError(f"--moodle {text}: of several worksheets say which chapter each is of, as in 2={path}")
        found[chapter] = path
    return found


def write_results(
    arguments: argparse.Namespace,
    marked: list,
    chapters: list[int],
    left: list,
    manifest: "Sequence[Line]" = (),
    canvas_columns: Mapping[int, str] | None = None,
) -> list[Path]:
    """Write the report, and every format that was asked for; return the first file of each.

    canvas_columns: how the gradebook calls the columns of chapters, where `course.toml` says so.
    """
    from course_lib.classroom.export import classroom50, gradescope, junit, results
    from course_lib.contents import TITLES

    from .journal import version
    from .probe import walls_of
    from .report import write_reflections, write_reports

    sandbox = "none: there was no wall around the answers" if arguments.sandbox == "none" else arguments.sandbox
    about = {"chapters": ", ".join(map(str, chapters)), "sandbox": sandbox, "grader": version()}
    if walls := walls_of(arguments.out):
        about["wall"] = " | ".join(walls)
    written = write_reports(marked, arguments.out, titles=TITLES, about=about, left=left, manifest=manifest)[:1]
    written += write_reflections(marked, arguments.out)
    if arguments.json:
        written += results.write_json(marked, arguments.out, left, manifest, about)
    if arguments.csv:
        written += results.write_csv(marked, arguments.out, left)
    if arguments.junit:
        written += junit.write_junit(marked, arguments.out, about)
    if arguments.gradescope:
        written += gradescope.write_gradescope(marked, arguments.out)[:1]
    if arguments.classroom50:
        written += classroom50.write_classroom50(marked, arguments.out)[:1]
    return written + _write_sheets(arguments, marked, chapters, arguments.out, canvas_columns)


def require_sheets(
    arguments: argparse.Namespace, chapters: list[int], canvas_columns: Mapping[int, str] | None = None
) -> None:
    """Raise what writing the gradebook or a worksheet would raise, before anything is graded: they are filled for a
    class of nobody. Errors: ValueError."""
    with tempfile.TemporaryDirectory(prefix="course-sheets-") as folder:
        _write_sheets(arguments, [], chapters, Path(folder), canvas_columns)


def _write_sheets(
    arguments: argparse.Namespace,
    marked: list,
    chapters: list[int],
    folder: Path,
    canvas_columns: Mapping[int, str] | None,
) -> list[Path]:
    from course_lib.classroom.export import canvas, moodle
    from course_lib.classroom.text import COURSE
    from course_lib.contents import TITLES

    columns = {number: TITLES[number] for number in chapters} if arguments.columns == "chapters" else None
    written = []
    if arguments.canvas is not None:
        gradebook = Path(arguments.canvas) if arguments.canvas else None
        written += canvas.write_canvas(
            marked,
            folder,
            arguments.title or COURSE,
            gradebook=gradebook,
            chapters=columns,
            named=canvas_columns or {},
        )
    for chapter, worksheet in worksheets(arguments.moodle).items():
        written += moodle.write_moodle(marked, folder, worksheet, None if chapter else columns, chapter)
    return written


def told_new_columns(arguments: argparse.Namespace) -> list[str]:
    """Return a sentence for each column that the gradebook of Canvas did not have: Canvas makes an assignment of it."""
    from .export.canvas import columns_of

    if not arguments.canvas:
        return []
    before = columns_of(Path(arguments.canvas))
    remedy = "name it in course.toml under [grading.canvas]" if arguments.columns == "chapters" else "name it: --title"
    others = ", ".join(f"“{each}”" for each in before) or "none"
    return [
        f"made a new column “{each}”, of which Canvas makes a new assignment; to fill an existing one, {remedy} "
        f"(there are: {others})"
        for each in columns_of(arguments.out / "canvas.csv")
        if each not in before
    ]
