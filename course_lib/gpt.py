"""GPT: the parts put together into a decoder, which writes text.

Chapter 9 (Radford et al. 2019; Touvron et al. 2023). Also how a model starts, what its loss is, and how it is used
without training it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.blocks import Stack, TransformerBlock
from course_lib.cache import KVCache
from course_lib.checks import built_from, tensors
from course_lib.config import TransformerConfig
from course_lib.embeddings import check_ids
from course_lib.trace import trace as trace

IGNORED = -100  # a target of −100 is not predicted: padding, or a part of the text that should not be learned


class DecoderOnly(Stack):
    """A language model: a causal stack of blocks, and the logits of the next token.

    Parameters: those of Stack, and `output`. With tie_weights `output.weight` *is* `token_embedding.weight`: one
    tensor, two uses. How they start: see `initialize`.
    Errors: ValueError if config.family is not "decoder".
    Source: Radford et al. 2019 (GPT-2); Touvron et al. 2023 (LLaMA).
    """

    def __init__(self, config: TransformerConfig):
        check_family(config, "decoder")
        super().__init__(config)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        initialize(self)
        if config.tie_weights:
            self.output.weight = self.token_embedding.weight

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        targets: Int[Tensor, "B T"] | None = None,
        cache: Sequence[tuple[KVCache, KVCache]] | None = None,
        left_padding: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B T V"] | tuple[Float[Tensor, "B T V"], Float[Tensor, ""]]:
        """Logits of the next token at every position.

        Args:
            ids: (B, T), T ≤ max_seq_len.
            targets: (B, T), the ids that come next, already shifted: targets[b, t] follows ids[b, t]; −100 is ignored.
            cache: from new_cache(), what earlier calls have seen: ids are then the tokens that follow, one or several.
            left_padding: (B,), how many padding tokens stand at the front of each row.
        Returns: logits (B, T, V); with targets (logits, loss), the loss in nats per predicted token (mean
            cross-entropy).
        Errors: ValueError for an empty or too long sequence, ids outside the vocabulary, targets of another shape or
            none to predict.
        """
        logits = self.output(super().forward(ids, left_padding=left_padding, cache=cache))  # (B, T, V)
        return logits if targets is None else (logits, next_token_loss(logits, targets))

    def attention_weights(self, ids: Int[Tensor, "B T"]) -> list[Float[Tensor, "B H T T"]]:
        """What each head looks at: one (B, H, T, T) per block; each row holds a query's weights over the keys."""
        with evaluating(self), trace(self, "*.weights") as seen:
            self(ids)
        return [seen[f"blocks.{i}.attention.weights"] for i in range(len(self.blocks))]


def initialize(model: nn.Module) -> None:
    """Start as GPT-2 does: linear layers and tables from N(0, 0.02²), biases 0, norms 1 and 0.

    The projections that write into the residual stream are divided by the root of their number in a stack, so that the
    sum of all branches does not grow with depth. An untrained model then guesses evenly: its loss is about ln V.
    Source: Radford et al. 2019, section 2.3.
    """
    blocks = [module for module in model.modules() if isinstance(module, TransformerBlock)]
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for block in blocks:
        writers = [module for name, module in block.named_modules() if name.endswith(("out_proj", "down_proj"))]
        for writes_to_stream in writers:
            nn.init.normal_(writes_to_stream.weight, std=0.02 / (len(writers) * model.config.n_layers) ** 0.5)


def next_token_loss(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Mean cross-entropy in nats per predicted token: −ln p(target), averaged over all targets but −100.

    Errors: ValueError if the shapes differ, a target is outside the vocabulary, or none is left to predict.
    """
    tensors(logits=logits, targets=targets)
    if targets.shape != logits.shape[:2]:
        raise ValueError(f"targets must have the shape of ids, {tuple(logits.shape[:2])}, got {tuple(targets.shape)}")
    predicted = targets[targets != IGNORED]
    if predicted.numel() == 0:
        raise ValueError(f"all targets are {IGNORED}: there is nothing to predict, and the mean of nothing is NaN")
    check_ids(predicted, logits.shape[-1], name="targets")
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=IGNORED)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Use a model without dropout and without gradients; every module is afterwards in the mode in which it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def check_family(config: TransformerConfig, family: str) -> None:
    classes = {"decoder": "DecoderOnly", "encoder": "EncoderOnly", "encoder-decoder": "EncoderDecoder"}
    built_from(config, TransformerConfig, classes[family])
    if config.family != family:
        raise ValueError(
            f"{classes[family]} needs family={family!r}, got {config.family!r}: use {classes[config.family]} instead"
        )
