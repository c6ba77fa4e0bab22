"""Figures of chapter 12: one step, the schedule, losses above the entropy, a jump, and loss against size."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from course_lib.chapters.training.power_law import Predicted
from course_lib.live.drawing import Drawing, as_function, fix_layout, headline, new_figure, new_panels
from course_lib.live.palette import BLUE, FONT, GREEN, GREY, INK, LIGHT, ORANGE, PURPLE, RED, SKY, WIDE, YELLOW

STEP_ARROWS = ("shift", "forward", "cross-entropy", "backward", "clip", "average", "step", "next batch")


def step_boxes(
    text: str, ids: tuple[int, ...], logits: tuple[int, ...], loss: float, gradient: float, weights: int, moved: float
) -> dict[str, str]:
    """Return the text of each box of a training step, by the name of its stage.

    text: the beginning of the first row. ids, logits: their shapes. gradient: its length. moved: the median move of a
    weight.
    """
    rows, width = ids[0], ids[1] - 1
    numbers = f"{weights:,} numbers"
    return {
        "batch": f"{text}…\n+ {rows - 1} stories\nids {ids}",
        "inputs, targets": f"inputs … was the\ntargets … the dog\n{(rows, width)} each",
        "logits": f"{logits}:\na score for every\npossible next token",
        "loss": f"mean of {rows * width} values\nof −ln p: {loss:.1f} nats",
        "gradient": f"{numbers};\nthis vector’s\nlength is {gradient:.1f}",
        "clipped gradient": f"× {1 / gradient:.2f}:\nlength 1.0",
        "AdamW": "m / √v is ±1\nin the first step;\nrate 0.005",
        "weights": f"{numbers},\nmoved by {moved:.3f}\n(median)",
    }


def one_step(boxes: Sequence[tuple[str, str]], arrows: Sequence[str], title: str) -> Figure:
    """Draw one training step as a circle of eight boxes: four to the right, four back, and around again.

    boxes: the name of a stage and its numbers. arrows: eight, the operation from each box to the next.
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
                x + (0.15 if right else -0.15),
                (y + to_y) / 2,
                done,
                ha="left" if right else "right",
                va="center",
                fontsize=FONT - 2,
                color=INK,
            )
        axes.annotate("", xy=end, xytext=start, arrowprops=line)
    headline(figure).set_text(title)
    return figure


