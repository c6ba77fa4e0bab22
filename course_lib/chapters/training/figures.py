"""Figures of chapter 12: one step, the schedule, a loss on its way to the entropy, a jump, loss against size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from course_lib.live.drawing import Drawing, as_function, headline, new_figure, new_panels
from course_lib.live.palette import BLUE, FONT, GREEN, GREY, INK, LIGHT, ORANGE, RED, SKY, WIDE, YELLOW


def one_step(boxes: Sequence[tuple[str, str]], arrows: Sequence[str], title: str) -> Figure:
    """Draw one training step as a circle of eight boxes: four to the right, four back, and round again.

    boxes: the name of a stage and the numbers that it holds. arrows: what is done from each box to the next, eight.
    """
    figure, axes = new_figure(WIDE, 4.3)
    axes.set(xlim=(-0.05, 12.05), ylim=(0, 5.9), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    centres = [(1.3 + 3.15 * i, 4.5) for i in range(4)] + [(1.3 + 3.15 * i, 1.2) for i in range(3, -1, -1)]
    wide, high = 2.3, 1.9
    for (x, y), (name, holds) in zip(centres, boxes):
        colour = SKY if y > 3 else YELLOW
        corner = x - wide / 2, y - high / 2
        axes.add_patch(FancyBboxPatch(corner, wide, high, boxstyle="round,pad=0.05", fc="white", ec=INK))
        axes.add_patch(FancyBboxPatch((corner[0], y + 0.5), wide, 0.45, boxstyle="round,pad=0.05", fc=colour, ec=INK))
        axes.text(x, y + 0.72, name, ha="center", va="center", fontsize=FONT - 1, weight="bold", color=INK)
        axes.text(x, y - 0.3, holds, ha="center", va="center", fontsize=FONT - 2, color=INK, linespacing=1.3)
    line = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
    for i, ((x, y), (to_x, to_y), done) in enumerate(zip(centres, [*centres[1:], centres[0]], arrows)):
        if y == to_y:
            side = 1 if to_x > x else -1
            start, end = (x + side * 1.21, y), (to_x - side * 1.21, y)
            axes.text((x + to_x) / 2, y + 1.08, done, ha="center", va="bottom", fontsize=FONT - 2, color=INK)
        else:
            side = 1 if to_y > y else -1
            start, end = (x, y + side * 1.01), (x, to_y - side * 1.01)
            right = i > 4
            axes.text(
                x + (0.15 if right else -0.15), (y + to_y) / 2, done, ha="left" if right else "right", va="center",
                fontsize=FONT - 2, color=INK,
            )  # fmt: skip
        axes.annotate("", xy=end, xytext=start, arrowprops=line)
    headline(figure).set_text(title)
    return figure


@dataclass
class Schedule(Drawing):
    """The learning rate over the steps; the warm-up is shaded, one step and its rate are marked.

    highest: upper end of the axis. expected: rates to compare with, dashed."""

    steps: Sequence[int]
    rates: Sequence[float]
    warmup: int
    step: int
    rate: float
    highest: float = 0.01
    expected: Sequence[float] | None = None
    title: str = ""

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 3.3)
        figure.set_layout_engine(None)
        axes.set_position((0.12, 0.18, 0.84, 0.66))
        self.headline, self.axes = headline(figure), axes
        self.shade = axes.axvspan(0, 1, color=LIGHT, zorder=0)
        (self.line,) = axes.plot([], [], color=BLUE, linewidth=2)
        (self.here,) = axes.plot([], [], "o", color=ORANGE, markeredgecolor=INK, markersize=10, clip_on=False)
        (self.dashed,) = axes.plot([], [], color=GREY, linestyle="--", linewidth=4, zorder=1)
        axes.set(xlabel="step", ylabel="learning rate", ylim=(0, 1.06 * self.highest))
        axes.ticklabel_format(axis="y", style="plain")
        return figure

    def move(self) -> None:
        self.line.set_data(self.steps, self.rates)
        if self.expected is not None:
            self.dashed.set_data(self.steps, self.expected)
        self.axes.set_xlim(0, self.steps[-1])
        self.shade.set(x=0, width=self.warmup)
        self.here.set_data([self.step], [self.rate])
        falls = "falling" if self.rates[-1] < max(self.rates) else "steady"
        phase = "warming up" if self.step < self.warmup else falls if self.step < self.steps[-1] else "at its end"
        self.headline.set_text(self.title or f"Step {self.step}: the learning rate is {self.rate:.4f}, {phase}")


@dataclass
class LossCurve(Drawing):
    """Loss on new text over the steps of a training, between guessing (ln V) and the entropy that nothing can beat.

    batch_losses: the loss of each step on its own batch, drawn behind the curve."""

    steps: Sequence[int]
    losses: Sequence[float]
    entropy: float
    total: int
    guessing: float
    batch_losses: Sequence[float] = ()

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 3.8)
        figure.set_layout_engine(None)
        axes.set_position((0.1, 0.16, 0.87, 0.7))
        self.headline, self.axes = headline(figure), axes
        (self.line,) = axes.plot([], [], "o-", color=BLUE, markersize=4)
        (self.batches,) = axes.plot([], [], color=GREY, linewidth=0.8, zorder=1)
        self.key = axes.text(0.4 * self.total, 0.55 * self.guessing, "", fontsize=FONT, color=INK, linespacing=1.5)
        axes.axhline(self.entropy, color=GREEN, linestyle="--", linewidth=1.8)
        axes.axhline(self.guessing, color=GREY, linestyle=":")
        names = f"entropy of Tinytown: {self.entropy:.2f}", f"guessing: ln V = {self.guessing:.1f}"
        for height, name in zip((self.entropy, self.guessing), names):
            axes.text(0.99 * self.total, height - 0.08, name, ha="right", va="top", fontsize=FONT)
        axes.set(xlabel="step", xlim=(0, self.total), ylim=(0, self.guessing + 0.4))
        return figure

    def move(self) -> None:
        self.line.set_data(self.steps, self.losses)
        self.batches.set_data(range(1, len(self.batch_losses) + 1), self.batch_losses)
        both = len(self.batch_losses) > 0
        self.axes.set_ylabel("loss (nats per token)" if both else "loss on new stories (nats per token)")
        self.key.set_text("dots: on new stories\nthin line: on the batch of each step" if both else "")
        if len(self.losses):
            over = self.losses[-1] - self.entropy
            self.headline.set_text(
                f"Step {self.steps[-1]}: the loss is {self.losses[-1]:.2f}, still {over:.2f} nats above the entropy"
            )
        else:
            self.headline.set_text(f"No step yet: the loss can fall to {self.entropy:.2f} and no further")


loss_curve = as_function(LossCurve)


def long_run(steps: Sequence[int], losses: Sequence[float], entropy: float, final: float, total: int) -> Figure:
    """Draw the training loss of a long run, both axes logarithmic, above the entropy. final: loss on new stories after
    all `total` steps."""
    figure, axes = new_figure(WIDE, 3.6)
    axes.set_xscale("log")
    axes.plot(steps, losses, color=BLUE, linewidth=1.8)
    axes.axhline(entropy, color=GREEN, linestyle="--", linewidth=1.8)
    axes.text(steps[0], entropy * 0.97, f"entropy: {entropy:.3f}", va="top", fontsize=FONT, color=INK)
    axes.set_yscale("log")
    axes.set_yticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
    axes.set_xticks([50, 100, 200, 500, 1000, 2000, 5000], ["50", "100", "200", "500", "1,000", "2,000", "5,000"])
    axes.minorticks_off()
    axes.set(xlabel="step", ylabel="training loss (nats per token)", ylim=(0.5, 1.2 * max(losses)))
    headline(figure).set_text(
        f"After {total:,} steps the loss on new stories is {final:.3f}: {final / entropy - 1:.1%} above the entropy"
    )
    return figure


def jump(losses: Sequence[float], right_steps: Sequence[int], right: Sequence[float], guessing: float) -> Figure:
    """Draw the loss and share of right copies over the steps, one above the other."""
    figure, (top, low) = new_panels(WIDE, 4.4, rows=2)
    top.plot(range(1, len(losses) + 1), losses, color=BLUE, linewidth=1.6)
    top.axhline(guessing, color=GREY, linestyle=":")
    top.text(len(losses), guessing + 0.08, "guessing", ha="right", va="bottom", fontsize=FONT, color=INK)
    top.set(ylabel="loss (nats)", xlim=(0, len(losses)), ylim=(0, guessing + 0.9))
    low.plot(right_steps, right, "s-", color=ORANGE, markersize=4)
    low.set(ylabel="right copies", xlabel="step", xlim=(0, len(losses)), ylim=(-0.05, 1.05))
    low.set_yticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
    half = next((step for step, share in zip(right_steps, right) if share >= 0.5), None)
    said = f"near step {half} the copies turn right" if half is not None else "the copies stay wrong"
    headline(figure).set_text(f"The loss lingers, then falls; {said}")
    return figure


def scaling(
    runs: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    larger: tuple[float, float],
    laws: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    entropy: float,
) -> Figure:
    """Draw the held-out loss over the tokens that were trained on, both axes logarithmic; the entropy is the floor.

    Args:
        runs: name of a width, tokens, losses: each a line of points.
        larger: tokens and loss of a model that the laws were not fitted to.
        laws: what a power law was fitted to -> (tokens, losses): what it predicts for the larger model's size.
    """
    figure, axes = new_figure(WIDE, 4.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for (name, tokens, losses), colour, marker in zip(runs, (BLUE, ORANGE, GREEN), "osD"):
        axes.plot(tokens, losses, marker + "-", color=colour, markersize=7)
        axes.annotate(
            name, (tokens[0], losses[0]), (-6, 0), textcoords="offset points", ha="right", va="center", fontsize=FONT
        )
    for (name, (tokens, losses)), style in zip(laws.items(), ("--", "-")):
        axes.plot(tokens, losses, style, color=INK, linewidth=1.4)
        below_the_end: dict[str, Any] = {"xytext": (-12, -8), "textcoords": "offset points", "ha": "right", "va": "top"}
        axes.annotate(f"law of the {name}", (tokens[-1], losses[-1]), fontsize=FONT, **below_the_end)
    axes.plot(*larger, "*", color=RED, markersize=15)
    axes.annotate("shipped model", larger, (0, 12), textcoords="offset points", ha="center", fontsize=FONT)
    axes.axhline(entropy, color=GREY, linestyle=":", linewidth=1.8)
    first, last = runs[0][1][0], larger[0]
    axes.text(first / 6, entropy * 0.96, f"entropy: {entropy:.2f}", va="top", fontsize=FONT, color=INK)
    ticks = [0.25, 0.5, 1, 2, 4]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    lowest = min(losses[-1] for _, losses in laws.values())
    axes.set(xlabel="training tokens", ylabel="loss on new stories (nats per token)", xlim=(first / 7, last * 3))
    axes.set_ylim(bottom=0.6 * lowest)  # room for the name below the end of a law
    said = ", ".join(f"from the {name} {losses[-1]:.1f}" for name, (_, losses) in laws.items())
    headline(figure).set_text(f"The shipped model has {larger[1]:.2f} nats; predicted {said}")
    return figure
