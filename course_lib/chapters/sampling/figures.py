"""Figures of chapter 13: the next token's distribution, one sample, and the effects of temperature and filters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch

from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure, new_panels
from course_lib.live.numbers import entropy as entropy  # chapter 13 also measures with it
from course_lib.live.palette import BLUE, FONT, GREEN, GREY, INK, LIGHT, ORANGE, RED, SKY, TITLE
from course_lib.live.shared_figures import most_probable


def model_and_truth(panels: Mapping[str, tuple[Sequence[str], np.ndarray, np.ndarray]], rows: int = 12) -> Figure:
    """Draw contexts side by side: the model's probabilities as bars, Tinytown's exact ones as diamonds.

    panels: heading -> (V names, model (V,), truth (V,)).
    """
    figure, axes = new_panels(8.4, 4.4, len(panels))
    gaps = []
    for one, (heading, (tokens, model, truth)) in zip(axes, panels.items()):
        chosen, _ = most_probable(model, truth, rows)
        places = np.arange(len(chosen))
        one.barh(places, model[chosen], height=0.7, color=BLUE)
        one.plot(truth[chosen], places, "D", color=ORANGE, markeredgecolor=INK, markersize=7)
        one.set(yticks=places, yticklabels=[tokens[i] for i in chosen], ylim=(rows - 0.4, -0.6), xlabel="probability")
        one.set_xlim(0, 1.06 * max(model.max(), truth.max()))
        one.tick_params(axis="y", length=0)
        gaps.append(0.5 * np.abs(model - truth).sum())
        one.set_title(f"{heading}", fontsize=FONT, loc="left")
        _say_which_is_which(one, model[chosen], truth[chosen])
    told = _and([f"{100 * gap:.1f}%" for gap in gaps])
    figure.suptitle(f"{told} of the model's probability is misplaced", fontsize=TITLE, x=0.01, ha="left")
    return figure


def _say_which_is_which(axes: Axes, model: np.ndarray, truth: np.ndarray) -> None:
    axes.text(0.98, 0.42, "bar: the model", transform=axes.transAxes, ha="right", color=BLUE, fontsize=FONT)
    axes.text(0.98, 0.35, "◆ the truth", transform=axes.transAxes, ha="right", color=INK, fontsize=FONT)


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# ------------------------------------------------------------------------------------------------ from logits to a word
def way_to_a_word(
    tokens: Sequence[str], logits: np.ndarray, cooled: np.ndarray, p: np.ndarray, kept: np.ndarray, u: float, T: float
) -> Figure:
    """Draw the steps from logits to the next token, one column each: logits, ÷ T, softmax, cut, sample.

    All arrays are (V,), with the most probable token first: logits; logits / T; their softmax; and the distribution
    that a filter leaves. u in [0, 1) is the random number. The first eight tokens have rows; the others share the last
    one.
    """
    rows, V = 8, len(tokens)
    columns = ("logits", f"÷ T = {T:g}", "softmax", "cut", "sample")
    figure, axes = new_panels(8.4, 4.4, len(columns), width_ratios=[1, 1, 1, 1, 0.62])
    names = [*tokens[:rows], f"{V - rows} more"]
    for column, (one, values) in enumerate(zip(axes, (logits, cooled, p, kept))):
        shares = column > 1
        bars = np.append(values[:rows], values[rows:].sum() if shares else np.nan)
        one.barh(range(rows + 1), np.nan_to_num(bars), height=0.7, color=BLUE if shares else SKY)
        most = np.nanmax(bars)
        for row, value in enumerate(bars):
            told = f"≤ {values[rows]:.1f}" if np.isnan(value) else f"{value:.2f}" if value else "cut"
            one.text(np.nan_to_num(value) + 0.04 * most, row, told, va="center", fontsize=FONT - 1, color=INK)
        one.set(xlim=(0, 1.5 * most), ylim=(rows + 0.7, -0.7), xticks=[], yticks=[])
        one.spines[["left", "bottom"]].set_visible(False)
    axes[0].set_yticks(range(rows + 1), names, fontsize=FONT)
    axes[0].tick_params(length=0)
    draw, ends = axes[-1], np.cumsum(kept) / kept.sum()
    hit = int(np.searchsorted(ends, u, side="right"))
    for i, (end, share) in enumerate(zip(ends, kept)):
        if share:
            draw.bar(0, share, bottom=end - share, width=0.8, color=ORANGE if i == hit else LIGHT, edgecolor=INK)
        if share > 0.06:
            draw.text(0, end - share / 2, tokens[i], ha="center", va="center", fontsize=FONT - 1, color=INK)
    arrow = {"arrowstyle": "-|>", "color": RED, "linewidth": 2}
    draw.annotate(f"u = {u:.2f}", (0.38, u), (0.78, u), va="center", fontsize=FONT, color=INK, arrowprops=arrow)
    draw.set(xlim=(-0.5, 1.9), ylim=(1.02, -0.02), xticks=[], yticks=[])
    draw.spines[["left", "bottom"]].set_visible(False)
    under = ("any numbers", "same order", "sum to 1", "sum to 1 again", "u from 0 to 1")
    for one, name, said in zip(axes, columns, under):
        one.set_title(name, fontsize=TITLE, loc="left")
        one.set_xlabel(said, fontsize=FONT - 1, loc="left")
    for one, other in pairwise(axes):
        figure.add_artist(
            ConnectionPatch(
                (0.8, 1.035),
                (-0.05, 1.035),
                coordsA="axes fraction",
                coordsB="axes fraction",
                axesA=one,
                axesB=other,
                arrowstyle="-|>",
            )
        )
    headline(figure).set_text(f"Divide, softmax, cut, sample: u = {u:.2f} falls on “{tokens[hit]}”")
    return figure


# ---------------------------------------------------------------------------------------------------------- temperature
def temperature_sweep(tokens: Sequence[str], temperatures: np.ndarray, probabilities: np.ndarray, at: float) -> Figure:
    """Draw each token's probability (n, V) over n temperatures; the title compares first and last token at T = `at`.

    Errors: ValueError if `at` is not one of the temperatures.
    """
    places = np.flatnonzero(np.isclose(temperatures, at))
    if len(places) == 0:
        raise ValueError(f"at={at} must be one of the temperatures: {tuple(temperatures)}")
    figure, axes = new_figure(8.2, 4.0)
    for i in range(len(tokens)):
        axes.plot(temperatures, probabilities[:, i], color=BLUE, linewidth=2, alpha=1 - 0.8 * i / len(tokens))
    even = 1 / len(tokens)
    axes.axhline(even, color=INK, linestyle=":")
    axes.text(temperatures[0] * 1.05, even + 0.01, f"uniform: 1/{len(tokens)}", fontsize=FONT - 1, color=INK)
    axes.axvline(at, color=GREY, linestyle="--", linewidth=1)
    axes.text(at * 1.04, 0.93, f"T = {at:g}", fontsize=FONT, color=INK)
    here = probabilities[places[0]]
    for i, align in ((0, "bottom"), (-1, "top")):
        axes.plot(at, here[i], "o", color=ORANGE, markeredgecolor=INK, markersize=8)
        axes.annotate(
            f"{tokens[i]} {here[i]:.2f}",
            (at, here[i]),
            (7, 3 if align == "bottom" else -5),
            va=align,
            textcoords="offset points",
            fontsize=FONT,
            color=INK,
        )
    axes.set(xscale="log", ylim=(-0.07, 1.02), xlim=(temperatures[0], temperatures[-1]), xlabel="temperature T")
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40) if temperatures[0] <= t <= temperatures[-1]]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_ylabel("probability")
    axes.set_title(
        f"At T = {at:g} “{tokens[0]}” is still {here[0] / here[-1]:.1f} times as probable as “{tokens[-1]}”", loc="left"
    )
    return figure


# ----------------------------------------------------------------------------------------------------------- the sample
@dataclass
class UnitInterval(Drawing):
    """Draw the line from 0 to 1 with one segment per token, as long as its probability; u points at one of them."""

    tokens: Sequence[str]
    probabilities: np.ndarray
    u: float

    def build(self) -> Figure:
        figure, axes = new_figure(8.4, 1.9)
        self.pieces = axes.barh(np.zeros(len(self.tokens)), np.zeros(len(self.tokens)), edgecolor=INK, linewidth=0.8)
        self.names = [axes.text(0, 0, token, ha="center", va="center", fontsize=FONT) for token in self.tokens]
        (self.arrow,) = axes.plot([], [], color=RED, linewidth=2, marker="v", markevery=[1], markersize=10)
        self.mark = axes.text(0, 0.86, "", color=RED, fontsize=FONT, ha="center", weight="bold")
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.5, 1.15), yticks=[], xlabel="running sum of the probabilities")
        axes.spines["left"].set_visible(False)
        self.headline = axes.set_title(" ", fontsize=TITLE, loc="left")
        fix_layout(figure, w_pad=0.1, h_pad=0.08)
        return figure

    def move(self) -> None:
        ends = np.cumsum(self.probabilities)
        starts = ends - self.probabilities
        hit = min(int(np.searchsorted(ends, self.u * ends[-1], side="right")), len(self.tokens) - 1)
        for i, (piece, name) in enumerate(zip(self.pieces, self.names)):
            piece.set(x=starts[i], width=self.probabilities[i])
            piece.set_facecolor(BLUE if i == hit else SKY if i % 2 else LIGHT)
            fits = self.probabilities[i] >= 0.012 + 0.011 * len(self.tokens[i])
            name.set(x=(starts[i] + ends[i]) / 2, visible=bool(fits))
            name.set_color("white" if i == hit else INK)
        self.arrow.set_data([self.u, self.u], [0.75, 0.42])
        self.mark.set(x=min(max(self.u, 0.02), 0.98), text=f"u = {self.u:.2f}")
        self.headline.set_text(
            f"u = {self.u:.2f} falls on “{self.tokens[hit]}”, "
            f"the piece from {starts[hit]:.2f} to {ends[hit]:.2f}, so this word comes next"
        )


SLANTED: dict[str, Any] = {"rotation": 65, "ha": "right", "rotation_mode": "anchor"}


@dataclass
class Surprise(Drawing):
    """Draw −ln p of each word of a text under the model. The prompt's own words, the first `prompt_length`, are
    pale."""

    words: Sequence[str]
    nats: np.ndarray
    prompt_length: int = 0

    def build(self) -> Figure:
        figure, self.axes = new_figure(8.4, 3.4)
        axes, places = self.axes, np.arange(len(self.words))
        self.bars = axes.bar(places, 0, color=BLUE, edgecolor=INK, linewidth=0.5)
        axes.set(xlim=(-0.7, len(self.words) - 0.3), ylabel="surprise −ln p (nats)", xticks=places)
        self.headline = axes.set_title(" ", fontsize=TITLE, loc="left")
        axes.set_xticklabels(["shouted"] * len(self.words), **SLANTED)  # room for the longest
        fix_layout(figure, w_pad=0.1, h_pad=0.08)
        return figure

    def move(self) -> None:
        self.axes.set_xticklabels(self.words, **SLANTED)
        self.axes.set_ylim(0, max(3.0, 1.08 * float(np.max(self.nats))))
        for i, (bar, height) in enumerate(zip(self.bars, self.nats)):
            bar.set_height(height)
            bar.set_facecolor(LIGHT if i < self.prompt_length else BLUE)
        new = np.asarray(self.nats)[self.prompt_length :]
        title = (
            f"{int((new > 0.1).sum())} of {len(new)} words were a choice (more than 0.1 nats); "
            f"the text costs {new.mean():.2f} nats per word"
        )
        self.headline.set_text(title if np.any(self.nats) else "No text yet")


# ------------------------------------------------------------------------------------------------------ gains and costs
def trade_off(
    temperatures: Sequence[float],
    sense: Sequence[float],
    variety: Sequence[float],
    likelihood: Sequence[float],
    town: float,
) -> Figure:
    """Draw over the temperature: fraction of texts that Tinytown allows, different words, and mean ln p per token.

    town: the mean ln p of Tinytown's own stories under the model. The title compares T = 1 with the last temperature.
    """
    figure, axes = new_panels(8.4, 3.4, 3)
    for one, values, style, colour, name in (
        (axes[0], 100 * np.asarray(sense), "o-", BLUE, "sense: possible texts (%)"),
        (axes[1], variety, "s-", GREEN, "variety: different words"),
        (axes[2], likelihood, "D-", ORANGE, "likelihood: mean ln p (nats)"),
    ):
        one.plot(temperatures, values, style, color=colour, linewidth=2, markersize=7, clip_on=False)
        one.set(xlabel="temperature T", xticks=np.arange(0, max(temperatures) + 0.1, 0.5))
        one.set_title(name, fontsize=FONT, loc="left")
    axes[0].set_ylim(0, 104)
    axes[1].set_ylim(0, None)
    axes[2].axhline(town, color=INK, linestyle=":")
    axes[2].annotate(
        "Tinytown's\nown stories", (0, town), (0, -10), va="top", textcoords="offset points", fontsize=FONT
    )
    first = list(temperatures).index(1.0)
    figure.suptitle(
        f"From T = 1 to T = {temperatures[-1]:g}: possible texts {sense[first]:.0%} → {sense[-1]:.0%}, "
        f"different words {variety[first]} → {variety[-1]}",
        fontsize=TITLE,
        x=0.01,
        ha="left",
    )
    return figure


def filter_curves(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[float]]],
    marked: Mapping[str, Sequence[float]],
    temperature: float,
    at: float = 0.01,
) -> Figure:
    """Draw what a filter removes rightly and wrongly: one curve per filter, from weak to strong filtering.

    Args:
        curves: name -> (settings, lost, let through). `lost` is the probability of possible words that the filter
            removes, and `let through` is that of impossible words that it keeps; both are fractions, averaged over
            contexts. `lost` increases.
        marked: name -> the settings that get a mark.
        at: the loss at which the title compares the curves.
    """
    figure, axes = new_figure(8.4, 4.2)
    axes.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
    compared = []
    for (name, (settings, lost, through)), colour, marker, offset in zip(
        curves.items(), (ORANGE, BLUE, GREEN), "osD", ((6, 6), (8, 3), (-66, -15))
    ):
        xs, ys = 100 * np.asarray(lost), 100 * np.asarray(through)
        axes.plot(xs, ys, color=colour, linewidth=2)
        for setting, x, y in zip(settings, xs, ys):
            if setting in marked[name]:
                axes.plot(x, y, marker, color=colour, markeredgecolor=INK, markersize=8, clip_on=False)
                axes.annotate(
                    f"{name} = {setting:g}",
                    (x, y),
                    offset,
                    textcoords="offset points",
                    fontsize=FONT - 1,
                    color=INK,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
                )
        compared.append(f"{name} {np.interp(100 * at, xs, ys):.1f}%")
    axes.axvline(100 * at, color=GREY, linestyle="--", linewidth=1)
    axes.set(xlim=(0, 8), ylim=(0, None), xticks=[0, 0.1, 0.5, 1, 2, 4, 8])
    axes.set_xticklabels(["0", "0.1", "0.5", "1", "2", "4", "8"])
    axes.set(
        xlabel="lost: true probability of the words removed (%, square-root scale)",
        ylabel="let through: impossible words (%)",
    )
    axes.set_title(
        f"At T = {temperature:g} and {100 * at:g}% lost, these let through: {', '.join(compared)}", loc="left"
    )
    return figure
