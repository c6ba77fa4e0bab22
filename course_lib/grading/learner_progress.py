"""Where a learner stands: results and hints go into the record, and come out as a table."""

import os
from typing import Any

from course_lib.course import record
from course_lib.grading.kinds import Choice, Exercise, Reflection
from course_lib.grading.page.catalogue import EXERCISES
from course_lib.grading.result import SIGNS, Hint, Progress, Result, Row

REASONS = 2  # why picks are wrong, at a time
LONGEST = 20_000  # characters of a reflection that are kept


def keep(result: Result) -> None:
    """Keep a result. An exercise that was not answered is no attempt; points once earned stay."""

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
    """Return what a learner is told of picks that are not right: at first their number, and once they changed, reasons.

    Reasons come for two wrong picks at a time, and none for ticking everything: who does that has not chosen yet.
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
    """Keep the text of a reflection once it is written; return where to find what was kept, if anything."""
    if result.status == "written":
        text = answer[:LONGEST].encode("utf-8", "replace").decode()  # no halves of characters: no file takes them
        record.change("answers", exercise.id, lambda entry: entry.update(name=exercise.answer_name, source=text))
        return f'Kept: mine("{exercise.id}") gives it back.'
    kept = record.entries("answers").get(exercise.id)
    return f'What you wrote before is kept: mine("{exercise.id}") gives it back.' if kept else ""


def next_hint(exercise: Exercise) -> Hint:
    """Return the next hint of an exercise; after the last one, the last one again.

    Where a mistake was recognized, the hint that its page names for it comes first, once. Where that is the next one
    anyway, it counts as such.
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
    """The number of the hint that helps with the mistake recognized last, and its name: once, then 0 and ""."""
    entry = record.entries("mistakes").get(exercise.id)
    if not entry or not entry["name"] or entry["name"] == entry["hinted"]:
        return 0, ""
    number = next((each.hint for each in exercise.misconceptions if each.name == entry["name"]), 0)
    if not number:
        return 0, ""
    record.change("mistakes", exercise.id, lambda entry: entry.update(hinted=entry["name"]))
    return number, entry["name"]


def progress() -> Progress:
    """Return every exercise with points, attempts and last result, and how well guesses and their confidence agree.

    Tables in a notebook, one per chapter, and text elsewhere.
    """
    from course_lib.course.contents import CHAPTERS, TITLES

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
    pages = {each.number: f"../exercises/{each.notebook}" for each in CHAPTERS}  # so from exercises as from notebooks
    here = {number: page for number, page in pages.items() if os.path.exists(page)}
    return Progress(tuple(rows), TITLES, dict(sorted(guessed.items())), here)
