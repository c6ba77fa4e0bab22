"""Objects passed to answers that are not plain data, and probes for exercises where one call is not enough.

Objects used by several chapters are here; each chapter's own are in its `chapters/<slug>/fixtures.py`. Everything
runs in the process of the answer and only from plain data; nothing in it knows the right answer. `Given(make, *data)`
in a case names a function that makes an object. An exercise's `probe(answer, *args)` returns the value to judge.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from course_lib import gpt
from course_lib.config import TransformerConfig


def generator_at(state: Tensor) -> torch.Generator:
    """A seeded generator."""
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def drawn_decoder(config: dict, seed: int, dtype: str = "float32") -> gpt.DecoderOnly:
    """A decoder with weights drawn from a seed, in training mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return gpt.DecoderOnly(TransformerConfig(**config)).to(getattr(torch, dtype))


class Pieces(nn.Module):
    """Parts that are to be put together: they are no model themselves."""

    def forward(self, *args, **kwargs):
        raise TypeError("these are only parts and cannot be called: put them together")


def with_drawn_weights(parts: nn.Module, seed: int, dtype: str) -> nn.Module:
    """With every parameter from N(0, 0.6²), gains and biases too, and none to be trained."""
    rng = torch.Generator().manual_seed(seed)
    for parameter in parts.parameters():
        nn.init.normal_(parameter, std=0.6, generator=rng)
    return parts.requires_grad_(False).to(getattr(torch, dtype)).eval()


def also_in_training(module, x, *mask):
    """Return the output. If x requires a gradient, return the output in training mode and the gradient of its weighted
    sum."""
    output = module.train(x.requires_grad)(x, *mask)
    if not x.requires_grad:
        return output
    if isinstance(output, Tensor) and output.requires_grad:
        (output * torch.arange(1.0, output.numel() + 1, dtype=output.dtype).view(output.shape)).sum().backward()
    return output, torch.zeros_like(x) if x.grad is None else x.grad


vars(also_in_training)["brings_the_result"] = True  # of the answer, not a verdict: stages can earn points


def self_attention(W_Q: Tensor, W_K: Tensor, W_V: Tensor, added: Tensor | None, causal: bool) -> Callable:
    """One head of self-attention, a function of x (B, T, D); `added` (T, D) is added to x first; causal if asked."""

    def attend(x: Tensor) -> Tensor:
        x = x if added is None else x + added
        scores = x @ W_Q @ (x @ W_K).mT / x.shape[-1] ** 0.5  # (B, T, T)
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        return scores.softmax(-1) @ x @ W_V

    return attend
