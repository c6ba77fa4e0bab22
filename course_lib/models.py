"""Models: the parts put together.

Chapter 9. A decoder-only Transformer, as in GPT: ids in, and for every position the logits of the token that follows.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.blocks import TransformerBlock, only_available
from course_lib.config import TransformerConfig
from course_lib.embeddings import TokenEmbedding, check_ids
from course_lib.normalization import LayerNorm
from course_lib.positions import LearnedPositions, SinusoidalPositions

IGNORED = -100  # a target of −100 is not predicted: padding, or a part of the text that should not be learned


class DecoderOnly(nn.Module):
    """A language model: token and position embedding, blocks, a final norm, and the logits of the next token.

    Parameters: `token_embedding positions blocks final_norm output`. With tie_weights `output.weight` *is*
    `token_embedding.weight`: one tensor, two uses.
    Initialization as in GPT-2: linear layers and tables from N(0, 0.02²), biases 0, norms 1 and 0. The projections
    that write into the residual stream are divided by sqrt(2 · n_layers), so that the sum of the 2 · n_layers branches
    does not grow with depth. An untrained model then guesses evenly: its loss is about ln V.
    Errors: ValueError for a config that asks for a part that is not built.
    Source: Radford et al. 2019 (GPT-2).
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        only_available(config, "family", ("decoder",))
        only_available(config, "positions", ("none", "sinusoidal", "learned"))
        self.config = config
        self.token_embedding = TokenEmbedding(config.vocab_size, config.d_model)
        if config.positions == "none":
            self.positions = nn.Identity()
        else:
            table = {"learned": LearnedPositions, "sinusoidal": SinusoidalPositions}[config.positions]
            self.positions = table(config.max_seq_len, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.n_layers))
        self.final_norm = LayerNorm(config.d_model, config.norm_eps, config.bias)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self._initialize()
        if config.tie_weights:
            self.output.weight = self.token_embedding.weight

    def _initialize(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for block in self.blocks:
            for writes_to_stream in (block.attention.out_proj, block.feed_forward.down_proj):
                nn.init.normal_(writes_to_stream.weight, std=0.02 / (2 * self.config.n_layers) ** 0.5)

    def forward(
        self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T V"] | tuple[Float[Tensor, "B T V"], Float[Tensor, ""]]:
        """Logits of the next token at every position.

        Args:
            ids: (B, T), T ≤ max_seq_len.
            targets: (B, T), the ids that come next, already shifted: targets[b, t] follows ids[b, t]; −100 is ignored.
        Returns: logits (B, T, V); with targets (logits, loss), the loss in nats per predicted token (mean
            cross-entropy).
        Errors: ValueError for an empty or too long sequence, ids outside the vocabulary, targets of another shape or
            none to predict.
        """
        x = self._embed(ids)  # (B, T, d_model)
        for block in self.blocks:
            x = block(x)
        logits = self.output(self.final_norm(x))  # (B, T, V)
        if targets is None:
            return logits
        return logits, self._loss(logits, targets)

    def attention_weights(self, ids: Int[Tensor, "B T"]) -> list[Float[Tensor, "B H T T"]]:
        """What each head looks at: one (B, H, T, T) per block; each row holds a query's weights over the keys."""
        weights = []
        with evaluating(self):
            x = self._embed(ids)
            for block in self.blocks:
                x, block_weights = block(x, need_weights=True)
                weights.append(block_weights)
        return weights

    def _embed(self, ids: Tensor) -> Tensor:
        if ids.ndim != 2:
            raise ValueError(
                f"ids must have shape (B, T), got {tuple(ids.shape)}; add a batch dimension with ids[None]"
            )
        B, T = ids.shape
        if B == 0 or T == 0:
            raise ValueError(f"ids of shape {(B, T)} hold no token: give at least one, such as the start token")
        if self.config.max_seq_len < T:
            raise ValueError(
                f"ids have {T} tokens per row, more than max_seq_len={self.config.max_seq_len}: shorten them"
            )
        return self.dropout(self.positions(self.token_embedding(ids)))

    def _loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        if targets.shape != logits.shape[:2]:
            raise ValueError(
                f"targets must have the shape of ids, {tuple(logits.shape[:2])}, got {tuple(targets.shape)}"
            )
        predicted = targets[targets != IGNORED]
        if predicted.numel() == 0:
            raise ValueError(f"all targets are {IGNORED}: there is nothing to predict, and the mean of nothing is NaN")
        check_ids(predicted, self.config.vocab_size, name="targets")
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
