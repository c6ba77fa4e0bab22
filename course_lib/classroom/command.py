"""`python -m course_lib grade`: its arguments, and what it says. What it needs is imported when it runs."""

import argparse
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

DESCRIPTION = """\
Grades notebooks of people nobody should trust: their code runs in a sandbox, without network and without your files,
and is judged outside of it, on cases drawn from a fresh secret seed. Every expected exercise gets a result.

What is handed in: a notebook or a zip file is a submission. A folder given alone is one submission if it holds nothing
but one notebook, or notebooks under the course's own file names, and a class otherwise: each notebook, zip file and
folder in it is a submission, with all notebooks below. All else in it is listed as not taken. A zip file given alone is
read as a folder. Of several paths each is a submission. Files that Canvas or Moodle gave one learner's number are one.
"""
EPILOG = """\
examples:
  python -m course_lib grade my_answers.ipynb
  python -m course_lib grade class/ --out results/                    marks, reports for you and for each learner
  python -m course_lib grade class/ --out results/ --resume           go on after an interruption, or after late ones
  python -m course_lib grade class/ --out results/ --chapters 2 4     expect these chapters of everyone
  python -m course_lib grade class.zip --out results/ --moodle Grades.csv
  python -m course_lib grade --plan 500                               how long would 500 submissions take here?

exit status: 0 all graded (whatever the points) · 1 something was not taken, or could not be graded: see what is said,
or the report · 2 it could not begin, or not go on, see what is said: --resume does, when that is mended · 130
interrupted: what was finished is kept in DIR
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("submissions", nargs="*", type=Path, metavar="SUBMISSION", help="a notebook, a zip file or a folder")
    add("--out", type=Path, metavar="DIR", help="keep results here; without it they are only shown")
    add("--plan", type=int, metavar="N", help="grade nothing: measure, and say how long N submissions will take here")

    what = parser.add_argument_group("what is expected of everyone")
    what.add_argument(
        "--chapters",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help="these chapters (default: those that at least half of the submissions are about)",
    )
    what.add_argument("--exercises", nargs="+", default=[], metavar="ID", help="these exercises")

    how = parser.add_argument_group("how")
    how.add_argument(
        "--sandbox",
        choices=("bwrap", "docker", "none"),
        default="bwrap",
        help="bwrap: bubblewrap, the default; docker: a container per notebook; none: no wall, only for notebooks that "
        "you would run yourself (what each promises: solutions/README.md)",
    )
    how.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="workers at a time (default: %(default)s)")
    how.add_argument("--resume", action="store_true", help="go on with the run in DIR; what is graded stays")
    how.add_argument("--seed", type=int, help="draw the cases of an earlier run again (its seed is in DIR/run.json)")
    how.add_argument("--scheduler", default="", metavar="ADDRESS", help="a Dask scheduler, tcp://host:8786, does it")
    how.add_argument("--seconds", type=float, default=0.0, help="computing time of an exercise (default: its own)")
    how.add_argument("--minutes", type=float, default=20.0, help="for a whole submission (default: %(default)g)")
    how.add_argument("--memory", type=float, default=3.0, help="GiB for a submission (default: %(default)g)")

    form = parser.add_argument_group("results in DIR, beside marks.jsonl and report/index.html")
    form.add_argument("--json", action="store_true", help="results.json: everything")
    form.add_argument("--csv", action="store_true", help="results.csv: a row per learner and exercise")
    form.add_argument("--junit", action="store_true", help="junit.xml, as pytest writes it")
    form.add_argument("--gradescope", action="store_true", help="gradescope/NAME/results.json")
    form.add_argument("--classroom50", action="store_true", help="classroom50/NAME/result.json, from its environment")
    form.add_argument(
        "--canvas",
        nargs="?",
        const="",
        metavar="GRADEBOOK",
        help="canvas.csv for import; with an exported GRADEBOOK its rows are filled",
    )
    form.add_argument("--title", default="", help="of the assignment, for --canvas: 'Attention (123)'")
    form.add_argument(
        "--moodle", type=Path, metavar="WORKSHEET", help="moodle.csv: the exported grading worksheet, filled"
    )


def run(arguments: argparse.Namespace) -> int:
    from .quotas import Quotas

    for option, least in (("jobs", 1), ("seconds", 0), ("minutes", 0.01), ("memory", 0.01)):
        if not least <= (value := getattr(arguments, option)) < math.inf:
            raise ValueError(f"--{option} {value:g} must be at least {least}: leave it out for the usual")
    quotas = Quotas(
        exercise_timeout=arguments.seconds, timeout=60 * arguments.minutes, tree=int(arguments.memory * 2**30)
    )
    if arguments.plan is not None:
        return _plan(arguments, quotas)
    _require_usable(arguments)
    from .submissions import find_submissions_and_rest

    return _grade(arguments, quotas, *find_submissions_and_rest(arguments.submissions))


def _require_usable(arguments: argparse.Namespace) -> None:
    if not arguments.submissions:
        raise ValueError("name the submissions: notebooks, zip files, or a folder that holds a class")
    wanted = [name for name in _FORMATS if getattr(arguments, name) not in (False, None)]
    if not arguments.out and (wanted or arguments.resume):
        option = f"--{wanted[0]}" if wanted else "--resume"
        raise ValueError(f"{option} needs a folder for results: add --out results/")
    out = arguments.out and arguments.out.resolve()
    for path in arguments.submissions:
        if out and out.is_relative_to(path.resolve()):
            raise ValueError(f"--out {arguments.out} lies in {path}, as if it were a submission: name a folder outside")
    if arguments.classroom50:
        from course_lib.classroom.export.classroom50 import classroom50_fields

        classroom50_fields()  # what is missing is said before anything is graded
    for path in (arguments.moodle, Path(arguments.canvas) if arguments.canvas else None):
        if path and not path.is_file():
            raise ValueError(f"{path} is not a file: give the one that you exported")


class _Console:
    """Standard output or error that takes all that is said to it, so that no console ends a run: what it has no letters
    for becomes "?", and when nobody listens any more, nothing is said."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # `tqdm` asks for what a terminal can do
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        with self._listening():
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        with self._listening():
            self._stream.flush()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, AttributeError):  # the reader has gone, the disk is full; it is closed, or none
            with suppress(
                OSError, ValueError, AttributeError
            ):  # what waits to be written would be an error when the program ends
                number = self._stream.fileno()
                with open(os.devnull, "wb") as null:
                    os.dup2(null.fileno(), number)


