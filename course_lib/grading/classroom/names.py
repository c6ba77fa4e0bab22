"""File names for a learner's results, made of a name that may be anything."""

import re
import unicodedata

LONGEST = 80  # characters
MOST_BYTES = 180  # of 255 that a file system takes: an ending comes on top
# What Windows takes for a device, whatever ending follows.
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


def file_name(learner: str, taken: set[str]) -> str:
    """A file name without an ending: safe on every system, never a path, and unlike every other that was given out.

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
    """Equal for names that differ in capitals or in how their letters are composed."""
    return unicodedata.normalize("NFKC", name.upper().casefold())
