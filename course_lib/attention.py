"""Attention: every token asks, all tokens answer, and the answers are mixed by how well they fit.

Chapter 2 (Vaswani et al. 2017): the operation in plain steps, which give the weights, and as PyTorch's fused kernel,
which is faster and does not. `heads` runs several of them side by side.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.checks import require_attention_sizes, require_broadcast


def scaled_dot_product_attention(
    query: Float[Tensor, "... T D"], key: Float[Tensor, "... S D"], value: Float[Tensor, "... S D_v"],
    mask: Bool[Tensor, "..."] | None = None, dropout_p: float = 0.0, score_bias: Float[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "... T D_v"], Float[Tensor, "... T S"]]:  # fmt: skip
    """Compare each query with all keys, then average the values by how well they match: a soft dictionary look-up.

    weights = softmax(Q Kᵀ / sqrt(D)),   output = weights V

    Dividing by sqrt(D) keeps the scores at the same spread for every D, so that softmax neither saturates nor fades.

    Args:
        query, key, value: any leading dimensions, equal or broadcastable. value may have another size D_v than query.
        mask: boolean, True = may attend, broadcastable to (…, T, S). A query that may attend to nothing gets zeros.
        dropout_p: probability with which a weight is dropped. The weights returned are those before dropout.
        score_bias: numbers added to the scores, broadcastable to (…, T, S), such as alibi_bias; −inf hides a key.
    Returns: (output, weights). Each row of weights sums to 1, or to 0 if nothing is allowed. Scores that leave the
        range of the dtype (in float16 beyond 65,504) may make it NaN.
    Errors: ValueError if the sizes do not fit, or the mask is not boolean or fits the rows and the heads alike.
    Source: Vaswani et al. 2017, eq. 1.
    """
    require_attention_sizes(query, key, value, dropout_p, mask, score_bias)
    # The query is divided rather than the product: in float16 a product may overflow whose score is in range.
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)  # (..., T, S)
    if score_bias is not None:
        score_bias = score_bias.to(scores)
        scores, seen = scores + score_bias, score_bias != -torch.inf
        mask = seen if mask is None else mask & seen
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        nothing_allowed = ~mask.any(dim=-1, keepdim=True)  # (..., T, 1)
        # Softmax over nothing but −inf is 0 / 0. Such a row goes through softmax as zeros and its weights are cleared
        # afterwards, so that NaN appears neither here nor in the backward pass.
        scores = scores.masked_fill(~mask, -torch.inf).masked_fill(nothing_allowed, 0.0)
        weights = scores.softmax(dim=-1).masked_fill(nothing_allowed, 0.0)
    output = F.dropout(weights, dropout_p) @ value  # (..., T, D_v)
    return output, weights


def fused_attention(query, key, value, mask=None, dropout_p=0.0, score_bias=None, is_causal=False) -> Tensor:
    """Return the output of scaled_dot_product_attention from one kernel of PyTorch, which never stores the weights.

    The arguments are the same. is_causal lets query t see keys 0 … t; it goes without a mask and a score_bias.
    """
    if score_bias is not None:
        require_broadcast(score_bias, (*query.shape[:-1], key.shape[-2]), "score_bias")
        score_bias = score_bias.to(query)
        mask = score_bias if mask is None else score_bias.masked_fill(~mask, -torch.inf)  # (..., T, S)
    if mask is not None:
        mask = mask[(None,) * (query.ndim - mask.ndim)]  # the kernel wants every dimension
    return F.scaled_dot_product_attention(query, key, value, mask, dropout_p, is_causal)
