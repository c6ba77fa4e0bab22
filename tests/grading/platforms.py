"""What learning platforms hand to a teacher: the same drawn class, laid out as each of them downloads it.

A layout gives the files of a class, its roster as the platform exports it, and who handed in which things.
"""

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.handed_in import about

HARD = [  # given name, family name
    *(("Ada", "Lovelace"), ("Seán", "O’Brien"), ("Anna-Lena", "Müller"), ("Zoë", "Łukasz"), ("María José", "Núñez")),
    *(("小明", "王"), ("אחמד", "לוי"), ("हिन्दी", "शर्मा"), ("Đorđe", "Živković"), ("Jean", "d'Arc"), ("Anna", "Mu")),
]


class Person(NamedTuple):
    given: str
    family: str
    login: str
    id: str

    @property
    def name(self) -> str:
        return f"{self.given} {self.family}"

    @property
    def email(self) -> str:
        return f"{self.login}@example.org"


class Laid(NamedTuple):
    """files, by path · roster · rows: id in the roster -> the things of the class that are theirs · options of the
    command."""

    files: Mapping[str, str]
    roster: bytes
    rows: Mapping[str, set[str]]
    options: tuple[str, ...] = ()


def people(seed: int) -> list[Person]:
    """Five learners; one has a login of two parts, one of digits, two a name in common."""
    draw = random.Random(seed)
    names = draw.sample(HARD, 4)
    names.append((names[0][0], "Other"))
    numbers = draw.sample(range(10_000, 99_999), 2 * len(names))
    logins = ["a_lovelace", "lovelace", str(numbers.pop()), "xa.y-z", "bo7"]
    draw.shuffle(logins)
    return [Person(*name, login, f"00{number}") for name, login, number in zip(names, logins, numbers)]


def table(*rows: tuple[str, ...], separator: str = ",", encoding: str = "utf-8") -> bytes:
    return "\n".join(separator.join(f'"{cell}"' for cell in row) for row in (*rows, ())).encode(encoding)


def canvas(class_: list[Person]) -> Laid:
    head = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
    rows = [(f"{p.family}, {p.given}", p.id.lstrip("0"), f"S{p.id}", p.login, "A") for p in class_]
    files, found = {}, {}
    for number, p in enumerate(class_, start=900):
        squeezed = "".join(filter(str.isalnum, f"{p.family}{p.given}".lower()))
        late = "_LATE" if number == 901 else ""
        name = f"{squeezed}{late}_{p.id.lstrip('0')}_{number}_02_attention.ipynb"
        files[name], found[p.id.lstrip("0")] = about(3), {name}
    return Laid(files, table(head, ("    Points Possible", "", "", "", ""), *rows), found)


def moodle(class_: list[Person]) -> Laid:
    head = (
        "Identifier", "Full name", "Email address", "Status", "Grade", "Maximum Grade", "Last modified (grade)",
        "Feedback comments",
    )  # fmt: skip
    rows = [(f"Participant {p.id.lstrip('0')}", p.name, p.email, "", "", "10.00", "-", "") for p in class_]
    folders = {p.id.lstrip("0"): f"{p.name}_{p.id.lstrip('0')}_assignsubmission_file" for p in class_}
    files = {f"{folder}/02_attention.ipynb": about(3) for folder in folders.values()}
    return Laid(files, table(head, *rows, encoding="utf-8-sig"), {id: {each} for id, each in folders.items()})


RECEIPT = """Name: {name} ({login})
Assignment: Homework_2
Date Submitted: Monday, October 5, 2026 11:58:12 PM CEST
Current Grade: Not Graded Yet

Submission Field:
Name: Mal Yard (mal)

Comments:
There are no student comments for this assignment.

Files:
\tOriginal filename: 02_attention.ipynb
"""


def blackboard(class_: list[Person]) -> Laid:
    """The assignment's name has underscores, as some logins have; one learner tried twice, one wrote only a text."""
    head = ("Last Name", "First Name", "Username", "Student ID", "Last Access", "Availability", "Homework_2 |664617")
    rows = [(p.family, p.given, p.login, p.id, "2026-10-06", "Yes", "") for p in class_]
    files, found = {}, {}
    for number, p in enumerate(class_):
        attempts = ["2026-10-04-08-00-00", "2026-10-05-23-58-12"] if number == 1 else ["2026-10-05-23-58-12"]
        found[p.id] = set()
        for attempt in attempts:
            start = f"Homework_2_{p.login}_attempt_{attempt}"
            files[f"{start}.txt"] = RECEIPT.format(name=p.name, login=p.login)
            if number != 2:
                files[f"{start}_02_attention.ipynb"] = about(3)
            found[p.id].add(f"{start}.txt" if number == 2 else f"{start}_02_attention.ipynb")
    return Laid(files, table(head, *rows, separator="\t", encoding="utf-16"), found)


