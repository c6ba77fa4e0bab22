import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def interpolated_angles(positions, d_head, theta, scale, original_length=None):
    """Return RoPE's angles (T, d_head / 2) for texts that are `scale` times as long."""
    pair = torch.arange(d_head // 2)
    speed = theta ** (-2 * pair / d_head)  # (D / 2,), radians per token
    kept = torch.zeros(d_head // 2)
    if original_length is not None:
        wide = original_length / (2 * math.pi)  # rotations of pair 0
        low = math.floor(d_head / 2 * math.log(wide / 32, theta))
        high = math.ceil(d_head / 2 * math.log(wide, theta))
        kept = ((high - pair) / (high - low)).clamp(0, 1)
    speed = speed * (kept + (1 - kept) / scale)
    return positions[:, None] * speed  # (T, D / 2)


def drawn_positions(rng, T, most):
    return torch.randint(1, most, (T,), generator=rng)


@stage
def one_pair(seed):
    "One pair of features, which rotates by 1 / s radians per token."
    return [Case(torch.arange(4), 2, 100.0, 2.0), Case(torch.arange(3), 2, 10_000.0, 4.0)]


@stage
def several_pairs(seed):
    "Several pairs: position interpolation slows all of them. s may be 1, or between two whole numbers."
    return [
        Case(torch.tensor([2]), 8, 10_000.0, 4.0),
        Case(torch.arange(5), 6, 100.0, 2.5),
        Case(torch.arange(3), 12, 500_000.0, 1.0),
    ]


@stage
def elsewhere(seed):
    "Positions that do not start at 0, have gaps or repeat."
    rng = generator(seed)
    return [
        Case(torch.tensor([7]), 4, 10_000.0, 2.0),
        Case(drawn_positions(rng, 4, 4000), 10, 50.0, 3.0),
        Case(torch.tensor([900, 5, 5]), 6, 10_000.0, 8.0),
    ]


@stage
def by_hand(seed):
    "YaRN, with the numbers of the statement: one pair is kept, one is mixed, two are slowed."
    return [Case(torch.tensor([2]), 8, 10_000.0, 4.0, 256), Case(torch.arange(3), 8, 10_000.0, 4.0, 256)]


@stage
def other_ramps(seed):
    "YaRN with other heads. The ramp may end after the last pair. A pair may have barely 32 rotations, or barely fewer."
    rng = generator(seed)
    return [
        Case(torch.tensor([1, 10]), 12, 1000.0, 8.0, 1000),
        Case(drawn_positions(rng, 3, 2000), 64, 500.0, 3.7, 540),
        Case(torch.tensor([3, 300]), 8, 20.0, 2.0, 256),
        Case(torch.tensor([1, 20]), 8, 10_000.0, 4.0, 2010),
        Case(torch.tensor([1, 20]), 8, 10_000.0, 4.0, 2011),
    ]


@stage
def as_published(seed):
    "Heads of 128 features, as in Llama 2 with a length of 4,096 and in Qwen2.5 with 32,768, with any scale."
    rng = generator(seed)
    first, second = (2 + 14 * torch.rand(2, generator=rng)).tolist()
    return [
        Case(drawn_positions(rng, 3, 8000), 128, 10_000.0, first, 4096),
        Case(drawn_positions(rng, 3, 8000), 128, 1_000_000.0, second, 32_768),
        Case(drawn_positions(rng, 2, 8000), 128, 10_000.0, second),
    ]
