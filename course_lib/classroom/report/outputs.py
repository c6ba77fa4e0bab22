"""Write all files of a run except its journal: the report, and the requested formats.

They are written to a new folder first, and then replace an earlier run's files. Learners who have left the class
disappear, and an interruption leaves complete files and folders.
"""

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.course.files import delete_folder, exchange_folder, restore_folder

if TYPE_CHECKING:  # other imports happen when they are needed
    from course_lib.classroom.read.manifest import Line

FORMATS = ("json", "csv", "junit", "gradescope", "classroom50", "canvas", "moodle")
NEW = ".new"  # the folder for new results
# The files that a run writes into its folders; all others belong to the teacher.
OURS = {
    "report": ("index.html", "reflections.html", "learners/*.html"),
    "gradescope": ("*/results.json",),
    "classroom50": ("*/result.json",),
}
# The files of each format. Those in `RENEWED` only need the marks, so they can be rewritten without a request.
RENEWED = {"json": "results.json", "csv": "results.csv", "junit": "junit.xml", "gradescope": "gradescope"}
OTHERS = ("classroom50", "canvas.csv", "moodle*.csv")


def worksheets(given: Sequence[str] | None) -> dict[int | None, Path]:
    """Return Moodle's worksheets by chapter, as in 2=FILE. A single one may cover all chapters: its key is None.

    Errors: ValueError if one of several has no chapter, or two have the same.
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
    doubts: "Sequence[str]" = (),
) -> list[Path]:
    """Write the report and every format that was requested; return the first file of each.

    Formats that an earlier run wrote are renewed if they only need the marks.

    Args:
        canvas_columns: the names of the chapters' gradebook columns, if `course.toml` sets them.
        doubts: sentences on rules of the policy that could not be applied.

    Errors: ValueError if a folder to be written is a link, which may lead out of `arguments.out`.
    """
    from course_lib.classroom.export import classroom50, gradescope, results
    from course_lib.classroom.mark.journal import scheme_told, version
    from course_lib.classroom.report.pages import write_reflections, write_reports
    from course_lib.classroom.sandbox.probe import walls_of
    from course_lib.course.contents import TITLES

    out = arguments.out
    written: list[Path] = []

    def put(write: Callable[[Path], list[Path]], empty: str = "") -> None:
        with _exchanged(out, empty) as folder:
            made = write(folder)
        written.extend(out / path.relative_to(folder) for path in made)

    def is_wanted(format: str) -> bool:
        return getattr(arguments, format) or (out / RENEWED[format]).exists()

    sandbox = "none: there was no wall around the answers" if arguments.sandbox == "none" else arguments.sandbox
    about = {"chapters": ", ".join(map(str, chapters)), "sandbox": sandbox, "grader": version()}
    if scheme := scheme_told(out):
        about["cases"] = scheme
    if walls := walls_of(out):
        about["wall"] = " | ".join(walls)
    if doubts:
        about["not applied"] = " | ".join(doubts)

    def write_pages(folder: Path) -> list[Path]:
        pages = write_reports(marked, folder, titles=TITLES, about=about, left=left, manifest=manifest)
        return pages[:1] + write_reflections(marked, folder)

    put(write_pages, empty="reflections.csv")
    if is_wanted("json"):
        put(lambda folder: results.write_json(marked, folder, left, manifest, about))
    if is_wanted("csv"):
        put(lambda folder: results.write_csv(marked, folder, left))
    if is_wanted("junit"):
        put(lambda folder: results.write_junit(marked, folder, about))
    if is_wanted("gradescope"):
        put(lambda folder: gradescope.write_gradescope(marked, folder)[:1])
    if arguments.classroom50:
        put(lambda folder: classroom50.write_classroom50(marked, folder)[:1])
    for write, empty in _sheets(arguments, marked, chapters, canvas_columns):
        put(write, empty)
    return written


def require_sheets(
    arguments: argparse.Namespace, chapters: list[int], canvas_columns: Mapping[int, str] | None = None
) -> None:
    """Raise the errors of writing the gradebook or a worksheet before anything is graded. Errors: ValueError.

    It fills them for an empty class.
    """
    with tempfile.TemporaryDirectory(prefix="course-sheets-") as folder:
        for write, _ in _sheets(arguments, [], chapters, canvas_columns):
            write(Path(folder))


def _sheets(
    arguments: argparse.Namespace, marked: list, chapters: list[int], canvas_columns: Mapping[int, str] | None
) -> Iterator[tuple[Callable[[Path], list[Path]], str]]:
    """Yield functions that fill the gradebook and each worksheet in a folder, each with its optional file's name."""
    from course_lib.classroom.export import canvas, moodle
    from course_lib.classroom.text import COURSE
    from course_lib.course.contents import TITLES

    columns = {number: TITLES[number] for number in chapters} if arguments.columns == "chapters" else None
    if arguments.canvas is not None:
        gradebook = Path(arguments.canvas) if arguments.canvas else None
        title, named = arguments.title or COURSE, canvas_columns or {}
        book = partial(canvas.write_canvas, marked, title=title, gradebook=gradebook, chapters=columns, named=named)
        yield book, "canvas_unmatched.csv"
    for chapter, sheet in worksheets(arguments.moodle).items():
        one = partial(
            moodle.write_moodle, marked, worksheet=sheet, chapters=None if chapter else columns, chapter=chapter
        )
        yield one, (f"moodle_{chapter}_unmatched.csv" if chapter else "moodle_unmatched.csv")


