"""GPT: the parts put together into a decoder, which writes text.

Chapter 9 (Radford et al. 2019; Touvron et al. 2023). Also how a model is initialised, and what its loss is.
"""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.blocks import Stack, TransformerBlock
from course_lib.cache import KVCache
from course_lib.checks import require_real, require_targets
from course_lib.config import TransformerConfig, require_family
from course_lib.linear import Linear
from course_lib.trace import evaluating, trace

IGNORED = -100  # a target of −100 is not predicted: padding, or a part of the text that should not be learned


class DecoderOnly(Stack):
    """Predict the next token at every position: a causal stack of blocks, then one linear layer to the logits.

    Parameters: those of Stack, and `output`, whose weight, tied, *is* `token_embedding.weight`. See also `initialize`.
    Errors: ValueError unless config.family is "decoder". Source: Radford et al. 2019; Touvron et al. 2023 (LLaMA).
    """

    def __init__(self, config: TransformerConfig):
        require_family(config, "decoder")
        super().__init__(config)
        self.output = Linear(config.d_model, config.vocab_size, bias=config.output_bias)
        initialize(self)
        if config.tie_weights:
            self.output.weight = self.token_embedding.weight

    def forward(
        self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"] | None = None,
        cache: Sequence[tuple[KVCache, KVCache]] | None = None, left_padding: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B T V"] | tuple[Float[Tensor, "B T V"], Float[Tensor, ""]]:  # fmt: skip
        """Return the logits of the next token at every position.

        Args:
            ids: (B, T), T ≤ max_seq_len. left_padding: (B,), how many padding tokens stand at the front of each row.
            targets: (B, T), the ids that come next, already shifted: targets[b, t] follows ids[b, t]; −100 is ignored.
            cache: from new_cache(), what earlier calls have seen: ids are then the tokens that follow, one or several.
        Returns: logits (B, T, V); with targets (logits, loss), the loss of next_token_loss.
        Errors: ValueError for an empty or too long sequence, ids outside the vocabulary, targets as in next_token_loss.
        """
        logits = self.output(super().forward(ids, left_padding=left_padding, cache=cache))  # (B, T, V)
        return logits if targets is None else (logits, next_token_loss(logits, targets))

    def attention_weights(self, ids: Int[Tensor, "B T"]) -> list[Float[Tensor, "B H T T"]]:
        """Return what each head looks at: one (B, H, T, T) per block, each row a query's weights over the keys."""
        with evaluating(self), trace(self, "*.weights") as seen:
            self(ids)
        return [seen[f"blocks.{i}.attention.weights"] for i in range(len(self.blocks))]


def initialize(model: Any) -> None:
    """Initialise as GPT-2 does: linear layers and tables from N(0, 0.02²), biases 0, norms 1 and 0.

    It then guesses evenly: a loss of about ln V. model: has config.n_layers. Source: Radford et al. 2019, section 2.3.
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
    """Divide what writes into the residual stream by √(writers in n_layers blocks): sums do not grow."""
    writers = [module for name, module in block.named_modules() if name.endswith(("out_proj", "down_proj"))]
    for writes_to_stream in writers:
        nn.init.normal_(writes_to_stream.weight, std=0.02 / (len(writers) * n_layers) ** 0.5)


def next_token_loss(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy in nats per predicted token: −ln p(target), averaged over all targets but −100.

    Errors: ValueError if the shapes differ, a target is outside the vocabulary or none is left; for NaN in logits.
    """
    require_targets(logits, targets, IGNORED)
    return require_real(F.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=IGNORED), logits)
