"""Audits: five printed findings, one of them false; a learner's number decides which one, and all other numbers.

Chapter 17. The modules of the exercises `claims.audit_1` to `claims.audit_5` make the findings. Each finding has a true
form, and a false one that a check without a model reveals.
"""

import importlib
import random
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from course_lib import checks
from course_lib.grading.exercise import Option
from course_lib.grading.kinds.choice import LAST_NUMBER
from course_lib.live import table

LETTERS = "abcde"
WIDTH = 88
REVEALS = "This check reveals it."


@dataclass(frozen=True)
class Finding:
    """A printed finding.

    Fields:
        title: a short name, the same for every number.
        says: how it was measured, and what follows from it.
        rows, head, digits: its table.
        data: the numbers behind the table, by name.
        why: the reason why it is true or false, for learners who pick it.
        check: of a false finding, the key of the check that reveals it; "" for a true one.
    """

    title: str
    says: str
    rows: Sequence[Sequence[Any]]
    head: Sequence[str]
    data: dict[str, Any]
    why: str
    check: str = ""
    digits: int = field(default=2, kw_only=True)


Maker = Callable[[random.Random, bool], Finding]  # a source of random numbers, and whether to make the false form


def audit(exercise_id: str, number: int) -> dict[str, dict[str, Any]]:
    """Print the five findings of an audit, and return the data behind each of them, by its letter.

    Args:
        exercise_id: "claims.audit_1" to "claims.audit_5".
        number: your number, from 1 to 999. Each number has other findings.

    Where a class is graded, the modules of exercises are missing. Then it prints a line and returns no data.

    Errors: ValueError for another exercise or number.
    """
    try:
        findings = five(exercise_id, number)
    except ModuleNotFoundError:
        print("The findings cannot be printed here. An answer that is written out is graded all the same.")
        return {}
    for letter, finding in findings.items():
        print(textwrap.fill(f"{number}{letter} · {finding.title}: {finding.says}", WIDTH), end="\n\n")
        table(finding.rows, finding.head, digits=finding.digits)
        print()
    return {letter: finding.data for letter, finding in findings.items()}


def five(exercise_id: str, number: int) -> dict[str, Finding]:
    """Return the findings of an audit by letter, in their order for this number."""
    known = [f"claims.audit_{place}" for place in range(1, 6)]
    if exercise_id not in known:
        raise ValueError(f"exercise_id must be one of {', '.join(known)}, got {exercise_id!r}")
    checks.require_at_least_one(number=number)
    if number > LAST_NUMBER:
        raise ValueError(f"number must be from 1 to {LAST_NUMBER}, got {number}")
    module = importlib.import_module(f"course_lib.chapters.claims.exercises.{exercise_id.partition('.')[2]}")
    return chosen(module.MAKERS, exercise_id, number)


def chosen(makers: Sequence[Maker], exercise_id: str, number: int) -> dict[str, Finding]:
    """Return five findings in random order, one of them in its false form. The number decides everything random."""
    rng = random.Random(f"{exercise_id}: {number}")
    places = rng.sample(range(len(makers)), len(LETTERS))
    false = rng.randrange(len(LETTERS))
    findings = (makers[place](rng, index == false) for index, place in enumerate(places))
    return dict(zip(LETTERS, findings))


def options(findings: dict[str, Finding], number: int, written: Sequence[Option]) -> list[Option]:
    """Return the options of a number: its findings, then the checks, one of them right.

    Args:
        written: the checks as the page has them, each with the reason why it reveals nothing here.
    """
    made = [
        Option(f"{number}{letter}", finding.title, bool(finding.check), finding.why)
        for letter, finding in findings.items()
    ]
    (check,) = [finding.check for finding in findings.values() if finding.check]
    for option in written:
        right = option.key == check
        made.append(replace(option, right=right, why=REVEALS if right else option.why))
    return made


def answer(exercise_id: str, number: int) -> tuple[str, str]:
    """Return the right answer for a number: the key of the false finding, and the check."""
    findings = five(exercise_id, number)
    return next((f"{number}{letter}", finding.check) for letter, finding in findings.items() if finding.check)