def _grade(arguments: argparse.Namespace, quotas, submissions: list, left: list) -> int:
    from tqdm.auto import tqdm

    from .class_run import expected_exercises, mark_class
    from .folders import LeftOut

    out, err = _Console(sys.stdout), _Console(sys.stderr)
    expected = expected_exercises(submissions, arguments.chapters, arguments.exercises)
    chapters = sorted({each.chapter for each in expected})
    missing = f", {len(left)} not taken" if left else ""
    print(
        f"{len(submissions)} submitted{missing}; expected: {len(expected)} exercises of {_chapters(chapters)}", file=out
    )
    out.flush()
    with ExitStack() as stack:
        folder = arguments.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="course-results-")))
        bar = stack.enter_context(tqdm(total=len(submissions), desc="grading", unit="submission", file=err))
        outcome = mark_class(
            submissions,
            expected,
            folder,
            sandbox=arguments.sandbox,
            jobs=arguments.jobs,
            quotas=quotas,
            resume=arguments.resume,
            seed=arguments.seed,
            scheduler=arguments.scheduler,
            tell=lambda done: bar.update(),
        )
        bar.update(len(submissions) - bar.n)  # those that were known, or are equal to others
    failed = "could not be graded, and not for a fault of its own"
    all_left = [*left, *(LeftOut(name, f"{failed}: {why}") for name, why in outcome.failed.items())]
    paths = []
    try:
        if arguments.out:  # before anything is said
            paths = _write(arguments, outcome.marked, chapters, all_left)
    except OSError as error:
        raise RuntimeError(
            f"{error.filename or arguments.out} cannot be written ({error.strerror}). Every mark is kept: mend it, and "
            "write the rest with --resume"
        ) from error
    finally:
        if outcome.known:
            print(f"{outcome.known} were graded before and stay as they are", file=out)
        print(_table(outcome.marked, len(submissions)), file=out)
        for path in paths:
            print(f"wrote {path}", file=out)
        out.flush()
    for path in paths:
        if path.stem.endswith("_unmatched"):
            print(f"Some submissions found no row: {path} says which, and why.", file=err)
    for each in left:
        print(f"NOT TAKEN: {each.name} {each.why}", file=err)
    for name, why in outcome.failed.items():
        print(f"NOT GRADED, and not for a fault of its own: {name!r}: {why}", file=err)
    if outcome.failed:
        again = "the same command with --resume grades them" if arguments.out else "try again"
        print(f"{len(outcome.failed)} could not be graded by this machine; {again}.", file=err)
    err.flush()
    return 1 if all_left else 0


def _chapters(numbers: list[int]) -> str:
    return f"chapter{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _table(marked: list, submitted: int) -> str:
    from .terminal import terminal_table

    if len(marked) == submitted == 1:
        return _single(marked[0])
    return terminal_table(marked, shutil.get_terminal_size().columns)


