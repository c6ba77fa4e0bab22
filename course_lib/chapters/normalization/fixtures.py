"""How the tests of chapter 7 build arguments that are not plain data, and use an answer: see `grading/fixtures.py`."""

from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.grading.judge.values import plain


class _PretendClock:
    """Return the seconds that pretended functions have taken. `calls`: how often anyone has called them with each
    width."""

    def __init__(self):
        self.now, self.readings, self.calls = 0.0, 0, {}

    def __call__(self):
        self.readings += 1
        return self.now


class _PretendNorm:
    """Return the input, and move a clock forward by overhead + per_feature · width microseconds.

    As on a real machine, the first call with a width takes a millisecond more, each call slows the machine down by a
    sixtieth, and times vary by 1%. If `stumbles` is True, every ninth call takes forty times as long.
    """

    def __init__(self, overhead, per_feature, stumbles):
        self.overhead, self.per_feature, self.stumbles = overhead, per_feature, stumbles
        self.clock, self.calls = _PretendClock(), {}

    def __call__(self, x):
        if not x.numel():
            raise ValueError(f"x has shape {tuple(x.shape)}: there is nothing to normalize")
        width = x.shape[-1]
        mine, all_calls = self.calls.get(width, 0), self.clock.calls.get(width, 0)
        seconds = 1e-6 * (self.overhead + self.per_feature * width) * (1 + all_calls / 60) * (1 + 0.01 * (mine % 3) / 2)
        seconds = seconds + 1e-3 if mine == 0 else seconds * (40 if self.stumbles and mine % 9 == 2 else 1)
        self.calls[width], self.clock.calls[width] = mine + 1, all_calls + 1
        self.clock.now += seconds
        return x


def pretend_norm(overhead: float, per_feature: float, stumbles: bool) -> Callable:
    """Return a function of x that takes a known time on a pretended clock."""
    return _PretendNorm(overhead, per_feature, stumbles)


def pretend_clock() -> Callable:
    """Return a clock that only the pretended functions move."""
    return _PretendClock()


def started_and_called(module, x):
    """Return (output, parameters of a new module of this class, gradient of the weight for a weighted sum of the
    output)."""
    output = module.train()(x)
    new = {name: parameter.detach() for name, parameter in type(module)(x.shape[-1]).named_parameters()}
    gradient = torch.zeros_like(module.weight)
    if isinstance(output, Tensor) and output.requires_grad:
        module.weight.grad = None
        (output * torch.arange(1.0, output.numel() + 1, dtype=output.dtype).view(output.shape)).sum().backward()
        gradient = module.weight.grad if module.weight.grad is not None else gradient
    return output, new, gradient


def timed_with(answer, rms_norm, layer_norm, widths, rounds, clock):
    """Return the ratios that an answer measures with a pretended clock, or a sentence that says why it measured
    none."""
    rms_norm.clock = layer_norm.clock = clock
    ratios = answer(rms_norm, layer_norm, list(widths), rounds, clock)
    calls = [norm.calls.get(width, 0) for norm in (rms_norm, layer_norm) for width in widths]
    if not any(calls):
        return "figures without a call of the norms"
    if clock.readings < 2:
        return "figures without a look at the clock"
    if min(count for count in calls if count) < rounds:
        return "figures from too few rounds"
    ratios = plain(ratios)
    return ratios.tolist() if isinstance(ratios, Tensor) else ratios