@dataclass
class Schedule(Drawing):
    """Draw the learning rate over the steps, with the warm-up shaded and one step and its rate marked.

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
    """Draw the loss on new text over the training steps, between guessing (ln V) and the entropy, which no model can
    beat.

    batch_losses: the loss of each step on its own batch, behind the curve."""

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
        self.key = axes.text(0, 0, "", fontsize=FONT, color=INK, linespacing=1.5)
        axes.axhline(self.entropy, color=GREEN, linestyle="--", linewidth=1.8)
        axes.axhline(self.guessing, color=GREY, linestyle=":")
        names = f"entropy of Tinytown: {self.entropy:.2f}", f"guessing: ln V = {self.guessing:.1f}"
        for height, name, side in zip((self.entropy - 0.08, self.guessing + 0.04), names, ("top", "bottom")):
            axes.text(0.99 * self.total, height, name, ha="right", va=side, fontsize=FONT)
        axes.set(xlabel="step", xlim=(0, self.total), ylim=(0, self.guessing + 0.6))
        return figure

    def move(self) -> None:
        self.line.set_data(self.steps, self.losses)
        self.batches.set_data(range(1, len(self.batch_losses) + 1), self.batch_losses)
        both = len(self.batch_losses) > 0
        self.axes.set_ylabel("loss (nats per token)" if both else "loss on new stories (nats per token)")
        self.key.set_text("dots: on new stories\nthin line: on the batch of each step" if both else "")
        high = len(self.losses) > 0 and not self.losses[-1] < self.guessing / 2  # then there is room below the curve
        self.key.set_position((0.02 * self.total, 1) if high else (0.6 * self.total, 0.7 * self.guessing))
        if len(self.losses):
            over = self.losses[-1] - self.entropy
            self.headline.set_text(
                f"Step {self.steps[-1]}: the loss is {self.losses[-1]:.2f}, still {over:.2f} nats above the entropy"
            )
        else:
            self.headline.set_text(f"No step yet: the loss can fall to {self.entropy:.2f} and no further")


loss_curve = as_function(LossCurve)


def jump(losses: Sequence[float], right_steps: Sequence[int], right: Sequence[float], guessing: float) -> Figure:
    """Draw the loss and the proportion of correct copies over the steps, one above the other."""
    figure, (top, low) = new_panels(WIDE, 4.4, rows=2)
    top.plot(range(1, len(losses) + 1), losses, color=BLUE, linewidth=1.6)
    top.axhline(guessing, color=GREY, linestyle=":")
    top.text(len(losses), guessing + 0.08, "guessing", ha="right", va="bottom", fontsize=FONT, color=INK)
    top.set(ylabel="loss (nats)", xlim=(0, len(losses)), ylim=(0, guessing + 0.9))
    low.plot(right_steps, right, "s-", color=ORANGE, markersize=4)
    low.set(ylabel="correct copies", xlabel="step", xlim=(0, len(losses)), ylim=(-0.05, 1.05))
    low.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    half = next((step for step, share in zip(right_steps, right) if share >= 0.5), None)
    said = f"half of the copies are correct at step {half}" if half is not None else "the copies stay wrong"
    headline(figure).set_text(f"The loss stays high, then falls; {said}")
    return figure


COLOURS = (BLUE, ORANGE, GREEN, PURPLE)


def moves(shares: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the median move of a parameter over the steps, as a fraction of the rate, both axes logarithmic.

    shares: name of a run -> the fraction in each step, from step 1."""
    figure, axes = new_figure(WIDE, 3.3)
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel="median move ÷ rate")
    for (name, each), colour, style in zip(shares.items(), COLOURS, ("-", "--")):
        axes.plot(range(1, len(each) + 1), each, style, color=colour, linewidth=1.8, label=name)
    axes.legend(frameon=False, fontsize=FONT, loc="lower left")
    axes.set_yticks([0.05, 0.1, 0.2, 0.5, 1], ["0.05", "0.1", "0.2", "0.5", "1"])
    axes.set_xticks([1, 10, 100], ["1", "10", "100"])
    axes.minorticks_off()
    headline(figure).set_text("The first step moves every parameter by the rate; later steps get shorter and shorter")
    return figure


