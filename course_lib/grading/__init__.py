"""Grading: the catalogue of exercises, and what checks an answer and names the mistake.

    from course_lib.grading import check, hint, progress

    check("attention.softmax", softmax)     # right or not, and why
    hint("attention.softmax")               # the next hint
    progress()                              # what you have done so far

How to declare an exercise: `exercise.py`. The exercises: `catalogue/`, one module per chapter.
"""

from .catalogue import EXERCISES, get
from .engine import check, grade, hint
from .exercise import Case, Exercise, Misconception, Option, generator
from .record import progress
from .result import Hint, Progress, Result

__all__ = [
    "EXERCISES",
    "Case",
    "Exercise",
    "Hint",
    "Misconception",
    "Option",
    "Progress",
    "Result",
    "check",
    "generator",
    "get",
    "grade",
    "hint",
    "progress",
]
