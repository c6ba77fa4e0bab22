"""What a learner's call asks for: the exercise; or, where that cannot be told, a `Result` that says so in a sentence.

`check`, `hint` and `mine` begin here, so that a slip of the pen is answered in a line and never with a traceback. What
programs call (`grade`, `catalogue.get`) raises instead.
"""

from types import FunctionType
from typing import Any

from course_lib.grading.judge.show import printable
from course_lib.grading.kinds import Exercise
from course_lib.grading.page.catalogue import EXERCISES, meant
from course_lib.grading.result import Result


class LeftOut:
    """Stands for an argument that was not given."""

    def __repr__(self) -> str:
        return "<left out>"


LEFT_OUT: Any = LeftOut()
LONGEST = 40  # characters of an id that are repeated


def asked(call: str, exercise_id: Any, answer: Any = None) -> Exercise | Result:
    """Return the exercise that a call names, or what to say of it: an id misspelt, arguments exchanged or left out.

    Args:
        call: "check", "hint" or "mine". exercise_id, answer: what it was given; LEFT_OUT where one was needed.
    """
    if isinstance(exercise_id, str):
        try:
            exercise = meant(exercise_id)
        except KeyError as error:
            sentence = str(error.args[0])
            return _told(printable(exercise_id, LONGEST), "no such exercise", sentence[0].upper() + sentence[1:])
        if answer is not LEFT_OUT:
            return exercise
        return exercise.verdict("unanswered", [f"And your answer? Write {_example(call, exercise)}."])
    if isinstance(answer, str) and answer in EXERCISES:
        sentence = f"The id comes first, then your answer: {_example(call, EXERCISES[answer])}."
    else:
        sentence = f"Which exercise? Write its id in quotes, as in {_example(call, _likely(exercise_id))}."
    return _told("?", "which exercise?", sentence)


def _likely(answer: Any) -> Exercise:
    """The exercise whose answer bears this function's name; without one, the first of all that asks for a function."""
    name = answer.__name__ if type(answer) in (type, FunctionType) else None  # no code of its own runs for these
    whose = [entry.id for entry in EXERCISES.entries.values() if entry.answer_name == name]
    return EXERCISES[whose[0] if whose else next(id for id, entry in EXERCISES.entries.items() if entry.kind == "code")]


def _example(call: str, exercise: Exercise) -> str:
    return f'{call}("{exercise.id}", {exercise.answer_name})' if call == "check" else f'{call}("{exercise.id}")'


def _told(exercise_id: str, title: str, sentence: str) -> Result:
    return Result(exercise_id=exercise_id, title=title, status="unanswered", points=0, sentences=(sentence,))