def _single(marked) -> str:
    """Return a line per exercise, with the first sentence of the feedback where something is wrong."""
    from course_lib.classroom.export.text import one_line
    from course_lib.grading.result import SIGNS

    lines = []
    for result in marked.results:
        score = f"{result.earned}/{result.points}" if result.points else "–"
        sign, word, _ = SIGNS[result.status]
        lines.append(f"{sign} {result.exercise_id:<32}{score:>6}  {one_line(result.misconception or '')}".rstrip())
        if not result.passed:
            lines.append(f"      {word if result.status == 'unanswered' else one_line(result.sentences[0])}")
    lines += [f"  ! {one_line(trouble)}" for trouble in marked.troubles]
    return "\n".join([*lines, f"{marked.earned} of {marked.points} points"])


_FORMATS = ("json", "csv", "junit", "gradescope", "classroom50", "canvas", "moodle")


def _write(arguments: argparse.Namespace, marked: list, chapters: list[int], left: list) -> list[Path]:
    """Write the report, and every format that was asked for; return the first file of each."""
    from course_lib.classroom.export import canvas, classroom50, gradescope, junit, moodle, results
    from course_lib.classroom.export.text import COURSE
    from course_lib.contents import TITLES

    from .journal import version
    from .report import write_reports

    sandbox = "none: there was no wall around the answers" if arguments.sandbox == "none" else arguments.sandbox
    about = {"chapters": ", ".join(map(str, chapters)), "sandbox": sandbox, "grader": version()}
    written = write_reports(marked, arguments.out, titles=TITLES, about=about, left=left)[:1]
    if arguments.json:
        written += results.write_json(marked, arguments.out, left)
    if arguments.csv:
        written += results.write_csv(marked, arguments.out, left)
    if arguments.junit:
        written += junit.write_junit(marked, arguments.out)
    if arguments.gradescope:
        written += gradescope.write_gradescope(marked, arguments.out)[:1]
    if arguments.classroom50:
        written += classroom50.write_classroom50(marked, arguments.out)[:1]
    if arguments.canvas is not None:
        gradebook = Path(arguments.canvas) if arguments.canvas else None
        written += canvas.write_canvas(marked, arguments.out, arguments.title or COURSE, gradebook=gradebook)
    if arguments.moodle:
        written += moodle.write_moodle(marked, arguments.out, arguments.moodle)
    return written


# --- how long will it take? -------------------------------------------------------------------------------------------


def _plan(arguments: argparse.Namespace, quotas) -> int:
    """Grade a few submissions. The first of each worker also starts it and draws cases, which happens once in a class;
    the others say how fast it goes on."""
    from .class_run import expected_exercises, mark_class
    from .submissions import find_submissions

    count, jobs = arguments.plan, arguments.jobs
    if count < 1:
        raise ValueError(f"--plan {count}: for how many submissions?")
    sample = arguments.submissions or [Path("solutions")]
    if not arguments.submissions and not sample[0].is_dir():
        raise ValueError("name some submissions as a sample, or run this at the top of the course's repository")
    found = find_submissions(sample)[:jobs]
    expected = expected_exercises(found, arguments.chapters, arguments.exercises)
    submissions = [_renamed(found[i % len(found)], i) for i in range(3 * jobs)]
    began, ends = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="course-plan-") as folder:
        outcome = mark_class(
            submissions,
            expected,
            Path(folder) / "plan",
            sandbox=arguments.sandbox,
            jobs=jobs,
            quotas=quotas,
            seed=0,
            tell=lambda done: ends.append(time.monotonic() - began),
        )
    for name, why in outcome.failed.items():
        raise RuntimeError(f"--plan: {name!r} could not be graded: {why}")
    first, each = ends[jobs - 1], (ends[-1] - ends[jobs - 1]) / (2 * jobs)
    print(f"{len(expected)} exercises, {jobs} workers ({arguments.sandbox}):")
    print(f"  {first:6.1f} s  until the first {jobs} are done, with drawing the cases")
    print(f"  {each:6.1f} s  for each further one, that is {60 / max(each, 1e-3):.0f} a minute")
    print(f"  {outcome.peak / 2**20 * jobs:6.0f} MB for the workers at their largest")
    print(f"{count:,} submissions will take about {_duration(first + each * max(0, count - jobs))} on this machine.")
    return 0


def _renamed(submission, number: int):
    """Return the same submission, as if another learner had handed it in with one word changed."""
    from dataclasses import replace

    return replace(submission, name=f"{submission.name} {number}", digest=f"{submission.digest} {number}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
