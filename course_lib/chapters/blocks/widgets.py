"""Live figures of chapter 8."""

import math
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from course_lib.blocks import TransformerBlock
from course_lib.chapters.blocks import figures
from course_lib.chapters.blocks.claims import ARRANGEMENTS, StackProfile, stack_profile, tanh_gradients
from course_lib.chapters.blocks.figures import power
from course_lib.config import TransformerConfig
from course_lib.live.attempts import went_wrong
from course_lib.live.figure import LiveFigure, dropdown, slider

Profile = tuple[list[float], list[float], str]  # stream after each block, gradient there, what went wrong


# ------------------------------------------------------------------------------------------- gradients through n layers
def depth_slider() -> LiveFigure:
    """Show layers scale · tanh(gain · (W x + b)), with and without x +, and the gradient that arrives at each of
    them."""

    @cache
    def measure(depth: int, gain: float, scale: float) -> tuple[list[float], list[float]]:
        return tanh_gradients(depth, True, gain, scale), tanh_gradients(depth, False, gain, scale)

    def draw(depth, gain, scale):
        return figures.GradientByLayer(*measure(depth, gain, scale))

    def describe(depth, gain, scale):
        skip, plain = (row[0] for row in measure(depth, gain, scale))
        return (
            f"{depth} layer{'s' * (depth > 1)}, gain {gain:g}, branch × {scale:g}. The gradient at the output has "
            f"length 8; the input of the first layer gets {power(skip)} with the skip and {power(plain)} without."
        )

    controls = {
        "depth": slider("layers", 50, 1, 100, 1),
        "gain": slider("gain inside tanh", 1.0, 0.25, 3.0, 0.25),
        "scale": slider("size of the branch (×)", 1.0, 0.0, 2.0, 0.1),
    }
    return LiveFigure(draw, controls, describe)


# ----------------------------------------------------------------------------------------------- streams of real blocks
def stack_explorer(arrangement: str = "pre-norm") -> LiveFigure:
    """Show untrained Transformer blocks: the size of the stream and of its gradient, by block, for four
    arrangements."""

    @cache
    def measure(arrangement: str, depth: int, gain: float) -> StackProfile:
        return stack_profile(arrangement, depth, gain)

    def draw(arrangement, depth, gain):
        profile = measure(arrangement, depth, gain)
        return figures.StackProfile(profile.std, profile.stream_gradient, arrangement)

    def describe(arrangement, depth, gain):
        profile = measure(arrangement, depth, gain)
        first, last = power(profile.std[0]), power(profile.std[-1])
        begin, end = power(profile.stream_gradient[0]), power(profile.stream_gradient[-1])
        return (
            f"{arrangement}, {depth} blocks, weights × {gain:g}: standard deviation of the residual stream "
            f"{first} after the first block, {last} after the last; gradient {begin} at the first, {end} at the last."
        )

    controls = {
        "arrangement": dropdown("arrangement", ARRANGEMENTS, arrangement),
        "depth": slider("blocks", 24, 4, 48, 4),
        "gain": slider("weights (× Xavier)", 1.0, 0.25, 2.0, 0.25),
    }
    return LiveFigure(draw, controls, describe)


# -------------------------------------------------------------------------------------------------- the learner's block
def explore_block(function: Callable, arrangement: str) -> LiveFigure:
    """Show your block, stacked: your function connects untrained Transformer parts. Next to it is the library's
    arrangement.

    Args:
        function: `pre_norm_block` or `post_norm_block`, (x, attention, ffn, norm1, norm2) -> x.
        arrangement: the one it should have, "pre-norm" or "post-norm".
    """

    @cache
    def measure(depth: int, gain: float) -> tuple[Profile, Profile]:
        return _stacked(function, arrangement, depth, gain), _stacked(None, arrangement, depth, gain)

    def draw(depth, gain):
        (std, gradient, problem), _ = measure(depth, gain)
        return figures.StackProfile(std, gradient, f"your {arrangement}", "No blocks to show" if problem else "")

    def describe(depth, gain):
        (std, _, problem), (expected, _, _) = measure(depth, gain)
        if problem:
            return problem
        text = f"{depth} of your blocks, weights × {gain:g}: residual stream from {power(std[0])} to {power(std[-1])}."
        agrees = all(math.isclose(one, other, rel_tol=1e-3) for one, other in zip(std, expected))
        if agrees:
            return f"{text} The library's {arrangement} blocks do the same."
        return f"{text} The library's {arrangement} blocks go from {power(expected[0])} to {power(expected[-1])}."

    controls = {
        "depth": slider("blocks", 24, 4, 48, 4),
        "gain": slider("weights (× Xavier)", 1.0, 0.25, 2.0, 0.25),
    }
    return LiveFigure(draw, controls, describe)


