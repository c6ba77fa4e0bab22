"""Embeddings: turn token ids into vectors, and compare those vectors with each other.

Chapter 1. An embedding is a table with one row per token. Embedding a token means picking its row.
"""

from operator import index as whole

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.checks import (
    occurs,
    require_at_least_one,
    require_ids,
    require_sizes,
    require_switches,
    require_tensors,
)
from course_lib.layers import Layer


class TokenEmbedding(Layer):
    """Replace each token id by its row in a learned table.

    y[b, t] = weight[ids[b, t]]            (× sqrt(d_model) if scale)

    Args:
        vocab_size: V, the number of rows; ids run from 0 to V − 1. d_model: features of a token.
        scale: whether to multiply by sqrt(d_model), as the original Transformer does. The paper gives no reason.
            Features of size 1 / sqrt(d_model) become size 1, about as large as the position encoding.

    Parameters: `weight` (V, d_model), initialized from N(0, 0.02²). The small standard deviation matters when the same
    table also produces the logits: with N(0, 1), one token gets most of the probability in an untrained model.
    Shapes: ids (…), usually (B, T) → (…, d_model). Errors: ValueError for an id outside the table.
    Source: Vaswani et al. 2017, section 3.4; standard deviation as in GPT-2 (Radford et al. 2019).
    """

    def __init__(self, vocab_size: int, d_model: int, scale: bool = False):
        super().__init__()
        require_sizes(vocab_size=vocab_size, d_model=d_model)
        require_switches(scale=scale)
        self.factor = d_model**0.5 if scale else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch d_model"]:
        require_ids(ids, len(self.weight), like=self.weight)
        x = F.embedding(ids, self.weight)  # (..., d_model)
        return x if self.factor == 1.0 else x * self.factor


def nearest_tokens(
    weight: Float[Tensor, "V d_model"], index: int, k: int
) -> tuple[Int[Tensor, "k"], Float[Tensor, "k"]]:
    """Return the k tokens whose vectors have the highest cosine similarity to token `index`, which is excluded.

    cos(a, b) = a·b / (|a| |b|), from −1 to 1; a row of zeros has cosine 0 with every row.

    Returns: (indices, cosines), best first.
    Errors: ValueError if index is outside the table, k is not in 1 … V − 1, or a row contains NaN or infinite numbers.
    """
    (index,) = _require_rows(weight, index)
    return _most_similar(weight, weight[index], exclude=[index], k=k)


def analogy(
    weight: Float[Tensor, "V d_model"], a: int, b: int, c: int, k: int
) -> tuple[Int[Tensor, "k"], Float[Tensor, "k"]]:
    """Return the k tokens nearest to weight[a] − weight[b] + weight[c], as in king − man + woman → queen.

    The three inputs are excluded, as published results do; otherwise the nearest row is often one of them.

    Returns: (indices, cosines), best first.
    Errors: ValueError if a, b or c is outside the table, k exceeds the remaining rows, or a row is not finite.
    Source: Mikolov et al. 2013, "Linguistic Regularities in Continuous Space Word Representations".
    """
    a, b, c = _require_rows(weight, a, b, c)
    largest = weight[[a, b, c]].abs().max().clamp(min=torch.finfo(weight.dtype).tiny)  # prevents overflow in the sum
    vector = weight[a] / largest - weight[b] / largest + weight[c] / largest  # cosines ignore its length
    return _most_similar(weight, vector, exclude=[a, b, c], k=k)


def _most_similar(weight: Tensor, vector: Tensor, exclude: list[int], k: int) -> tuple[Tensor, Tensor]:
    _require_left(k, len(weight) - len(set(exclude)))
    cosine = F.cosine_similarity(_rescaled(weight), _rescaled(vector), dim=-1).to(weight.dtype)  # (V,)
    cosine[exclude] = -torch.inf
    scores, indices = cosine.topk(k)
    return indices, scores


def _rescaled(vectors: Tensor) -> Tensor:
    """Return the vectors scaled to a largest magnitude of 1, so that squares neither overflow nor underflow."""
    vectors = vectors.detach().to(torch.promote_types(vectors.dtype, torch.float32))
    largest = vectors.abs().amax(dim=-1, keepdim=True)
    return vectors / largest.where(largest > 0, 1)


def _require_rows(weight: Tensor, *rows: int) -> list[int]:
    """Return the rows. Raise ValueError or TypeError unless each is in the table and the table is finite."""
    require_tensors(weight=weight)
    if weight.ndim != 2 or not weight.is_floating_point() or weight.is_meta or not weight.numel():
        raise ValueError(
            f"weight must be a table of numbers of shape (V, d_model), got shape {tuple(weight.shape)}, {weight.dtype} "
            f"on {weight.device}"
        )
    if occurs(~weight.isfinite()):  # NaN would rank as the nearest
        row = (~weight.isfinite()).any(dim=1).nonzero()[0].item()
        raise ValueError(f"row {row} of weight holds NaN or infinite numbers: its training has diverged")
    for row in rows:
        try:
            wrong = isinstance(row, bool) or not 0 <= whole(row) < len(weight)
        except (TypeError, RuntimeError):
            raise TypeError(f"a token must be given by its id, a whole number, got {row!r}") from None
        if wrong:
            raise ValueError(f"token {row} is outside the table: its {len(weight)} rows are 0 … {len(weight) - 1}")
    return [whole(row) for row in rows]


def _require_left(k: int, available: int) -> None:
    """Raise ValueError unless k is a whole number from 1 to the number of available tokens."""
    require_at_least_one(k=k)
    if k > available:
        raise ValueError(f"k={k} is too large: only {available} tokens remain when the inputs are excluded")
