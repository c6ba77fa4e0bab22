"""Blocks (chapter 8): attention and feed-forward, each on a branch of the residual stream; a stack of blocks."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.cache import KVCache, cached_tokens
from course_lib.checks import occurs, require_ids, require_switches, require_tensors
from course_lib.config import TransformerConfig, require_config
from course_lib.embeddings import TokenEmbedding
from course_lib.feed_forward import GATED, FeedForward, MixtureOfExperts, SwiGLU
from course_lib.heads import MultiHeadAttention
from course_lib.layers import Layer
from course_lib.masks import combine, window_mask
from course_lib.normalization import LayerNorm, RMSNorm
from course_lib.positions import RelativeBias, added_positions, relative_positions


class TransformerBlock(Layer):
    """Add the outputs of two branches to the residual stream x: attention, then feed-forward.

    In pre-norm only the inputs of branches are normalized, so gradients pass through the stream unchanged; in post-norm
    each sum is. With "output" the outputs of branches are normalized instead, with "both" inputs and outputs. If
    parallel, both branches read the same x. With cross_attention a third branch in between attends to a context. Blocks
    of the decoder family and blocks with cross_attention are causal: no token sees a later one.

    Parameters: `norm1 attention norm2 feed_forward`, with cross_attention also `cross_norm cross_attention`, with
    "output" and "both" `branch_norm1 branch_norm2`.
    Shapes: x (B, T, d_model) → the same.
    Errors: ValueError for a context without cross_attention, or cross_attention without a context; for cross_attention
        in parallel blocks, and in blocks with norms after their branches.
    Source: Vaswani et al. 2017 (post-norm); Radford et al. 2019 (GPT-2, pre-norm); OLMo et al. 2024 (output).
    """

    def __init__(self, config: TransformerConfig, cross_attention: bool = False):
        super().__init__()
        require_config(config)
        require_switches(cross_attention=cross_attention)
        if cross_attention:
            _require_cross_attention(config)
        heads: dict[str, Any] = {
            "d_model": config.d_model,
            "n_heads": config.n_heads,
            "n_kv_heads": config.n_kv_heads,
            "d_head": config.head_dim,
            "dropout": config.dropout,
            "bias": config.bias,
            "qkv_bias": config.qkv_bias,
        }
        self.is_causal = cross_attention or config.family == "decoder"
        self.pre_norm, self.parallel = config.norm_position == "pre", config.parallel
        self.normalizes_branches = config.norm_position in ("output", "both")
        self.norm1: nn.Module = nn.Identity() if config.norm_position == "output" else make_norm(config)
        self.attention = MultiHeadAttention(
            **heads,
            rope_interleaved=config.rope_interleaved,
            qk_norm=config.norm_eps if config.qk_norm else None,
            norm_all_heads=config.qk_norm == "all",
        )
        self.cross_norm = make_norm(config) if cross_attention else None
        self.cross_attention = MultiHeadAttention(**heads) if cross_attention else None
        self.norm2: nn.Module = nn.Identity() if config.norm_position == "output" else make_norm(config)
        if self.normalizes_branches:
            self.branch_norm1, self.branch_norm2 = make_norm(config), make_norm(config)
        self.feed_forward: FeedForward | SwiGLU = make_feed_forward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        context: Float[Tensor, "B S d_model"] | None = None,
        context_mask: Bool[Tensor, "..."] | None = None,
        context_cache: KVCache | None = None,
        **options: Any,
    ) -> Float[Tensor, "B T d_model"]:
        """Return the residual stream after all branches.

        Args:
            mask: boolean, for attention within x: True = may attend, broadcastable to (B, H, T, T).
            context: the sequence that cross_attention attends to, with context_mask (B, H, T, S) and context_cache.
            options: other arguments of the attention within x, as in MultiHeadAttention: rotary, score_bias, cache.
        """
        _require_context(context, self.cross_attention is not None)
        options |= {"mask": mask, "is_causal": self.is_causal}
        other = {"context": context, "mask": context_mask, "cache": context_cache}
        if self.parallel:
            found = self.dropout(self.attention(self.norm1(x), **options))
            return x + found + self.dropout(self.feed_forward(self.norm2(x)))
        if self.normalizes_branches:
            found = self.attention(self.norm1(x), **options)
            x = x + self.dropout(self.branch_norm1(found))
            return x + self.dropout(self.branch_norm2(self.feed_forward(self.norm2(x))))
        if self.pre_norm:
            x = x + self.dropout(self.attention(self.norm1(x), **options))
            if self.cross_norm is not None and self.cross_attention is not None:
                x = x + self.dropout(self.cross_attention(self.cross_norm(x), **other))
            return x + self.dropout(self.feed_forward(self.norm2(x)))
        x = self.norm1(x + self.dropout(self.attention(x, **options)))
        if self.cross_norm is not None and self.cross_attention is not None:
            x = self.cross_norm(x + self.dropout(self.cross_attention(x, **other)))
        return self.norm2(x + self.dropout(self.feed_forward(x)))


class Stack(Layer):
    """Turn ids into hidden states: token and position embeddings, dropout, the blocks, the final norm.

    Sinusoids or a learned table are added to the tokens, RoPE rotates queries and keys, ALiBi lowers their scores. A
    post-norm encoder has a norm after the embeddings (BERT); all stacks that are not post-norm have one after the last
    block. Tokens are scaled by sqrt(d_model) in encoder-decoders and with sinusoids, which would otherwise swamp them.

    Parameters: `token_embedding positions segment_embedding embedding_norm blocks final_norm`, as configured.
    """

    def __init__(self, config: TransformerConfig, cross_attention: bool = False):
        super().__init__()
        require_config(config)
        require_switches(cross_attention=cross_attention)
        self.config = config
        scale = config.positions == "sinusoidal" or config.family == "encoder-decoder"
        self.token_embedding = TokenEmbedding(config.vocab_size, config.d_model, scale)
        self.positions = added_positions(config.positions, config.max_seq_len, config.d_model)
        both_ways = config.family != "decoder" and not cross_attention
        self.relative_bias = RelativeBias(config.n_heads, both_ways) if config.positions == "relative" else None
        self.segment_embedding = TokenEmbedding(config.n_segments, config.d_model) if config.n_segments else None
        post_norm_encoder = config.norm_position == "post" and config.family == "encoder"
        self.embedding_norm = make_norm(config) if post_norm_encoder else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        blocks = nn.ModuleList(TransformerBlock(config, cross_attention) for _ in range(config.n_layers))
        self.blocks = cast(Sequence[TransformerBlock], blocks)
        self.final_norm = nn.Identity() if config.norm_position == "post" else make_norm(config)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        mask: Bool[Tensor, "..."] | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
        left_padding: Int[Tensor, "B"] | None = None,
        cache: Sequence[tuple[KVCache, KVCache]] | None = None,
        **context: Any,
    ) -> Float[Tensor, "B T d_model"]:
        """Return the hidden states (B, T, d_model) of ids, which continue the tokens in the cache.

        Args:
            mask, context (with context_mask): as in TransformerBlock. segment_ids: (B, T), 0 unless given.
            left_padding: (B,), number of padding tokens at the front of each row, including any in the cache.
                They are hidden, and positions are counted from the first real token.
        Errors: ValueError for an empty or too long sequence, unknown ids or segments, or another model's cache.
        """
        offset = cached_tokens(cache, len(self.blocks))
        _require_tokens(ids, offset, self.config.max_seq_len)
        _require_segments(segment_ids, self.config.n_segments, ids)
        _require_left_padding(left_padding, ids.shape[0], self.config.max_seq_len)
        S = offset + ids.shape[1]
        positions = torch.arange(offset, S, device=ids.device)  # (T,)
        if left_padding is not None:
            real = torch.arange(S, device=ids.device) >= left_padding[:, None]  # (B, S)
            mask = combine(mask, real[:, None, None])  # (B, 1, 1, S)
            positions = (positions - left_padding[:, None]).clamp(min=0)  # (B, T)
        x = self.embed(ids, segment_ids, positions if offset or left_padding is not None else None)  # (B, T, d_model)
        kinds = [self.config.of_block(i) for i in range(len(self.blocks))]  # most models have blocks of one kind
        seen = {kind: self._seen(*kind, mask, positions, S, x.dtype) for kind in set(kinds)}
        for block, kind, (own, cross) in zip(self.blocks, kinds, cache if cache else [(None, None)] * len(kinds)):
            x = block(x, cache=own, context_cache=cross, **seen[kind], **context)
        return self.final_norm(x)

    def _seen(
        self, window: int | None, theta: float | None, mask: Tensor | None, positions: Tensor, S: int, dtype: Any
    ) -> dict[str, Tensor | None]:
        """Return what attention gets in all blocks with this window and RoPE's base: a mask, angles or a score bias."""
        if window is not None:
            mask = combine(mask, window_mask(positions.shape[-1], S, window, positions.device))
        return {"mask": mask, **relative_positions(self.config, positions, S, dtype, theta, self.relative_bias)}

    def embed(self, ids: Tensor, segment_ids: Tensor | None, positions: Tensor | None) -> Tensor:
        """Return the first block's input, (B, T, d_model). positions: (T,) or (B, T); None stands for 0 … T − 1."""
        x = self.token_embedding(ids)
        if self.positions is not None:
            x = self.positions(x, positions)
        if self.segment_embedding is not None:
            x = x + self.segment_embedding(torch.zeros_like(ids) if segment_ids is None else segment_ids)
        return self.dropout(self.embedding_norm(x))

    def new_cache(self) -> list[tuple[KVCache, KVCache]]:
        """Return an empty cache for generation: for each block one for self-attention and one for cross-attention."""
        return [(KVCache(), KVCache()) for _ in self.blocks]


