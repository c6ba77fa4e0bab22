"""Figures of chapter 6: one token in the network, units that fire, activation functions, a fact, and experts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure, new_panels
from course_lib.live.palette import BLUE, DIVERGING, FONT, GREEN, GREY, INK, LIGHT, ORANGE, SKY, WIDE


# ----------------------------------------------------------------------------------------------- one token, step by
# step
def expand_contract(
    x: np.ndarray, scores: np.ndarray, hidden: np.ndarray, output: np.ndarray, token: str, n_named: int = 3
) -> Figure:
    """Draw one token in each step: x (d_model,), scores (d_ff,), hidden units after the nonlinearity (d_ff,), output
    (d_model,).

    Each tensor is a column of its numbers, as high as its number of features. The strongest `n_named` units show their
    number.
    """
    figure, axes = new_figure(WIDE, 4.3)
    axes.spines[:].set_visible(False)
    axes.set(xlim=(-0.9, 11.1), ylim=(1.2, -0.03), xticks=[], yticks=[])
    d_model, d_ff = len(x), len(scores)
    high = d_model / d_ff
    for left, values, height, name in (
        (0.0, x, high, f"{token}\n({d_model},)"),
        (3.1, scores, 1.0, f"scores\n({d_ff},)"),
        (6.2, hidden, 1.0, f"hidden units\n({d_ff},)"),
        (10.5, output, high, f"output\n({d_model},)"),
    ):
        top = (1 - height) / 2
        norm = CenteredNorm(halfrange=float(np.abs(values).max()))
        extent = (left - 0.3, left + 0.3, top + height, top)
        axes.imshow(values[:, None], aspect="auto", cmap=DIVERGING, norm=norm, extent=extent, interpolation="nearest")
        frame = Rectangle((left - 0.3, top), 0.6, height, fill=False, edgecolor=INK, linewidth=1)
        axes.add_patch(frame)
        axes.text(left, top + height + 0.04, name, ha="center", va="top", fontsize=FONT, color=INK)
    firing = int((scores > 0).sum())
    for left, word, formula in (
        (1.55, "expand", f"× W_up\n({d_model}, {d_ff})"),
        (4.65, "nonlinearity", f"{firing} of {d_ff}\nunits fire"),
        (9.05, "contract", f"× W_down\n({d_ff}, {d_model})"),
    ):
        arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.6}
        axes.annotate("", (left + 0.85, 0.5), (left - 0.85, 0.5), arrowprops=arrow)
        axes.text(left, 0.46, word, ha="center", va="bottom", fontsize=FONT + 1, weight="bold", color=INK)
        axes.text(left, 0.54, formula, ha="center", va="top", fontsize=FONT - 1, color=INK)
    taken: list[float] = []
    for unit in sorted(np.argsort(-hidden)[:n_named].tolist()):
        y = max([(unit + 0.5) / d_ff, *(height + 0.075 for height in taken)])  # keep names apart
        taken.append(y)
        where = {"arrowstyle": "-", "color": INK, "linewidth": 0.8}
        axes.annotate(
            f"unit {unit}: {hidden[unit]:.1f}",
            (6.5, (unit + 0.5) / d_ff),
            (6.75, y),
            arrowprops=where,
            va="center",
            fontsize=FONT - 1,
            color=INK,
        )
    headline(figure).set_text(f"{d_ff} units read one token: {firing} fire, and each of them adds its own vector")
    return figure


def expand_contract_in_words(x: np.ndarray, scores: np.ndarray, hidden: np.ndarray, output: np.ndarray) -> str:
    """Return a description of `expand_contract` in words."""
    return (
        f"Four columns of numbers, joined by arrows. The {len(x)} features of x are expanded to {len(scores)} scores. "
        f"After the nonlinearity {(scores > 0).sum()} units fire, unit {hidden.argmax()} most strongly. The result is "
        f"contracted to {len(output)} features."
    )


# ------------------------------------------------------------------------------------------------------------ unit map
@dataclass
class UnitMap(Drawing):
    """Draw every hidden unit before and after the activation (d_ff,), and their sum, the output (d_model,).

    A unit fires if its score is above 0. Then its bar is filled, and its number below is bold.
    """

    scores: np.ndarray
    hidden: np.ndarray
    output: np.ndarray

    def build(self) -> Figure:
        n_units, n_features = len(self.scores), len(self.output)
        figure, (left, right) = new_panels(WIDE, 4.1, 2, width_ratios=[3.2, 1])
        self.headline = headline(figure)
        self.outlines = left.bar(range(n_units), [0.0] * n_units, fill=False, edgecolor=GREY, linestyle=":", width=0.8)
        self.bars = left.bar(range(n_units), [0.0] * n_units, color=BLUE, width=0.8)
        left.axhline(0, color=INK, linewidth=0.8)
        left.set(ylim=(-5, 5), xticks=range(n_units), xlabel="hidden unit", ylabel="score and activation")
        self.note = left.set_title("dotted: score before the activation; filled: after it", fontsize=FONT, loc="left")
        self.labels = left.get_xticklabels()
        self.outputs = right.barh(range(n_features), [0.0] * n_features, color=ORANGE, edgecolor=INK, linewidth=0.5)
        right.axvline(0, color=INK, linewidth=0.8)
        right.set(xlim=(-5, 5), ylim=(n_features - 0.5, -0.5), yticks=range(n_features), xlabel="output")
        right.set_yticklabels([f"feature {i}" for i in range(n_features)])
        fix_layout(figure)
        return figure

    def move(self) -> None:
        for outline, bar, label, score, value in zip(self.outlines, self.bars, self.labels, self.scores, self.hidden):
            outline.set_height(score)
            bar.set_height(value)
            bar.set_color(BLUE if score > 0 else SKY)
            label.set_fontweight("bold" if score > 0 else "normal")
            label.set_color(INK if score > 0 else GREY)
        for bar, value in zip(self.outputs, self.output):
            bar.set_width(value)
        self.headline.set_text(f"{int((self.scores > 0).sum())} of {len(self.scores)} units fire for this input")


# ------------------------------------------------------------------------------------------ straight pieces that add up
@dataclass
class StraightPieces(Drawing):
    """Draw a curve of straight pieces: the target (N,), every unit's contribution (n_units, N) and their sum (N,)."""

    x: np.ndarray
    target: np.ndarray
    units: np.ndarray
    total: np.ndarray

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 4.0)
        self.headline, self.axes = headline(figure), axes
        self.unit_lines: list[Line2D] = []
        axes.plot(self.x, self.target, color=GREY, linewidth=6, alpha=0.45, solid_capstyle="round")
        (self.total_line,) = axes.plot([], [], color=BLUE, linewidth=2.2)
        axes.set(xlim=(self.x[0], self.x[-1]), ylim=(-3, 3), xticks=range(7), xlabel="input x", ylabel="output y")
        for height, text, color in ((2.3, "thick grey: target", INK), (1.7, "blue: sum plus bias", BLUE)):
            axes.text(self.x[-1] * 1.03, height, text, color=color, fontsize=FONT, va="center")
        axes.text(self.x[-1] * 1.03, 1.1, "thin: single units", color=INK, fontsize=FONT, va="center")
        fix_layout(figure)
        return figure

    def move(self) -> None:
        while len(self.unit_lines) < len(self.units):
            self.unit_lines.append(self.axes.plot([], [], color=ORANGE, linewidth=0.9, zorder=1)[0])
        for i, line in enumerate(self.unit_lines):
            line.set_data((self.x, self.units[i]) if i < len(self.units) else ([], []))
        self.total_line.set_data(self.x, self.total)
        error = float(np.abs(self.total - self.target).mean())
        count = f"{len(self.units)} {'unit' if len(self.units) == 1 else 'units'}"
        self.headline.set_text(f"{count}: the output misses the target by {error:.2f} on average")


