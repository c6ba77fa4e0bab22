"""Right answers in the manner of others: positions."""

import itertools
import math
import random

import numpy as np
import torch
from torch import Tensor, nn

# --- sinusoids --------------------------------------------------------------------------------------------------------


class PositionalEncoding(nn.Module):
    """A buffer with an axis for the batch, filled by slices."""

    def __init__(self, d_model, max_len):
        super().__init__()
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term[: d_model // 2])
        self.register_buffer("pe", pe.unsqueeze(0))


def sinusoids_of_a_module(max_seq_len, d_model):
    return PositionalEncoding(d_model, max_seq_len).pe.squeeze(0)


def sinusoids_in_numpy_rows(max_seq_len, d_model):
    """A list for every position, as older libraries have it."""
    rows = [[pos / np.power(10000, 2 * (j // 2) / d_model) for j in range(d_model)] for pos in range(max_seq_len)]
    table = np.array(rows)
    table[:, 0::2] = np.sin(table[:, 0::2])
    table[:, 1::2] = np.cos(table[:, 1::2])
    return torch.FloatTensor(table)


def sinusoids_interleaved(max_seq_len: int, d_model: int) -> Tensor:
    inv_freq = 1.0 / (10000.0 ** (torch.arange(0, d_model, 2, dtype=torch.float32) / d_model))
    t = torch.arange(max_seq_len, dtype=torch.float32)
    freqs = torch.einsum("i,j->ij", t, inv_freq)
    return torch.stack((freqs.sin(), freqs.cos()), dim=-1).flatten(-2)[:, :d_model]


def sinusoids_by_shifted_sines(max_seq_len, d_model):
    """A cosine is a sine a quarter ahead."""
    column = torch.arange(d_model)
    angles = torch.arange(max_seq_len, dtype=torch.float64).unsqueeze(-1) / torch.pow(
        10000, torch.div(column, 2, rounding_mode="floor") * 2 / d_model
    )
    return torch.sin(angles + (column % 2) * (math.pi / 2)).float()


def sinusoids_row_by_row(max_seq_len, d_model):
    rows = []
    for pos in range(max_seq_len):
        row = []
        for i in range((d_model + 1) // 2):
            angle = pos * 10000 ** (-2 * i / d_model)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row[:d_model])
    return torch.tensor(rows)


def _sin_cos(k, d_model):
    w = torch.exp(-math.log(10000.0) * torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return (k * w).sin(), (k * w).cos()


def shift_block_by_block(k, d_model):
    sin, cos = _sin_cos(k, d_model)
    blocks = [torch.tensor([[c, s], [-s, c]]) for s, c in zip(sin.tolist(), cos.tolist(), strict=True)]
    return torch.block_diag(*blocks)


def shift_by_diagonals(k, d_model):
    sin, cos = _sin_cos(k, d_model)
    beside = torch.stack([sin, torch.zeros_like(sin)], dim=1).flatten()[:-1]
    M = torch.diag(cos.repeat_interleave(2)) + torch.diag(beside, 1) - torch.diag(beside, -1)
    return M.to(torch.float32)


def shift_by_einsum(k, d_model):
    """The blocks at their places in an array of four axes."""
    angle = k / np.power(10000.0, 2 * np.arange(d_model // 2) / d_model)
    blocks = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])  # (2, 2, hands)
    M = np.einsum("abi,ij->iajb", blocks, np.eye(d_model // 2)).reshape(d_model, d_model)
    return torch.tensor(M, dtype=torch.float32)


def shift_read_off_a_table(k, d_model):
    """The sine and cosine of k steps are the row of position k; back is the transpose."""
    row = sinusoids_interleaved(abs(k) + 1, d_model)[-1]
    M = torch.zeros(d_model, d_model)
    even = torch.arange(0, d_model, 2)
    M[even, even] = M[even + 1, even + 1] = row[1::2]
    M[even, even + 1] = row[0::2]
    M[even + 1, even] = -row[0::2]
    return M if k >= 0 else M.T


def shift_in_float32(k, d_model):
    hands = torch.arange(d_model // 2).float()
    theta = torch.tensor(float(k)) * torch.pow(torch.tensor(10000.0), -2.0 * hands / d_model)
    unit = torch.polar(torch.ones_like(theta), theta)  # (hands,)
    M = torch.zeros(d_model // 2, 2, d_model // 2, 2)
    for i, z in enumerate(unit):
        M[i, 0, i] = torch.stack([z.real, z.imag])
        M[i, 1, i] = torch.stack([-z.imag, z.real])
    return M.view(d_model, d_model)


# --- RoPE -------------------------------------------------------------------------------------------------------------


class RotaryEmbedding(nn.Module):
    """Angles from a buffer of speeds, in float32, laid down twice; then x · cos + rotated half · sin."""

    def __init__(self, dim, base):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim)))

    def forward(self, x, position_ids):
        freqs = (self.inv_freq[:, None].float() @ position_ids[None, :].float()).transpose(0, 1)
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos().to(dtype=x.dtype), emb.sin().to(dtype=x.dtype)


def rotary_by_a_module(x, positions, theta):
    def rotate_half(x):
        return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)

    cos, sin = RotaryEmbedding(x.size(-1), theta)(x, positions)
    return (x * cos.unsqueeze(0).unsqueeze(0)) + (rotate_half(x) * sin.unsqueeze(0).unsqueeze(0))


def rotary_permuted_to_neighbours(x, positions, theta):
    """Pairs are laid side by side, turned as complex numbers like the first LLaMA's, and laid apart again."""
    B, H, T, D = x.shape
    freqs = 1.0 / (theta ** (torch.arange(0, D, 2)[: (D // 2)].float() / D))
    freqs_cis = torch.polar(torch.ones(T, D // 2), torch.outer(positions.float(), freqs))
    x_ = torch.view_as_complex(torch.stack(x.float().chunk(2, dim=-1), dim=-1))  # (B, H, T, D / 2)
    out = torch.view_as_real(x_ * freqs_cis.view(1, 1, T, D // 2)).flatten(3)  # neighbours
    return out.view(B, H, T, D // 2, 2).transpose(3, 4).reshape(B, H, T, D).type_as(x)


def rotary_from_a_cache(x, positions, theta):
    """Cosines and sines of all positions once, then the rows that are asked for; in place on a copy."""
    half = x.size(-1) // 2
    inv_freq = 1.0 / torch.pow(torch.tensor(float(theta)), torch.arange(half).float() / half)
    angles = torch.arange(int(positions.max()) + 1).float().unsqueeze(1) * inv_freq.unsqueeze(0)
    cos_cached, sin_cached = torch.cos(angles), torch.sin(angles)
    cos, sin = cos_cached[positions], sin_cached[positions]
    out = x.clone()
    first = out[..., :half].clone()
    out[..., :half].mul_(cos).sub_(x[..., half:] * sin)
    out[..., half:].mul_(cos).add_(first * sin)
    return out


def rotary_by_matrices(x, positions, theta):
    """The rotation of each position as a sparse (D, D) matrix."""
    D = x.shape[-1]
    matrices = []
    for p in positions.tolist():
        R = torch.zeros(D, D, dtype=torch.float64)
        for i in range(D // 2):
            angle = p * theta ** (-2 * i / D)
            j = i + D // 2
            R[i, i] = R[j, j] = math.cos(angle)
            R[i, j], R[j, i] = -math.sin(angle), math.sin(angle)
        matrices.append(R)
    return torch.einsum("tij,bhtj->bhti", torch.stack(matrices), x.double()).to(x.dtype)


def rotary_upcast(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    assert x.ndim == 4
    d = x.shape[3] // 2
    x1, x2 = x.float().split(d, dim=3)
    freqs = torch.outer(positions.to(torch.float32), theta ** -(torch.arange(0, 2 * d, 2) / (2 * d)))
    cos, sin = freqs.cos()[None, None, :, :], freqs.sin()[None, None, :, :]
    y1 = x1 * cos + x2 * (-sin)
    y2 = x1 * sin + x2 * cos
    return torch.cat([y1, y2], 3).to(x.dtype)


def rotary_in_numpy(x, positions, theta):
    a = x.double().numpy()
    D = a.shape[-1]
    angle = positions.numpy()[:, None] * np.power(theta, -np.arange(0, D, 2) / D)
    z = (a[..., : D // 2] + 1j * a[..., D // 2 :]) * np.exp(1j * angle)
    return torch.from_numpy(np.concatenate([z.real, z.imag], axis=-1)).to(x.dtype)


# --- longer texts ---------------------------------------------------------------------------------------------------


def interpolated_by_transformers(positions, d_head, theta, scale, original_length=None):
    """Hugging Face's own speeds, linear or YaRN's."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = {"rope_type": "linear"}
    if original_length is not None:
        kind = {"rope_type": "yarn", "original_max_position_embeddings": original_length}
    config = LlamaConfig(
        hidden_size=d_head,
        num_attention_heads=1,
        max_position_embeddings=int(scale * (original_length or 1024)),
        rope_parameters={"rope_theta": theta, "factor": scale, **kind},
    )
    inv_freq, _ = ROPE_INIT_FUNCTIONS[kind["rope_type"]](config, device="cpu")
    return torch.outer(positions.float(), inv_freq)


class YarnRotaryEmbedding(nn.Module):
    """The authors' module: a range of dimensions, a ramp as a mask, and two sets of frequencies that it mixes."""

    def __init__(self, dim, base, scale, original_max_position_embeddings, beta_fast=32, beta_slow=1):
        super().__init__()
        pos_freqs = base ** (torch.arange(0, dim, 2).float() / dim)
        inv_freq_extrapolation = 1.0 / pos_freqs
        inv_freq_interpolation = 1.0 / (scale * pos_freqs)

        def find_correction_dim(num_rotations):
            return (dim * math.log(original_max_position_embeddings / (num_rotations * 2 * math.pi))) / (
                2 * math.log(base)
            )

        low = max(math.floor(find_correction_dim(beta_fast)), 0)
        high = min(math.ceil(find_correction_dim(beta_slow)), dim - 1)
        ramp = torch.clamp((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low), 0, 1)
        inv_freq_mask = 1 - ramp
        inv_freq = inv_freq_interpolation * (1 - inv_freq_mask) + inv_freq_extrapolation * inv_freq_mask
        self.register_buffer("inv_freq", inv_freq)


class LinearScalingRotaryEmbedding(nn.Module):
    def __init__(self, dim, base, scaling_factor):
        super().__init__()
        self.scaling_factor = scaling_factor
        self.register_buffer("inv_freq", 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim)))

    def forward(self, position_ids):
        t = position_ids.type_as(self.inv_freq) / self.scaling_factor
        return torch.einsum("i,j->ij", t, self.inv_freq)


def interpolated_by_modules(positions, d_head, theta, scale, original_length=None):
    if original_length is None:
        return LinearScalingRotaryEmbedding(d_head, theta, scale)(positions)
    return positions.float()[:, None] * YarnRotaryEmbedding(d_head, theta, scale, original_length).inv_freq[None, :]


def interpolated_by_counting(positions, head_dim, rope_theta, factor, original=None):
    """The rotations of many more pairs than the head has, and counts of them."""
    dim = head_dim // 2
    inv_freq = 1.0 / rope_theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).double() / head_dim)
    freqs = inv_freq / factor
    if original:
        more = rope_theta ** (-torch.arange(0, 50 * head_dim, 2).double() / head_dim)
        rotations = more * original / 6.283185307179586
        low, high = int((rotations >= 32.0).sum()) - 1, int((rotations > 1.0).sum())
        weight = torch.ones(50 * dim).double()
        weight[low : high + 1] = torch.linspace(1.0, 0.0, high - low + 1).double()
        weight[high:] = 0.0
        freqs = weight[:dim].mul(inv_freq).add(weight[:dim].neg().add(1).mul(freqs))
    return positions[..., None].mul(freqs).to(torch.float32)


def interpolated_by_where(positions, d_head, theta, scale, original_length=None):
    """Three cases, in float64, and a sentinel for the missing length."""
    freqs = torch.pow(torch.tensor(theta, dtype=torch.float64), -torch.arange(0, d_head, 2) / d_head)
    slow = freqs / scale
    if original_length is None:
        new = slow
    else:
        at = [math.log(original_length / (math.tau * n)) / math.log(theta) * d_head / 2 for n in (1, 32)]
        last, first = -(-at[0] // 1), at[1] // 1
        i = torch.arange(d_head // 2, dtype=torch.float64)
        mix = (i - first) / (last - first)
        new = torch.where(i <= first, freqs, torch.where(i >= last, slow, freqs * (1 - mix) + slow * mix))
    return torch.einsum("t,d->td", positions.double(), new).float()


# --- the experiment ---------------------------------------------------------------------------------------------------


def deviation_brought_back(f, x, n_shuffles):
    """The outputs are brought back into the old order and held against f(x)."""
    with torch.no_grad():
        y, worst = f(x), torch.tensor(0.0, dtype=x.dtype)
        for _ in range(n_shuffles):
            perm = torch.argsort(torch.rand(x.shape[1]))
            inverse = torch.empty_like(perm)
            inverse[perm] = torch.arange(len(perm))
            worst = torch.maximum(worst, (f(x[:, perm])[:, inverse] - y).abs().amax())
    return worst.item()


def deviation_by_python_shuffles(f, x, n_shuffles):
    """f is asked about x anew for every order, and every entry is looked at."""
    largest = 0.0
    for _ in range(n_shuffles):
        order = list(range(x.shape[1]))
        random.shuffle(order)
        shuffled = torch.stack([x[:, t] for t in order], dim=1)
        left, right = f(shuffled), torch.stack([f(x)[:, t] for t in order], dim=1)
        for a, b in zip(left.flatten().tolist(), right.flatten().tolist(), strict=True):
            largest = max(largest, abs(a - b))
    return largest


def deviation_with_an_order_for_each_text(f, x, n_shuffles):
    B, T, D = x.shape

    def one():
        order = torch.rand(B, T).argsort(dim=1)[..., None].expand(B, T, D)
        return torch.max(torch.abs(f(x.gather(1, order)) - y.gather(1, order)))

    y = f(x)
    return max(one() for _ in itertools.repeat(None, n_shuffles))


STRANGERS = {
    "positions.sinusoidal": [
        sinusoids_of_a_module,
        sinusoids_in_numpy_rows,
        sinusoids_interleaved,
        sinusoids_by_shifted_sines,
        sinusoids_row_by_row,
    ],
    "positions.shift_matrix": [
        shift_block_by_block,
        shift_by_diagonals,
        shift_by_einsum,
        shift_read_off_a_table,
        shift_in_float32,
    ],
    "positions.rotary": [
        rotary_by_a_module,
        rotary_permuted_to_neighbours,
        rotary_from_a_cache,
        rotary_by_matrices,
        rotary_upcast,
        rotary_in_numpy,
    ],
    "positions.interpolate": [
        interpolated_by_transformers,
        interpolated_by_modules,
        interpolated_by_counting,
        interpolated_by_where,
    ],
    "positions.equivariance": [
        deviation_brought_back,
        deviation_by_python_shuffles,
        deviation_with_an_order_for_each_text,
    ],
}
