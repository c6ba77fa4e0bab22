"""Names: whose a downloaded file is, and file names for a learner's results, made of a name that may be anything."""

import re
import unicodedata
from typing import NamedTuple

from course_lib.course.contents import CHAPTERS

STEMS = tuple(chapter.slug for chapter in CHAPTERS[1:])  # of the exercise notebooks, by chapter, from 1
COURSE_FILE = "|".join(rf"0?{number}_{stem}" for number, stem in enumerate(STEMS, start=1))

# They look ahead, so that no match hides the next one. In Canvas the second number is the file's own; where a file name
# of the course begins, there is no such number; nor in a date with a time, nor in the 3_1 of a group's first hand-in.
MOODLE_DOWNLOAD = re.compile(r"(?=_([0-9]+)_assignsubmission_(?:file_)?()(.*))", re.DOTALL)
DATE = "20[0-9]{2}[01][0-9][0-3][0-9]_(?:[0-9]{4}|[0-9]{6})_"
CANVAS_DOWNLOAD = re.compile(rf"(?=_(?!{DATE})([0-9]{{2,}})_(?!{COURSE_FILE})([0-9]+)_(.*))", re.DOTALL | re.IGNORECASE)
# Blackboard's: ASSIGNMENT_LOGIN_attempt_2026-10-05-23-58-12_x.ipynb, and .txt for the receipt. Brightspace's, a folder:
# 397063-2557369 - Ada Lovelace - Oct 5, 2026 1159 PM, whose second number is the assignment's or the learner's own.
ATTEMPT = re.compile(r"_attempt_20[0-9]{2}(?:-[0-9]{2}){5}(?=_|\.txt$)(?:_(.*))?", re.DOTALL)
DAY = r"(?:[^\W\d]+\.? [0-9]{1,2}|[0-9]{1,2}\.? [^\W\d]+\.?),? 20[0-9]{2}"
BRIGHTSPACE_DOWNLOAD = re.compile(rf"([0-9]+-[0-9]+ - (.+)) - ({DAY} [0-9]{{3,4}}(?: [AP]M)?)")

LONGEST = 80  # characters
MOST_BYTES = 180  # of 255 that a file system takes: an ending comes on top
# What Windows takes for a device, whatever ending follows.
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


class Download(NamedTuple):
    """How a learning platform names what it hands to the teacher: Full Name_12345_assignsubmission_file_x.ipynb is
    Moodle's, lastfirst_12345_678_x.ipynb Canvas's. rest: the file's own name. file: its number, where it has one.
    called: the learner's login or name, where the platform gives it in place of a number."""

    learner: str
    number: str
    file: str
    rest: str
    called: str = ""


def downloads(name: str, *kinds: re.Pattern) -> list[Download]:
    """Return all that a name can mean as one of a download; nothing if it is none.

    If it can mean more than one, the number that counts is not told: what stands before it may be of a learner's choice
    (the name in a profile), and so may what follows (the name of a file).
    """
    name = name[:1000]
    marks = next(
        (found for kind in kinds or (MOODLE_DOWNLOAD, CANVAS_DOWNLOAD) if (found := list(kind.finditer(name)))), []
    )
    late = re.compile("[-_]late$", re.IGNORECASE)  # what Canvas puts behind the learner's name
    meant = [Download(late.sub("", name[: each.start()]), *each.groups()) for each in marks]
    if kinds:
        return meant
    if folder := BRIGHTSPACE_DOWNLOAD.fullmatch(name):
        meant.insert(0, Download(folder[1], "", "", "", folder[2]))
    if attempt := ATTEMPT.search(name):  # the first: what follows it is of the learner's own choice
        before = name[: attempt.start()]
        is_canvas = bool(marks) and marks[0].re is CANVAS_DOWNLOAD
        if is_canvas and marks[0].start() > attempt.start():
            meant = []
        # Both parts may hold an underscore: of several it is not told where the login begins.
        login = before.partition("_")[2] if before.count("_") == 1 else ""
        meant.insert(0, Download(before, "", "", attempt[1] or "", login))
    return meant


def file_name(learner: str, taken: set[str]) -> str:
    """Return a file name without an ending: safe on every system, never a path, unlike every other given out.

    Letters and digits of every script stay; what stands between them becomes one "_". Names that a file system may take
    for one get a number: "Ada", "ADA-2".

    Args:
        learner: the name of a submission, any text.
        taken: an empty set at first. The name is added, in the form in which names are compared.
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
    """Return what is equal for names that differ in capitals or in how their letters are composed."""
    return unicodedata.normalize("NFKC", name.upper().casefold())
