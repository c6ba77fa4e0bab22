"""Figures of chapter 11: an encoder–decoder, where a translation looks, and the guesses for a blank."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from course_lib.live.drawing import Drawing, headline, new_figure, new_panels
from course_lib.live.palette import BLUE, FONT, GREEN, GREY, INK, LIGHT, ORANGE, SKY, WIDE, YELLOW


# --------------------------------------------------------------------------------------------------------- architecture
def architecture(source: Sequence[str], target: Sequence[str], d_model: int) -> Figure:
    """Draw the two stacks of 2017 for a sentence and its translation, with the shapes.

    Each branch has its residual connection and its norm. The only arrows between the stacks go from the top of the
    encoder to every decoder block.

    source: the encoder's input. target: the translation, without <bos> and <eos>.
    """
    figure, axes = new_figure(WIDE, 6.0)
    axes.set(xlim=(0, 12), ylim=(-0.4, 10.4), xticks=[], yticks=[])
    S, T = len(source), len(target) + 1  # the decoder reads <bos> and the target
    axes.spines[:].set_visible(False)
    left, right = 2.9, 9.1
    attention, cross, last = 2.7, 4.6, 6.5
    encoder_frame = _frame(axes, left, 1.7, 4.4, "encoder block × N")
    _frame(axes, right, 1.7, 6.3, "decoder block × N")
    encoder = [("self-attention, bidirectional", attention, SKY), ("feed-forward", cross, YELLOW)]
    decoder = [
        ("self-attention, causal", attention, SKY),
        ("cross-attention", cross, ORANGE),
        ("feed-forward", last, YELLOW),
    ]
    for middle, given, branches in ((left, " ".join(source), encoder), (right, " ".join(["<bos>", *target]), decoder)):
        axes.text(middle, -0.1, given, ha="center", va="top", fontsize=FONT, color=INK)
        _arrow(axes, (middle, 0.0), (middle, 0.54))
        _box(axes, middle, 0.9, "token + position", LIGHT)
        before = 0.9 + 0.36
        for label, height, color in branches:
            _arrow(axes, (middle, before), (middle, height - 0.36))
            _box(axes, middle, height, label, color)
            before = _add_and_norm(axes, middle, height)
    # From the last block of the encoder to the side of every cross-attention.
    top = encoder_frame.get_y() + encoder_frame.get_height()
    axes.plot([left, left], [cross + 1.06, top], color=INK, linewidth=1.2)
    axes.plot([left, left, 6.1, 6.1], [top, 6.9, 6.9, cross], color=ORANGE, linewidth=2.5)
    _arrow(axes, (6.1, cross), (right - 1.95, cross), ORANGE, 2.5)
    axes.text(
        left + 1.6, 7.1, f"encoded source {(1, S, d_model)}:\nkeys and values", ha="center", fontsize=FONT, color=INK
    )
    axes.text(
        right - 0.15, cross - 0.62, f"queries {(1, T, d_model)}", ha="right", fontsize=FONT, va="center", color=INK
    )
    _arrow(axes, (right, last + 1.06), (right, 8.24))
    _box(axes, right, 8.6, "logits → softmax", LIGHT)
    _arrow(axes, (right, 8.96), (right, 9.6))
    axes.text(right, 9.7, " ".join([*target, "<eos>"]), ha="center", fontsize=FONT, color=INK)
    headline(figure).set_text("One arrow joins the stacks: every decoder block reads the top of the encoder")
    return figure


def _box(axes: Axes, x: float, y: float, label: str, color: str, width: float = 3.8, height: float = 0.6) -> None:
    corner = x - width / 2, y - height / 2
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle="round,pad=0.06", facecolor=color, edgecolor=INK))
    axes.text(x, y, label, ha="center", va="center", fontsize=FONT, color=INK)


def _add_and_norm(axes: Axes, x: float, y: float) -> float:
    """Draw the residual connection around the branch at height y, and the norm after it; return the height of its
    end."""
    sum_at = y + 0.8
    _arrow(axes, (x, y + 0.36), (x, sum_at - 0.26))
    axes.plot([x, x + 2.1, x + 2.1], [y - 0.62, y - 0.62, sum_at], color=INK, linewidth=1.2)
    _arrow(axes, (x + 2.1, sum_at), (x + 0.66, sum_at))
    _box(axes, x, sum_at, "+ norm", "white", 1.2, 0.4)
    return sum_at + 0.26


def _frame(axes: Axes, x: float, low: float, height: float, label: str) -> FancyBboxPatch:
    axes.text(x - 2.2, low + height - 0.05, label, ha="left", va="top", fontsize=FONT - 1, color=INK)
    frame = FancyBboxPatch((x - 2.3, low), 4.6, height, boxstyle="round,pad=0.05", zorder=0)
    frame.set(facecolor="none", edgecolor=GREY, linestyle="--")
    axes.add_patch(frame)
    return frame


def _arrow(axes: Axes, start: tuple, end: tuple, color: str = INK, width: float = 1.2) -> None:
    style = {"arrowstyle": "-|>", "color": color, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)


# ------------------------------------------------------------------------------------------------------- training loss
def translator_curve(losses: Sequence[float], guessing: float) -> Figure:
    """Draw the loss per step in nats per French token, between a uniform guess among all words and a perfect
    translator, whose loss is 0."""
    figure, axes = new_figure(WIDE, 3.4)
    axes.plot(range(1, len(losses) + 1), losses, color=BLUE, linewidth=1.2)
    for height in (guessing, 0.0):
        axes.axhline(height, color=GREY, linestyle=":")
    # Each label is at a point far from the curve.
    end_of_axis, guess = 0.99 * len(losses), f"guessing among all words: {guessing:.1f}"
    axes.text(end_of_axis, guessing + 0.08, guess, ha="right", fontsize=FONT, color=INK)
    axes.text(0.01 * len(losses), 0.08, "0", fontsize=FONT, color=INK)
    axes.set(xlabel="step", ylabel="loss (nats per French token)", ylim=(-0.2, guessing + 0.7), xlim=(0, len(losses)))
    end = float(np.mean(losses[-20:]))
    headline(figure).set_text(f"In {len(losses)} steps the loss falls from {losses[0]:.1f} to {end:.1f} nats")
    return figure


# ------------------------------------------------------------------------------------------------------------ alignment
@dataclass
class AlignmentMap(Drawing):
    """Draw the cross-attention of one head: weights (T, S), a row for each French word. Circles show the grammar's
    alignment.

    aligned: (source index, target index) of each translated word, without <eos>. head: its name, such as "head 0".
    """

    weights: np.ndarray
    source: Sequence[str]
    target: Sequence[str]
    aligned: Sequence[tuple[int, int]]
    head: str
    title: str = ""

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 3.9)
        figure.set_layout_engine(None)
        axes.set_position((0.16, 0.27, 0.7, 0.61))
        self.headline, self.axes = headline(figure), axes
        self.image = axes.imshow(np.zeros((1, 1)), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        self.circles = axes.scatter(
            [], [], s=120, marker="o", facecolors="none", edgecolors=ORANGE, linewidths=2.2, clip_on=False
        )
        axes.set(xlabel="English word looked at (○: the word being translated)", ylabel="French word being written")
        axes.tick_params(length=0)
        bar = figure.colorbar(self.image, cax=figure.add_axes((0.88, 0.27, 0.02, 0.61)))
        bar.set_label("weight", size=FONT)
        bar.ax.tick_params(labelsize=FONT - 1)
        return figure

    def move(self) -> None:
        T, S = self.weights.shape
        self.image.set_data(self.weights)
        self.image.set_extent((-0.5, S - 0.5, T - 0.5, -0.5))
        self.axes.set(xlim=(-0.5, S - 0.5), ylim=(T - 0.5, -0.5))
        self.axes.set_xticks(range(S), self.source, rotation=45, ha="right", rotation_mode="anchor")
        self.axes.set_yticks(range(T), self.target)
        self.circles.set_offsets(np.array(self.aligned, dtype=float).reshape(-1, 2))
        hits = sum(int(self.weights[t].argmax()) == s for s, t in self.aligned)
        found = f"{hits} of {len(self.aligned)} French words look most at the word they translate"
        said = found if self.aligned else "a wrong translation, so no circles"
        self.headline.set_text(self.title or f"{self.head.capitalize()}: {said}")


# --------------------------------------------------------------------------------------------------------------- blanks
@dataclass
class BlankGuesses(Drawing):
    """Draw the most probable words for one blank, from both sides and from the left only.

    both, left: (word, probability), best first. The hidden word, `right`, is in both; it is last if it is not among the
    best.
    """

    both: Sequence[tuple[str, float]]
    left: Sequence[tuple[str, float]]
    right: str

    def build(self) -> Figure:
        figure, self.axes = new_panels(WIDE, 3.3, 2)
        figure.set_layout_engine(None)
        for one, x in zip(self.axes, (0.12, 0.62)):
            one.set_position((x, 0.19, 0.36, 0.58))
        self.headline = headline(figure)
        self.bars, self.numbers = [], []
        names = "reads both sides (encoder)", "reads the left side only (decoder)"
        for one, guesses, name in zip(self.axes, (self.both, self.left), names):
            places = range(len(guesses))
            self.bars.append(one.barh(places, [0.0] * len(guesses), edgecolor=INK, linewidth=0.5))
            self.numbers.append([one.text(0, place, "", fontsize=FONT, va="center") for place in places])
            one.set(xlim=(0, 1.35), xticks=[0, 0.5, 1], ylim=(len(guesses) - 0.5, -0.5), xlabel="probability")
            one.set_title(name, fontsize=FONT, loc="left")
        return figure

    def move(self) -> None:
        for one, bars, numbers, guesses in zip(self.axes, self.bars, self.numbers, (self.both, self.left)):
            one.set_yticks(range(len(guesses)), [word for word, _ in guesses])
            for bar, number, (word, p) in zip(bars, numbers, guesses):
                bar.set_width(p)
                bar.set_facecolor(GREEN if word == self.right else SKY)
                number.set(x=p + 0.02, text=f"{p:.2f}{' ✓' if word == self.right else ''}")
        p_both, p_left = dict(self.both)[self.right], dict(self.left)[self.right]
        more = "more" if p_both > p_left + 0.01 else "less" if p_left > p_both + 0.01 else "as"
        verb = {"more": "helps", "less": "does not help", "as": "changes nothing"}[more]
        self.headline.set_text(
            f"Hidden: “{self.right}”. Seeing the right side {verb}: {p_both:.2f} against {p_left:.2f}"
        )
