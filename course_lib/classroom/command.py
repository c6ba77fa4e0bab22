"""Run `python -m course_lib grade`: parse its arguments and print its messages. Imports happen when needed."""

import argparse
import math
import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from course_lib.classroom.report.console import Console, Signalled, ended_by_signals
from course_lib.classroom.report.outputs import FORMATS, worksheets

OWN = (".lock", "marks.jsonl", "run.json")  # a run's own files in the folder of its results, opened in place

DESCRIPTION = """\
Grades notebooks that you should not trust: learners' code runs in a sandbox, without network and without access to your
files. It is judged outside the sandbox, on cases from a fresh secret seed. Every expected exercise gets a result.

A notebook or a zip file is a submission. A folder on its own is one submission if it has one notebook only,
or notebooks under the course's own file names. Otherwise it is a class: each notebook, zip file and folder in it is a
submission, with all notebooks inside, and everything else is listed as not taken. A zip file on its own is read as a
folder. Of several paths, each is a submission. A learning platform's download has one submission for each learner.
With --roster, everything with one learner's number, login, address or name is that learner's submission. First,
a manifest says who was found in which files, who is missing, and what was not taken.
"""
EPILOG = """\
examples:
  python -m course_lib grade my_answers.ipynb
  python -m course_lib grade class/ --out results/                    marks, reports for you and for each learner
  python -m course_lib grade class/ --out results/ --resume           continue after an interruption, or add late ones
  python -m course_lib grade class/ --out results/ --chapters 2 4     expect these chapters of everyone
  python -m course_lib grade class.zip --out results/ --moodle Grades.csv
  python -m course_lib grade class/ --roster Grades.csv --manifest    grade nothing: is everyone there?
  python -m course_lib grade --plan 500                               how long would 500 submissions take here?

exit status: 0 all graded (whatever the points) · 1 something was not taken, is in no row of the roster, could not be
graded, or could not be counted as course.toml says, or a cell with answers did not run (PLEASE LOOK): see the messages
or the report · 2 it could not begin or continue: see the message; --resume continues once the cause is fixed · 129,
130, 143 ended by a signal (SIGHUP, Ctrl-C, SIGTERM): finished results are kept in DIR
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
        help="these chapters (default: each chapter that at least half of the submissions answer; if course.toml lists "
        "the term's chapters, only released ones, and every chapter that is due and that anybody answered)",
    )
    what.add_argument("--exercises", nargs="+", default=[], metavar="ID", help="these exercises")

    who = parser.add_argument_group("who is who, reported in a manifest before anything is graded")
    who.add_argument(
        "--roster",
        type=Path,
        metavar="FILE",
        help="the learners, as CSV: from Canvas, Moodle, Gradescope, GitHub Classroom, or your own with a column ID, "
        "Name or Email. Everything of one learner is one submission, and missing learners are listed",
    )
    who.add_argument(
        "--one-each", action="store_true", help="each item in the folder is one learner's, whatever its contents"
    )
    who.add_argument("--manifest", action="store_true", help="grade nothing: show who was found, in which files")
    who.add_argument("--confirm", action="store_true", help="show the manifest and ask before grading")

    count = parser.add_argument_group("how points are weighted")
    count.add_argument(
        "--course",
        type=Path,
        metavar="FILE",
        help="[grading]: weights, due dates, late rule and overrides; [course]: chapters, roster, platform (default: "
        "course.toml, if there is one here; a sample: solutions/course.toml). Command-line options override it",
    )
    count.add_argument(
        "--handed-in",
        type=Path,
        metavar="FILE",
        help="submission times: CSV with an id and a column 'handed in', or Moodle's grading worksheet; they override "
        "the times in a download",
    )

    how = parser.add_argument_group("how")
    how.add_argument(
        "--sandbox",
        choices=("bwrap", "docker", "none"),
        default="bwrap",
        help="bwrap: bubblewrap, the default; docker: a container per notebook; none: no sandbox, only for notebooks "
        "that you would run yourself (see solutions/README.md)",
    )
    how.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="workers at a time (default: %(default)s)")
    how.add_argument(
        "--salvage",
        choices=("yes", "no", "unfinished"),
        default="yes",
        help="read malformed but unambiguous files, with a note (default); no: be strict; unfinished: as yes, and also "
        "run what is complete above a syntax error in its cell",
    )
    how.add_argument("--resume", action="store_true", help="continue the run in DIR; finished results stay")
    how.add_argument(
        "--seed", type=int, help="generate the cases of an earlier run again (its seed is in DIR/run.json)"
    )
    how.add_argument(
        "--scheduler", default="", metavar="ADDRESS", help="use the workers of a Dask scheduler, tcp://host:8786"
    )
    how.add_argument("--seconds", type=float, default=0.0, help="computing time of an exercise (default: its own)")
    how.add_argument("--minutes", type=float, default=20.0, help="for a whole submission (default: %(default)g)")
    how.add_argument("--memory", type=float, default=3.0, help="GiB for a submission (default: %(default)g)")

    form = parser.add_argument_group("results in DIR, in addition to marks.jsonl and report/index.html")
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
        help="canvas.csv for import; with an exported GRADEBOOK, its rows filled in",
    )
    form.add_argument(
        "--columns",
        choices=("total", "chapters"),
        help="for --canvas and --moodle: one column for all points, or one for each chapter (moodle_chapters.csv)",
    )
    form.add_argument("--title", default="", help="the assignment's title, for --canvas: 'Attention (123)'")
    form.add_argument(
        "--moodle",
        action="append",
        metavar="WORKSHEET",
        help="moodle.csv: the exported grading worksheet, filled in. If each chapter is an assignment: "
        "--moodle 2=Grades-A.csv --moodle 3=Grades-B.csv (moodle_2.csv, moodle_3.csv)",
    )


def run(arguments: argparse.Namespace) -> int:
    from course_lib.classroom.sandbox.quotas import Quotas

    for option, least in (("jobs", 1), ("seconds", 0), ("minutes", 0.01), ("memory", 0.01)):
        if not least <= (value := getattr(arguments, option)) < math.inf:
            raise ValueError(f"--{option} {value:g} must be at least {least}: leave it out for the usual")
    quotas = Quotas(
        exercise_timeout=arguments.seconds, timeout=60 * arguments.minutes, tree=int(arguments.memory * 2**30)
    )
    if arguments.plan is not None:
        from course_lib.classroom.mark.class_run import tell_plan

        return tell_plan(arguments, quotas)
    from course_lib.classroom.read.roster import read_roster
    from course_lib.classroom.read.submissions import find_handed_in
    from course_lib.classroom.term import apply_term, find_course_file, read_term

    course = find_course_file(arguments.course)
    term = read_term(course)
    taken = apply_term(term, arguments)
    _require_usable(arguments)
    learners = read_roster(arguments.roster) if arguments.roster else []
    counting = _counting(arguments)
    salvage, unfinished = arguments.salvage != "no", arguments.salvage == "unfinished"
    handed_in = find_handed_in(arguments.submissions, learners, arguments.one_each, salvage, unfinished)
    if taken:
        print(f"from {course}: {', '.join(taken)}", file=Console(sys.stdout))
    return _grade(arguments, quotas, handed_in, learners, counting, term)


def _counting(arguments: argparse.Namespace):
    """Return the policy and the times of submission that determine the final points; None without either."""
    from course_lib.classroom.mark.policy import Policy
    from course_lib.classroom.read.times import read_times
    from course_lib.classroom.term import find_course_file, read_policy

    path = find_course_file(arguments.course)
    policy = read_policy(path) if path else Policy()
    times = read_times(arguments.handed_in, policy.zone) if arguments.handed_in else []
    if times and not policy.due:
        raise ValueError("--handed-in needs dates to be late of: give them in course.toml, [grading.due]")
    return None if policy == Policy() else (policy, times, path)


def _require_usable(arguments: argparse.Namespace) -> None:
    if not arguments.submissions:
        raise ValueError("name the submissions: notebooks, zip files, or a folder that holds a class")
    wanted = [name for name in FORMATS if getattr(arguments, name) not in (False, None)]
    if not arguments.out and (wanted or arguments.resume):
        option = f"--{wanted[0]}" if wanted else "--resume"
        raise ValueError(f"{option} needs a folder for results: add --out results/")
    out = arguments.out and arguments.out.resolve()
    for path in arguments.submissions:
        if out and out.is_relative_to(path.resolve()):
            raise ValueError(f"--out {arguments.out} lies in {path}, as if it were a submission: name a folder outside")
    if arguments.out:
        require_own(arguments.out)
        from course_lib.classroom.report import pages as report  # noqa: F401  # needs Jinja: report a missing package before grading
    if arguments.classroom50:
        from course_lib.classroom.export.classroom50 import classroom50_fields

        classroom50_fields()  # its errors, too, come before grading
    if arguments.confirm and not (sys.stdin and sys.stdin.isatty()):
        raise ValueError(
            "--confirm asks at a terminal, and there is none: look with --manifest first, then leave it out"
        )
    for path in (
        arguments.course,
        arguments.handed_in,
        arguments.roster,
        *worksheets(arguments.moodle).values(),
        Path(arguments.canvas) if arguments.canvas else None,
    ):
        if path and not path.is_file():
            raise ValueError(f"{path} is not a file: give the one that you exported, or wrote")


def _grade(arguments: argparse.Namespace, quotas, handed_in, learners: list, counting, term) -> int:
    from course_lib.classroom.mark.class_run import expected_exercises
    from course_lib.classroom.mark.journal import LINES
    from course_lib.classroom.read.manifest import chapters as named
    from course_lib.classroom.read.manifest import make_manifest, save_manifest, told
    from course_lib.classroom.report.outputs import require_sheets
    from course_lib.grading.judge.show import plural

    submissions, left, _ = handed_in
    out, err = Console(sys.stdout), Console(sys.stderr)
    asked = arguments.chapters
    if term.is_dated and not (arguments.chapters or arguments.exercises):
        asked = _asked_of_all(submissions, term, counting[0].due if counting else {}, out)
    expected = expected_exercises(submissions, asked, arguments.exercises)
    chapters = sorted({each.chapter for each in expected})
    if arguments.moodle and arguments.moodle == term.moodle():
        arguments.moodle = term.moodle(chapters)
    for chapter in worksheets(arguments.moodle):
        if chapter is not None and chapter not in chapters:  # no zeros for chapters that were not assigned
            raise ValueError(f"--moodle {chapter}=…: {named(chapters)} is graded here; name it with --chapters as well")
    require_sheets(arguments, chapters, counting and counting[0].canvas)
    manifest = make_manifest(handed_in, chapters, learners)
    if len(submissions) > 1 or left or learners or arguments.manifest:
        print(told(manifest, bool(learners), shutil.get_terminal_size().columns), file=out)
    print(f"expected of everyone: {plural(len(expected), 'exercise')} of {named(chapters)}", file=out)
    out.flush()
    if arguments.manifest:
        if arguments.out:
            print(f"wrote {save_manifest(manifest, arguments.out)}", file=out)
        return 1 if any(line.is_doubtful for line in manifest) else 0
    if arguments.confirm and input("Grade these? [y/N] ").strip().casefold() not in ("y", "yes"):
        print("Nothing was graded.", file=out)
        return 1
    try:
        with ended_by_signals():
            outcome = _marked(arguments, quotas, handed_in.submissions, expected, manifest, err)
            return _told(arguments, outcome, handed_in, chapters, manifest, counting, out, err)
    except Signalled as ended:
        said = "Nothing is kept: name a folder with --out, and --resume can go on."
        if arguments.out and (journal := arguments.out / LINES).exists():
            count = journal.read_bytes().count(b"\n")
            kept = f"{plural(count, 'result')} {'is' if count == 1 else 'are'} kept in {arguments.out}"
            said = f"{kept}: the same command with --resume goes on."
        print(f"\nEnded by {ended.number.name}. {said}", file=err, flush=True)
        return 128 + ended.number


def require_own(out: Path) -> None:
    """Raise ValueError if any file of a run in this folder is a link: the run would write to its target."""
    folders = [out / name for name in ("report", "gradescope", "classroom50")]
    for path in [
        *out.glob("*"),
        *(each for folder in folders if not folder.is_symlink() for each in folder.rglob("*")),
    ]:
        if path.is_symlink() and (path in folders or path.parent != out or path.name in OWN):
            raise ValueError(f"{path} is a link: delete it, or name another folder with --out")


def _asked_of_all(submissions: list, term, due, out: Console) -> list[int]:
    """Return the released chapters that are graded for everyone, and print the others that some learners have begun.

    A chapter counts if at least half of the class covers it, or if it is due and at least one submission covers it.
    """
    from course_lib.classroom.mark.class_run import shares
    from course_lib.classroom.read.manifest import chapters as named

    now, has = datetime.now(UTC), term.released()
    found = {chapter: share for chapter, share in sorted(shares(submissions).items()) if chapter in has}
    asked = [each for each, share in found.items() if share >= 0.5 or (each in due and due[each] <= now)]
    if not asked:
        raise ValueError(
            "no chapter that course.toml has released was handed in by half of the class, and none is due: name those "
            "that you mean with --chapters"
        )
    if early := [each for each in found if each not in asked]:
        print(f"not asked yet, since few have begun and it is not due: {named(early)}; --chapters grades it", file=out)
    return asked


def _marked(arguments: argparse.Namespace, quotas, submissions: list, expected: list, manifest: list, err: Console):
    """Grade the class with a progress bar."""
    from tqdm.auto import tqdm

    from course_lib.classroom.mark.class_run import mark_class
    from course_lib.classroom.read.manifest import save_manifest

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
            begun=lambda: arguments.out and save_manifest(manifest, folder),
            tell=lambda done: bar.update(),
            tell_wall=lambda wall: bar.write(wall.sentence, file=err),
        )
        bar.update(len(submissions) - bar.n)  # those already known, or equal to others
    return outcome


def _told(
    arguments: argparse.Namespace,
    outcome,
    handed_in,
    chapters: list,
    manifest: list,
    counting,
    out: Console,
    err: Console,
) -> int:
    """Write the results and print a summary of the class. Return the exit status."""
    from course_lib.classroom.mark.policy import apply_policy
    from course_lib.classroom.read.folders import LeftOut
    from course_lib.classroom.read.times import is_late, platform_times
    from course_lib.classroom.report.outputs import of_an_earlier_run, told_new_columns, write_results
    from course_lib.classroom.text import one_line

    submissions, left, unknown = handed_in
    doubts: list[str] = []
    if counting:
        policy, times, path = counting
        print(f"points count as {path} says: the column `counts`, the report and the files show it", file=out)
        late = {line.name for line in manifest if any(map(is_late, line.files))}
        known, unread = platform_times(submissions, policy.zone) if policy.due else ({}, {})
        if known:
            print(f"when each handed in: the download tells it of {len(known)} of {len(submissions)}", file=out)
        elif policy.due.keys() & {*chapters} and not (times or policy.handed_in or unread):
            print(
                "note: [grading.due] has dates, and nothing tells when anybody handed in: all are taken as on time "
                "(--handed-in, [grading.handed_in])",
                file=out,
            )
        outcome.marked, doubts = apply_policy(policy, outcome.marked, times, late, known, unread)
    failed = "could not be graded, through no fault of its author"
    all_left = [*left, *(LeftOut(name, f"{failed}: {why}") for name, why in outcome.failed.items())]
    paths = []
    try:
        if arguments.out:  # before any output
            columns = policy.canvas if counting else None
            paths = write_results(arguments, outcome.marked, chapters, all_left, manifest, columns, doubts)
    except OSError as error:
        raise RuntimeError(
            f"{error.filename or arguments.out} cannot be written ({error.strerror}). Every mark is kept: "
            "make it writable, and write the rest with --resume"
        ) from error
    finally:
        if outcome.known:
            print(f"{outcome.known} were graded before and stay as they are", file=out)
        print(_table(outcome.marked, len(submissions)), file=out)
        for path in paths:
            print(f"wrote {path}", file=out)
        for told in told_new_columns(arguments) if paths else ():
            print(told, file=out)
        out.flush()
    for path in paths:
        if path.stem.endswith("_unmatched"):
            print(f"Some submissions found no row: {path} says which, and why.", file=err)
    if old := of_an_earlier_run(arguments.out, paths) if arguments.out else []:
        print(
            f"Of an earlier run, and not written again: {', '.join(old)}. Ask for the format again, or delete it.",
            file=err,
        )
    for each in left:
        print(f"NOT TAKEN: {each.name} {each.why}", file=err)
    for doubt in doubts:
        print(f"NOT APPLIED: {doubt}", file=err)
    asks = [f"{one_line(each.name)}: {one_line(ask)}" for each in outcome.marked for ask in each.asks]
    for ask in asks:
        print(f"PLEASE LOOK: {ask}", file=err)
    for name, why in unknown.items():
        print(f"UNKNOWN: {name}: {why}", file=err)
    for name, why in outcome.failed.items():
        print(f"NOT GRADED, through no fault of its author: {name!r}: {why}", file=err)
    if outcome.failed:
        again = "the same command with --resume grades them" if arguments.out else "try again"
        print(f"{len(outcome.failed)} could not be graded by this machine; {again}.", file=err)
    err.flush()
    return 1 if all_left or doubts or asks or any(line.is_doubtful for line in manifest) else 0


def _table(marked: list, submitted: int) -> str:
    from course_lib.classroom.report.terminal import terminal_answers, terminal_table

    if len(marked) == submitted == 1:
        return terminal_answers(marked[0])
    return terminal_table(marked, shutil.get_terminal_size().columns)
