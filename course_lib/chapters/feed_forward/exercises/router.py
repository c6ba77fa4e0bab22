import math

import torch

from course_lib.chapters.feed_forward.fixtures import used_in_a_layer as probe
from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge.compare import compare


def route(x, W, k):
    """Return the weights of each token's k experts, and their numbers: (N, k) each."""
    scores = x @ W.T  # (N, n_experts)
    p = scores.softmax(dim=-1)
    weights, experts = p.topk(k, dim=-1)  # (N, k) each, the largest first
    return weights / weights.sum(dim=-1, keepdim=True), experts


def judge(case, expected, got):
    """Compare the parts of the result, with the names that they have in this case."""
    names = ("y", "W.grad") if case.args[1].requires_grad else ("weights", "experts")
    return compare(expected, got, names=names)


def drawn(rng, N, d_model, n_experts, dtype=torch.float32):
    """Return random x and W: no two scores of a token are almost equal, where rounding would decide."""
    while True:
        x = torch.randn(N, d_model, generator=rng, dtype=dtype)
        W = torch.randn(n_experts, d_model, generator=rng, dtype=dtype)
        if (x @ W.T).sort(dim=-1).values.diff(dim=-1).min() > 0.02:
            return x, W


@stage
def one_token(seed):
    "One token: the example by hand, and another."
    scores = [math.log(each) for each in (0.5, 2.0, 6.0, 1.5)]
    by_hand = torch.tensor([[1.0]]), torch.tensor(scores)[:, None]
    return [Case(*by_hand, 2), Case(*drawn(generator(seed), 1, 4, 3), 2)]


@stage
def several_tokens(seed):
    "Several tokens: each has its own experts."
    rng = generator(seed)
    return [
        Case(*drawn(rng, N, d_model, n_experts), k)
        for N, d_model, n_experts, k in ((5, 3, 4, 2), (4, 4, 4, 2), (7, 5, 6, 3), (3, 6, 5, 2))
    ]


@stage
def one_expert_or_all(seed):
    "One expert per token, whose weight is 1, and all experts."
    rng = generator(seed)
    return [Case(*drawn(rng, 4, 3, 5), 1), Case(*drawn(rng, 4, 5, 4), 4)]


@stage
def large_scores(seed):
    "Scores as large as ±100."
    x, W = torch.tensor([[10.0, 1.0], [-10.0, 1.0], [-10.0, -1.0]]), torch.full((5, 2), 9.8)
    W[:, 1] = 0.5 * torch.randperm(5, generator=generator(seed)) - 1
    return [Case(x, W, 2), Case(x, W, 3)]


@stage
def routed_views(seed):
    "Transposed views of other tensors."
    x, W = drawn(generator(seed), 4, 3, 5)
    return [Case(x.T.contiguous().T, W.T.contiguous().T, 2)]


@stage
def routed_double(seed):
    "float64 in, float64 out."
    return [Case(*drawn(generator(seed), 5, 4, 6, torch.float64), 3)]


@stage
def in_a_layer(seed):
    "A layer with your router: its output y, (N, d_model), and the gradient of W from a weighted sum of y."
    rng = generator(seed)
    return [
        Case(x, W.requires_grad_(), k)
        for x, W, k in ((*drawn(rng, 3, 2, 3), 2), (*drawn(rng, 6, 4, 5), 2), (*drawn(rng, 5, 3, 4), 3))
    ]
