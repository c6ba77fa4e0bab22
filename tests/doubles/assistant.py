"""Answers with two mistakes of the page at once, chapter 16."""

import torch
import torch.nn.functional as F


def own_roles_and_zeros(ids, roles):
    targets = torch.zeros_like(ids)
    targets[:, :-1] = ids[:, 1:]
    spoken = roles[:, :-1] == 2
    targets[:, :-1][~spoken] = 0
    return targets


def asking_and_one_short(ids, roles):
    following = ids[:, 1:].clone()
    following[roles[:, 1:] == 0] = -100
    return following


def first_turn_without_its_end(ids, roles):
    targets = torch.full_like(ids, -100)
    for b in range(ids.shape[0]):
        said = [t for t in range(1, ids.shape[1]) if roles[b, t] == 2]
        run = [t for i, t in enumerate(said) if t == said[0] + i]
        for t in run[:-1]:
            targets[b, t - 1] = ids[b, t]
    return targets


def even_and_hot(base, reward, beta):
    r = reward.masked_fill(base == 0, -torch.inf)
    return torch.softmax(r * beta, dim=0)


def unnormalized_without_beta(base, reward, beta):
    return base * torch.exp(reward)


def overflowing_and_negative(base, reward, beta):
    weights = base * torch.exp(-reward / beta)
    return weights / weights.sum()


def unstable_without_reference(chosen, rejected, ref_chosen, ref_rejected, beta):
    margins = beta * (chosen - rejected)
    return -torch.log(torch.sigmoid(margins)).mean(), margins


def summed_and_exchanged(chosen, rejected, ref_chosen, ref_rejected, beta):
    better = chosen - ref_chosen
    worse = rejected - ref_rejected
    margins = beta * (worse - better)
    return -F.logsigmoid(margins).sum(), margins


def raw_margins_and_positive(chosen, rejected, ref_chosen, ref_rejected, beta):
    logits = (chosen - ref_chosen) - (rejected - ref_rejected)
    return F.logsigmoid(beta * logits).mean(), logits


def sample_deviation_of_all(rewards):
    return (rewards - rewards.mean(dim=1, keepdim=True)) / rewards.std()


def unsigned_and_nan(rewards):
    apart = (rewards - rewards.mean(1, keepdim=True)).abs()
    return apart / rewards.std(1, correction=0, keepdim=True)


def sample_deviation_and_a_number(rewards):
    return (rewards - rewards.mean(-1, keepdim=True)) / (rewards.std(-1, keepdim=True) + 1e-4)


def frontier_of(base, reward, nats, divergence):
    low, high = 1e-3, 1e3
    for _ in range(60):
        beta = (low * high) ** 0.5
        p = torch.softmax(base.log() + reward / beta, 0)
        low, high = (beta, high) if divergence(p) > nats else (low, beta)
    return float(p @ reward)


def ordered_and_in_bits(base, reward, n, policy):
    def divergence(p):
        return float(torch.where(p > 0, p * torch.log2(p / base), 0.0).sum())

    order = torch.argsort(reward)
    edges = torch.cumsum(base[order], 0)
    best = torch.empty_like(base)
    best[order] = edges**n - (edges - base[order]) ** n
    return {
        name: (float(p @ reward), divergence(p), frontier_of(base, reward, divergence(p), divergence))
        for name, p in (("best_of_n", best), ("policy", policy))
    }


def worst_with_nan(base, reward, n, policy):
    def divergence(p):
        return float((p * torch.log(p / base)).sum())

    above = torch.stack([base[reward > r].sum() for r in reward])
    same = torch.stack([base[reward == r].sum() for r in reward])
    worst = base / same * ((above + same) ** n - above**n)
    return {
        name: (float(p @ reward), divergence(p), frontier_of(base, reward, divergence(p), divergence))
        for name, p in (("best_of_n", worst), ("policy", policy))
    }


DOUBLES = {
    "assistant.answer_mask": [
        (own_roles_and_zeros, ("role of the token itself", "padding value instead of −100")),
        (asking_and_one_short, ("user's tokens kept", "one column short")),
        (first_turn_without_its_end, ("first answer only", "end of the answer left out")),
    ],
    "assistant.optimum": [
        (even_and_hot, ("base forgotten", "multiplied by β")),
        (unnormalized_without_beta, ("not normalized", "β ignored", "exponential overflows")),
        (overflowing_and_negative, ("sign of the reward", "exponential overflows")),
    ],
    "assistant.dpo_loss": [
        (unstable_without_reference, ("no reference", "logarithm of the sigmoid")),
        (summed_and_exchanged, ("sum instead of mean", "chosen and rejected exchanged")),
        (raw_margins_and_positive, ("margins without β", "sign of the loss")),
    ],
    "assistant.group_advantage": [
        (sample_deviation_of_all, ("one deviation for all", "sample standard deviation")),
        (unsigned_and_nan, ("absolute value", "NaN for equal rewards")),
        (sample_deviation_and_a_number, ("sample standard deviation", "a number added to the deviation")),
    ],
    "assistant.frontier": [
        (ordered_and_in_bits, ("equal rewards in some order", "bits")),
        (worst_with_nan, ("worst of n", "NaN for an outcome with p = 0")),
    ],
}
