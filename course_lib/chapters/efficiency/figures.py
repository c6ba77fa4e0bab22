"""Figures of chapter 14: work against length, softmax taken block by block, and the memory that writing needs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure, new_panels
from course_lib.live.numbers import percent, short
from course_lib.live.palette import BLUE, FONT, GREY, INK, LIGHT, ORANGE

WIDE = 8.8  # inches


# ------------------------------------------------------------------------------------------------------ work and length
LENGTHS = np.geomspace(16, 262_144, 113)


@dataclass
class WorkByLength(Drawing):
    """FLOPs of one token in one block (d_ff = 4 d_model) over the length of the text: linear layers and pairs."""

    T: int
    d_model: int

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 4.2)
        axes.set(xscale="log", yscale="log", xlim=(LENGTHS[0], LENGTHS[-1] * 4.5), ylim=(3e3, 1e11))
        axes.set(xlabel="T: tokens in the text", ylabel="FLOPs per token, one block")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda length, _: f"{length:,.0f}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda flops, _: short(flops)))
        axes.set_xticks([100, 1000, 10_000, 100_000])
        axes.minorticks_off()
        self.headline = headline(figure)
        (self.linear,) = axes.plot([], [], color=BLUE, linewidth=2)
        (self.pairs,) = axes.plot([], [], color=ORANGE, linewidth=2, linestyle="--")
        (self.even,) = axes.plot([], [], "o", color=INK, markersize=8)
        self.here = axes.axvline(1, color=LIGHT, linewidth=9, zorder=0)
        self.here_name = axes.text(1, 3e10, "", fontsize=FONT, color=INK)
        self.names = [
            axes.text(LENGTHS[-1] * 1.15, 1e6, name, fontsize=FONT, va="center", color=INK)
            for name in ("linear layers", "pairs")
        ]
        self.even_name = axes.text(1e3, 1e6, "", fontsize=10, color=INK, va="bottom", ha="right")
        fix_layout(figure)
        return figure

    def move(self) -> None:
        linear, pairs = np.full(len(LENGTHS), 24.0 * self.d_model**2), 4 * LENGTHS * self.d_model
        self.linear.set_data(LENGTHS, linear)
        self.pairs.set_data(LENGTHS, pairs)
        for name, line in zip(self.names, (linear, pairs)):
            name.set_y(line[-1])
        even = 6 * self.d_model
        self.even.set_data([even], [linear[0]])
        self.even_name.set(x=even / 1.1, y=linear[0] * 1.25, text=f"even at 6 · d_model = {even:,}")
        self.here.set_xdata([self.T, self.T])
        self.here_name.set(x=self.T * 1.25, text=f"your T = {self.T:,}")
        share = percent(self.T / (self.T + even))
        self.headline.set_text(f"T = {self.T:,}, d_model = {self.d_model:,}: comparing pairs is {share} of the work")


# ------------------------------------------------------------------------------------------------------- online softmax
@dataclass
class RunningSoftmax(Drawing):
    """Scores read so far, and the average after each block, on its way to the one over all keys.

    scores: (S,). read: how many of them. states: after each block (maximum, sum, average). final: average of all.
    """

    scores: np.ndarray
    read: int
    states: Sequence[tuple[float, float, float]]
    final: float
    title: str = ""

    def build(self) -> Figure:
        S = len(self.scores)
        figure, (left, right) = new_panels(WIDE, 3.9, 2)
        self.headline, self.right = headline(figure), right
        self.bars = left.bar(range(S), self.scores, edgecolor=INK, linewidth=0.5)
        (self.maximum,) = left.plot([-0.7, S - 0.4], [0, 0], color=INK, linestyle=":")
        self.maximum_name = left.text(S - 0.3, 0, "", fontsize=10, va="center", color=INK)  # right of the last bar
        left.set(
            xticks=range(S),
            xlabel="key (blue: read)",
            ylabel="score",
            xlim=(-0.7, S + 1.6),
            ylim=(min(0, self.scores.min()) - 0.3, self.scores.max() + 1),
        )
        right.plot([0, S], [self.final, self.final], color=GREY, linestyle="--")
        right.text(S + 0.2, self.final, "all keys\nat once", fontsize=10, va="center", color=INK)
        (self.line,) = right.plot([], [], "o-", color=BLUE, markersize=8)
        right.set(
            xlim=(0, S * 1.32),
            xticks=range(0, S + 1, 2),
            ylim=(-1, 31),
            xlabel="keys read",
            ylabel="average of the values so far",
        )
        fix_layout(figure)
        return figure

    def move(self) -> None:
        for place, bar in enumerate(self.bars):
            bar.set_facecolor(BLUE if place < self.read else LIGHT)
        maximum, total, average = self.states[-1]
        self.maximum.set_ydata([maximum, maximum])
        self.maximum_name.set(y=maximum, text=f"largest\nso far\n{maximum:.1f}")
        block = self.read / len(self.states)
        self.line.set_data([block * (i + 1) for i in range(len(self.states))], [state[2] for state in self.states])
        self.headline.set_text(
            self.title
            or f"{self.read} of {len(self.scores)} keys read: sum {total:.2f}, average {average:.1f}; "
            f"over all keys {self.final:.1f}"
        )


# --------------------------------------------------------------------------------------------------- what writing takes
DOTS = (BLUE, INK)  # with the cache, without


@dataclass
class Writing(Drawing):
    """Memory of weights and cache in bytes, and FLOPs of the next token with the cache and without.

    The memory as bars from 0. The FLOPs lie up to 131,072 times apart, so they are dots on a logarithmic axis: a
    bar's length would say nothing there.
    """

    weights: int
    cache: int
    with_cache: int
    without: int
    title: str

    def build(self) -> Figure:
        figure, (left, right) = new_panels(WIDE, 2.9, 2)
        self.headline, self.left, self.right = headline(figure), left, right
        self.memory = left.barh(range(2), [0, 0], color=[GREY, ORANGE])
        self.work = [right.plot([1e9], [row], "o", color=colour, markersize=11)[0] for row, colour in enumerate(DOTS)]
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
        self.memory_texts = [left.text(0, row, "", va="center", fontsize=FONT, color=INK) for row in range(2)]
        self.work_texts = [right.text(1e9, row, "", va="center", fontsize=FONT, color=INK) for row in range(2)]
        fix_layout(figure)
        return figure

    def move(self) -> None:
        most = max(self.weights, self.cache)
        for bar, text, amount in zip(self.memory, self.memory_texts, (self.weights, self.cache)):
            bar.set_width(amount / most)
            text.set(x=amount / most + 0.02, text=short(amount, "B"))
        for dot, text, amount in zip(self.work, self.work_texts, (self.with_cache, self.without)):
            dot.set_xdata([amount])
            text.set(x=2.5 * amount, text=short(amount, "FLOP"))
        self.headline.set_text(self.title)
