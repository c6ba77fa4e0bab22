import torch

from course_lib.grading.exercise import Case, generator, stage


def group_advantages(rewards):
    """Return how much better than its group each answer is: (G, N) -> (G, N)."""
    difference = rewards - rewards.mean(dim=1, keepdim=True)  # (G, N)
    deviation = difference.square().mean(dim=1, keepdim=True).sqrt()  # (G, 1)
    equal = rewards.amax(dim=1, keepdim=True) == rewards.amin(dim=1, keepdim=True)
    return torch.where(equal, 0.0, difference / deviation)


def drawn(rng, G, N, dtype=torch.float32):
    """Return rewards (G, N) whose groups differ in their means and in their spreads."""
    mean = torch.randn(G, 1, generator=rng, dtype=dtype)
    spread = 0.3 + 2 * torch.rand(G, 1, generator=rng, dtype=dtype)
    return mean + spread * torch.randn(G, N, generator=rng, dtype=dtype)


def zeros_and_ones(rng, G, N):
    """Return rewards of 0 and 1: group g has g + 1 ones, in random positions."""
    ones = 1 + torch.arange(G)[:, None]  # (G, 1)
    order = torch.rand(G, N, generator=rng).argsort(1)
    return (order < ones).float()


@stage
def one_group(seed):
    "One group: the example by hand, and others."
    rng = generator(seed)
    return [Case(torch.tensor([[1.0, 0.0, 0.0, 1.0]])), Case(torch.tensor([[0.0, 0.0, 3.0]])), Case(drawn(rng, 1, 6))]


@stage
def several_groups(seed):
    "Several groups: each is compared only with itself, whether its question is easy or hard."
    rng = generator(seed)
    return [Case(zeros_and_ones(rng, 3, 5)), Case(drawn(rng, 2, 4)), Case(drawn(rng, 5, 5)), Case(drawn(rng, 7, 2))]


@stage
def equal_rewards(seed):
    "A group of equal rewards next to others: its advantages are 0."
    rng = generator(seed)
    mixed = zeros_and_ones(rng, 4, 6)
    mixed[1], mixed[3] = 1.0, 0.0
    return [Case(torch.tensor([[2.0, 2.0, 2.0, 2.0]])), Case(mixed)]


@stage
def small_rewards(seed):
    "Small rewards: the advantages are as large as those of large rewards."
    rng = generator(seed)
    return [Case(0.001 * zeros_and_ones(rng, 3, 6)), Case(1e-4 * drawn(rng, 3, 4))]


@stage
def equal_and_rounded(seed):
    "Groups of equal rewards, such as 0.1, whose mean is not exact in float32: their advantages are exactly 0."
    rng = generator(seed)
    equal = 0.1 * (1 + torch.arange(40.0))[:, None].expand(-1, 7)  # (40, 7)
    mixed = torch.cat([equal[:9, :3], drawn(rng, 2, 3), equal[-9:, :3]])
    return [Case(equal.clone()), Case(mixed)]


@stage
def double_rewards(seed):
    "float64 in, float64 out."
    return [Case(drawn(generator(seed), 3, 5, torch.float64))]
