"""Chapter 16: right answers in other styles."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from course_lib import assistant as library


def targets_of_the_library(ids, roles):
    return library.answer_targets(ids, roles)


def targets_by_loops(ids, roles):
    """A list of lists, token by token."""
    rows = []
    for row, said_by in zip(ids.tolist(), roles.tolist()):
        following = zip(row[1:], said_by[1:])
        rows.append([token if who == 2 else -100 for token, who in following] + [-100])
    return torch.tensor(rows)


def targets_by_roll(ids, roles):
    following, who = torch.roll(ids, -1, dims=1), torch.roll(roles, -1, dims=1)
    targets = torch.where(who == 2, following, -100)
    targets[:, -1] = -100
    return targets


def targets_in_numpy(ids, roles):
    targets = np.full(ids.shape, -100)
    rows, columns = np.nonzero(roles.numpy()[:, 1:] == 2)
    targets[rows, columns] = ids.numpy()[rows, columns + 1]
    return targets


def policy_of_the_library(base, reward, beta):
    return library.best_policy(base, reward, beta)


def policy_by_softmax(base, reward, beta):
    """ln base + reward / β, with the largest possible reward subtracted first."""
    top = reward[base > 0].max()
    logits = torch.where(base > 0, (reward - top) / beta + base.log(), -torch.inf)
    return torch.softmax(logits, dim=0)


def policy_of_the_possible(base, reward, beta):
    """Only over the outcomes that the base gives; the others stay zeros."""
    possible = base.nonzero().squeeze(1)
    r = (reward[possible] - reward[possible].amax()) / beta
    p = torch.zeros_like(base)
    p[possible] = base[possible] * torch.exp(r)
    return p / torch.sum(p)


def policy_in_numpy(base, reward, beta):
    q, r = base.numpy(), reward.numpy()
    r = np.where(q > 0, r, -np.inf)
    weights = q * np.exp((r - r.max()) / q.dtype.type(beta))
    return weights / weights.sum()


def loss_of_the_library(chosen, rejected, ref_chosen, ref_rejected, beta):
    return library.dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta)


def loss_by_softplus(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
    """−ln σ(x) is softplus(−x)."""
    ratio = policy_chosen - policy_rejected
    ref_ratio = ref_chosen - ref_rejected
    margins = (ratio - ref_ratio) * beta
    return F.softplus(-margins).mean(), margins


def loss_by_cross_entropy(chosen, rejected, ref_chosen, ref_rejected, beta):
    """A classifier with two classes: the first one is right."""
    rewards = beta * torch.stack([chosen - ref_chosen, rejected - ref_rejected], dim=1)  # (B, 2)
    loss = F.cross_entropy(rewards, torch.zeros(len(chosen), dtype=torch.int64))
    return loss, rewards[:, 0] - rewards[:, 1]


def loss_in_numpy(chosen, rejected, ref_chosen, ref_rejected, beta):
    a, b, c, d = (x.numpy() for x in (chosen, rejected, ref_chosen, ref_rejected))
    margins = a.dtype.type(beta) * (a - c - (b - d))
    return np.logaddexp(np.zeros_like(margins), -margins).mean(), margins


def advantages_of_the_library(rewards):
    return library.group_advantages(rewards)


def advantages_by_loops(rewards):
    rows = []
    for group in rewards:
        if (group == group[0]).all():
            rows.append(torch.zeros_like(group))
        else:
            rows.append((group - group.mean()) / group.std(unbiased=False))
    return torch.stack(rows)


def advantages_by_layer_norm(rewards):
    """A layer norm without a gain, over the answers; equal groups are set to zero."""
    normed = F.layer_norm(rewards.double(), rewards.shape[1:], eps=0.0).to(rewards.dtype)
    return normed.masked_fill((rewards == rewards[:, :1]).all(dim=1, keepdim=True), 0.0)


def advantages_from_the_first(rewards):
    """The first reward of a group is subtracted first: equal groups are zeros then, without any rounding."""
    moved = rewards - rewards[:, :1]
    std, mean = torch.std_mean(moved, dim=1, correction=0, keepdim=True)
    return (moved - mean) / torch.where(std == 0, 1.0, std)


def advantages_in_numpy(rewards):
    r = rewards.numpy()
    apart = r - r.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = apart / r.std(axis=1, keepdims=True)
    return np.where(np.ptp(r, axis=1)[:, None] == 0, np.zeros_like(r), scaled)


def frontier_in_python(base, reward, n, policy):
    """Lists of Python's numbers; bisection on β itself."""
    q, r = base.tolist(), reward.tolist()

    def apart(p):
        return sum(x * math.log(x / y) for x, y in zip(p, q) if x > 0)

    def earned(p):
        return sum(x * y for x, y in zip(p, r))

    def best(beta):
        weights = [y * math.exp((x - max(r)) / beta) for x, y in zip(r, q)]
        return [weight / sum(weights) for weight in weights]

    def possible(nats):
        low, high = 1e-3, 1e4
        while high - low > 1e-7 * high:
            middle = (low + high) / 2
            if apart(best(middle)) > nats:
                low = middle
            else:
                high = middle
        return earned(best(high))

    chances = [0.0] * len(q)
    for level in set(r):
        lower = sum(y for x, y in zip(r, q) if x < level)
        same = sum(y for x, y in zip(r, q) if x == level)
        for i, x in enumerate(r):
            if x == level:
                chances[i] = q[i] / same * ((lower + same) ** n - lower**n)
    methods = {"best_of_n": chances, "policy": policy.tolist()}
    return {name: (earned(p), apart(p), possible(apart(p))) for name, p in methods.items()}


def frontier_from_a_grid(base, reward, n, policy):
    """The best policies of many prices at once, and the reward by interpolation between them."""
    betas = torch.logspace(-3, 3, 20_001, dtype=torch.float64).flip(0)  # falling prices: the divergence grows
    table = (base.log() + reward / betas[:, None]).softmax(-1)
    nats = torch.special.xlogy(table, table / base).sum(-1).numpy()
    rewards = (table @ reward).numpy()
    values, where = reward.unique(return_inverse=True)
    mass = torch.zeros(len(values), dtype=torch.float64).index_add_(0, where, base)
    total = mass.cumsum(0)
    won = (total**n).diff(prepend=torch.zeros(1, dtype=torch.float64))  # of each level
    result = {}
    for name, p in (("best_of_n", base * (won / mass)[where]), ("policy", policy)):
        own = torch.special.xlogy(p, p / base).sum().item()
        result[name] = [torch.dot(p, reward), own, float(np.interp(own, nats, rewards))]
    return result


RIGHT = {
    "assistant.answer_mask": [targets_by_loops, targets_by_roll, targets_in_numpy],
    "assistant.optimum": [policy_by_softmax, policy_of_the_possible, policy_in_numpy],
    "assistant.dpo_loss": [loss_by_softplus, loss_by_cross_entropy, loss_in_numpy],
    "assistant.group_advantage": [
        advantages_by_loops,
        advantages_by_layer_norm,
        advantages_from_the_first,
        advantages_in_numpy,
    ],
    "assistant.frontier": [frontier_in_python, frontier_from_a_grid],
}
OF_THE_LIBRARY = {
    "assistant.answer_mask": [targets_of_the_library],
    "assistant.optimum": [policy_of_the_library],
    "assistant.dpo_loss": [loss_of_the_library],
    "assistant.group_advantage": [advantages_of_the_library],
}
