"""Where a learner stands: results and hints go into the record, and come out as a table."""

from course_lib import record

from .catalogue import EXERCISES
from .kinds import Exercise
from .result import SIGNS, Hint, Progress, Result, Row


def keep(result: Result) -> None:
    """Keep a result. An exercise that was not answered is no attempt; points once earned stay."""

    def note(entry: record.Entry) -> None:
        entry["attempts"] += 1
        entry["earned"] = max(entry["earned"], result.earned)
        entry["last"] = result.status

    if result.status != "unanswered":
        record.change("exercises", result.exercise_id, note)


def next_hint(exercise: Exercise) -> Hint:
    """Return the next hint of an exercise; after the last one, the last one again."""

    def note(entry: record.Entry) -> None:
        entry["hints"] = min(entry["hints"] + 1, len(exercise.hints))

    count = record.change("exercises", exercise.id, note)["hints"]
    return Hint(exercise.id, count, len(exercise.hints), exercise.hints[count - 1])


def progress() -> Progress:
    """Return every exercise with points, attempts and last result, and how well guesses and their confidence agree.

    Tables in a notebook, one per chapter, and text elsewhere.
    """
    from course_lib.contents import TITLES

    entries = record.entries("exercises")
    rows = []
    for exercise in EXERCISES.entries.values():  # what the pages begin with: enough, and quickly read
        entry = {**record.blank("exercises"), **entries.get(exercise.id, {})}
        earned = min(entry["earned"], exercise.points)
        last = entry["last"] if entry["last"] in SIGNS else ""
        rows.append(
            Row(exercise.id, exercise.chapter, exercise.title, exercise.points, earned, entry["attempts"], last)
        )
    guessed: dict[int, tuple[int, int]] = {}  # how sure, in percent -> how many were right, of how many
    for guess in record.entries("guesses").values():
        right, of = guessed.get(guess["confidence"], (0, 0))
        guessed[guess["confidence"]] = right + bool(guess["right"]), of + 1
    return Progress(tuple(rows), TITLES, dict(sorted(guessed.items())))
