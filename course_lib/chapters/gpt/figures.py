"""Figures of chapter 9: any tensor of a running model, the logit lens, and the first guess of an untrained model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure, new_panels
from course_lib.live.palette import BLUE, DIVERGING, FONT, GREY, INK, LIGHT, ORANGE, SKY, WIDE, YELLOW, ink_on


# ------------------------------------------------------------------------------------------------------ the whole model
def whole_model(tokens: Sequence[str], ids: Sequence[int], shapes: Mapping[str, tuple[int, ...]]) -> Figure:
    """Draw a GPT from ids to logits: the residual stream in the middle, branches on the left, explanations on the
    right.

    shapes: name of a tensor in the trace -> its shape.
    """
    figure, axes = new_figure(WIDE, 7.4)
    spine, left, right, rise = 4.9, 2.05, 6.0, 1.36
    n_blocks = sum(name.count(".") == 1 and name.startswith("blocks.") for name in shapes)
    bottom, top = 1.5, 1.5 + rise * n_blocks
    axes.set(xlim=(0, 12), ylim=(-0.75, top + 2.3), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    style: dict[str, Any] = {"fontsize": FONT - 1, "color": INK, "va": "center"}

    def box(x: float, y: float, text: str, colour: str, width: float, height: float = 0.46) -> None:
        corner = x - width / 2, y - height / 2
        axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle="round,pad=0.03", fc=colour, ec=INK, zorder=3))
        axes.text(x, y, text, ha="center", zorder=4, **style)

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        line = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=end, xytext=start, arrowprops=line)

    def shape(name: str) -> str:
        return str(shapes[name])

    last_ones = list(zip(tokens, ids))[-6:]
    for i, (token, number) in enumerate(last_ones):
        axes.text(spine + 1.15 * (i - len(last_ones) + 1), -0.25, token, ha="center", **style)
        axes.text(spine + 1.15 * (i - len(last_ones) + 1), -0.6, str(number), ha="center", **style)
    axes.text(spine - 1.15 * len(last_ones) + 0.45, -0.42, "…", ha="center", **style)
    axes.text(spine + 0.75, -0.42, f"ids {(1, len(tokens))}", ha="left", **style)
    arrow((spine, -0.08), (spine, 0.22))
    box(spine, 0.45, "token embedding + position", LIGHT, 4.0)
    axes.plot([spine, spine], [0.7, top + 0.36], color=BLUE, linewidth=7, solid_capstyle="butt", zorder=1)
    axes.text(spine + 0.25, bottom - 0.6, f"residual stream {shape('dropout')}", ha="left", **style)
    for i in range(n_blocks):
        floor = bottom + rise * i
        axes.text(-0.15, floor + 0.52, f"block\n{i + 1}", ha="left", **style)
        for text, height, colour in (
            (f"norm, attention {shape(f'blocks.{i}.attention.weights')}", 0.2, SKY),
            (f"norm, feed-forward {shape(f'blocks.{i}.feed_forward.hidden')}", 0.84, YELLOW),
        ):
            y = floor + height
            box(left + 0.55, y, text, colour, 3.8, 0.34)
            axes.plot(
                [spine, left + 0.55, left + 0.55], [y - 0.26] * 2 + [y - 0.18], color=INK, linewidth=1.2, zorder=0
            )
            arrow((left + 2.48, y), (spine - 0.1, y))
            axes.text(spine, y, "+", ha="center", zorder=4, **style | {"color": "white", "fontweight": "bold"})
    for y, said in (
        (0.45, "one vector for each token (ch. 1, 5)"),
        (bottom + 0.2, "positions exchange information (ch. 2–5)"),
        (bottom + 0.84, "each position separately (ch. 6)"),
        (bottom + rise + 0.5, "every + is a residual connection (ch. 8)"),
        (top + 0.55, "a steady size for the last step (ch. 7)"),
        (top + 1.22, "a score for each word (ch. 9)"),
    ):
        axes.text(right + (1.4 if y in (0.45, top + 1.22) else 0.75), y, said, ha="left", **style)
    box(spine, top + 0.55, f"final norm {shape('final_norm')}", "white", 2.7, 0.36)
    arrow((spine, top + 0.75), (spine, top + 1.0))
    box(spine, top + 1.22, "× the embedding table, transposed", LIGHT, 4.7, 0.36)
    arrow((spine, top + 1.42), (spine, top + 1.7))
    axes.text(spine, top + 1.95, f"logits {shape('output')}: a row for every token", ha="center", **style)
    headline(figure).set_text(f"{n_blocks} blocks add to one residual stream, and one last step turns it into logits")
    return figure


def _blue(probability: float) -> tuple[float, float, float]:
    """Mix white (0) with blue (1) by hand: an alpha would also fade the frame."""
    red, green, blue = 1 - probability * (1 - np.array([0x00, 0x72, 0xB2]) / 255)
    return red, green, blue


# ---------------------------------------------------------------------------------------- any tensor of a running model
def statistics(values: np.ndarray) -> dict[str, float]:
    """Return mean, std, smallest and largest value, and the fraction of exact zeros."""
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "smallest": float(values.min()),
        "largest": float(values.max()),
        "zeros": float((values == 0).mean()),
    }


@dataclass
class TensorView(Drawing):
    """Draw a matrix (T, n) as a heat map, one row per token, and next to it a histogram of its numbers.

    columns: what the columns are, such as "feature". If they are keys, one for each token, they show the tokens' names.
    The colours of numbers that are never negative go from white to blue; other numbers are red above 0, blue below.
    """

    values: np.ndarray
    tokens: Sequence[str]
    columns: str
    title: str

    def build(self) -> Figure:
        T = len(self.tokens)
        figure, (left, right) = new_panels(WIDE, max(3.4, 1.3 + 0.13 * T), 2, width_ratios=[1.9, 1])
        self.image = left.imshow(np.zeros((T, 2)), aspect="auto", interpolation="nearest")
        left.set_yticks(range(T), self.tokens, fontsize=FONT - 3)
        left.tick_params(length=0)
        bar = figure.colorbar(self.image, ax=left, fraction=0.04, pad=0.02)
        bar.ax.tick_params(labelsize=FONT - 1)
        right.set(xlabel="value", ylabel="fraction of the numbers (%)")
        left.set(xlabel="feature", ylabel="token")
        left.set_xticks(range(T), self.tokens, rotation=90, fontsize=FONT - 3)  # room for the tallest labels
        self.headline, self.left, self.right = headline(figure), left, right
        self.bars = right.bar(np.arange(30), np.zeros(30), color=BLUE, width=1, align="edge")
        fix_layout(figure)
        place = right.get_position()
        right.set_position((place.x0, place.y0, 0.96 - place.x0, place.height))  # room for its last number
        right.locator_params(axis="x", nbins=4)
        return figure

    def move(self) -> None:
        T, n = self.values.shape
        signed = bool(self.values.min() < 0)
        largest = float(np.abs(self.values).max()) or 1.0
        self.image.set_data(self.values)
        self.image.set_extent((-0.5, n - 0.5, T - 0.5, -0.5))
        self.image.set_cmap(DIVERGING if signed else "Blues")
        self.image.set_clim(-largest if signed else 0, largest)
        self.left.set_xlabel(self.columns)
        if self.columns == "key":
            self.left.set_xticks(range(T), self.tokens, rotation=90, fontsize=FONT - 3)
        else:
            places = np.linspace(0, n - 1, 5).round().astype(int).tolist()
            self.left.set_xticks(places, map(str, places), rotation=0, fontsize=FONT - 1)
        self.left.set_xlim(-0.5, n - 0.5)
        low, high = self.values.min(), self.values.max()
        edges = np.linspace(low, high if high > low else low + 1, 31)
        shares = 100 * np.histogram(self.values, edges)[0] / self.values.size
        for bar, edge, share in zip(self.bars, edges, shares):
            bar.set(x=edge, width=edges[1] - edges[0], height=share)
        self.right.set_xlim(edges[0], edges[-1])
        self.right.set_ylim(0, 1.1 * shares.max())
        self.headline.set_text(self.title)


# ------------------------------------------------------------------------------------------------------- the logit lens
@dataclass
class LensTable(Drawing):
    """Draw a table of the most probable next words at each depth, best first, with darker cells for larger
    probabilities.

    words, probabilities: (depths, k). rows: names of the depths. answer: the word that is framed everywhere.
    """

    words: Sequence[Sequence[str]]
    probabilities: np.ndarray
    rows: Sequence[str]
    answer: str
    title: str

    def build(self) -> Figure:
        depths, k = self.probabilities.shape
        figure, axes = new_figure(WIDE, 1.3 + 0.52 * depths)
        axes.set(xlim=(-0.5, k - 0.5), ylim=(depths - 0.5, -0.5))
        axes.spines[:].set_visible(False)
        axes.set_yticks(range(depths), self.rows)
        axes.set_xticks(range(k), ["most probable", *("2nd", "3rd", "4th", "5th")[: k - 1]])
        axes.tick_params(length=0)
        axes.set_xlabel("next word, and its probability")
        self.headline = headline(figure)
        self.cells = [
            [axes.add_patch(Rectangle((j - 0.47, i - 0.44), 0.94, 0.88, facecolor=BLUE)) for j in range(k)]
            for i in range(depths)
        ]
        self.texts = [
            [axes.text(j, i, "", ha="center", va="center", fontsize=FONT) for j in range(k)] for i in range(depths)
        ]
        fix_layout(figure)
        return figure

    def move(self) -> None:
        depths, k = self.probabilities.shape
        for i in range(depths):
            for j in range(k):
                probability = float(self.probabilities[i, j])
                cell, text = self.cells[i][j], self.texts[i][j]
                cell.set_facecolor(_blue(probability))
                framed = self.words[i][j] == self.answer
                cell.set(edgecolor=ORANGE if framed else LIGHT, linewidth=3 if framed else 1, zorder=3 if framed else 2)
                text.set_text(f"{self.words[i][j]}  {probability:.2f}")
                text.set(color=ink_on(cell.get_facecolor()), zorder=4)
        self.headline.set_text(self.title)


def lens_curve(losses: Sequence[float], limit: float, title: str, fitted: Sequence[float] = ()) -> Figure:
    """Draw the loss of the logit lens after every block, with the entropy of the text as a dotted line.

    fitted: the control, the loss of a reader that is fitted to each block.
    """
    figure, axes = new_figure(WIDE, 3.5)
    places = range(1, len(losses) + 1)
    axes.plot(places, losses, "s-", color=BLUE, markersize=8)
    for place, loss in zip(places, losses):
        named = "  logit lens" if fitted and place == 1 else ""
        axes.text(place + 0.05, loss + 0.08, f"{loss:.1f}{named}", fontsize=FONT, color=INK)
    if fitted:
        axes.plot(places, fitted, "o--", color=ORANGE, zorder=1)
        axes.text(1.05, fitted[0] + 0.08, "a reader fitted to each block", fontsize=FONT, color=INK)
    axes.axhline(limit, color=GREY, linestyle=":")
    axes.text(1, limit - 0.06, "entropy of the stories: no model can beat it", fontsize=FONT - 1, color=INK, va="top")
    axes.set(xlabel="after block", ylabel="loss (nats per token)", xticks=places, ylim=(0, max(losses) + 0.4))
    axes.set_xlim(0.8, len(losses) + 0.4)
    headline(figure).set_text(title)
    return figure


def effects(direct: Mapping[str, float], total: Mapping[str, float], title: str) -> Figure:
    """Draw two bars for each part: its direct effect on the answer, and its total effect.

    direct, total: name of a part -> its effect, as a fraction; both have the same names.
    """
    figure, axes = new_figure(WIDE, 1.2 + 0.45 * len(total))
    rows = np.arange(len(total))
    for name, values, shift, colour in (("direct", direct, -0.2, ORANGE), ("total", total, 0.2, BLUE)):
        axes.barh(rows + shift, [values[part] for part in total], 0.38, color=colour)
        for row, part in enumerate(total):
            told = f"{round(100 * values[part])}% {name}"
            axes.text(max(values[part], 0) + 0.01, row + shift, told, va="center", fontsize=FONT - 2, color=INK)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set(xlim=(min(-0.1, *direct.values()), 1.2), ylim=(len(total) - 0.5, -0.5), xlabel="effect on the answer (%)")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
    axes.set_yticks(rows, list(total))
    headline(figure).set_text(title)
    return figure


# ------------------------------------------------------------------------------------------------------ the first guess
@dataclass
class FirstGuess(Drawing):
    """Draw the first loss over the embedding table's standard deviation, with ln V dotted, and the logits at one value.

    stds, losses: the curve. std: the marked one, with its logits (any shape). name: "tied" or "untied".
    """

    stds: Sequence[float]
    losses: Sequence[float]
    ln_v: float
    std: float
    logits: np.ndarray
    name: str

    def build(self) -> Figure:
        figure, (left, right) = new_panels(WIDE, 3.8, 2, width_ratios=[1.2, 1])
        left.set_xscale("log")
        left.set_yscale("log")
        left.set(xlabel="standard deviation of the embedding table", ylabel="first loss (nats per token)")
        left.set(xlim=(self.stds[0] / 1.4, self.stds[-1] * 1.4), ylim=(2.5, 600))
        left.set_xticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
        left.set_yticks([5, 10, 50, 100, 500], ["5", "10", "50", "100", "500"])
        left.minorticks_off()
        left.axhline(self.ln_v, color=GREY, linestyle=":")
        # Far enough below the line to stay clear of the mark.
        name = left.text(self.stds[-1] * 1.2, self.ln_v * 0.68, f"ln V = {self.ln_v:.2f}", fontsize=FONT, color=INK)
        name.set(ha="right", va="top")
        self.headline, self.right = headline(figure), right
        (self.curve,) = left.plot([], [], "o-", color=BLUE, markersize=5)
        (self.here,) = left.plot([], [], "D", color=ORANGE, markersize=11, markeredgecolor=INK)
        self.bars = right.bar(np.arange(40), np.zeros(40), color=BLUE, width=1, align="edge")
        right.set(xlabel="logit", ylabel="fraction of the logits (%)")
        right.set_position((0.64, 0.16, 0.34, 0.70))
        left.set_position((0.09, 0.16, 0.44, 0.70))
        figure.set_layout_engine(None)
        return figure

    def move(self) -> None:
        loss = self.losses[list(self.stds).index(self.std)]
        self.curve.set_data(self.stds, self.losses)
        self.here.set_data([self.std], [loss])
        largest = float(np.abs(self.logits).max())
        edges = np.linspace(-largest, largest, 41)
        shares = 100 * np.histogram(self.logits, edges)[0] / self.logits.size
        for bar, edge, share in zip(self.bars, edges, shares):
            bar.set(x=edge, width=edges[1] - edges[0], height=share)
        self.right.set_xlim(-largest, largest)
        self.right.set_ylim(0, 1.1 * shares.max())
        more = "is near ln V" if abs(loss - self.ln_v) < 0.05 * self.ln_v else f"is {loss / self.ln_v:.1f} times ln V"
        self.headline.set_text(f"{self.name.capitalize()}, embeddings with std {self.std:g}: the first loss {more}")
