"""What a learning platform lays beside the hand-ins of a class: whose each is, and when it came.

Blackboard lays a receipt (.txt) beside each attempt, Gradescope one list for all (submission_metadata.yml), Brightspace
a page (index.html), and writes the time into the folder's name. None of these is anybody's hand-in.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from course_lib.classroom.file_names import ATTEMPT, BRIGHTSPACE_DOWNLOAD, downloads
from course_lib.classroom.read.folders import File, Folder, Item, LeftOut, Refused
from course_lib.classroom.read.roster import Learner

GRADESCOPE = "submission_metadata.yml"
LARGEST_LIST = 64_000_000  # bytes: Gradescope's holds all results of an autograder, too
RECEIPT_HEAD = 2_000  # bytes: whose, what and when; below it stands what the learner wrote


class Person(NamedTuple):
    """Somebody as a platform knows them. ids: numbers, logins and addresses, of which it gives nobody two."""

    ids: tuple[str, ...]
    name: str


@dataclass(frozen=True)
class Told:
    """What a platform says of one thing in a class: whose it is, of a group all, and when it came, as it writes it."""

    people: tuple[Person, ...] = ()
    time: str = ""


def told_beside(items: Sequence[Item]) -> tuple[list[Item], dict[str, Told]]:
    """Return what was handed in, without what the platform laid beside it; and by name what that says.

    A receipt without a file is the hand-in of somebody who sent none, and becomes an empty folder. A list that is not
    as Gradescope writes it is left out, with the reason.
    """
    names = [each.name for each in items]
    told = {name: Told(time=_time_of(folder[3])) for name in names if (folder := BRIGHTSPACE_DOWNLOAD.fullmatch(name))}
    left: list[Item] = []
    for item in items:
        attempt = ATTEMPT.search(item.name)
        is_receipt = attempt and item.name[attempt.end() :] == ".txt" and len(downloads(item.name)) == 1
        if isinstance(item, File) and attempt and is_receipt:
            said = _receipt(item)
            files = [name for name in names if name.startswith(f"{item.name[: attempt.end()]}_")]
            told |= dict.fromkeys(files or [item.name], said)
            left += [] if files else [_folder_of(item)]
        elif isinstance(item, File) and item.name == GRADESCOPE and any(map(_is_gradescopes, names)):
            try:
                told |= _gradescope(item)
            except Refused as refused:
                left.append(LeftOut(item.name, str(refused)))
        elif not (item.name == "index.html" and any(map(BRIGHTSPACE_DOWNLOAD.fullmatch, names))):
            left.append(item)
    return left, told


def _folder_of(file: File) -> Folder:
    return Folder(file.name, lambda: [file])


def people_of(told: dict[str, Told]) -> list[Learner]:
    """Return everybody whom a platform names, as if its list were a roster."""
    people = dict.fromkeys(person for each in told.values() for person in each.people)
    return [Learner(next(iter(each.ids), each.name), each.name, each.ids[1:]) for each in people]


def _time_of(folder: str) -> str:
    """Return a time as Brightspace writes it elsewhere: in a folder's name it has no colon."""
    return re.sub(r"([0-9]{1,2})([0-9]{2})( [AP]M)?$", r"\1:\2\3", folder)


def _receipt(file: File) -> Told:
    """Read the login and the time on a receipt of Blackboard: in its first lines, which nobody else writes."""
    text = ""
    with suppress(Exception), file.open() as stream:  # a damaged archive raises nearly anything
        text = stream.read(RECEIPT_HEAD).decode("utf-8-sig", "replace")
    whose = re.match(r"\s*[^\n:]+: *(?P<name>[^\n]*) \((?P<login>[^\n()]+)\)[ \r]*\n", text)
    if not whose:
        return Told()
    time = re.match(r"[^\n]*\n[^\n]*\nDate Submitted: *([^\r\n]+)", text[whose.end("name") :])
    return Told((Person((whose["login"].strip(),), whose["name"].strip()),), time[1].strip() if time else "")


def _is_gradescopes(name: str) -> bool:
    return bool(re.fullmatch(r"submission_[0-9]+", name))


def _gradescope(file: File) -> dict[str, Told]:
    """Read Gradescope's list: Ruby's symbols as keys, several submitters of a group. Errors: Refused."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """A safe loader that passes by what only Ruby could make."""

    Loader.add_multi_constructor("!", lambda loader, tag, node: None)
    try:
        listed = yaml.load(file.read(LARGEST_LIST, lambda size: None), Loader)
        return {str(name): _submitted(each) for name, each in listed.items() if _is_gradescopes(str(name))}
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Refused(f"is not the list that Gradescope exports ({type(error).__name__}): export it again") from error


def _submitted(entry: dict) -> Told:
    people = []
    for each in entry[":submitters"] or ():
        ids = [str(each.get(key) or "").strip() for key in (":sid", ":email")]
        name = str(each.get(":name") or "").strip()
        people.append(Person(tuple(filter(None, ids)), name))
    time = entry.get(":created_at")
    return Told(tuple(people), time.isoformat() if isinstance(time, datetime) and time.tzinfo else "")
