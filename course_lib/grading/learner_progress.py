"""The learner's progress: results and hints are saved in the record, and displayed as a table."""

import os
from typing import Any

from course_lib.course import record
from course_lib.grading.kinds import Choice, Exercise, Reflection
from course_lib.grading.page.catalogue import EXERCISES
from course_lib.grading.result import SIGNS, Hint, Progress, Result, Row

REASONS = 2  # reasons for wrong picks at a time
LONGEST = 20_000  # characters of a reflection that are saved


def keep(result: Result) -> None:
    """Save a result. An unanswered exercise does not count as an attempt, and earned points are never lost."""

    def note(entry: record.Entry) -> None:
        entry["attempts"] += 1
        entry["earned"] = max(entry["earned"], result.earned)
        entry["last"] = result.status

    if result.status != "unanswered":
        record.change("exercises", result.exercise_id, note)
        recognized = next(iter(result.mistakes), "")
        if recognized or result.exercise_id in record.entries("mistakes"):
            record.change("mistakes", result.exercise_id, lambda entry: entry.update(name=recognized))
        if recognized:
            record.announce("mistake", result.exercise_id, recognized)


def in_turn(exercise: Choice, answer: Any, result: Result) -> Result:
    """Return the feedback on wrong picks: first only the number of right ones and, once the picks have changed,
    reasons.

    It has reasons for two wrong picks at a time, and none if every option is picked, because that is no choice.
    """
    picked = exercise.picked(answer)
    if result.status != "failed" or not picked or not exercise.several:
        return result
    if len(picked) == len(exercise.options):
        return exercise.everything_picked()
    keys = " ".join(option.key for option in picked)

    def note(entry: record.Entry) -> None:
        entry["first"] = entry["first"] or keys
        entry["changed"] = int(entry["changed"] or keys != entry["first"])

    changed = record.change("choices", exercise.id, note)["changed"]
    return exercise.told(picked, REASONS) if changed else exercise.counted(picked)


def keep_text(exercise: Reflection, answer: Any, result: Result) -> str:
    """Save the text of a finished reflection; return a sentence on how to get the saved text, if any."""
    if result.status == "written":
        text = answer[:LONGEST].encode("utf-8", "replace").decode()  # a file cannot contain half a character
        record.change("answers", exercise.id, lambda entry: entry.update(name=exercise.answer_name, source=text))
        return f'Kept: mine("{exercise.id}") gives it back.'
    kept = record.entries("answers").get(exercise.id)
    return f'What you wrote before is kept: mine("{exercise.id}") gives it back.' if kept else ""


def next_hint(exercise: Exercise) -> Hint:
    """Return the next hint of an exercise; after the last one, repeat it.

    If a mistake was recognized, the hint that its page names for it comes first, once. If that is the next hint anyway,
    it counts as the next one.
    """
    number, mistake = _hint_on_the_mistake(exercise)
    seen = {**record.blank("exercises"), **record.entries("exercises").get(exercise.id, {})}["hints"]
    if mistake and number != seen + 1:
        return Hint(exercise.id, number, len(exercise.hints), exercise.hints[number - 1], mistake, in_turn=False)

    def note(entry: record.Entry) -> None:
        entry["hints"] = min(entry["hints"] + 1, len(exercise.hints))

    count = record.change("exercises", exercise.id, note)["hints"]
    return Hint(exercise.id, count, len(exercise.hints), exercise.hints[count - 1], mistake)


def _hint_on_the_mistake(exercise: Exercise) -> tuple[int, str]:
    """Return the number of the hint for the last recognized mistake, and its name. This happens once; then return 0 and
    ""."""
    entry = record.entries("mistakes").get(exercise.id)
    if not entry or not entry["name"] or entry["name"] == entry["hinted"]:
        return 0, ""
    number = next((each.hint for each in exercise.misconceptions if each.name == entry["name"]), 0)
    if not number:
        return 0, ""
    record.change("mistakes", exercise.id, lambda entry: entry.update(hinted=entry["name"]))
    return number, entry["name"]


def progress() -> Progress:
    """Return every exercise with points, attempts and last result, and the accuracy of the guesses by confidence.

    In a notebook it is a table for each chapter, elsewhere text.
    """
    from course_lib.course.contents import CHAPTERS, TITLES

    entries = record.entries("exercises")
    rows = []
    for exercise in EXERCISES.entries.values():  # the front matter of the pages is enough, and quick to read
        entry = {**record.blank("exercises"), **entries.get(exercise.id, {})}
        earned = min(entry["earned"], exercise.points)
        last = entry["last"] if entry["last"] in SIGNS else ""
        rows.append(
            Row(exercise.id, exercise.chapter, exercise.title, exercise.points, earned, entry["attempts"], last)
        )
    guessed: dict[int, tuple[int, int]] = {}  # confidence in percent -> (right guesses, all guesses)
    for guess in record.entries("guesses").values():
        right, of = guessed.get(guess["confidence"], (0, 0))
        guessed[guess["confidence"]] = right + bool(guess["right"]), of + 1
    pages = {each.number: f"../exercises/{each.notebook}" for each in CHAPTERS}  # valid in exercises/ and in notebooks/
    here = {number: page for number, page in pages.items() if os.path.exists(page)}
    return Progress(tuple(rows), TITLES, dict(sorted(guessed.items())), here)
