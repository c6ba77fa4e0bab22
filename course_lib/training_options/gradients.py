"""Gradients: compute one update's gradients from one or several batches, in 32 or 16 bits.

Chapter 12. These options change how much time and memory an update takes, but not what the model learns.
"""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course_lib.blocks import TransformerBlock
from course_lib.checks import require_called, require_kind, require_max_norm, require_module, require_one_of
from course_lib.gpt import IGNORED
from course_lib.training_options import processes

PRECISIONS = ("float32", "bf16")


def add_gradients(model: nn.Module, drawn: Sequence[tuple[Tensor | None, ...]], precision: str = "float32") -> float:
    """Add the gradient of one update to every parameter's gradient and return the loss, as if all batches were one.

    Each batch's loss is a mean over its predicted tokens, so the mean over all batches weights it by their number:

        loss = Σ tokens_i · loss_i / Σ tokens_i

    Args:
        model: called as model(*batch) -> (logits, loss).
        drawn: the batches of one update, the same on every process. Process r of n computes batches r, r + n, r + 2n …
            If there are several batches, the last tensor of each must be its targets.
        precision: "bf16" multiplies matrices in 16 bits (torch.autocast); weights, sums and loss stay float32.

    Errors: ValueError if one of several batches has no targets, or if the processes have different batches.
    """
    require_one_of(PRECISIONS, precision=precision)
    require_module(model=model)
    _require_some(drawn=drawn)
    tokens = [predicted(batch) for batch in drawn] if len(drawn) > 1 else [1]
    n, mine = processes.count(), range(processes.rank(), len(drawn), processes.count())
    device = next(model.parameters()).device.type
    parts = []
    for i in mine:
        with processes.averaging(model, now=i == mine[-1]):
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
                mean = _require_loss(model, drawn[i])
            part = mean * (n * tokens[i] / sum(tokens))  # times n, because gradients are averaged over processes
            part.backward()
        parts.append(part.detach())
    loss = sum(torch.stack(parts).tolist())  # only now does a GPU have to be waited for
    if n == 1:
        return loss
    said = sum(float(batch[-1].sum()) for batch in drawn if batch[-1] is not None)
    losses, texts = processes.gather(torch.tensor([loss, said], dtype=torch.float64)).T.tolist()
    processes.require_same("their batches (sums of targets)", texts, "Give each the same texts and the same seed")
    return sum(losses) / n


def clip(model: nn.Module, max_norm: float | None) -> float:
    """Scale the gradients down to max_norm if their norm is larger (None: never); return the norm before scaling."""
    require_module(model=model)
    require_max_norm(max_norm)
    norm = nn.utils.clip_grad_norm_(model.parameters(), math.inf if max_norm is None else max_norm)
    return processes.whole(norm).item()


def predicted(batch: tuple[Tensor | None, ...]) -> int:
    """Return the number of tokens that a batch predicts: entries of its last tensor, the targets, that are not −100."""
    tensors = isinstance(batch, tuple) and all(isinstance(part, Tensor | None) for part in batch)
    targets = batch[-1] if tensors and batch else None
    if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.dtype == torch.bool:
        raise ValueError(
            "several batches of one update are weighted by their predicted tokens, so the last tensor of each must be "
            f"its targets, got {getattr(targets, 'dtype', targets)}. Put them last, or use one batch per update"
        )
    return int((targets != IGNORED).sum())


@contextmanager
def block_options(model: nn.Module, compiled: bool, recomputed: bool) -> Iterator[None]:
    """Compile the blocks of a model within this context, or keep only their inputs for the backward pass. This applies
    only in training mode.

    compiled: TorchInductor fuses a block's operations into a few kernels, once for all blocks and for each batch shape.
        A block that it cannot compile as a whole raises an error, so that no operation becomes slow unnoticed.
    recomputed: the backward pass computes each block's activations again, with the same dropout. This costs one more
        forward pass, and only one block's activations are in memory at a time (Chen et al. 2016, "Training Deep Nets
        with Sublinear Memory Cost").
    """
    blocks = [module for module in model.modules() if isinstance(module, TransformerBlock)]
    for block in blocks if compiled or recomputed else []:
        plain = trained = block.forward
        if compiled:
            trained = torch.compile(trained, fullgraph=True, dynamic=False)
        if recomputed:
            trained = partial(checkpoint, trained, use_reentrant=False)
        block.forward = partial(_choose, block, plain, trained)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for block in blocks:
            vars(block).pop("forward", None)  # restore the method of the class


def _choose(block, plain, trained, *args, **kwargs):
    """Use the plain forward method outside training: other shapes occur there, and there is no backward pass."""
    return (trained if block.training else plain)(*args, **kwargs)


def require_options(model: nn.Module, precision: str, compiled: bool, recomputed: bool) -> None:
    """Raise ValueError unless the model and the machine support these options; there is no fallback."""
    require_one_of(PRECISIONS, precision=precision)
    device = next(model.parameters()).device
    if precision == "bf16":
        require_bf16(device)
    if (compiled or recomputed) and not any(isinstance(module, TransformerBlock) for module in model.modules()):
        raise ValueError(
            "compile and checkpoint_activations need TransformerBlocks, and this model has none: leave them out"
        )
    if compiled:
        require_compiler(device)


def require_bf16(device: torch.device) -> None:
    """Raise ValueError unless the device multiplies bfloat16 in hardware: emulation is slower than float32."""
    if device.type == "cuda":
        has = torch.cuda.is_bf16_supported(including_emulation=False)
    else:  # "avx512_bf16", "amx_bf16", or ARM's "bf16"
        abilities: dict = getattr(torch.cpu, "get_capabilities", dict)() if device.type == "cpu" else {}
        has = any(able for name, able in abilities.items() if name.endswith("bf16"))
    if not has:
        raise ValueError(
            f'precision="bf16" needs a device that multiplies bfloat16, and this {device.type} does not report support '
            'for it (a CPU: avx512_bf16 or amx_bf16): use precision="float32"'
        )


def require_compiler(device: torch.device) -> None:
    """Raise ValueError unless TorchInductor can compile for the device; this compiles one addition as a test."""
    try:
        torch.compile(lambda x: x + 1, fullgraph=True)(torch.ones(2, device=device))
    except Exception as error:
        why = f"{type(error).__name__}: {str(error).strip():.200}".splitlines()[0]
        raise ValueError(
            f"compile=True cannot compile for {device.type} ({why}). On a CPU it needs a C++ compiler "
            f"(CXX={os.environ.get('CXX', 'g++')}): install one, such as g++, or set compile=False"
        ) from error


def _require_loss(model: torch.nn.Module, batch: tuple) -> Tensor:
    """Return the loss of model(*batch) -> (logits, loss). Raise ValueError if the model returns something else, or if
    its loss depends on no trainable parameter."""
    result = require_called(model, batch)
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Tensor) or result[1].numel() != 1:
        raise ValueError(f"model(*batch) must return (logits, loss), with a loss of one number, got {result!r:.80}")
    if not result[1].requires_grad:
        raise ValueError(
            f"the loss of {type(model).__name__} does not depend on a parameter that requires a gradient: compute it "
            "from the logits, without detach() and no_grad()"
        )
    return result[1]


def _require_some(**given: Any) -> None:
    """Raise ValueError if any named collection is empty."""
    for name, collection in given.items():
        require_kind(Sequence, **{name: collection})
        if not len(collection):
            raise ValueError(f"{name} is empty: give at least one")