def told_new_columns(arguments: argparse.Namespace) -> list[str]:
    """Return a sentence for each new column of the Canvas gradebook, because Canvas makes an assignment of it."""
    from course_lib.classroom.export.canvas import columns_of

    if not arguments.canvas:
        return []
    before = columns_of(Path(arguments.canvas))
    remedy = "name it in course.toml under [grading.canvas]" if arguments.columns == "chapters" else "name it: --title"
    others = ", ".join(f"“{each}”" for each in before) or "none"
    return [
        f"made a new column “{each}”, which Canvas turns into a new assignment; to fill an existing one, {remedy} "
        f"(there are: {others})"
        for each in columns_of(arguments.out / "canvas.csv")
        if each not in before
    ]


def of_an_earlier_run(out: Path, written: Sequence[Path]) -> list[str]:
    """Return the names of results in `out` that this run has not written: they may be of another class."""
    new = {path.relative_to(out).parts[0] for path in written}
    return sorted({path.name for pattern in OTHERS for path in out.glob(pattern)} - new)


@contextmanager
def _exchanged(out: Path, empty: str) -> Iterator[Path]:
    """Provide a new folder, and afterwards replace the files and folders of the same names in `out` by its contents.

    Args:
        empty: the name of an optional file: if it was not written, an earlier one is deleted.
    """
    folder = out / NEW
    delete_folder(folder)  # left by an interrupted run
    folder.mkdir(parents=True)
    try:
        yield folder
        if empty and not (folder / empty).exists():
            (out / empty).unlink(missing_ok=True)
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                restore_folder(out / path.name)
                _carry_over(out / path.name, path, OURS[path.name])
                exchange_folder(path, out / path.name)
            else:
                os.replace(path, out / path.name)
    finally:
        delete_folder(folder)


def _carry_over(old: Path, new: Path, ours: Sequence[str]) -> None:
    """Copy the teacher's own files from an old folder into the new one."""
    from course_lib.classroom.report.pages import is_page

    if old.is_symlink():
        raise ValueError(f"{old} is a link, which may lead anywhere: put a folder in its place, or delete it")
    for path in sorted(old.rglob("*")):
        name = path.relative_to(old)
        is_ours = any(name.match(pattern) and len(name.parts) == pattern.count("/") + 1 for pattern in ours)
        if path.is_symlink() or not (path.is_dir() or (is_ours and (path.suffix != ".html" or is_page(path)))):
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, new / name, follow_symlinks=False)
