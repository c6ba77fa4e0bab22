"""`python -m course_lib grade`: grade one notebook or a class; `course_lib.classroom` has the code."""

import argparse

from course_lib.classroom import command


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser("grade", help="grade a notebook, or a whole class, in a sandbox")
    command.add_arguments(parser)
    parser.set_defaults(run=command.run, remedy="name a folder that you may write with --out")
