"""Blocks: attention and feed-forward, each on a branch beside the residual stream.

Chapter 8.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_lib.attention import MultiHeadAttention
from course_lib.config import TransformerConfig
from course_lib.feedforward import ACTIVATIONS, FeedForward
from course_lib.normalization import LayerNorm


class TransformerBlock(nn.Module):
    """One layer of a Transformer, with the norms in front of the branches (pre-norm).

    x = x + dropout(attention(norm1(x)))        tokens exchange information
    x = x + dropout(feed_forward(norm2(x)))     each token thinks for itself

    Nothing stands on the path from x to x: it is the residual stream, and the gradient runs along it undamped.
    In the decoder family attention is causal.

    Parameters: `norm1 attention norm2 feed_forward`.
    Shapes: x (B, T, d_model) → the same.
    Errors: ValueError for a config that asks for a part that is not built.
    Source: Vaswani et al. 2017; norms in front as in GPT-2 (Radford et al. 2019).
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        only_available(config, "family", ("decoder", "encoder"))
        only_available(config, "norm", ("layer",))
        only_available(config, "norm_position", ("pre",))
        only_available(config, "activation", tuple(ACTIVATIONS))
        only_available(config, "n_kv_heads", (config.n_heads,))
        self.is_causal = config.family == "decoder"
        self.norm1 = LayerNorm(config.d_model, config.norm_eps, config.bias)
        self.attention = MultiHeadAttention(config.d_model, config.n_heads, config.dropout, config.bias)
        self.norm2 = LayerNorm(config.d_model, config.norm_eps, config.bias)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "B T d_model"], mask: Bool[Tensor, "..."] | None = None, need_weights: bool = False
    ) -> Float[Tensor, "B T d_model"] | tuple[Float[Tensor, "B T d_model"], Float[Tensor, "B H T T"]]:
        """mask: boolean, True = may attend, broadcastable to (B, H, T, T). need_weights: return (x, weights)."""
        attended = self.attention(self.norm1(x), mask, self.is_causal, need_weights)
        if need_weights:
            attended, weights = attended
        x = x + self.dropout(attended)
        x = x + self.dropout(self.feed_forward(self.norm2(x)))
        return (x, weights) if need_weights else x


def only_available(config: TransformerConfig, field: str, available: tuple) -> None:
    """ValueError if the config asks for a value that can be counted (accounting) but not built yet."""
    value = getattr(config, field)
    if value not in available:
        raise ValueError(
            f"{field}={value!r} cannot be built yet: available are {', '.join(map(repr, available))}. "
            "Its parameters can be counted all the same (count_parameters)"
        )
