"""Figures that several chapters draw: weights as bars, masks side by side, the distribution of the next token."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text

from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure, new_panels
from course_lib.live.numbers import entropy
from course_lib.live.palette import BLUE, FONT, GREY, INK, LIGHT, ORANGE, RED, SKY, TITLE

SCALES = (0.25, 0.5, 1.0)  # the axis of `NextToken` ends at one of these, so that it rarely changes


# ------------------------------------------------------------------------------------------------------ weights as bars
@dataclass
class WeightBars(Drawing):
    """One horizontal bar for each key, with its weight as a number."""

    labels: Sequence[str]
    weights: np.ndarray
    title: str
    xlabel: str = "weight"

    def build(self) -> Figure:
        figure, axes = new_figure(8.0, 1.1 + 0.36 * len(self.labels))
        self.headline, self.axes = headline(figure), axes
        self.bars, self.numbers = empty_bars(axes, self.labels, BLUE)
        axes.set_xlabel(self.xlabel)
        return figure

    def move(self) -> None:
        set_bars(self.bars, self.numbers, self.weights)
        self.axes.set_yticklabels(self.labels)
        self.headline.set_text(self.title)


def empty_bars(axes: Axes, labels: Sequence[str], color: str) -> tuple[BarContainer, list[Text]]:
    """Return empty horizontal bars, with the first label at the top, and the texts at their ends."""
    places = range(len(labels))
    bars = axes.barh(places, [0.0] * len(labels), color=color, edgecolor=INK, linewidth=0.5)
    axes.set(
        xlim=(0, 1.2), xticks=[0, 0.25, 0.5, 0.75, 1], yticks=places, yticklabels=labels, ylim=(len(labels) - 0.5, -0.5)
    )
    return bars, [axes.text(0, place, "", fontsize=FONT, va="center", clip_on=True) for place in places]


def set_bars(bars: BarContainer, numbers: list[Text], lengths: np.ndarray, beside: np.ndarray | None = None) -> None:
    """Set lengths and numbers, with "?" for a value that is not finite. `beside`: outlines that the numbers must not
    touch."""
    for bar, number, length, outline in zip(bars, numbers, lengths, lengths if beside is None else beside):
        finite = bool(np.isfinite(length))
        bar.set_width(length if finite else 0)
        number.set(x=np.nanmax([length if finite else 0, outline, 0]) + 0.02, text=f"{length:.2f}" if finite else "?")


# ------------------------------------------------------------------------------------------------------------- patterns
@dataclass
class Patterns(Drawing):
    """Masks (T, T) side by side, True = may attend. The chosen one is framed, and the title has its count.

    sources: name of a mask -> its number of source tokens; two dashed lines mark the beginning of the target.
    """

    masks: Mapping[str, np.ndarray]
    chosen: str
    sources: Mapping[str, int]
    title: str = ""

    def build(self) -> Figure:
        figure, panels = new_panels(8.4, 3.5, len(self.masks))
        self.headline = headline(figure)
        self.images, self.names, self.edges = [], [], []
        for axes, name in zip(panels, self.masks):
            self.images.append(axes.imshow([[0]], cmap=ListedColormap(["white", SKY]), vmin=0, vmax=1))
            self.names.append(axes.set_title(name, fontsize=FONT))
            axes.set(xlabel="key: who is looked at", xlim=(-0.5, 15.5), ylim=(15.5, -0.5), xticks=[0, 15], yticks=[15])
            axes.spines[:].set_visible(True)
            style: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1.5}
            self.edges.append((axes.axhline(0, **style), axes.axvline(0, **style)))
        panels[0].set_ylabel("query: who looks")
        fix_layout(figure)
        return figure

    def move(self) -> None:
        T = len(next(iter(self.masks.values())))
        ticks = range(0, T, 1 if T <= 8 else 2 if T <= 12 else 3)
        each = zip(self.figure.axes, self.images, self.names, self.edges, self.masks.items())
        for axes, image, text, edges, (name, mask) in each:
            image.set_data(mask.astype(int))
            image.set_extent((-0.5, T - 0.5, T - 0.5, -0.5))
            axes.set(xlim=(-0.5, T - 0.5), ylim=(T - 0.5, -0.5), xticks=ticks, yticks=ticks)
            axes.set_xticks(np.arange(-0.5, T), minor=True)
            axes.set_yticks(np.arange(-0.5, T), minor=True)
            axes.grid(which="minor", color=LIGHT, linewidth=0.8)
            axes.tick_params(which="minor", length=0)
            source = self.sources.get(name, 0)
            for edge, set_place in zip(edges, (edges[0].set_ydata, edges[1].set_xdata)):
                set_place([source - 0.5] * 2)
                edge.set_visible(0 < source < T)
            here = name == self.chosen
            for spine in axes.spines.values():
                spine.set(color=RED if here else GREY, linewidth=3 if here else 1)
            text.set_text(f"▸ {name}" if here else name)
        count = int(self.masks[self.chosen].sum())
        self.headline.set_text(self.title or f"{self.chosen}: {count} of {T * T} pairs may attend (coloured)")


# ------------------------------------------------------------------------------------------------------- the next token
@dataclass
class NextToken(Drawing):
    """The distribution from which the next token is sampled, with the model's own and, if known, the true one.

    Args:
        tokens: V names.
        model, now, truth: (V,) probabilities; a token with `now` = 0 is cut.
        rows: the number of tokens with a bar of their own: the most probable ones in model or truth. The others share
            one bar.
        room: a name as long as the longest that later data have.
    """

    tokens: Sequence[str]
    model: np.ndarray
    now: np.ndarray
    truth: np.ndarray | None = None
    rows: int = 12
    model_name: str = "the model, T = 1"
    now_name: str = "with these settings"
    truth_name: str = "Tinytown's exact chance"
    title: str = ""
    room: str = ""

    def named(self) -> tuple[list[str], list[np.ndarray]]:
        """Return the names of the rows, and the bars of each distribution: the model's, the present one, the truth."""
        chosen, others = most_probable(self.model, self.truth, self.rows)
        names = [self.tokens[i] for i in chosen] + ([f"{len(others):,} more"] if len(others) else [])
        each = self.model, self.now, self.model if self.truth is None else self.truth
        return names, [_with_the_rest(p, chosen, others) for p in each]

    def build(self) -> Figure:
        names, _ = self.named()
        figure, self.axes = new_figure(8.4, 0.95 + 0.29 * len(names))
        axes, places = self.axes, np.arange(len(names))
        self.now_bars = axes.barh(places, 0 * places, height=0.66, color=BLUE)
        self.model_bars = axes.barh(places, 0 * places, height=0.86, fill=False, edgecolor=GREY, linewidth=1.2)
        (self.truth_marks,) = axes.plot(0 * places, places, "D", color=ORANGE, markeredgecolor=INK, markersize=7)
        self.numbers = [
            axes.text(0, place, "", fontsize=FONT - 1, va="center", color=INK) for place in range(len(names))
        ]
        axes.set(yticks=places, ylim=(len(names) - 0.4, -0.6), xlabel="probability")
        axes.tick_params(axis="y", length=0)
        self.headline = axes.set_title(" ", fontsize=TITLE, loc="left")
        axes.set_yticklabels([max([*self.tokens, names[-1], self.room], key=len)] * len(names))  # room for the longest
        fix_layout(figure, w_pad=0.1, h_pad=0.08)
        return figure

    def move(self) -> None:
        names, wide = self.named()
        right = next(scale for scale in SCALES if max(p.max() for p in wide) <= scale + 1e-6)
        self.axes.set_xlim(0, 1.12 * right)
        self.axes.set_yticklabels(names)
        for bar, outline, number, p, q in zip(self.now_bars, self.model_bars, self.numbers, wide[1], wide[0]):
            bar.set_width(p)
            outline.set_width(q)
            number.set(x=max(p, q) + 0.012 * right, text=_probability(p))
        self.truth_marks.set_xdata(wide[2])
        self.truth_marks.set(visible=self.truth is not None, label=self.truth_name)
        bars = Patch(color=BLUE, label=self.now_name), Patch(fill=False, edgecolor=GREY, label=self.model_name)
        keys = bars if self.truth is None else (*bars, self.truth_marks)
        self.axes.legend(handles=keys, loc="center right", frameon=False, fontsize=FONT - 1)
        for number, p in zip(self.numbers, wide[2]):
            x = number.get_position()[0]
            if self.truth is not None and abs(p - x) < 0.1 * right:  # to the right of the diamond, not under it
                number.set_x(max(x, p + 0.025 * right))
        self.headline.set_text(self.title or what_is_left(self.tokens, self.now))


