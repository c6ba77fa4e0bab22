"""Blocks: attention and feed-forward, each on a branch beside the residual stream; and a stack of such blocks.

Chapter 8.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.cache import KVCache
from course_lib.checks import token_rows
from course_lib.config import TransformerConfig
from course_lib.embeddings import TokenEmbedding, check_ids
from course_lib.feed_forward import FeedForward, SwiGLU
from course_lib.heads import MultiHeadAttention
from course_lib.masks import combine
from course_lib.normalization import LayerNorm, RMSNorm
from course_lib.positions import LearnedPositions, SinusoidalPositions, alibi_bias, rotary_angles


def make_norm(config: TransformerConfig) -> LayerNorm | RMSNorm:
    """The norm that the config asks for."""
    if config.norm == "rms":
        return RMSNorm(config.d_model, config.norm_eps)
    return LayerNorm(config.d_model, config.norm_eps, config.bias)


class TransformerBlock(nn.Module):
    """One layer of a Transformer: branches that read the residual stream x and add to it.

    pre-norm                                      post-norm
    x = x + dropout(attention(norm1(x)))          x = norm1(x + dropout(attention(x)))         tokens exchange
    x = x + dropout(feed_forward(norm2(x)))       x = norm2(x + dropout(feed_forward(x)))      each token by itself

    In pre-norm nothing stands on the path from x to x, and the gradient runs along it undamped. With cross_attention a
    third branch between the two attends to a context. Blocks of the decoder family and blocks with cross_attention are
    causal: no token sees a later one.

    Parameters: `norm1 attention norm2 feed_forward`, with cross_attention also `cross_norm cross_attention`.
    Shapes: x (B, T, d_model) → the same.
    Source: Vaswani et al. 2017 (post-norm); Radford et al. 2019 (GPT-2, pre-norm).
    """

    def __init__(self, config: TransformerConfig, cross_attention: bool = False):
        super().__init__()
        sizes = (config.d_model, config.n_heads, config.n_kv_heads, config.dropout, config.bias)
        self.is_causal = cross_attention or config.family == "decoder"
        self.pre_norm = config.norm_position == "pre"
        self.norm1 = make_norm(config)
        self.attention = MultiHeadAttention(*sizes, config.rope_interleaved)
        if cross_attention:
            self.cross_norm = make_norm(config)
            self.cross_attention = MultiHeadAttention(*sizes)
        self.norm2 = make_norm(config)
        if config.activation == "swiglu":
            self.feed_forward = SwiGLU(config.d_model, config.d_ff, bias=config.bias)
        else:
            self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        context: Float[Tensor, "B S d_model"] | None = None,
        context_mask: Bool[Tensor, "..."] | None = None,
        rotary: Float[Tensor, "..."] | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        cache: KVCache | None = None,
        context_cache: KVCache | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        """mask: who may attend to whom within x, True = may attend, broadcastable to (B, H, T, T); context_mask: within
        the context, (B, H, T, S). context: what cross_attention attends to. The rest as in MultiHeadAttention."""
        crosses = hasattr(self, "cross_attention")
        if crosses != (context is not None):
            raise ValueError(
                "this block has a cross-attention and needs a context to attend to: give context"
                if crosses
                else "this block has no cross-attention to read a context: build it with cross_attention=True"
            )
        x = self._add(
            x, self.norm1, lambda h: self.attention(h, None, mask, self.is_causal, rotary, cache, score_bias=score_bias)
        )
        if crosses:
            x = self._add(
                x, self.cross_norm, lambda h: self.cross_attention(h, context, context_mask, cache=context_cache)
            )
        return self._add(x, self.norm2, self.feed_forward)

    def _add(self, x: Tensor, norm: nn.Module, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """The stream after one more branch."""
        if self.pre_norm:
            return x + self.dropout(branch(norm(x)))
        return norm(x + self.dropout(branch(x)))


class Stack(nn.Module):
    """From ids to hidden states: token and position embedding, dropout, the blocks, the last norm.

    Positions enter as the config says: sinusoids or a learned table are added to the tokens, RoPE turns the queries and
    keys of every self-attention, ALiBi lowers their scores. A post-norm encoder has a norm after the embeddings (BERT);
    a pre-norm stack has one after its last block.

    Parameters: `token_embedding positions segment_embedding embedding_norm blocks final_norm`, as far as needed. The
    tokens are scaled by sqrt(d_model), as in the original, in its family and wherever sinusoids are added.
    """

    def __init__(self, config: TransformerConfig, cross_attention: bool = False):
        super().__init__()
        self.config = config
        sizes = (config.max_seq_len, config.d_model)
        # Sinusoids are up to 1 in size and stay so: beside them, rows of the size that `initialize` gives would drown.
        scale = config.positions == "sinusoidal" or config.family == "encoder-decoder"
        self.token_embedding = TokenEmbedding(config.vocab_size, config.d_model, scale)
        tables = {"learned": LearnedPositions, "sinusoidal": SinusoidalPositions}
        self.positions = tables[config.positions](*sizes) if config.positions in tables else None
        self.segment_embedding = TokenEmbedding(config.n_segments, config.d_model) if config.n_segments else None
        post_norm_encoder = config.norm_position == "post" and config.family == "encoder"
        self.embedding_norm = make_norm(config) if post_norm_encoder else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(TransformerBlock(config, cross_attention) for _ in range(config.n_layers))
        self.final_norm = make_norm(config) if config.norm_position == "pre" else nn.Identity()

    def new_cache(self) -> list[tuple[KVCache, KVCache]]:
        """An empty cache for generating: per block one for its self-attention and one for its cross-attention."""
        return [(KVCache(), KVCache()) for _ in self.blocks]

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        mask: Bool[Tensor, "..."] | None = None,
        context: Float[Tensor, "B S d_model"] | None = None,
        context_mask: Bool[Tensor, "..."] | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
        left_padding: Int[Tensor, "B"] | None = None,
        cache: Sequence[tuple[KVCache, KVCache]] | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        """Hidden states (B, T, d_model) of ids that follow the tokens in the cache.

        Args:
            mask, context, context_mask: as in TransformerBlock.
            segment_ids: (B, T), which segment each token belongs to; segment 0 unless given.
            left_padding: (B,), how many padding tokens stand at the front of each row, counted from the row's first
                token, in the cache or not. They are hidden, and positions count from the first real token.
        Errors: ValueError for an empty sequence, one longer than max_seq_len, ids outside the vocabulary, segments that
            the model does not have, or the cache of another model.
        """
        if cache is not None and len(cache) != len(self.blocks):
            raise ValueError(f"the cache is for {len(cache)} blocks, not {len(self.blocks)}: make it with new_cache()")
        if segment_ids is not None and self.segment_embedding is None:
            raise ValueError("segment_ids were given, but n_segments=0: the model cannot tell segments apart")
        offset = len(cache[0][0]) if cache is not None else 0
        token_rows(ids, offset, self.config.max_seq_len, segment_ids, left_padding)
        T = ids.shape[1]
        S = offset + T
        positions = torch.arange(offset, S, device=ids.device)  # (T,)
        if left_padding is not None:
            real = torch.arange(S, device=ids.device) >= left_padding[:, None]  # (B, S)
            mask = combine(mask, real[:, None, None])  # (B, 1, 1, S)
            positions = (positions - left_padding[:, None]).clamp(min=0)  # (B, T)

        x = self.token_embedding(ids)  # (B, T, d_model)
        if self.positions is not None:
            x = self.positions(x, None if S == T and left_padding is None else positions)
        if self.segment_embedding is not None:
            segment_ids = torch.zeros_like(ids) if segment_ids is None else segment_ids
            check_ids(segment_ids, self.config.n_segments, name="segment_ids", size="n_segments")
            x = x + self.segment_embedding(segment_ids)
        x = self.dropout(self.embedding_norm(x))

        rotary = score_bias = None
        if self.config.positions == "rope":
            dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
            # (T, D/2), or (B, T, D/2) with left padding
            rotary = rotary_angles(positions, self.config.d_head, self.config.rope_theta, dtype)
            rotary = rotary[:, None] if left_padding is not None else rotary  # (B, 1, T, D/2): the same for all heads
        elif self.config.positions == "alibi":
            score_bias = alibi_bias(self.config.n_heads, T, S, device=ids.device)  # (H, T, S)
        for block, (own, cross) in zip(self.blocks, cache or [(None, None)] * len(self.blocks)):
            x = block(x, mask, context, context_mask, rotary, score_bias, own, cross)
        return self.final_norm(x)
