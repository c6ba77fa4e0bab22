"""Figures of chapter 5: who bit whom, clock hands, similarity by distance, RoPE, ALiBi, and longer texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle, FancyArrowPatch, Rectangle

from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure, new_panels
from course_lib.live.palette import (
    BLUE,
    DIVERGING,
    FONT,
    GREEN,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    PURPLE,
    RED,
    SEQUENTIAL,
    SKY,
    WIDE,
)


# -------------------------------------------------------------------------------------------------------------- who bit
def right_answers(shares: Mapping[str, float], chance: float) -> Figure:
    """Draw the fraction of correct answers of each model, with a line at the level of guessing."""
    figure, axes = new_figure(WIDE, 1.3 + 0.42 * len(shares))
    rows = range(len(shares))
    axes.barh(
        rows, list(shares.values()), color=[BLUE if share > chance + 0.1 else ORANGE for share in shares.values()]
    )
    for row, share in zip(rows, shares.values()):
        axes.text(share + 0.01, row, f"{share:.0%}", va="center", fontsize=FONT, color=INK)
    axes.axvline(chance, color=INK, linestyle=":")
    axes.text(chance + 0.01, -0.75, "guessing", fontsize=FONT - 1, color=INK)
    axes.set(yticks=rows, yticklabels=shares, ylim=(len(shares) - 0.5, -1.1), xlim=(0, 1.15))
    axes.set(xticks=[0, 0.25, 0.5, 0.75, 1], xlabel="fraction of correct answers to “who bit?”")
    learnt = [name for name, share in shares.items() if share > chance + 0.1]
    headline(figure).set_text(f"{len(learnt)} of {len(shares)} models can tell who bit; the others guess")
    return figure


# ------------------------------------------------------------------------------------------------------ the clock hands
MOST_HANDS = 8


@dataclass
class ClockHands(Drawing):
    """Draw the code of one position as clock hands, one for each pair of features, next to the table as a heat map.

    table: (positions, d_model) of sines and cosines, d_model even and at most 16. A hand points up at position 0 and
    rotates clockwise; the sine is its part to the right, the cosine its part upwards.
    """

    table: np.ndarray
    position: int
    title: str = ""

    def build(self) -> Figure:
        figure, (dial, heat) = new_panels(WIDE, 4.2, 2, width_ratios=[1.5, 1])
        dial.set(xlim=(-1.2, 9.0), ylim=(-5.4, 1.4), aspect="equal", xticks=[], yticks=[])
        dial.spines[:].set_visible(False)
        dial.set_title("one hand per pair of features", fontsize=FONT)
        self.headline = headline(figure)
        self.faces, self.hands, self.names = [], [], []
        for _ in range(MOST_HANDS):
            self.faces.append(Circle((0, 0), 1.0, facecolor=LIGHT, edgecolor=GREY))
            dial.add_patch(self.faces[-1])
            self.hands.append(dial.plot([], [], color=BLUE, linewidth=3, solid_capstyle="round")[0])
            self.names.append(dial.text(0, 0, "", ha="center", va="top", fontsize=FONT - 1, color=INK))
        extent = (-0.5, 15.5, len(self.table) - 0.5, -0.5)
        self.image = heat.imshow(self.table, cmap=DIVERGING, vmin=-1, vmax=1, aspect="auto", extent=extent)
        self.row = Rectangle((-0.5, 0), 16, 1, fill=False, edgecolor=INK, linewidth=2)
        heat.add_patch(self.row)
        heat.set(xlabel="feature (sine, cosine, sine, …)", ylabel="position (tokens)")
        heat.set_title("one row per position", fontsize=FONT)
        bar = figure.colorbar(self.image, ax=heat, fraction=0.05, pad=0.03)
        bar.ax.tick_params(labelsize=FONT - 1)
        bar.set_label("value", size=FONT)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        positions, d_model = self.table.shape
        hands = d_model // 2
        rounds = self.position / 10000 ** (2 * np.arange(hands) / d_model) / (2 * np.pi)
        for i in range(MOST_HANDS):
            shown = i < hands
            sine, cosine = self.table[self.position, 2 * i : 2 * i + 2] if shown else (0, 0)
            x, y = 2.6 * (i % 4), -3.5 * (i // 4) if hands > 4 else -1.75  # two rows of four, or one in the middle
            self.faces[i].center = x, y
            self.hands[i].set_data([x, x + 0.9 * sine], [y, y + 0.9 * cosine])
            digits = 2 if shown and rounds[i] >= 0.1 else 3
            words = f"{2 * i}, {2 * i + 1}\n{rounds[i]:.{digits}f} turns" if shown else ""
            self.names[i].set(position=(x, y - 1.15), text=words)
            self.faces[i].set_visible(shown)
            self.hands[i].set_visible(shown)
        self.image.set_data(self.table)
        self.image.set_extent((-0.5, d_model - 0.5, positions - 0.5, -0.5))
        self.figure.axes[1].set(xlim=(-0.5, d_model - 0.5), xticks=range(0, d_model, 2 if d_model > 8 else 1))
        self.row.set(y=self.position - 0.5, width=d_model)
        said = f"hand 0 has made {rounds[0]:.2f} turns, and hand {hands - 1} has made {rounds[-1]:.3f}"
        self.headline.set_text(self.title or f"Position {self.position}: {said}")


# ---------------------------------------------------------------------------------------------- similarity and distance
@dataclass
class Likeness(Drawing):
    """Draw the cosine of the codes of two positions at each distance, in both directions. curve: (furthest + 1,)."""

    curve: np.ndarray
    d_model: int

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 3.7)
        axes.axhline(0, color=GREY, linewidth=1)
        self.headline, self.axes = headline(figure), axes
        (self.line,) = axes.plot([], [], color=BLUE)
        (self.rise,) = axes.plot([], [], "o", color=ORANGE, markersize=8)
        self.note = axes.text(
            0.02, 0.92, "orange dot: the cosine rises for the first time", transform=axes.transAxes, fontsize=FONT
        )
        axes.set(ylim=(-0.75, 1.35), yticks=[-0.5, 0, 0.5, 1], ylabel="cosine of the two codes")
        axes.set_xlabel("distance (tokens); below 0: before")
        axes.set_xlim(-1000, 1000)  # room for the widest labels
        fix_layout(figure)
        return figure

    def move(self) -> None:
        furthest = len(self.curve) - 1
        self.line.set_data(np.arange(-furthest, furthest + 1), np.concatenate([self.curve[:0:-1], self.curve]))
        rises = np.flatnonzero(np.diff(self.curve) > 0)
        self.axes.set_xlim(-furthest, furthest)
        self.rise.set_data(rises[:1], self.curve[rises[:1]])
        self.note.set_visible(len(rises) > 0)
        steadily = f"the further, the less alike, up to {furthest} apart"
        said = f"less alike up to {rises[0]} apart, then up and down" if len(rises) else steadily
        self.headline.set_text(f"d_model = {self.d_model}: {said}; the same on both sides")


def learned_likeness(cosines: np.ndarray) -> Figure:
    """Draw the cosine between the rows of a learned table (P, P), and its mean at each distance."""
    P = len(cosines)
    figure, (left, right) = new_panels(WIDE, 3.9, 2, width_ratios=[1, 1.1])
    image = left.imshow(cosines, cmap=DIVERGING, vmin=-1, vmax=1)
    left.set(xlabel="position (tokens)", ylabel="position (tokens)")
    bar = figure.colorbar(image, ax=left, fraction=0.05, pad=0.03)
    bar.ax.tick_params(labelsize=FONT - 1)
    bar.set_label("cosine of two rows", size=FONT)
    means = [np.diagonal(cosines, k).mean() for k in range(1, P)]
    right.axhline(0, color=GREY, linewidth=1)
    right.plot(range(1, P), means, color=BLUE)
    right.set(xlabel="distance (tokens)", ylabel="mean cosine", ylim=(-1, 1))
    headline(figure).set_text("After training, neighbouring positions have similar rows")
    return figure


# ---------------------------------------------------------------------------------------------------------------- RoPE
def _rotated(vector: np.ndarray, angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ vector


def rotation_in_a_head(
    words: Sequence[str], query: np.ndarray, key: np.ndarray, runs: Sequence[tuple[str, int, int]], d_model: int, D: int
) -> Figure:
    """Draw where RoPE acts inside a head, and one pair of features of a query and a key at two pairs of positions.

    Args:
        words: the query's word and the key's word.
        query, key: (2,), before the rotation, which is one radian per token.
        runs: (text that is read, position of the query, position of the key).
    """
    figure, (flow, *planes) = new_panels(WIDE, 3.9, 3, width_ratios=[1.15, 1, 1])
    flow.set(xlim=(0, 3), ylim=(0, 4.4), xticks=[], yticks=[])
    flow.spines[:].set_visible(False)

    def arrow(start: tuple[float, float], end: tuple[float, float], style: str = "-|>") -> None:
        flow.add_patch(
            FancyArrowPatch(start, end, arrowstyle=style, mutation_scale=10, color=INK, shrinkA=0, shrinkB=0)
        )

    def box(x: float, y: float, width: float, told: str, color: str) -> None:
        flow.add_patch(Rectangle((x, y), width, 0.62, facecolor=color, edgecolor=INK))
        flow.text(x + width / 2, y + 0.31, told, ha="center", va="center", fontsize=9, color=INK)

    box(0.05, 3.75, 2.9, f"x  (T, {d_model})", LIGHT)
    for x, name, color in ((0.05, "q", SKY), (1.05, "k", ORANGE), (2.05, "v", LIGHT)):
        arrow((x + 0.45, 3.75), (x + 0.45, 3.29))
        flow.text(x + 0.5, 3.52, f"$W_{name.upper()}$", fontsize=10, va="center", color=INK)
        box(x, 2.67, 0.9, f"{name} (T, {D})", color)
    for x, color in ((0.05, SKY), (1.05, ORANGE)):
        arrow((x + 0.45, 2.67), (x + 0.45, 2.21))
        box(x, 1.59, 0.9, "rotated", color)
        arrow((x + 0.45, 1.59), (x + 0.45, 1.13))
    flow.text(1.0, 2.44, "by position", ha="center", va="center", fontsize=9, color=INK, backgroundcolor="white")
    box(0.05, 0.51, 1.9, "scores (T, T)", LIGHT)
    arrow((1.95, 0.82), (2.5, 0.82), "-")
    arrow((2.5, 2.67), (2.5, 0.82), "-")
    arrow((2.5, 0.82), (2.5, 0.35))
    flow.text(2.5, 0.2, "mix", ha="center", va="center", fontsize=9, color=INK)
    flow.text(2.56, 1.9, "not\nrotated", fontsize=9, va="center", color=INK)
    for plane, (told, t, s) in zip(planes, runs):
        _plane(plane, words, query, key, told, t, s)
    headline(figure).set_text("Further along the text both are rotated further; the angle between them stays the same")
    return figure


def _plane(plane: Axes, words: Sequence[str], query: np.ndarray, key: np.ndarray, told: str, t: int, s: int) -> None:
    """Draw a query at t and a key at s, before and after a rotation by one radian per token."""
    reach = 1.8 * max(np.linalg.norm(query), np.linalg.norm(key))
    ends = []
    for vector, position, name, word, color in ((query, t, "q", words[0], BLUE), (key, s, "k", words[1], ORANGE)):
        plane.plot([0, vector[0]], [0, vector[1]], color=color, linestyle=":", linewidth=1.5)
        end = _rotated(vector, position)
        plane.plot([0, end[0]], [0, end[1]], color=color, linewidth=3, marker="o", markevery=[1])
        out = end + np.array([0.31, 0.22]) * reach * end / np.linalg.norm(end)  # words are wider than they are high
        plane.text(out[0], out[1], f"{name} of\n“{word}”", ha="center", va="center", fontsize=9, color=INK)
        ends.append(end)
    low, high = sorted(np.degrees(np.arctan2(end[1], end[0])) % 360 for end in ends)
    if high - low > 180:
        low, high = high, low + 360
    size = float(0.45 * reach)
    plane.add_patch(Arc((0, 0), size, size, theta1=low, theta2=high, color=INK, linewidth=1.5))
    middle = np.radians((low + high) / 2)
    plane.text(
        0.36 * reach * np.cos(middle),
        0.36 * reach * np.sin(middle),
        f"{high - low:.0f}°",
        ha="center",
        va="center",
        fontsize=10,
        color=INK,
        zorder=4,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )
    plane.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[0], yticks=[0])
    plane.set_title(f"{told}:\nq at {t}, k at {s}, score {ends[0] @ ends[1]:.2f}".replace("-", "−"), fontsize=FONT - 1)
    plane.set(xlabel="first feature of the pair", ylabel="second feature")


REACH = 40  # tokens in both directions


@dataclass
class RotaryPair(Drawing):
    """Draw one pair of features: a query at position t and a key at position s (both of length 1), each rotated by
    `angle` degrees per token, and their dot product at each distance."""

    query: np.ndarray
    key: np.ndarray
    t: int
    s: int
    angle: float

    def build(self) -> Figure:
        figure, (plane, right) = new_panels(WIDE, 3.9, 2, width_ratios=[1, 1.35])
        plane.add_patch(Circle((0, 0), 1, facecolor=LIGHT, edgecolor="none", zorder=0))
        plane.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        plane.set(xlabel="first feature of the pair", ylabel="second feature")
        plane.set_title("dotted: before the rotation", fontsize=FONT)
        self.headline = headline(figure)
        self.arrows, self.names = [], []
        for vector, color in ((self.query, BLUE), (self.key, ORANGE)):
            plane.plot([0, vector[0]], [0, vector[1]], color=color, linestyle=":", linewidth=1.5)
            self.arrows.append(plane.plot([], [], color=color, linewidth=3, marker="o", markevery=[1])[0])
            self.names.append(plane.text(0, 0, "", fontsize=FONT, color=INK, ha="center", va="center", weight="bold"))
        right.axhline(0, color=GREY, linewidth=1)
        (self.curve,) = right.plot([], [], color=PURPLE)
        (self.here,) = right.plot([], [], "o", color=RED, markersize=10)
        right.set(xlim=(-REACH - 2, REACH + 2), ylim=(-1.3, 1.3), ylabel="score: q · k")
        right.set_xlabel("position of q − position of k (tokens)")
        right.set_title("the score at every distance", fontsize=FONT)
        fix_layout(figure)
        return figure

    def rotated(self, vector: np.ndarray, position: int) -> np.ndarray:
        a = np.radians(self.angle * position)
        return np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) @ vector

    def move(self) -> None:

        ends = self.rotated(self.query, self.t), self.rotated(self.key, self.s)
        for end, arrow, name, text, out in zip(ends, self.arrows, self.names, ("q", "k"), (1.18, 1.38)):
            arrow.set_data([0, end[0]], [0, end[1]])
            name.set(position=out * end, text=text)
        distances = np.arange(-REACH, REACH + 1)
        self.curve.set_data(distances, [self.rotated(self.query, d) @ self.key for d in distances.tolist()])
        score = ends[0] @ ends[1]
        self.here.set_data([self.t - self.s], [score])
        where = f"query at {self.t}, key at {self.s}, distance {self.t - self.s}"
        self.headline.set_text(f"Only the distance counts: {where}: score {score:.2f}".replace("-", "−"))


@dataclass
class RotaryScores(Drawing):
    """Draw the scores of one query and one key at each distance, from two positions of the query, and the library's."""

    distances: np.ndarray
    yours: np.ndarray
    elsewhere: np.ndarray
    library: np.ndarray
    title: str

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 3.7)
        axes.axhline(0, color=GREY, linewidth=1)
        self.headline = headline(figure)
        (self.library_line,) = axes.plot([], [], color=GREY, linewidth=7, alpha=0.5, label="the library's")
        (self.yours_line,) = axes.plot([], [], color=BLUE, label="yours, the query where the slider says")
        (self.elsewhere_line,) = axes.plot(
            [], [], color=ORANGE, linestyle="--", label="yours, the query at position 100"
        )
        axes.set_xlim(self.distances[0], self.distances[-1])
        axes.set(ylim=(-1.3, 1.9), yticks=[-1, 0, 1], ylabel="score: q · k")
        axes.set_xlabel("distance: position of the query − position of the key (tokens)")
        axes.legend(loc="upper center", ncols=3, fontsize=FONT - 1, frameon=False)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        lines = self.library_line, self.yours_line, self.elsewhere_line
        for line, scores in zip(lines, (self.library, self.yours, self.elsewhere)):
            line.set_data(self.distances, np.clip(scores, -9, 9))
        self.headline.set_text(self.title)


