"""Figures of chapter 2: how attention works, a soft dictionary, one query, saturation, and a trained head's weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure, new_panels
from course_lib.live.numbers import entropy
from course_lib.live.palette import BLUE, FONT, GREEN, GREY, INK, LIGHT, ORANGE, SKY, WIDE
from course_lib.live.shared_figures import empty_bars, set_bars

# -------------------------------------------------------------------------------------------------- how attention works
CELL_WIDTH, CELL_HEIGHT = 0.272, 0.215  # inches


def mechanism(tokens: Sequence[str], tensors: Mapping[str, np.ndarray], query: int) -> Figure:
    """Draw self-attention as its tensors with their numbers, from x on the left to the output on the right.

    tensors: "x", "Q", "K", "V" (T, 4 each), "scores", "weights" (T, T) and "output" (T, 4). One query's row is framed.
    """
    T = len(tokens)
    figure, axes = new_figure(WIDE, 5.1)
    axes.set_position((0, 0, 1, 0.94))
    axes.set(xlim=(0, WIDE), ylim=(4.79, 0))
    axes.axis("off")
    height = T * CELL_HEIGHT
    places = {  # name: left, top, the formula
        "x": (0.68, 1.94, "token vectors"),
        "Q": (2.4, 0.42, "x · W_Q: looks for"),
        "K": (2.4, 1.94, "x · W_K: found by"),
        "V": (2.4, 3.46, "x · W_V: passed on"),
        "scores": (4.02, 1.18, "Q · Kᵀ ÷ √4"),
        "weights": (5.68, 1.18, "softmax, row by row"),
        "output": (7.24, 1.94, "weights · V"),
    }
    at = {}
    for name, numbers in tensors.items():
        left, top, origin = places[name]
        color = {"x": GREY, "V": GREEN, "output": GREEN, "K": ORANGE}.get(name, BLUE)
        _matrix(axes, numbers, left, top, f"{name} {tuple(numbers.shape)}", origin, color)
        at[name] = left - 0.05, left + numbers.shape[1] * CELL_WIDTH + 0.05, top + height / 2
        if name not in ("K", "V"):  # of these two, the query uses all rows
            frame = (left, top + query * CELL_HEIGHT), numbers.shape[1] * CELL_WIDTH, CELL_HEIGHT
            axes.add_patch(Rectangle(*frame, fill=False, edgecolor=INK, linewidth=2, zorder=4))
    for t, token in enumerate(tokens):
        axes.text(0.62, 1.94 + (t + 0.5) * CELL_HEIGHT, token, ha="right", va="center", fontsize=FONT, color=INK)
        for name in ("scores", "weights"):
            x = places[name][0] + (t + 0.5) * CELL_WIDTH
            axes.text(x, 1.24 + height, token, rotation=90, ha="center", va="top", fontsize=FONT - 1, color=INK)
    flows = ("Q", "scores"), ("K", "scores"), ("scores", "weights"), ("weights", "output")
    for one, other in ("xQ", "xK", "xV", *flows):
        _arrow(axes, at[one][1:], at[other][::2])
    axes.plot([at["V"][1], 7.8], [at["V"][2]] * 2, color=INK, linewidth=1.3)
    _arrow(axes, (7.8, at["V"][2]), (7.8, 1.99 + height))
    largest = np.argsort(-tensors["weights"][query], kind="stable")[:2]
    told = " and ".join(f"“{tokens[s]}” ({tensors['weights'][query, s]:.2f})" for s in largest)
    headline(figure).set_text(f"“{tokens[query]}” looks for an animal, and takes most from {told}")
    return figure


def _matrix(axes: Axes, numbers: np.ndarray, left: float, top: float, title: str, origin: str, color: str) -> None:
    """Draw a table of numbers below its name; a cell with a larger number is darker."""
    largest = max(1.0, float(np.abs(numbers).max()))
    for (t, i), number in np.ndenumerate(numbers):
        corner = left + i * CELL_WIDTH, top + t * CELL_HEIGHT
        shade = 0.55 * max(0.0, float(number)) / largest
        axes.add_patch(Rectangle(corner, CELL_WIDTH, CELL_HEIGHT, facecolor=color, alpha=shade, linewidth=0))
        axes.add_patch(Rectangle(corner, CELL_WIDTH, CELL_HEIGHT, fill=False, edgecolor=LIGHT, linewidth=0.8))
        digits = 0 if number == int(number) else 1 if 10 * number == int(10 * number) else 2
        told = f"{number:.{digits}f}".replace("0.", ".").replace("-", "−")
        x, y = corner[0] + CELL_WIDTH / 2, corner[1] + CELL_HEIGHT / 2
        axes.text(x, y, told, ha="center", va="center", fontsize=8.5, color=INK)
    axes.text(left, top - 0.22, title, ha="left", va="bottom", fontsize=FONT, color=INK, weight="bold")
    axes.text(left, top - 0.05, origin, ha="left", va="bottom", fontsize=FONT - 1, color=INK)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.3})


# ---------------------------------------------------------------------------------------------------- a soft dictionary
@dataclass
class SoftLookup(Drawing):
    """Draw a query among keys on a circle, the weight of each key, and the average of their values in °C.

    angle, key_angles: directions in degrees, anticlockwise from east.
    """

    angle: float
    key_angles: Sequence[float]
    names: Sequence[str]
    values: Sequence[float]
    weights: np.ndarray

    def build(self) -> Figure:
        figure, (circle, axes) = new_panels(WIDE, 3.9, 2, width_ratios=[1, 1.1])
        turn = np.linspace(0, 2 * np.pi, 100)
        circle.fill(np.cos(turn), np.sin(turn), color=LIGHT, zorder=0)
        circle.set(xlim=(-1.8, 1.8), ylim=(-1.55, 1.55), aspect="equal", xticks=[], yticks=[])
        circle.spines[:].set_visible(False)
        for key_angle, name, value in zip(self.key_angles, self.names, self.values):
            x, y = _on_circle(key_angle)
            circle.plot([x], [y], "s", color=GREY, markersize=9)
            circle.text(1.43 * x, 1.33 * y, f"{name}\n{value:g} °C", fontsize=FONT, color=INK, ha="center", va="center")
        (self.query,) = circle.plot([], [], color=BLUE, linewidth=3, marker="o", markevery=[1], markersize=10)
        self.you = circle.text(0, 0, "you", color=INK, fontsize=FONT, weight="bold", ha="center", va="center")
        labels = [f"{name}, {value:g} °C" for name, value in zip(self.names, self.values)]
        self.bars, self.numbers = empty_bars(axes, labels, BLUE)
        axes.set_xlabel("weight (they sum to 1)")
        self.headline = headline(figure)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        x, y = _on_circle(self.angle)
        self.query.set_data([0, x], [0, y])
        self.you.set_position((0.5 * x - 0.2 * y, 0.5 * y + 0.2 * x))  # next to the middle of the line
        set_bars(self.bars, self.numbers, self.weights)
        answer = float(self.weights @ np.asarray(self.values))
        self.headline.set_text(f"Answer {answer:.1f} °C: most weight on {_best(self.names, self.weights)}")


def _on_circle(angle: float) -> tuple[float, float]:
    return float(np.cos(np.radians(angle))), float(np.sin(np.radians(angle)))


def _best(names: Sequence[str], weights: np.ndarray) -> str:
    """Return the names with the largest weight, as a reader would list them."""
    *others, last = (name for name, best in zip(names, np.isclose(weights, weights.max())) if best)
    return f"{', '.join(others)} and {last}" if others else last


# ---------------------------------------------------------------------------------------- one query, from scores to mix
@dataclass
class OneQuery(Drawing):
    """Draw one query in three steps: scaled scores (S,), weights (S,), and the output (2,) among the values (S, 2).

    A score of −inf belongs to a hidden key. `expected`: weights (S,) to compare with, drawn as outlines.
    """

    tokens: Sequence[str]
    query: int
    scores: np.ndarray
    weights: np.ndarray
    values: np.ndarray
    output: np.ndarray
    expected: np.ndarray | None = None

    def build(self) -> Figure:
        figure, (left, middle, plane) = new_panels(WIDE, 3.7, 3, width_ratios=[1, 1, 1.1])
        self.score_bars, self.score_numbers = empty_bars(left, self.tokens, SKY)
        self.weight_bars, self.weight_numbers = empty_bars(middle, [""] * len(self.tokens), BLUE)
        self.outlines = middle.barh(
            range(len(self.tokens)), [0.0] * len(self.tokens), fill=False, edgecolor=INK, linestyle=":", linewidth=2
        )
        left.set_xlabel("score: q·k / √d")
        middle.set_xlabel("weight: softmax of the scores")
        low, high = self.values.min() - 1, self.values.max() + 1
        plane.set(xlim=(low, high), ylim=(low, high), aspect="equal")
        plane.set(
            xlabel="output: the values, mixed (★)",
            xticks=range(int(low), int(high) + 1),
            yticks=range(int(low), int(high) + 1),
        )
        self.lines = [plane.plot([], [], color=BLUE, zorder=1)[0] for _ in self.tokens]
        self.dots = plane.scatter(*self.values.T, color=SKY, edgecolor=INK, linewidth=0.5, zorder=2)
        for token, place in zip(self.tokens, self.values):
            above = place[1] > self.values[:, 1].mean()  # away from the star
            shift = (0, 15 if above else -23)
            plane.annotate(token, place, xytext=shift, textcoords="offset points", ha="center", fontsize=FONT - 1)
        (self.star,) = plane.plot([], [], "*", markersize=17, color=ORANGE, markeredgecolor=INK, zorder=3)
        self.headline = headline(figure)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        set_bars(self.score_bars, self.score_numbers, self.scores)
        for number, score in zip(self.score_numbers, self.scores):
            if score == -np.inf:
                number.set(x=0.02, text="−inf: hidden")
        set_bars(self.weight_bars, self.weight_numbers, self.weights, self.expected)
        for outline, weight in zip(self.outlines, self.weights if self.expected is None else self.expected):
            outline.set_width(weight)
            outline.set_visible(self.expected is not None)
        for line, weight, value in zip(self.lines, self.weights, self.values):
            line.set_data([value[0], self.output[0]], [value[1], self.output[1]])
            line.set_linewidth(8 * float(np.clip(weight, 0, 1)))
        self.dots.set_sizes(30 + 500 * np.clip(np.nan_to_num(self.weights), 0, 1))
        self.star.set_data([self.output[0]], [self.output[1]])
        if np.isfinite(self.weights).all() and self.weights.max() > 0:
            best = _best(self.tokens, self.weights)
            each = " each" if " and " in best else ""
            self.headline.set_text(
                f"{self.tokens[self.query]} looks most at {best} ({self.weights.max():.2f}{each}); "
                f"its output is ({self.output[0]:.2f}, {self.output[1]:.2f})"
            )
        else:
            self.headline.set_text(f"{self.tokens[self.query]}: no weights to show")


# ------------------------------------------------------------------------------------------------------------- why √d_k
def score_spread(d_ks: Sequence[int], unscaled: Sequence[float], scaled: Sequence[float]) -> Figure:
    """Draw the standard deviation of q·k over d_k, with and without the division by √d_k."""
    figure, axes = new_figure(7.5, 3.6)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(
        xticks=d_ks,
        xticklabels=map(str, d_ks),
        xlabel="d_k: features of a query and of a key",
        xlim=(d_ks[0] / 1.3, d_ks[-1] * 3.2),
    )
    axes.set(
        yticks=[1, 2, 4, 8, 16, 32],
        yticklabels=["1", "2", "4", "8", "16", "32"],
        ylim=(0.6, 50),
        ylabel="standard deviation of a score",
    )
    axes.minorticks_off()
    axes.plot(d_ks, np.sqrt(d_ks), color=GREY, linestyle=":", linewidth=1.5)
    axes.plot(d_ks, np.ones(len(d_ks)), color=GREY, linestyle=":", linewidth=1.5)
    axes.plot(d_ks, unscaled, "o", color=ORANGE, markersize=9)
    axes.plot(d_ks, scaled, "s", color=BLUE, markersize=9)
    axes.text(d_ks[-1] * 1.25, unscaled[-1], "q·k\n(dotted: √d_k)", color=INK, fontsize=FONT, va="center")
    axes.text(d_ks[-1] * 1.25, scaled[-1], "q·k / √d_k", color=INK, fontsize=FONT, va="center")
    headline(figure).set_text(
        f"A typical score grows to {unscaled[-1]:.0f}; divided by √d_k it is {np.mean(scaled):.0f} for every d_k"
    )
    return figure


@dataclass
class Saturation(Drawing):
    """Draw the weights p of one query, and p (1 − p) for each: how much a weight changes with its own score.

    weights: the largest first.
    mean_gradient: p (1 − p) averaged over many queries and all keys, drawn as a line.
    """

    weights: np.ndarray
    mean_gradient: float
    d_k: int
    scaled: bool

    def build(self) -> Figure:
        S = len(self.weights)
        figure, (left, right) = new_panels(WIDE, 3.8, 2)
        self.headline = headline(figure)
        self.bars = left.bar(range(S), [0.0] * S, color=BLUE)
        self.slopes = right.bar(range(S), [0.0] * S, color=ORANGE)
        left.set(ylim=(0, 1.08), xticks=range(S), xlabel="key, by weight", ylabel="weight p")
        right.set(ylim=(0, 0.27), xticks=range(S), xlabel="key, by weight", ylabel="slope p (1 − p)")
        left.axhline(1 / S, color=GREY, linestyle=":")
        left.text(S - 0.4, 1 / S + 0.02, "equal weights", ha="right", fontsize=FONT - 1, color=INK)
        self.mean = right.axhline(0, color=INK, linestyle="--", linewidth=2)
        self.entropy = left.set_title(" ", fontsize=FONT)
        self.mean_text = right.set_title(" ", fontsize=FONT)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        S = len(self.weights)
        for bar, slope, p in zip(self.bars, self.slopes, self.weights):
            bar.set_height(p)
            slope.set_height(p * (1 - p))
        self.mean.set_ydata([self.mean_gradient, self.mean_gradient])
        self.entropy.set_text(f"entropy {entropy(self.weights):.2f} of at most {np.log(S):.2f} nats")
        self.mean_text.set_text(f"dashed: mean over all queries, {self.mean_gradient:.4f}")
        how = "divided by √d_k" if self.scaled else "not divided"
        self.headline.set_text(
            f"d_k = {self.d_k}, scores {how}: the best key gets {self.weights.max():.2f} of the weight"
        )


@dataclass
class EntropyCurve(Drawing):
    """Draw the mean entropy over d_k, scaled and unscaled, below its maximum for n_keys keys, ln n_keys. d_k is
    marked."""

    d_ks: Sequence[int]
    scaled: np.ndarray
    unscaled: np.ndarray
    n_keys: int
    d_k: int
    title: str

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 3.9)
        axes.set_xscale("log", base=2)
        axes.set(xticks=self.d_ks, xticklabels=map(str, self.d_ks), xlabel="d_k")
        axes.set_xlim(self.d_ks[0] / 1.3, self.d_ks[-1] * 4)
        axes.set_ylabel("entropy (nats)")
        axes.minorticks_off()
        axes.axhline(0, color=LIGHT, zorder=0)
        self.limit = axes.axhline(0, color=GREY, linestyle=":")
        self.here = axes.axvline(1, color=LIGHT, linewidth=8, zorder=0)
        (self.scaled_line,) = axes.plot([], [], "s-", color=BLUE)
        (self.unscaled_line,) = axes.plot([], [], "o-", color=ORANGE)
        self.labels = [
            axes.text(self.d_ks[-1] * 1.15, 0, text, fontsize=FONT, va="center", color=INK)
            for text in ("scaled", "not scaled")
        ]
        self.limit_text = axes.text(self.d_ks[-1] * 1.15, 0, "", fontsize=FONT, va="bottom", color=INK)
        self.headline = headline(figure)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        self.scaled_line.set_data(self.d_ks, self.scaled)
        self.unscaled_line.set_data(self.d_ks, self.unscaled)
        for label, line in zip(self.labels, (self.scaled, self.unscaled)):
            label.set(y=line[-1] if np.isfinite(line[-1]) else 0, visible=bool(np.isfinite(line[-1])))
        limit = float(np.log(self.n_keys))
        self.limit.set_ydata([limit, limit])
        self.figure.axes[0].set_ylim(
            -0.2 * limit, 1.6 * limit
        )  # room for an answer in bits, which is 1.44 times as large
        self.limit_text.set(y=1.02 * limit, text=f"ln {self.n_keys} = {limit:.2f}")
        self.here.set_xdata([self.d_k, self.d_k])
        self.headline.set_text(self.title)


# ------------------------------------------------------------------------------------------------------- a trained head
@dataclass
class AttentionMap(Drawing):
    """Draw a head's weights (T, T) as a heat map with one row for each query, and next to it one query's row as bars.

    head: its name for the title, such as "layer 1, head 3".
    """

    weights: np.ndarray
    tokens: Sequence[str]
    query: int
    head: str

    def build(self) -> Figure:
        T = len(self.tokens)
        height = min(4.2, max(3.2, 1.5 + 0.19 * T))  # with its three controls it fits a pane of 560 pixels
        figure, (left, right) = new_panels(WIDE, height, 2, width_ratios=[1.6, 1])
        small = FONT - 1 if T <= 16 else 8
        self.image = left.imshow(np.zeros((T, T)), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        left.set(xticks=range(T), yticks=range(T), ylabel="query", xlabel="key")
        left.set_xticklabels(self.tokens, rotation=90)
        left.set_yticklabels(self.tokens)
        left.tick_params(length=0, labelsize=small)
        bar = figure.colorbar(self.image, ax=left, fraction=0.04, pad=0.02)
        bar.ax.tick_params(labelsize=FONT - 1)
        bar.set_label("weight", size=FONT)
        self.row = Rectangle((-0.5, 0), T, 1, fill=False, edgecolor=ORANGE, linewidth=2.5)
        left.add_patch(self.row)
        self.bars, self.numbers = empty_bars(right, self.tokens, ORANGE)
        for number in self.numbers:
            number.set_fontsize(small)  # so that the numbers of neighbouring rows do not overlap
        right.tick_params(axis="y", labelsize=small)
        self.right = right.set_title(" ", fontsize=FONT, loc="left")
        right.set_xlabel("weight")
        self.headline = headline(figure)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        self.image.set_data(self.weights)
        self.row.set_xy((-0.5, self.query - 0.5))
        looks, row = self.tokens[self.query], self.weights[self.query]
        set_bars(self.bars, self.numbers, row)
        for number, weight in zip(self.numbers, row):
            number.set_visible(bool(weight >= 0.05))
        self.right.set_text(f"“{looks}” looks at")
        best = self.tokens[int(row.argmax())]
        self.headline.set_text(f"{self.head.capitalize()}: “{looks}” looks most at “{best}” ({row.max():.2f})")