def make_norm(config: TransformerConfig) -> LayerNorm | RMSNorm:
    """Return a new norm of the kind given by config.norm."""
    if config.norm == "rms":
        return RMSNorm(config.d_model, eps=config.norm_eps)
    return LayerNorm(config.d_model, eps=config.norm_eps, bias=config.bias)


def make_feed_forward(config: TransformerConfig) -> Any:
    """Return a new feed-forward network: a FeedForward, a gated one or a MixtureOfExperts, as config describes it."""
    if config.n_experts is not None:
        names = ("d_model", "d_expert", "n_experts", "experts_per_token", "norm_topk_prob", "bias")
        return MixtureOfExperts(**{name: getattr(config, name) for name in names})
    if config.activation in GATED:
        return GATED[config.activation](config.d_model, config.d_ff, bias=config.bias)
    return FeedForward(config.d_model, config.d_ff, config.activation, bias=config.bias)


def _require_tokens(ids: Tensor, offset: int, max_seq_len: int) -> None:
    """Raise ValueError unless ids are rows of tokens that fit after `offset` others; TypeError for a non-tensor."""
    require_tensors(ids=ids)
    if ids.ndim != 2:
        raise ValueError(f"ids must have shape (B, T), got {tuple(ids.shape)}; add a batch dimension with ids[None]")
    B, T = ids.shape
    if B == 0 or T == 0:
        raise ValueError(f"ids of shape {(B, T)} contain no token: give at least one, such as the start token")
    if max_seq_len < offset + T:
        cached = f" after {offset} in the cache" if offset else ""
        raise ValueError(f"ids have {T} tokens per row{cached}, more than max_seq_len={max_seq_len}: shorten them")