def schedules(every: int, runs: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Draw the learning rate over the steps on the left, and the loss on new stories on the right.

    every: steps from one value to the next. runs: name -> (rates, losses), both from step 0. The two runs of each peak
    follow each other: constant, then decayed."""
    figure, (left, right) = new_panels(WIDE, 3.6, columns=2, width_ratios=(1, 1.4))
    for i, (name, (rates, losses)) in enumerate(runs.items()):
        line: dict[str, Any] = {"linestyle": "--" if i % 2 else "-", "color": COLOURS[i // 2], "linewidth": 1.8}
        steps = [every * j for j in range(len(losses))]
        left.plot(steps, rates, **line)
        right.plot(steps, losses, label=name, **line)
    left.set(xlabel="step", ylabel="learning rate", xlim=(0, steps[-1]), ylim=(0, None))
    peaks = sorted({0.0, *(max(rates) for rates, _ in runs.values())})
    left.set_yticks(peaks, [f"{rate:g}" for rate in peaks])
    right.set(xlabel="step", ylabel="loss on new stories (nats)", xlim=(0, steps[-1]), yscale="log", ylim=(1, 6.5))
    right.set_yticks([1, 1.2, 1.5, 2, 3, 4, 6], ["1", "1.2", "1.5", "2", "3", "4", "6"])
    right.minorticks_off()
    right.legend(title="peak rate", frameon=False, fontsize=FONT, title_fontsize=FONT, loc="upper right")
    last = min(runs, key=lambda name: runs[name][1][-1])
    headline(figure).set_text(f"The run “{last}” ends lowest")
    return figure


def sweep(lines: Mapping[str, Mapping[float, Sequence[float | None]]], entropy: float, title: str) -> Figure:
    """Draw the loss over the peak rate: the mean of the seeds as a line, each seed as a dot, a ring at the lowest mean.

    lines: name -> peak rate -> the losses of the seeds, None if a run diverged."""
    figure, axes = new_figure(WIDE, 3.9)
    axes.set(xscale="log", yscale="log", xlabel="peak learning rate", ylabel="loss on new stories (nats)")
    for (name, losses), colour, style in zip(lines.items(), COLOURS, ("-", "--", ":", "-.")):
        rates, ended = list(losses), [[loss for loss in seeds if loss is not None] for seeds in losses.values()]
        means = [sum(seeds) / len(seeds) if seeds else math.inf for seeds in ended]
        axes.plot(rates, means, style, color=colour, linewidth=1.8, label=name)
        for rate, seeds in zip(rates, ended):
            axes.plot([rate] * len(seeds), seeds, ".", color=colour, markersize=4)
        best = means.index(min(means))
        axes.plot(rates[best], means[best], "o", color=colour, markeredgecolor=INK, markersize=9)
    axes.axhline(entropy, color=GREY, linestyle=":")
    axes.text(rates[-1], entropy, "entropy", ha="right", va="bottom", fontsize=FONT, color=INK)
    axes.legend(frameon=False, fontsize=FONT, loc="upper center", ncols=2)
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.set_yticks([0.7, 1, 1.5, 2, 3, 4, 6], ["0.7", "1", "1.5", "2", "3", "4", "6"])
    axes.minorticks_off()
    axes.set_ylim(0.6, 1.6 * max(loss for line in lines.values() for seeds in line.values() for loss in seeds if loss))
    headline(figure).set_text(title)
    return figure


def optimizers(lines: Mapping[str, Mapping[float, Sequence[float | None]]], title: str) -> Figure:
    """Draw the loss above the grammar's over the peak rate: the mean of the seeds as a line in a band from the lowest
    to the highest, and a large dot at the lowest mean.

    lines: name -> peak rate -> the losses of the seeds; a rate at which a run diverged (None) is left out."""
    figure, axes = new_figure(WIDE, 3.9)
    axes.set(xscale="log", yscale="log", xlabel="peak learning rate", ylabel="nats above the grammar, new stories")
    for (name, losses), colour, style in zip(lines.items(), COLOURS, ("-", "--", ":")):
        ended = {
            rate: [loss for loss in seeds if loss is not None] for rate, seeds in losses.items() if None not in seeds
        }
        means = {rate: sum(seeds) / len(seeds) for rate, seeds in ended.items()}
        axes.fill_between(
            list(ended),
            [min(seeds) for seeds in ended.values()],
            [max(seeds) for seeds in ended.values()],
            color=colour,
            alpha=0.2,
            linewidth=0,
        )
        axes.plot(list(means), list(means.values()), style, color=colour, linewidth=1.8, label=name)
        best = min(means, key=lambda rate: means[rate])
        axes.plot(best, means[best], "o", color=colour, markeredgecolor=INK, markersize=9)
    rates = [rate for losses in lines.values() for rate in losses]
    axes.set_xticks(sorted(set(rates)), [f"{rate:g}" for rate in sorted(set(rates))])
    axes.set_yticks([0.2, 0.3, 0.5, 1, 2, 3], ["0.2", "0.3", "0.5", "1", "2", "3"])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=FONT, loc="upper center")
    headline(figure).set_text(title)
    return figure


@dataclass
class Abilities(Drawing):
    """Draw the loss over the steps with one step marked, and the model's abilities at that step.

    steps, losses: the steps at which the model was tested. right: ability -> the fraction of correct words at each
    step. at: the index of the marked step. title: a text in place of the loss at that step."""

    steps: Sequence[int]
    losses: Sequence[float]
    right: Mapping[str, Sequence[float]]
    entropy: float
    at: int
    title: str = ""

    def build(self) -> Figure:
        figure, (left, over, bars) = new_panels(WIDE, 3.9, columns=3, width_ratios=(1.1, 1.1, 1))
        left.plot(self.steps, self.losses, color=BLUE, linewidth=1.8)
        left.axhline(self.entropy, color=GREEN, linestyle="--", linewidth=1.5)
        left.text(self.steps[-1], self.entropy * 0.95, "entropy", ha="right", va="top", fontsize=FONT - 1, color=INK)
        left.set_yscale("log")
        left.set_yticks([0.6, 1, 2, 4, 6], ["0.6", "1", "2", "4", "6"])
        left.set_ylim(0.5, 7)
        left.set_ylabel("loss (nats)")
        for (name, shares), colour, style in zip(self.right.items(), (*COLOURS, RED), ("-", "--", "-.", ":", "-")):
            over.plot(self.steps, shares, style, color=colour, linewidth=1.6, label=name)
        over.set(ylim=(-0.04, 1.04), ylabel="correct answers")
        over.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
        for axes in (left, over):
            axes.set_xscale("symlog", linthresh=20)
            axes.set_xlim(0, self.steps[-1] * 1.1)
            axes.set_xticks([0, 20, 100, 1000], ["0", "20", "100", "1,000"])
            axes.minorticks_off()
            axes.set_xlabel("step")
        self.lines = [axes.axvline(1, color=INK, linewidth=1) for axes in (left, over)]
        (self.dot,) = left.plot([], [], "o", color=ORANGE, markeredgecolor=INK, markersize=9)
        self.bars = bars.barh(range(len(self.right)), [1] * len(self.right), color=(*COLOURS, RED)[: len(self.right)])
        self.shares = [bars.text(0, i, "", va="center", fontsize=FONT - 1, color=INK) for i in range(len(self.right))]
        bars.set_yticks(range(len(self.right)), list(self.right))
        bars.set(xlim=(0, 1.3), xlabel="correct, this step")
        bars.set_xticks([0, 0.5, 1], ["0%", "50%", "100%"])
        bars.invert_yaxis()
        self.headline = headline(figure)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        step, loss = self.steps[self.at], self.losses[self.at]
        for line in self.lines:
            line.set_xdata([step, step])
        self.dot.set_data([step], [loss])
        for bar, share, shares in zip(self.bars, self.shares, self.right.values()):
            bar.set_width(shares[self.at])
            share.set_text(f"{shares[self.at]:.0%}")
            share.set_x(shares[self.at] + 0.02)
        self.headline.set_text(self.title or f"Step {step:,}: {loss - self.entropy:.2f} nats above the entropy")


def above_entropy(
    widths: Mapping[str, Sequence[tuple[int, float]]],
    lines: Mapping[str, Sequence[tuple[float, float]]],
    others: Sequence[Predicted],
    floor: float,
    title: str,
) -> Figure:
    """Draw the part of the loss above the floor over the tokens, with both axes logarithmic.

    Args:
        widths: name of a width -> (tokens, loss) of each of its runs.
        lines: name of a width -> (tokens, loss) by the law.
        others: runs that were not used for the fit; a star is the measured loss, a cross the predicted one.
    """
    figure, axes = new_figure(WIDE, 4.3)
    axes.set(xscale="log", yscale="log", xlabel="training tokens", ylabel="loss − entropy (nats per token)")
    for (name, runs), colour, marker in zip(widths.items(), COLOURS, "osD^"):
        axes.plot(*zip(*((tokens, loss - floor) for tokens, loss in runs)), marker, color=colour, markersize=5)
        points = [(tokens, loss - floor) for tokens, loss in lines[name]]
        axes.plot(*zip(*points), color=colour, linewidth=1.4)
        axes.annotate(
            name, points[-1], (6, 0), textcoords="offset points", ha="left", va="center", fontsize=FONT, color=INK
        )
    for i, each in enumerate(others):
        names = ("measured", "predicted") if i == 0 else ("", "")
        axes.plot(each.tokens, each.loss - floor, "*", color=RED, markersize=13, label=names[0])
        axes.plot(each.tokens, each.predicted - floor, "x", color=INK, markersize=8, markeredgewidth=2, label=names[1])
        axes.annotate(
            each.name, (each.tokens, each.loss - floor), (8, 6), textcoords="offset points", fontsize=FONT, color=INK
        )
    axes.set_yticks([0.01, 0.03, 0.1, 0.3, 1, 3], ["0.01", "0.03", "0.1", "0.3", "1", "3"])
    axes.minorticks_off()
    tokens = [tokens for runs in widths.values() for tokens, _ in runs] + [each.tokens for each in others]
    axes.set_xlim(min(tokens) / 3, max(tokens) * 4)
    axes.legend(frameon=False, fontsize=FONT, loc="lower left")
    headline(figure).set_text(title)
    return figure


def best_sizes(
    runs: Sequence[tuple[int, int]],
    grid: tuple[Sequence[float], Sequence[float], Sequence[Sequence[float]]],
    best: Sequence[tuple[float, float]],
    equal: Sequence[Sequence[tuple[float, float]]],
    title: str,
) -> Figure:
    """Draw parameters over tokens with the law's lines of equal loss, and the best use of compute.

    Args:
        runs: (parameters, tokens) of the trained models.
        grid: parameters (n), tokens (m), loss above the floor (n, m).
        best: (parameters, tokens) with the lowest loss, for increasing compute.
        equal: lines of equal compute.
    """
    figure, axes = new_figure(WIDE, 4.3)
    sizes, tokens, losses = grid
    axes.set(xscale="log", yscale="log", xlabel="parameters", ylabel="training tokens")
    levels = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0]
    lines = axes.contour(sizes, tokens, [list(row) for row in zip(*losses)], levels=levels, colors=SKY)
    axes.clabel(lines, fmt=lambda level: f"{level:g}", fontsize=FONT - 1, colors=INK)
    for line in equal:
        axes.plot(*zip(*line), ":", color=GREY, linewidth=1)
    axes.plot(*zip(*best), color=RED, linewidth=2.2)
    axes.plot(*zip(*runs), "o", color=BLUE, markersize=5)
    axes.annotate(
        "best use\nof compute", best[-1], (6, 0), textcoords="offset points", va="center", color=RED, fontsize=FONT
    )
    axes.set(xlim=(min(sizes), max(sizes)), ylim=(min(tokens), max(tokens)))
    headline(figure).set_text(title)
    return figure


def letters(
    every: int, runs: Mapping[str, tuple[Sequence[float], Sequence[float]]], counting: Mapping[str, float]
) -> Figure:
    """Draw the losses of runs on letters: on the training letters (thin) and on held-out letters.

    every: steps from one value to the next. runs: name -> (losses on its own text, losses on held-out text).
    counting: name -> the held-out loss of one of two tables of counts, the higher loss first."""
    figure, axes = new_figure(WIDE, 4.0)
    for (name, (own, held_out)), colour in zip(runs.items(), COLOURS):
        steps = [every * i for i in range(len(own))]
        axes.plot(steps, held_out, color=colour, linewidth=2.2, label=f"{name}, held-out letters")
        axes.plot(steps, own, "--", color=colour, linewidth=1.2, label=f"{name}, training letters")
    for loss in counting.values():
        axes.axhline(loss, color=GREY, linestyle=":")
    (above, high), (below, low) = counting.items()
    axes.text(steps[-1], high + 0.02, above, ha="right", va="bottom", fontsize=FONT - 1, color=INK)
    axes.text(0.01 * steps[-1], low - 0.03, below, va="top", fontsize=FONT - 1, color=INK)
    axes.set(xlabel="step", ylabel="loss (nats per letter)", xlim=(0, steps[-1]), ylim=(0.9, 4.3))
    axes.legend(frameon=False, fontsize=FONT - 1, loc="upper right", bbox_to_anchor=(1, 0.97))
    ends = {name: (min(held_out), held_out[-1]) for name, (_, held_out) in runs.items()}
    worst = max(ends, key=lambda name: ends[name][1] - ends[name][0])
    headline(figure).set_text(
        f"On {worst} the held-out loss falls to {ends[worst][0]:.2f}, then rises to {ends[worst][1]:.2f}"
    )
    return figure
