"""Figures of chapter 15: a checkpoint's tensors, attention weights, similar sentences, and forgetting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from course_lib.live.drawing import Drawing, Side, fix_layout, headline, new_figure, new_panels
from course_lib.live.palette import BLUE, FONT, GREY, INK, LIGHT, ORANGE, RED, SKY, TITLE, WIDE, ink_on
from course_lib.live.shared_figures import WeightBars

THICK = 7  # width of a line of weight 1, in points
FAINT = 0.03  # thinner lines are left out


Shape = tuple[int, ...]


def checkpoint_map(rows: Sequence[tuple[tuple[str, Shape], str, Sequence[tuple[str, Shape]]]], title: str) -> Figure:
    """Draw each tensor of a checkpoint with its name and shape, the operation on it, and our names and shapes, one per
    row.

    A square matrix that is transposed is highlighted, because its shape does not show whether it was transposed.
    """
    lines = sum(len(ours) for _, _, ours in rows)
    figure, axes = new_figure(WIDE, 0.9 + 0.36 * lines)
    y = 0.0
    for (name, shape), done, ours in rows:
        middle = y + (len(ours) - 1) / 2
        square = "transpose" in done and shape[0] == shape[-1]
        _named(axes, 0.0, middle, 3.15, name, shape, ORANGE if square else LIGHT)
        at, side = (4.05, "center") if len(ours) == 1 else (3.1, "left")  # away from the arrows that fan out
        axes.text(at, middle - (0.12 if len(ours) == 1 else 0.66), done, ha=side, va="bottom", fontsize=FONT - 1)
        for i, (our_name, our_shape) in enumerate(ours):
            arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (4.9, y + i), (3.2, middle), arrowprops=arrow, zorder=0)
            _named(axes, 4.95, y + i, 4.6, our_name, our_shape, ORANGE if square else SKY)
        y += len(ours)
    axes.text(0, -0.75, "in the file", fontsize=FONT, color=GREY)
    axes.text(4.95, -0.75, "in our model", fontsize=FONT, color=GREY)
    axes.set(xlim=(-0.05, 9.6), ylim=(y - 0.4, -1.2))
    axes.axis("off")
    axes.set_title(title, loc="left")
    return figure


def gpt2_rows(theirs: Mapping[str, Shape], ours: Mapping[str, Shape]) -> list:
    """Return the rows of `checkpoint_map` for the tables, the first block and the final norm of a GPT-2: GPT-2's shapes
    and ours, by the names of the weights."""
    steps = {
        "wte": ("as it is", ["token_embedding"]),
        "wpe": ("as it is", ["positions"]),
        "h.0.ln_1": ("as it is", ["blocks.0.norm1"]),
        "h.0.attn.c_attn": ("split, transpose", [f"blocks.0.attention.{part}_proj" for part in "qkv"]),
        "h.0.attn.c_proj": ("transpose", ["blocks.0.attention.out_proj"]),
        "h.0.ln_2": ("as it is", ["blocks.0.norm2"]),
        "h.0.mlp.c_fc": ("transpose", ["blocks.0.feed_forward.up_proj"]),
        "h.0.mlp.c_proj": ("transpose", ["blocks.0.feed_forward.down_proj"]),
        "ln_f": ("as it is", ["final_norm"]),
    }
    return [
        ((name, theirs[f"{name}.weight"]), done, [(own, ours[f"{own}.weight"]) for own in names])
        for name, (done, names) in steps.items()
    ]


def _named(axes, x: float, y: float, width: float, name: str, shape: Shape, color: str) -> None:
    box = FancyBboxPatch(
        (x + 0.05, y - 0.3), width - 0.1, 0.6, "round,pad=0.02", facecolor=color, edgecolor=INK, lw=0.6
    )
    axes.add_patch(box)
    axes.text(x + 0.12, y, name, va="center", fontsize=FONT - 1.5, color=INK)
    told = " × ".join(map(str, shape))
    axes.text(x + width - 0.12, y, told, va="center", ha="right", fontsize=FONT - 1.5, color=INK)


@dataclass
class AttentionLines(Drawing):
    """Draw one head's weights as lines on the left, and all heads' weights from one query on the right.

    On the left, lines go from each token to those that it attends to, as thick as the weight; the query is orange.

    Args:
        weights: (L, H, T, T), rows are queries.
        tokens: T texts.
        places: the number of tokens for which there is room, at least T.
    """

    weights: np.ndarray
    tokens: Sequence[str]
    layer: int
    head: int
    query: int
    places: int

    def build(self) -> Figure:
        L, H, *_ = self.weights.shape
        figure, (left, right) = new_panels(WIDE, max(4.2, 1.6 + 0.21 * self.places), 2, width_ratios=[1, 1.25])
        left.set(xlim=(-0.75, 1.75), ylim=(self.places - 0.3, -1.4), xticks=[], yticks=[])
        left.spines[:].set_visible(False)
        sides: list[tuple[float, Side, str]] = [(-0.06, "right", "query"), (1.06, "left", "key")]
        for x, side, name in sides:
            left.text(x, -0.95, name, ha=side, fontsize=FONT, color=INK, style="italic")
        self.words = [
            [left.text(x, i, "", ha=side, va="center", fontsize=FONT) for i in range(self.places)]
            for x, side, _ in sides
        ]
        self.others = LineCollection([], colors=BLUE, alpha=0.25)
        self.asking = LineCollection([], colors=ORANGE, zorder=3)
        for lines in (self.others, self.asking):
            left.add_collection(lines)
        self.image = right.imshow(np.zeros((L * H, self.places)), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        right.set_yticks([H * i + (H - 1) / 2 for i in range(L)][:: max(1, L // 10)])
        right.set_yticklabels([f"layer {i}" for i in range(L)][:: max(1, L // 10)])
        right.set_xticks(range(self.places))
        right.tick_params(length=0)
        right.hlines([H * i - 0.5 for i in range(1, L)], -0.5, self.places - 0.5, color=GREY, linewidth=0.6)
        (self.row,) = right.plot([], [], color=ORANGE, linewidth=2 if L * H <= 24 else 0)  # thin rows have only a mark
        (self.mark,) = right.plot([], [], "<", color=ORANGE, markersize=9, clip_on=False)
        self.mark.set_in_layout(False)
        bar = figure.colorbar(self.image, ax=right, fraction=0.04, pad=0.045)
        bar.ax.tick_params(labelsize=FONT - 1)
        bar.set_label("weight", size=FONT)
        self.right = right.set_title(" ", fontsize=FONT, loc="left")
        self.headline = headline(figure)
        right.set_xticklabels(["n" * max(map(len, self.tokens))] * self.places, rotation=90)  # room for the longest
        fix_layout(figure)
        return figure

    def move(self) -> None:
        L, H, T, _ = self.weights.shape
        looks, asks = self.weights[self.layer, self.head], self.tokens[self.query]  # looks: (T, T)
        shown = [*self.tokens, *[""] * (self.places - T)]
        for words in self.words:
            for word, token in zip(words, shown):
                word.set(text=token, weight="normal")
        self.words[0][self.query].set(weight="bold")
        for lines, queries in ((self.asking, [self.query]), (self.others, [i for i in range(T) if i != self.query])):
            pairs = [(i, j) for i in queries for j in range(T) if looks[i, j] > FAINT]
            lines.set_segments([[(0, i), (1, j)] for i, j in pairs])
            lines.set_linewidth([THICK * looks[i, j] for i, j in pairs])
        rows = np.full((L * H, self.places), np.nan)
        rows[:, :T] = self.weights[:, :, self.query].reshape(L * H, T)
        self.image.set_data(rows)
        row = H * self.layer + self.head
        self.row.set_data([-0.5, T - 0.5, T - 0.5, -0.5, -0.5], [row - 0.5, row - 0.5, row + 0.5, row + 0.5, row - 0.5])
        self.mark.set_data([self.places - 0.5 + 0.013 * self.places], [row])
        self.figure.axes[1].set_xticklabels(shown)
        self.right.set_text(f"“{asks}” in every head ({H} per layer)")
        best = int(looks[self.query].argmax())
        self.headline.set_text(
            f"Layer {self.layer}, head {self.head}: “{asks}” looks most at “{self.tokens[best]}” "
            f"({looks[self.query, best]:.2f})"
        )


@dataclass
class HeadScores(WeightBars):
    """Draw one score per head, with a dashed line for uniform attention. even: the score of uniform attention."""

    xlabel: str = "mean weight"
    even: float = 0.0

    def build(self) -> Figure:
        figure = super().build()
        self.even_line = self.axes.axvline(0, color=ORANGE, linestyle="--", linewidth=1.8)
        return figure

    def move(self) -> None:
        super().move()
        self.even_line.set_xdata([self.even, self.even])


def similarity_map(similarity: np.ndarray, sentences: Sequence[str], title: str) -> Figure:
    """Draw the cosines (N, N) between the vectors of N sentences, with the numbers in the cells."""
    N = len(sentences)
    figure, axes = new_figure(WIDE, 1.5 + 0.5 * N)
    image = axes.imshow(similarity, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set(xticks=range(N), xticklabels=[f"{i + 1}" for i in range(N)], yticks=range(N))
    axes.set_yticklabels([f"{sentence}  {i + 1}" for i, sentence in enumerate(sentences)])
    axes.set_xlabel("sentence")
    axes.tick_params(length=0)
    for i in range(N):
        for j in range(N):
            ink = ink_on(image.cmap(image.norm(similarity[i, j])))
            axes.text(j, i, f"{similarity[i, j]:.2f}", ha="center", va="center", fontsize=FONT - 1, color=ink)
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
    bar.ax.tick_params(labelsize=FONT - 1)
    bar.set_label("cosine", size=FONT)
    figure.suptitle(title, fontsize=TITLE, x=0.01, ha="left")
    return figure


def attention_maps(maps: Mapping[str, tuple[Sequence[str], np.ndarray]], asks: str, title: str) -> Figure:
    """Draw one head's weights (T, T) in several sentences side by side: name -> (tokens, weights). The row of the token
    `asks` is framed.
    """
    figure, axes = new_panels(WIDE, 4.3, len(maps))
    for panel, (name, (tokens, weights)) in zip(axes, maps.items()):
        T, row = len(tokens), list(tokens).index(asks)
        image = panel.imshow(weights, cmap="Blues", vmin=0, vmax=1)
        panel.set(xticks=range(T), yticks=range(T))
        panel.set_xticklabels(tokens, rotation=90)
        panel.set_yticklabels(tokens)
        panel.tick_params(length=0, labelsize=FONT - 1.5)
        panel.add_patch(Rectangle((-0.5, row - 0.5), T, 1, fill=False, edgecolor=ORANGE, linewidth=2, clip_on=False))
        panel.set_xlabel("key")
        panel.set_title(name, fontsize=FONT, loc="left")
    axes[0].set_ylabel("query")
    bar = figure.colorbar(image, ax=list(axes), fraction=0.03, pad=0.02)
    bar.ax.tick_params(labelsize=FONT - 1)
    bar.set_label("weight", size=FONT)
    figure.suptitle(title, fontsize=TITLE, x=0.01, ha="left")
    return figure


def forgetting(paths: Mapping[str, Sequence[tuple[float, float]]], entropy: float, at: float, title: str) -> Figure:
    """Draw how much each method of fine-tuning forgets while it learns.

    paths: name -> (loss in the new town, loss in the old town) at every evaluation. at: the loss in the new town at
    which we compare the methods.
    """
    figure, axes = new_figure(WIDE, 3.9)
    looks = tuple(zip(paths.items(), (BLUE, RED, INK), "os^"))
    for (_, seen), color, mark in looks:
        axes.plot(*zip(*seen), marker=mark, color=color, markersize=5)
    for i, ((name, _), color, mark) in enumerate(looks):
        y = 0.92 - 0.1 * i
        axes.plot([0.03], [y], mark, color=color, markersize=5, transform=axes.transAxes)
        axes.text(0.05, y, name, transform=axes.transAxes, va="center", color=color, fontsize=FONT)
    axes.axvline(entropy, color=GREY, linestyle=":")
    axes.axhline(entropy, color=GREY, linestyle=":")
    axes.axvline(at, color=INK, linewidth=1, linestyle="--")
    told: dict[str, Any] = {"color": INK, "fontsize": FONT, "va": "bottom"}
    above: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "va": "top"}
    axes.text(at * 1.02, 0.98, "compared here", rotation=90, ha="right", **(told | above))
    axes.text(entropy * 1.01, entropy, "entropy", rotation=90, ha="right", **told)
    axes.text(1.2, entropy, "entropy", ha="center", **told)
    before, *_ = next(iter(paths.values()))
    axes.annotate("before", before, (-8, 4), textcoords="offset points", ha="right", **told)
    axes.set(
        xscale="log", xlabel="loss in the second town, nats per token (right: better)", xlim=(1.35 * before[0], 0.6)
    )
    axes.set_ylabel("loss in Tinytown, nats per token")
    ticks = [4, 3, 2, 1.5, 1, at, entropy]
    axes.set_xticks(ticks, [f"{tick:.2f}" if tick < 1 else f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_title(title, loc="left")
    return figure