def _require_segments(segment_ids: Tensor | None, n_segments: int, ids: Tensor) -> None:
    """Raise ValueError unless each token has one of the model's segments, or none are given."""
    if segment_ids is None:
        return
    if n_segments == 0:
        raise ValueError("segment_ids were given, but this model has n_segments=0: leave them out, or set n_segments")
    require_tensors(segment_ids=segment_ids)
    if segment_ids.shape != ids.shape:
        raise ValueError(f"segment_ids must have the shape of ids, {tuple(ids.shape)}, got {tuple(segment_ids.shape)}")
    require_ids(segment_ids, n_segments, name="segment_ids", size="n_segments")


def _require_left_padding(left_padding: Tensor | None, B: int, max_seq_len: int) -> None:
    """Raise ValueError unless each of the B rows has a possible number of padding tokens, or none are given."""
    if left_padding is None:
        return
    require_tensors(left_padding=left_padding)
    if left_padding.shape != (B,):
        raise ValueError(f"left_padding must be one count per row, shape {(B,)}, got {tuple(left_padding.shape)}")
    if left_padding.is_floating_point():
        raise ValueError(f"left_padding counts tokens, so it must hold whole numbers, got {left_padding.dtype}")
    if occurs((left_padding < 0) | (left_padding >= max_seq_len)):
        least, most = left_padding.min().item(), left_padding.max().item()
        wrong = f"at least 0, got {least}" if least < 0 else f"less than max_seq_len={max_seq_len}, got {most}"
        raise ValueError(f"left_padding counts tokens, so it must be {wrong}")


def _require_cross_attention(config: TransformerConfig) -> None:
    """Raise ValueError if blocks of this config have no place for a cross-attention: it would be skipped."""
    if config.parallel or config.norm_position in ("output", "both"):
        given = f"parallel={config.parallel}, norm_position={config.norm_position!r}"
        raise ValueError(
            f"cross_attention=True needs parallel=False and norm_position='pre' or 'post', got {given}: change the "
            "config, or leave cross_attention out"
        )


def _require_context(context: Tensor | None, cross_attention: bool) -> None:
    """Raise ValueError if a block with cross-attention gets no context, or a block without it gets one."""
    if cross_attention and context is None:
        raise ValueError("this block has a cross-attention and needs a context to attend to: give context")
    if not cross_attention and context is not None:
        raise ValueError("this block has no cross-attention: leave context out, or build it with cross_attention=True")
