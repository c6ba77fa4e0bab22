"""Find the learner in a downloaded file's name, and make safe file names for results from any text."""

import re
import unicodedata
from typing import NamedTuple

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

LONGEST = 80  # characters
MOST_BYTES = 180  # of 255 that a file system allows; an extension is added
# Windows reads these names as devices, whatever the extension.
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


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


def file_name(learner: str, taken: set[str]) -> str:
    """Return a file name without an extension: safe on every system, never a path, and different from all in `taken`.

    Letters and digits of every script stay, and other characters become one "_". Names that a file system may confuse
    get a number: "Ada", "ADA-2".

    Args:
        learner: the name of a submission, any text.
        taken: an empty set at first. The name is added, in the form used for comparison.
    """
    text = unicodedata.normalize("NFKC", learner)
    text = "".join(each if each == "-" or unicodedata.category(each)[0] in "LMN" else "_" for each in text)
    stem = re.sub(r"-*_[-_]*", "_", text).strip("-_") or "learner"
    if stem.lower() in RESERVED:
        stem += "_"
    number, name = 1, _cut(stem, "")
    while (key := _key(name)) in taken:
        number += 1
        name = _cut(stem, f"-{number}")
    taken.add(key)
    return name


def _cut(stem: str, ending: str) -> str:
    stem = stem[: LONGEST - len(ending)]
    while len((stem + ending).encode()) > MOST_BYTES:
        stem = stem[:-1]
    return stem + ending


def _key(name: str) -> str:
    """Return a key that is equal for names that differ only in case or in Unicode composition."""
    return unicodedata.normalize("NFKC", name.upper().casefold())
