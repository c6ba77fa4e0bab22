"""Read what learning platforms add to a class's submissions: who submitted what, and when.

A platform writes the learner into the name of each downloaded file. Blackboard adds a receipt (.txt) to each attempt.
Gradescope adds one list for all learners (submission_metadata.yml). Brightspace adds a page (index.html) and writes the
time into the folder's name. None of these added files is a submission.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from course_lib.classroom.read.folders import File, Folder, Item, LeftOut, Refused
from course_lib.course.contents import CHAPTERS

STEMS = tuple(chapter.slug for chapter in CHAPTERS[1:])  # of the exercise notebooks, by chapter, from 1
COURSE_FILE = "|".join(rf"0?{number}_{stem}" for number, stem in enumerate(STEMS, start=1))

# These look ahead, so that no match hides the next one. In Canvas, the second number belongs to the file. A file name
# of the course, a date with a time, and 3_1 in a group's first submission contain no such number.
MOODLE_DOWNLOAD = re.compile(r"(?=_([0-9]+)_assignsubmission_(?:file_)?()(.*))", re.DOTALL)
DATE = "20[0-9]{2}[01][0-9][0-3][0-9]_(?:[0-9]{4}|[0-9]{6})_"
CANVAS_DOWNLOAD = re.compile(rf"(?=_(?!{DATE})([0-9]{{2,}})_(?!{COURSE_FILE})([0-9]+)_(.*))", re.DOTALL | re.IGNORECASE)
# Blackboard: ASSIGNMENT_LOGIN_attempt_2026-10-05-23-58-12_x.ipynb, and .txt for the receipt. Brightspace, a folder:
# 397063-2557369 - Ada Lovelace - Oct 5, 2026 1159 PM. Its second number is the assignment's or the learner's.
ATTEMPT = re.compile(r"_attempt_20[0-9]{2}(?:-[0-9]{2}){5}(?=_|\.txt$)(?:_(.*))?", re.DOTALL)
DAY = r"(?:[^\W\d]+\.? [0-9]{1,2}|[0-9]{1,2}\.? [^\W\d]+\.?),? 20[0-9]{2}"
BRIGHTSPACE_DOWNLOAD = re.compile(rf"([0-9]+-[0-9]+ - (.+)) - ({DAY} [0-9]{{3,4}}(?: [AP]M)?)")
GRADESCOPE = "submission_metadata.yml"
LARGEST_LIST = 64_000_000  # bytes: Gradescope's list also contains all results of an autograder
RECEIPT_HEAD = 2_000  # bytes: name, assignment and time; the learner's own text follows


class Download(NamedTuple):
    """A file's name as a learning platform writes it for the teacher.

    Moodle's is Full Name_12345_assignsubmission_file_x.ipynb, and Canvas's is lastfirst_12345_678_x.ipynb.

    Fields:
        rest: the file's own name.
        file: its number, if it has one.
        called: the learner's login or name, if the platform gives it instead of a number.
    """

    learner: str
    number: str
    file: str
    rest: str
    called: str = ""


def downloads(name: str, *kinds: re.Pattern) -> list[Download]:
    """Return all readings of a name as a download; nothing if it is not one.

    If there are several, the name does not show which number counts: learners may choose the text before it (a name in
    a profile) and after it (the name of a file).
    """
    name = name[:1000]
    marks = next(
        (found for kind in kinds or (MOODLE_DOWNLOAD, CANVAS_DOWNLOAD) if (found := list(kind.finditer(name)))), []
    )
    late = re.compile("[-_]late$", re.IGNORECASE)  # Canvas adds this after the learner's name
    meant = [Download(late.sub("", name[: each.start()]), *each.groups()) for each in marks]
    if kinds:
        return meant
    if folder := BRIGHTSPACE_DOWNLOAD.fullmatch(name):
        meant.insert(0, Download(folder[1], "", "", "", folder[2]))
    if attempt := ATTEMPT.search(name):  # the first match: the learner chooses the text after it
        before = name[: attempt.start()]
        is_canvas = bool(marks) and marks[0].re is CANVAS_DOWNLOAD
        if is_canvas and marks[0].start() > attempt.start():
            meant = []
        # Both parts may contain an underscore. With several, the beginning of the login is unknown.
        login = before.partition("_")[2] if before.count("_") == 1 else ""
        meant.insert(0, Download(before, "", "", attempt[1] or "", login))
    return meant


class Person(NamedTuple):
    """A person as a platform lists them. ids: numbers, logins and addresses, each unique to one person."""

    ids: tuple[str, ...]
    name: str


@dataclass(frozen=True)
class Told:
    """A platform's information on one item of a class: its learner or group, and its time as written there."""

    people: tuple[Person, ...] = ()
    time: str = ""


def told_beside(items: Sequence[Item]) -> tuple[list[Item], dict[str, Told]]:
    """Return the submissions without the platform's own files, and the information in those files by item name.

    A receipt without a file means that the learner sent no file: it becomes an empty folder. A list that is not in
    Gradescope's format is left out, with the reason.
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


def _time_of(folder: str) -> str:
    """Return a folder's time in the form that Brightspace uses elsewhere, with a colon."""
    return re.sub(r"([0-9]{1,2})([0-9]{2})( [AP]M)?$", r"\1:\2\3", folder)


def _receipt(file: File) -> Told:
    """Read the login and the time from the first lines of a Blackboard receipt. Learners cannot write these lines."""
    text = ""
    with suppress(Exception), file.open() as stream:  # a damaged archive can raise almost anything
        text = stream.read(RECEIPT_HEAD).decode("utf-8-sig", "replace")
    whose = re.match(r"\s*[^\n:]+: *(?P<name>[^\n]*) \((?P<login>[^\n()]+)\)[ \r]*\n", text)
    if not whose:
        return Told()
    time = re.match(r"[^\n]*\n[^\n]*\nDate Submitted: *([^\r\n]+)", text[whose.end("name") :])
    return Told((Person((whose["login"].strip(),), whose["name"].strip()),), time[1].strip() if time else "")


def _is_gradescopes(name: str) -> bool:
    return bool(re.fullmatch(r"submission_[0-9]+", name))


def _gradescope(file: File) -> dict[str, Told]:
    """Read Gradescope's list. Its keys are Ruby symbols, and a group has several submitters. Errors: Refused."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """A safe YAML loader that skips values only Ruby could build."""

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
