"""Figures of chapter 7: what a norm discards, which numbers share a mean, growth by depth, eps, speed, loss by rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.device import computes_on
from course_lib.live.drawing import Drawing, as_function, fix_layout, headline, new_figure, new_panels
from course_lib.live.palette import BLUE, FONT, GREEN, GREY, INK, LIGHT, ORANGE, SKY, WIDE


# ------------------------------------------------------------------------------------------------ what a norm discards
@dataclass
class TwoNorms(Drawing):
    """Draw one token (d_model,), and the results of LayerNorm and RMSNorm."""

    x: np.ndarray
    layer: np.ndarray
    rms: np.ndarray

    def build(self) -> Figure:
        n = len(self.x)
        figure, self.axes = new_panels(WIDE, 3.7, 3)
        self.headline, axes = headline(figure), self.axes
        self.bars, self.numbers, self.means = [], [], []
        names = ("token x", "LayerNorm(x)", "RMSNorm(x)")
        for one, name, color in zip(axes, names, (GREY, BLUE, ORANGE)):
            self.bars.append(one.bar(range(n), [0.0] * n, color=color, edgecolor=INK, linewidth=0.5))
            self.numbers.append(
                [
                    one.text(i, 0, "", ha="center", fontsize=FONT - 1, bbox={"color": "white", "pad": 0.5})
                    for i in range(n)
                ]
            )
            self.means.append(one.axhline(0, color=INK, linestyle=":", linewidth=1.5))
            one.axhline(0, color=INK, linewidth=0.8)
            one.set(xticks=range(n), xlabel="feature")
            one.set_title(name, fontsize=FONT, loc="left")
        axes[0].set_ylabel("value (dotted: mean)")
        for one in axes[1:]:
            one.set_ylim(-2.4, 2.4)
        axes[0].set_ylim(-0.0052, 0.0052)  # the widest tick labels, so that the layout leaves room for them
        fix_layout(figure)
        return figure

    def move(self) -> None:
        reach = 1.3 * max(float(np.abs(self.x).max()), 1e-9)
        self.axes[0].set_ylim(-reach, reach)
        each = zip(self.axes, self.bars, self.numbers, self.means, (self.x, self.layer, self.rms))
        for one, bars, numbers, mean, values in each:
            low, high = one.get_ylim()
            for bar, number, value in zip(bars, numbers, values):
                bar.set_height(value)
                text = f"{value:,.4g}" if one is self.axes[0] else f"{round(value, 2) + 0.0:.2f}"
                y = value + (0.02 if value >= 0 else -0.02) * (high - low)
                number.set(y=y, text=text, va="bottom" if value >= 0 else "top")
                # A value that was not divided may be far outside.
                number.set_visible(one is self.axes[0] or bool(low < y < high))
            mean.set_ydata([values.mean()] * 2)
        said = (
            f"LayerNorm: mean {round(self.layer.mean(), 1) + 0.0:.1f}, standard deviation {self.layer.std():.2f}. "
            f"RMSNorm: root mean square {np.sqrt((self.rms**2).mean()):.2f}"
        )
        self.headline.set_text("No result to show" if "nan" in said else said)


# ------------------------------------------------------------------------------------------- which numbers share a mean
@dataclass
class SharedStatistics(Drawing):
    """Draw a tensor (B, T, d_model) as B tables. group: bool, the numbers that share statistics with the chosen one."""

    x: np.ndarray
    group: np.ndarray
    chosen: tuple[int, int, int]
    title: str

    def build(self) -> Figure:
        B, T, d_model = self.x.shape
        figure, axes = new_panels(WIDE, 2.7, B)
        self.headline = headline(figure)
        self.cells, self.numbers = [], []
        for b, one in enumerate(axes):
            one.set(xlim=(-0.5, d_model - 0.5), ylim=(T - 0.5, -0.5), aspect="equal")
            one.set(xticks=range(d_model), yticks=range(T), xlabel="feature")
            one.set_title(f"sentence {b}", fontsize=FONT)
            one.tick_params(length=0)
            one.spines[:].set_visible(False)
            for t in range(T):
                for d in range(d_model):
                    cell = Rectangle((d - 0.46, t - 0.46), 0.92, 0.92, edgecolor=INK, linewidth=0.4)
                    self.cells.append(one.add_patch(cell))
                    number = one.text(d, t, f"{self.x[b, t, d]:g}", ha="center", va="center", fontsize=FONT - 1)
                    self.numbers.append(number)
        axes[0].set_ylabel("position")
        fix_layout(figure)
        return figure

    def move(self) -> None:
        index = int(np.ravel_multi_index(self.chosen, self.x.shape))
        for i, (cell, number, inside) in enumerate(zip(self.cells, self.numbers, self.group.flatten())):
            cell.set_facecolor(SKY if inside else "white")
            cell.set_linewidth(3 if i == index else 0.4)
            number.set_fontweight("bold" if inside else "normal")
        self.headline.set_text(self.title)


# ------------------------------------------------------------------------------------------------------ growth by depth
@dataclass
class SpreadByDepth(Drawing):
    """Draw the standard deviation of the residual stream (n + 1,) over the number of blocks; n_blocks is marked."""

    spreads: np.ndarray
    n_blocks: int
    setting: str

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 3.8)
        axes.set_yscale("log")
        axes.set(xlim=(0, len(self.spreads)), ylim=(1e-3, 1e12), xlabel="blocks", ylabel="standard deviation")
        axes.axhline(1, color=LIGHT, linewidth=6, zorder=0)
        axes.minorticks_off()
        self.headline = headline(figure)
        self.here = axes.axvline(0, color=GREY, linestyle=":")
        self.setting_text = axes.set_title(" ", fontsize=FONT, loc="left")
        (self.line,) = axes.plot([], [], color=BLUE, linewidth=2)
        (self.dot,) = axes.plot([], [], "o", color=BLUE, markersize=9)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        self.line.set_data(range(len(self.spreads)), self.spreads)
        self.dot.set_data([self.n_blocks], [self.spreads[self.n_blocks]])
        self.here.set_xdata([self.n_blocks, self.n_blocks])
        count = f"{self.n_blocks} block{'s' * (self.n_blocks > 1)}"
        self.headline.set_text(f"After {count} the standard deviation is {self.spreads[self.n_blocks]:.2g}")
        self.setting_text.set_text(self.setting)


def pre_and_post(pre: np.ndarray, post: np.ndarray) -> Figure:
    """Draw the residual stream's standard deviation over depth with pre- and post-norm, and the root of the depth."""
    figure, axes = new_figure(7.5, 3.6)
    blocks = np.arange(len(pre))
    axes.plot(blocks, np.sqrt(blocks + 1), color=GREY, linestyle=":", linewidth=1.5)
    axes.plot(blocks, pre, color=BLUE, linewidth=2)
    axes.plot(blocks, post, color=ORANGE, linewidth=2, linestyle="--")
    end = blocks[-1]
    for height, label in (
        (pre[-1] + 0.25, "pre-norm"),
        (post[-1], "post-norm"),
        (np.sqrt(end + 1) - 0.45, "√(depth + 1)"),
    ):
        axes.text(end * 1.02, height, label, fontsize=FONT, va="center", color=INK)
    axes.set(
        xlim=(0, end * 1.28), xticks=range(0, end + 1, 10), ylim=(0, None), xlabel="blocks", ylabel="standard deviation"
    )
    headline(figure).set_text(f"After {end} blocks: post-norm {post[-1]:.1f}, pre-norm {pre[-1]:.1f} and still growing")
    return figure


