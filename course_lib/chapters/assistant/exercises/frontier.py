import math

import torch

from course_lib.assistant import best_policy
from course_lib.grading.exercise import Case, generator, stage


def compare_at_equal_divergence(base, reward, n, policy):
    """Return (reward, divergence, the best possible reward at this divergence)
    of best-of-n and of a policy: {"best_of_n": …, "policy": …}."""

    def divergence(p):
        return torch.where(p > 0, p * (p / base).log(), 0.0).sum().item()

    def best_reward(nats):
        low, high = 1e-3, 1e4  # β, the price of a nat: the higher, the less divergence
        for _ in range(60):
            beta = math.sqrt(low * high)
            too_far = divergence(best_policy(base, reward, beta)) > nats
            low, high = (beta, high) if too_far else (low, beta)
        return (best_policy(base, reward, high) @ reward).item()

    below = torch.stack([base[reward < r].sum() for r in reward])
    level = torch.stack([base[reward == r].sum() for r in reward])
    best_of_n = base / level * ((below + level) ** n - below**n)  # (V,)
    measured = {}
    for name, p in (("best_of_n", best_of_n), ("policy", policy)):
        nats = divergence(p)
        measured[name] = (p @ reward).item(), nats, best_reward(nats)
    return measured


def drawn(rng, V):
    """Return a distribution over V outcomes, none of them very rare."""
    return (0.7 * torch.randn(V, generator=rng, dtype=torch.float64)).softmax(0)


def different(rng, V):
    """Return V rewards from −1 to 1, all at equal distances, in random order."""
    return torch.linspace(-1, 1, V, dtype=torch.float64)[torch.randperm(V, generator=rng)]


def levels(rng, V, L):
    """Return V rewards of L levels, each level at least twice if V ≥ 2 L."""
    return torch.linspace(-1, 1, L, dtype=torch.float64)[torch.randperm(V, generator=rng) % L]


@stage
def by_hand(seed):
    "Two outcomes, as in the example by hand; the policy is the base itself, or another one."
    even = torch.tensor([0.5, 0.5], dtype=torch.float64)
    base, reward = torch.tensor([[0.8, 0.2], [0.0, 1.0]], dtype=torch.float64)
    return [Case(even, reward, 2, even.clone()), Case(base, reward, 4, even)]


@stage
def different_rewards(seed):
    "Outcomes that all have different rewards, and a random policy."
    rng = generator(seed)
    return [Case(drawn(rng, V), different(rng, V), n, drawn(rng, V)) for V, n in ((3, 2), (5, 3), (9, 6), (6, 1))]


@stage
def equal_rewards(seed):
    "Several outcomes with the same reward: best-of-n leaves them in the base's proportions."
    rng = generator(seed)
    return [Case(drawn(rng, V), levels(rng, V, L), n, drawn(rng, V)) for V, L, n in ((4, 2, 3), (7, 3, 5), (10, 4, 2))]


@stage
def best_policies(seed):
    "The policy is the best one for some β: nothing better is possible at its divergence."
    rng, cases = generator(seed), []
    for V, n, beta in ((4, 4, 0.3), (8, 2, 1.2)):
        base, reward = drawn(rng, V), different(rng, V)
        cases.append(Case(base, reward, n, best_policy(base, reward, beta)))
    return cases


@stage
def impossible_for_the_policy(seed):
    "The policy never gives some outcomes. If it diverges further than any best policy, the largest reward is possible."
    rng = generator(seed)
    base, reward, policy = drawn(rng, 6), levels(rng, 6, 3), drawn(rng, 6)
    policy[reward.argmin()] = 0
    one = torch.zeros(6, dtype=torch.float64)
    one[reward.argmax()] = 1  # one of the two best outcomes: further away than both of them together
    return [Case(base, reward, 3, policy / policy.sum()), Case(base, reward, 2, one)]
