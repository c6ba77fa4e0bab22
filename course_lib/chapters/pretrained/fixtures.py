"""How the tests of chapter 15 build arguments that are not plain data, and use an answer: see `grading/fixtures.py`."""

import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from course_lib import gpt
from course_lib.grading.fixtures import drawn_decoder
from course_lib.pretrained import load_pretrained


class _StoredWeights(nn.Module):
    """A model that has nothing but attention weights."""

    def __init__(self, weights: list[Tensor]):
        super().__init__()
        self.weights = weights

    def attention_weights(self, ids: Tensor) -> list[Tensor]:
        if any(weights.shape[0] != ids.shape[0] or weights.shape[-1] != ids.shape[1] for weights in self.weights):
            raise ValueError(f"these weights do not belong to ids of shape {tuple(ids.shape)}")
        return [weights.clone() for weights in self.weights]


def stored_weights(weights: list[Tensor]) -> nn.Module:
    """Return a model with these attention weights, one (B, H, T, T) for each block."""
    return _StoredWeights(weights)


def restless_decoder(config: dict, seed: int) -> gpt.DecoderOnly:
    """Return a decoder in evaluation mode with weights so large that its heads attend to different tokens."""
    model, rng = drawn_decoder(config, seed), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.6, generator=rng)
    return model.eval()


def attentive_decoder(config: dict, seed: int) -> gpt.DecoderOnly:
    """Return a decoder in float64 in which attention moves much from token to token; in training mode if it has
    dropout."""
    model = restless_decoder(config, seed).double()
    with torch.no_grad():
        for block in model.blocks:
            for parameter in block.attention.parameters():
                parameter.mul_(3)
    return model.train(model.config.dropout > 0)


def tinytown() -> gpt.DecoderOnly:
    """Return the trained Tinytown model."""
    return copy.deepcopy(_tinytown())


@cache
def _tinytown() -> gpt.DecoderOnly:
    return load_pretrained("tinytown")[0]


def as_rows(answer, *args):
    """Return the rows of an answer's dictionary as float64, whether they are lists, tuples or tensors."""
    found = answer(*args)
    if not isinstance(found, dict):
        return found
    return {name: _as_row(row) for name, row in found.items()}


def _as_row(row: Any) -> Any:
    try:
        return torch.as_tensor(row, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        return row


def drawn_linear(d_in: int, d_out: int, seed: int, bias: bool = True, dtype: str = "float32") -> nn.Linear:
    """Return a linear layer with random weights."""
    linear, rng = nn.Linear(d_in, d_out, bias), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.normal_(generator=rng)
    return linear.to(getattr(torch, dtype))


def adapted(module: Any, x: Tensor) -> dict:
    """Return the outputs of a linear layer with an adapter: unchanged, new, after training and merged.

    The new one is built around a layer with the weights of the module's own layer.
    """
    rank = len(module.A)
    weights = {name: each.detach().clone() for name, each in module.linear.named_parameters()}
    around = nn.Linear(x.shape[-1], len(weights["weight"]), "bias" in weights, dtype=x.dtype)
    around.load_state_dict(weights)
    before = around(x).detach()
    new = type(module)(around, rank, 2 * rank).to(x.dtype)
    first = new(x)
    found: dict[str, Any] = {"output": module(x).detach()}
    found["a new one gives what the layer gives"] = _agree(first.detach(), before)
    found["trained"] = sorted(name for name, each in new.named_parameters() if each.requires_grad)
    found["a new one learns"] = _sent_back(new, first)
    found |= {f"gradient of {name}": each for name, each in _gradients(module, x).items()}
    merged = module.merge()
    found["merge() returns"] = type(merged).__name__
    found["output of the merged layer"] = merged(x).detach() if isinstance(merged, nn.Module) else None
    found["output after merging"] = module(x).detach()
    return found


def _agree(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal up to rounding. Two random initializations differ in every number."""
    return one.shape == other.shape and torch.allclose(one.to(other), other, rtol=1e-4, atol=1e-6)


def _sent_back(module: Any, output: Tensor) -> bool:
    """Return whether a gradient reaches A or B."""
    if not output.requires_grad:
        return False
    output.square().sum().backward()
    return any(bool(each.grad is not None and each.grad.any()) for each in (module.A, module.B))


def _gradients(module: Any, x: Tensor) -> dict[str, Tensor]:
    """Return the gradients of x, A and B for a weighted sum of the output in training; zeros if there is no
    gradient."""
    parts = {"x": x.clone().requires_grad_(), "A": module.A, "B": module.B}
    output = module.train()(parts["x"])
    if output.requires_grad:
        (output * torch.arange(1.0, output.numel() + 1, dtype=output.dtype).view(output.shape)).sum().backward()
    return {name: torch.zeros_like(each) if each.grad is None else each.grad.clone() for name, each in parts.items()}
