"""Trace: run a model without changing it, and record its intermediate results.

Chapters 9, 10, 14 and 15. `with evaluating(model)` switches dropout and gradients off. After
`with trace(model) as seen: model(ids)`, `seen["blocks.0.attention.weights"]` holds the attention weights of the first
block. `kept_for_backward` counts the bytes that training needs for the backward pass. All leave results as they are.
"""

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatch
from typing import Any
from unittest.mock import patch  # replaces an attribute and restores it afterwards

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from course_lib.checks import require_module, require_text
from course_lib.heads import MultiHeadAttention


@contextmanager
def evaluating(model: nn.Module | Sequence[nn.Module]) -> Iterator[None]:
    """Switch dropout and gradients off inside the `with` block, and restore each module's mode afterwards.

    model: the model, or a list of its modules, which saves time if you call this for every token."""
    _require_modules(model)
    in_training = [module for module in (model.modules() if isinstance(model, nn.Module) else model) if module.training]
    for module in in_training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in in_training:
            module.training = True


class Trace(dict[str, Tensor]):
    """Hold intermediate results by name, in the order of their computation; `print` shows names and shapes."""

    def __missing__(self, name: str) -> Tensor:
        near = difflib.get_close_matches(name, self, n=3, cutoff=0.3) or list(self)[:3]
        raise KeyError(
            f"nothing was recorded as {name!r}. Nearest: {', '.join(near) or 'nothing; run the model first'}"
        )

    def __str__(self) -> str:
        return "\n".join(f"{name:<44}{tuple(value.shape)}" for name, value in self.items())


@contextmanager
def trace(model: nn.Module, *patterns: str) -> Iterator[Trace]:
    """Record all named intermediate results of a model while the `with` block runs, without changing the model.

    The output of each module is recorded under the module's name, such as "token_embedding", "blocks.0" (the residual
    stream after block 0) or "blocks.0.feed_forward". In addition:
        …attention.query .key .value    (B, H, T, D) and (B, H_kv, S, D), after RoPE and including the cache
        …attention.weights              (B, H, T, S), before dropout, computed separately from the fused kernel
        …attention.heads                (B, H, T, D), the output of each head, before W_O
        …feed_forward.hidden            (B, T, d_ff), the hidden units: the input of the second layer

    Args:
        patterns: record only matching names, such as "*.weights" or "blocks.0.*"; all names unless given.
    If a module runs several times, the last result is kept. Recorded tensors are detached from the gradient.
    Errors: KeyError that lists the nearest names if a name was not recorded.
    """
    require_module(model=model)
    for pattern in patterns:
        require_text(pattern)
    seen = Trace()

    def wanted(name: str) -> bool:
        return not patterns or any(fnmatch(name, pattern) for pattern in patterns)

    def keep(name: str, value: object) -> None:
        if isinstance(value, Tensor):
            seen[name] = value.detach()

    with ExitStack() as undo:
        for name, module in model.named_modules():
            if name and wanted(name):
                handle = module.register_forward_hook(lambda _, inputs, output, name=name: keep(name, output))
                undo.callback(handle.remove)
            hidden = f"{name}.hidden".lstrip(".")
            if hasattr(module, "down_proj") and wanted(hidden):
                handle = module.down_proj.register_forward_pre_hook(
                    lambda _, inputs, hidden=hidden: keep(hidden, inputs[0])
                )
                undo.callback(handle.remove)
            if isinstance(module, MultiHeadAttention):
                names = {part: each for part in WITHIN if wanted(each := f"{name}.{part}".lstrip("."))}
                undo.enter_context(patch.object(module, "attend", _recording(module.attend, names, keep)))
        yield seen


WITHIN = ("query", "key", "value", "weights", "heads")  # inputs and results of an attention module's `attend`


def _recording(attend: Callable, names: dict[str, str], keep: Callable[[str, Tensor], None]) -> Callable:
    """Return a MultiHeadAttention.attend that also records the parts listed in names."""

    def recording_attend(
        query, key, value, mask=None, is_causal=False, score_bias=None, dropout_p=0.0, need_weights=False
    ):
        heads, weights = attend(query, key, value, mask, is_causal, score_bias, dropout_p, need_weights)
        shown = weights
        if weights is None and "weights" in names:
            with torch.no_grad():
                _, shown = attend(query, key, value, mask, is_causal, score_bias, 0.0, True)
        found = dict(zip(WITHIN, (query, key, value, shown, heads)))
        for part, name in names.items():
            keep(name, found[part])
        return heads, weights

    return recording_attend


def kept_for_backward(model: nn.Module, *inputs: Any, **named: Any) -> tuple[Any, int]:
    """Call a model, and return its output and the bytes that the forward pass keeps for the backward pass.

    Bytes that several operations keep count once, and the model's parameters do not count.
    """
    require_module(model=model)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}  # address in memory -> bytes

    def look(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(look, lambda tensor: tensor):
        output = model(*inputs, **named)
    return output, sum(kept.values())


def _require_modules(model: Any) -> None:
    """Raise TypeError unless model is a torch module or a list of modules."""
    if isinstance(model, torch.nn.Module):
        return
    if not isinstance(model, list) or not all(isinstance(part, torch.nn.Module) for part in model[:1]):
        raise TypeError(f"model must be a torch.nn.Module or a list of its modules, got {model!r:.80}")
