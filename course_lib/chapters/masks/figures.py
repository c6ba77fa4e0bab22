"""Figures of chapter 3: the patterns of three families, one masked row, the leak test, training with and without a mask
and where a model looks that has none."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure, new_panels
from course_lib.live.palette import BLUE, FONT, GREY, INK, LIGHT, ORANGE, RED, SKY

WIDE = 8.8  # inches


# ----------------------------------------------------------------------------------------------------------- one row
@dataclass
class MaskedRow(Drawing):
    """The scores of one query (S,), of which some are hidden, and the weights (S,) that come of it.

    A weight of 0 whose score is not hidden has been zeroed afterwards, and is marked so.
    """

    scores: np.ndarray
    hidden: np.ndarray
    weights: np.ndarray
    query: int
    how: str

    def build(self) -> Figure:
        S = len(self.scores)
        names = [f"token {s}" for s in range(S)]
        figure, (left, right) = new_panels(WIDE, 3.2, 2)
        self.headline = headline(figure)
        for axes, label, reach in ((left, "score", 2.6), (right, "weight", 1.2)):
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
        shares = "a full share of 1" if abs(total - 1) < 1e-4 else f"only {total:.2f} in all"
        self.headline.set_text(f"Token {self.query}, {self.how}: {shares}")


# ------------------------------------------------------------------------------------------------------------ leak test
@dataclass
class LeakBars(Drawing):
    """How far each output (T,) moves when the token at one place is changed; what lies before it must not move."""

    changes: np.ndarray
    place: int
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
        axes.set(xticks=range(T), xlim=(-0.6, T - 0.4), xlabel="place of the output (tokens)")
        axes.set_ylabel("change of the output\n(length of the difference)")
        axes.set_ylim(0, 1)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        top = 1.2 * max(self.changes.max(), 1e-6)
        self.figure.axes[0].set_ylim(0, top)
        for at, (bar, change) in enumerate(zip(self.bars, self.changes)):
            bar.set(height=change, facecolor=RED if at < self.place else BLUE, hatch="//" if at < self.place else None)
        self.frame.set(x=self.place - 0.5, height=top)
        self.note.set_position((self.place, 0.92 * top))
        leaks = int((self.changes[: self.place] > 1e-5).sum())
        if self.place == 0:
            said = "nothing stands before place 0"
        else:
            said = f"{leaks} of the {self.place} outputs before it move" if leaks else "no output before it moves"
        self.headline.set_text(self.title or f"{self.mask}: changing the token at {self.place}, {said}")


# ------------------------------------------------------------------------------------------------- with and without
def losses(names: Sequence[str], training: Sequence[float], in_use: Sequence[float]) -> Figure:
    """Loss as training sees it and loss in use, one pair of bars per model."""
    figure, axes = new_figure(WIDE, 1.2 + 0.95 * len(names))
    for shift, values, color, label in ((-0.2, training, SKY, "as training sees it"), (0.2, in_use, ORANGE, "in use")):
        places = np.arange(len(names)) + shift
        axes.barh(places, values, height=0.36, color=color, edgecolor=INK, linewidth=0.5)
        for place, value in zip(places, values):
            axes.text(value + 0.04, place, f"{label}: {value:.1f}", va="center", fontsize=FONT, color=INK)
    axes.set(
        yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.45, -0.55), xlabel="loss (nats per word)"
    )
    axes.set_xlim(0, 1.45 * max([*training, *in_use]))
    worst = int(np.argmax(in_use))
    headline(figure).set_text(
        f"{names[worst].capitalize()}: {training[worst]:.1f} nats in training, {in_use[worst]:.1f} where it counts"
    )
    return figure


def where_it_looks(steps: Sequence[int], weights: Sequence[float]) -> Figure:
    """Mean weight on the token so many places to the right of the one that looks (below 0: to the left)."""
    figure, axes = new_figure(WIDE, 3.2)
    axes.bar(steps, weights, color=[ORANGE if step > 0 else BLUE for step in steps], edgecolor=INK, linewidth=0.5)
    for step, weight in zip(steps, weights):
        axes.text(step, weight + 0.015, f"{weight:.2f}", ha="center", va="bottom", fontsize=FONT, color=INK)
    axes.set(xticks=steps, xticklabels=[f"{step:+d}".replace("-", "−") if step else "itself" for step in steps])
    axes.set(ylim=(0, 1.15), ylabel="mean weight", xlabel="looks at the token so many places to the right (−: left)")
    best = int(np.argmax(weights))
    place = "itself" if not steps[best] else f"{abs(steps[best])} to the {'right' if steps[best] > 0 else 'left'}"
    headline(figure).set_text(f"Without a mask {100 * weights[best]:.0f} % of the weight goes to one place: {place}")
    return figure
