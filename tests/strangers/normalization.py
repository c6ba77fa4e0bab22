"""Right answers as strangers write them, chapter 7."""

import math

import numpy as np
import torch
from torch import Tensor, nn

# --- LayerNorm --------------------------------------------------------------------------------------------------------


def layer_norm_as_bert(x, weight, bias, variance_epsilon):
    u = x.mean(-1, keepdim=True)
    s = (x - u).pow(2).mean(-1, keepdim=True)
    x = (x - u) / torch.sqrt(s + variance_epsilon)
    return weight * x + bias


def layer_norm_of_a_class(x, gamma, beta, eps):
    class LayerNorm(nn.Module):
        def __init__(self, scale, shift):
            super().__init__()
            self.scale, self.shift, self.eps = nn.Parameter(scale), nn.Parameter(shift), eps

        def forward(self, x):
            mean = x.mean(dim=-1, keepdim=True)
            var = x.var(dim=-1, keepdim=True, unbiased=False)
            return self.scale * ((x - mean) / torch.sqrt(var + self.eps)) + self.shift

    return LayerNorm(gamma, beta)(x)


def layer_norm_of_the_flat(x, gamma, beta, eps):
    """Rows and columns, as it is written in C."""
    C = x.shape[-1]
    inp = x.reshape(-1, C)
    out = torch.zeros_like(inp)
    for row in range(inp.shape[0]):
        m = 0.0
        for i in range(C):
            m += inp[row, i].item()
        m /= C
        v = 0.0
        for i in range(C):
            shift = inp[row, i].item() - m
            v += shift * shift
        v /= C
        s = 1.0 / math.sqrt(v + eps)
        for i in range(C):
            out[row, i] = s * (inp[row, i].item() - m) * gamma[i] + beta[i]
    return out.view(*x.shape)


def layer_norm_in_float_and_back(x: Tensor, gamma, beta, eps) -> Tensor:
    y = x.float()
    var, mean = torch.var_mean(y, dim=-1, keepdim=True, correction=0)
    y = (y - mean) * torch.rsqrt(var + eps)
    return (y * gamma.float() + beta.float()).type_as(x)


def layer_norm_by_einsum(x, gamma, beta, eps):
    d = x.shape[-1]
    ones = torch.ones(d, dtype=x.dtype)
    centred = x - torch.einsum("...d,d->...", x, ones)[..., None] / d
    mul = torch.rsqrt(torch.einsum("...d,...d->...", centred, centred)[..., None] / d + eps)
    return torch.einsum("...d,d->...d", centred * mul, gamma) + beta


def layer_norm_by_moving_the_axis(x, gamma, beta, eps):
    t = torch.movedim(x, -1, 0)  # (d_model, …): features first, so that no axis need be kept
    t = t - t.mean(0)
    t = t / (t.square().mean(0) + torch.tensor(eps)).sqrt()
    return torch.movedim(t, 0, -1) * gamma + beta


# --- RMSNorm ----------------------------------------------------------------------------------------------------------


class LlamaRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


class SplitRMSNorm(torch.nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        output = self._norm(x.float()).type_as(x)
        return output * self.weight


class MinimalRMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.tensor([1.0] * dim))

    def forward(self, x):
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight


class RMSNormByLength(nn.Module):
    """From the length of the vector: its square, over the number of features."""

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.d, self.eps = d_model, eps
        self.weight = nn.Parameter(torch.ones(self.d))
        self.register_parameter("offset", None)

    def forward(self, x):
        norm_x = x.norm(2, dim=-1, keepdim=True)
        rms_x = (norm_x**2 / self.d + self.eps) ** 0.5
        return self.weight * (x / rms_x)


class RMSNormRowByRow(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.eps = eps
        weight = torch.empty(d_model)
        for i in range(d_model):
            weight[i] = 1.0
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        if x.dim() > 1:
            return torch.stack([self.forward(part) for part in x])
        total = 0.0
        for value in x:
            total = total + value * value
        root = torch.sqrt(total / len(x) + self.eps)
        return torch.stack([value / root * w for value, w in zip(x, self.weight)])


class RMSNormByEinsum(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.register_buffer("eps", torch.tensor(eps, dtype=torch.float32), persistent=False)
        self.weight = nn.Parameter(torch.full([d_model], 1.0))

    def forward(self, x):
        power = torch.einsum("...d,...d->...", x, x) / x.shape[-1]
        scale = torch.pow(power + self.eps, -0.5)
        return torch.einsum("...d,...,d->...d", x, scale.to(x.dtype), self.weight)


# --- speed ------------------------------------------------------------------------------------------------------------


def speed_by_numpy(rms_norm, layer_norm, widths, rounds, clock):
    """Both norms in every round, now the one first, now the other; the median of the rounds' times."""
    ratios = []
    for width in widths:
        x = torch.randn(128, width)
        laps = np.zeros((rounds, 2))
        for i in range(rounds):
            pair = [(0, rms_norm), (1, layer_norm)]
            for column, norm in pair if i % 2 == 0 else pair[::-1]:
                start = clock()
                norm(x)
                laps[i, column] = clock() - start
        rms, layer = np.median(laps, axis=0)
        ratios.append(float(rms / layer))
    return ratios


def speed_with_a_timer(rms_norm, layer_norm, widths, rounds, clock):
    """One untimed call of each, then the shortest of the times that are left."""

    class Timer:
        def __enter__(self):
            self.start = clock()
            return self

        def __exit__(self, *error):
            self.seconds = clock() - self.start

    def lap(norm, x):
        with Timer() as timer:
            norm(x)
        return timer.seconds

    answer = {}
    for width in widths:
        x = torch.rand(128, width)
        rms_norm(x), layer_norm(x)
        fast, slow = zip(*((lap(rms_norm, x), lap(layer_norm, x)) for _ in range(rounds)))
        answer[width] = sorted(fast)[0] / sorted(slow)[0]
    return [answer[width] for width in widths]


STRANGERS = {
    "normalization.layer_norm": [
        layer_norm_as_bert,
        layer_norm_of_a_class,
        layer_norm_of_the_flat,
        layer_norm_in_float_and_back,
        layer_norm_by_einsum,
        layer_norm_by_moving_the_axis,
    ],
    "normalization.rms_norm": [
        LlamaRMSNorm,
        SplitRMSNorm,
        MinimalRMSNorm,
        RMSNormByLength,
        RMSNormRowByRow,
        RMSNormByEinsum,
    ],
    "normalization.speed": [speed_by_numpy, speed_with_a_timer],
}
