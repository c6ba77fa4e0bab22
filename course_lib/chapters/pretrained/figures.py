"""Figures of chapter 15: what a place in a sentence looks at, in one head and in all; how near sentences are."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from course_lib.live.drawing import BLUE, FONT, GREY, INK, ORANGE, TITLE, fix_layout, headline, new_figure

THICK = 7  # width of a line of weight 1, in points
FAINT = 0.03  # lines of less weight are left out
WIDE = 9.0  # inches: fits a 1280-pixel JupyterLab with its file browser open


def attention_lines(
    weights: np.ndarray,
    tokens: Sequence[str],
    layer: int,
    head: int,
    query: int,
    places: int,
    figure: Figure | None = None,
) -> Figure:
    """Left: lines from each token to those that one head looks at, as thick as the weight; the asking one in orange.
    Right: what the asking token looks at in every head of every layer.

    Args:
        weights: (L, H, T, T), rows are queries. tokens: T texts. places: room for so many tokens, T or more.
    """
    L, H, T, _ = weights.shape
    if figure is None:
        figure, (left, right) = new_figure(WIDE, max(4.2, 1.6 + 0.21 * places), 1, 2, width_ratios=[1, 1.25])
        left.set(xlim=(-0.75, 1.75), ylim=(places - 0.3, -1.4), xticks=[], yticks=[])
        left.spines[:].set_visible(False)
        sides = ((-0.06, "right", "asks"), (1.06, "left", "is looked at"))
        for x, side, name in sides:
            left.text(x, -0.95, name, ha=side, fontsize=FONT, color=INK, style="italic")
        parts = SimpleNamespace()
        parts.words = [
            [left.text(x, i, "", ha=side, va="center", fontsize=FONT) for i in range(places)] for x, side, _ in sides
        ]
        parts.others = left.add_collection(LineCollection([], colors=BLUE, alpha=0.25))
        parts.asking = left.add_collection(LineCollection([], colors=ORANGE, zorder=3))
        parts.image = right.imshow(np.zeros((L * H, places)), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        right.set_yticks([H * i + (H - 1) / 2 for i in range(L)][:: max(1, L // 10)])
        right.set_yticklabels([f"layer {i}" for i in range(L)][:: max(1, L // 10)])
        right.set_xticks(range(places))
        right.tick_params(length=0)
        right.hlines([H * i - 0.5 for i in range(1, L)], -0.5, places - 0.5, color=GREY, linewidth=0.6)
        (parts.row,) = right.plot([], [], color=ORANGE, linewidth=2 if L * H <= 24 else 0)  # thin rows: a mark alone
        (parts.mark,) = right.plot([], [], "<", color=ORANGE, markersize=9, clip_on=False)
        parts.mark.set_in_layout(False)
        bar = figure.colorbar(parts.image, ax=right, fraction=0.04, pad=0.045)
        bar.ax.tick_params(labelsize=FONT - 1)
        bar.set_label("weight", size=FONT)
        parts.right = right.set_title(" ", fontsize=FONT, loc="left")
        parts.title = headline(figure)
        right.set_xticklabels(["n" * max(map(len, tokens))] * places, rotation=90)  # room for the longest
        figure.parts = parts
        fix_layout(figure)
    parts, right = figure.parts, figure.axes[1]
    shown = [*tokens, *[""] * (places - T)]
    for words in parts.words:
        for word, token in zip(words, shown):
            word.set(text=token, weight="normal", color=INK)
    parts.words[0][query].set(weight="bold", color=ORANGE)
    for lines, queries in ((parts.asking, [query]), (parts.others, [i for i in range(T) if i != query])):
        pairs = [(i, j) for i in queries for j in range(T) if weights[layer, head, i, j] > FAINT]
        lines.set_segments([[(0, i), (1, j)] for i, j in pairs])
        lines.set_linewidths([THICK * weights[layer, head, i, j] for i, j in pairs])
    rows = np.full((L * H, places), np.nan)
    rows[:, :T] = weights[:, :, query].reshape(L * H, T)
    parts.image.set_data(rows)
    row = H * layer + head
    parts.row.set_data([-0.5, T - 0.5, T - 0.5, -0.5, -0.5], [row - 0.5, row - 0.5, row + 0.5, row + 0.5, row - 0.5])
    parts.mark.set_data([places - 0.5 + 0.013 * places], [row])
    right.set_xticklabels(shown)
    parts.right.set_text(f"“{tokens[query]}” in every head ({H} to a layer)")
    best = int(weights[layer, head, query].argmax())
    parts.title.set_text(
        f"Layer {layer}, head {head}: “{tokens[query]}” looks most at “{tokens[best]}” "
        f"({weights[layer, head, query, best]:.2f})"
    )
    return figure


def similarity_map(similarity: np.ndarray, sentences: Sequence[str], title: str) -> Figure:
    """Cosines (N, N) between the vectors of N sentences, with the numbers in the cells."""
    N = len(sentences)
    figure, axes = new_figure(9.4, 1.5 + 0.5 * N)
    image = axes.imshow(similarity, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set(xticks=range(N), xticklabels=[f"{i + 1}" for i in range(N)], yticks=range(N))
    axes.set_yticklabels([f"{sentence}  {i + 1}" for i, sentence in enumerate(sentences)])
    axes.set_xlabel("sentence")
    axes.tick_params(length=0)
    for i in range(N):
        for j in range(N):
            color = "white" if similarity[i, j] > 0.6 else INK
            axes.text(j, i, f"{similarity[i, j]:.2f}", ha="center", va="center", fontsize=FONT - 1, color=color)
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
    bar.ax.tick_params(labelsize=FONT - 1)
    bar.set_label("cosine", size=FONT)
    figure.suptitle(title, fontsize=TITLE, x=0.01, ha="left")
    return figure
