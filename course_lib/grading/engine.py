"""The steps from an answer to a Result: run it, judge it, find the mistake, report it."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from course_lib.course import record
from course_lib.grading import fresh_run, learner_progress
from course_lib.grading.answers import NotAlone, run_alone, source_alone
from course_lib.grading.cases import prepare
from course_lib.grading.hint_button import show_button
from course_lib.grading.judge.call import RESTART, Outcome, is_the_librarys, read, run
from course_lib.grading.judge.limits import Interrupted, inside_an_answer, undisturbed
from course_lib.grading.judge.seeds import PUBLIC_SEED
from course_lib.grading.judge.trials import Trial, summed_up
from course_lib.grading.kinds import Choice, Code, Exercise, File, Reflection
from course_lib.grading.lookup import LEFT_OUT, asked
from course_lib.grading.page.catalogue import get
from course_lib.grading.result import Hint, Result, show_below
from course_lib.grading.waiting import told_while_it_runs

_one_at_a_time = threading.Lock()
show_below(show_button)
fresh_run.note_when_cells_run()


def check(exercise_id: str = LEFT_OUT, answer: Any = LEFT_OUT) -> Result:
    """Check an answer and record the result in your progress. In a notebook the result displays itself.

    During a long check, a line reports its progress. You can interrupt a check; nothing is recorded then.

    Args:
        exercise_id: as in the heading of the exercise, "attention.softmax"; capitals and spaces do not matter.
        answer: your function, class, number, shapes, option or text, as the exercise asks.
    Returns: Result; its status is "unanswered" if no exercise has this id, or if the answer is missing. It never raises
    an error, whatever the answer does. Programs call `grade`.
    """
    exercise = asked("check", exercise_id, answer)
    if isinstance(exercise, Result):
        return exercise
    try:
        with told_while_it_runs(exercise.id):
            result = grade(exercise.id, answer, PUBLIC_SEED)
    except KeyboardInterrupt as interrupt:
        return _interrupted(exercise, interrupt)
    if isinstance(exercise, Choice):
        value = read(answer, exercise.time_limit).value
        result = learner_progress.in_turn(exercise.asked(value), value, result)
    learner_progress.keep(result)
    closing = ""
    if result.status == "passed" and isinstance(exercise, Code) and not isinstance(exercise, File):
        closing = keep_answer(exercise.id, answer)
    elif isinstance(exercise, Reflection):
        closing = learner_progress.keep_text(exercise, read(answer, exercise.time_limit).value, result)
    lacking = _will_lack(exercise, answer) if result.status == "passed" else ""
    return replace(result, closing="\n".join(filter(None, (result.closing, closing, lacking))))


def _will_lack(exercise: Exercise, answer: Any) -> str:
    """Return a sentence about names that a fresh run of the learner's notebook will lack, as far as they are known."""
    try:
        return fresh_run.will_lack(answer, exercise.answer_name)
    except Exception:  # names, cells and files can contain anything, and must not affect the verdict
        return ""


def _interrupted(exercise: Exercise, interrupt: KeyboardInterrupt) -> Result:
    sentences = ["You stopped the check before it had finished, so nothing was saved."]
    if isinstance(interrupt, Interrupted) and not interrupt.stopped:
        sentences.append(f"Your function could not be stopped: {RESTART}.")
    return exercise.verdict("unanswered", sentences)


def keep_answer(exercise_id: str, answer: Any) -> str:
    """Save the source of an answer that passed, if it also passes on its own; return the message about it."""
    try:
        source = source_alone(answer)
        found = run_alone(source, answer.__name__, exercise_id)
    except NotAlone as error:
        return f"This answer is not kept: {error}"
    except Exception as error:  # names and sources can contain anything, and must not affect the verdict
        return f"This answer is not kept: its source cannot be read ({type(error).__name__})."
    try:
        with told_while_it_runs(exercise_id):
            passed = grade(exercise_id, found, PUBLIC_SEED).passed
    except KeyboardInterrupt:
        return "This answer is not kept: you stopped the check that it also passes on its own."
    if not passed:
        return "This answer is not kept: on its own, without the rest of your notebook, it does not pass."
    record.change("answers", exercise_id, lambda entry: entry.update(name=answer.__name__, source=source))
    return f'Kept: mine("{exercise_id}") gives it back.'


def grade(exercise_id: str, answer: Any, seed: int) -> Result:
    """Judge an answer on the cases generated from `seed`, without recording anything.

    Returns: Result, with .passed .earned .points .feedback .misconception
    Errors: KeyError for an unknown id, with the nearest ids. The answer itself never causes an error, whatever it does.
    """
    exercise = get(exercise_id)
    if inside_an_answer():
        return exercise.verdict("unanswered", ["An answer cannot check itself: call check outside your function."])
    if not exercise.called:
        with _one_at_a_time, undisturbed():
            outcome = read(answer, exercise.time_limit)
        return judge_value(exercise, outcome)
    if answer is Ellipsis:
        return exercise.unanswered()
    if is_the_librarys(answer):
        sentence = f"This is the library's own `{answer.__name__}`, but the exercise asks for yours."
        return exercise.verdict("unanswered", [sentence, "You may use what you have read there."])
    answer = exercise.taken(answer)
    trials = ready_trials(exercise, seed)
    with _one_at_a_time, undisturbed():
        outcomes = run(answer, [trial.call for trial in trials], exercise.time_limit)
    return judge_calls(exercise, trials, outcomes)


def ready_trials(exercise: Exercise, seed: int) -> tuple[Trial, ...]:
    """Return the cases of an exercise that is code, with the reference's results."""
    with _one_at_a_time, undisturbed():
        return prepare(exercise, seed)


def judge_value(exercise: Exercise, outcome: Outcome) -> Result:
    """Return the verdict on an answer that is a value, read in this process or in another."""
    if outcome.failure:
        return exercise.verdict("failed", [outcome.failure.sentence])
    value = outcome.value
    if value is Ellipsis or (isinstance(value, dict) and any(part is ... for part in value.values())):
        return exercise.unanswered()
    return exercise.judge_value(value)


def judge_calls(exercise: Exercise, trials: Sequence[Trial], outcomes: list[Outcome]) -> Result:
    """Return the verdict on the results of the trials' calls, made in this process or in another."""
    with _one_at_a_time, undisturbed():
        summed = [summed_up(trial, outcome) for trial, outcome in zip(trials, outcomes)]
        return exercise.judge_calls(trials, [*summed, *outcomes[len(summed) :]])


def hint(exercise_id: str = LEFT_OUT) -> Hint | Result:
    """Return the next hint of an exercise. Your progress counts the hints you have seen, and the last one repeats.

    For an unknown id, return a Result with the nearest ids.
    """
    exercise = asked("hint", exercise_id)
    return exercise if isinstance(exercise, Result) else learner_progress.next_hint(exercise)
