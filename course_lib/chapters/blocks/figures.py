"""Figures of chapter 8: one token's residual stream, the position of the norm, gradients through a stack, and
losses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from course_lib.live.drawing import Drawing, headline, new_figure, new_panels
from course_lib.live.palette import BLUE, FONT, GREEN, GREY, INK, LIGHT, ORANGE, PURPLE, WIDE

LOWEST, HIGHEST = 1e-40, 1e30  # limits of a logarithmic axis here; other numbers are at its edge


def ticks(n: int) -> list[int]:
    """Return whole numbers for an axis from 1 to n: about ten at most, including n."""
    step = next(step for step in (1, 2, 5, 10, 20) if n <= 10 * step)
    return [1, *range(step, n + 1, step)] if step > 1 else list(range(1, n + 1))


def power(number: float) -> str:
    """Return a number as people write it: 0.35, 12, or 3e-12; "too large for float32" if it is not finite."""
    if not np.isfinite(number):
        return "too large for float32"
    if number == 0 or 0.01 <= abs(number) < 10_000:
        return f"{number:.2g}" if abs(number) < 100 else f"{number:.0f}"
    digits, exponent = f"{number:.0e}".split("e")
    return f"{digits}e{int(exponent)}"


# -------------------------------------------------------------------------------------------------- the residual stream
def residual_stream(
    sizes: Sequence[float], attention: Sequence[float], feed_forward: Sequence[float], token: str
) -> Figure:
    """Draw one token's vector in pre-norm blocks, as a line with two branches per block that add to it.

    Args:
        sizes: length of the vector before the first block and after each block.
        attention, feed_forward: length of the vector that the branch adds in each block.
        token: the token.
    """
    n_blocks = len(attention)
    figure, axes = new_figure(WIDE, 3.9)
    axes.spines[:].set_visible(False)
    axes.set(xlim=(-0.75, 2 * n_blocks + 0.35), ylim=(-1.9, 4.4), xticks=[], yticks=[])
    widths = 2 + 8 * np.sqrt(np.array(sizes) / max(sizes))
    for n in range(2 * n_blocks):
        left = -0.35 if n == 0 else n - 0.35
        axes.plot([left, n + 0.65], [0, 0], color=BLUE, linewidth=widths[n // 2], solid_capstyle="butt", zorder=1)
    end = 2 * n_blocks - 0.35
    axes.annotate(
        "", (end + 0.5, 0), (end, 0), arrowprops={"arrowstyle": "-|>", "color": BLUE, "linewidth": widths[-1] / 2}
    )
    for n in range(2 * n_blocks):
        name, added = ("attention", attention[n // 2]) if n % 2 == 0 else ("feed-forward", feed_forward[n // 2])
        _box(axes, n - 0.3, 0.9, "norm", 0.6)
        _box(axes, n - 0.3, 2.0, name, 0.92, {"feed-forward": "feed-\nforward"}.get(name))
        _arrow(axes, (n, 0.1), (n, 0.9))
        _arrow(axes, (n, 1.6), (n, 2.0))
        _arrow(axes, (n + 0.5, 2.0), (n + 0.5, 0.28))
        ring = {"boxstyle": "circle,pad=0.08", "facecolor": "white", "edgecolor": INK}
        axes.text(n + 0.5, 0, "+", ha="center", va="center", fontsize=FONT, color=INK, zorder=5, bbox=ring)
        axes.text(n + 0.16, 2.95, f"adds {added:.1f}", ha="center", fontsize=FONT - 1.5, color=INK)
        if n % 2 == 0:
            axes.text(n + 0.66, 3.9, f"block {n // 2 + 1}", ha="center", fontsize=FONT, weight="bold", color=INK)
            if n:
                axes.plot([n - 0.34] * 2, [0.7, 4.3], color=LIGHT, linewidth=1, zorder=0)
    for x, size in zip([-0.45, *(2 * n + 1.58 for n in range(n_blocks))], sizes):
        axes.text(x, -0.85, f"{size:.1f}", ha="center", fontsize=FONT, color=BLUE, weight="bold")
    axes.text(-0.7, -1.75, f"blue: length of the vector of {token}", fontsize=FONT - 1, color=BLUE)
    headline(figure).set_text(
        f"Each branch adds its output to the vector, which grows from {sizes[0]:.1f} to {sizes[-1]:.1f}"
    )
    return figure


# --------------------------------------------------------------------------------------------- the position of the norm
def block_diagram() -> Figure:
    """Draw a pre-norm and a post-norm block as boxes, to show which boxes are on the residual path."""
    figure, (left, right) = new_panels(WIDE, 4.9, 2)
    for axes, pre, name in (
        (left, True, "pre-norm: the residual path is clear"),
        (right, False, "post-norm: norms are on that path"),
    ):
        axes.set(xlim=(-0.4, 4.2), ylim=(-0.7, 9.2), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.set_title(name, fontsize=FONT + 0.5, loc="left")
        axes.annotate("", (0.5, 9.1), (0.5, -0.1), arrowprops={"arrowstyle": "-|>", "color": BLUE, "linewidth": 3.5})
        axes.text(0.5, -0.6, "x", ha="center", fontsize=FONT + 2, color=INK)
        for base, branch in ((0.3, "attention"), (4.6, "feed-forward")):
            boxes = [("norm", 0.7), (branch, 1.8)] if pre else [(branch, 1.0)]
            for text, height in boxes:
                _box(axes, 2.0, base + height, text, 1.7)
            top = base + boxes[-1][1] + 0.7
            _arrow(axes, (0.5, base), (2.85, base), (2.85, base + boxes[0][1]))
            if pre:
                _arrow(axes, (2.85, base + 1.4), (2.85, base + 1.8))
            _arrow(axes, (2.85, top), (2.85, top + 0.5), (0.72, top + 0.5))
            ring = {"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": INK}
            axes.text(0.5, top + 0.5, "+", ha="center", va="center", fontsize=FONT + 3, color=INK, zorder=5, bbox=ring)
            if not pre:
                _box(axes, -0.05, top + 1.0, "norm", 1.1)
    headline(figure).set_text("The same parts twice: only the position of the norm differs")
    return figure


def _box(axes: Axes, x: float, y: float, text: str, width: float, written: str | None = None) -> None:
    colour = {"norm": ORANGE, "attention": "#B9DDF1", "feed-forward": "#BFE6D6"}[text]
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, 0.7, boxstyle="round,pad=0,rounding_size=0.12", facecolor=colour, edgecolor=INK, zorder=4
        )
    )
    size = FONT if width > 1 else FONT - 2.5
    axes.text(x + width / 2, y + 0.35, written or text, ha="center", va="center", fontsize=size, color=INK, zorder=5)


def _arrow(axes: Axes, *corners: tuple[float, float]) -> None:
    axes.plot(*zip(*corners[:-1]), color=INK, linewidth=1.3)
    start, end = corners[-2:]
    arrow = FancyArrowPatch(start, end, arrowstyle="-|>", shrinkA=0, shrinkB=0, mutation_scale=12)
    arrow.set(color=INK, linewidth=1.3)
    axes.add_patch(arrow)


# ------------------------------------------------------------------------------------------- gradients through n layers
@dataclass
class GradientByLayer(Drawing):
    """Draw the size of the gradient at the input of every layer, with and without x +. Entry 0 is the first layer."""

    with_skip: Sequence[float]
    without: Sequence[float]

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 4.0)
        axes.set_yscale("log")
        axes.set(xlabel="layer (the loss is at the right end)", ylabel="length of the gradient there")
        axes.axhline(1, color=LIGHT, zorder=0)
        self.headline, self.axes = headline(figure), axes
        (self.skip,) = axes.plot([], [], "s-", color=BLUE, markersize=4)
        (self.plain,) = axes.plot([], [], "o-", color=ORANGE, markersize=4)
        self.names = [axes.text(0, 1, name, fontsize=FONT, color=INK, va="center") for name in ("x + F(x)", "F(x)")]
        axes.set_position((0.11, 0.14, 0.87, 0.74))  # fixed: room for 1e-40 next to the axis, whatever is drawn
        figure.set_layout_engine(None)
        return figure

    def move(self) -> None:
        axes, depth = self.axes, len(self.with_skip)
        rows = [np.clip(np.asarray(row, dtype=float), None, HIGHEST) for row in (self.with_skip, self.without)]
        for line, row in zip((self.skip, self.plain), rows):
            line.set_data(np.arange(1, depth + 1)[row > 0], row[row > 0])  # a logarithmic axis has no 0
        axes.set_xlim(1 - 0.03 * depth - 0.2, depth * 1.14 + 1.2)
        axes.set_xticks(ticks(depth))
        positive = np.concatenate([row[row > 0] for row in rows] + [np.ones(1)])
        low, high = min(positive.min() / 10, 1e-2), max(positive.max() * 10, 1e2)
        axes.set_ylim(low, high)
        span = np.log10(high / low)
        ends = [np.log10(row[-1]) if row[-1] > 0 else np.log10(low) + 0.04 * span for row in rows]
        for name, end in zip(self.names, spread(ends, 0.08 * span)):
            name.set_position((depth * 1.03 + 0.3, 10**end))
        first = [power(float(row[0])) for row in (self.with_skip, self.without)]
        self.headline.set_text(
            f"Through {depth} layer{'s' * (depth > 1)}: {first[0]} reaches the first with the skip, {first[1]} without"
        )


# ----------------------------------------------------------------------------------------------- streams of real blocks
@dataclass
class GradientByDepth(GradientByLayer):
    """Draw the size of the gradient at the input of entire stacks, with and without x +; depths: layers of each
    stack."""

    depths: Sequence[int]
    title: str

    def move(self) -> None:
        super().move()
        self.axes.set_xticks(range(1, len(self.depths) + 1), map(str, self.depths))
        self.axes.set(xlabel="layers in the stack", ylabel="gradient that reaches the input")
        self.headline.set_text(self.title)


@dataclass
class StackProfile(Drawing):
    """Draw the stream's standard deviation after each untrained block, and its gradient there, as two panels.

    name: the arrangement's name, for the title.
    """

    std: Sequence[float]
    gradient: Sequence[float]
    name: str
    title: str = ""

    def build(self) -> Figure:
        figure, (left, right) = new_panels(WIDE, 3.9, 2)
        self.headline, self.axes = headline(figure), (left, right)
        for axes, label in ((left, "deviation of the residual stream"), (right, "gradient of the loss there")):
            axes.set_yscale("log")
            axes.set(xlabel="block", ylabel=label)
            axes.axhline(1, color=LIGHT, zorder=0)
        (self.std_line,) = left.plot([], [], "s-", color=BLUE, markersize=4)
        (self.gradient_line,) = right.plot([], [], "o-", color=GREEN, markersize=4)
        self.lost = [
            axes.text(0.5, 0.5, "", transform=axes.transAxes, ha="center", fontsize=FONT, color=INK)
            for axes in (left, right)
        ]
        left.set_position((0.10, 0.15, 0.38, 0.72))
        right.set_position((0.60, 0.15, 0.38, 0.72))
        figure.set_layout_engine(None)
        return figure

    def move(self) -> None:
        lines, rows = (self.std_line, self.gradient_line), (self.std, self.gradient)
        for axes, line, lost, values, floor in zip(self.axes, lines, self.lost, rows, (1e-1, 1e-4)):
            row = np.asarray(values, dtype=float)
            blocks = np.arange(1, len(row) + 1)
            shown = np.isfinite(row) & (row > 0)
            line.set_data(blocks[shown], np.clip(row[shown], LOWEST, HIGHEST))
            lost.set_text("" if shown.any() else "not a finite number anywhere")
            axes.set_xlim(0.5 - 0.02 * len(row), len(row) + 0.5 + 0.02 * len(row))
            axes.set_xticks(ticks(len(row)))
            finite = np.clip(row[shown], LOWEST, HIGHEST) if shown.any() else np.ones(1)
            axes.set_ylim(min(finite.min() / 3, floor), max(finite.max() * 3, 1e1))
        self.headline.set_text(
            self.title
            or f"{self.name.capitalize()}, {len(self.std)} block{'s' * (len(self.std) > 1)}: "
            f"the residual stream goes from {power(float(self.std[0]))} to {power(float(self.std[-1]))}"
        )


# ---------------------------------------------------------------------------------------------------------- loss curves
def loss_curves(
    curves: Mapping[str, Sequence[float]],
    baseline: float,
    title: str,
    smooth: int = 10,
    baseline_name: str = "word frequencies alone",
) -> Figure:
    """Draw the training loss over steps, one line per run, as running means; dotted: a loss to compare with."""
    figure, axes = new_figure(WIDE, 4.0)
    styles = zip((BLUE, ORANGE, GREEN, PURPLE), ("-", "--", "-.", ":"))
    ends = []
    for (name, losses), (colour, style) in zip(curves.items(), styles):
        mean = np.convolve(losses, np.ones(smooth) / smooth, mode="valid")
        axes.plot(np.arange(smooth, len(losses) + 1), mean, style, color=colour, linewidth=2.2)
        ends.append((float(mean[-1]), name))
    steps = max(map(len, curves.values()))
    axes.plot([0, steps], [baseline, baseline], color=GREY, linestyle=":")
    axes.text(steps * 0.99, baseline + 0.08, baseline_name, ha="right", fontsize=FONT - 1, color=INK)
    low, high = max(0.0, min(end for end, _ in ends) - 0.5), max(6.0, baseline + 1)  # a run may begin far above this
    for (_, name), height in zip(ends, spread([end for end, _ in ends], 0.07 * (high - low))):
        axes.text(steps * 1.02, height, name, fontsize=FONT, color=INK, va="center")
    axes.set(xlim=(0, steps * 1.34), ylim=(low, high), xlabel="step")
    axes.set_ylabel(f"loss (nats per token, mean of {smooth} steps)")
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= steps])
    headline(figure).set_text(title)
    return figure


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Return the same values, moved until neighbours are at least `gap` apart, in the same order."""
    order = np.argsort(places)
    moved = np.array(places, dtype=float)
    for _ in range(200):
        for low, high in pairwise(order):
            lack = gap - (moved[high] - moved[low])
            if lack > 1e-9:
                moved[low] -= lack / 2
                moved[high] += lack / 2
    return moved.tolist()