# --------------------------------------------------------------------------------------------------------------- ALiBi
@dataclass
class Eyesight(Drawing):
    """Draw ALiBi's bias for one head as a heat map (T, T), with −inf for later tokens, and the weights (T,) of the last
    query if all its scores were equal."""

    bias: np.ndarray
    weights: np.ndarray
    head: int

    def build(self) -> Figure:
        figure, (left, right) = new_panels(WIDE, 3.8, 2, width_ratios=[1, 1.4])
        hidden_grey = colormaps[SEQUENTIAL].with_extremes(bad=LIGHT)
        self.image = left.imshow(np.zeros((2, 2)), cmap=hidden_grey, vmin=-8, vmax=0)
        left.set(xlabel="key (position)", ylabel="query (position)")
        left.set_title("added to the scores", fontsize=FONT)
        colors = figure.colorbar(self.image, ax=left, fraction=0.05, pad=0.03, extend="min")
        colors.ax.tick_params(labelsize=FONT - 1)
        self.headline = headline(figure)
        self.bars = right.bar(range(32), [0.0] * 32, color=BLUE)
        right.set(ylim=(0, 0.65), xlabel="key (position)", ylabel="weight")
        right.set_title("the last token's weights, if all scores are equal", fontsize=FONT)
        fix_layout(figure, w_pad=0.1)
        return figure

    def move(self) -> None:
        T = len(self.weights)
        left, right = self.figure.axes[:2]
        self.image.set_data(np.ma.masked_invalid(self.bias))
        self.image.set_extent((-0.5, T - 0.5, T - 0.5, -0.5))
        ticks = range(0, T, max(1, T // 8))
        left.set(xlim=(-0.5, T - 0.5), ylim=(T - 0.5, -0.5), xticks=ticks, yticks=ticks)
        right.set(xlim=(-0.6, T - 0.4), xticks=ticks)
        for s, bar in enumerate(self.bars):
            bar.set(height=self.weights[s] if s < T else 0, visible=s < T)
        near = self.weights[-4:].sum()
        self.headline.set_text(f"Head {self.head} puts {near:.0%} of its weight on the last 4 of {T} tokens")


# -------------------------------------------------------------------------------------------------------- longer texts
def reach_curves(lengths: Sequence[int], losses: Mapping[str, Sequence[float]], trained: int) -> Figure:
    """Draw the loss over the length of the text, one line for each position encoding; the trained length is marked."""
    figure, axes = _losses_over(lengths, losses, trained, "trained on this length")
    axes.set(xlim=(lengths[0] * 0.8, lengths[-1] * 1.2), xticks=lengths)
    axes.set(xlabel="tokens of text that the model is given", ylabel="loss on the same last words (nats)")
    holding = [name for name, values in losses.items() if max(values) - values[0] < 0.15]
    told = f"only {holding[0]} keeps" if len(holding) == 1 else f"{len(holding)} of {len(losses)} keep"
    headline(figure).set_text(f"Trained on {trained} tokens, {told} its loss on four times the length")
    return figure


def losses_along_the_text(losses: Mapping[str, Sequence[float]], every: int, trained: int) -> Figure:
    """Draw the loss along the text, averaged over each `every` tokens, one line for each way to change RoPE."""
    middles = [every * (i + 0.5) for i in range(len(next(iter(losses.values()))))]
    figure, axes = _losses_over(middles, losses, trained, "end of the trained length")
    axes.set(xlim=(0, middles[-1] * 1.3), xticks=range(0, round(middles[-1]) + every, trained))
    axes.set(xlabel="position in the text (tokens)", ylabel="loss (nats)")
    best, times = min(losses, key=lambda name: losses[name][-1]), round(middles[-1] + every / 2) // trained
    headline(figure).set_text(f"Given {times} times the trained length, the loss at the end is lowest with: {best}")
    return figure


def _losses_over(
    x: Sequence[float], losses: Mapping[str, Sequence[float]], trained: int, mark: str
) -> tuple[Figure, Axes]:
    """Draw named lines over the same x, with their names at the right ends; a dotted line marks the trained length."""
    figure, axes = new_figure(WIDE, 4.2)
    axes.axvline(trained, color=GREY, linestyle=":")
    ends = []
    for (name, values), color, marker in zip(losses.items(), (ORANGE, GREY, BLUE, GREEN, PURPLE), "os^Dv"):
        axes.plot(x, values, color=color, marker=marker, markersize=8)
        ends.append((values[-1], name))
    low, high = min(map(min, losses.values())), max(map(max, losses.values()))
    apart = 0.07 * (high - low)
    y = -np.inf
    for value, name in sorted(ends):  # labels that would touch are moved up
        y = max(value, y + apart)
        axes.text(x[-1] * 1.02, y, name, fontsize=FONT, va="center", color=INK)
    axes.text(trained * 1.01, high + apart, mark, fontsize=FONT - 1, color=INK, va="bottom")
    axes.set(ylim=(low - 2 * apart, high + 3 * apart))
    return figure, axes
