import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def scaled_angles(T, d_head, theta, factor, low, high, original):
    """Return Llama 3.1's RoPE angles (T, d_head / 2): slow pairs turn slower still."""
    speed = theta ** (-torch.arange(0, d_head, 2) / d_head)  # (D / 2,), radians per token
    turns = original * speed / (2 * math.pi)  # (D / 2,), within the original length
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    speed = speed * (kept + (1 - kept) / factor)
    return torch.arange(T)[:, None] * speed  # (T, D / 2)


@stage
def one_pair(seed):
    "One pair of features, which rotates fast, slowly, or at a speed between the two."
    return [
        Case(3, 2, 100.0, 8.0, 1.0, 4.0, 8 * math.pi * 5),
        Case(3, 2, 100.0, 8.0, 1.0, 4.0, math.pi),
        Case(3, 2, 100.0, 8.0, 1.0, 4.0, 4 * math.pi),
    ]


@stage
def several_pairs(seed):
    "Several pairs: some keep their speed, some are slowed down, and some are between the two."
    rng = generator(seed)
    factor, original = (2 + 6 * torch.rand(2, generator=rng)).tolist()
    return [
        Case(4, 8, 10_000.0, 4.0, 1.0, 4.0, 100.0),
        Case(5, 12, 300.0, factor, 0.5, 3.0, 20 * original),
        Case(2, 16, 50.0, 1.0, 1.0, 2.0, 30.0),
    ]


@stage
def as_published(seed):
    "Llama 3.1's settings: 128 features per head, theta 500,000, factor 8, low 1, high 4, original 8,192."
    return [Case(3, 128, 500_000.0, 8.0, 1.0, 4.0, 8192.0)]
