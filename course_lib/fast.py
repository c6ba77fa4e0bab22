"""Fast: replace parts of a model by others that generate the same text in less time.

Chapter 14. A model that generates reads one token per step. Each operation then takes microseconds, and so does the
Python code around it: checks, calls of modules, separate products. `fast(model)` replaces blocks and large linear
layers by versions that do less of this; all weights, results and names stay.
"""

from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.blocks import TransformerBlock
from course_lib.cache import KVCache
from course_lib.checks import require_module
from course_lib.feed_forward import ACTIVATIONS, FeedForward, SwiGLU
from course_lib.linear import WORTH_SPLITTING, FastLinear
from course_lib.positions import apply_rotary

Model = TypeVar("Model", bound=nn.Module)


class FastBlock(TransformerBlock):
    """Compute what `TransformerBlock` does; for one new token per text in as few operations as possible.

    Args: block: the block whose parts this one uses, not copies of them.
    Shapes: as in TransformerBlock, which computes everything but a single token that follows others in a cache.
    """

    def __init__(self, block: TransformerBlock):
        nn.Module.__init__(self)
        vars(self).update(vars(block))

    def forward(self, x: Tensor, mask: Tensor | None = None, *context: Any, **options: Any) -> Tensor:
        if not context and self._is_next_token(x, mask, options):
            return self.next_token(x, options["cache"], options.get("rotary"))
        return super().forward(x, mask, *context, **options)

    def next_token(self, x: Tensor, cache: KVCache, rotary: Tensor | None) -> Tensor:
        """Return the residual stream of the one new token per text, (B, 1, d_model), after both branches.

        We call `forward` of each part instead of the part itself, because nothing listens in between.
        """
        attention, B = self.attention, x.shape[0]
        normed = self.norm1.forward(x)
        query = attention.q_proj.forward(normed).view(B, attention.n_heads, 1, -1)  # (B, H, 1, D)
        key = attention.k_proj.forward(normed).view(B, attention.n_kv_heads, 1, -1)  # (B, H_kv, 1, D)
        value = attention.v_proj.forward(normed).view(B, attention.n_kv_heads, 1, -1)  # (B, H_kv, 1, D)
        if attention.q_norm is not None and attention.k_norm is not None:
            query, key = attention.q_norm.forward(query), attention.k_norm.forward(key)
        if rotary is not None:  # one rotation of queries and keys
            both = apply_rotary(torch.cat([query, key], dim=1), rotary, attention.rope_interleaved)
            query, key = both.split([attention.n_heads, attention.n_kv_heads], dim=1)
        key, value = cache.append(key, value)  # (B, H_kv, S, D)
        shared = attention.n_heads != attention.n_kv_heads
        heads = F.scaled_dot_product_attention(query, key, value, enable_gqa=shared)  # (B, H, 1, D)
        found = attention.out_proj.forward(heads.reshape(B, 1, -1))  # (B, 1, d_model)
        if self.parallel:
            return x + found + self._fed_forward(self.norm2.forward(x))
        x = x + found
        return x + self._fed_forward(self.norm2.forward(x))

    def _fed_forward(self, x: Tensor) -> Tensor:
        network = self.feed_forward
        up = network.up_proj.forward(x)  # (B, 1, d_ff)
        if isinstance(network, SwiGLU):
            return network.down_proj.forward(F.silu(network.gate_proj.forward(x)) * up)
        return network.down_proj.forward(ACTIVATIONS[network.activation](up))

    def _is_next_token(self, x: Tensor, mask: Tensor | None, options: dict[str, Any]) -> bool:
        """Return whether x is one token per text that sees all tokens of the cache, and no hook waits for a part."""
        others = options.keys() - {"cache", "rotary", "context_cache"}  # its last one is empty without a context
        return (
            x.shape[1] == 1
            and mask is None
            and options.get("cache") is not None
            and all(options[name] is None for name in others)
            and self.pre_norm
            and self.cross_attention is None  # of an encoder-decoder: a missing context is an error, not a shortcut
            and not (self.training or torch.is_grad_enabled() or torch.compiler.is_compiling())
            and not self._is_watched()
        )

    def _is_watched(self) -> bool:
        """Return whether a hook or a replaced method waits for the output of a part, as in `trace`."""
        attention, network = self.attention, self.feed_forward
        parts = (
            *(attention, attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj),
            *(attention.q_norm, attention.k_norm, self.norm1, self.norm2, self.dropout),
            *(network, network.up_proj, network.down_proj, network.dropout, getattr(network, "gate_proj", None)),
        )
        hooks = any(part is not None and (part._forward_hooks or part._forward_pre_hooks) for part in parts)
        return hooks or "attend" in vars(attention)


def fast(model: Model) -> Model:
    """Replace the blocks of a model, and its large linear layers, by faster ones with the same weights; return it.

    Results agree up to rounding, and the names in the state dict stay. Training is neither faster nor slower.
    `load_pretrained` calls this. Call it for your own model if it generates much text.
    """
    require_module(model=model)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child.weight.numel() >= WORTH_SPLITTING:
                setattr(parent, name, FastLinear(child))
            elif type(child) is TransformerBlock and _is_usual(child):
                setattr(parent, name, FastBlock(child))
    return model


def _is_usual(block: TransformerBlock) -> bool:
    """Return whether FastBlock has the parts of this block: norms of single heads, and one feed-forward network."""
    attention, norm = block.attention, block.attention.q_norm
    norm_of_heads = norm is None or norm.weight.numel() * attention.n_heads == attention.q_proj.out_features
    return norm_of_heads and type(block.feed_forward) in (FeedForward, SwiGLU)
