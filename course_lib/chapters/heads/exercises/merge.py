import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def split_heads(x, n_heads):
    """Divide each token's features among the heads: (B, T, d_model) -> (B, H, T, D)."""
    B, T, d_model = x.shape
    return x.reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2)  # (B, T, H, D) -> (B, H, T, D)


def merge_heads(x):
    """Undo split_heads, heads side by side: (B, H, T, D) -> (B, T, H * D)."""
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)  # reshape copies where view would refuse


def numbered(*shape):
    """Return 0.0, 0.1, 0.2 …: numbers that show where they came from."""
    return torch.arange(math.prod(shape)).reshape(shape) / 10


@stage
def heads_with_a_place(seed):
    "Two heads of two features, cut from the numbers 0.0 to 1.1: the result must have them in order again."
    return [Case(split_heads(numbered(1, 3, 4), 2).contiguous())]


@stage
def drawn_heads(seed):
    "Random numbers, as attention returns them: in memory, the tokens of a head follow each other."
    rng = generator(seed)
    return [Case(torch.randn(shape, generator=rng)) for shape in ((2, 3, 5, 4), (3, 5, 2, 3), (1, 4, 6, 2))]


@stage
def one_of_each(seed):
    "An axis of length 1: a single head, a single token, or a single feature per head."
    rng = generator(seed)
    return [Case(torch.randn(shape, generator=rng)) for shape in ((2, 1, 3, 4), (2, 3, 1, 4), (2, 3, 4, 1))]


@stage
def equal_heads(seed):
    "Equal numbers of sentences, heads, tokens and features per head."
    rng = generator(seed)
    return [Case(torch.randn(2, 2, 2, 2, generator=rng)), Case(torch.randn(3, 3, 3, 3, generator=rng))]


@stage
def views_of_heads(seed):
    "Other strides: x is a view returned by a split, a transposed tensor, or part of a larger tensor."
    rng = generator(seed)
    return [
        Case(split_heads(torch.randn(2, 5, 12, generator=rng), 3)),
        Case(torch.randn(2, 3, 4, 5, generator=rng).transpose(2, 3)),
        Case(torch.randn(2, 6, 4, 5, generator=rng)[:, ::2, 1:, :3]),
    ]


@stage
def double_heads(seed):
    "float64 in, float64 out, digit for digit."
    return [Case(torch.randn(2, 3, 4, 2, generator=generator(seed), dtype=torch.float64))]
