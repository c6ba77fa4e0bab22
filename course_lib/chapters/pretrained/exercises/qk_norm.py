import math

import torch

from course_lib.grading.exercise import Case, generator, stage
from course_lib.positions import apply_rotary


def qk_norm_attention(q, k, v, q_gain, k_gain, angles, eps):
    """Return causal attention (B, H, T, D) with queries and keys normed before RoPE."""

    def rms(x, gain):
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps) * gain  # one size for each head's vector

    q, k = rms(q, q_gain), rms(k, k_gain)
    q, k = apply_rotary(q, angles), apply_rotary(k, angles)
    group = q.shape[1] // k.shape[1]  # queries that share one head of keys and values
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)  # (B, H, T, D)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(later, -torch.inf).softmax(dim=-1)
    return weights @ v


def heads(rng, B, H, kv_heads, T, D, size=1.0, eps=1e-6, gains=True, turned=True, dtype=torch.float32):
    """Return one call. Without `gains` they are 1; without `turned` nothing is rotated. size: of queries and keys."""
    drawn = {"generator": rng, "dtype": dtype}
    q, k = (size * torch.randn(B, n, T, D, **drawn) + 0.5 * size for n in (H, kv_heads))
    v = torch.randn(B, kv_heads, T, D, **drawn)
    q_gain, k_gain = (0.5 + 2 * torch.rand(2, D, **drawn)) if gains else torch.ones(2, D, dtype=dtype)
    speed = 100.0 ** (-torch.arange(D // 2) / (D // 2)) if turned else torch.zeros(D // 2)
    angles = torch.arange(1, T + 1)[:, None] * speed  # (T, D / 2)
    return Case(q, k, v, q_gain, k_gain, angles, eps)


@stage
def normed(seed):
    "One head with gains of 1 and no rotation: only the norms matter."
    rng = generator(seed)
    return [
        heads(rng, 1, 1, 1, 3, 4, gains=False, turned=False),
        heads(rng, 2, 1, 1, 5, 6, size=4.0, gains=False, turned=False),
    ]


@stage
def with_gains(seed):
    "Several heads: each head of each token is normalized separately, and all heads share the gains."
    rng = generator(seed)
    return [
        heads(rng, 1, 2, 2, 3, 4, turned=False),
        heads(rng, 2, 3, 3, 4, 6, size=3.0, turned=False),
        heads(rng, 2, 4, 4, 4, 4, turned=False),
    ]


@stage
def rotated(seed):
    "With RoPE: the norm comes before the rotation."
    rng = generator(seed)
    return [heads(rng, 1, 1, 1, 3, 4), heads(rng, 2, 2, 2, 5, 6), heads(rng, 1, 3, 3, 3, 8, size=2.0)]


@stage
def grouped(seed):
    "Fewer heads of keys and values than of queries: neighbouring query heads share one."
    rng = generator(seed)
    return [heads(rng, 1, 4, 2, 3, 4), heads(rng, 2, 6, 2, 4, 6), heads(rng, 2, 3, 1, 5, 4)]


@stage
def any_size(seed):
    "Tiny queries and keys, for which eps matters; large ones; and heads of zeros."
    rng = generator(seed)
    tiny, large = heads(rng, 1, 2, 1, 4, 4, size=1e-2, eps=1e-3), heads(rng, 1, 2, 2, 4, 6, size=3e3)
    zeros = heads(rng, 1, 2, 1, 3, 4)
    zeros.args[0][:, 0], zeros.args[1][:, :, 1] = 0.0, 0.0
    return [tiny, heads(rng, 2, 2, 2, 3, 4, eps=0.5), large, zeros]


@stage
def doubles(seed):
    "float64 in, float64 out."
    return [heads(generator(seed), 2, 4, 2, 4, 6, dtype=torch.float64)]