def _stacked(wire: Callable | None, arrangement: str, depth: int, gain: float) -> Profile:
    """Return the stream's standard deviation after each block, and the gradient of a randomly weighted sum of the last
    stream.

    wire: the function that makes a block from four parts; by default the library's block in this arrangement.
    """
    nothing = [math.nan] * depth
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(1, 16, 32, generator=rng)  # (B, T, d_model)
    config = TransformerConfig(
        vocab_size=2,
        d_model=32,
        n_heads=2,
        n_layers=1,
        max_seq_len=16,
        family="encoder",
        norm_position=arrangement.removesuffix("-norm"),
    )
    streams: list[Tensor] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(depth):
            block = TransformerBlock(config)
            for matrix in (parameter for parameter in block.parameters() if parameter.ndim == 2):
                torch.nn.init.xavier_uniform_(matrix, gain)
            before = streams[-1] if streams else x.clone()
            try:
                parts = block.attention, block.feed_forward, block.norm1, block.norm2
                after = wire(before, *parts) if wire else block(before)
            except Exception as error:
                return nothing, nothing, went_wrong(error)
            if not isinstance(after, Tensor) or after.shape != x.shape:
                got = f"shape {tuple(after.shape)}" if isinstance(after, Tensor) else f"a {type(after).__name__}"
                return (
                    nothing,
                    nothing,
                    f"A block takes and returns (B, T, d_model), here (1, 16, 32). Yours gave {got}.",
                )
            streams.append(after)
    weighted = (streams[-1] * torch.randn(x.shape, generator=rng)).sum()
    gradients: Sequence[Tensor | None] = [None] * depth
    if weighted.requires_grad:
        try:
            gradients = torch.autograd.grad(weighted, streams, allow_unused=True)
        except RuntimeError as error:  # the stream was overwritten, and the backward pass needs the old values
            return nothing, nothing, f"No gradient comes back through your blocks: {error}"
    sizes = [0.0 if gradient is None else gradient.double().norm().item() for gradient in gradients]
    return [stream.detach().double().std().item() for stream in streams], sizes, ""


def explore_gradients(function: Callable) -> LiveFigure:
    """Show your `gradient_norms(weights, biases, x)` on stacks of 1 to 50 layers, initialized as in `nn.Linear`."""
    depths = [1, 2, 5, 10, 20, 30, 40, 50]

    @cache
    def measure(n_features: int) -> tuple[list[float], list[float], str]:
        rng, bound = torch.Generator().manual_seed(0), n_features**-0.5
        weights = (2 * torch.rand(50, n_features, n_features, generator=rng) - 1) * bound
        biases = (2 * torch.rand(50, n_features, generator=rng) - 1) * bound
        x = torch.randn(1, n_features, generator=rng)
        rows: list[tuple[float, float]] = []
        for depth in depths:
            try:
                without, with_skip = function(weights[:depth].clone(), biases[:depth].clone(), x.clone())
                rows.append((float(without), float(with_skip)))
            except Exception as error:
                return [], [], went_wrong(error)
        if not all(math.isfinite(number) for row in rows for number in row):
            return [], [], "Some of your norms are NaN or infinity."
        return [row[1] for row in rows], [row[0] for row in rows], ""

    def draw(depth, n_features):
        with_skip, without, problem = measure(n_features)
        if problem:
            return figures.GradientByDepth([0.0] * 8, [0.0] * 8, depths, "No gradients to show")
        here = depths.index(depth)
        found = f"{power(with_skip[here])} reaches the input with the skip, {power(without[here])} without"
        title = f"Yours, {depth} layer{'s' * (depth > 1)}: {found}"
        return figures.GradientByDepth(with_skip, without, depths, title)

    def describe(depth, n_features):
        with_skip, without, problem = measure(n_features)
        if problem:
            return problem
        here = depths.index(depth)
        return (
            f"{depth} layer{'s' * (depth > 1)} with {n_features} features: a gradient of √{n_features} = "
            f"{math.sqrt(n_features):.1f} sets out; by your measure {power(with_skip[here])} reaches the input with "
            f"x +, {power(without[here])} without."
        )

    controls = {
        "depth": dropdown("layers", depths, 50),
        "n_features": dropdown("features", [4, 16, 64], 64),
    }
    return LiveFigure(draw, controls, describe)


EXPLORERS = {
    "blocks.pre_norm": lambda function: explore_block(function, "pre-norm"),
    "blocks.post_norm": lambda function: explore_block(function, "post-norm"),
    "blocks.gradient_norms": explore_gradients,
}