# ---------------------------------------------------------------------------------------------------------- activations
def activations(x: np.ndarray, curves: Mapping[str, np.ndarray]) -> Figure:
    """Draw activation functions over their input, and the same near 0."""
    figure, (whole, near) = new_panels(WIDE, 3.8, 2)
    styles = {
        name: (color, line) for name, color, line in zip(curves, (INK, BLUE, ORANGE, GREEN), ("-", "-", "--", "-."))
    }
    for axes, (left, right), (bottom, top) in ((whole, (-4, 4), (-0.6, 4)), (near, (-4, 1), (-0.32, 0.3))):
        for name, curve in curves.items():
            color, line = styles[name]
            axes.plot(x, curve, color=color, linestyle=line, linewidth=2, label=name)
        axes.axhline(0, color=LIGHT, zorder=0)
        axes.set(xlim=(left, right), ylim=(bottom, top), xlabel="score z", ylabel="activation")
    whole.legend(fontsize=FONT, frameon=False, loc="upper left")
    near.set_title("the same, close to 0", fontsize=FONT, loc="left")
    headline(figure).set_text("ReLU is 0 below 0; GELU and SiLU dip below 0 and come back")
    return figure


# ---------------------------------------------------------------------------------------------------- where a fact is
@dataclass
class CapitalChances(Drawing):
    """Draw the probability of the right capital for every country, while the units of the chosen country are removed.

    lost_below: the threshold, drawn as a line; below it a capital counts as lost.
    """

    names: Sequence[str]
    chances: np.ndarray
    chosen: int
    n_removed: int
    lost_below: float = 0.5

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 4.6)
        n = len(self.names)
        self.headline, self.axes = headline(figure), axes
        self.bars = axes.bar(range(n), [0.0] * n, edgecolor=INK, linewidth=0.5)
        axes.set(ylim=(0, 1.05), ylabel="probability of the capital", xticks=range(n))
        axes.set_xticklabels(self.names, rotation=60, ha="right", rotation_mode="anchor")
        axes.axhline(self.lost_below, color=INK, linestyle=":")
        axes.text(n - 0.4, self.lost_below + 0.02, f"lost below {self.lost_below}", fontsize=FONT - 1, color=INK)
        axes.set_xlim(-0.7, n + 2.2)
        self.labels = axes.get_xticklabels()
        fix_layout(figure)
        return figure

    def move(self) -> None:
        for i, (bar, label, chance) in enumerate(zip(self.bars, self.labels, self.chances)):
            bar.set_height(chance)
            bar.set_facecolor(ORANGE if i == self.chosen else SKY)
            bar.set_hatch("//" if i == self.chosen else "")
            label.set_fontweight("bold" if i == self.chosen else "normal")
        lost = int((self.chances < self.lost_below).sum())
        fallen = f"{lost} of {len(self.names)} capitals {'falls' if lost == 1 else 'fall'}"
        country = self.names[self.chosen].split(" → ")[0]
        self.headline.set_text(
            f"{self.n_removed} units of {country} removed: "
            f"{fallen if lost else 'no capital falls'} below {self.lost_below}"
        )


