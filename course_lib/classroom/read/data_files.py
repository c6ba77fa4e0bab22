"""Data that was handed in beside a notebook: which files its code may read, so that they travel with it.

A learner's folder holds reports and pictures that no cell opens. They stay behind, so that two learners with the same
cells are still equal submissions, and nobody is told of a file that nothing misses.
"""

import os
import re
from collections.abc import Iterable, Sequence
from importlib.machinery import all_suffixes

from course_lib.classroom.read.folders import Place, ending

WORD = re.compile(r"\.?[\w-]+")  # ".csv", "data", "listdir"
LISTS = frozenset(("glob", "rglob", "iglob", "iterdir", "listdir", "scandir", "walk"))
MODULES = frozenset((*(ending(f"x{suffix}") for suffix in all_suffixes()), ".so", ".pyd", ".dll", ".dylib"))


def named_in(places: Sequence[Place], texts: Iterable[str]) -> list[bool]:
    """Return for each file, by its place below a notebook's folder, whether code may read it: the code has the file's
    name, its ending or a folder around it, or it lists a folder.

    Nothing is run to find out. What is named by chance travels, too; that costs nothing.
    """
    wanted = {word for place in places for word in _words(place)} | LISTS
    found = {
        word for text in texts for each in WORD.finditer(text.casefold()) for word in (each[0], each[0].lstrip("."))
    } & wanted
    return [bool(found & LISTS) or not found.isdisjoint(_words(place)) for place in places]


def _words(place: Place) -> list[str]:
    *folders, name = map(str.casefold, place)
    stem, suffix = os.path.splitext(name)
    return [*folders, stem, suffix] if suffix else [*folders, stem]
