import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def best_policy(base, reward, beta):
    """Return the best distribution (V,) at a price of β per nat of divergence."""
    possible = reward.masked_fill(base == 0, -torch.inf)
    shifted = (possible - possible.max()) / beta  # (V,), at most 0: no exponential overflows
    weights = base * shifted.exp()  # (V,)
    return weights / weights.sum()


def drawn(rng, V, dtype=torch.float32):
    """Return a base and rewards of V outcomes."""
    base = torch.randn(V, generator=rng, dtype=dtype).softmax(0)
    return base, torch.randn(V, generator=rng, dtype=dtype)


def partly_impossible(rng, V, beta, size=1.0):
    """Return a case with several bases of 0, one of them with the largest reward by far."""
    base, reward = drawn(rng, V)
    reward = reward * size
    order = torch.randperm(V, generator=rng)
    reward[order[0]] = reward.max() + 3 * size
    base[order[: V // 3]] = 0
    return Case(base / base.sum(), reward, beta)


@stage
def even_base(seed):
    "All outcomes equally likely under the base, β = 1: only the rewards matter."
    return [
        Case(torch.full((2,), 0.5), torch.tensor([0.0, math.log(3)]), 1.0),
        Case(torch.full((5,), 0.2), torch.randn(5, generator=generator(seed)), 1.0),
    ]


@stage
def uneven_base(seed):
    "An uneven base, β = 1, as in the example by hand. With equal rewards the result is the base itself."
    base, reward = drawn(generator(seed), 6)
    example = torch.tensor([0.5, 0.25, 0.25])
    return [
        Case(example, torch.tensor([1.0, 2.0, 4.0]).log(), 1.0),
        Case(base, reward, 1.0),
        Case(base, torch.full((6,), -2.0), 1.0),
    ]


@stage
def other_prices(seed):
    "Other values of β: a low price moves p far from the base, a high one hardly."
    rng = generator(seed)
    return [Case(*drawn(rng, V), beta) for V, beta in ((4, 0.5), (7, 3.0), (3, 0.2), (12, 20.0))]


@stage
def impossible_outcomes(seed):
    "Some outcomes have a base of 0, the one with the largest reward among them: they keep a probability of 0."
    rng = generator(seed)
    first = Case(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 1.0, 3.0]), 1.0)
    return [first, partly_impossible(rng, 6, 0.7), partly_impossible(rng, 9, 2.0)]


@stage
def tiny_price(seed):
    "A tiny β: the exponentials overflow, but the probabilities are ordinary numbers. Equal best outcomes share it."
    rng = generator(seed)
    base, reward = drawn(rng, 5)
    base_of_best, best = drawn(rng, 6)
    best = torch.where(best >= best.sort().values[3], 2500.0, 10 * best)
    return [
        Case(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.0, 1000.0, 1000.0]), 0.5),
        Case(base, 500 + reward, 1.0),
        Case(base_of_best, best, 1e-4),
        Case(base, -3000 + 1000 * torch.arange(5.0), 0.01),
    ]


@stage
def tiny_price_impossible(seed):
    "A tiny β, and the largest reward belongs to an outcome with a base of 0."
    rng = generator(seed)
    return [
        Case(torch.tensor([0.75, 0.25, 0.0]), torch.tensor([1.0, 1.0, 2.0]), 1e-3),
        Case(torch.tensor([0.25, 0.75, 0.0]), torch.tensor([-20_000.0, -20_001.0, 0.0]), 0.5),
        partly_impossible(rng, 7, 0.02, size=5.0),
        partly_impossible(rng, 10, 1e-4, size=1000.0),
    ]


@stage
def double_policy(seed):
    "float64 in, float64 out."
    return [Case(*drawn(generator(seed), 8, torch.float64), 0.6)]
