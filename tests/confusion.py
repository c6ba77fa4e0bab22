"""Whom each mistake of an exercise is taken for: the confusion matrix, of which the tests of the catalogue read."""

import functools
from collections.abc import Mapping

import pytest

from course_lib.grading import grade
from course_lib.grading.engine import judge_calls, ready_trials
from course_lib.grading.judge.call import run
from course_lib.grading.judge.limits import undisturbed
from course_lib.grading.judge.trials import summed_up

SLOW = {  # half a second or more for each answer and seed, in training or building models, in loops over rows or keys
    "attention.score_variance",
    "blocks.pre_or_post",
    "counting.function",
    "efficiency.online_softmax",
    "efficiency.speculative",
    "feed_forward.ablate_fact",
    "feed_forward.sparsity",
    "heads.how_many",
    "positions.equivariance",
    "sampling.compare",
    "sampling.generate",
    "sampling.next_token",
    "training.get_batch",
    "training.overfit",
    "training.scaling_law",
    "your_gpt.file",
}


def late(exercise):
    """The mark of a test that runs every mistake of an exercise: where that takes seconds, it is a proof."""
    return [pytest.mark.proof] * (exercise.id in SLOW)


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
