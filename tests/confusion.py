"""Whom each mistake of an exercise is taken for: the confusion matrix, of which the tests of the catalogue read."""

import functools
from collections.abc import Mapping

from course_lib.grading import grade
from course_lib.grading.engine import judge_calls, ready_trials
from course_lib.grading.limits import undisturbed
from course_lib.grading.run import run
from course_lib.grading.trials import summed_up


def complete(exercise, wrong):
    """A misconception's answer in full: the parts that it does not name are right."""
    named = isinstance(exercise.reference, Mapping) and isinstance(wrong, Mapping)
    return {**exercise.reference, **wrong} if named else wrong


@functools.cache
def confusion(exercise, seed, first=True):
    """Whom each mistake is taken for: {(its name, number of its form): what the grader says of it}. The first form of
    every mistake, or else all of its other forms.

    Each of these runs once. What it did as the answer is what all forms, itself among them, are then held against: as
    an answer that passes, or as another mistake. Of a form that is not among them only those cases run which it takes
    to tell it from the answer.
    """
    forms = {
        (mistake.name, number): wrong
        for mistake in exercise.misconceptions
        for number, wrong in enumerate(mistake.variants)
        if (number == 0) == first
    }
    if exercise.kind not in ("code", "experiment"):
        return {form: grade(exercise.id, complete(exercise, wrong), seed) for form, wrong in forms.items()}
    trials, outcomes = ready_trials(exercise, seed), {}
    with undisturbed():
        for form, wrong in forms.items():
            outcomes[form] = run(wrong, [trial.call for trial in trials], exercise.time_limit)
            for trial, outcome in zip(trials, outcomes[form]):
                trial.mistakes[wrong] = summed_up(trial, outcome)
    return {form: judge_calls(exercise, trials, each) for form, each in outcomes.items()}
