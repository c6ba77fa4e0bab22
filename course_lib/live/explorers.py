"""`explore` finds the live figure that belongs to an exercise.

A chapter's `widgets` module may define `EXPLORERS`: exercise id -> a function that takes the learner's function and
returns a widget driven by it.
"""

from collections.abc import Callable
from difflib import get_close_matches
from functools import cache

from course_lib.course.contents import CHAPTERS
from course_lib.course.told import NoId, UnknownId


@cache
def _explorers() -> dict[str, Callable]:
    modules = [chapter.part("widgets") for chapter in CHAPTERS]
    return {exercise: build for module in modules for exercise, build in getattr(module, "EXPLORERS", {}).items()}


def explorable() -> list[str]:
    """Return the ids of all exercises that have a live figure."""
    return sorted(_explorers())


def explore(exercise_id: str, function: Callable):
    """Return the chapter's live figure, driven by your own function: `explore("sampling.temperature",
    temperature_softmax)`.

    Args:
        exercise_id: one of `explorable()`.
        function: your answer to that exercise. The figure shows its errors and wrong results.

    Errors: KeyError for an exercise without a live figure, with the nearest ids; TypeError if the id is not text, or
        the function cannot be called.
    """
    if not isinstance(exercise_id, str):
        raise NoId(f"The exercise's id comes first, in quotes, got {type(exercise_id).__name__}.")
    known = _explorers()
    exercise_id = "".join(exercise_id.split()).lower()
    if exercise_id not in known:
        chapter = [each for each in known if each.partition(".")[0] == exercise_id.partition(".")[0]]
        near = get_close_matches(exercise_id, known, n=3, cutoff=0.7) or chapter or list(known)[:3]
        raise UnknownId(f"No live figure belongs to {exercise_id[:60]!r}; these exercises have one: {', '.join(near)}.")
    if not callable(function):
        raise NoId(f"Give your function itself, without calling it, got {type(function).__name__}.")
    return known[exercise_id](function)
