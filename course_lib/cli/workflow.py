"""`python -m course_lib workflow`: write a GitHub Actions workflow that grades learners' repositories."""

import argparse
from pathlib import Path

from course_lib.cli.assignment import add_assignment


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "workflow",
        help="write a GitHub Actions workflow that grades learners' repositories",
        description="Writes a workflow for learners' repositories, .github/workflows/grade.yml. It grades each push "
        "and keeps the points in the form that Classroom 50 reads.",
        epilog="Example: python -m course_lib workflow grade.yml --chapters 2 4 --course OWNER/NAME@REF",
    )
    parser.add_argument("file", metavar="FILE", help="file to write: grade.yml; with --classroom50, autograder.py")
    add_assignment(parser)
    parser.add_argument(
        "--classroom50",
        action="store_true",
        help="write Classroom 50's autograder.py instead, for CLASSROOM/autograders/ASSIGNMENT/ in its repository",
    )
    parser.add_argument(
        "--course", required=True, metavar="OWNER/NAME@REF", help="a public repository with the learner's package"
    )
    parser.set_defaults(run=run, remedy="name a file that you may write to")


def run(arguments: argparse.Namespace) -> int:
    """Write the workflow."""
    from course_lib.classroom.autograder import write_classroom50_autograder, write_workflow

    if arguments.classroom50:
        path = write_classroom50_autograder(Path(arguments.file), arguments.chapters, arguments.course, arguments.index)
        print(f'wrote {path}: put it into CLASSROOM/autograders/ASSIGNMENT/, with "apt": ["bubblewrap"] in its runtime')
        return 0
    path = write_workflow(Path(arguments.file), arguments.chapters, arguments.course, arguments.index)
    print(f"wrote {path}: put it into the learners' repositories, as .github/workflows/grade.yml")
    return 0
