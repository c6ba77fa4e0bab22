"""Figures of chapter 14: work against length, softmax taken block by block, and the memory that writing needs."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from course_lib.live.drawing import BLUE, FONT, GREY, INK, LIGHT, ORANGE, fix_layout, headline, new_figure
from course_lib.live.numbers import percent, short

WIDE = 8.8  # inches


# ------------------------------------------------------------------------------------------------------ work and length
LENGTHS = np.geomspace(16, 262_144, 113)


def work_by_length(T: int, d_model: int, figure: Figure | None = None) -> Figure:
    """FLOPs of one token in one block (d_ff = 4 d_model) over the length of the text: linear layers and pairs."""
    if figure is None:
        figure, axes = new_figure(WIDE, 4.2)
        axes.set(xscale="log", yscale="log", xlim=(LENGTHS[0], LENGTHS[-1] * 4.5), ylim=(3e3, 1e11))
        axes.set(xlabel="T: tokens in the text", ylabel="FLOPs per token, one block")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda length, _: f"{length:,.0f}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda flops, _: short(flops)))
        axes.set_xticks([100, 1000, 10_000, 100_000])
        axes.minorticks_off()
        parts = SimpleNamespace(title=headline(figure))
        (parts.linear,) = axes.plot([], [], color=BLUE, linewidth=2)
        (parts.pairs,) = axes.plot([], [], color=ORANGE, linewidth=2, linestyle="--")
        (parts.even,) = axes.plot([], [], "o", color=INK, markersize=8)
        parts.here = axes.axvline(1, color=LIGHT, linewidth=9, zorder=0)
        parts.here_name = axes.text(1, 3e10, "", fontsize=FONT, color=INK)
        parts.names = [
            axes.text(LENGTHS[-1] * 1.15, 1e6, name, fontsize=FONT, va="center", color=INK)
            for name in ("linear layers", "pairs")
        ]
        parts.even_name = axes.text(1e3, 1e6, "", fontsize=10, color=INK, va="bottom", ha="right")
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    linear, pairs = np.full(len(LENGTHS), 24.0 * d_model**2), 4 * LENGTHS * d_model
    parts.linear.set_data(LENGTHS, linear)
    parts.pairs.set_data(LENGTHS, pairs)
    for name, line in zip(parts.names, (linear, pairs)):
        name.set_y(line[-1])
    parts.even.set_data([6 * d_model], [linear[0]])
    parts.even_name.set(x=6 * d_model / 1.1, y=linear[0] * 1.25, text=f"even at 6 · d_model = {6 * d_model:,}")
    parts.here.set_xdata([T, T])
    parts.here_name.set(x=T * 1.25, text=f"your T = {T:,}")
    parts.title.set_text(
        f"T = {T:,}, d_model = {d_model:,}: comparing pairs is {percent(T / (T + 6 * d_model))} of the work"
    )
    return figure


# ------------------------------------------------------------------------------------------------------- online softmax
def running_softmax(
    scores: np.ndarray,
    read: int,
    states: Sequence[tuple[float, float, float]],
    final: float,
    figure: Figure | None = None,
) -> Figure:
    """Scores read so far, and the average after each block, on its way to the one over all keys.

    scores: (S,). read: how many of them. states: after each block (maximum, sum, average). final: average of all.
    """
    S = len(scores)
    if figure is None:
        figure, (left, right) = new_figure(WIDE, 3.9, 1, 2)
        parts = SimpleNamespace(title=headline(figure), right=right)
        parts.bars = left.bar(range(S), scores, edgecolor=INK, linewidth=0.5)
        (parts.maximum,) = left.plot([-0.7, S - 0.4], [0, 0], color=INK, linestyle=":")
        parts.maximum_name = left.text(S - 0.3, 0, "", fontsize=10, va="center", color=INK)  # right of the last bar
        left.set(
            xticks=range(S),
            xlabel="key (blue: read)",
            ylabel="score",
            xlim=(-0.7, S + 1.6),
            ylim=(min(0, scores.min()) - 0.3, scores.max() + 1),
        )
        right.plot([0, S], [final, final], color=GREY, linestyle="--")
        right.text(S + 0.2, final, "all keys\nat once", fontsize=10, va="center", color=INK)
        (parts.line,) = right.plot([], [], "o-", color=BLUE, markersize=8)
        right.set(
            xlim=(0, S * 1.32),
            xticks=range(0, S + 1, 2),
            ylim=(-1, 31),
            xlabel="keys read",
            ylabel="average of the values so far",
        )
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    for place, bar in enumerate(parts.bars):
        bar.set_facecolor(BLUE if place < read else LIGHT)
    maximum, total, average = states[-1]
    parts.maximum.set_ydata([maximum, maximum])
    parts.maximum_name.set(y=maximum, text=f"largest\nso far\n{maximum:.1f}")
    block = read / len(states)
    parts.line.set_data([block * (i + 1) for i in range(len(states))], [state[2] for state in states])
    parts.title.set_text(f"{read} of {S} keys read: sum {total:.2f}, average {average:.1f}; over all keys {final:.1f}")
    return figure


# --------------------------------------------------------------------------------------------------- what writing takes
DOTS = (BLUE, INK)  # with the cache, without


def writing(
    weights: int, cache: int, with_cache: int, without: int, title: str, figure: Figure | None = None
) -> Figure:
    """Memory of weights and cache in bytes, and FLOPs of the next token with the cache and without.

    The memory as bars from 0. The FLOPs lie up to 131,072 times apart, so they are dots on a logarithmic axis: a
    bar's length would say nothing there.
    """
    if figure is None:
        figure, (left, right) = new_figure(WIDE, 2.9, 1, 2)
        parts = SimpleNamespace(title=headline(figure), left=left, right=right)
        parts.memory = left.barh(range(2), [0, 0], color=[GREY, ORANGE])
        parts.work = [right.plot([1e9], [row], "o", color=colour, markersize=11)[0] for row, colour in enumerate(DOTS)]
        for axes, names, label in (
            (left, ["weights", "cache"], "memory (16 bits)"),
            (right, ["cache", "no cache"], "work for the next token of all texts (log scale)"),
        ):
            axes.set(yticks=range(2), ylim=(1.6, -0.6), xticks=[], xlabel=label)
            axes.set_yticklabels(names, fontsize=FONT)
        left.set_xlim(0, 1.4)
        right.set(xscale="log", xlim=(1e9, 1e22))
        right.set_xticks([10.0**power for power in range(9, 19, 3)], ["1 G", "1 T", "1 P", "1 EFLOP"])
        right.minorticks_off()
        right.grid(axis="x", color=LIGHT, linewidth=0.8)
        right.set_axisbelow(True)
        parts.memory_texts = [left.text(0, row, "", va="center", fontsize=FONT, color=INK) for row in range(2)]
        parts.work_texts = [right.text(1e9, row, "", va="center", fontsize=FONT, color=INK) for row in range(2)]
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    most = max(weights, cache)
    for bar, text, amount in zip(parts.memory, parts.memory_texts, (weights, cache)):
        bar.set_width(amount / most)
        text.set(x=amount / most + 0.02, text=short(amount, "B"))
    for dot, text, amount in zip(parts.work, parts.work_texts, (with_cache, without)):
        dot.set_xdata([amount])
        text.set(x=2.5 * amount, text=short(amount, "FLOP"))
    parts.title.set_text(title)
    return figure