def brightspace(class_: list[Person]) -> Laid:
    head = (
        "OrgDefinedId",
        "Username",
        "Last Name",
        "First Name",
        "Email",
        "Homework 2 Points Grade",
        "End-of-Line Indicator",
    )
    rows = [(f"#{p.id}", f"#{p.login}", p.family, p.given, p.email, "", "#") for p in class_]
    files, found = {"index.html": "<p>Homework 2"}, {}
    for number, p in enumerate(class_, start=397_063):
        folder = f"{number}-2557369 - {p.name} - Oct 5, 2026 1159 PM"
        files[f"{folder}/02_attention.ipynb"], found[p.id] = about(3), {folder}
    again = f"397063-2557369 - {class_[0].name} - Oct 6, 2026 1201 AM"
    files[f"{again}/03_masks.ipynb"] = about(4)
    found[class_[0].id].add(again)
    return Laid(files, table(head, *rows), found)


def gradescope(class_: list[Person]) -> Laid:
    """The last two handed in as a group: the submission is in the row of each."""
    head = ("First Name", "Last Name", "SID", "Email", "Role")
    rows = [(p.given, p.family, p.id, p.email, "Student") for p in class_]
    told, files, found = ["---"], {}, {}
    for number, group in enumerate([*([p] for p in class_[:-2]), class_[-2:]], start=1001):
        told += [f"submission_{number}:", "  :submitters:"]
        for p in group:
            told += [f'  - :name: "{p.name}"', f"    :sid: '{p.id}'", f"    :email: {p.email}"]
            found[p.id] = {f"submission_{number}"}
        told += ["  :created_at: 2026-10-05 21:58:12.000000000 Z", "  :score: 0.0", "  :extra: !ruby/object:Set {}"]
        files[f"submission_{number}/02_attention.ipynb"] = about(3)
    files["submission_metadata.yml"] = "\n".join(told) + "\n"
    return Laid(files, table(head, *rows, ("Tea", "Cher", "1", "t@example.org", "Instructor")), found)


def github(class_: list[Person]) -> Laid:
    head = ("identifier", "github_username", "github_id", "name")
    rows = [(p.id, p.login.replace("_", "-"), "", "") for p in class_]
    folders = {p.id: f"attention-{p.login.replace('_', '-')}" for p in class_}
    files = {f"{folder}/exercises/02_attention.ipynb": about(3) for folder in folders.values()}
    return Laid(files, table(head, *rows), {id: {each} for id, each in folders.items()})


def nbgrader(class_: list[Person]) -> Laid:
    rows = [(p.login, p.given, p.family, p.email) for p in class_]
    files = {f"{p.login}/attention/02_attention.ipynb": about(3) for p in class_}
    files |= {f"{p.login}/attention/timestamp.txt": "2026-10-05 21:58:12 UTC" for p in class_}
    return Laid(files, table(("id", "first_name", "last_name", "email"), *rows), {p.login: {p.login} for p in class_})


def plain(class_: list[Person]) -> Laid:
    """By name, by last name first, by login, by number, by address: as they came in."""
    names = [
        lambda p: f"{p.name}.ipynb", lambda p: f"{p.family}, {p.given} - 02_attention.ipynb",
        lambda p: f"{p.login}_02_attention.ipynb", lambda p: f"{p.id}/02_attention.ipynb",
        lambda p: f"{p.email}/02_attention.ipynb",
    ]  # fmt: skip
    paths = {p.id: name(p).replace("’", "'") for p, name in zip(class_, names)}
    files = dict.fromkeys(paths.values(), about(3))
    rows = [(p.id, p.name, p.family, p.given, p.email) for p in class_]
    return Laid(
        files,
        table(("Student ID", "Name", "Last name", "First name", "Email"), *rows),
        {id: {path.partition("/")[0]} for id, path in paths.items()},
    )


# By the name in the guide's table.
LAYOUTS: dict[str, Callable[[list[Person]], Laid]] = {
    "Canvas": canvas,
    "Moodle": moodle,
    "Blackboard": blackboard,
    "Brightspace": brightspace,
    "Gradescope": gradescope,
    "GitHub Classroom, Classroom 50": github,
    "nbgrader": nbgrader,
    "Plain folder": plain,
}
