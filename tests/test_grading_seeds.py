"""No wrong answer passes by the luck of the draw: every form of every mistake, and training runs that are nearly right.

A class is graded with a seed that nobody has tried. The search for the mistake's name is left out, which takes most of
the time: it is `test_grading.py` that asks for names.
"""

import pytest
import torch

from course_lib.grading import EXERCISES, grade
from course_lib.grading.engine import PUBLIC_SEED, ready_trials
from course_lib.grading.judge.call import call
from course_lib.grading.judge.limits import undisturbed
from course_lib.grading.judge.trials import summed_up
from tests.confusion import SLOW
from tests.right.sampling import compare_with_a_buffer

pytestmark = [pytest.mark.usefixtures("as_a_learner"), pytest.mark.proof]


@pytest.mark.parametrize(
    "exercise", [each for each in EXERCISES.values() if each.kind in ("code", "experiment")], ids=lambda each: each.id
)
def test_no_form_of_a_mistake_passes_under_any_seed(exercise):
    """A class is graded with a seed that nobody has tried. The case that caught a form is tried first with the next."""
    caught: dict[tuple[str, int], int] = {}
    for seed in (1, 2) if exercise.id in SLOW else range(20):
        trials = ready_trials(exercise, seed)
        with undisturbed():
            for mistake in exercise.misconceptions:
                for number, wrong in enumerate(mistake.variants):
                    before = caught.get((mistake.name, number), 0)
                    order = sorted(range(len(trials)), key=lambda i: i != before)
                    caught[mistake.name, number] = next((i for i in order if fails(exercise, wrong, trials[i])), -1)
                    assert caught[mistake.name, number] >= 0, f"{mistake.name}, form {number}, passes under seed {seed}"


def fails(exercise, wrong, trial):
    return exercise.problem_of(trial, summed_up(trial, call(wrong, trial.call))) is not None


def orders(order=lambda steps: steps, rate=1.0, falling=1.0, decay=0.0, frozen="", updates=None, **settings):
    """An answer to `blocks.pre_or_post` that is right unless it is told otherwise."""

    def train(model, inputs, targets, learning_rate):
        for name, parameter in model.named_parameters():
            parameter.requires_grad = name != frozen
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate * learning_rate, **settings)
        schedule, losses = torch.optim.lr_scheduler.ExponentialLR(optimizer, falling), []
        for step in order(list(range(len(inputs)))):
            loss = model(inputs[step], targets[step])[1]
            losses.append(loss.item())
            optimizer.zero_grad()
            (loss + decay * sum(each.square().sum() for each in model.parameters())).backward()
            if len(losses) <= (updates or len(inputs)):
                optimizer.step()
            schedule.step()
        return losses

    return lambda pre, post, *given: (train(pre, *given), train(post, *given))


WRONG_ORDERS = {
    "batches in another order": {"order": lambda steps: steps[:4] + steps[:3:-1]},
    "a penalty of its own": {"decay": 1e-3},
    "last update missing": {"updates": 15},
    "part of the model frozen": {"frozen": "token_embedding.weight"},
    "a rate that falls": {"falling": 0.99},
    "a lower rate": {"rate": 0.9},
    "another memory": {"betas": (0.8, 0.999)},
    "a larger eps": {"eps": 1e-4},
}
FROM_LOSSES = ("batches in another order", "a penalty of its own")  # which is chance: all others are seen at the steps


@pytest.mark.parametrize("name", WRONG_ORDERS)
def test_a_training_run_that_is_not_the_one_that_is_asked_for_passes_under_no_seed(name):
    for seed in range(20) if name in FROM_LOSSES else (PUBLIC_SEED, 5, 7):
        assert not passes("blocks.pre_or_post", orders(**WRONG_ORDERS[name]), seed), f"seed {seed}: it passes"


def test_the_same_training_run_passes_under_every_seed_whatever_its_rounding():
    """A fused step rounds otherwise, and post-norm at chance makes much of it."""
    for seed in range(20):
        assert passes("blocks.pre_or_post", orders(fused=True), seed), f"seed {seed}: it does not pass"


def passes(exercise_id, answer, seed):
    """Does it pass? Without the search for the mistake, which would train as often as there are mistakes."""
    exercise = EXERCISES[exercise_id]
    trials = ready_trials(exercise, seed)
    with undisturbed():
        return not any(fails(exercise, answer, trial) for trial in trials)


def test_a_call_that_draws_equal_counts_by_chance_fails_no_right_answer():
    """Under this secret 20 texts and the next 20 have equal counts and an equal mean, though all are drawn."""
    exercise = EXERCISES["sampling.compare"]
    secret = 127_564_759_527_287_141_330_303_204_573_656_775_365
    for answer in (exercise.reference, compare_with_a_buffer):
        assert grade(exercise.id, answer, secret).passed
