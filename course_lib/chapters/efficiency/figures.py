"""Figures of chapter 14: work and length, softmax block by block, and the memory that generation needs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure, new_panels
from course_lib.live.numbers import percent, short
from course_lib.live.palette import BLUE, FONT, GREY, INK, LIGHT, ORANGE, SKY, TITLE, WIDE


def _box(axes: Axes, x: float, y: float, width: float, color: str, said: str = "", linestyle: str = "-") -> None:
    """Draw a box of height 0.7 on row y, with a word in it."""
    shape = Rectangle((x, y - 0.35), width, 0.7, facecolor=color, edgecolor=INK, linewidth=0.8, linestyle=linestyle)
    axes.add_patch(shape)
    axes.text(x + width / 2, y, said, ha="center", va="center", fontsize=FONT - 1, color=INK)


# ------------------------------------------------------------------------------------------------------------ the cache
def one_step_with_cache(words: Sequence[str], weights: np.ndarray, first: int, d_head: int) -> Figure:
    """Draw what one head computes for the newest of S tokens, and what it reads from its key-value cache.

    weights: (S,), the new query's weight on each value. The tokens before `first` share one column.
    """
    S = len(words)
    shown = [f"{first} more", *words[first:]]
    share = np.append(weights[:first].sum(), weights[first:])
    last = len(shown) - 1
    figure, axes = new_figure(WIDE, 4.1)
    for column, (word, weight) in enumerate(zip(shown, share)):
        new = column == last
        axes.text(column + 0.45, -0.05, word, rotation=60, ha="center", va="bottom", fontsize=FONT, color=INK)
        _box(axes, column, 0.5, 0.9, ORANGE if new else "white", "new" if new else "", linestyle="-" if new else ":")
        for row in (2.5, 3.5):
            _box(axes, column, row, 0.9, ORANGE if new else SKY)
        axes.add_patch(Rectangle((column + 0.2, 5.35), 0.5, -0.9 * weight, facecolor=BLUE))
        if weight >= 0.02:
            axes.text(column + 0.45, 5.3 - 0.9 * weight, f"{weight:.2f}", ha="center", va="bottom", fontsize=FONT - 1)
    _box(axes, last, 1.5, 0.9, ORANGE)
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.5}
    axes.annotate("", (last + 0.45, 1.12), (last + 0.45, 0.88), arrowprops=arrow)
    axes.annotate("", (0.1, 1.9), (last + 0.4, 1.9), arrowprops=arrow)
    axes.text(last / 2, 1.82, "one score per key, then softmax", ha="center", va="bottom", fontsize=FONT, color=INK)
    rows = {0.5: "hidden state", 1.5: "query", 2.5: "keys", 3.5: "values", 5.0: "weights"}
    shapes = {
        0.5: "(1, d_model)",
        1.5: f"(1, {d_head})",
        2.5: f"({S}, {d_head})",
        3.5: f"({S}, {d_head})",
        5.0: f"(1, {S})",
    }
    for row, name in rows.items():
        axes.text(-0.25, row, name, ha="right", va="center", fontsize=FONT, color=INK)
    for row, shape in shapes.items():
        axes.text(last + 1.15, row, shape, va="center", fontsize=FONT, color=INK)
    for row, said in ((0.5, "not computed again"), (2.5, "in the cache"), (3.5, "in the cache")):
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.text(last / 2, row, said, ha="center", va="center", fontsize=FONT, color=INK, bbox=ground)
    axes.text(-0.2, 5.85, f"output: the values, mixed by these weights: (1, {d_head})", fontsize=FONT, color=INK)
    axes.set(xlim=(-2.6, last + 3.4), ylim=(6.0, -1.6))
    axes.axis("off")
    axes.set_title(f"Step {S}: one new query uses {S - 1} stored keys and values, and its own", loc="left")
    return figure


def one_step_in_words(words: Sequence[str], weights: np.ndarray, key: int) -> str:
    """Return a description of `one_step_with_cache`, with the weight of one key."""
    S = len(words)
    return (
        f"Step {S} of the sentence: for the new token “{words[-1]}”, one hidden state, query, key and value "
        f"are computed; {S - 1} keys and {S - 1} values come from the cache. The query is compared with all {S} keys; "
        f"{words[key]} gets the weight {weights[key]:.2f}."
    )


# ------------------------------------------------------------------------------------------------------------ the tiles
def tiles(words: Sequence[str], states: Sequence[tuple[float, float, float, float]], block: int, key: int) -> Figure:
    """Draw blockwise attention: the table of scores in tiles, which exist one at a time, and the numbers that the last
    query keeps.

    states: after each block of keys (largest score m, sum l, factor of the old sum, weight of key `key` so far).
    """
    S, n = len(words), len(states)
    figure, (left, right) = new_panels(WIDE, 4.0, 2, width_ratios=[1, 1.35])
    for row in range(n):
        for column in range(n):
            x, y = column * block, row * block
            size = min(block, S - x), min(block, S - y)
            now, done = (row, column) == (n - 1, n - 1), column <= row
            look = {"facecolor": ORANGE if now else SKY if row == n - 1 else LIGHT} if done else {"fill": False}
            left.add_patch(Rectangle((x, y), *size, edgecolor=INK, linewidth=0.8, hatch=None if done else "//", **look))
            if row == n - 1:
                said = "now" if now else f"block {column + 1}"
                left.text(x + size[0] / 2, y + size[1] / 2, said, ha="center", va="center", fontsize=FONT - 1)
    left.text(
        0.68 * S, 0.16 * S, "later keys:\nnever read", ha="center", va="center", fontsize=FONT, backgroundcolor="white"
    )
    left.text(block / 2, 1.5 * block, "done", ha="center", va="center", fontsize=FONT - 1, color=INK)
    left.set(xlim=(-0.2, S + 0.2), ylim=(S + 0.2, -0.2), xticks=[], yticks=[], aspect="equal")
    left.set_xlabel(f"{S} keys, in blocks of {block}")
    left.set_ylabel(f"{S} queries, in blocks of {block}")
    left.spines[:].set_visible(False)
    heads = ("keys read", "largest\nm", "old sum\ntimes", "sum\nl", f"weight of\n“{words[key]}”")
    xs = (0.0, 0.31, 0.49, 0.68, 0.88)
    for at, head in zip(xs, heads):
        right.text(at, 0.99, head, fontsize=FONT, va="top", ha="left" if at == 0 else "center", color=GREY)
    for row, (m, total, factor, share) in enumerate(states):
        line = 0.72 - 0.17 * row
        told = f"{row * block + 1} to {min(S, (row + 1) * block)}"
        for at, cell in zip(xs, (told, f"{m:.2f}".replace("-", "−"), f"{factor:.3f}", f"{total:.2f}", f"{share:.2f}")):
            right.text(at, line, cell, fontsize=FONT + 1, va="center", ha="left" if at == 0 else "center", color=INK)
        right.axhline(line + 0.085, color=LIGHT)
    right.text(0, 0.01, f"kept for the last query, “{words[-1]}”: m, l and one mix of values", fontsize=FONT, color=INK)
    right.set(xlim=(0, 1), ylim=(0, 1))
    right.axis("off")
    figure.suptitle(
        f"One tile at a time: after {n} blocks the weight of “{words[key]}” is {states[-1][3]:.2f}, as in one softmax",
        fontsize=TITLE,
        x=0.01,
        ha="left",
    )
    return figure


def tiles_in_words(
    words: Sequence[str], states: Sequence[tuple[float, float, float, float]], block: int, key: int
) -> str:
    """Return a description of `tiles`."""
    S = len(words)
    return (
        f"The table of {S} queries by {S} keys in tiles of {block} by {block}; tiles of later keys are never read. "
        f"Next to it are the values kept for the last query after each block: the largest score "
        f"{', '.join(f'{state[0]:.1f}' for state in states).replace('-', '−')}; the factor of the old sum "
        f"{', '.join(f'{state[2]:.3f}' for state in states)}; the weight of {words[key]} "
        f"{', '.join(f'{state[3]:.2f}' for state in states)}."
    )


# ------------------------------------------------------------------------------------------------------ work and length
LENGTHS = np.geomspace(16, 262_144, 113)


@dataclass
class WorkByLength(Drawing):
    """Draw the FLOPs of one token in one block (d_ff = 4 d_model) over the length: linear layers and pairs."""

    T: int
    d_model: int

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 4.2)
        axes.set(xscale="log", yscale="log", xlim=(LENGTHS[0], LENGTHS[-1] * 6), ylim=(3e3, 1e11))
        axes.set(xlabel="T: tokens in the text", ylabel="FLOPs per token, one block")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda length, _: f"{length:,.0f}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda flops, _: short(flops).replace("B", "G")))  # as in GFLOP
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
        self.even_name.set(x=even / 1.1, y=linear[0] * 1.25, text=f"equal at 6 · d_model = {even:,}")
        self.here.set_xdata([self.T, self.T])
        self.here_name.set(x=self.T * 1.25, text=f"your T = {self.T:,}")
        share = percent(self.T / (self.T + even))
        self.headline.set_text(f"T = {self.T:,}, d_model = {self.d_model:,}: comparing pairs is {share} of the work")


# ------------------------------------------------------------------------------------------------------- online softmax
@dataclass
class RunningSoftmax(Drawing):
    """Draw the scores read so far, and how the average after each block approaches the average over all keys.

    scores: (S,). read: the number of scores read. states: after each block (maximum, sum, average). final: average of
    all.
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
        self.maximum_name = left.text(S - 0.3, 0, "", fontsize=10, va="center", color=INK)  # next to the last bar
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


