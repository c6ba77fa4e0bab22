import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def split_heads(x, n_heads):
    """Divide each token's features among the heads: (B, T, d_model) -> (B, H, T, D)."""
    B, T, d_model = x.shape
    return x.reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2)  # (B, T, H, D) -> (B, H, T, D)


def numbered(*shape):
    """Return 0.0, 0.1, 0.2 …: numbers that show where they came from."""
    return torch.arange(math.prod(shape)).reshape(shape) / 10


@stage
def numbers_with_a_place(seed):
    "Numbers that show where they came from: 0.0, 0.1, 0.2 … Two heads."
    return [Case(numbered(1, 3, 4), 2), Case(numbered(1, 4, 8), 2)]


@stage
def drawn_tokens(seed):
    "Random numbers: several heads of several features each."
    rng = generator(seed)
    sizes = [((3, 4, 10), 5), ((2, 5, 12), 3), ((1, 7, 6), 3), ((2, 6, 24), 6)]
    return [Case(torch.randn(shape, generator=rng), n_heads) for shape, n_heads in sizes]


@stage
def one_or_all(seed):
    "A single head, or one head for each feature."
    rng = generator(seed)
    return [Case(torch.randn(2, 3, 4, generator=rng), 1), Case(torch.randn(2, 3, 5, generator=rng), 5)]


@stage
def equal_sizes(seed):
    "Equal numbers of sentences, tokens, heads and features per head: only the order of the axes can go wrong."
    rng = generator(seed)
    return [Case(torch.randn(2, 2, 4, generator=rng), 2), Case(torch.randn(3, 3, 9, generator=rng), 3)]


@stage
def views_of_tokens(seed):
    "x is a view: transposed, or part of a larger tensor."
    rng = generator(seed)
    return [
        Case(torch.randn(2, 6, 5, generator=rng).transpose(1, 2), 3),
        Case(torch.randn(2, 4, 12, generator=rng)[:, ::2, 4:], 2),
    ]


@stage
def double_tokens(seed):
    "float64 in, float64 out, digit for digit."
    return [Case(torch.randn(2, 3, 6, generator=generator(seed), dtype=torch.float64), 2)]
