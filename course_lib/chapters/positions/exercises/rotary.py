import torch

from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge.compare import compare


def apply_rotary(x, positions, theta):
    """Rotate each half-split pair of x (B, H, T, D) by its position's angle.
    Same shape and dtype."""
    half = x.shape[-1] // 2
    speed = theta ** (-torch.arange(half) / half)  # (D / 2,), radians per token
    angle = positions[:, None] * speed  # (T, D / 2)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]  # (B, H, T, D / 2) each
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def drawn_x(rng, B, H, T, D, dtype=torch.float32):
    return torch.randn(B, H, T, D, generator=rng, dtype=torch.float64).to(dtype)


@stage
def at_the_start(seed):
    "One token at position 0: nothing is rotated."
    rng = generator(seed)
    start = torch.tensor([0])
    return [Case(drawn_x(rng, 1, 1, 1, 4), start, 10000.0), Case(drawn_x(rng, 2, 1, 1, 6), start, 100.0)]


@stage
def one_pair(seed):
    "One pair of features, rotated by one radian per token: at position 1, (1, 0) becomes (cos 1, sin 1)."
    x = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    rng = generator(seed)
    return [Case(x, torch.tensor([1]), 10000.0), Case(drawn_x(rng, 1, 1, 3, 2), torch.arange(3), 10000.0)]


@stage
def two_pairs(seed):
    "Two or three pairs, half-split, each with its own speed."
    rng = generator(seed)
    return [
        Case(torch.tensor([1.0, 0.0, 0.0, 0.0]).view(1, 1, 1, 4), torch.tensor([2]), 100.0),
        Case(drawn_x(rng, 1, 1, 1, 4), torch.tensor([3]), 100.0),
        Case(drawn_x(rng, 1, 1, 3, 6), torch.arange(3), 10000.0),
    ]


@stage
def batch_and_heads(seed):
    "A batch of several heads. A position belongs to axis 2, whatever the other axes are, and x may be a view."
    rng = generator(seed)
    view = drawn_x(rng, 2, 5, 3, 4).transpose(1, 2)  # (2, 3, 5, 4)
    return [
        Case(drawn_x(rng, 2, 3, 4, 6), torch.arange(4), 10000.0),
        Case(drawn_x(rng, 4, 4, 4, 4), torch.arange(4), 10000.0),
        Case(view, torch.arange(5), 500000.0),
    ]


@stage
def elsewhere(seed):
    "Positions that do not start at 0, have gaps or repeat, as with a cache; theta may differ."
    rng = generator(seed)
    apart = torch.randint(20, 60, (3,), generator=rng)
    return [
        Case(drawn_x(rng, 1, 2, 1, 4), torch.tensor([7]), 10000.0),
        Case(drawn_x(rng, 2, 1, 3, 8), torch.tensor([5, 6, 7]), 50.0),
        Case(drawn_x(rng, 1, 2, 4, 10), torch.cat([apart, apart[:1]]), 500000.0),
    ]


@stage
def double(seed):
    "float64 in, float64 out."
    return [Case(drawn_x(generator(seed), 1, 2, 3, 4, torch.float64), torch.tensor([0, 1, 2]), 10000.0)]


@stage
def far(seed):
    "Positions in the thousands, and large numbers in x."
    return [Case(100 * drawn_x(generator(seed), 1, 1, 2, 6), torch.tensor([1000, 4000]), 10000.0)]


def judge(case, expected, got):
    """Allow for float32, which is correct whatever the dtype of x: at position 4,000 an angle is exact to 0.0005."""
    x, positions, _ = case.args
    furthest, largest = int(positions.max()), float(x.abs().max())
    return compare(expected, got, rtol=1e-6, atol=1e-6 * (1 + furthest) * (1 + largest))
