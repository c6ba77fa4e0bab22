import math

import torch

from course_lib.grading.exercise import Case, drawn_mask, generator, stage


def scaled_dot_product_attention(q, k, v, mask=None):
    """softmax(q kᵀ / √D) v, with the weights: (output, weights)."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (..., T, S)
    if mask is not None:
        blocked = ~mask
        scores = scores.masked_fill(blocked, -torch.inf)
    weights = scores.softmax(dim=-1)  # a row of nothing but −inf is NaN here
    if mask is not None:
        weights = weights.masked_fill(blocked.all(dim=-1, keepdim=True), 0.0)
    output = weights @ v  # (..., T, D_v)
    return output, weights


def qkv(rng, *leading, T, S, D, D_v, dtype=torch.float32):
    shapes = ((*leading, T, D), (*leading, S, D), (*leading, S, D_v))
    return tuple(torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes)


@stage
def one_key(seed):
    "One key: there is nothing to choose, so every weight is 1 and the output is that key's value."
    return [Case(*qkv(generator(seed), T=2, S=1, D=3, D_v=2))]


@stage
def no_mask(seed):
    "No mask: T queries look at S keys."
    rng = generator(seed)
    return [
        Case(*qkv(rng, T=1, S=2, D=4, D_v=3)),
        Case(*qkv(rng, T=2, S=3, D=4, D_v=5)),
        Case(*qkv(rng, T=4, S=4, D=4, D_v=4)),
    ]


@stage
def leading_axes(seed):
    "Leading axes, for a batch or for a batch of heads (some are views of a split): attention leaves them unchanged."
    rng = generator(seed)
    views = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in qkv(rng, 2, 3, T=4, S=2, D=3, D_v=5))
    return [
        Case(*views),
        Case(*qkv(rng, 2, T=3, S=2, D=4, D_v=5)),
        Case(*qkv(rng, 3, T=3, S=3, D=3, D_v=3)),
        Case(*qkv(rng, 2, 3, T=2, S=4, D=5, D_v=3)),
    ]


@stage
def masked(seed):
    "A mask: True = may attend. A blocked key gets weight 0 and the others sum to 1; a small mask is broadcast."
    rng = generator(seed)
    return [
        Case(*qkv(rng, T=3, S=3, D=2, D_v=2), torch.ones(3, 3, dtype=torch.bool).tril()),
        Case(*qkv(rng, T=2, S=4, D=3, D_v=2), drawn_mask(rng, 2, 4)),
        Case(*qkv(rng, 2, 3, T=3, S=4, D=4, D_v=2), drawn_mask(rng, 3, 4)),
        Case(*qkv(rng, 2, 3, T=3, S=5, D=4, D_v=2), drawn_mask(rng, 2, 1, 1, 5)),
    ]


@stage
def nothing_to_see(seed):
    "A query whose keys are all blocked: its weights and its output are zeros, never NaN."
    rng = generator(seed)
    mask, masks = drawn_mask(rng, 3, 4), drawn_mask(rng, 2, 2, 3, 4)
    mask[1] = masks[1, 0, 2] = False
    return [Case(*qkv(rng, T=3, S=4, D=2, D_v=2), mask), Case(*qkv(rng, 2, 2, T=3, S=4, D=2, D_v=2), masks)]


@stage
def large_scores(seed):
    "Large scores of either sign, then only scores far below 0: the largest allowed one gets all the weight."
    rng = generator(seed)
    q, k, v = qkv(rng, T=3, S=4, D=4, D_v=2)
    q, k = (q * 64).round(), (k * 64).round()
    mask = drawn_mask(rng, 3, 4)
    return [Case(q, k, v), Case(q, k, v, mask), Case(-4 * q.abs() - 200, 4 * k.abs() + 200, v, mask)]


@stage
def double_attention(seed):
    "float64 in, float64 out."
    return [Case(*qkv(generator(seed), 2, T=3, S=5, D=7, D_v=2, dtype=torch.float64))]
