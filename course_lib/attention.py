"""Attention: every token asks, all tokens answer, and the answers are mixed by how well they fit.

Chapters 3 and 5 (Vaswani et al. 2017). First the operation itself in plain steps, then the module that runs several of
them side by side.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_lib.checks import divisible_heads, dropout_rate, last_size
from course_lib.masks import causal_mask, check_mask, combine


def scaled_dot_product_attention(
    query: Float[Tensor, "... T D"],
    key: Float[Tensor, "... S D"],
    value: Float[Tensor, "... S D_v"],
    mask: Bool[Tensor, "..."] | None = None,
    dropout_p: float = 0.0,
) -> tuple[Float[Tensor, "... T D_v"], Float[Tensor, "... T S"]]:
    """A soft dictionary look-up: compare each query with all keys, then average the values by how well they match.

    weights = softmax(Q Kᵀ / sqrt(D)),   output = weights V

    Dividing by sqrt(D) keeps the scores at the same spread for every D, so that softmax neither saturates nor fades.

    Args:
        query, key, value: any leading dimensions, equal or broadcastable. value may have another size D_v than query.
        mask: boolean, True = may attend, broadcastable to (…, T, S). A query that may attend to nothing gets zeros.
        dropout_p: probability with which a weight is dropped. The weights returned are those before dropout.
    Returns: (output, weights). Each row of weights sums to 1, or to 0 if nothing is allowed.
    Errors: ValueError if the sizes do not fit or the mask is not boolean.
    Source: Vaswani et al. 2017, eq. 1.
    """
    _check_sizes(query, key, value)
    D = query.shape[-1]
    scores = query @ key.transpose(-2, -1) / math.sqrt(D)  # (..., T, S)
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        check_mask(mask, scores.shape)
        nothing_allowed = ~mask.any(dim=-1, keepdim=True)  # (..., T, 1)
        scores = scores.masked_fill(~mask, -torch.inf)
        # Softmax over nothing but −inf is 0 / 0. Such a row goes through softmax as zeros and its weights are cleared
        # afterwards, so that NaN appears neither here nor in the backward pass.
        scores = scores.masked_fill(nothing_allowed, 0.0)
        weights = scores.softmax(dim=-1).masked_fill(nothing_allowed, 0.0)
    output = F.dropout(weights, dropout_p) @ value  # (..., T, D_v)
    return output, weights


def split_heads(x: Float[Tensor, "B T d_model"], n_heads: int) -> Float[Tensor, "B H T D"]:
    """Cut each token's features into n_heads slices of D = d_model / n_heads: a reshape, nothing is computed.

    Errors: ValueError if d_model is not divisible by n_heads.
    """
    if x.ndim != 3:
        raise ValueError(f"x must have shape (B, T, d_model), got {tuple(x.shape)}")
    B, T, d_model = x.shape
    divisible_heads(d_model, n_heads)
    return x.reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2)  # (B, T, H, D) -> (B, H, T, D)


def merge_heads(x: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T d_model"]:
    """Lay the heads side by side again: the inverse of split_heads."""
    if x.ndim != 4:
        raise ValueError(f"x must have shape (B, H, T, D), got {tuple(x.shape)}")
    return x.transpose(1, 2).flatten(start_dim=2)  # (B, T, H, D) -> (B, T, H * D)


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each on its own projection of the tokens, then mixed by W_O.

    head_h = attention(x W_Q, x W_K, x W_V) on the h-th slice,   y = concat(head_1 … head_H) W_O

    Args:
        d_model: features of a token. n_heads: H; each head works on D = d_model / n_heads features.
        dropout: probability of dropping an attention weight while training.
        bias: whether the four projections have a bias.

    Parameters: `q_proj k_proj v_proj out_proj`, each (d_model, d_model), plus biases. The number of heads does not
    change their count: heads share the projections out, they do not add any.
    Errors: ValueError if d_model is not divisible by n_heads, or x or mask has the wrong shape.
    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0, bias: bool = True):
        super().__init__()
        divisible_heads(d_model, n_heads)
        dropout_rate(dropout)
        self.d_model = d_model
        self.n_heads = n_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, d_model, bias=bias)
        self.v_proj = nn.Linear(d_model, d_model, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        is_causal: bool = False,
        need_weights: bool = False,
    ) -> Float[Tensor, "B T d_model"] | tuple[Float[Tensor, "B T d_model"], Float[Tensor, "B H T T"]]:
        """Self-attention over the T tokens of each row.

        Args:
            mask: boolean, True = may attend, broadcastable to (B, H, T, T).
            is_causal: hide later tokens. Together with a mask, both must allow it.
            need_weights: also return the attention weights (B, H, T, T), before dropout. They are computed in the
                plain steps above; otherwise PyTorch's fused kernel gives the same output without ever storing them.
        """
        last_size(x, self.d_model)
        query = split_heads(self.q_proj(x), self.n_heads)  # (B, H, T, D)
        key = split_heads(self.k_proj(x), self.n_heads)
        value = split_heads(self.v_proj(x), self.n_heads)

        B, H, T, _ = query.shape
        if mask is not None:
            check_mask(mask, (B, H, T, T))
        if is_causal and (need_weights or mask is not None):
            # The fused kernel takes a mask or a flag, never both; the plain steps know masks alone.
            mask, is_causal = combine(mask, causal_mask(T, device=x.device)), False
        dropout_p = self.dropout if self.training else 0.0

        if need_weights:
            heads, weights = scaled_dot_product_attention(query, key, value, mask, dropout_p)
            return self.out_proj(merge_heads(heads)), weights
        heads = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout_p, is_causal=is_causal
        )  # (B, H, T, D)
        return self.out_proj(merge_heads(heads))


def _check_sizes(query: Tensor, key: Tensor, value: Tensor) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ValueError(f"query, key and value need at least two dimensions (tokens, features), got {shapes}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key must have equally many features (the last dimension), got {shapes}")
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"each key needs one value: key and value must have the same S, got {shapes}")
    try:
        torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    except RuntimeError:
        raise ValueError(f"the leading dimensions (batch, heads) do not fit together: {shapes}") from None
