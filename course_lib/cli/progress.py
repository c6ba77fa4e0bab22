"""`python -m course_lib progress`: show your progress, as `progress()` does in a notebook."""

import argparse


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "progress",
        help="learners: show the exercises you have tried, your points, and how good your guesses were",
        description=(
            "Prints each chapter with your points and, once you have begun it, each exercise with the attempts and the "
            "last result; below that, how well your guesses and your confidence in them agree. In a notebook "
            "`progress()` shows the same in tables. It reads the record in your user folder, or in the file that the "
            "environment variable COURSE_PROGRESS names, and changes nothing."
        ),
    )
    parser.set_defaults(run=run, remedy="check that it can be read")


def run(arguments: argparse.Namespace) -> int:
    """Print the progress."""
    from course_lib.grading import progress

    print(progress())
    return 0
