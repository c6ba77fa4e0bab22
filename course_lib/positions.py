"""Positions: give the model the position of each token.

Chapter 5. Without them, unmasked attention ignores order: shuffling the input shuffles the outputs in the same way.
Sinusoids and learned tables are added to the tokens; RoPE rotates queries and keys; ALiBi lowers the scores.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib import checks
from course_lib.layers import Layer

BINS, FURTHEST = 32, 128  # for RelativeBias: distances above FURTHEST share the last bin


def sinusoidal_encoding(max_seq_len: int, d_model: int) -> Float[Tensor, "max_seq_len d_model"]:
    """Return the sinusoidal encoding: each pair of features is like a clock hand that rotates at its own speed.

    PE[p, 2i]     = sin(p / 10000^(2i / d_model))
    PE[p, 2i + 1] = cos(p / 10000^(2i / d_model))

    If d_model is odd, the slowest hand has a sine but no cosine.
    Returns: (max_seq_len, d_model), values in [−1, 1], in torch's default dtype. Computed in float64, because
    the sine of a large float32 angle has few correct digits.
    Errors: ValueError if max_seq_len or d_model is less than 1.
    Source: Vaswani et al. 2017, section 3.5.
    """
    checks.require_sizes(max_seq_len=max_seq_len, d_model=d_model)
    position = torch.arange(max_seq_len, dtype=torch.float64)[:, None]  # (max_seq_len, 1)
    two_i = torch.arange(0, d_model, 2, dtype=torch.float64)  # (ceil(d_model / 2),)
    angle = position / 10000 ** (two_i / d_model)  # (max_seq_len, ceil(d_model / 2))
    table = torch.empty(max_seq_len, d_model, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table.to(torch.get_default_dtype())


class SinusoidalPositions(Layer):
    """Add the fixed sinusoids to the token vectors: y = x + PE[:T]. There are no parameters.

    The table is a buffer that is not saved with the model, because it can always be computed again.

    Shapes: x (B, T, d_model) → the same. positions: (T,) or (B, T), one per token; 0 … T − 1 unless given.
    Errors: ValueError for a position outside 0 … max_seq_len − 1, or if the last dimension is not d_model.
    Source: Vaswani et al. 2017, section 3.5.
    """

    def __init__(self, max_seq_len: int, d_model: int):
        super().__init__()
        self.table: Tensor
        self.register_buffer("table", sinusoidal_encoding(max_seq_len, d_model), persistent=False)

    def forward(
        self, x: Float[Tensor, "*batch T d_model"], positions: Int[Tensor, "..."] | None = None
    ) -> Float[Tensor, "*batch T d_model"]:
        return _add_rows(x, self.table, positions)


class LearnedPositions(Layer):
    """Add one learned vector per position: y = x + weight[:T].

    Parameters: `weight` (max_seq_len, d_model), initialized from N(0, 0.02²). The table has no row for
    position max_seq_len or later, so the model cannot read longer sequences.
    Shapes: x (B, T, d_model) → the same. positions: (T,) or (B, T), one per token; 0 … T − 1 unless given.
    Errors: ValueError for a position outside 0 … max_seq_len − 1, or if the last dimension is not d_model.
    Source: Gehring et al. 2017; used by BERT and GPT-2.
    """

    def __init__(self, max_seq_len: int, d_model: int):
        super().__init__()
        checks.require_sizes(max_seq_len=max_seq_len, d_model=d_model)
        self.weight = nn.Parameter(torch.empty(max_seq_len, d_model))
        nn.init.normal_(self.weight, std=0.02)

    def forward(
        self, x: Float[Tensor, "*batch T d_model"], positions: Int[Tensor, "..."] | None = None
    ) -> Float[Tensor, "*batch T d_model"]:
        return _add_rows(x, self.weight, positions)


def _add_rows(x: Tensor, table: Tensor, positions: Tensor | None) -> Tensor:
    max_seq_len, d_model = table.shape
    checks.require_fractions(x, d_model)
    first, last = 0, x.shape[-2] - 1
    if positions is not None:
        _require_positions(positions, x)
        if checks.occurs((positions < 0) | (positions >= max_seq_len)):
            first, last = int(positions.min()), int(positions.max())
    if first < 0 or last >= max_seq_len:
        raise ValueError(
            f"the sequence runs from position {first} to {last}, but there are only max_seq_len={max_seq_len} "
            f"positions, 0 to {max_seq_len - 1}: shorten it"
        )
    return x + (table[: x.shape[-2]] if positions is None else table[positions]).to(x)


def rotary_angles(
    positions: Int[Tensor, "*batch T"],
    d_head: int,
    theta: float = 10000.0,
    dtype: torch.dtype = torch.float32,
    scaling: Any = None,
) -> Float[Tensor, "*batch T half"]:
    """Return the angle by which RoPE rotates each pair of features at each position, in radians.

    angle[t, i] = positions[t] · theta^(−2i / d_head),   i = 0 … d_head / 2 − 1

    The first pair rotates by one radian per token, the last by almost nothing.

    Args:
        positions: whole numbers, such as torch.arange(offset, offset + T) after `offset` cached tokens.
        d_head: D, features of a head. theta: the base; Llama 3 uses 500,000.
        dtype: float32 or float64; in half precision, large positions would round to the same number.
        scaling: the four numbers of `slowed`, which slows down the slow pairs; no scaling unless given.
    Errors: ValueError if d_head is odd, or theta is not a positive number.
    Source: Su et al. 2021, "RoFormer".
    """
    _require_whole_numbers(positions)
    checks.require_sizes(d_head=d_head)
    checks.require_theta(theta=theta)
    _require_wide(dtype)
    if d_head % 2:
        raise ValueError(f"RoPE rotates pairs of features, but d_head={d_head} is odd: choose an even one")
    two_i = torch.arange(0, d_head, 2, device=positions.device)
    speeds = 1.0 / theta ** (two_i.to(dtype) / d_head)  # (D / 2,), radians per token
    speeds = speeds if scaling is None else slowed(speeds, *checks.require_rope_scaling(scaling))
    return positions[..., None].to(dtype) * speeds  # (..., T, D / 2)


def slowed(speeds: Float[Tensor, "half"], factor: float, low: float, high: float, original: float) -> Tensor:
    """Return RoPE's speeds for longer texts, as in Llama 3.1: pairs that rotate slowly are slowed down further.

    turns = original · speed / 2π,   kept = clip((turns − low) / (high − low), 0, 1)
    speed → speed · (kept + (1 − kept) / factor)

    A pair that makes more than `high` turns within the original length distinguishes nearby positions and keeps its
    speed. A pair that makes fewer than `low` turns would reach angles that do not occur in training, so its speed is
    divided by `factor`. In between, the speeds are interpolated.

    Args:
        speeds: (D / 2,), radians per token. The result has the same shape and unit.
        factor, low, high, original: 8, 1, 4 and 8,192 in Llama 3.1.
    Errors: ValueError unless factor ≥ 1, 0 < low < high and original > 0.
    Source: Llama 3.1's published code; after Peng et al. 2023 (YaRN), section 3.2.
    """
    _require_speeds(speeds)
    checks.require_rope_scaling((factor, low, high, original))
    turns = original * speeds / (2 * torch.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return speeds * (kept + (1 - kept) / factor)


def apply_rotary(
    x: Float[Tensor, "*batch T D"], angles: Float[Tensor, "..."], interleaved: bool = False
) -> Float[Tensor, "*batch T D"]:
    """Rotate each pair of features of queries or keys by its angle: (a, b) → (a cos − b sin, a sin + b cos).

    A rotation keeps lengths. The score of a query at t and a key at s depends on the positions only through t − s.

    Args:
        x: (…, T, D), queries or keys. angles: from rotary_angles, broadcastable to (…, T, D / 2).
        interleaved: which features form a pair. False, "half-split": i and i + D / 2 (Hugging Face's Llama). True,
            "interleaved": 2i and 2i + 1 (the paper, Meta's own files). They differ only in the order of features, but
            weights trained with one do not work with the other.
    Errors: ValueError if D is not twice the number of angles, or the shapes do not broadcast.
    Source: Su et al. 2021, section 3.2.2.
    """
    _require_pairs(x, angles, interleaved)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)  # (..., T, D / 2)
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(start_dim=-2)  # (..., T, D)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)  # (..., T, D)


def alibi_bias(
    n_heads: int, T: int, S: int | None = None, device: torch.device | str | None = None
) -> Float[Tensor, "H T S"]:
    """Return the numbers that ALiBi adds to the scores: the further away a key is, the more its score is lowered.

    bias[h, t, s] = −slope_h · |t + (S − T) − s|,   slope_h = 2^(−8 h / n_heads),   h = 1 … n_heads

    As in causal_mask, the queries are the last T of the S positions. Each head has its own slope: the first head
    attends to nearby tokens, the last one reaches far. If n_heads is not a power of two, we use all slopes of the next
    lower power of two and then every second slope of the next higher one.

    Returns: (H, T, S), float32, 0 or less.
    Errors: ValueError if a size is less than 1, or S < T.
    Source: Press et al. 2022, "Train Short, Test Long".
    """
    S = T if S is None else S
    _require_last_queries(T, S)
    checks.require_sizes(n_heads=n_heads, T=T, S=S)
    checks.require_device(device)
    power = 2 ** (int(n_heads).bit_length() - 1)
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    slopes += [2 ** (-4 * h / power) for h in range(1, 2 * (n_heads - power) + 1, 2)]
    query, key = torch.arange(S - T, S, device=device)[:, None], torch.arange(S, device=device)  # (T, 1), (S,)
    return -torch.tensor(slopes, device=device)[:, None, None] * (query - key).abs()  # (H, T, S)


class RelativeBias(Layer):
    """Learn a number to add to each score, one per head and distance: near distances exactly, far ones in bins.

    bias[h, t, s] = weight[bin(t + (S − T) − s), h]

    Half of the bins hold one distance each; the others become wider and wider, up to FURTHEST. If queries see later
    keys, each direction has half of the bins. Otherwise all later keys share bin 0, and the causal mask hides them.

    Parameters: `weight` (BINS, n_heads), initialized from N(0, 0.02²). both_ways: whether a query sees later keys.
    Source: Raffel et al. 2020 (T5), section 2.1.
    """

    def __init__(self, n_heads: int, both_ways: bool):
        super().__init__()
        checks.require_sizes(n_heads=n_heads, bins=BINS)
        checks.require_switches(both_ways=both_ways)
        self.both_ways, self.weight = both_ways, nn.Parameter(0.02 * torch.randn(BINS, n_heads))

    def forward(self, T: int, S: int) -> Float[Tensor, "H T S"]:
        """Return the bias for the scores of the last T of S positions. Errors: ValueError if S < T."""
        _require_last_queries(T, S)
        position = torch.arange(S, device=self.weight.device)
        before = position[S - T :, None] - position  # (T, S), how far the key is before its query
        bins, distance = (BINS // 2, before.abs()) if self.both_ways else (BINS, before.clamp(min=0))
        exact = bins // 2
        share = torch.log(distance.clamp(min=1).float() / exact) / math.log(FURTHEST / exact)
        wide = (exact + (share * (bins - exact)).long()).clamp(max=bins - 1)
        chosen = distance.where(distance < exact, wide) + bins * (self.both_ways & (before < 0))
        return self.weight[chosen].permute(2, 0, 1)


def added_positions(scheme: str, max_seq_len: int, d_model: int) -> LearnedPositions | SinusoidalPositions | None:
    """Return the module that adds positions to the token vectors, or None for schemes that add nothing to them.

    Args: scheme: "learned", "sinusoidal", or the name of another scheme.
    """
    kinds: dict[str, Any] = {"learned": LearnedPositions, "sinusoidal": SinusoidalPositions}
    return kinds[scheme](max_seq_len, d_model) if scheme in kinds else None


def relative_positions(
    config: Any, positions: Tensor, S: int, dtype: Any, theta: float | None = None, learned: Any = None
) -> dict[str, Tensor]:
    """Return the keyword arguments that a scheme passes to every attention; an empty dictionary if it has none.

    Args:
        config: a TransformerConfig. positions: (T,), or (B, T) if rows begin at different positions.
        S: number of keys; the queries are the last T of them. dtype: dtype of the token vectors.
        theta: RoPE's base; None for a block that does not rotate, whatever the scheme (SmolLM3).
        learned: the stack's RelativeBias, for "relative".
    """
    if learned is not None:
        return {"score_bias": learned(positions.shape[-1], S)}
    if config.positions == "rope" and theta is not None:
        wide = torch.promote_types(dtype, torch.float32)
        angles = rotary_angles(positions, config.d_rotary, theta, wide, config.rope_scaling)
        angles = F.pad(angles, (0, (config.d_head - config.d_rotary) // 2))  # the other pairs do not rotate
        return {"rotary": angles if angles.ndim == 2 else angles[:, None]}  # (T, D / 2) or (B, 1, T, D / 2)
    if config.positions == "alibi":
        return {"score_bias": alibi_bias(config.n_heads, positions.shape[-1], S, device=positions.device)}
    return {}


def _require_last_queries(T: int, S: int) -> None:
    """Raise ValueError unless T queries can be the last of S positions."""
    checks.require_sizes(T=T, S=S)
    if S < T:
        raise ValueError(f"S={S} keys are fewer than T={T} queries, which are the last T positions: give S ≥ T")


def _require_wide(dtype: object) -> None:
    """Raise ValueError unless dtype is float32 or float64."""
    if not isinstance(dtype, torch.dtype) or dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype!r:.80}")


def _require_pairs(x: Tensor, angles: Tensor, interleaved: bool) -> None:
    """Raise ValueError unless there is an angle for each pair of features of x; TypeError for a non-tensor."""
    checks.require_tensors(x=x, angles=angles)
    if not isinstance(interleaved, bool):
        checks.require_switches(interleaved=interleaved)
    if (
        min(x.ndim, angles.ndim) < 2
        or not x.is_floating_point()
        or x.device != angles.device
        or not angles.is_floating_point()
    ):
        said = ", ".join(f"{tuple(each.shape)}, {each.dtype} on {each.device}" for each in (x, angles))
        raise ValueError(f"x (…, T, D) and angles (…, T, D / 2) must be float tensors on one device, got {said}")
    if x.shape[-1] != 2 * angles.shape[-1]:
        raise ValueError(
            f"x has D={x.shape[-1]} features, but {angles.shape[-1]} angles rotate {2 * angles.shape[-1]}: "
            "make the angles with rotary_angles(positions, d_head=D)"
        )
    checks.require_broadcast(angles, (*x.shape[:-1], angles.shape[-1]), "angles")


def _require_speeds(speeds: Tensor) -> None:
    """Raise ValueError unless the speeds are finite numbers; TypeError if they are not a tensor."""
    checks.require_alike(speeds=speeds)
    if checks.occurs(~speeds.isfinite()):
        raise ValueError("speeds must be finite numbers, got NaN or infinite ones")


def _require_positions(positions: Tensor, x: Tensor) -> None:
    """Raise ValueError unless positions has a whole number for each token, on the device of x."""
    checks.require_broadcast(positions, x.shape[:-1], "positions")
    checks.require_device_of(x, positions=positions)
    if positions.dtype not in (torch.int64, torch.int32):  # PyTorch would read uint8 as a mask
        raise ValueError(f"positions must be whole numbers (torch.int64 or torch.int32), got {positions.dtype}")


def _require_whole_numbers(positions: Tensor) -> None:
    """Raise ValueError unless positions are whole numbers; TypeError if they are not a tensor."""
    checks.require_tensors(positions=positions)
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise ValueError(f"positions must be whole numbers, got {positions.dtype}")
