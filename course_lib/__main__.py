"""The command line: `python -m course_lib COMMAND`. `--help` lists the commands; each has a module in `cli/`."""

import argparse
import errno
import os
import sys

import course_lib
from course_lib.cli import (
    autograder,
    bench,
    claims,
    doctor,
    glass,
    grade,
    ladder,
    lines,
    missing,
    new,
    plan,
    progress,
    refresh,
    release,
    room,
    site,
    slides,
    speedrun,
    start,
    train,
    weights,
    workflow,
)

COMMANDS = (
    start,
    progress,
    doctor,
    weights,
    train,
    ladder,
    speedrun,
    claims,
    bench,
    glass,
    refresh,
    new,
    plan,
    slides,
    grade,
    room,
    release,
    autograder,
    workflow,
    site,
)  # as `--help` lists them


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course_lib",
        description="Transformers, Measured: commands for learners, teachers and authors.",
        epilog="Start with `python -m course_lib start`. Add `--help` to any command for its explanation.",
    )
    parser.add_argument("--version", action="version", version=f"course_lib {course_lib.__version__}")
    parser.add_argument(
        "--catalogue", metavar="DIR", help="add your own exercises, DIR/slug/name.md (`new exercise` writes one)"
    )
    parser.set_defaults(kept="This run saved nothing.")  # a command replaces this once it has saved something
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return parser


# Errors that no other folder would fix: too many open files, too many processes, no memory.
MACHINES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


def main(argv: list[str] | None = None) -> int:
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a console without a character shows ? instead
    parser = build_parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help()
        return 0
    arguments = parser.parse_args(argv)
    try:
        if arguments.catalogue:
            _add_catalogue(arguments.catalogue)
        with lines.whole_lines():
            status = arguments.run(arguments)
        if sys.stdout:  # None where there is no console
            sys.stdout.flush()
        return status
    except (ValueError, RuntimeError) as error:
        print(f"{arguments.command}: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        what = missing.install(error.name or "", arguments.command)
        if not what:  # not one of the course's packages: a learner's module, or our bug
            raise
        package = str(error.name).partition(".")[0]
        remedy = f"run `python -m pip install {what}` in the course's environment"
        print(f"{arguments.command}: {package} is not installed here: {remedy}", file=sys.stderr)
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            return 141  # as the shell counts it
        if error.errno in MACHINES:
            raise
        what = error.strerror or str(error)
        what = f"{error.filename} cannot be used ({what})" if error.filename else what
        print(f"{arguments.command}: {what}: {arguments.remedy}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nInterrupted. {arguments.kept}", file=sys.stderr)
        return 130


def _add_catalogue(folder: str) -> None:
    """Add a folder of exercises in this process and in every process that it starts."""
    from course_lib.grading.page import catalogue

    catalogue.add_catalogue(folder)
    os.environ[catalogue.VARIABLE] = os.pathsep.join(filter(None, [os.environ.get(catalogue.VARIABLE), folder]))


def _nobody_reads() -> bool:
    """Return whether standard output is a closed pipe, as in `… | head` after head has exited. If so, redirect it to
    the null device, because Python would otherwise report a second error at exit."""
    try:
        print(flush=True)
        return False
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
