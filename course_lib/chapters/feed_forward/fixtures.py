"""How the tests of chapter 6 build arguments that are not plain data, and use an answer: see `grading/fixtures.py`."""

import copy
from functools import cache

import torch
from torch import Tensor, nn

from course_lib import gpt
from course_lib.config import TransformerConfig
from course_lib.pretrained import load_pretrained


def lively_decoder(config: dict, seed: int, mute: int = 0) -> gpt.DecoderOnly:
    """Return a decoder in float64 with random values in every parameter, including biases and gains; in training mode.

    The first `mute` hidden units of every block are cut: their input weights and their bias are 0.
    """
    model = gpt.DecoderOnly(TransformerConfig(**config)).double()
    rng = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6, generator=rng)
    for block in model.blocks:
        for parameter in block.feed_forward.up_proj.parameters():
            parameter.data[:mute] = 0
    return model


def tinytown(dtype: str = "float32") -> gpt.DecoderOnly:
    """Return the trained Tinytown model."""
    return copy.deepcopy(_tinytown()).to(getattr(torch, dtype))


@cache
def _tinytown() -> gpt.DecoderOnly:
    return load_pretrained("tinytown")[0]


def as_row(answer, *args):
    """Return the answer's result as a row of numbers, whether it is a list, a tuple or a tensor."""
    result = answer(*args)
    try:
        return torch.as_tensor(result, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        return result


def layer_of(x: Tensor, weights: Tensor, experts: Tensor, n_experts: int) -> Tensor:
    """Return the sum of weight · expert(token) over the experts of each token; x (N, d_model) -> the same shape.

    Expert e is a SwiGLU with random weights from the seed e, and it processes all its tokens at once.
    """
    y = torch.zeros_like(x)
    for e in range(n_experts):
        token, place = (experts == e).nonzero(as_tuple=True)  # (n,) each, for the n tokens of this expert
        y = y.index_add(0, token, weights[token, place, None] * expert(x[token], e))
    return y


def expert(x: Tensor, e: int) -> Tensor:
    """Return the output of expert e."""
    rng, d = torch.Generator().manual_seed(e), x.shape[-1]
    W_gate, W_up, W_down = torch.randn(3, d, d, generator=rng, dtype=torch.float64).to(x.dtype)
    return (nn.functional.silu(x @ W_gate) * (x @ W_up)) @ W_down


def used_in_a_layer(answer, x, W, k):
    """Return the weights and the experts of a router. If W requires a gradient, return the output of a layer with this
    router, and the gradient of W from the output's weighted sum."""
    routed = answer(x, W, k)
    if not W.requires_grad or not isinstance(routed, (tuple, list)) or len(routed) != 2:
        return routed
    weights, experts = routed[0], torch.as_tensor(routed[1])
    y = layer_of(x, weights, experts, len(W))
    if y.requires_grad:
        (y * torch.arange(1.0, y.numel() + 1, dtype=y.dtype).view(y.shape)).sum().backward()
    return y, torch.zeros_like(W) if W.grad is None else W.grad


vars(used_in_a_layer)["brings_the_result"] = True  # of the answer, not a verdict: stages can earn points
