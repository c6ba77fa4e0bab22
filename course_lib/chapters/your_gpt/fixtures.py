"""How the tests of chapter 18 use an answer if one call is not enough: see `grading/fixtures.py`."""

from course_lib.grading.exercise import ArgumentChanged


def gathered(answer, kept, exercises):
    """Return the parts and the list that the answer makes from a record with `kept`; "KeyError" if it raises a
    KeyError.

    A text stands for each part here, such as "your masks.causal" or "the library's mask".

    Errors: ArgumentChanged if the answer changes the library or the table.
    """

    def mine(exercise):
        if exercise not in exercises.values() or "no_such" in exercise:
            raise KeyError(exercise)
        if exercise not in kept:
            raise ValueError(f"no answer to {exercise!r} is kept")
        return f"your {exercise}"

    library, table = {name: f"the library's {name}" for name in exercises}, dict(exercises)
    before = dict(library)
    try:
        gathered = answer(mine, table, library)
    except KeyError:
        return "KeyError", []
    if library != before:
        raise ArgumentChanged("library")
    if table != exercises:
        raise ArgumentChanged("exercises")
    return gathered


def found_by_grammar(answer, stories, tellable):
    """Return the answer's two numbers for stories; `tellable` has ln P of those that the grammar can generate."""
    known = dict(tellable)
    return answer(stories, lambda story: known.get(story, float("-inf")))