# ------------------------------------------------------------------------------------------------------ eps and speed
def eps_places(sizes: np.ndarray, inside: np.ndarray, outside: np.ndarray) -> Figure:
    """Draw the output's standard deviation over the input's, with eps inside the root and with eps added outside it."""
    figure, axes = new_figure(7.5, 3.5)
    axes.set_xscale("log")
    axes.plot(sizes, inside, color=BLUE, linewidth=2)
    axes.plot(sizes, outside, color=ORANGE, linewidth=2, linestyle="--")
    axes.set(xlabel="standard deviation of the token's features", ylabel="after the norm", ylim=(0, 1.12))
    for curve, label in ((inside, "√(var + eps)"), (outside, "std + eps")):
        place = int(np.searchsorted(curve, 0.5))
        axes.text(sizes[place] * 1.5, 0.45, label, fontsize=FONT, color=INK)
    axes.minorticks_off()
    headline(figure).set_text("With eps outside the root, far smaller features are scaled up to 1")
    return figure


@dataclass
class SpeedRatios(Drawing):
    """Draw the time of RMSNorm divided by the time of LayerNorm, over the width, for each implementation."""

    widths: Sequence[int]
    ratios: Mapping[str, Sequence[float]]
    title: str = ""

    def build(self) -> Figure:
        figure, axes = new_figure(7.5, 3.6)
        self.headline, self.axes = headline(figure), axes
        places, nothing = np.arange(len(self.widths)), [0.0] * len(self.widths)
        self.bars, self.numbers = [], []
        for i, (name, color, hatch) in enumerate(zip(self.ratios, (SKY, GREEN), ("", "//"))):
            bars = axes.bar(places + 0.36 * i, nothing, 0.34, color=color, edgecolor=INK, hatch=hatch, label=name)
            self.bars.append(bars)
            self.numbers.append(axes.bar_label(bars, fontsize=FONT, padding=2))
        axes.axhline(1, color=INK, linewidth=1)
        axes.set(xticks=places + 0.18, xticklabels=[f"{width} features" for width in self.widths])
        axes.set_ylabel("time RMSNorm / LayerNorm")
        axes.legend(fontsize=FONT, frameon=False, loc="upper left", ncols=2)
        return figure

    def move(self) -> None:
        self.axes.set_ylim(0, 1.35 * max(1.0, *(max(values) for values in self.ratios.values())))
        for bars, numbers, values in zip(self.bars, self.numbers, self.ratios.values()):
            for bar, number, value in zip(bars, numbers, values):
                bar.set_height(value)
                number.xy = (number.xy[0], value)
                number.set_text(f"{value:.2f}")
        told = ", ".join(f"{_compared(values)} {name}" for name, values in self.ratios.items())
        self.headline.set_text(self.title or f"On {computes_on()}: RMSNorm is {told}")


