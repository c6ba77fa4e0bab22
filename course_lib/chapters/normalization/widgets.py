"""Live figures of chapter 7."""

import math
import time
from collections.abc import Callable
from functools import cache, partial

import ipywidgets as widgets
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.chapters.normalization import figures
from course_lib.chapters.normalization.claims import (
    DEPTH,
    WIDTHS,
    layer_norm_by_hand,
    rms_norm_by_hand,
    spread_by_depth,
)
from course_lib.device import computes_on
from course_lib.live.attempts import went_wrong
from course_lib.live.figure import LiveFigure, dropdown, slider

# The web edition records these figures: call -> the control whose values it records one by one.
RECORDED = {"shift_and_scale": "power"}

PATTERN = torch.tensor([10.0, 20.0, 30.0, 40.0])  # the token that the chapter normalizes by hand


def lecture_tensor() -> Tensor:
    """Return a 3 × 4 × 6 tensor of small numbers: sentences, positions, features."""
    starts = torch.tensor([[1, 2, 0, 3], [1.5, 0.5, 2.5, 1], [0, 1, 2, 3]])  # the first feature of each token
    x = starts[..., None] + torch.arange(6.0)
    x[2] = starts[2, :, None]  # in the last sentence all features of a token are equal
    return x


# ------------------------------------------------------------------------------------------------ what a norm discards
def shift_and_scale(layer: Callable | None = None, rms: type | None = None) -> LiveFigure:
    """Show a token that is multiplied and shifted, and how each norm's result changes.

    Args:
        layer: your own `layer_norm(x, gamma, beta, eps)`, in place of the library's.
        rms: your own class `RMSNorm(d_model, eps)`, in place of the library's.
    """
    yours = {"LayerNorm": layer, "RMSNorm": rms and (lambda x, gamma, beta, eps: rms(len(x), eps).double()(x))}

    def measure(power: float, shift: int, eps: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
        x = 10**power * PATTERN.double() + shift
        right = {"LayerNorm": F.layer_norm(x, (4,), eps=eps), "RMSNorm": F.rms_norm(x, (4,), eps=eps)}
        shown, said = dict(right), ""
        for name, function in yours.items():
            if function:
                shown[name], said = _try_norm(function, x, eps)
                agrees = torch.allclose(shown[name], right[name], rtol=1e-5, atol=1e-6)
                row = ", ".join(f"{value + 0.0:.3g}" for value in right[name].cpu().numpy().round(6))
                said = said or (
                    "Yours agrees with the library." if agrees else f"The library's {name}: {row}; yours differs."
                )
        return x.cpu().numpy(), shown["LayerNorm"].cpu().numpy(), shown["RMSNorm"].cpu().numpy(), said

    def draw(power, shift, eps):
        return figures.TwoNorms(*measure(power, shift, eps)[:3])

    def describe(power, shift, eps):
        x, layer, rms, said = measure(power, shift, eps)
        if not np.isfinite([layer, rms]).all():
            return said

        def row(values, digits):
            return ", ".join(f"{value + 0.0:.{digits}g}" for value in values.round(6))

        text = f"x = {row(x, 5)}; eps {eps:g}. LayerNorm: {row(layer, 3)}. RMSNorm: {row(rms, 3)}."
        return f"{text} {said}".rstrip()

    controls = {
        "power": slider("multiply by 10 to the power", 0.0, -4.0, 2.0, 0.5),
        "shift": slider("then add", 0, -100, 100, 5),
        "eps": dropdown("eps", {"1e-12": 1e-12, "1e-5 (usual)": 1e-5, "0.1": 0.1}, 1e-5),
    }
    return LiveFigure(draw, controls, describe)


def _try_norm(function: Callable, x: Tensor, eps: float) -> tuple[Tensor, str]:
    """Return (result, what went wrong), with NaN for a result that cannot be drawn."""
    nothing = torch.full((4,), torch.nan, dtype=torch.float64)
    try:
        result = function(x.clone(), torch.ones(4).double(), torch.zeros(4).double(), eps)
        result = torch.from_numpy(result) if isinstance(result, np.ndarray) else result
    except Exception as error:
        return nothing, went_wrong(error)
    if not isinstance(result, Tensor) or result.shape != x.shape:
        got = f"shape {tuple(result.shape)}" if isinstance(result, Tensor) else f"a {type(result).__name__}"
        return nothing, f"A token of shape (4,) should give a tensor of shape (4,). Yours gave {got}."
    result = result.detach().double()
    if not result.isfinite().all():
        return nothing, "Your result contains NaN or infinity: look for a division by 0."
    return result, ""


# ------------------------------------------------------------------------------------------- which numbers share a mean
NORMS = {"LayerNorm": "layer", "RMSNorm": "rms", "BatchNorm": "batch"}


def norm_axes() -> LiveFigure:
    """Show a 3 × 4 × 6 tensor, and which of its numbers determine the result for a chosen one."""
    x = lecture_tensor()

    def measure(norm: str, sentence: int, position: int, feature: int) -> tuple[Tensor, float]:
        group = torch.zeros_like(x, dtype=torch.bool)
        if norm == "batch":
            group[:, :, feature] = True
            result = F.batch_norm(x.transpose(1, 2), None, None, training=True).transpose(1, 2)
        else:
            group[sentence, position] = True
            result = F.layer_norm(x, (6,)) if norm == "layer" else F.rms_norm(x, (6,), eps=1e-6)
        return group, result[sentence, position, feature].item()

    def draw(norm, sentence, position, feature):
        group, value = measure(norm, sentence, position, feature)
        name = next(name for name, key in NORMS.items() if key == norm)
        title = (
            f"{name}: {x[sentence, position, feature]:g} becomes {value:.2f}, computed from {int(group.sum())} numbers"
        )
        return figures.SharedStatistics(x.cpu().numpy(), group.cpu().numpy(), (sentence, position, feature), title)

    def describe(norm, sentence, position, feature):
        group, value = measure(norm, sentence, position, feature)
        values = x[group]
        if norm == "rms":
            statistics = f"their root mean square is {values.pow(2).mean().sqrt():.2f}"
        else:
            deviation = values.std(correction=0)
            statistics = f"their mean is {values.mean():.2f} and their standard deviation is {deviation:.2f}"
        used = f"feature {feature} of all {len(values)} tokens" if norm == "batch" else "the 6 features of this token"
        name = next(name for name, key in NORMS.items() if key == norm)
        return (
            f"Sentence {sentence}, position {position}, feature {feature} has the value "
            f"{x[sentence, position, feature]:g}. {name} uses {used}: {statistics}. "
            f"The normalized value is {value + 0.0:.2f}."
        )

    controls = {
        "norm": dropdown("norm", NORMS, "layer"),
        "sentence": slider("sentence", 0, 0, 2, 1),
        "position": slider("position", 1, 0, 3, 1),
        "feature": slider("feature", 4, 0, 5, 1),
    }
    return LiveFigure(draw, controls, describe)


# ------------------------------------------------------------------------------------------------------ growth by depth
PLACES = {"none": "none", "pre-norm": "pre", "post-norm": "post"}  # a dropdown shows None as an empty box
WEIGHTS = {"default": "PyTorch's", "xavier": "Xavier's"}


def depth_sliders() -> LiveFigure:
    """Show how large the numbers in an untrained stack become: with and without norm, with and without residual."""

    @cache
    def measure(norm: str, initialization: str, residual: bool) -> np.ndarray:
        return np.array(spread_by_depth(None if norm == "none" else norm, residual, initialization, DEPTH))

    def setting(norm, initialization, residual):
        name = next(name for name, key in PLACES.items() if key == norm)
        branch = "" if residual else ", no residual"
        return f"Norm: {name}, {WEIGHTS[initialization]} initial weights{branch}"

    def draw(norm, initialization, residual, n_blocks):
        title = setting(norm, initialization, residual)
        return figures.SpreadByDepth(measure(norm, initialization, residual), n_blocks, title)

    def describe(norm, initialization, residual, n_blocks):
        spreads = measure(norm, initialization, residual)
        return (
            f"{setting(norm, initialization, residual)}: standard deviation {spreads[0]:.2g} before the "
            f"first block, {spreads[n_blocks]:.2g} after {n_blocks}."
        )

    controls = {
        "norm": dropdown("norm", PLACES, "none"),
        "initialization": dropdown("initial weights", {name: key for key, name in WEIGHTS.items()}, "xavier"),
        "residual": widgets.Checkbox(value=True, description="residual: x + F(x)", indent=False),
        "n_blocks": slider("blocks", 50, 1, DEPTH, 1),
    }
    return LiveFigure(draw, controls, describe)


# --------------------------------------------------------------------------------------------------------------- speed
def explore_speed(function: Callable) -> LiveFigure:
    """Show your `compare_speed(rms_norm, layer_norm, widths, rounds, clock)` with real norms and this machine's clock.

    The text gives no numbers, because they differ in every run.
    """
    pairs = {
        "by hand": lambda g, b: (partial(rms_norm_by_hand, weight=g), partial(layer_norm_by_hand, weight=g, bias=b)),
        "with PyTorch's functions": lambda g, b: (
            lambda x: F.rms_norm(x, g.shape, g, 1e-6),
            lambda x: F.layer_norm(x, g.shape, g, b),
        ),
    }

    @cache
    def measure(rounds: int) -> tuple[dict[str, list[float]], str]:
        ratios: dict[str, list[float]] = {}
        for name, make in pairs.items():
            try:
                norms = [_of_any_width(make, number) for number in range(2)]
                with torch.no_grad():
                    found = function(*norms, list(WIDTHS), rounds, time.perf_counter)
                ratios[name] = [float(ratio) for ratio in found]
            except Exception as error:
                return dict.fromkeys(pairs, [0.0] * len(WIDTHS)), went_wrong(error)
            if len(ratios[name]) != len(WIDTHS) or not all(math.isfinite(ratio) for ratio in ratios[name]):
                problem = f"{len(WIDTHS)} widths should give {len(WIDTHS)} finite ratios; yours gave {ratios[name]}."
                return dict.fromkeys(pairs, [0.0] * len(WIDTHS)), problem
        return ratios, ""

    def draw(rounds):
        ratios, problem = measure(rounds)
        return figures.SpeedRatios(WIDTHS, ratios, "No ratios to show" if problem else "")

    def describe(rounds):
        _, problem = measure(rounds)
        return problem or (
            f"Time of RMSNorm over that of LayerNorm, as your function measures it in {rounds} rounds, timed on "
            f"{computes_on()}: "
            "both norms written by hand, and both as PyTorch's kernels. Below 1, RMSNorm is faster."
        )

    return LiveFigure(draw, {"rounds": dropdown("rounds", [1, 5, 30], 30)}, describe)


def _of_any_width(make: Callable, number: int) -> Callable:
    """Return a function of x alone from one of the two norms, with weights for every width of WIDTHS."""
    norms = {width: make(torch.linspace(0.5, 1.5, width), torch.linspace(-1, 1, width))[number] for width in WIDTHS}
    return lambda x: norms[x.shape[-1]](x)


EXPLORERS = {
    "normalization.layer_norm": lambda function: shift_and_scale(layer=function),
    "normalization.rms_norm": lambda function: shift_and_scale(rms=function),
    "normalization.speed": explore_speed,
}
