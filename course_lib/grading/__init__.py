"""Grading: the catalogue of exercises, and what checks an answer and names the mistake.

    from course_lib.grading import check, hint, mine, progress

    check("attention.softmax", softmax)     # right or not, and why
    hint("attention.softmax")               # the next hint
    progress()                              # what you have done so far
    mine("attention.softmax")               # your own answer, once it has passed; of a reflection its text

These four are called by learners: a slip in the id is answered in a sentence, and a long check says how far it is and
can be interrupted. (`mine` has no Result to return: it raises the sentence, and a notebook shows no traceback.)
Programs call `grade(id, answer, seed)`, which keeps nothing and raises KeyError for an unknown id.

How to write an exercise: `page/format.py`. The exercises: `course_lib/chapters/<slug>/exercises/`, a page each.

`page`: from a page to an exercise, and to notebooks. `kinds`: the kinds of exercises. `judge`: calls an answer within
limits and compares what it returns. `engine`: `check` and `grade`. `result`: what the learner sees.
"""

import importlib

_HOMES = {  # imported when it is asked for: `judge.call`, which calls answers, must not bring the catalogue along
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
