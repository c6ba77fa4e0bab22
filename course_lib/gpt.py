"""GPT: the parts assembled into a decoder, which generates text.

Chapter 9 (Radford et al. 2019; Touvron et al. 2023). This module also initializes models and computes their loss.
"""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.blocks import Stack, TransformerBlock
from course_lib.cache import KVCache
from course_lib.checks import occurs, require_ids, require_real, require_switches, require_tensors
from course_lib.config import TransformerConfig, require_family
from course_lib.trace import evaluating, trace

IGNORED = -100  # targets of −100 do not count in the loss: padding, or text that should not be learned


class DecoderOnly(Stack):
    """Predict the next token at every position: a causal stack of blocks, then one linear layer to the logits.

    Parameters: as in Stack, and `output`. If tied, output.weight *is* token_embedding.weight. See also `initialize`.
    Errors: ValueError unless config.family is "decoder". Source: Radford et al. 2019; Touvron et al. 2023 (LLaMA).
    """

    def __init__(self, config: TransformerConfig):
        require_family(config, "decoder")
        super().__init__(config)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=config.output_bias)
        initialize(self)
        if config.tie_weights:
            self.output.weight = self.token_embedding.weight

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        targets: Int[Tensor, "B T"] | None = None,
        cache: Sequence[tuple[KVCache, KVCache]] | None = None,
        left_padding: Int[Tensor, "B"] | None = None,
        last_only: bool = False,
    ) -> Float[Tensor, "B T_out V"] | tuple[Float[Tensor, "B T_out V"], Float[Tensor, ""]]:
        """Return the logits of the next token at every position.

        Args:
            ids: (B, T), T ≤ max_seq_len. left_padding: (B,), number of padding tokens at the front of each row.
            targets: (B, T), the next ids, already shifted: targets[b, t] follows ids[b, t]; −100 is ignored.
            cache: from new_cache(). It stores the tokens of earlier calls, and ids are the one or more that follow.
            last_only: compute only the logits after the last token, (B, 1, V): a generated text needs no others.
        Returns: logits (B, T, V); with targets (logits, loss), with the loss of next_token_loss.
        Errors: ValueError for an empty or too long sequence, ids outside the vocabulary, targets as in next_token_loss.
        """
        require_switches(last_only=last_only)
        hidden = super().forward(ids, left_padding=left_padding, cache=cache)  # (B, T, d_model)
        logits = self.output(hidden[:, -1:] if last_only else hidden)  # (B, T, V)
        return logits if targets is None else (logits, next_token_loss(logits, targets))

    def attention_weights(self, ids: Int[Tensor, "B T"]) -> list[Float[Tensor, "B H T T"]]:
        """Return each block's attention weights, (B, H, T, T): each row is one query's weights over the keys."""
        with evaluating(self), trace(self, "*.weights") as seen:
            self(ids)
        return [seen[f"blocks.{i}.attention.weights"] for i in range(len(self.blocks))]


def initialize(model: Any) -> None:
    """Initialize a model with config.n_layers as in GPT-2: linear layers and tables N(0, 0.02²), biases 0, norms 1.

    Its predictions are then almost uniform, with a loss of about ln V. Source: Radford et al. 2019, section 2.3.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in model.modules():
        if isinstance(module, TransformerBlock):
            initialize_writers(module, model.config.n_layers)


def initialize_writers(block: TransformerBlock, n_layers: int) -> None:
    """Initialize layers that write to the residual stream with std 0.02 / √(number of branches): sums do not grow."""
    writers = {name: module for name, module in block.named_modules() if name.endswith(("out_proj", "down_proj"))}
    branches = {name.split(".")[0] for name in writers}  # the experts of a mixture are one branch
    for writes_to_stream in writers.values():
        nn.init.normal_(writes_to_stream.weight, std=0.02 / (len(branches) * n_layers) ** 0.5)


def next_token_loss(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy in nats per predicted token: −ln p(target), averaged over all targets except −100.

    Errors: ValueError if the shapes differ, a target is outside the vocabulary, all are −100, or logits contain NaN.
    """
    _require_targets(logits, targets, IGNORED)
    return require_real(F.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=IGNORED), logits)


def _require_targets(logits: Tensor, targets: Tensor, ignored: int) -> None:
    """Raise ValueError unless each row of logits has a target in the vocabulary, and not all targets are ignored."""
    require_tensors(logits=logits, targets=targets)
    if logits.ndim != 3 or not logits.is_floating_point() or logits.device != targets.device:
        kind = f"{tuple(logits.shape)}, {logits.dtype} on {logits.device}"
        raise ValueError(f"logits must be floats of shape (B, T, V) on the device of targets, got {kind}")
    if targets.shape != logits.shape[:2]:
        raise ValueError(f"targets must have the shape of ids, {tuple(logits.shape[:2])}, got {tuple(targets.shape)}")
    if occurs((targets == ignored).all()):
        raise ValueError(f"all targets are {ignored}: at least one position must have a token to predict")
    require_ids(targets.masked_fill(targets == ignored, 0), logits.shape[-1], name="targets")