def _compared(ratios: Sequence[float]) -> str:
    return "faster" if max(ratios) < 0.95 else "slower" if min(ratios) > 1.05 else "as fast or mixed"


speed_ratios = as_function(SpeedRatios)


# -------------------------------------------------------------------------------------------------------- loss by rate
def loss_by_rate(rates: Sequence[float], losses: Mapping[str, Sequence[float]], letters_alone: float) -> Figure:
    """Draw the loss over the learning rate, a line for each model: name -> its losses.

    letters_alone: the loss of a model that knows only how frequent each letter is, drawn as a dotted line.
    """
    figure, axes = new_figure(WIDE, 3.6)
    axes.set_xscale("log")
    axes.axhline(letters_alone, color=GREY, linestyle=":", linewidth=1.5)
    axes.text(rates[-1], letters_alone, "letter frequencies only", fontsize=FONT, ha="right", va="bottom", color=INK)
    for (name, each), color, style in zip(losses.items(), (BLUE, ORANGE, GREEN), ("o-", "s--", "^-.")):
        axes.plot(rates, each, style, color=color, linewidth=2, markersize=7)
        ground = {"color": "white", "pad": 1}  # the dotted line may cross a name
        axes.text(rates[0] * 0.93, each[0], name, fontsize=FONT, ha="right", va="center", color=INK, bbox=ground)
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    names = (rates[-1] / rates[0]) ** 0.57  # a third of the width, on the logarithmic axis
    axes.set_xlim(rates[0] / names, rates[-1] * 1.1)
    axes.set(ylim=(None, 1.04 * max(letters_alone, *map(max, losses.values()))))
    axes.set(xlabel="learning rate", ylabel="loss (nats per letter)")
    headline(figure).set_text("Without norms the loss is highest; larger initial values close most of the gap")
    return figure