def _probability(p: float) -> str:
    return "cut" if p <= 0 else f"{p:.3f}" if p >= 0.0005 else "< 0.001"


def what_is_left(tokens: Sequence[str], now: np.ndarray) -> str:
    """Return a sentence about the tokens that remain and their entropy."""
    kept, nats = int((now > 0).sum()), entropy(now)
    if kept == 0:
        return "No token is left"
    if kept == 1:
        return f"One token is left: “{tokens[int(now.argmax())]}” is certain"
    count = f"All {kept:,} tokens" if kept == len(tokens) else f"{kept:,} of {len(tokens):,} tokens"
    as_many = f"{math.exp(nats):.1f}" if nats < math.log(1000) else f"{math.exp(nats):,.0f}"
    return f"{count} are possible; entropy {nats:.2f} nats, as in a uniform choice among {as_many}"


def most_probable(model: np.ndarray, truth: np.ndarray | None, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the tokens with their own row, most probable first, and the other indices."""
    if len(model) <= rows:
        return np.arange(len(model)), np.arange(0)
    order = np.argsort(-(model if truth is None else np.maximum(model, truth)), kind="stable")
    chosen = order[:rows]
    return chosen[np.argsort(-model[chosen], kind="stable")], order[rows:]


def _with_the_rest(p: np.ndarray, chosen: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.append(p[chosen], p[others].sum()) if len(others) else p[chosen]
