import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def attention_weights(Q, K):
    """Return the weights of scaled dot-product attention (T, S): Q (T, D), K (S, D)."""
    scores = Q @ K.T / math.sqrt(Q.shape[-1])  # (T, S)
    return scores.softmax(dim=-1)


PAPER_Q = torch.tensor([[1, 0, 1, 0], [0.5, 0.5, 0, 1], [0, 1, 0.5, 0.5], [1, 1, 0, 0]])


PAPER_K = torch.tensor([[1, 0, 0.5, 0.5], [0, 1, 0, 1], [0.5, 0.5, 1, 0], [0, 0, 1, 1]])


@stage
def the_example(seed):
    "The four queries and four keys that you can do on paper."
    return [Case(PAPER_Q.clone(), PAPER_K.clone())]


@stage
def other_numbers(seed):
    "More or fewer than four queries and keys, with fewer features or more."
    rng = generator(seed)
    return [
        Case(torch.randn(3, 2, generator=rng), torch.randn(5, 2, generator=rng)),
        Case(torch.randn(6, 9, generator=rng), torch.randn(4, 9, generator=rng)),
    ]
