"""The device of a notebook: the CPU, or a GPU if you ask for one with COURSE_DEVICE or `start --device`.

Tensors that name no device are made there, so a chapter's code is the same on each. Random numbers are always drawn on
the CPU and moved, because a GPU draws others from the same seed: models, texts and rounded figures stay the same. So a
generator is always one of the CPU. Not covered are functions of PyTorch that the course does not use and that draw
numbers inside, such as F.gumbel_softmax and the dropout of nn.MultiheadAttention.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

VARIABLE = "COURSE_DEVICE"

# What draws random numbers: new tensors, tensors like another, in place, and from probabilities.
NEW = {torch.rand, torch.randn, torch.randint, torch.randperm}
LIKE = {torch.rand_like, torch.randn_like, torch.randint_like}
IN_PLACE = {getattr(Tensor, f"{name}_") for name in ("normal", "uniform", "bernoulli", "exponential", "random")}
FROM_PROBABILITIES = {torch.multinomial, torch.bernoulli, Tensor.multinomial, Tensor.bernoulli}
# PyTorch passes these three to a mode as a whole, and the mode does not see what they call. For the others it does.
INITIALISERS = {nn.init.uniform_, nn.init.normal_, nn.init.kaiming_uniform_}
ATTENTION = torch._C._nn.scaled_dot_product_attention  # the one that F has, unless it was replaced there
RANDOM = {*NEW, *LIKE, *IN_PLACE, *FROM_PROBABILITIES, *INITIALISERS, F.dropout, ATTENTION}

_chosen = torch.device("cpu")
_entered = ExitStack()  # what `use_device` has switched on


def use_device(name: str | None = None) -> torch.device:
    """Make one device the default of this thread, which is a notebook's only one, and return it.

    Args:
        name: "cpu", "cuda", "mps", "cuda:1" for the second of several, or "auto" for the fastest device of this
            machine. Without a name, the environment variable COURSE_DEVICE decides; if it is not set, the CPU.
    Errors: ValueError if the machine has no such device.
    """
    global _chosen
    _chosen = find_device(os.environ.get(VARIABLE) or "cpu" if name is None else name)
    _entered.close()
    _entered.enter_context(on(_chosen))
    return _chosen


def chosen() -> torch.device:
    """Return the device that `use_device` made the default; the CPU before its first call."""
    return _chosen


def finish() -> None:
    """Wait until a GPU has done what it was given, for measuring times: Python goes on while it computes."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


@contextmanager
def on(device: torch.device) -> Iterator[None]:
    """Make `device` the default inside the `with` block: for this thread, as PyTorch's own defaults are."""
    if device.type == torch.get_default_device().type:
        yield
    elif device.type == "cpu":
        with device:
            yield
    else:
        with device, DrawnOnTheCPU():
            yield


def computes_on() -> str:
    """Return the chosen device in words, for a line next to measured times: "cpu, 2 threads", or "cuda"."""
    threads = torch.get_num_threads()
    return f"cpu, {threads} thread{'' if threads == 1 else 's'}" if _chosen.type == "cpu" else str(_chosen)


def find_device(name: str) -> torch.device:
    """Return the device of this name, or the fastest for "auto". Raise ValueError if this machine does not have it."""
    count = {"cpu": 1}
    if torch.accelerator.is_available() and (accelerator := torch.accelerator.current_accelerator()):
        count[accelerator.type] = torch.accelerator.device_count()
    if name == "auto":
        return torch.device([*count][-1])
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or (device.index or 0) >= count.get(device.type, 0):
        here = " and ".join(kind if n == 1 else f"{kind}:0 to {kind}:{n - 1}" for kind, n in count.items())
        raise ValueError(
            f"there is no device {name!r}: this machine has {here}. Choose one of these, or auto for the fastest, "
            f"in {VARIABLE}, with `start --device`, or in use_device(…)"
        )
    return device


class DrawnOnTheCPU(TorchFunctionMode):
    """While it is active, the CPU's generator draws the random numbers for other devices, and they are moved."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func not in RANDOM:
            return func(*args, **kwargs)
        if func in NEW:
            device, learned = kwargs.pop("device", None), kwargs.pop("requires_grad", False)
            drawn = func(*args, **kwargs, device="cpu").to(device or torch.get_default_device())
            return drawn.requires_grad_() if learned else drawn
        if not args:
            args = (kwargs.pop(next(name for name in ("input", "query", "tensor") if name in kwargs)),)
        x = args[0]
        if not isinstance(x, Tensor) or x.device.type in ("cpu", "meta"):
            return func(*args, **kwargs)
        if func is F.dropout:
            return _dropout(*args, **kwargs)
        if func is ATTENTION:
            return _attention(*args, **kwargs)
        drawn = func(x.detach().cpu(), *args[1:], **kwargs).to(x.device)
        if func in INITIALISERS:
            x.detach().copy_(drawn)
            return x
        return x.copy_(drawn) if func in IN_PLACE else drawn


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Drop the features that the CPU would drop."""
    if not training or p == 0:
        return x
    kept = torch.empty(x.shape, dtype=x.dtype, device="cpu").bernoulli_(1 - p).div_(1 - p).to(x.device)
    return x.mul_(kept) if inplace else x * kept


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **options) -> Tensor:
    """Drop the attention weights that the CPU would drop: a GPU's fused kernel draws other numbers."""
    if dropout_p == 0:
        return ATTENTION(query, key, value, attn_mask, is_causal=is_causal, **options)
    one_each = torch.eye(key.shape[-2], dtype=value.dtype, device=value.device).expand(*key.shape[:-1], -1)
    weights = ATTENTION(query, key, one_each, attn_mask, is_causal=is_causal, **options)  # (..., T, S)
    if options.get("enable_gqa"):
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], dim=-3)
    return _dropout(weights, dropout_p) @ value  # (..., T, D_v)
