"""The model of the ladder, with one switch for each chapter.

Chapters 1 to 9. Each rung is this class with one more part switched on. A part is a function with the signature that
its exercise requires, so you can replace the library's by yours: `climb("masks", mask=mine("masks.causal"))`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.feed_forward import FeedForward
from course_lib.heads import merge_heads, split_heads
from course_lib.masks import causal_mask
from course_lib.positions import apply_rotary, rotary_angles

D_MODEL, MAX_SEQ_LEN, THETA = 64, 80, 10_000.0  # no story of Tinytown is longer than 80 tokens


@dataclass(frozen=True)
class Shape:
    """Hold the settings of a model on the ladder; each chapter switches on one of them."""

    n_layers: int = 0  # 0: only the embedding table and the output table
    causal: bool = False
    n_heads: int = 1
    positions: str = "none"  # or "learned", a table added to the tokens; or "rotary", inside the heads
    feed_forward: bool = False
    norms: bool = False
    residuals: bool = True


def _attention(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, mask), None  # None: the fused kernel does not return the weights


def _rotary(x, positions, theta):
    return apply_rotary(x, rotary_angles(positions, x.shape[-1], theta))


def _ffn(x, W1, b1, W2, b2, activation):
    return F.gelu(x @ W1 + b1) @ W2 + b2


def _layer_norm(x, gamma, beta, eps):
    return F.layer_norm(x, gamma.shape, gamma, beta, eps)


def _block(x, attention, ffn, norm1, norm2):
    x = x + attention(norm1(x))
    return x + ffn(norm2(x))


# Name of a part -> the library's function. Each has the signature of its exercise in `rungs.EXERCISES`.
PARTS: dict[str, Callable[..., Any]] = {
    "lookup": lambda weight, ids: weight[ids],
    "attention": _attention,
    "mask": causal_mask,
    "split": split_heads,
    "merge": merge_heads,
    "rotary": _rotary,
    "feed_forward": _ffn,
    "norm": _layer_norm,
    "block": _block,
}


class Norm(nn.Module):
    """Apply LayerNorm with its two learned vectors, computed by `function`."""

    def __init__(self, function: Callable[..., Tensor]):
        super().__init__()
        self.function = function
        self.gamma, self.beta = nn.Parameter(torch.ones(D_MODEL)), nn.Parameter(torch.zeros(D_MODEL))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each token: (B, T, d_model), the same shape."""
        return self.function(x, self.gamma, self.beta, 1e-5)


class Layer(nn.Module):
    """Apply attention and, from chapter 6, a feed-forward network, with or without norms and residual connections."""

    def __init__(self, shape: Shape, parts: Mapping[str, Callable[..., Any]]):
        super().__init__()
        self.shape, self.parts = shape, parts
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(D_MODEL, D_MODEL, bias=False) for _ in range(4)
        )
        self.network = FeedForward(D_MODEL, activation="gelu") if shape.feed_forward else None
        self.norm1, self.norm2 = (Norm(parts["norm"]) if shape.norms else nn.Identity() for _ in range(2))

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        """Exchange information between tokens by attention, then process each token separately."""
        if not self.shape.residuals:
            return self._think(self.norm2(self._attend(self.norm1(x))))
        if self.network is None:
            return x + self._attend(self.norm1(x))
        return self.parts["block"](x, self._attend, self._think, self.norm1, self.norm2)

    def _attend(self, x: Tensor) -> Tensor:
        split, merge, H = self.parts["split"], self.parts["merge"], self.shape.n_heads
        q, k, v = (split(project(x), H) for project in (self.q_proj, self.k_proj, self.v_proj))  # (B, H, T, D)
        T = x.shape[1]
        if self.shape.positions == "rotary":
            positions = torch.arange(T, device=x.device)
            q, k = (self.parts["rotary"](part, positions, THETA) for part in (q, k))
        mask = self.parts["mask"](T).to(x.device) if self.shape.causal else None  # (T, T)
        heads, _ = self.parts["attention"](q, k, v, mask)
        return self.out_proj(merge(heads))  # (B, T, d_model)

    def _think(self, x: Tensor) -> Tensor:
        if self.network is None:
            return x
        up, down = self.network.up_proj, self.network.down_proj
        return self.parts["feed_forward"](x, up.weight.T, up.bias, down.weight.T, down.bias, "gelu")


class LadderModel(nn.Module):
    """Predict the next token with a model of the given shape.

    Args:
        vocab_size: V. shape: the parts that the model has. parts: functions to use instead of the library's, by their
            names in PARTS.

    Errors: ValueError for an unknown part.
    """

    def __init__(self, vocab_size: int, shape: Shape, parts: Mapping[str, Callable[..., Any]] | None = None):
        super().__init__()
        parts = dict(parts or {})
        if unknown := parts.keys() - PARTS.keys():
            raise ValueError(f"there is no part {sorted(unknown)}: the parts are {sorted(PARTS)}")
        self.parts = PARTS | parts
        # Variance 1, as in nn.Embedding: with small values, a single layer without norms trains slowly at first.
        self.embedding = nn.Parameter(torch.randn(vocab_size, D_MODEL))
        self.positions = nn.Parameter(torch.randn(MAX_SEQ_LEN, D_MODEL)) if shape.positions == "learned" else None
        self.layers = nn.ModuleList(Layer(shape, self.parts) for _ in range(shape.n_layers))
        self.final_norm = Norm(self.parts["norm"]) if shape.norms else nn.Identity()
        self.output = nn.Linear(D_MODEL, vocab_size, bias=False)

    def forward(self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"] | None = None):
        """Return logits (B, T, V) for the next token; with targets, (logits, loss in nats per token)."""
        x = self.parts["lookup"](self.embedding, ids)  # (B, T, d_model)
        if self.positions is not None:
            x = x + self.positions[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = self.output(self.final_norm(x))  # (B, T, V)
        return logits if targets is None else (logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten()))
