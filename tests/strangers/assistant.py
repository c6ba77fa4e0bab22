"""Right answers in the manner of others, chapter 16: masks and losses of TRL, transformers, the papers' own code."""

import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F

# --- targets of the answers -------------------------------------------------------------------------------------------


def labels_then_shifted(input_ids, roles):
    """transformers: labels in place of the ids first, and the shift afterwards, with a pad."""
    labels = input_ids.clone()
    labels[roles != 2] = -100
    return F.pad(labels[..., 1:], (0, 1), value=-100)


def by_a_float_mask(ids, roles):
    """A loss mask of ones and zeros, multiplied in."""
    mask = torch.zeros(ids.shape)
    mask[:, :-1] = (roles[:, 1:] == 2).float()
    following = torch.cat([ids[:, 1:], ids[:, -1:]], dim=1)
    return (following * mask + (-100) * (1 - mask)).long()


def by_turns(ids, roles):
    """Runs of equal roles, one after another."""
    targets = torch.full(ids.shape, -100, dtype=torch.int64)
    for b in range(len(ids)):
        place = 0
        for role, run in itertools.groupby(roles[b].tolist()):
            length = len(list(run))
            if role == 2:
                first = max(place, 1)
                targets[b, first - 1 : place + length - 1] = ids[b, first : place + length]
            place += length
    return targets


def by_scatter(ids, roles):
    """Each token of the assistant is written one position to the left; the first of a row has no such position."""
    B, T = ids.shape
    wide = ids.new_full((B, T + 1), -100)
    wide[:, :T] = torch.where(roles.eq(2), ids, ids.new_tensor(-100))
    index = torch.arange(1, T + 1).expand(B, T)
    return wide.gather(1, index)


# --- the best policy --------------------------------------------------------------------------------------------------


def by_logsumexp(ref, rewards, beta):
    """The partition function in logarithms, as in the paper on DPO."""
    advantage = (rewards - rewards[ref > 0].max()) / beta
    log_weights = torch.where(ref > 0, torch.log(ref) + advantage, torch.full_like(ref, -float("inf")))
    log_z = torch.logsumexp(log_weights, dim=-1)
    return torch.exp(log_weights - log_z)


def in_python_floats(base, reward, beta):
    possible = [r for b, r in zip(base.tolist(), reward.tolist()) if b > 0]
    weights = [b * math.exp((r - max(possible)) / beta) if b else 0.0 for b, r in zip(base.tolist(), reward.tolist())]
    return torch.tensor([w / math.fsum(weights) for w in weights], dtype=base.dtype)


def in_double_and_back(base, reward, beta):
    r = reward.to(torch.float64)
    r = r - r[base.ne(0)].max()
    w = torch.exp(torch.minimum(r, torch.zeros_like(r)) / beta) * base.to(torch.float64)
    return F.normalize(w, p=1, dim=0).to(base.dtype)


def by_a_categorical(base, reward, beta):
    logits = (reward - torch.where(base > 0, reward, -math.inf).max()) / beta + torch.log(base)
    return torch.distributions.Categorical(logits=logits.masked_fill(base == 0, -1e30)).probs


# --- the loss of compared pairs ---------------------------------------------------------------------------------------


def as_published(policy_chosen_logps, policy_rejected_logps, reference_chosen_logps, reference_rejected_logps, beta):
    """The authors' code, without label smoothing."""
    pi_logratios = policy_chosen_logps - policy_rejected_logps
    ref_logratios = reference_chosen_logps - reference_rejected_logps
    logits = pi_logratios - ref_logratios
    losses = -F.logsigmoid(beta * logits)
    chosen_rewards = beta * (policy_chosen_logps - reference_chosen_logps).detach()
    rejected_rewards = beta * (policy_rejected_logps - reference_rejected_logps).detach()
    return losses.mean(), chosen_rewards - rejected_rewards


def with_binary_cross_entropy(chosen, rejected, ref_chosen, ref_rejected, beta):
    margin = beta * (chosen - ref_chosen - rejected + ref_rejected)
    return F.binary_cross_entropy_with_logits(margin, torch.ones_like(margin)), margin


def by_logaddexp(chosen, rejected, ref_chosen, ref_rejected, beta):
    reward_chosen, reward_rejected = beta * (chosen - ref_chosen), beta * (rejected - ref_rejected)
    losses = torch.logaddexp(reward_chosen, reward_rejected) - reward_chosen
    return torch.sum(losses) / losses.numel(), torch.sub(reward_chosen, reward_rejected)


def pair_by_pair(chosen, rejected, ref_chosen, ref_rejected, beta):
    """A loop with Python's numbers; for a negative margin the exponential is taken of the margin itself."""
    margins, total = [], 0.0
    for a, b, c, d in zip(*(x.tolist() for x in (chosen, rejected, ref_chosen, ref_rejected))):
        m = beta * ((a - c) - (b - d))
        total += math.log1p(math.exp(-m)) if m > 0 else math.log1p(math.exp(m)) - m
        margins.append(m)
    return torch.tensor(total / len(margins), dtype=chosen.dtype), torch.tensor(margins, dtype=chosen.dtype)


