import torch

from course_lib.grading.exercise import Case, generator, stage


def train_flops(n_params, n_tokens):
    """Return the FLOPs of a training run with recomputed activations, by the usual
    rule."""
    forward = 2 * n_params * n_tokens
    backward = 2 * forward
    return 2 * forward + backward


@stage
def one_of_each(seed):
    "One parameter, one token."
    return [Case(1, 1)]


@stage
def small_numbers(seed):
    "Sizes small enough to check by hand."
    return [Case(10, 3), Case(7, 100)]


@stage
def whole_runs(seed):
    "A full training run, of random sizes or with GPT-3's 175 billion parameters and 300 billion tokens."
    rng = generator(seed)
    drawn = [int(torch.randint(1000, 10**6, (), generator=rng)) for _ in range(2)]
    return [Case(*drawn), Case(175 * 10**9, 300 * 10**9)]
