"""Grading: the catalogue of exercises, and what checks an answer and names the mistake.

    from course_lib.grading import check, hint, progress

    check("attention.softmax", softmax)     # right or not, and why
    hint("attention.softmax")               # the next hint
    progress()                              # what you have done so far

How to declare an exercise: `exercise.py`. The exercises: `catalogue/`, one module per chapter.
"""

import importlib

_HOMES = {  # imported when it is asked for: `run`, which calls answers, must not bring the catalogue along
    "EXERCISES": "catalogue",
    "Case": "exercise",
    "Exercise": "exercise",
    "Given": "exercise",
    "Hint": "result",
    "Misconception": "exercise",
    "Option": "exercise",
    "Progress": "result",
    "Result": "result",
    "check": "engine",
    "generator": "exercise",
    "get": "catalogue",
    "grade": "engine",
    "hint": "engine",
    "progress": "record",
}
__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