# --- advantages of a group --------------------------------------------------------------------------------------------


def as_in_grpo(rewards):
    """TRL's view of a flat list, repeated to its length, and a mask for the groups without a spread."""
    N = rewards.shape[1]
    flat = rewards.reshape(-1)
    mean = flat.view(-1, N).mean(dim=1).repeat_interleave(N)
    std = flat.view(-1, N).std(dim=1, unbiased=False).repeat_interleave(N)
    low, high = torch.aminmax(rewards, dim=1)
    useful = (low < high).repeat_interleave(N)
    advantages = torch.zeros_like(flat)
    advantages[useful] = (flat[useful] - mean[useful]) / std[useful]
    return advantages.view_as(rewards)


def by_moments(rewards):
    """In float64: the mean of the squares minus the square of the mean."""
    r = rewards.double()
    r = r - r.select(1, 0).unsqueeze(1)
    variance = r.pow(2).mean(1, keepdim=True) - r.mean(1, keepdim=True).pow(2)
    scaled = (r - r.mean(1, keepdim=True)) * variance.clamp(min=1e-300).rsqrt()
    return torch.where(r.eq(0).all(1, keepdim=True), torch.zeros_like(r), scaled).type_as(rewards)


def with_the_statistics_module(rewards):
    import statistics

    table = []
    for group in rewards.tolist():
        spread = statistics.pstdev(group)
        mean = statistics.fmean(group)
        table.append([(r - mean) / spread if len(set(group)) > 1 else 0.0 for r in group])
    return torch.tensor(table, dtype=rewards.dtype)


def vmapped(rewards):
    def of_one(group):
        apart = group - group.mean()
        scale = torch.linalg.vector_norm(apart) / len(group) ** 0.5
        same = (group == group[0]).all()
        return torch.where(same, torch.zeros_like(group), apart / torch.where(same, torch.ones_like(scale), scale))

    return torch.vmap(of_one)(rewards)


# --- methods at equal divergence --------------------------------------------------------------------------------------


def kl(p, q):
    """F.kl_div has the model's logarithms first."""
    return float(F.kl_div(torch.log(q), p, reduction="sum"))


def by_secants(base, reward, n, policy):
    """1 / β doubled until it is too large, then bisected."""

    def tilted(inverse):
        return F.softmax(torch.log(base) + inverse * reward, dim=0)

    def frontier(nats):
        high = 1.0
        while kl(tilted(high), base) < nats and high < 2000:
            high *= 2
        low = 0.0
        for _ in range(100):
            inverse = 0.5 * (low + high)
            low, high = (inverse, high) if kl(tilted(inverse), base) < nats else (low, inverse)
        return float(torch.sum(tilted(low) * reward))

    at_most = (reward[None, :] <= reward[:, None]).double() @ base
    under = (reward[None, :] < reward[:, None]).double() @ base
    best = base * (at_most.pow(n) - under.pow(n)) / (at_most - under)
    return {
        key: (float(torch.sum(p * reward)), kl(p, base), frontier(kl(p, base)))
        for key, p in {"best_of_n": best, "policy": policy}.items()
    }


def in_numpy_sorted(base, reward, n, policy):
    """Levels with np.unique, and the price by bisection in logarithms."""
    q, r = base.numpy(), reward.numpy()
    index = np.unique(r, return_inverse=True)[1]
    mass = np.bincount(index, weights=q)
    edges = np.concatenate([[0.0], np.cumsum(mass)])
    best = q / mass[index] * (edges[1:] ** n - edges[:-1] ** n)[index]

    def apart(p):
        seen = p > 0
        return float((p[seen] * np.log(p[seen] / q[seen])).sum())

    def tilted(log_beta):
        e = q * np.exp((r - r.max()) / np.exp(log_beta))
        return e / e.sum()

    def frontier(nats):
        low, high = np.log(1e-3), np.log(1e3)
        while high - low > 1e-9:
            middle = (low + high) / 2
            if apart(tilted(middle)) > nats:
                low = middle
            else:
                high = middle
        return float(tilted(high) @ r)

    p = policy.numpy()
    return {
        "policy": (float(p @ r), apart(p), frontier(apart(p))),
        "best_of_n": (float(best @ r), apart(best), frontier(apart(best))),
    }


STRANGERS = {
    "assistant.answer_mask": [labels_then_shifted, by_a_float_mask, by_turns, by_scatter],
    "assistant.optimum": [by_logsumexp, in_python_floats, in_double_and_back, by_a_categorical],
    "assistant.dpo_loss": [as_published, with_binary_cross_entropy, by_logaddexp, pair_by_pair],
    "assistant.group_advantage": [as_in_grpo, by_moments, with_the_statistics_module, vmapped],
    "assistant.frontier": [by_secants, in_numpy_sorted],
}
