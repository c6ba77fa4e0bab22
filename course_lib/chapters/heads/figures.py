"""Figures of chapter 4: features split among heads, the cost of each step, and a head's part in an answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle
from matplotlib.text import Text

from course_lib.live.drawing import Drawing, Side, fix_layout, headline, new_figure, new_panels
from course_lib.live.numbers import percent, short
from course_lib.live.palette import BLUE, FONT, GREEN, GREY, INK, LIGHT, ORANGE, PURPLE, RED, SKY, WIDE, YELLOW, ink_on

HEAD_COLOURS = (SKY, ORANGE, GREEN, PURPLE, YELLOW, GREY, "#B7D7EA", "#F5D08A")


# ------------------------------------------------------------------------------------------- features split among heads
@dataclass
class DealtOut(Drawing):
    """Draw a table of features (T, d_model). Each cell has the colour and the name of the head that gets it.

    owner: (T, d_model), the number of the head, −1 for none.
    """

    numbers: np.ndarray
    owner: np.ndarray
    title: str

    def build(self) -> Figure:
        T, d_model = self.numbers.shape
        figure, axes = new_figure(8.4, 0.9 + 0.62 * T)
        axes.set(xlim=(0, d_model), ylim=(T, 0), xlabel="feature", ylabel="token")
        axes.set_xticks(np.arange(d_model) + 0.5, map(str, range(d_model)))
        axes.set_yticks(np.arange(T) + 0.5, map(str, range(T)))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        self.cells: dict[tuple[int, ...], Patch] = {}
        self.names: dict[tuple[int, ...], Text] = {}
        self.numbers_drawn: dict[tuple[int, ...], Text] = {}
        self.headline = headline(figure)
        for t, i in np.ndindex(T, d_model):
            self.cells[t, i] = axes.add_patch(Rectangle((i, t), 1, 1, edgecolor="white", linewidth=2))
            number = axes.text(i + 0.5, t + 0.42, f"{self.numbers[t, i]:.1f}", fontsize=FONT + 1)
            self.names[t, i] = axes.text(i + 0.5, t + 0.82, "", fontsize=10)
            for text in (number, self.names[t, i]):
                text.set(ha="center", va="center")
            self.numbers_drawn[t, i] = number
        fix_layout(figure)
        return figure

    def move(self) -> None:
        for cell, head in np.ndenumerate(self.owner):
            ground = HEAD_COLOURS[int(head)] if head >= 0 else "white"
            self.cells[cell].set_facecolor(ground)
            for text in (self.numbers_drawn[cell], self.names[cell]):
                text.set_color(ink_on(ground))
            self.names[cell].set_text(f"head {int(head)}" if head >= 0 else "no head")
        self.headline.set_text(self.title)


# ------------------------------------------------------------------------------------------------- multi-head attention
def heads_pipeline(words: Sequence[str], weights: np.ndarray, d_model: int, layer: int) -> Figure:
    """Draw multi-head attention: each head projects x and mixes the words in its own way, and W_O mixes the heads.

    weights: (H, T, T) of that layer for these T words. Next to each map is the word that the last word attends to most.
    """
    H, T, _ = weights.shape
    D = d_model // H
    figure, axes = new_figure(WIDE, 5.2)
    figure.set_layout_engine(None)
    axes.set_position((0, 0, 1, 0.93))
    axes.set(xlim=(0, WIDE), ylim=(0, 0.93 * 5.2), aspect="equal")
    axes.axis("off")
    high, step = 0.86, 0.98  # of a head's boxes, and from one head to the next
    lows = [0.62 + step * (H - 1 - head) for head in range(H)]
    middle = (lows[0] + high + lows[-1]) / 2

    def box(x: float, y: float, width: float, height: float, told: str, color: str) -> None:
        axes.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor=INK, linewidth=1))
        ink = ink_on(color)
        axes.text(x + width / 2, y + height / 2, told, ha="center", va="center", fontsize=9.5, color=ink)

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        axes.add_patch(
            FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=INK, shrinkA=0, shrinkB=0)
        )

    box(0.1, middle - 1, 0.85, 2, f"x\n({T}, {d_model})\n\none row\nper word", LIGHT)
    for head, low in enumerate(lows):
        centre, color = low + high / 2, HEAD_COLOURS[head]
        arrow((0.97, middle + 0.5 * (centre - middle)), (1.43, centre))
        box(1.45, low, 1.12, high, f"head {head}\nQ, K, V\n({T}, {D}) each", color)
        arrow((2.59, centre), (2.86, centre))
        axes.imshow(weights[head], cmap="Greys", vmin=0, vmax=1, extent=(2.88, 2.88 + high, low, low + high), zorder=2)
        axes.add_patch(Rectangle((2.88, low), high, high, fill=False, edgecolor=INK, linewidth=1, zorder=3))
        most = int(weights[head, -1].argmax())
        told = "itself" if most == T - 1 else f"“{words[most]}”"
        axes.text(
            3.82,
            centre,
            f"“{words[-1]}” looks\nat {told}: {weights[head, -1, most]:.2f}",
            fontsize=9.5,
            va="center",
            color=INK,
        )
        arrow((5.02, centre), (5.29, centre))
        box(5.31, low, 0.85, high, f"mix\n({T}, {D})", color)
        arrow((6.18, centre), (6.52, middle + 0.5 * (centre - middle)))
        box(6.54, middle + 1 - 2 * (head + 1) / H, 0.62, 2 / H, f"head {head}", color)
    axes.text(6.85, middle + 1.08, f"side by side\n({T}, {d_model})", ha="center", va="bottom", fontsize=9.5, color=INK)
    arrow((7.18, middle), (7.46, middle))
    box(7.48, middle - 1, 0.82, 2, f"y\n({T}, {d_model})\n\nevery head\nin every\nfeature", LIGHT)
    for x, told in (
        (1.9, f"× $W_Q, W_K, W_V$\n{d_model} × {D} each"),
        (3.85, rf"softmax($Q\,K^\top / \sqrt{{{D}}}$)" f"\n({T}, {T}) each"),
        (5.73, "× $V$"),
        (7.32, f"× $W_O$\n{d_model} × {d_model}"),
    ):
        axes.text(x, 0.5, told, ha="center", va="top", fontsize=9.5, color=INK)
    headline(figure).set_text(
        f"Layer {layer} reads the sentence: {H} heads mix the words in {H} ways, and $W_O$ mixes the heads"
    )
    return figure


# ---------------------------------------------------------------------------------------------- two ways to copy a list
def two_copiers(panels: Sequence[tuple[str, Sequence[str], np.ndarray, int, int]]) -> Figure:
    """Draw the weights of a head where two rules of copying disagree, one panel for each head.

    panels: (name, words, weights of the last word (T,), index of the third word of the list, index of the word that
    followed the last word earlier).
    """
    figure, axes = new_panels(WIDE, 4.4, len(panels))
    for panel, (name, words, weights, third, followed) in zip(axes, panels):
        colors = [GREEN if t == third else ORANGE if t == followed else GREY for t in range(len(words))]
        panel.barh(range(len(words)), weights, color=colors)
        panel.set_yticks(range(len(words)), words, fontsize=10)
        panel.set(xlim=(0, 1.6), xticks=[0, 0.5, 1], ylim=(len(words) - 0.5, -0.5), xlabel="weight from the last word")
        panel.set_title(name, fontsize=FONT)
        for t, told in ((third, "third of the list"), (followed, f"what followed {words[-1]}")):
            panel.text(weights[t] + 0.03, t, f"{weights[t]:.2f} {told}", va="center", fontsize=10, color=INK)
    headline(figure).set_text("Two heads that copy: one counts, the other looks up what followed")
    return figure


# ----------------------------------------------------------------------------------------------- eight steps, with
# costs
@dataclass
class StepsAndCosts(Drawing):
    """Draw the steps of multi-head attention, one line each.

    rows: (step, shape, numbers in the result, parameters, FLOPs). A step without a shape has only its name. A bar shows
    each step's fraction of the FLOPs.
    """

    rows: Sequence[tuple[str, str, int, int, int]]
    title: str

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 0.95 + 0.4 * len(self.rows))
        figure.set_layout_engine(None)
        axes.set_position((0.01, 0.01, 0.98, 0.86))
        axes.axis("off")
        axes.set(xlim=(0, 1), ylim=(len(self.rows) - 0.4, -1.1))
        columns: list[tuple[float, str, Side]] = [
            (0, "step", "left"),
            (0.265, "shape", "left"),
            (0.545, "numbers", "right"),
            (0.68, "parameters", "right"),
            (0.715, "work (FLOPs, share)", "left"),
        ]
        for x, name, side in columns:
            axes.text(x, -0.75, name, ha=side, va="center", fontsize=FONT, color=INK, weight="bold")
        axes.axhline(-0.42, color=GREY, linewidth=1)
        self.headline = headline(figure)
        self.bars, self.texts = [], []
        for y in range(len(self.rows)):
            line = [axes.text(x, y, "", ha=side, va="center", fontsize=FONT, color=INK) for x, _, side in columns]
            line[1].set(family="monospace", fontsize=9.5)
            self.texts.append(line)
            self.bars.append(Rectangle((0.715, y - 0.3), 0, 0.6, color=BLUE, linewidth=0))
            axes.add_patch(self.bars[-1])
        return figure

    def move(self) -> None:
        work = sum(row[4] for row in self.rows)
        for (step, shape, numbers, parameters, flops), line, bar in zip(self.rows, self.texts, self.bars):
            share = flops / work if work else 0
            bar.set_width(0.14 * share)
            told = f"{short(flops)} · {percent(share)}" if flops else "none" if shape else ""
            amounts = short(numbers) if shape else "", short(parameters) if parameters else "–" if shape else ""
            for text, said in zip(line, (step, shape, *amounts, told)):
                text.set_text(said)
            line[4].set_x(0.725 + 0.14 * share if flops else 0.715)
        self.headline.set_text(self.title)


# ------------------------------------------------------------------------------------------------- a head at a question
@dataclass
class HeadAtWork(Drawing):
    """Draw one head's weights from the last word, and the next word's probabilities with and without the head.

    weights: (T,). candidates: words; with_head, without: their probabilities. Only the last 16 words are shown.
    """

    words: Sequence[str]
    weights: np.ndarray
    candidates: Sequence[str]
    with_head: np.ndarray
    without: np.ndarray
    title: str
    MOST: ClassVar[int] = 16

    def build(self) -> Figure:
        most = self.MOST
        figure, (left, right) = new_panels(WIDE, 4.4, 2)
        self.headline, self.left, self.right = headline(figure), left, right
        self.weight_bars = left.barh(range(most), [0.0] * most, color=BLUE)
        left.set(xlim=(0, 1.02), ylim=(most - 0.5, -0.5), xlabel="weight from the last word")
        rows = np.arange(len(self.candidates))
        self.with_bars = right.barh(rows - 0.2, [0.0] * len(rows), 0.38, color=BLUE)
        self.without_bars = right.barh(rows + 0.2, [0.0] * len(rows), 0.38, color="white", edgecolor=RED, hatch="///")
        self.numbers = [
            right.text(0, row + shift, "", fontsize=10, va="center", color=INK) for shift in (-0.2, 0.2) for row in rows
        ]
        right.set(
            xlim=(0, 1.6), xticks=[0, 0.5, 1], ylim=(len(rows) - 0.5, -0.5), xlabel="probability of the next word"
        )
        left.set_yticks(range(most), ["m" * 9] * most, fontsize=10)
        right.set_yticks(rows, ["m" * 9] * len(rows), fontsize=FONT)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        words, weights = self.words[-self.MOST :], self.weights[-self.MOST :]
        self.left.set_ylim(len(words) - 0.5, -0.5)
        self.left.set_yticks(range(len(words)), words, fontsize=10)
        for row, bar in enumerate(self.weight_bars):
            bar.set_width(weights[row] if row < len(words) else 0)
        self.right.set_yticks(range(len(self.candidates)), self.candidates, fontsize=FONT)
        both = [*zip(self.with_bars, self.with_head, ["with it"] * len(self.with_head))]
        both += [*zip(self.without_bars, self.without, ["without"] * len(self.without))]
        for (bar, probability, name), number in zip(both, self.numbers):
            bar.set_width(probability)
            number.set(x=probability + 0.02, text=f"{probability:.2f} {name}")
        self.headline.set_text(self.title)


# ---------------------------------------------------------------------------------------- what removing each head costs
def costs_of_removal(costs: np.ndarray, heads: Sequence[str], asked: Sequence[str], title: str) -> Figure:
    """Draw the nats lost without each head: costs (number of heads, columns); the first column is all stories."""
    figure, axes = new_figure(WIDE, 1.9 + 0.3 * len(heads))
    image = axes.imshow(np.clip(costs, 0, None), cmap="Oranges", vmin=0, vmax=3, aspect="auto")
    axes.set_xticks(range(len(asked)), asked, rotation=30, ha="left", fontsize=10)
    axes.set_yticks(range(len(heads)), heads, fontsize=10)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.axvline(0.5, color=INK, linewidth=1.5)
    for (row, column), cost in np.ndenumerate(costs):
        told = f"{cost:.1f}" if column else f"{cost:.2f}"
        if float(told):
            ink = ink_on(image.cmap(image.norm(cost)))
            axes.text(column, row, told, ha="center", va="center", fontsize=10, color=ink)
    for row in range(4, len(heads), 4):
        axes.axhline(row - 0.5, color=LIGHT, linewidth=2)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.01, extend="max")
    bar.set_label("nats lost without the head", size=FONT)
    bar.ax.tick_params(labelsize=10)
    headline(figure).set_text(title)
    return figure


def loss_by_heads(n_heads: Sequence[int], losses: Sequence[float], d_model: int) -> Figure:
    """Draw the loss after the same training, one point for each number of heads."""
    figure, axes = new_figure(7.5, 3.6)
    points = range(len(n_heads))
    axes.plot(points, losses, "o-", color=BLUE, markersize=9)
    for x, loss in zip(points, losses):
        axes.annotate(f"{loss:.2f}", (x, loss), xytext=(0, 10), textcoords="offset points", ha="center", fontsize=FONT)
    axes.set_xticks(points, [f"{count}\n({d_model // count} features each)" for count in n_heads])
    spread = max(losses) - min(losses)
    axes.set_ylim(min(losses) - 0.3 * spread - 0.02, max(losses) + 0.5 * spread + 0.02)
    axes.set(xlabel="heads", ylabel="loss (nats per token)", xlim=(-0.5, len(n_heads) - 0.5))
    best, others = min(points, key=lambda x: losses[x]), [str(count) for count in n_heads]
    lowest = others.pop(best)
    ends = "heads end" if lowest != "1" else "head ends"
    axes.set_title(f"{lowest} {ends} lower than {' or '.join(others)}", loc="left")
    return figure


# ------------------------------------------------------------------------------------------- what carries a difference
@dataclass
class CarriedShares(Drawing):
    """Draw a map of parts and positions: how much of the difference between two texts each part carries there.

    shares: (number of parts, number of positions); 1 is all of it, and below 0 is the other direction. At most 16 × 16.
    words: the token at each position, "old → new" where the texts differ.
    """

    parts: Sequence[str]
    words: Sequence[str]
    shares: np.ndarray
    title: str

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 4.1)
        self.axes, self.headline = axes, headline(figure)
        self.image = axes.imshow(np.zeros((16, 16)), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.xaxis.tick_top()
        axes.set_yticks([0], ["layer 0, head 0"], fontsize=10)
        axes.set_xticks([0], ["m" * 12], fontsize=10, rotation=30, ha="left", rotation_mode="anchor")
        bar = figure.colorbar(self.image, ax=axes, fraction=0.04, pad=0.02)
        bar.set_label("fraction of the full change", size=FONT)
        bar.ax.tick_params(labelsize=10)
        self.numbers = [
            [axes.text(x, y, "", ha="center", va="center", fontsize=9) for x in range(16)] for y in range(16)
        ]
        fix_layout(figure)
        return figure

    def move(self) -> None:
        rows, columns = self.shares.shape
        self.image.set_data(self.shares)
        self.image.set_extent((-0.5, columns - 0.5, rows - 0.5, -0.5))
        self.axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
        self.axes.set_yticks(range(rows), self.parts, fontsize=10)
        self.axes.set_xticks(range(columns), self.words, fontsize=10, rotation=30, ha="left", rotation_mode="anchor")
        for y, line in enumerate(self.numbers):
            for x, number in enumerate(line):
                share = self.shares[y, x] if y < rows and x < columns else 0.0
                told = f"{share:.1f}" if abs(share) >= 0.05 else ""
                number.set(text=told, color=ink_on(self.image.cmap(self.image.norm(np.asarray(share)))))
        self.headline.set_text(self.title)
