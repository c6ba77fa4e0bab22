"""Figures of chapter 7: what a norm forgets, which numbers share a mean, spread by depth, eps, speed."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.live.drawing import (
    BLUE,
    FONT,
    GREEN,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    SKY,
    WIDE,
    fix_layout,
    headline,
    new_figure,
)


# ------------------------------------------------------------------------------------------------- what a norm forgets
def two_norms(x: np.ndarray, layer: np.ndarray, rms: np.ndarray, figure: Figure | None = None) -> Figure:
    """One token (d_model,), and what LayerNorm and RMSNorm make of it."""
    n = len(x)
    if figure is None:
        figure, axes = new_figure(WIDE, 3.7, 1, 3)
        parts = SimpleNamespace(title=headline(figure), axes=axes, bars=[], numbers=[], means=[])
        names = ("token x", "LayerNorm(x)", "RMSNorm(x)")
        for one, name, color in zip(axes, names, (GREY, BLUE, ORANGE)):
            parts.bars.append(one.bar(range(n), [0.0] * n, color=color, edgecolor=INK, linewidth=0.5))
            parts.numbers.append(
                [
                    one.text(i, 0, "", ha="center", fontsize=FONT - 1, bbox={"color": "white", "pad": 0.5})
                    for i in range(n)
                ]
            )
            parts.means.append(one.axhline(0, color=INK, linestyle=":", linewidth=1.5))
            one.axhline(0, color=INK, linewidth=0.8)
            one.set(xticks=range(n), xlabel="feature")
            one.set_title(name, fontsize=FONT, loc="left")
        axes[0].set_ylabel("value (dotted: mean)")
        for one in axes[1:]:
            one.set_ylim(-2.4, 2.4)
        axes[0].set_ylim(-0.0052, 0.0052)  # the widest tick labels: the layout leaves room for them
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    reach = 1.3 * max(float(np.abs(x).max()), 1e-9)
    parts.axes[0].set_ylim(-reach, reach)
    for one, bars, numbers, mean, values in zip(parts.axes, parts.bars, parts.numbers, parts.means, (x, layer, rms)):
        low, high = one.get_ylim()
        for bar, number, value in zip(bars, numbers, values):
            bar.set_height(value)
            text = f"{value:,.4g}" if one is parts.axes[0] else f"{round(value, 2) + 0.0:.2f}"
            shift = 0.02 * (high - low)
            number.set(y=value + (shift if value >= 0 else -shift), text=text, va="bottom" if value >= 0 else "top")
        mean.set_ydata([values.mean()] * 2)
    parts.title.set_text(
        f"LayerNorm: mean {layer.mean() + 0.0:.1f}, deviation {layer.std():.2f}. "
        f"RMSNorm: mean {rms.mean() + 0.0:.2f}, root mean square {np.sqrt((rms**2).mean()):.2f}"
    )
    return figure


# ------------------------------------------------------------------------------------------- which numbers share a mean
def shared_statistics(
    x: np.ndarray, group: np.ndarray, chosen: tuple[int, int, int], title: str, figure: Figure | None = None
) -> Figure:
    """A tensor (B, T, d_model) as B tables. group: bool, the numbers that share statistics with the chosen one."""
    B, T, d_model = x.shape
    if figure is None:
        figure, axes = new_figure(WIDE, 2.7, 1, B)
        parts = SimpleNamespace(title=headline(figure), cells=[], numbers=[])
        for b, one in enumerate(axes):
            one.set(xlim=(-0.5, d_model - 0.5), ylim=(T - 0.5, -0.5), aspect="equal")
            one.set(xticks=range(d_model), yticks=range(T), xlabel="feature")
            one.set_title(f"sentence {b}", fontsize=FONT)
            one.tick_params(length=0)
            one.spines[:].set_visible(False)
            for t in range(T):
                for d in range(d_model):
                    cell = Rectangle((d - 0.46, t - 0.46), 0.92, 0.92, edgecolor=INK, linewidth=0.4)
                    parts.cells.append(one.add_patch(cell))
                    parts.numbers.append(one.text(d, t, f"{x[b, t, d]:g}", ha="center", va="center", fontsize=FONT - 1))
        axes[0].set_ylabel("position")
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    index = int(np.ravel_multi_index(chosen, x.shape))
    for i, (cell, number, inside) in enumerate(zip(parts.cells, parts.numbers, group.flatten())):
        cell.set_facecolor(SKY if inside else "white")
        cell.set_linewidth(3 if i == index else 0.4)
        number.set_fontweight("bold" if inside else "normal")
    parts.title.set_text(title)
    return figure


# ----------------------------------------------------------------------------------------------------- spread by depth
def spread_by_depth(spreads: np.ndarray, n_blocks: int, setting: str, figure: Figure | None = None) -> Figure:
    """Standard deviation of the stream (n + 1,) over the number of blocks; n_blocks is marked."""
    if figure is None:
        figure, axes = new_figure(WIDE, 3.8)
        axes.set_yscale("log")
        axes.set(xlim=(0, len(spreads)), ylim=(1e-3, 1e12), xlabel="blocks", ylabel="standard deviation")
        axes.axhline(1, color=LIGHT, linewidth=6, zorder=0)
        axes.minorticks_off()
        parts = SimpleNamespace(title=headline(figure), here=axes.axvline(0, color=GREY, linestyle=":"))
        parts.setting = axes.set_title(" ", fontsize=FONT, loc="left")
        (parts.line,) = axes.plot([], [], color=BLUE, linewidth=2)
        (parts.dot,) = axes.plot([], [], "o", color=BLUE, markersize=9)
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    parts.line.set_data(range(len(spreads)), spreads)
    parts.dot.set_data([n_blocks], [spreads[n_blocks]])
    parts.here.set_xdata([n_blocks, n_blocks])
    count = f"{n_blocks} block{'s' * (n_blocks > 1)}"
    parts.title.set_text(f"After {count} the standard deviation is {spreads[n_blocks]:.2g}")
    parts.setting.set_text(setting)
    return figure


def pre_and_post(pre: np.ndarray, post: np.ndarray) -> Figure:
    """Standard deviation of the stream over depth with pre-norm and with post-norm, beside the root of the depth."""
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
def eps_places(deviations: np.ndarray, inside: np.ndarray, outside: np.ndarray) -> Figure:
    """Deviation of the output over that of the input, with eps inside the root and added to the deviation."""
    figure, axes = new_figure(7.5, 3.5)
    axes.set_xscale("log")
    axes.plot(deviations, inside, color=BLUE, linewidth=2)
    axes.plot(deviations, outside, color=ORANGE, linewidth=2, linestyle="--")
    axes.set(xlabel="standard deviation of the token's features", ylabel="the same after the norm", ylim=(0, 1.12))
    for curve, label in ((inside, "√(var + eps)"), (outside, "std + eps")):
        place = int(np.searchsorted(curve, 0.5))
        axes.text(deviations[place] * 1.5, 0.45, label, fontsize=FONT, color=INK)
    axes.minorticks_off()
    headline(figure).set_text("eps outside the root makes full-size features out of almost nothing")
    return figure


def speed_ratios(widths: Sequence[int], ratios: Mapping[str, Sequence[float]]) -> Figure:
    """Time of RMSNorm divided by that of LayerNorm, per width, for each way of writing them."""
    figure, axes = new_figure(7.5, 3.6)
    places = np.arange(len(widths))
    for i, ((name, values), color, hatch) in enumerate(zip(ratios.items(), (SKY, GREEN), ("", "//"))):
        bars = axes.bar(places + 0.36 * i, values, 0.34, color=color, edgecolor=INK, hatch=hatch, label=name)
        axes.bar_label(bars, [f"{value:.2f}" for value in values], fontsize=FONT, padding=2)
    axes.axhline(1, color=INK, linewidth=1)
    axes.set(xticks=places + 0.18, xticklabels=[f"{width} features" for width in widths])
    axes.set(ylabel="time RMSNorm / LayerNorm", ylim=(0, 1.35 * max(1.0, *(max(values) for values in ratios.values()))))
    axes.legend(fontsize=FONT, frameon=False, loc="upper left", ncols=2)
    words = {name: "faster" if max(values) < 0.95 else "slower" if min(values) > 1.05 else "as fast or mixed"
             for name, values in ratios.items()}  # fmt: skip
    headline(figure).set_text(
        "On this machine RMSNorm is " + ", ".join(f"{word} {name}" for name, word in words.items())
    )
    return figure
