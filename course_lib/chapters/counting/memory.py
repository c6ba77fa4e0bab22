"""Chapter 10's measurements of memory: the bytes that a training step of a real model needs."""

from collections.abc import Iterable

import torch
from torch import Tensor

from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly


def size(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of all tensors together."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def train_one_step(config: TransformerConfig, ids: Tensor, way: str) -> dict[str, int]:
    """Take one step of AdamW with a new model, and return the bytes that the next step needs, by item.

    Args:
        ids: (B, T), the batch.
        way: "float32", "torch.autocast", or "16-bit weights" with a float32 master copy.
    """
    model = DecoderOnly(config)
    updated: list[Tensor] = list(model.parameters())  # the tensors that the optimizer updates
    if way == "16-bit weights":
        updated = [p.detach().clone().requires_grad_() for p in model.parameters()]
        model.bfloat16()
    optimizer = torch.optim.AdamW(updated, lr=1e-3)
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=way == "torch.autocast"):
        _, loss = model(ids, targets=ids)
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    for master, gradient in zip(updated, gradients):
        master.grad = gradient.to(master.dtype)
    optimizer.step()
    with torch.no_grad():
        for p, master in zip(model.parameters(), updated):
            p.copy_(master)  # rounded to 16 bits, as p is
    moments = (state[key] for state in optimizer.state.values() for key in ("exp_avg", "exp_avg_sq"))
    return {
        "weights": size(model.parameters()),
        "gradients": size(gradients),
        "AdamW moments": size(moments),
        "master copy": size(updated) if way == "16-bit weights" else 0,
    }
