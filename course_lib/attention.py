"""Attention: each token averages the values of all tokens, weighted by how well their keys match its query.

Chapter 2 (Vaswani et al. 2017). There are two versions: plain steps, which also return the weights, and PyTorch's fused
kernel, which is faster but does not. `heads` runs several attentions in parallel.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.checks import is_number, require_alike, require_bias, require_broadcast, require_device_of, require_mask


def scaled_dot_product_attention(
    query: Float[Tensor, "... T D"],
    key: Float[Tensor, "... S D"],
    value: Float[Tensor, "... S D_v"],
    mask: Bool[Tensor, "..."] | None = None,
    dropout_p: float = 0.0,
    score_bias: Float[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "... T D_v"], Float[Tensor, "... T S"]]:
    """Compare each query with all keys, and average the values by how well the keys match: a soft dictionary look-up.

    weights = softmax(Q Kᵀ / sqrt(D)),   output = weights V

    Scores of independent features with mean 0 and variance 1 have variance 1 for every D, because of the sqrt(D).

    Args:
        query, key, value: with leading dimensions that are equal or broadcastable. D_v may differ from D.
        mask: boolean, True = may attend, broadcastable to (…, T, S). A query that may attend to nothing gets zeros.
        dropout_p: probability of dropping each weight. The returned weights are from before dropout.
        score_bias: numbers added to the scores, broadcastable to (…, T, S), such as alibi_bias; −inf hides a key.
    Returns: (output, weights). Each row of weights sums to 1, or to 0 if the mask allows nothing. A row can become
        NaN if scores exceed the range of the dtype (65,504 in float16).
    Errors: ValueError if the sizes do not fit, if the mask is not boolean, or if it is ambiguous (per row or per head).
    Source: Vaswani et al. 2017, eq. 1.
    """
    _require_attention_sizes(query, key, value, dropout_p, mask, score_bias)
    # Divide the query, not the product: in float16 the product can overflow even if the scaled score is in range.
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)  # (..., T, S)
    if score_bias is not None:
        score_bias = score_bias.to(scores)
        scores, seen = scores + score_bias, score_bias != -torch.inf
        mask = seen if mask is None else mask & seen
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        nothing_allowed = ~mask.any(dim=-1, keepdim=True)  # (..., T, 1)
        # Softmax of a row that contains only −inf is 0 / 0. We replace such a row by zeros and set its weights to 0
        # afterwards, so that neither the forward nor the backward pass produces NaN.
        scores = scores.masked_fill(~mask, -torch.inf).masked_fill(nothing_allowed, 0.0)
        weights = scores.softmax(dim=-1).masked_fill(nothing_allowed, 0.0)
    output = F.dropout(weights, dropout_p) @ value  # (..., T, D_v)
    return output, weights


def fused_attention(query, key, value, mask=None, dropout_p=0.0, score_bias=None, is_causal=False) -> Tensor:
    """Return the output of scaled_dot_product_attention, using PyTorch's fused kernel, which never stores the weights.

    The arguments are the same. With is_causal, query t sees keys 0 … t; mask and score_bias must then be None.
    """
    if score_bias is not None:
        require_broadcast(score_bias, (*query.shape[:-1], key.shape[-2]), "score_bias")
        score_bias = score_bias.to(query)
        mask = score_bias if mask is None else score_bias.masked_fill(~mask, -torch.inf)  # (..., T, S)
    if mask is not None:
        mask = mask[(None,) * (query.ndim - mask.ndim)]  # the kernel requires all dimensions
    return F.scaled_dot_product_attention(query, key, value, mask, dropout_p, is_causal)


def _require_attention_sizes(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float, mask: Tensor | None, score_bias: Tensor | None
) -> None:
    """Raise ValueError unless query, key and value fit together, and mask and score_bias fit their scores."""
    require_alike(query=query, key=key, value=value)
    require_device_of(query, mask=mask, score_bias=score_bias)
    if not is_number(dropout_p) or not 0 <= dropout_p <= 1:
        raise ValueError(f"dropout_p must be a number in [0, 1], got {dropout_p!r}")
    scores = _require_score_shape(query, key, value)
    if score_bias is not None:
        require_broadcast(score_bias, scores, "score_bias")
        require_bias(score_bias)
    if mask is not None:
        require_mask(mask, scores)


def _require_score_shape(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    """Return the shape of the scores, (…, T, S). Raise ValueError if the three tensors do not fit together."""
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ValueError(f"query, key and value need at least two dimensions (tokens, features), got {shapes}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key must have the same number of features (the last dimension), got {shapes}")
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"each key needs one value: key and value must have the same S, got {shapes}")
    try:
        torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        leading = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    except RuntimeError:
        raise ValueError(f"the leading dimensions (batch, heads) must broadcast to each other, got {shapes}") from None
    return (*leading, query.shape[-2], key.shape[-2])
