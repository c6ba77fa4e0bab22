"""Figures of chapter 9: any tensor of a running model, the logit lens, and the first guess of an untrained model."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.live.drawing import (
    BLUE,
    DIVERGING,
    FONT,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    WIDE,
    fix_layout,
    headline,
    new_figure,
)


# ---------------------------------------------------------------------------------------- any tensor of a running model
def statistics(values: np.ndarray) -> dict[str, float]:
    """mean, std, smallest, largest, and the share of exact zeros."""
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "smallest": float(values.min()),
        "largest": float(values.max()),
        "zeros": float((values == 0).mean()),
    }


def tensor_view(
    values: np.ndarray, tokens: Sequence[str], columns: str, title: str, figure: Figure | None = None
) -> Figure:
    """A matrix (T, n) as a heat map, one row per token, and beside it how its numbers are spread.

    columns: what the columns are, such as "feature". If there are as many columns as tokens and they are keys, they
    carry the tokens' names. Numbers without a sign are drawn from white to blue; others red above 0, blue below.
    """
    T, n = values.shape
    if figure is None:
        figure, (left, right) = new_figure(WIDE, max(3.6, 1.6 + 0.19 * T), 1, 2, width_ratios=[1.9, 1])
        image = left.imshow(np.zeros((T, 2)), aspect="auto", interpolation="nearest")
        left.set_yticks(range(T), tokens)
        left.tick_params(length=0)
        bar = figure.colorbar(image, ax=left, fraction=0.04, pad=0.02)
        bar.ax.tick_params(labelsize=FONT - 1)
        right.set(xlabel="value", ylabel="share of the numbers (%)")
        left.set(xlabel="feature", ylabel="token")
        left.set_xticks(range(T), tokens, rotation=90)  # room for the tallest labels that can stand here
        parts = SimpleNamespace(image=image, left=left, right=right, title=headline(figure))
        parts.bars = right.bar(np.arange(30), np.zeros(30), color=BLUE, width=1, align="edge")
        figure.parts = parts
        fix_layout(figure)
        place = right.get_position()
        right.set_position((place.x0, place.y0, 0.96 - place.x0, place.height))  # room for the last number below it
        right.locator_params(axis="x", nbins=4)
    parts = figure.parts
    signed = bool(values.min() < 0)
    largest = float(np.abs(values).max()) or 1.0
    parts.image.set_data(values)
    parts.image.set_extent((-0.5, n - 0.5, T - 0.5, -0.5))
    parts.image.set_cmap(DIVERGING if signed else "Blues")
    parts.image.set_clim(-largest if signed else 0, largest)
    parts.left.set_xlabel(columns)
    if columns == "key":
        parts.left.set_xticks(range(T), tokens, rotation=90)
    else:
        parts.left.set_xticks(np.linspace(0, n - 1, 5).round().astype(int))
        parts.left.set_xticklabels(np.linspace(0, n - 1, 5).round().astype(int), rotation=0)
    parts.left.set_xlim(-0.5, n - 0.5)
    edges = np.linspace(values.min(), values.max() if values.max() > values.min() else values.min() + 1, 31)
    shares = 100 * np.histogram(values, edges)[0] / values.size
    for bar, edge, share in zip(parts.bars, edges, shares):
        bar.set(x=edge, width=edges[1] - edges[0], height=share)
    parts.right.set_xlim(edges[0], edges[-1])
    parts.right.set_ylim(0, 1.1 * shares.max())
    parts.title.set_text(title)
    return figure


# ------------------------------------------------------------------------------------------------------- the logit lens
def lens_table(
    words: Sequence[Sequence[str]],
    probabilities: np.ndarray,
    rows: Sequence[str],
    answer: str,
    title: str,
    figure: Figure | None = None,
) -> Figure:
    """For each depth the most probable next words, best first: a table of words, darker where more probable.

    words, probabilities: (depths, k). rows: names of the depths. answer: framed wherever it stands.
    """
    depths, k = probabilities.shape
    if figure is None:
        figure, axes = new_figure(WIDE, 1.3 + 0.52 * depths)
        axes.set(xlim=(-0.5, k - 0.5), ylim=(depths - 0.5, -0.5))
        axes.spines[:].set_visible(False)
        axes.set_yticks(range(depths), rows)
        axes.set_xticks(range(k), ["most probable", *(f"{place}." for place in range(2, k + 1))])
        axes.tick_params(length=0)
        axes.set_xlabel("next word, and its probability")
        parts = SimpleNamespace(title=headline(figure))
        parts.cells = [
            [axes.add_patch(Rectangle((j - 0.47, i - 0.44), 0.94, 0.88, facecolor=BLUE)) for j in range(k)]
            for i in range(depths)
        ]
        parts.texts = [
            [axes.text(j, i, "", ha="center", va="center", fontsize=FONT) for j in range(k)] for i in range(depths)
        ]
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    for i in range(depths):
        for j in range(k):
            probability = float(probabilities[i, j])
            cell, text = parts.cells[i][j], parts.texts[i][j]
            # White to blue by hand: an alpha would also fade the frame.
            blue = np.array([0x00, 0x72, 0xB2]) / 255
            cell.set_facecolor(1 - probability * (1 - blue))
            framed = words[i][j] == answer
            cell.set(edgecolor=ORANGE if framed else LIGHT, linewidth=3 if framed else 1, zorder=3 if framed else 2)
            text.set_text(f"{words[i][j]}  {probability:.2f}")
            text.set(color="white" if probability > 0.6 else INK, zorder=4)
    parts.title.set_text(title)
    return figure


def lens_curve(losses: Sequence[float], limit: float, title: str) -> Figure:
    """Loss of the logit lens behind every block, and the entropy of the text as a dotted line."""
    figure, axes = new_figure(WIDE, 3.5)
    places = range(1, len(losses) + 1)
    axes.plot(places, losses, "s-", color=BLUE, markersize=8)
    for place, loss in zip(places, losses):
        axes.text(place + 0.05, loss + 0.08, f"{loss:.1f}", fontsize=FONT, color=INK)
    axes.axhline(limit, color=GREY, linestyle=":")
    axes.text(1, limit - 0.06, "entropy of the stories: no model can beat it", fontsize=FONT - 1, color=INK, va="top")
    axes.set(xlabel="behind block", ylabel="loss (nats per token)", xticks=places, ylim=(0, max(losses) + 0.4))
    axes.set_xlim(0.8, len(losses) + 0.4)
    headline(figure).set_text(title)
    return figure


# ------------------------------------------------------------------------------------------------------ the first guess
def first_guess(
    stds: Sequence[float],
    losses: Sequence[float],
    ln_v: float,
    std: float,
    logits: np.ndarray,
    name: str,
    figure: Figure | None = None,
) -> Figure:
    """Loss of an untrained model over the spread of its token table, with ln V dotted; and the logits at one spread.

    stds, losses: the curve. std: the marked one, with its logits (any shape). name: "tied" or "untied".
    """
    if figure is None:
        figure, (left, right) = new_figure(WIDE, 3.8, 1, 2, width_ratios=[1.2, 1])
        left.set_xscale("log")
        left.set_yscale("log")
        left.set(xlabel="standard deviation of the token table", ylabel="first loss (nats per token)")
        left.set(xlim=(stds[0] / 1.4, stds[-1] * 1.4), ylim=(2.5, 600))
        left.set_xticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
        left.set_yticks([5, 10, 50, 100, 500], ["5", "10", "50", "100", "500"])
        left.minorticks_off()
        left.axhline(ln_v, color=GREY, linestyle=":")
        # Far enough below the line to stay clear of the mark.
        left.text(stds[-1] * 1.2, ln_v * 0.68, f"ln V = {ln_v:.2f}", fontsize=FONT, color=INK, ha="right", va="top")
        parts = SimpleNamespace(title=headline(figure), right=right)
        (parts.curve,) = left.plot([], [], "o-", color=BLUE, markersize=5)
        (parts.here,) = left.plot([], [], "D", color=ORANGE, markersize=11, markeredgecolor=INK)
        parts.bars = right.bar(np.arange(40), np.zeros(40), color=BLUE, width=1, align="edge")
        right.set(xlabel="logit", ylabel="share of the logits (%)")
        figure.parts = parts
        right.set_position((0.64, 0.16, 0.34, 0.70))
        left.set_position((0.09, 0.16, 0.44, 0.70))
        figure.set_layout_engine(None)
    parts = figure.parts
    loss = losses[list(stds).index(std)]
    parts.curve.set_data(stds, losses)
    parts.here.set_data([std], [loss])
    largest = float(np.abs(logits).max())
    edges = np.linspace(-largest, largest, 41)
    shares = 100 * np.histogram(logits, edges)[0] / logits.size
    for bar, edge, share in zip(parts.bars, edges, shares):
        bar.set(x=edge, width=edges[1] - edges[0], height=share)
    parts.right.set_xlim(-largest, largest)
    parts.right.set_ylim(0, 1.1 * shares.max())
    more = "is ln V" if abs(loss - ln_v) < 0.05 * ln_v else f"is {loss / ln_v:.1f} times ln V"
    parts.title.set_text(f"{name.capitalize()}, token table with std {std:g}: the first loss {more}")
    return figure
