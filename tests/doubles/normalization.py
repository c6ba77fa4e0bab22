"""Answers with two mistakes of the page at once, chapter 7."""

import torch
from torch import nn


def eps_late_and_beta_early(x, gamma, beta, eps):
    mu = x.mean(-1, keepdim=True)
    sigma = ((x - mu) ** 2).mean(-1, keepdim=True).sqrt()
    x_hat = (x - mu) / (sigma + eps)
    return gamma * (x_hat + beta)


def one_sample_variance_for_all(x, gamma, beta, eps):
    normed = (x - torch.mean(x)) / torch.sqrt(torch.var(x) + eps)
    return gamma * normed + beta


def swapped_without_eps(x, gamma, beta, eps):
    mean = x.sum(-1, keepdim=True) / x.shape[-1]
    std = torch.std(x, dim=-1, keepdim=True, unbiased=False)
    return torch.addcmul(gamma, (x - mean) / std, beta)


class LateEpsOfAnotherSize(nn.Module):
    def __init__(self, dim, eps=1e-8):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        rms = torch.sqrt((x * x).mean(-1, keepdim=True))
        return x / (rms + self.eps) * self.weight


class UnitLengthWithoutEps(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return self.weight * x / length


class BufferedAndCentredSpread(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.epsilon = eps
        self.register_buffer("weight", torch.ones(features))

    def forward(self, inputs):
        spread = torch.var(inputs, -1, unbiased=False, keepdim=True)
        return inputs / torch.sqrt(spread + self.epsilon) * self.weight


def mean_times_upside_down(rms_norm, layer_norm, widths, rounds, clock):
    ratios = []
    for w in widths:
        x = torch.randn(128, w)
        spent = [0.0, 0.0]
        for _ in range(rounds):
            for i, f in enumerate([rms_norm, layer_norm]):
                t0 = clock()
                f(x)
                spent[i] += clock() - t0
        ratios.append((spent[1] / rounds) / (spent[0] / rounds))
    return ratios


def in_turn_and_subtracted(rms_norm, layer_norm, widths, rounds, clock):
    def best(norm, x):
        laps = []
        for _ in range(rounds):
            begin = clock()
            norm(x)
            laps.append(clock() - begin)
        return min(laps)

    return [best(rms_norm, x) - best(layer_norm, x) for x in [torch.randn(128, w) for w in widths]]


def last_round_averaged_over_widths(rms_norm, layer_norm, widths, rounds, clock):
    total = 0.0
    for width in widths:
        x = torch.randn(128, width)
        for _ in range(rounds):
            a = clock()
            rms_norm(x)
            b = clock()
            layer_norm(x)
            c = clock()
        total += (b - a) / (c - b)
    return total / len(widths)


DOUBLES = {
    "normalization.layer_norm": [
        (eps_late_and_beta_early, ("eps outside the root", "β before γ")),
        (one_sample_variance_for_all, ("sample variance", "over the whole tensor")),
        (swapped_without_eps, ("γ and β exchanged", "no eps")),
    ],
    "normalization.rms_norm": [
        (LateEpsOfAnotherSize, ("eps outside the root", "another default")),
        (UnitLengthWithoutEps, ("sum of the squares", "no eps")),
        (BufferedAndCentredSpread, ("variance instead of mean square", "weight is not trained")),
    ],
    "normalization.speed": [
        (mean_times_upside_down, ("mean time", "upside down")),
        (in_turn_and_subtracted, ("one after the other", "difference")),
        (last_round_averaged_over_widths, ("last time", "one figure for all")),
    ],
}
