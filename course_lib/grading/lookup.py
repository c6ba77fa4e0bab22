"""Find the exercise that a learner's call names; without one, return a `Result` with a sentence about the problem.

`check`, `hint` and `mine` begin here, so that a typing error gets a sentence instead of a traceback. The functions for
programs (`grade`, `catalogue.get`) raise an error instead.
"""

from types import FunctionType
from typing import Any

from course_lib.grading.judge.show import printable
from course_lib.grading.kinds import Exercise
from course_lib.grading.page.catalogue import EXERCISES, meant
from course_lib.grading.result import Result


class LeftOut:
    """A placeholder for an argument that was not given."""

    def __repr__(self) -> str:
        return "<left out>"


LEFT_OUT: Any = LeftOut()
LONGEST = 40  # characters of an id that a message quotes


def asked(call: str, exercise_id: Any, answer: Any = None) -> Exercise | Result:
    """Return the exercise that a call names, or a message about a misspelt id, or about swapped or missing arguments.

    Args:
        call: "check", "hint" or "mine".
        exercise_id, answer: the arguments of the call; LEFT_OUT if a required one is missing.
    """
    if isinstance(exercise_id, str):
        try:
            exercise = meant(exercise_id)
        except KeyError as error:
            sentence = str(error.args[0])
            return _told(printable(exercise_id, LONGEST), "no such exercise", sentence[0].upper() + sentence[1:])
        if answer is not LEFT_OUT:
            return exercise
        return exercise.verdict("unanswered", [f"Your answer is missing. Write {_example(call, exercise)}."])
    if isinstance(answer, str) and answer in EXERCISES:
        sentence = f"The id comes first, then your answer: {_example(call, EXERCISES[answer])}."
    else:
        sentence = f"Which exercise? Write its id in quotes, as in {_example(call, _likely(exercise_id))}."
    return _told("?", "which exercise?", sentence)


def _likely(answer: Any) -> Exercise:
    """Return the exercise whose answer has this function's name, or else the first exercise that asks for a
    function."""
    name = answer.__name__ if type(answer) in (type, FunctionType) else None  # reading these names runs no other code
    whose = [entry.id for entry in EXERCISES.entries.values() if entry.answer_name == name]
    return EXERCISES[whose[0] if whose else next(id for id, entry in EXERCISES.entries.items() if entry.kind == "code")]


def _example(call: str, exercise: Exercise) -> str:
    return f'{call}("{exercise.id}", {exercise.answer_name})' if call == "check" else f'{call}("{exercise.id}")'


def _told(exercise_id: str, title: str, sentence: str) -> Result:
    return Result(exercise_id=exercise_id, title=title, status="unanswered", points=0, sentences=(sentence,))
