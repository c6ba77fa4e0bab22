"""Figures of chapter 16: the best possible reward at each divergence, the methods compared with it, and a learned
reward next to the true one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from course_lib.chapters.assistant.methods import Result, frontier, two_valued
from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure
from course_lib.live.palette import BLUE, FONT, GREEN, GREY, INK, LIGHT, ORANGE, PURPLE, RED

MARKS = {  # of each method: the shape carries the meaning, the colour helps
    "base": ("s", GREY),
    "best of n": ("o", BLUE),
    "DPO": ("D", PURPLE),
    "policy gradient": ("^", GREEN),
    "best possible": ("*", ORANGE),
    "learned reward, no price": (">", RED),
}


BELOW = "Best of n is on the frontier; the trained models are below it"


def curve(rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (divergences, shares) of the best possible models, for a base that tells a share `rate` of good
    stories."""
    shares = np.linspace(rate, 1, 200)
    return np.array([two_valued(rate, float(share)) for share in shares]), shares


@dataclass
class Price(Drawing):
    """Draw the best possible fraction of good stories over divergence, and the best model for a price of β per nat."""

    rate: float
    beta: float

    def build(self) -> Figure:
        figure, axes = new_figure(8.2, 4.0)
        divergences, shares = curve(self.rate)
        end = 1.2 * divergences[-1]
        axes.plot([*divergences, end], [*shares, 1], color=BLUE, linewidth=2.5)
        axes.fill_between([*divergences, end], [*shares, 1], 1.08, color=LIGHT)
        axes.text(0.03 * end, 0.97, "no model can be here", fontsize=FONT, color=INK, va="top")
        axes.plot(0, self.rate, "s", color=GREY, markersize=9)
        axes.annotate("the base", (0, self.rate), (12, -4), textcoords="offset points", fontsize=FONT, color=INK)
        (self.line,) = axes.plot([], [], "--", color=ORANGE, linewidth=2)
        (self.best,) = axes.plot([], [], "o", color=ORANGE, markeredgecolor=INK, markersize=11)
        axes.text(0.98, 0.10, "dashed: all points with the same reward minus price", transform=axes.transAxes,
                  ha="right", fontsize=FONT, color=INK)  # fmt: skip
        axes.set(xlim=(-0.02 * end, end), ylim=(0, 1.08), ylabel="fraction of good stories")
        axes.set_xlabel("divergence from the base, in nats per story")
        self.headline = headline(figure)
        self.headline.set_text("β = 0.30: the best model tells 76% good stories, 1.21 nats from the base")
        fix_layout(figure)
        return figure

    def move(self) -> None:
        share, nats = frontier(self.rate, self.beta)
        self.best.set_data([nats], [share])
        ends = np.array([0.0, 10.0])
        self.line.set_data(ends, share + self.beta * (ends - nats))
        self.headline.set_text(
            f"β = {self.beta:.2f}: the best model tells {share:.0%} good stories, {nats:.2f} nats from the base"
        )


def methods(rate: float, results: dict[str, Sequence[tuple[str, Result]]], limit: float = 4.0) -> Figure:
    """Draw each method's results, and the frontier.

    results: method -> (label, result) pairs. Results beyond `limit` nats stand at the right edge.
    """
    figure, axes = new_figure(8.4, 4.4)
    divergences, shares = curve(rate)
    axes.plot([*divergences, limit * 1.1], [*shares, 1], color=INK, linewidth=2)
    axes.fill_between([*divergences, limit * 1.1], [*shares, 1], 1.06, color=LIGHT)
    for method, given in results.items():
        mark, colour = MARKS[method]
        x = [min(result.divergence, limit) for _, result in given]
        y = [result.good for _, result in given]
        axes.plot(x, y, mark, color=colour, markeredgecolor=INK, markersize=14 if mark == "*" else 9, linestyle="none",
                  label=method)  # fmt: skip
        for (label, result), left, up in zip(given, x, y):
            beyond = f"{label or method}: {result.divergence:.0f} nats →" if result.divergence > limit else label
            place = (-8, 8) if result.divergence > limit else (9, -4)
            side = "right" if result.divergence > limit else "left"
            axes.annotate(beyond, (left, up), place, textcoords="offset points", fontsize=FONT - 1, color=INK, ha=side)
    axes.set(xlim=(-0.1, limit * 1.08), ylim=(-0.03, 1.06), ylabel="fraction of good stories")
    axes.set_xlabel("divergence from the base, in nats per story")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=len(results), fontsize=FONT - 1, frameon=False,
                handletextpad=0.1, columnspacing=1.2)  # fmt: skip
    headline(figure).set_text(BELOW)
    return figure


def methods_in_words(results: dict[str, Sequence[tuple[str, Result]]]) -> str:
    """Return what `methods` shows, in words."""
    each = [
        f"{name}{f' ({label})' if label else ''}: {result.good:.0%} at {result.divergence:.1f} nats"
        for name, given in results.items()
        for label, result in given
    ]
    return f"{BELOW}. Fraction of good stories and divergence: {'; '.join(each)}."


@dataclass
class TwoRewards(Drawing):
    """Draw the reward that a model was trained on, and the true one, over the steps of training."""

    trained_on: np.ndarray  # (steps,) mean of the reward that the model is trained on
    true: np.ndarray  # (steps,) fraction of good stories
    step: int

    def build(self) -> Figure:
        figure, axes = new_figure(8.2, 3.6)
        steps = np.arange(1, len(self.true) + 1)
        axes.plot(steps, self.trained_on, color=ORANGE, linewidth=2.5, linestyle="--")
        axes.plot(steps, self.true, color=BLUE, linewidth=2.5)
        end = steps[-1] * 1.02
        axes.text(end, self.trained_on[-1], "the learned reward", fontsize=FONT, color=INK, va="center")
        axes.text(end, self.true[-1], "the true reward", fontsize=FONT, color=INK, va="center")
        self.line = axes.axvline(1, color=GREY, linewidth=1.5)
        (self.marks,) = axes.plot([], [], "o", color=INK, markersize=7)
        axes.set(xlim=(0.5, 1.25 * len(steps)), ylim=(-0.1, 1.1), xlabel="step of training", ylabel="mean reward")
        axes.set_xticks(range(5, len(steps) + 1, 5))
        self.headline = headline(figure)
        self.headline.set_text("Step 20: the learned reward is 0.99, and the true one 0.00")
        fix_layout(figure)
        return figure

    def move(self) -> None:
        learned, true = self.trained_on[self.step - 1], self.true[self.step - 1]
        self.line.set_xdata([self.step, self.step])
        self.marks.set_data([self.step, self.step], [learned, true])
        self.headline.set_text(f"Step {self.step}: the learned reward is {learned:.2f}, and the true one {true:.2f}")
