import math

import torch
from torch import nn

from course_lib.grading.exercise import Case, drawn_mask, generator, stage
from course_lib.grading.fixtures import also_in_training as probe
from course_lib.grading.judge.compare import compare


class SelfAttention(nn.Module):
    """One head of self-attention, without an output projection."""

    def __init__(self, d_model):
        super().__init__()
        ### BEGIN SOLUTION
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        ### END SOLUTION

    def forward(self, x, mask=None):
        ### BEGIN SOLUTION
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)  # (B, T, d_model) each
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, T, T)
        if mask is not None:
            blocked = ~mask
            scores = scores.masked_fill(blocked, -torch.inf)
        weights = scores.softmax(dim=-1)  # a row of nothing but −inf is NaN here
        if mask is not None:
            weights = weights.masked_fill(blocked.all(dim=-1, keepdim=True), 0.0)
        mixed = weights @ v  # (B, T, d_model)
        return mixed
        ### END SOLUTION


class Untransposed(nn.Linear):
    """A linear layer that multiplies by its matrix without transposing it."""

    def forward(self, x):
        return x @ self.weight + self.bias


class Unbiased(nn.Linear):
    """A linear layer that leaves out its bias."""

    def forward(self, x):
        return x @ self.weight.T


def tokens_of(rng, *shape, dtype=torch.float32):
    return torch.randn(shape, generator=rng, dtype=dtype)


@stage
def one_token(seed):
    "A single token attends to itself: its weight is 1, so only the values matter."
    rng = generator(seed)
    return [Case(tokens_of(rng, 1, 1, 4), init=(4,)), Case(tokens_of(rng, 3, 1, 6), init=(6,))]


@stage
def no_mask(seed):
    "No mask: every token attends to every token of its sentence. Sizes may be equal, and x may be a transposed view."
    rng = generator(seed)
    return [
        Case(tokens_of(rng, 1, 3, 4), init=(4,)),
        Case(tokens_of(rng, 3, 3, 3), init=(3,)),
        Case(tokens_of(rng, 2, 5, 3), init=(3,)),
        Case(tokens_of(rng, 3, 2, 7), init=(7,)),
        Case(tokens_of(rng, 2, 8, 5).transpose(1, 2), init=(8,)),
    ]


@stage
def masked(seed):
    "A mask: (T, T) for every sentence, or one for each, (B, 1, T) or (B, T, T). True = may attend."
    rng = generator(seed)
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    shapes = ((5, 5), (2, 1, 5), (2, 5, 5))
    each = [Case(tokens_of(rng, 2, 5, 6), drawn_mask(rng, *shape), init=(6,)) for shape in shapes]
    cube = Case(tokens_of(rng, 4, 4, 4), drawn_mask(rng, 4, 4), init=(4,))
    return [Case(tokens_of(rng, 1, 4, 6), causal, init=(6,)), cube, *each]


@stage
def nothing_to_see(seed):
    "A token that may not attend to any token: zeros, never NaN."
    rng = generator(seed)
    mask, masks = drawn_mask(rng, 4, 4), drawn_mask(rng, 2, 4, 4)
    mask[1] = masks[1, 2] = False
    return [Case(tokens_of(rng, 1, 4, 6), mask, init=(6,)), Case(tokens_of(rng, 2, 4, 6), masks, init=(6,))]


@stage
def large_tokens(seed):
    "Large numbers, in float64: scores in the thousands; then in the hundred thousands, with one token to attend to."
    rng = generator(seed)
    x = 60 * tokens_of(rng, 2, 4, 6, dtype=torch.float64)
    larger, one = 1000 * tokens_of(rng, 2, 6, 6, dtype=torch.float64), torch.eye(6, dtype=torch.bool).roll(1, 1)
    return [Case(x, init=(6,)), Case(x, drawn_mask(rng, 4, 4), init=(6,)), Case(larger, one, init=(6,))]


@stage
def doubles(seed):
    "float64 in, float64 out."
    rng = generator(seed)
    return [Case(tokens_of(rng, 2, 5, 8, dtype=torch.float64), drawn_mask(rng, 5, 5), init=(8,))]


@stage
def in_training(seed):
    "In training mode: there is no dropout, and the gradient reaches x (second result)."
    rng = generator(seed)
    return [Case(tokens_of(rng, 2, 3, 6, dtype=torch.float64).requires_grad_(), init=(6,))]


def judge(case, expected, got):
    """Allow for float32, whose steps near 5,000 are 0.0005: a softmax in float32 is correct, and loses that much."""
    large = case.args[0].abs().max() > 30
    return compare(expected, got, atol=1e-3 * expected.abs().max().item() if large else None)
