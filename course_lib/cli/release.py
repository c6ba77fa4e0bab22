"""`python -m course_lib release`: write the package for learners, or update one."""

import argparse
import re
import shlex
from collections import Counter
from datetime import UTC, date, datetime, time
from pathlib import Path

from course_lib.course.contents import CHAPTERS, named, released


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "release",
        help="teachers: write the package for learners, without solutions and tests",
        description=(
            "Writes notebooks, exercises and the library into a folder that you can give to learners, without\n"
            "solutions and tests. The exercises' reference answers and mistakes are sealed into one file, so that no\n"
            "one comes across an answer by reading or searching; solutions/README.md says what learners can still see."
        ),
        epilog=(
            "Examples:\n"
            "  python -m course_lib release ../for-learners                  the course, or what course.toml says\n"
            "  python -m course_lib release ../for-learners --chapters 0-2   these chapters; the others get a "
            "placeholder\n"
            "  python -m course_lib release ../for-learners --update         what is due by today\n"
            "  python -m course_lib release ../for-learners --update --on 2026-10-12\n\n"
            "The chapters are those of --chapters; otherwise those of [course.chapters] in course.toml, up to today "
            "or\n"
            "--on; otherwise those in the package already; otherwise all. What is released stays released.\n\n"
            "With git: make FOLDER a repository that learners clone. After each release commit it and push:\n"
            '  git -C FOLDER add --all && git -C FOLDER commit -m "Week 2" && git -C FOLDER push\n'
            "Learners fetch it with `python -m course_lib start --pull`, and keep their work.\n\n"
            "On a JupyterHub with nbgitpuller, --hub prints the link for learners and writes it into the README:\n"
            "  python -m course_lib release ../for-learners --update --hub https://hub.example.org"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a folder outside the repository")
    parser.add_argument(
        "--chapters", nargs="+", metavar="N", default=[], help="these chapters, by number, name or range: 0-4 sampling"
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="update a package in FOLDER: replace unedited files, and keep edited ones with the newer version next to "
        "them",
    )
    parser.add_argument(
        "--course", type=Path, metavar="FILE", help="the term (default: course.toml, if there is one here)"
    )
    parser.add_argument("--on", type=date.fromisoformat, metavar="DATE", help="release as if today were this date")
    parser.add_argument(
        "--hub",
        metavar="ADDRESS",
        help="your JupyterHub: print the link with which nbgitpuller fetches the package there (default: hub in "
        "course.toml)",
    )
    parser.add_argument(
        "--repository",
        metavar="ADDRESS",
        help="the repository in that link (default: where FOLDER is pushed to, its remote origin)",
    )
    parser.set_defaults(run=run, remedy="name a folder that you may write to")


def run(arguments: argparse.Namespace) -> int:
    """Write the package and print its contents and the changes."""
    from course_lib.classroom.term import find_course_file, read_term
    from course_lib.course.hub_link import hub_link, origin
    from course_lib.grading.page.package import release

    folder, path = arguments.folder, find_course_file(arguments.course)
    term = read_term(path)
    end = datetime.combine(arguments.on, time.max, term.zone).astimezone(UTC) if arguments.on else None
    chapters = chapters_of(arguments.chapters) or (term.released(end) if term.is_dated else None)
    if chapters is None and arguments.update:
        chapters = released(folder / "course_lib")
    before, hub = released(folder / "course_lib") or [], arguments.hub or term.hub
    remote, branch = origin(folder)
    repository = arguments.repository or remote

    def link(number: int) -> str:
        return hub_link(hub, repository, branch or "main", f"notebooks/{CHAPTERS[number].notebook}")

    first = link(0) if hub and repository else ""  # or an error, before anything is written
    arguments.kept = "The files that were written are kept; the same command with --update continues."
    handed = release(Path.cwd(), folder, chapters, term.dates, arguments.update, first)
    holds = released(folder / "course_lib") or []
    size = sum(each.path.stat().st_size for each in handed if each.done != "removed") / 1e6
    done = Counter(each.done for each in handed)
    if done["given"] == len(handed):
        print(f"wrote {len(handed)} files, {size:.0f} MB, to {folder}: no solutions, no tests, the exercises sealed")
    else:
        told = [
            f"{done[kind]} {word}" for kind, word in (("given", "new"), ("renewed", "updated"), ("removed", "removed"))
        ]
        print(f"{folder}: {', '.join(told)}, {done['kept']} unchanged")
    for each in handed:
        if each.done == "beside":
            print(f"{each.name} has been edited, so it stays; the newer version is next to it, as {each.path.name}")
    print(f"it has {named(holds)}{f', as {path} says' if path and not arguments.chapters and term.is_dated else ''}")
    coming = [f"chapter {number} on {when}" for number, when in term.dates.items() if number not in holds]
    if coming:
        print(f"still to come: {', '.join(coming)}")
    if (folder / ".git").exists() and done["kept"] < len(handed):
        git = f"git -C {shlex.quote(str(folder))}"
        print(f'to hand it out: {git} add --all && {git} commit -m "{named(holds).capitalize()}" && {git} push')
    if first:
        opened = next((each for each in holds if each not in before), (holds or [0])[0])
        print(f"the link for learners on the hub, which opens chapter {opened}:\n  {link(opened)}")
    elif hub:
        print(
            "no link for the hub yet: it needs the address of the repository that learners will clone. Make "
            f"{folder} a repository with a remote, or give --repository ADDRESS; then run this again with --update"
        )
    return 0


def chapters_of(words: list[str]) -> list[int]:
    """Return the chapter numbers for words such as "0-4", "2" or "sampling", which commas may separate.

    Errors: ValueError for a word that is not a chapter.
    """
    numbers = {each.slug: each.number for each in CHAPTERS} | {str(each.number): each.number for each in CHAPTERS}
    found = set()
    for word in filter(None, re.split(r"[\s,]+", " ".join(words))):
        first, dash, last = (word, "", word) if word in numbers else word.partition("-")
        if first not in numbers or last not in numbers or (dash and numbers[first] > numbers[last]):
            raise ValueError(
                f"--chapters {word} is not a chapter: write numbers from 0 to {CHAPTERS[-1].number}, names such as "
                f"{CHAPTERS[2].slug}, or a range such as 0-4"
            )
        found |= {*range(numbers[first], numbers[last] + 1)}
    return sorted(found)
