"""Heads: several attentions in parallel, each on its own slice of the features.

Chapter 4 (Vaswani et al. 2017). Splitting and merging are reshapes; the module projects, attends and mixes. Two later
topics also appear here: RoPE rotates queries and keys (chapter 5), and a cache stores keys and values (chapter 14).
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_lib import checks
from course_lib.attention import fused_attention, scaled_dot_product_attention
from course_lib.cache import KVCache
from course_lib.layers import Layer
from course_lib.masks import causal_mask, combine
from course_lib.positions import apply_rotary


def split_heads(x: Float[Tensor, "B T d_model"], n_heads: int) -> Float[Tensor, "B H T D"]:
    """Split each token's features into n_heads slices of D = d_model / n_heads features, by a reshape.

    Errors: ValueError if n_heads does not divide d_model.
    """
    _require_shape(x, "(B, T, d_model)")
    B, T, d_model = x.shape
    checks.require_heads(d_model, n_heads)
    return x.reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2)  # (B, T, H, D) -> (B, H, T, D)


def merge_heads(x: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T d_model"]:
    """Concatenate the heads again: the inverse of split_heads."""
    _require_shape(x, "(B, H, T, D)")
    return x.transpose(1, 2).flatten(start_dim=2)  # (B, T, H, D) -> (B, T, H * D)


class MultiHeadAttention(Layer):
    """Run several attentions in parallel, each on its own projection of the tokens, and mix their outputs with W_O.

    head_h = attention(x W_Q, c W_K, c W_V) on the h-th slice,   y = concat(head_1 … head_H) W_O
    where c is x itself (self-attention) or another sequence, the context (cross-attention).

    Args:
        d_model: features of a token. n_heads: H; each head has D = d_model / n_heads features.
        n_kv_heads: number of key-value heads; n_heads unless given. With fewer, n_heads / n_kv_heads query heads share
            each one (grouped-query attention; with 1, multi-query), which saves parameters and cache memory.
        dropout: probability of dropping an attention weight in training. bias: whether the four projections have a
            bias; qkv_bias: q, k, v have one in any case. rope_interleaved: as in apply_rotary. d_head: D, if different.
            qk_norm: eps of an RMSNorm on each query and key before RoPE, which bounds the scores; None for no norm.
            norm_all_heads: this norm is over the features of all heads together (OLMo 2), instead of over each head's.

    Parameters: `q_proj out_proj` (d_model, d_model), `k_proj v_proj` (d_model, n_kv_heads · D), plus biases, and
    `q_norm k_norm` (D,), or with norm_all_heads the sizes of q and k. More heads do not add parameters: each head uses
    a slice of the projections.
    Errors: ValueError if n_heads does not divide d_model, n_kv_heads does not divide n_heads, or a shape is wrong.
    Source: Vaswani et al. 2017, section 3.2.2; grouped queries: Ainslie et al. 2023; norms: Henry et al. 2020.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        rope_interleaved: bool = False,
        d_head: int | None = None,
        qkv_bias: bool = False,
        qk_norm: float | None = None,
        norm_all_heads: bool = False,
    ):
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        checks.require_heads(d_model, n_heads, n_kv_heads, d_head, qk_norm)
        D = d_model // n_heads if d_head is None else d_head
        checks.require_dropout(dropout)
        checks.require_switches(bias=bias, rope_interleaved=rope_interleaved, qkv_bias=qkv_bias)
        checks.require_switches(norm_all_heads=norm_all_heads)
        self.d_model, self.n_heads, self.n_kv_heads = d_model, n_heads, n_kv_heads
        self.dropout, self.rope_interleaved = dropout, rope_interleaved
        self.q_proj = nn.Linear(d_model, n_heads * D, bias=bias or qkv_bias)
        self.k_proj = nn.Linear(d_model, n_kv_heads * D, bias=bias or qkv_bias)
        self.v_proj = nn.Linear(d_model, n_kv_heads * D, bias=bias or qkv_bias)
        self.out_proj = nn.Linear(n_heads * D, d_model, bias=bias)
        self.q_norm = nn.RMSNorm(n_heads * D if norm_all_heads else D, qk_norm) if qk_norm else None
        self.k_norm = nn.RMSNorm(n_kv_heads * D if norm_all_heads else D, qk_norm) if qk_norm else None

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        context: Float[Tensor, "B S d_model"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        is_causal: bool = False,
        rotary: Float[Tensor, "..."] | None = None,
        cache: KVCache | None = None,
        need_weights: bool = False,
        score_bias: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B T d_model"] | tuple[Float[Tensor, "B T d_model"], Float[Tensor, "B H T S"]]:
        """Let the T tokens of x attend to S tokens: the context if given, otherwise the cached tokens followed by x.

        Args:
            context: the sequence to attend to, with the same batch size as x; x itself unless given.
            mask: boolean, True = may attend, broadcastable to (B, H, T, S). Pass a mask of shape (B, T, S) as
                mask[:, None], and one of shape (H, T, S) as mask[None]. is_causal: also hide later tokens.
            rotary: angles of the T tokens, from rotary_angles, broadcastable to (B, H, T, D / 2).
            cache: stores keys and values. Those of x are appended at each call; a context's are computed only once.
            need_weights: also return the weights (before dropout), from the plain steps: the fused kernel has none.
            score_bias: numbers added to the scores, broadcastable to (B, H, T, S), such as alibi_bias.
        """
        _require_sequences(x, context, self.d_model, is_causal, rotary, need_weights)
        query = split_heads(self.q_proj(x), self.n_heads)  # (B, H, T, D)
        if context is None:
            key, value = self.keys_and_values(x)  # (B, H_kv, T, D)
            if self.q_norm is not None and self.k_norm is not None:
                query, key = _normalized(query, self.q_norm), _normalized(key, self.k_norm)
            if rotary is not None:
                query = apply_rotary(query, rotary, self.rope_interleaved)
                key = apply_rotary(key, rotary, self.rope_interleaved)
            if cache is not None:
                key, value = cache.append(key, value)  # (B, H_kv, S, D)
        elif cache is None:
            key, value = self.keys_and_values(context)  # (B, H_kv, S, D)
        else:
            key, value = cache.once(self.keys_and_values, context)
        heads, weights = self.attend(
            query,
            key,
            value,
            mask=mask,
            is_causal=is_causal,
            score_bias=score_bias,
            dropout_p=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        y = self.out_proj(merge_heads(heads))  # (B, T, d_model)
        return y if weights is None else (y, weights)

    def keys_and_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of source (B, S, d_model), split into heads: (B, H_kv, S, D) each."""
        return split_heads(self.k_proj(source), self.n_kv_heads), split_heads(self.v_proj(source), self.n_kv_heads)

    def attend(
        self, query, key, value, mask=None, is_causal=False, score_bias=None, dropout_p=0.0, need_weights=False
    ) -> tuple[Tensor, Tensor | None]:
        """Return (heads (B, H, T, D), weights or None) for queries (B, H, T, D), keys and values (B, H_kv, S, D)."""
        _require_fitting(query, key, mask, score_bias)
        group = self.n_heads // self.n_kv_heads
        if group > 1:
            key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)  # (B, H, S, D)
        T, S = query.shape[-2], key.shape[-2]
        is_causal = is_causal and bool(T > 1)  # a single query is the last token: no key is later
        # The fused kernel takes a mask or is_causal, not both, and is_causal lets query t see keys 0 … t even if S > T.
        if is_causal and any((need_weights, mask is not None, score_bias is not None, S != T)):
            mask, is_causal = combine(mask, causal_mask(T, S, device=query.device)), False
        if need_weights:
            return scaled_dot_product_attention(query, key, value, mask, dropout_p, score_bias)
        return fused_attention(query, key, value, mask, dropout_p, score_bias, is_causal), None


def _normalized(x: Tensor, norm: nn.RMSNorm) -> Tensor:
    """Normalize queries or keys (B, H, T, D): the D features of each head, or with a longer `norm` all heads' H · D."""
    if norm.weight.shape[0] == x.shape[-1]:
        return norm(x)
    return split_heads(norm(merge_heads(x)), n_heads=x.shape[1])  # (B, T, H * D) in between


def _require_sequences(
    x: Tensor, context: Tensor | None, d_model: int, is_causal: bool, rotary: Tensor | None, need_weights: bool
) -> None:
    """Raise ValueError unless x and context have d_model features; with a context, is_causal and rotary are errors."""
    if type(is_causal) is not bool or type(need_weights) is not bool:
        checks.require_switches(is_causal=is_causal, need_weights=need_weights)
    checks.require_last_size(x, d_model)
    if context is None:
        return
    checks.require_last_size(context, d_model, name="context")
    if is_causal or rotary is not None:
        raise ValueError("is_causal and rotary apply to a single sequence: leave them out when a context is given")


def _require_fitting(query: Tensor, key: Tensor, mask: Tensor | None, score_bias: Tensor | None) -> None:
    """Raise ValueError unless queries and keys have the same batch size and the mask, if given, fits the scores."""
    if isinstance(score_bias, Tensor):
        checks.require_bias(score_bias)
    if key.shape[0] != query.shape[0]:  # len(key) would fix the batch of an exported model
        raise ValueError(
            f"x has {len(query)} rows, but the context or its cache has {len(key)}: give one row of context for each "
            "row of ids"
        )
    if mask is not None:
        checks.require_device_of(query, mask=mask)
        checks.require_mask(mask, (*query.shape[:-1], key.shape[-2]))


def _require_shape(x: Tensor, shape: str) -> None:
    """Raise ValueError unless x has the dimensions that the shape names; TypeError if it is not a tensor."""
    checks.require_tensors(x=x)
    if x.ndim != len(shape.split(",")) or not x.shape[-1]:
        raise ValueError(f"x must have shape {shape}, got {tuple(x.shape)}")
