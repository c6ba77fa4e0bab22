import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def attention_entropy(scores, d_k, scaled):
    """Return the entropy in nats of each row of weights: scores (..., S) -> (...)."""
    if scaled:
        scores = scores / math.sqrt(d_k)
    p = scores.softmax(dim=-1)
    return -torch.xlogy(p, p).sum(dim=-1)  # xlogy(0, 0) is 0


INF = float("inf")


@stage
def even_scores(seed):
    "Equal scores: all S keys get the same weight, and the entropy is ln S, its maximum."
    return [Case(torch.zeros(1, 4), 16, False), Case(torch.full((2, 7), 3.0), 16, True)]


@stage
def four_scores(seed):
    "The scores [8, 4, 2, 1] with d_k = 64, scaled or not."
    scores = torch.tensor([[8.0, 4.0, 2.0, 1.0]])
    return [Case(scores, 64, False), Case(scores, 64, True)]


@stage
def drawn_scores(seed):
    "Scores of random queries and keys: one entropy per query, with any leading axes; one case is a view."
    rng = generator(seed)
    scores = torch.randn(2, 3, 5, generator=rng) * 3
    plain = [Case(scores[0], 9, True), Case(scores[0], 9, False), Case(scores, 9, True)]
    return [*plain, Case(scores.double(), 9, False), Case(scores.mT, 9, True)]


@stage
def large_and_close(seed):
    "Scores near 1,000 and −10,000, and one of −inf: exp overflows or gives 0, but the entropy is an ordinary number."
    steps = torch.randint(-3, 4, (2, 3), generator=generator(seed)).double()  # near 1,000 a float32 has steps of 6e-5
    low = torch.tensor([[-INF, -1e4, 1 - 1e4]], dtype=torch.float64)
    return [Case(low, 16, False), Case(torch.tensor([[1e3], [-1e3]]) + steps, 1, False)]


@stage
def saturated(seed):
    "Scores so far apart that one key takes all: the other weights are exactly 0, and the entropy is 0."
    return [Case(torch.tensor([[1e4, 0.0, -1e4]]), 4, False)]


@stage
def blocked(seed):
    "A score of −inf: its weight is exactly 0 and adds nothing, and the weights of the other keys sum to 1."
    return [Case(torch.tensor([[0.5, -INF, 0.0]]), 4, True)]