# ------------------------------------------------------------------------------------------------- the cost of writing
DOTS = (BLUE, INK)  # with the cache, without


@dataclass
class Writing(Drawing):
    """Draw the memory of weights and cache, the bytes that a step reads, and the next token's FLOPs with and without
    cache.

    read: the bytes of the weights that a step reads. The memory has bars from 0, the step two bars in a row. The FLOPs
    The FLOPs differ by a factor of up to 131,072, so they are dots on a logarithmic axis, where the length of a bar
    would mean nothing.
    """

    weights: int
    read: int
    cache: int
    with_cache: int
    without: int
    title: str

    def build(self) -> Figure:
        figure, (left, right) = new_panels(WIDE, 2.9, 2)
        self.headline, self.left, self.right = headline(figure), left, right
        self.memory = left.barh(range(2), [0, 0], color=[GREY, ORANGE])
        self.step = left.barh([2, 2], [0, 0], color=[GREY, ORANGE])
        self.work = [right.plot([1e9], [row], "o", color=colour, markersize=11)[0] for row, colour in enumerate(DOTS)]
        for axes, names, label in (
            (left, ["weights", "all caches", "read in a step"], "memory (16 bits)"),
            (right, ["cache", "no cache"], "work for the next tokens (log scale)"),
        ):
            axes.set(yticks=range(len(names)), ylim=(len(names) - 0.4, -0.6), xticks=[], xlabel=label)
            axes.set_yticklabels(names, fontsize=FONT)
        left.set_xlim(0, 1.4)
        right.set(xscale="log", xlim=(1e9, 1e22))
        right.set_xticks([10.0**power for power in range(9, 19, 3)], ["1 G", "1 T", "1 P", "1 EFLOP"])
        right.minorticks_off()
        right.grid(axis="x", color=LIGHT, linewidth=0.8)
        right.set_axisbelow(True)
        self.memory_texts = [left.text(0, row, "", va="center", fontsize=FONT, color=INK) for row in range(3)]
        self.work_texts = [right.text(1e9, row, "", va="center", fontsize=FONT, color=INK) for row in range(2)]
        fix_layout(figure)
        return figure

    def move(self) -> None:
        step, most = self.read + self.cache, self.weights + self.cache
        for bar, amount in zip((*self.memory, *self.step), (self.weights, self.cache, self.read, self.cache)):
            bar.set_width(amount / most)
        self.step[1].set_x(self.read / most)
        for text, amount in zip(self.memory_texts, (self.weights, self.cache, step)):
            text.set(x=amount / most + 0.02, text=short(amount, "B"))
        for dot, text, amount in zip(self.work, self.work_texts, (self.with_cache, self.without)):
            dot.set_xdata([amount])
            text.set(x=2.5 * amount, text=short(amount, "FLOP"))
        self.headline.set_text(self.title)
