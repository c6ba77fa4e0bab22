"""Right answers of chapter 5 in other styles."""

import math

import numpy as np
import torch

from course_lib import positions as library
from tests.right import by_way_of


def sinusoids_by_loops(max_seq_len, d_model):
    table = torch.zeros(max_seq_len, d_model)
    for p in range(max_seq_len):
        for i in range(d_model):
            angle = p / 10000 ** ((i - i % 2) / d_model)
            table[p, i] = math.cos(angle) if i % 2 else math.sin(angle)
    return table


def sinusoids_by_exp(max_seq_len, d_model):
    """In float32 throughout, as most models have it."""
    table = torch.zeros(max_seq_len, d_model)
    speed = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
    angle = torch.arange(max_seq_len).float().unsqueeze(1) * speed
    table[:, 0::2] = torch.sin(angle)
    table[:, 1::2] = torch.cos(angle[:, : table[:, 1::2].shape[1]])
    return table


def sinusoids_in_numpy(T, D):
    angle = np.arange(T)[:, None] / np.power(10000, 2 * (np.arange(D)[None, :] // 2) / D)
    angle[:, 0::2] = np.sin(angle[:, 0::2])
    angle[:, 1::2] = np.cos(angle[:, 1::2])
    return angle.astype(np.float32)


def sinusoids_as_complex_numbers(max_seq_len, d_model):
    speed = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = torch.outer(torch.arange(max_seq_len, dtype=torch.float64), speed)
    hands = torch.view_as_real(torch.polar(torch.ones_like(angle), angle))  # cosine, sine
    return hands.flip(-1).reshape(max_seq_len, -1)[:, :d_model].to(torch.float32)


def shift_by_loops(k, d_model):
    M = torch.zeros(d_model, d_model)
    for i in range(0, d_model, 2):
        b = k / 10000 ** (i / d_model)
        M[i, i] = M[i + 1, i + 1] = math.cos(b)
        M[i, i + 1], M[i + 1, i] = math.sin(b), -math.sin(b)
    return M


def shift_by_exponential(k, d_model):
    """A turn is the exponential of its generator."""
    speed = 10000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    generator = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    return torch.matrix_exp(k * torch.kron(torch.diag(speed), generator)).to(torch.float32)


def shift_by_single_steps(k, d_model):
    return torch.linalg.matrix_power(torch.from_numpy(shift_by_diagonals(1, d_model)), k).float()


def shift_by_diagonals(k, d_model):
    b = k / 10000 ** (np.arange(d_model) // 2 * 2 / d_model)
    sines = np.where(np.arange(d_model) % 2 == 0, np.sin(b), 0.0)[:-1]
    return np.diag(np.cos(b)) + np.diag(sines, 1) - np.diag(sines, -1)


def rotary_by_half_rotation(x, positions, theta):
    """As in Hugging Face's Llama: angles in float32, laid down twice."""
    half = x.shape[-1] // 2
    speed = 1.0 / (theta ** (torch.arange(0, x.shape[-1], 2).float() / x.shape[-1]))
    angle = torch.einsum("t,i->ti", positions.float(), speed)
    angle = torch.cat([angle, angle], dim=-1)
    swapped = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * angle.cos().to(x.dtype) + swapped * angle.sin().to(x.dtype)


def rotary_as_complex_numbers(x, positions, theta):
    first, second = x.chunk(2, dim=-1)
    speed = torch.tensor([theta ** (-2 * i / x.shape[-1]) for i in range(x.shape[-1] // 2)], dtype=torch.float64)
    angle = torch.outer(positions.double(), speed)
    turned = torch.complex(first.double(), second.double()) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], dim=-1).to(x.dtype)


def rotary_as_float32_complex_numbers(x, positions, theta):
    """In the manner of the first LLaMA, with the pairs half-split: float32 complex numbers, and back to x's dtype."""
    D = x.shape[-1]
    angle = torch.outer(positions.float(), 1.0 / theta ** (torch.arange(0, D, 2).float() / D))  # (T, D/2)
    pairs = torch.view_as_complex(x.float().unflatten(-1, (2, D // 2)).transpose(-1, -2).contiguous())
    turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle))  # (B, H, T, D/2, 2)
    return turned.transpose(-1, -2).flatten(-2).type_as(x)


def rotary_by_loops(x, positions, theta):
    out, half = x.clone(), x.size(3) // 2
    for t, p in enumerate(positions.tolist()):
        for i in range(half):
            c, s = math.cos(p * theta ** (-i / half)), math.sin(p * theta ** (-i / half))
            a, b = x[:, :, t, i], x[:, :, t, i + half]
            out[:, :, t, i], out[:, :, t, i + half] = a * c - b * s, a * s + b * c
    return out


def rotary_by_the_library(x, positions, theta):
    return library.apply_rotary(x, library.rotary_angles(positions, x.shape[-1], theta))


def deviation_in_one_batch(f, x, n_shuffles):
    T, D = x.shape[1:]
    orders = torch.rand(n_shuffles, T).argsort(-1)  # (N, T)
    shuffled = x[:, orders]  # (B, N, T, D)
    out = f(shuffled.reshape(-1, T, D)).reshape(shuffled.shape)
    return (out - f(x)[:, orders]).abs().max()


def deviation_by_matrices(f, x, n_shuffles):
    sizes = []
    for _ in range(n_shuffles):
        P = torch.eye(x.shape[1], dtype=x.dtype)[np.random.permutation(x.shape[1])]
        sizes.append(float(torch.dist(f(P @ x), P @ f(x), p=float("inf"))))
    return max(sizes)


def interpolated_pair_by_pair(positions, d_head, theta, scale, original_length=None):
    """Two loops, with the rotations of each pair counted from the first pair on."""
    low = high = 0
    if original_length is not None:
        while original_length * theta ** (-2 * (low + 1) / d_head) / math.tau >= 32:
            low += 1
        while original_length * theta ** (-2 * high / d_head) / math.tau > 1:
            high += 1
    angles = torch.zeros(len(positions), d_head // 2)
    for i in range(d_head // 2):
        speed = theta ** (-2 * i / d_head)
        if original_length is None or i >= high:
            speed = speed / scale
        elif i > low:
            share = (i - low) / (high - low)
            speed = (1 - share) * speed + share * speed / scale
        for t, position in enumerate(positions.tolist()):
            angles[t, i] = position * speed
    return angles


def interpolated_in_numpy(positions, d_head, theta, scale, original_length=None):
    i = np.arange(d_head // 2)
    kept = np.zeros(d_head // 2)
    if original_length:
        ends = np.log(original_length / 2 / np.pi / np.array([32, 1])) / np.log(theta) * d_head / 2
        kept = np.interp(i, [np.floor(ends[0]), np.ceil(ends[1])], [1, 0])
    speed = theta ** (-2 * i / d_head) * (kept + (1 - kept) / scale)
    return np.outer(positions.numpy(), speed).astype(np.float32)


def interpolated_positions_of_each_pair(positions, d_head, theta, scale, original_length=None):
    """Each pair has positions of its own, by which its speed is multiplied."""
    pairs = torch.linspace(0, d_head // 2 - 1, d_head // 2)
    stretched = torch.full_like(pairs, scale)
    if original_length is not None:
        low, high = (d_head * math.log(original_length / (n * math.tau)) / math.log(theta) / 2 for n in (32, 1))
        share = torch.clip((pairs - int(low)) / (math.ceil(high) - int(low)), 0, 1)
        stretched = 1 / torch.lerp(torch.ones_like(pairs), torch.full_like(pairs, 1 / scale), share)
    return positions.unsqueeze(1) / stretched * torch.exp(-2 * pairs / d_head * math.log(theta))


def interpolated_by_the_library(positions, d_head, theta, scale, original_length=None):
    plain = library.rotary_angles(positions, d_head, theta)
    if original_length is None:
        return plain / scale
    pair = torch.arange(d_head // 2)
    ends = [d_head / 2 * math.log(original_length / (2 * math.pi * turns), theta) for turns in (32, 1)]
    kept = ((math.ceil(ends[1]) - pair) / (math.ceil(ends[1]) - math.floor(ends[0]))).clamp(0, 1)
    return plain * (kept + (1 - kept) / scale)


RIGHT = {
    "positions.sinusoidal": [
        sinusoids_by_loops,
        sinusoids_by_exp,
        sinusoids_in_numpy,
        sinusoids_as_complex_numbers,
    ],
    "positions.shift_matrix": [
        shift_by_loops,
        shift_by_exponential,
        shift_by_single_steps,
        lambda k, d_model: shift_by_diagonals(k, d_model).astype("float32"),
    ],
    "positions.rotary": [
        rotary_by_half_rotation,
        rotary_as_complex_numbers,
        rotary_as_float32_complex_numbers,
        rotary_by_loops,
    ],
    "positions.interpolate": [
        interpolated_pair_by_pair,
        interpolated_in_numpy,
        interpolated_positions_of_each_pair,
    ],
    "positions.equivariance": [deviation_in_one_batch, deviation_by_matrices],
    "positions.wavelength": [58_470, 58_469.6, np.float64(58_470.0), torch.tensor(2 * torch.pi * 10000 ** (254 / 256))],
    "positions.learned_parameters": [2**18, 262_144.0, torch.empty(512, 512).numel()],
}
OF_THE_LIBRARY = {
    "positions.sinusoidal": [by_way_of(library.sinusoidal_encoding)],
    "positions.rotary": [rotary_by_the_library],
    "positions.interpolate": [interpolated_by_the_library],
}
