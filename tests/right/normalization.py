"""Right answers of chapter 7 in other styles."""

import statistics

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.normalization import RMSNorm as LibraryRMSNorm


def layer_norm_fused(x, gamma, beta, eps):
    return F.layer_norm(x, gamma.shape, gamma, beta, eps)


def layer_norm_token_by_token(x, gamma, beta, eps):
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    for place in np.ndindex(*x.shape[:-1]):
        features = x[place].tolist()
        mean = sum(features) / len(features)
        variance = sum((feature - mean) ** 2 for feature in features) / len(features)
        for i, feature in enumerate(features):
            out[(*place, i)] = (feature - mean) / (variance + eps) ** 0.5 * gamma[i] + beta[i]
    return out


def layer_norm_in_numpy(x, weight, bias, epsilon):
    x, weight, bias = x.numpy(), weight.numpy(), bias.numpy()
    normalized = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return normalized.astype(x.dtype) * weight + bias


def layer_norm_in_place(x, gamma, beta, eps):
    x = x.clone()
    x -= x.mean(dim=-1, keepdim=True)
    x *= torch.einsum("...d,...d->...", x, x).div(x.shape[-1]).add(eps).rsqrt().unsqueeze(-1)
    return torch.addcmul(beta, x, gamma)


def layer_norm_in_float32(x, gamma, beta, eps):
    x32 = x.to(torch.float32)
    mean, var = x32.mean(-1, keepdim=True), x32.var(-1, keepdim=True, unbiased=False)
    return gamma * ((x32 - mean) * torch.rsqrt(var + eps)).type_as(x) + beta


class RMSNormByRsqrt(nn.Module):
    def __init__(self, width, epsilon=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), 1.0))
        self.register_buffer("epsilon", torch.tensor(epsilon), persistent=False)

    def forward(self, tokens):
        return self.weight * (tokens * torch.rsqrt((tokens**2).mean(dim=-1, keepdim=True) + self.epsilon))


class RMSNormByNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.register_parameter("weight", nn.Parameter(torch.empty(d_model)))
        nn.init.ones_(self.weight)
        self.eps = eps

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        rows = [row / (row.dot(row) / len(row) + self.eps) ** 0.5 for row in flat]
        return torch.stack(rows).view(x.shape) * self.weight


class RMSNormInFloat32(nn.Module):
    """Normalized in float32, brought back to the dtype of x, then scaled: the manner of models in half precision."""

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return self.normalized(x.float()).type_as(x) * self.weight

    def normalized(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class RMSNormScaledInFloat32(RMSNormInFloat32):
    """The weight, too, before it goes back."""

    def forward(self, x):
        came_as = x.dtype
        x = x.to(torch.float32)
        return (self.normalized(x) * self.weight.to(torch.float32)).to(came_as)


class RMSNormWithAFloat32Mean(RMSNormInFloat32):
    """Only the mean of the squares is taken in float32."""

    def forward(self, x):
        root = torch.sqrt(x.to(torch.float32).square().mean(-1, keepdim=True) + self.eps)
        return self.weight * (x / root).to(x.dtype)


class RMSNormInherited(LibraryRMSNorm):
    pass


class RMSNormFused(nn.RMSNorm):
    def __init__(self, d_model, eps=1e-6):
        super().__init__(d_model, eps)


def speed_by_medians(rms_norm, layer_norm, widths, rounds, clock):
    ratios = {}
    for width in widths:
        times = {rms_norm: [], layer_norm: []}
        for _ in range(rounds):
            for norm in (layer_norm, rms_norm):  # the other one first
                x = torch.ones(2, 3, width)
                before = clock()
                norm(x)
                after = clock()
                times[norm].append(1e6 * (after - before))
        ratios[width] = statistics.median(times[rms_norm]) / statistics.median(times[layer_norm])
    return tuple(ratios.values())


def speed_with_a_warm_up(rms_norm, layer_norm, widths, rounds, clock):
    best = torch.full((2, len(widths)), torch.inf, dtype=torch.float64)
    for column, width in enumerate(widths):
        x = torch.randn(8, width)
        for norm in (rms_norm, layer_norm) * 2:
            norm(x)
        for _ in range(rounds):
            for row, norm in enumerate((rms_norm, layer_norm)):
                start = clock()
                norm(x)
                best[row, column] = min(best[row, column].item(), clock() - start)
    return best[0] / best[1]


WORKED = {"y1": -2.530, "y2": -0.132, "y3": -0.684, "y4": 1.897, "std_before": 3.651, "std_after": 1.155}

RIGHT = {
    "normalization.layer_norm": [
        layer_norm_fused,
        layer_norm_token_by_token,
        layer_norm_in_numpy,
        layer_norm_in_place,
        layer_norm_in_float32,
    ],
    "normalization.rms_norm": [
        RMSNormByRsqrt,
        RMSNormByNorm,
        RMSNormFused,
        RMSNormInFloat32,
        RMSNormScaledInFloat32,
        RMSNormWithAFloat32Mean,
    ],
    "normalization.batch_vs_layer": [["a", "c", "e", "g"], ("g", "e", "c", "a"), {"a", "c", "e", "g"}],
    "normalization.worked_example": [
        WORKED,
        list(WORKED.values()),
        {name: torch.tensor(x) for name, x in WORKED.items()},
    ],
    "normalization.speed": [speed_by_medians, speed_with_a_warm_up],
    "normalization.parameters": [3072.0, sum(p.numel() for _ in range(2) for p in nn.LayerNorm(768).parameters())],
}
OF_THE_LIBRARY = {"normalization.rms_norm": [RMSNormInherited]}
