"""Answers with two mistakes of the page at once: positions."""

import math

import torch


def too_fast_without_room_for_odd(max_seq_len, d_model):
    pe = torch.zeros(max_seq_len, d_model)
    pos = torch.arange(max_seq_len).unsqueeze(1).float()
    i = torch.arange((d_model + 1) // 2).float()
    angles = pos / torch.pow(10000.0, i / d_model)
    pe[:, 0::2] = torch.sin(angles)
    pe[:, 1::2] = torch.cos(angles)
    return pe


def halves_from_one(max_seq_len, d_model):
    t = torch.arange(1, max_seq_len + 1, dtype=torch.float32)
    inv_freq = 1.0 / (10000 ** (torch.arange(0, d_model, 2).float() / d_model))
    freqs = torch.outer(t, inv_freq)
    return torch.cat([freqs.sin(), freqs.cos()], dim=-1)[:, :d_model]


def cosines_first_with_a_batch(max_seq_len, d_model):
    table = torch.zeros(1, max_seq_len, d_model)
    for p in range(max_seq_len):
        for f in range(d_model):
            angle = p / 10000 ** ((f - f % 2) / d_model)
            table[0, p, f] = math.cos(angle) if f % 2 == 0 else math.sin(angle)
    return table


def backwards_and_too_fast(k, d_model):
    blocks = []
    for i in range(d_model // 2):
        w = k * 10000.0 ** (-i / d_model)
        c, s = math.cos(w), math.sin(w)
        blocks.append(torch.tensor([[c, -s], [s, c]]))
    return torch.block_diag(*blocks)


def halves_with_two_pluses(k, d_model):
    half = d_model // 2
    omega = 1.0 / 10000 ** (2 * torch.arange(half) / d_model)
    cos, sin = torch.diag(torch.cos(k * omega)), torch.diag(torch.sin(k * omega))
    top = torch.cat([cos, sin], dim=1)
    bottom = torch.cat([sin, cos], dim=1)
    return torch.cat([top, bottom], dim=0)


def power_with_doubled_exponent(k, d_model):
    one = torch.zeros(d_model, d_model, dtype=torch.float64)
    for j in range(0, d_model, 2):
        w = 1 / 10000 ** (2 * j / d_model)
        one[j, j] = one[j + 1, j + 1] = math.cos(w)
        one[j, j + 1], one[j + 1, j] = math.sin(w), -math.sin(w)
    M = torch.eye(d_model, dtype=torch.float64)
    for _ in range(k):
        M = one @ M
    return M.float()


def signed_invariance(f, x, n_shuffles):
    y = f(x)
    worst = 0.0
    for _ in range(n_shuffles):
        perm = torch.randperm(x.size(1))
        diff = f(x[:, perm, :]) - y
        worst = max(worst, diff.max().item())
    return worst


def mean_of_the_last(f, x, n_shuffles):
    out = f(x)
    error = 0.0
    for _ in range(n_shuffles):
        p = torch.randperm(x.shape[1])
        error = torch.mean(torch.abs(f(x[:, p]) - out[:, p])).item()
    return error


def norm_of_inverse_orders(f, x, n_shuffles):
    base = f(x)
    errors = []
    for _ in range(n_shuffles):
        perm = torch.randperm(x.shape[1])
        inverse = torch.argsort(perm)
        errors.append(torch.linalg.norm(f(x[:, perm]) - base[:, inverse]))
    return torch.stack(errors).max().item()


def neighbours_counted_from_zero(x, positions, theta):
    _B, _H, T, D = x.shape
    inv_freq = 1.0 / theta ** (torch.arange(0, D, 2).float() / D)
    freqs = torch.outer(torch.arange(T).float(), inv_freq)
    cos, sin = freqs.cos().to(x.dtype), freqs.sin().to(x.dtype)
    x1, x2 = x[..., 0::2], x[..., 1::2]
    out = torch.empty_like(x)
    out[..., 0::2] = x1 * cos - x2 * sin
    out[..., 1::2] = x1 * sin + x2 * cos
    return out


def too_fast_in_float32(x, positions, theta):
    D = x.size(-1)
    i = torch.arange(D // 2, dtype=torch.float32)
    angles = positions.float()[:, None] * theta ** (-i / D)[None, :]
    angles = torch.cat((angles, angles), dim=-1)
    x = x.to(torch.float32)
    x1, x2 = x.chunk(2, dim=-1)
    rotated = torch.cat((-x2, x1), dim=-1)
    return x * angles.cos() + rotated * angles.sin()


def two_pluses_at_ten_thousand(x, positions, theta):
    half = x.shape[-1] // 2
    y = x.clone()
    for t, p in enumerate(positions.tolist()):
        for i in range(half):
            angle = p * 10000 ** (-2 * i / x.shape[-1])
            a, b = x[:, :, t, i], x[:, :, t, i + half]
            y[:, :, t, i] = a * math.cos(angle) + b * math.sin(angle)
            y[:, :, t, i + half] = a * math.sin(angle) + b * math.cos(angle)
    return y


def rounded_with_a_ramp_over_rotations(positions, d_head, theta, scale, original_length=None):
    freqs = 1.0 / theta ** (torch.arange(0, d_head, 2).float() / d_head)
    if original_length is None:
        return torch.outer((positions // scale).float(), freqs)
    r = original_length * freqs / (2 * math.pi)
    gamma = torch.clamp((r - 1) / (32 - 1), 0, 1)
    return torch.outer(positions.float(), (1 - gamma) * freqs / scale + gamma * freqs)


def unrounded_within_the_head(positions, d_head, theta, scale, original_length=None):
    half = d_head // 2
    speeds = torch.tensor([theta ** (-2 * i / d_head) for i in range(half)])
    if original_length is None:
        return positions[:, None] / scale * speeds

    def place(n):
        return d_head * math.log(original_length / (n * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(place(32), 0), min(place(1), half - 1)
    ramp = ((torch.arange(half) - low) / (high - low)).clamp(0, 1)
    return positions[:, None] * (speeds * (1 - ramp) + speeds / scale * ramp)


def reversed_in_the_longer_text(positions, d_head, theta, scale, original_length=None):
    inv_freq = theta ** -(torch.arange(0, d_head, 2) / d_head)
    if original_length is not None:
        new_length = original_length * scale
        low = math.floor(d_head * math.log(new_length / (64 * math.pi)) / (2 * math.log(theta)))
        high = math.ceil(d_head * math.log(new_length / (2 * math.pi)) / (2 * math.log(theta)))
        extrapolated = ((torch.arange(d_head // 2) - low) / (high - low)).clamp(0, 1)
        inv_freq = inv_freq * extrapolated + inv_freq / scale * (1 - extrapolated)
    else:
        inv_freq = inv_freq / scale
    return positions.unsqueeze(-1) * inv_freq


DOUBLES = {
    "positions.sinusoidal": [
        (too_fast_without_room_for_odd, ("exponent without the 2", "odd d_model fails")),
        (halves_from_one, ("halves", "counting from one")),
        (cosines_first_with_a_batch, ("sine and cosine exchanged", "a batch axis")),
    ],
    "positions.shift_matrix": [
        (backwards_and_too_fast, ("rotated back", "exponent without the 2")),
        (halves_with_two_pluses, ("halves", "sign missing")),
        (power_with_doubled_exponent, ("no step for a negative k", "feature taken for hand")),
    ],
    "positions.equivariance": [
        (signed_invariance, ("invariance measured", "sign kept")),
        (mean_of_the_last, ("the first shuffle or the last", "mean over the entries")),
        (norm_of_inverse_orders, ("two different orders", "norm")),
    ],
    "positions.rotary": [
        (neighbours_counted_from_zero, ("neighbours paired", "positions ignored")),
        (too_fast_in_float32, ("exponent without the 2", "always float32")),
        (two_pluses_at_ten_thousand, ("sign missing", "theta ignored")),
    ],
    "positions.interpolate": [
        (rounded_with_a_ramp_over_rotations, ("positions rounded", "a ramp over the rotations")),
        (unrounded_within_the_head, ("ends not rounded", "a ramp that ends within the head")),
        (reversed_in_the_longer_text, ("the wrong ones slowed", "the longer length")),
    ],
}
