"""`python -m course_lib release`: write the package for learners."""

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "release",
        help="teachers: write the package for learners, without solutions and tests",
        description=(
            "Writes notebooks, exercises and the library into a new folder that you can hand out. Solutions and tests "
            "stay here. The catalogue of exercises, with its reference answers and mistakes, is sealed into one file, "
            "so that nobody meets an answer by reading or searching; solutions/README.md says what remains."
        ),
        epilog="Example: python -m course_lib release ../transformers-measured-for-learners",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a folder that is new or empty, outside of the repository")
    parser.set_defaults(run=run, remedy="name a folder that you may write")


def run(arguments: argparse.Namespace) -> int:
    """Write the package and say how large it is."""
    from course_lib.grading.release import release

    folder = Path(arguments.folder)
    files = release(Path.cwd(), folder)
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"wrote {len(files)} files, {size:.0f} MB, to {folder}: no solutions, no tests, the exercises sealed")
    return 0
