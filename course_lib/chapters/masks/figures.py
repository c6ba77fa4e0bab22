"""Figures of chapter 3: the patterns of three families, one masked row, the leak test, training with and without a mask
and where a model looks that has none."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.live.drawing import BLUE, FONT, GREY, INK, LIGHT, ORANGE, RED, SKY, fix_layout, headline, new_figure

WIDE = 8.8  # inches


# ----------------------------------------------------------------------------------------------------------- one row
def masked_row(
    scores: np.ndarray, hidden: np.ndarray, weights: np.ndarray, query: int, how: str, figure: Figure | None = None
) -> Figure:
    """The scores of one query (S,), of which some are hidden, and the weights (S,) that come of it.

    A weight of 0 whose score is not hidden has been zeroed afterwards, and is marked so.
    """
    S = len(scores)
    names = [f"token {s}" for s in range(S)]
    if figure is None:
        figure, (left, right) = new_figure(WIDE, 3.2, 1, 2)
        parts = SimpleNamespace(title=headline(figure))
        for axes, label, reach in ((left, "score", 2.6), (right, "weight", 1.2)):
            axes.set(yticks=range(S), yticklabels=names, ylim=(S - 0.5, -0.5), xlabel=f"{label} of each key")
            axes.set_xlim(-reach if label == "score" else 0, reach)
            axes.axvline(0, color=GREY, linewidth=1)
        parts.scores = left.barh(range(S), [0.0] * S, color=SKY)
        parts.weights = right.barh(range(S), [0.0] * S, color=BLUE)
        parts.notes = [left.text(0.05, s, "", va="center", fontsize=FONT, color=INK) for s in range(S)]
        parts.numbers = [right.text(0, s, "", va="center", fontsize=FONT, color=INK) for s in range(S)]
        parts.sum = right.set_title(" ", fontsize=FONT, loc="left")
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    for s in range(S):
        parts.scores[s].set_width(0 if hidden[s] else scores[s])
        score = f"{scores[s]:.2f}".replace("-", "−")
        parts.notes[s].set(x=0.05 + max(0, 0 if hidden[s] else scores[s]), text="−inf: hidden" if hidden[s] else score)
        parts.weights[s].set_width(weights[s])
        zeroed = weights[s] == 0 and not hidden[s]
        parts.numbers[s].set(x=weights[s] + 0.02, text=f"{weights[s]:.2f}{', zeroed' if zeroed else ''}")
    parts.sum.set_text(f"sum of the weights: {weights.sum():.2f}")
    shares = "a full share of 1" if abs(weights.sum() - 1) < 1e-4 else f"only {weights.sum():.2f} in all"
    parts.title.set_text(f"Token {query}, {how}: {shares}")
    return figure


# ------------------------------------------------------------------------------------------------------------ leak test
def leak_bars(changes: np.ndarray, place: int, mask: str, figure: Figure | None = None) -> Figure:
    """How far each output (T,) moves when the token at one place is changed; what lies before it must not move."""
    T = len(changes)
    if figure is None:
        figure, axes = new_figure(WIDE, 3.4)
        parts = SimpleNamespace(title=headline(figure))
        parts.bars = axes.bar(range(T), [0.0] * T, edgecolor=INK, linewidth=0.5)
        parts.frame = axes.add_patch(Rectangle((0, 0), 1, 1, facecolor=LIGHT, edgecolor="none", zorder=0))
        parts.note = axes.text(0, 0, "changed", ha="center", va="bottom", fontsize=FONT, color=INK)
        axes.set(xticks=range(T), xlim=(-0.6, T - 0.4), xlabel="place of the output (tokens)")
        axes.set_ylabel("change of the output\n(length of the difference)")
        axes.set_ylim(0, 1)
        figure.parts = parts
        fix_layout(figure)
    parts, axes = figure.parts, figure.axes[0]
    top = 1.2 * max(changes.max(), 1e-6)
    axes.set_ylim(0, top)
    for at, (bar, change) in enumerate(zip(parts.bars, changes)):
        bar.set(height=change, facecolor=RED if at < place else BLUE, hatch="//" if at < place else None)
    parts.frame.set(x=place - 0.5, height=top)
    parts.note.set_position((place, 0.92 * top))
    leaks = int((changes[:place] > 1e-5).sum())
    if place == 0:
        said = "nothing stands before place 0"
    else:
        said = f"{leaks} of the {place} outputs before it move" if leaks else "no output before it moves"
    parts.title.set_text(f"{mask}: changing the token at {place}, {said}")
    return figure


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
