"""Grading: the catalogue of exercises, and the code that checks an answer and names the mistake.

    from course_lib.grading import check, hint, mine, progress

    check("attention.softmax", softmax)     # right or wrong, and why
    hint("attention.softmax")               # the next hint
    progress()                              # your results so far
    mine("attention.softmax")               # your own answer, once it has passed; for a reflection, its text

Learners call these four. They answer a misspelt id in a sentence. A long check reports its progress and can be
interrupted. (`mine` cannot return a Result: it raises an error, which a notebook shows without a traceback.) Programs
call `grade(id, answer, seed)`, which saves nothing and raises KeyError for an unknown id.

How to write an exercise: `page/format.py`. The exercises: `course_lib/chapters/<slug>/exercises/`, one page each.

`page`: from a page to an exercise, and to notebooks. `kinds`: the kinds of exercises. `judge`: calls an answer within
limits and compares its results. `engine`: `check` and `grade`. `result`: the feedback to the learner.
"""

import importlib

_HOMES = {  # imported on first use, because `judge.call`, which calls answers, must not import the catalogue
    "EXERCISES": "page.catalogue",
    "Case": "exercise",
    "Choice": "kinds",
    "Code": "kinds",
    "Exercise": "kinds",
    "Experiment": "kinds",
    "Given": "exercise",
    "Hint": "result",
    "Misconception": "exercise",
    "Number": "kinds",
    "Option": "exercise",
    "Progress": "result",
    "Reflection": "kinds",
    "Result": "result",
    "Shapes": "kinds",
    "add_catalogue": "page.catalogue",
    "check": "engine",
    "generator": "exercise",
    "get": "page.catalogue",
    "grade": "engine",
    "hint": "engine",
    "mine": "answers",
    "progress": "learner_progress",
}
__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
