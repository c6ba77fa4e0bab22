"""Figures of chapter 3: how a mask works, one masked row, the leak test, training with and without a mask, and where a
model without a mask looks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure, new_panels
from course_lib.live.palette import BLUE, FONT, GREY, INK, LIGHT, ORANGE, RED, SKY, WIDE

# -------------------------------------------------------------------------------------------------------- the mechanism
CELL = 0.29  # inches


def masking(tokens: Sequence[str], scores: np.ndarray, mask: np.ndarray, weights: np.ndarray) -> Figure:
    """Draw how a mask works, as tables (T, T): scores, mask, scores with −∞ where the mask forbids, and the weights."""
    T = len(tokens)
    figure, axes = new_figure(WIDE, 3.15)
    axes.set_position((0, 0, 1, 0.9))
    axes.set(xlim=(0, WIDE), ylim=(2.84, 0))
    axes.axis("off")
    top, gap = 0.6, 0.5
    infinite = np.where(mask, scores, -np.inf)
    tables = {
        "scores": (r"$Q\,K^\top / \sqrt{d_k}$", scores),
        "mask": ("True = may attend", mask),
        "masked scores": ("the rest: −∞", infinite),
        "weights": ("softmax, row by row", weights),
    }
    for column, (name, (origin, numbers)) in enumerate(tables.items()):
        left = 0.72 + column * (T * CELL + gap)
        axes.text(left, top - 0.26, name, ha="left", va="bottom", fontsize=FONT, color=INK, weight="bold")
        axes.text(left, top - 0.07, origin, ha="left", va="bottom", fontsize=FONT - 1, color=INK)
        for (t, s), number in np.ndenumerate(numbers):
            _cell(axes, left + s * CELL, top + t * CELL, name, number, hidden=column > 0 and not mask[t, s])
        for s, token in enumerate(tokens):
            x, y = left + (s + 0.5) * CELL, top + T * CELL + 0.06
            axes.text(x, y, token, rotation=90, ha="center", va="top", fontsize=FONT - 1, color=INK)
        if column:
            end = (left - 0.05, top + T * CELL / 2)
            arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.3}
            axes.annotate("", end, (end[0] - gap + 0.1, end[1]), arrowprops=arrow)
    for t, token in enumerate(tokens):
        axes.text(0.66, top + (t + 0.5) * CELL, token, ha="right", va="center", fontsize=FONT, color=INK)
    headline(figure).set_text("Later tokens get the score −∞ and so the weight 0: a word sees itself and its past")
    return figure


def _cell(axes: Axes, x: float, y: float, name: str, number: float, hidden: bool) -> None:
    """Draw one entry of a table; a hidden one is hatched, whatever its colour."""
    shade = 0.5 * float(np.clip(number, 0, 1)) if name == "weights" else 0.15 * float(np.clip(number, 0, 3))
    axes.add_patch(Rectangle((x, y), CELL, CELL, facecolor=BLUE, alpha=shade, linewidth=0))
    hatch = "///" if hidden else None
    axes.add_patch(Rectangle((x, y), CELL, CELL, fill=False, linewidth=0.8, edgecolor=LIGHT, hatch=hatch))
    told = {"mask": "·" if hidden else "T", "weights": f"{number:.2f}".replace("0.", ".")}.get(name, f"{number:.3g}")
    told = "−∞" if number == -np.inf else "0" if hidden and name == "weights" else "1" if told == "1.00" else told
    axes.text(x + CELL / 2, y + CELL / 2, told, ha="center", va="center", fontsize=9, color=INK)


# ----------------------------------------------------------------------------------------------------------- one row
@dataclass
class MaskedRow(Drawing):
    """Draw the scores of one query (S,), some of them hidden, and the resulting weights (S,).

    A weight of 0 whose score is not hidden was set to zero after the softmax, and is marked.
    """

    scores: np.ndarray
    hidden: np.ndarray
    weights: np.ndarray
    query: int
    how: str
    tokens: Sequence[str]

    def build(self) -> Figure:
        S, names = len(self.scores), self.tokens
        figure, (left, right) = new_panels(WIDE, 3.2, 2)
        self.headline = headline(figure)
        for axes, label, reach in ((left, "score", 3.9), (right, "weight", 1.2)):
            axes.set(yticks=range(S), yticklabels=names, ylim=(S - 0.5, -0.5), xlabel=f"{label} of each key")
            axes.set_xlim(-reach if label == "score" else 0, reach)
            axes.axvline(0, color=GREY, linewidth=1)
        self.score_bars = left.barh(range(S), [0.0] * S, color=SKY)
        self.weight_bars = right.barh(range(S), [0.0] * S, color=BLUE)
        self.notes = [left.text(0.05, s, "", va="center", fontsize=FONT, color=INK) for s in range(S)]
        self.numbers = [right.text(0, s, "", va="center", fontsize=FONT, color=INK) for s in range(S)]
        self.sum = right.set_title(" ", fontsize=FONT, loc="left")
        fix_layout(figure)
        return figure

    def move(self) -> None:
        for s, (score, hidden, weight) in enumerate(zip(self.scores, self.hidden, self.weights)):
            length, note = (0, "−inf: hidden") if hidden else (score, f"{score:.2f}".replace("-", "−"))
            self.score_bars[s].set_width(length)
            self.notes[s].set(x=0.05 + max(0, length), text=note)
            self.weight_bars[s].set_width(weight)
            zeroed = ", zeroed" if weight == 0 and not hidden else ""
            self.numbers[s].set(x=weight + 0.02, text=f"{weight:.2f}{zeroed}")
        total = self.weights.sum()
        self.sum.set_text(f"sum of the weights: {total:.2f}")
        total = "1" if abs(total - 1) < 1e-4 else f"only {total:.2f}"
        self.headline.set_text(f"“{self.tokens[self.query]}”, {self.how}: the weights sum to {total}")


# ------------------------------------------------------------------------------------------------------------ leak test
@dataclass
class LeakBars(Drawing):
    """Draw how far each output (T,) moves when the token at one position is changed; no earlier output may move."""

    changes: np.ndarray
    position: int
    mask: str
    title: str = ""

    def build(self) -> Figure:
        T = len(self.changes)
        figure, axes = new_figure(WIDE, 3.4)
        self.headline = headline(figure)
        self.bars = axes.bar(range(T), [0.0] * T, edgecolor=INK, linewidth=0.5)
        self.frame = Rectangle((0, 0), 1, 1, facecolor=LIGHT, edgecolor="none", zorder=0)
        axes.add_patch(self.frame)
        self.note = axes.text(0, 0, "changed", ha="center", va="bottom", fontsize=FONT, color=INK)
        axes.set(xticks=range(T), xlim=(-0.6, T - 0.4), xlabel="position of the output (tokens)")
        axes.set_ylabel("change of the output\n(length of the difference)")
        axes.set_ylim(0, 1)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        top = 1.2 * max(self.changes.max(), 1e-6)
        self.figure.axes[0].set_ylim(0, top)
        for at, (bar, change) in enumerate(zip(self.bars, self.changes)):
            before = at < self.position
            bar.set(height=change, facecolor=RED if before else BLUE, hatch="//" if before else None)
        self.frame.set(x=self.position - 0.5, height=top)
        self.note.set_position((self.position, 0.92 * top))
        leaks = int((self.changes[: self.position] > 1e-5).sum())
        if self.position == 0:
            said = "no output comes before it"
        else:
            said = f"{leaks} of the {self.position} outputs before it move" if leaks else "no output before it moves"
        self.headline.set_text(self.title or f"{self.mask}, token {self.position} changed: {said}")


# ------------------------------------------------------------------------------------------------- with and without
def losses(names: Sequence[str], training: Sequence[float], inference: Sequence[float]) -> Figure:
    """Draw the loss in training and the loss at inference, one pair of bars for each model."""
    figure, axes = new_figure(WIDE, 1.2 + 0.95 * len(names))
    for shift, values, color, label in ((-0.2, training, SKY, "in training"), (0.2, inference, ORANGE, "at inference")):
        rows = np.arange(len(names)) + shift
        axes.barh(rows, values, height=0.36, color=color, edgecolor=INK, linewidth=0.5)
        for row, value in zip(rows, values):
            axes.text(value + 0.04, row, f"{label}: {value:.1f}", va="center", fontsize=FONT, color=INK)
    axes.set(
        yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.45, -0.55), xlabel="loss (nats per word)"
    )
    axes.set_xlim(0, 1.45 * max([*training, *inference]))
    worst = int(np.argmax(inference))
    headline(figure).set_text(
        f"{names[worst].capitalize()}: {training[worst]:.1f} nats in training, {inference[worst]:.1f} at inference"
    )
    return figure


def where_it_looks(steps: Sequence[int], weights: Sequence[float]) -> Figure:
    """Draw the mean weight on tokens by their distance to the right of the query (below 0: to the left)."""
    figure, axes = new_figure(WIDE, 3.2)
    axes.bar(steps, weights, color=[ORANGE if step > 0 else BLUE for step in steps], edgecolor=INK, linewidth=0.5)
    for step, weight in zip(steps, weights):
        axes.text(step, weight + 0.015, f"{weight:.2f}", ha="center", va="bottom", fontsize=FONT, color=INK)
    axes.set(xticks=steps, xticklabels=[f"{step:+d}".replace("-", "−") if step else "itself" for step in steps])
    axes.set(ylim=(0, 1.15), ylabel="mean weight", xlabel="distance to the right of the query (tokens; −: to the left)")
    best = int(np.argmax(weights))
    where = "itself" if not steps[best] else f"{abs(steps[best])} to the {'right' if steps[best] > 0 else 'left'}"
    headline(figure).set_text(f"In the last layer, {weights[best]:.0%} of the weight goes to one position: {where}")
    return figure
