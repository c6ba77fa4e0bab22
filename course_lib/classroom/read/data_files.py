"""Find the data files in a submission that a notebook's code may read, so that they are copied along with it.

A learner's folder also contains reports and pictures that no cell opens. They are left out: two learners with the same
cells still have equal submissions, and no message mentions a file that no code needs.
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
    """Return for each file whether the code may read it.

    A file counts if the code contains its name, its extension or a folder above it, or if the code lists a folder.
    Nothing is run to find out. A name that matches by chance only copies one file too many.

    Args:
        places: the path of each file below the notebook's folder.
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