# ------------------------------------------------------------------------------------------------ a mixture of experts
def mixture_in_training(
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]], loads: Mapping[str, Sequence[float]]
) -> Figure:
    """Draw the held-out loss of each network, name -> (steps, losses), and the fraction of the tokens that each expert
    of two mixtures processes, name -> (n_experts,), the busiest expert first; the second mixture is balanced."""
    figure, (left, right) = new_panels(WIDE, 3.9, 2)
    looks = dict(zip(curves, ((INK, "-"), (ORANGE, "--"), (BLUE, "-."))))
    for name, (steps, losses) in curves.items():
        color, style = looks[name]
        left.plot(steps, losses, color=color, linestyle=style, linewidth=1.8, label=name)
    left.legend(fontsize=FONT - 1, frameon=False)
    left.set(xlabel="training steps", ylabel="held-out loss (nats per letter)")
    n_experts = len(next(iter(loads.values())))
    for i, (name, load) in enumerate(loads.items()):
        places = np.arange(n_experts) + (i - 0.5) * 0.4
        hatch = "//" if i == 0 else ""
        right.bar(places, load, 0.4, color=looks[name][0], edgecolor="white", hatch=hatch, linewidth=0, label=name)
    right.axhline(1 / n_experts, color=INK, linestyle=":", linewidth=1.2)
    right.text(n_experts - 0.5, 1 / n_experts, "equal", fontsize=FONT - 1, color=INK, ha="right", va="bottom")
    right.legend(fontsize=FONT - 1, frameon=False)
    right.set(xlabel="expert, the busiest first", ylabel="fraction of the letters", xticks=range(n_experts))
    right.set_xticklabels([str(i) for i in range(1, n_experts + 1)])
    without, with_loss = (f"{load[0]:.0%}" for load in loads.values())
    headline(figure).set_text(
        f"The busiest of {n_experts} experts processes {without} of the letters; "
        f"with the load-balancing loss, {with_loss}"
    )
    fix_layout(figure)
    return figure
