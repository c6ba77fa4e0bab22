"""Positions: tell the model where each token stands.

Chapter 2. Without them attention sees a bag of tokens: shuffle the input and the outputs are shuffled alike.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.checks import at_least_one, last_size


def sinusoidal_encoding(max_seq_len: int, d_model: int) -> Float[Tensor, "max_seq_len d_model"]:
    """Clock hands: each pair of features is one hand, and every hand turns at its own speed.

    PE[p, 2i]     = sin(p / 10000^(2i / d_model))
    PE[p, 2i + 1] = cos(p / 10000^(2i / d_model))

    With an odd d_model the slowest hand has a sine and no cosine.
    Returns: (max_seq_len, d_model), values in [−1, 1], in torch's default dtype. Computed in float64, because
    the sine of a large float32 angle has few right digits.
    Errors: ValueError if max_seq_len or d_model is less than 1.
    Source: Vaswani et al. 2017, section 3.5.
    """
    at_least_one(max_seq_len=max_seq_len, d_model=d_model)
    position = torch.arange(max_seq_len, dtype=torch.float64)[:, None]  # (max_seq_len, 1)
    two_i = torch.arange(0, d_model, 2, dtype=torch.float64)  # (ceil(d_model / 2),)
    angle = position / 10000 ** (two_i / d_model)  # (max_seq_len, ceil(d_model / 2))
    table = torch.empty(max_seq_len, d_model, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table.to(torch.get_default_dtype())


class SinusoidalPositions(nn.Module):
    """Add the fixed sinusoids to the token vectors: y = x + PE[:T]. No parameters.

    The table is a buffer that is not saved: it can always be computed again.

    Shapes: x (B, T, d_model) → the same.
    Errors: ValueError if T > max_seq_len, or the last dimension is not d_model.
    Source: Vaswani et al. 2017, section 3.5.
    """

    def __init__(self, max_seq_len: int, d_model: int):
        super().__init__()
        self.register_buffer("table", sinusoidal_encoding(max_seq_len, d_model), persistent=False)

    def forward(self, x: Float[Tensor, "*batch T d_model"]) -> Float[Tensor, "*batch T d_model"]:
        return _add_rows(x, self.table)


class LearnedPositions(nn.Module):
    """Add one learned vector per position: y = x + weight[:T].

    Parameters: `weight` (max_seq_len, d_model), drawn from N(0, 0.02²). Position max_seq_len has no row and cannot
    be served: a learned table does not reach beyond its training length.
    Shapes: x (B, T, d_model) → the same.
    Errors: ValueError if T > max_seq_len, or the last dimension is not d_model.
    Source: Gehring et al. 2017; used by BERT and GPT-2.
    """

    def __init__(self, max_seq_len: int, d_model: int):
        super().__init__()
        at_least_one(max_seq_len=max_seq_len, d_model=d_model)
        self.weight = nn.Parameter(torch.empty(max_seq_len, d_model))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Float[Tensor, "*batch T d_model"]) -> Float[Tensor, "*batch T d_model"]:
        return _add_rows(x, self.weight)


def _add_rows(x: Tensor, table: Tensor) -> Tensor:
    max_seq_len, d_model = table.shape
    last_size(x, d_model)
    T = x.shape[-2]
    if max_seq_len < T:
        raise ValueError(f"the sequence has {T} positions, but there are only max_seq_len={max_seq_len}: shorten it")
    return x + table[:T].to(x)
