"""How the tests of chapter 3 build an argument that is not plain data: see `grading/fixtures.py`."""

import torch
from torch import Tensor, nn


class Mixing(nn.Module):
    """A model with a given number of layers, ids (B, T) -> logits (B, T, V), in which each output mixes the tokens as
    `mixes` says.

    x = embedding[ids], then x + tanh(mix · x) for each (T_max, T_max) of `mixes`, then logits = x · output + bias.
    `rounding`: the logits change by this fraction with the mean of all tokens, like sums in a different order.
    `opened_by`: an output sees later tokens only in texts with this token at position `opened_at`.
    """

    def __init__(
        self,
        embedding: Tensor,
        mixes: list[Tensor],
        output: Tensor,
        bias: Tensor,
        rounding: float = 0.0,
        opened_by: int | None = None,
        opened_at: int = 0,
    ):
        super().__init__()
        self.embedding, self.mixes, self.output, self.bias = embedding, mixes, output, bias
        self.rounding, self.opened_by, self.opened_at = rounding, opened_by, opened_at

    def forward(self, ids: Tensor) -> Tensor:
        x, T = self.embedding[ids], ids.shape[1]  # (B, T, D)
        for mix in self.mixes:
            mix = mix[:T, :T]  # (T, T)
            if self.opened_by is not None:
                there = ids[:, self.opened_at : self.opened_at + 1]  # (B, 1); (B, 0) for a text that is too short
                opened = (there == self.opened_by).any(1)  # (B,)
                mix = torch.where(opened[:, None, None], mix, mix.tril())  # (B, T, T)
            x = x + (mix @ x).tanh()
        logits = x @ self.output + self.bias  # (B, T, V)
        return logits * (1 + self.rounding * x.mean((1, 2), keepdim=True).tanh())
