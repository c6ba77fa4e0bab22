"""Figures of chapter 11: the wiring of an encoder–decoder, where a translation looks, a blank and its guesses."""

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from course_lib.viz.figures import BLUE, FONT, GREEN, GREY, INK, LIGHT, ORANGE, SKY, WIDE, YELLOW, headline, new_figure


# --------------------------------------------------------------------------------------------------------- architecture
def architecture() -> Figure:
    """Both stacks as boxes, and the one arrow between them: from the top of the encoder to every decoder block."""
    figure, axes = new_figure(WIDE, 5.2)
    axes.set(xlim=(0, 12), ylim=(-0.3, 9.1), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    left, right = 2.9, 9.1
    _frame(axes, left, 1.75, 3.3, "encoder block × N")
    _frame(axes, right, 1.75, 4.7, "decoder block × N")
    encoder = [("token + position", 0.9, LIGHT), ("self-attention, both ways", 2.4, SKY), ("feed-forward", 3.9, YELLOW)]
    decoder = [
        ("token + position", 0.9, LIGHT), ("self-attention, causal", 2.4, SKY), ("cross-attention", 3.9, ORANGE),
        ("feed-forward", 5.4, YELLOW), ("logits → softmax", 7.5, LIGHT),
    ]  # fmt: skip
    for middle, boxes in ((left, encoder), (right, decoder)):
        for (_, low, _), (_, high, _) in pairwise(boxes):
            _arrow(axes, (middle, low + 0.36), (middle, high - 0.36))
        for label, height, color in boxes:
            _box(axes, middle, height, label, color)
    _arrow(axes, (left, 0.1), (left, 0.54))
    _arrow(axes, (right, 0.1), (right, 0.54))
    axes.text(left, -0.05, "the black cat . <eos>", ha="center", va="top", fontsize=FONT, color=INK)
    axes.text(right, -0.05, "<bos> le chat noir", ha="center", va="top", fontsize=FONT, color=INK)
    _arrow(axes, (right, 7.86), (right, 8.5))
    axes.text(right, 8.6, "le chat noir .", ha="center", fontsize=FONT, color=INK)
    # From the top of the encoder across to the side of every cross-attention.
    axes.plot([left, left, 6.1, 6.1], [4.26, 6.3, 6.3, 3.9], color=ORANGE, linewidth=2.5)
    _arrow(axes, (6.1, 3.9), (right - 1.95, 3.9), ORANGE, 2.5)
    axes.text(left + 1.6, 6.5, "encoded source:\nkeys and values", ha="center", fontsize=FONT, color=INK)
    axes.text(right + 0.15, 3.15, "queries", fontsize=FONT, va="center", color=INK)
    headline(figure).set_text("One arrow joins the stacks: every decoder block reads the top of the encoder")
    return figure


def _box(axes: Axes, x: float, y: float, label: str, color: str) -> None:
    axes.add_patch(
        FancyBboxPatch((x - 1.9, y - 0.3), 3.8, 0.6, boxstyle="round,pad=0.06", facecolor=color, edgecolor=INK)
    )
    axes.text(x, y, label, ha="center", va="center", fontsize=FONT, color=INK)


def _frame(axes: Axes, x: float, low: float, height: float, label: str) -> None:
    frame = (x - 2.2, low), 4.4, height
    axes.add_patch(
        FancyBboxPatch(*frame, boxstyle="round,pad=0.05", facecolor="none", edgecolor=GREY, linestyle="--", zorder=0)
    )
    axes.text(x + 2.15, low + height - 0.05, label, ha="right", va="top", fontsize=FONT - 1, color=INK)


def _arrow(axes: Axes, start: tuple, end: tuple, color: str = INK, width: float = 1.2) -> None:
    style = {"arrowstyle": "-|>", "color": color, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)


# ----------------------------------------------------------------------------------------------------- loss of learning
def translator_curve(losses: Sequence[float], guessing: float) -> Figure:
    """Loss per step in nats per French token, between guessing among all words and the 0 of a perfect translator."""
    figure, axes = new_figure(WIDE, 3.4)
    axes.plot(range(1, len(losses) + 1), losses, color=BLUE, linewidth=1.2)
    for height in (guessing, 0.0):
        axes.axhline(height, color=GREY, linestyle=":")
    # Each label where the curve is far.
    end_of_axis, guess = 0.99 * len(losses), f"guessing among all words: {guessing:.1f}"
    axes.text(end_of_axis, guessing + 0.08, guess, ha="right", fontsize=FONT, color=INK)
    axes.text(0.01 * len(losses), 0.08, "a perfect translator: 0", fontsize=FONT, color=INK)
    axes.set(xlabel="step", ylabel="loss (nats per French token)", ylim=(-0.2, guessing + 0.7), xlim=(0, len(losses)))
    end = float(np.mean(losses[-20:]))
    headline(figure).set_text(f"In {len(losses)} steps the loss falls from {losses[0]:.1f} to {end:.1f} nats")
    return figure


# ------------------------------------------------------------------------------------------------------------ alignment
def alignment_map(
    weights: np.ndarray,
    source: Sequence[str],
    target: Sequence[str],
    aligned: Sequence[tuple[int, int]],
    head: str,
    figure: Figure | None = None,
) -> Figure:
    """Cross-attention of one head: weights (T, S), a row for each written word; circles mark the grammar's alignment.

    aligned: (source index, target index) of each translated word, without <eos>. head: its name, such as "head 0".
    """
    if figure is None:
        figure, axes = new_figure(WIDE, 4.9)
        figure.set_layout_engine(None)
        axes.set_position([0.16, 0.23, 0.7, 0.66])
        parts = SimpleNamespace(axes=axes, title=headline(figure))
        parts.image = axes.imshow(np.zeros((1, 1)), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        parts.circles = axes.scatter(
            [], [], s=150, marker="o", facecolors="none", edgecolors=ORANGE, linewidths=2.2, clip_on=False
        )
        axes.set(xlabel="English word looked at (○: the one that is translated)", ylabel="French word being written")
        axes.tick_params(length=0)
        bar = figure.colorbar(parts.image, cax=figure.add_axes([0.88, 0.23, 0.02, 0.66]))
        bar.set_label("weight", size=FONT)
        bar.ax.tick_params(labelsize=FONT - 1)
        figure.parts = parts
    parts = figure.parts
    T, S = weights.shape
    parts.image.set_data(weights)
    parts.image.set_extent((-0.5, S - 0.5, T - 0.5, -0.5))
    parts.axes.set(xlim=(-0.5, S - 0.5), ylim=(T - 0.5, -0.5))
    parts.axes.set_xticks(range(S), source, rotation=45, ha="right", rotation_mode="anchor")
    parts.axes.set_yticks(range(T), target)
    parts.circles.set_offsets(np.array(aligned, dtype=float).reshape(-1, 2))
    hits = sum(int(weights[t].argmax()) == s for s, t in aligned)
    if aligned:
        parts.title.set_text(
            f"{head.capitalize()}: {hits} of {len(aligned)} French words look most at the word they translate"
        )
    else:
        parts.title.set_text(f"{head.capitalize()}: a wrong translation, so no circles")
    return figure


# --------------------------------------------------------------------------------------------------------------- blanks
def blank_guesses(
    both: Sequence[tuple[str, float]], left: Sequence[tuple[str, float]], right: str, figure: Figure | None = None
) -> Figure:
    """The most probable words for one blank, from both sides and from the left alone.

    both, left: (word, probability), best first; the hidden word, `right`, is in both, last if it is not among the best.
    """
    panels = ((both, "reads both sides (encoder)"), (left, "reads the left alone (decoder)"))
    if figure is None:
        figure, axes = new_figure(WIDE, 3.3, 1, 2)
        figure.set_layout_engine(None)
        for one, x in zip(axes, (0.12, 0.62)):
            one.set_position([x, 0.19, 0.36, 0.58])
        parts = SimpleNamespace(axes=axes, title=headline(figure), bars=[], numbers=[])
        for one, (guesses, name) in zip(axes, panels):
            places = range(len(guesses))
            parts.bars.append(one.barh(places, [0.0] * len(guesses), edgecolor=INK, linewidth=0.5))
            parts.numbers.append([one.text(0, place, "", fontsize=FONT, va="center") for place in places])
            one.set(xlim=(0, 1.35), xticks=[0, 0.5, 1], ylim=(len(guesses) - 0.5, -0.5), xlabel="probability")
            one.set_title(name, fontsize=FONT, loc="left")
        figure.parts = parts
    parts = figure.parts
    for one, bars, numbers, (guesses, _) in zip(parts.axes, parts.bars, parts.numbers, panels):
        one.set_yticks(range(len(guesses)), [word for word, _ in guesses])
        for bar, number, (word, p) in zip(bars, numbers, guesses):
            bar.set_width(p)
            bar.set_facecolor(GREEN if word == right else SKY)
            number.set(x=p + 0.02, text=f"{p:.2f}{' ✓' if word == right else ''}")
    p_both, p_left = (dict(guesses)[right] for guesses, _ in panels)
    more = "more" if p_both > p_left + 0.01 else "less" if p_left > p_both + 0.01 else "as"
    verb = {"more": "helps", "less": "does not help", "as": "changes nothing"}[more]
    parts.title.set_text(f"Hidden: “{right}”. Seeing the right side {verb}: {p_both:.2f} against {p_left:.2f}")
    return figure
