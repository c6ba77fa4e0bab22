import math

import torch
import torch.nn.functional as F

from course_lib.chapters.feed_forward.exercises._shared import in_float32
from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge import compare


def gelu(x):
    """x · Φ(x): any shape; same shape and dtype back."""
    chance_below = 0.5 * (1 + torch.erf(x / math.sqrt(2)))  # Φ(x)
    return x * chance_below


@stage
def landmarks(seed):
    "The number 0.5, without an axis, and the scores 0, 1, −1."
    return [Case(torch.tensor([0.0, 1.0, -1.0])), Case(torch.tensor(0.5))]


@stage
def from_minus_four_to_four(seed):
    "Scores from −4 to 4, where the approximations differ."
    return [Case(torch.linspace(-4, 4, 33)), Case(4 * torch.rand(3, 7, generator=generator(seed)) - 2)]


@stage
def far_out(seed):
    "Far out: a large score passes as it is, a very negative one becomes 0."
    return [Case(torch.tensor([-1e4, -100.0, -10.0, -6.0, 6.0, 10.0, 100.0, 1e4]))]


@stage
def any_shape(seed):
    "Any shape, and a transposed view."
    rng = generator(seed)
    return [Case(torch.randn(1, 5, generator=rng)), Case(torch.randn(2, 3, 4, generator=rng).transpose(0, 2))]


@stage
def double_scores(seed):
    "float64 in, float64 out."
    return [Case(2 * torch.randn(4, 5, generator=generator(seed), dtype=torch.float64))]


def judge(case, expected, got):
    """The two GELUs differ by 0.0005 at most: 1e-4, the usual tolerance of float32, would be too coarse."""
    return compare(expected, got, 1e-6, 1e-6)
