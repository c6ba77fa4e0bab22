"""`python -m course_lib plan`: plan a course of days or weeks, or one chapter, from the teacher's notes."""

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "plan",
        help="teachers: plan a course, or one chapter, from the notes in the notebooks",
        description=(
            "Prints a course as a table in Markdown: for each session of 90 minutes its sections, the exercises that "
            "fit into its last third, the homework and what to skip. A day has four sessions; a week has "
            "five in a course of up to three weeks, otherwise two. With --chapter it prints the plan of one lesson: "
            "minutes, the question to ask, what the class will guess, the common mistake. If a course.toml in the "
            "current folder names the chapters of a term, the course is made of these. Everything comes from the cells "
            "in notebooks/ with the tag “teacher”, which learners do not get."
        ),
        epilog="Examples: python -m course_lib plan --days 1 · plan --weeks 10 > course.md · plan --chapter attention",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--days", type=int, metavar="N", help="a workshop of N days")
    which.add_argument("--weeks", type=int, metavar="N", help="a course of N weeks (default: 10)")
    which.add_argument("--chapter", metavar="X", help="the plan of one chapter: its number or its name")
    parser.set_defaults(run=run, remedy="check that it can be read")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    from course_lib.classroom.term import find_course_file, read_term
    from course_lib.cli.start import chapter_of
    from course_lib.lessons import plan

    notebooks = Path.cwd() / "notebooks"
    if arguments.chapter is not None:
        print(plan.sheet(chapter_of(arguments.chapter), notebooks))
        return 0
    weeks = 10 if arguments.weeks is None else arguments.weeks
    term = read_term(find_course_file())
    chapters = sorted(term.chapters) if term.is_dated else None
    print(plan.table(plan.course(notebooks, plan.sessions_of(arguments.days, weeks), chapters)))
    return 0
