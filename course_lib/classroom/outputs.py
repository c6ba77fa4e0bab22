"""Everything that a run writes beside its journal: the report, and the formats that were asked for."""

import argparse
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
    from course_lib.classroom.export import canvas, classroom50, gradescope, junit, moodle, results
    from course_lib.classroom.text import COURSE
    from course_lib.contents import TITLES

    from .journal import scheme_told, version
    from .probe import walls_of
    from .report import write_reflections, write_reports

    sandbox = "none: there was no wall around the answers" if arguments.sandbox == "none" else arguments.sandbox
    about = {"chapters": ", ".join(map(str, chapters)), "sandbox": sandbox, "grader": version()}
    if scheme := scheme_told(arguments.out):
        about["cases"] = scheme
    if walls := walls_of(arguments.out):
        about["wall"] = " | ".join(walls)
    written = write_reports(marked, arguments.out, titles=TITLES, about=about, left=left, manifest=manifest)[:1]
    columns = {number: TITLES[number] for number in chapters} if arguments.columns == "chapters" else None
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
    if arguments.canvas is not None:
        gradebook = Path(arguments.canvas) if arguments.canvas else None
        written += canvas.write_canvas(
            marked,
            arguments.out,
            arguments.title or COURSE,
            gradebook=gradebook,
            chapters=columns,
            named=canvas_columns or {},
        )
    for chapter, worksheet in worksheets(arguments.moodle).items():
        written += moodle.write_moodle(marked, arguments.out, worksheet, None if chapter else columns, chapter)
    return written
