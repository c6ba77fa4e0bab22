"""Figures of chapter 11: the wiring of an encoder–decoder, where a translation looks, a blank and its guesses."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from course_lib.live.drawing import BLUE, FONT, GREEN, GREY, INK, LIGHT, ORANGE, SKY, WIDE, YELLOW, headline, new_figure


# --------------------------------------------------------------------------------------------------------- architecture
def architecture() -> Figure:
    """The two stacks of 2017: each branch with its residual connection and norm, and the one arrow between the stacks,
    from the top of the encoder to every decoder block."""
    figure, axes = new_figure(WIDE, 6.0)
    axes.set(xlim=(0, 12), ylim=(-0.4, 10.4), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    left, right = 2.9, 9.1
    attention, cross, last = 2.7, 4.6, 6.5
    parts = SimpleNamespace(
        encoder=_frame(axes, left, 1.7, 4.4, "encoder block × N"),
        decoder=_frame(axes, right, 1.7, 6.3, "decoder block × N"),
    )
    encoder = [("self-attention, both ways", attention, SKY), ("feed-forward", cross, YELLOW)]
    decoder = [
        ("self-attention, causal", attention, SKY), ("cross-attention", cross, ORANGE), ("feed-forward", last, YELLOW)
    ]  # fmt: skip
    for middle, given, branches in ((left, "the black cat . <eos>", encoder), (right, "<bos> le chat noir", decoder)):
        axes.text(middle, -0.1, given, ha="center", va="top", fontsize=FONT, color=INK)
        _arrow(axes, (middle, 0.0), (middle, 0.54))
        _box(axes, middle, 0.9, "token + position", LIGHT)
        before = 0.9 + 0.36
        for label, height, color in branches:
            _arrow(axes, (middle, before), (middle, height - 0.36))
            _box(axes, middle, height, label, color)
            before = _add_and_norm(axes, middle, height)
    # From the last block of the encoder across to the side of every cross-attention.
    top = parts.encoder.get_y() + parts.encoder.get_height()
    axes.plot([left, left], [cross + 1.06, top], color=INK, linewidth=1.2)
    (parts.source,) = axes.plot([left, left, 6.1, 6.1], [top, 6.9, 6.9, cross], color=ORANGE, linewidth=2.5)
    _arrow(axes, (6.1, cross), (right - 1.95, cross), ORANGE, 2.5)
    axes.text(left + 1.6, 7.1, "encoded source:\nkeys and values", ha="center", fontsize=FONT, color=INK)
    axes.text(right - 0.15, cross - 0.62, "queries", ha="right", fontsize=FONT, va="center", color=INK)
    _arrow(axes, (right, last + 1.06), (right, 8.24))
    _box(axes, right, 8.6, "logits → softmax", LIGHT)
    _arrow(axes, (right, 8.96), (right, 9.6))
    axes.text(right, 9.7, "le chat noir .", ha="center", fontsize=FONT, color=INK)
    headline(figure).set_text("One arrow joins the stacks: every decoder block reads the top of the encoder")
    figure.parts = parts
    return figure


def _box(axes: Axes, x: float, y: float, label: str, color: str, width: float = 3.8, height: float = 0.6) -> None:
    corner = x - width / 2, y - height / 2
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle="round,pad=0.06", facecolor=color, edgecolor=INK))
    axes.text(x, y, label, ha="center", va="center", fontsize=FONT, color=INK)


def _add_and_norm(axes: Axes, x: float, y: float) -> float:
    """The residual connection around the branch at height y, and the norm after the sum; returns where that ends."""
    sum_at = y + 0.8
    _arrow(axes, (x, y + 0.36), (x, sum_at - 0.26))
    axes.plot([x, x + 2.1, x + 2.1], [y - 0.62, y - 0.62, sum_at], color=INK, linewidth=1.2)
    _arrow(axes, (x + 2.1, sum_at), (x + 0.66, sum_at))
    _box(axes, x, sum_at, "+ norm", "white", 1.2, 0.4)
    return sum_at + 0.26


def _frame(axes: Axes, x: float, low: float, height: float, label: str) -> FancyBboxPatch:
    frame = (x - 2.3, low), 4.6, height
    axes.text(x - 2.2, low + height - 0.05, label, ha="left", va="top", fontsize=FONT - 1, color=INK)
    return axes.add_patch(
        FancyBboxPatch(*frame, boxstyle="round,pad=0.05", facecolor="none", edgecolor=GREY, linestyle="--", zorder=0)
    )


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
