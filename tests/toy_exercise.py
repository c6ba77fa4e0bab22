"""An exercise to try the engine and the record on: twice a number."""

import torch

from course_lib.grading import Case, generator
from course_lib.grading.kinds import KINDS


def two_numbers(seed):
    "Two numbers."
    return [Case(torch.tensor([1.0, -2.0]))]


def a_table(seed):
    "A drawn table."
    return [Case(torch.randn(3, 4, generator=generator(seed)))]


def declared(**fields):
    """An exercise with everything that is not under test filled in."""
    usual = {
        "id": "toy.double",
        "chapter": 0,
        "title": "Twice",
        "kind": "code",
        "points": 2,
        "difficulty": 1,
        "minutes": 1,
        "hints": ["How often?", "What is x + x?", "Which operator?"],
    }
    if fields.get("kind", "code") in ("code", "experiment"):
        usual |= {"signature": "double(x)", "reference": lambda x: 2 * x, "stages": [two_numbers, a_table]}
    fields = usual | fields
    return KINDS[fields.pop("kind")](**fields)
