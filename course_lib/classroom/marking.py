"""One submission: a result for every expected exercise, whatever was handed in."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from course_lib.grading.catalogue import EXERCISES
from course_lib.grading.engine import judge_calls, judge_value, ready_trials
from course_lib.grading.kinds import Exercise
from course_lib.grading.limits import Stop
from course_lib.grading.result import Result
from course_lib.grading.run import Failure, Outcome

from .graded import GradedSubmission
from .remote import Ended, Worker
from .session import Found, Session
from .submission_reader import Submission

MOST_TEXT = 10_000  # characters of a reflection that are kept; what is cut off is said
WANTED = {each.answer_name: each.kind in ("code", "experiment") for each in EXERCISES.entries.values()}


def mark(
    submission: Submission, expected: Sequence[Exercise], worker: Worker, seed: int, seconds: float | None = None
) -> GradedSubmission:
    """Grade one submission on cases that `seed` draws. A result for every expected exercise, in the course's order.

    `worker.doubted` names those that failed by time, memory or a signal. seconds: less than the worker's for all of it.

    An answer may stand in any notebook. If several hold one, those of its chapter come first, and of these the first
    that answers; in a notebook, the last answer counts.
    Errors: Fault if the machine failed: then nothing is known of the submission, and it should be tried again.
    """
    deadline = time.monotonic() + (worker.quotas.timeout if seconds is None else seconds)
    worker.doubted = set()
    results: dict[str, Marked] = {}
    elsewhere: dict[str, Marked] = {}  # found in a notebook of another chapter
    troubles = list(submission.all_troubles)
    for notebook in submission.notebooks:
        chapters = notebook.chapters
        session = Session(worker, notebook, submission.beside(notebook), WANTED, deadline)
        cells = session.doubts
        try:
            for exercise in expected:
                place = results if not chapters or exercise.chapter in chapters else elsewhere
                before = session.doubts
                if _is_open(place.get(exercise.id)) and (marked := _graded(session, exercise, seed)):
                    place[exercise.id] = marked
                if cells or session.doubts > before:
                    worker.doubted.add(exercise.id)
        finally:
            session.close()
        troubles += [f"{notebook.path}: {trouble}" for trouble in session.found.troubles]
    graded = []
    for exercise in expected:
        own, other = results.get(exercise.id), elsewhere.get(exercise.id)
        graded.append((other if _is_open(own) else own) or own or Marked(_missing(exercise, submission)))
    marks = tuple(marked.result for marked in graded)
    texts = {marked.result.exercise_id: marked.text for marked in graded if marked.text}
    worker.doubted -= {result.exercise_id for result in marks if result.passed}
    return GradedSubmission(submission.name, submission.digest, marks, tuple(troubles), texts)


class Marked(NamedTuple):
    """A result, and of a reflection what was written."""

    result: Result
    text: str = ""


def _is_open(marked: Marked | None) -> bool:
    return marked is None or marked.result.status == "unanswered"


def _missing(exercise: Exercise, submission: Submission) -> Result:
    if not submission.notebooks:
        return exercise.verdict("unanswered", ["No notebook was handed in."])
    return exercise.verdict("unanswered", [f"No cell that could be run defines `{exercise.answer_name}`."])


def _graded(session: Session, exercise: Exercise, seed: int) -> Marked | None:
    """Return the result of an exercise in one notebook; None if it does not stand there."""
    name = exercise.answer_name
    found: Found = session.found
    marked = None
    if name in found.open:
        marked = Marked(exercise.verdict("unanswered", ["Left open."]))
    for which in reversed(range(found.answers.get(name, 0))):
        marked = _one(session, exercise, name, which, seed)
        if not _is_open(marked):
            return marked
    return marked


def _one(session: Session, exercise: Exercise, name: str, which: int, seed: int) -> Marked:
    seconds = session.worker.quotas.exercise_timeout or exercise.time_limit
    try:
        if exercise.kind not in ("code", "experiment"):
            read = session.read(name, which, seconds)
            result = _judged(lambda: judge_value(exercise, read), exercise)
            return Marked(result, _text(read.value) if result.status == "written" else "")
        trials = ready_trials(exercise, seed)
        try:
            outcomes = session.run(name, which, trials, seconds)
        except Ended as error:
            trials = trials[error.call : error.call + 1]
            outcomes = [Outcome(failure=Failure("exit", error.sentence))]
        return Marked(_judged(lambda: judge_calls(exercise, trials, outcomes), exercise))
    except Ended as error:
        return Marked(exercise.verdict("failed", [error.sentence]))


def _text(written: str) -> str:
    """Return what was written in a reflection, to be kept: cut where nobody reads on."""
    more = len(written) - MOST_TEXT
    return written if more <= 0 else f"{written[:MOST_TEXT]} … ({more:,} more characters)"


def _judged(judge, exercise: Exercise) -> Result:
    """Return a result without the line on hints. What cannot be judged, whatever it is, is not right."""
    try:
        result = judge()
    except (Ended, Stop):
        raise
    except Exception as error:
        result = exercise.verdict("failed", [f"Your result could not be compared ({type(error).__name__})."])
    return replace(result, closing="")
