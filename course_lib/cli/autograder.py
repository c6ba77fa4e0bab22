"""`python -m course_lib autograder`: make the autograder zip for Gradescope."""

import argparse
from pathlib import Path

from course_lib.cli.assignment import add_assignment


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "autograder",
        help="make the autograder zip for Gradescope",
        description="Writes the zip file that is the autograder of a programming assignment on Gradescope. It contains "
        "the reference answers. solutions/README.md says which settings it needs.",
        epilog="Example: python -m course_lib autograder attention.zip --chapters 2",
    )
    parser.add_argument("file", metavar="FILE.zip")
    add_assignment(parser)
    parser.set_defaults(run=run, remedy="name a file that you may write to")


def run(arguments: argparse.Namespace) -> int:
    """Write the zip."""
    from course_lib.classroom.autograder import write_autograder

    path = write_autograder(Path.cwd(), Path(arguments.file), arguments.chapters, arguments.index)
    print(f"wrote {path}: upload it as the autograder of a programming assignment. It has the reference answers.")
    return 0
