"""Figures of chapter 2: a soft dictionary, one query from scores to mix, saturation, the weights of a trained head."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.live.drawing import BLUE, FONT, GREY, INK, LIGHT, ORANGE, SKY, WIDE, fix_layout, headline, new_figure
from course_lib.live.numbers import entropy
from course_lib.live.shared_figures import empty_bars, set_bars


# ---------------------------------------------------------------------------------------------------- a soft dictionary
def soft_lookup(
    angle: float,
    key_angles: Sequence[float],
    names: Sequence[str],
    values: Sequence[float],
    weights: np.ndarray,
    figure: Figure | None = None,
) -> Figure:
    """A query among keys on a circle, the weight of each key, and the average of their values in °C.

    angle, key_angles: directions in degrees, anticlockwise from east.
    """
    if figure is None:
        figure, (circle, axes) = new_figure(WIDE, 3.9, 1, 2, width_ratios=[1, 1.1])
        turn = np.linspace(0, 2 * np.pi, 100)
        circle.fill(np.cos(turn), np.sin(turn), color=LIGHT, zorder=0)
        circle.set(xlim=(-1.8, 1.8), ylim=(-1.55, 1.55), aspect="equal", xticks=[], yticks=[])
        circle.spines[:].set_visible(False)
        for key_angle, name, value in zip(key_angles, names, values):
            x, y = _on_circle(key_angle)
            circle.plot([x], [y], "s", color=GREY, markersize=9)
            circle.text(1.43 * x, 1.33 * y, f"{name}\n{value:g} °C", fontsize=FONT, color=INK, ha="center", va="center")
        parts = SimpleNamespace(
            query=circle.plot([], [], color=BLUE, linewidth=3, marker="o", markevery=[1], markersize=10)[0]
        )
        parts.you = circle.text(0, 0, "you", color=BLUE, fontsize=FONT, weight="bold", ha="center", va="center")
        parts.bars, parts.numbers = empty_bars(
            axes, [f"{name}, {value:g} °C" for name, value in zip(names, values)], BLUE
        )
        axes.set_xlabel("weight (they sum to 1)")
        parts.title = headline(figure)
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    x, y = _on_circle(angle)
    parts.query.set_data([0, x], [0, y])
    parts.you.set_position((0.5 * x - 0.2 * y, 0.5 * y + 0.2 * x))  # beside the middle of the line
    set_bars(parts.bars, parts.numbers, weights)
    best = [names[i] for i in np.flatnonzero(np.isclose(weights, weights.max()))]
    parts.title.set_text(f"Answer {float(weights @ np.asarray(values)):.1f} °C: most weight on {_and(best)}")
    return figure


def _on_circle(angle: float) -> tuple[float, float]:
    return float(np.cos(np.radians(angle))), float(np.sin(np.radians(angle)))


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# ---------------------------------------------------------------------------------------- one query, from scores to mix
def one_query(
    tokens: Sequence[str],
    query: int,
    scores: np.ndarray,
    weights: np.ndarray,
    values: np.ndarray,
    output: np.ndarray,
    expected: np.ndarray | None = None,
    figure: Figure | None = None,
) -> Figure:
    """One query in three steps: scaled scores (S,), weights (S,), and the output (2,) among the values (S, 2).

    A score of −inf belongs to a hidden key. `expected`: weights (S,) to compare with, drawn as outlines.
    """
    if figure is None:
        figure, (left, middle, plane) = new_figure(WIDE, 3.7, 1, 3, width_ratios=[1, 1, 1.1])
        parts = SimpleNamespace()
        parts.scores, parts.score_numbers = empty_bars(left, tokens, SKY)
        parts.weights, parts.weight_numbers = empty_bars(middle, [""] * len(tokens), BLUE)
        parts.outlines = middle.barh(
            range(len(tokens)), [0.0] * len(tokens), fill=False, edgecolor=INK, linestyle=":", linewidth=2
        )
        left.set_xlabel("score: q·k / √d")
        middle.set_xlabel("weight: softmax of the scores")
        low, high = values.min() - 1, values.max() + 1
        plane.set(xlim=(low, high), ylim=(low, high), aspect="equal")
        plane.set(
            xlabel="output: the values, mixed (★)",
            xticks=range(int(low), int(high) + 1),
            yticks=range(int(low), int(high) + 1),
        )
        parts.lines = [plane.plot([], [], color=BLUE, zorder=1)[0] for _ in tokens]
        parts.dots = plane.scatter(*values.T, color=SKY, edgecolor=INK, linewidth=0.5, zorder=2)
        for token, place in zip(tokens, values):
            above = place[1] > values[:, 1].mean()  # away from the star
            shift = (0, 15 if above else -23)
            plane.annotate(token, place, xytext=shift, textcoords="offset points", ha="center", fontsize=FONT - 1)
        (parts.output,) = plane.plot([], [], "*", markersize=17, color=ORANGE, markeredgecolor=INK, zorder=3)
        parts.title = headline(figure)
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    set_bars(parts.scores, parts.score_numbers, scores)
    for number, score in zip(parts.score_numbers, scores):
        if score == -np.inf:
            number.set(x=0.02, text="−inf: hidden")
    set_bars(parts.weights, parts.weight_numbers, weights, expected)
    for outline, weight in zip(parts.outlines, weights if expected is None else expected):
        outline.set_width(weight)
        outline.set_visible(expected is not None)
    for line, weight, value in zip(parts.lines, weights, values):
        line.set_data([value[0], output[0]], [value[1], output[1]])
        line.set_linewidth(8 * float(np.clip(weight, 0, 1)))
    parts.dots.set_sizes(30 + 500 * np.clip(np.nan_to_num(weights), 0, 1))
    parts.output.set_data([output[0]], [output[1]])
    if np.isfinite(weights).all() and weights.max() > 0:
        best = [tokens[i] for i in np.flatnonzero(np.isclose(weights, weights.max()))]
        title = f"{tokens[query]} looks most at {_and(best)} ({weights.max():.2f}{' each' if len(best) > 1 else ''})"
        parts.title.set_text(f"{title}; its output is ({output[0]:.2f}, {output[1]:.2f})")
    else:
        parts.title.set_text(f"{tokens[query]}: no weights to show")
    return figure


# ------------------------------------------------------------------------------------------------------------- why √d_k
def score_spread(d_ks: Sequence[int], unscaled: Sequence[float], scaled: Sequence[float]) -> Figure:
    """Standard deviation of q·k over d_k, with and without the division by √d_k."""
    figure, axes = new_figure(7.5, 3.6)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(
        xticks=d_ks,
        xticklabels=map(str, d_ks),
        xlabel="d_k: features of a query and of a key",
        xlim=(d_ks[0] / 1.3, d_ks[-1] * 3.2),
    )
    axes.set(
        yticks=[1, 2, 4, 8, 16, 32],
        yticklabels=["1", "2", "4", "8", "16", "32"],
        ylim=(0.6, 50),
        ylabel="standard deviation of a score",
    )
    axes.minorticks_off()
    axes.plot(d_ks, np.sqrt(d_ks), color=GREY, linestyle=":", linewidth=1.5)
    axes.plot(d_ks, np.ones(len(d_ks)), color=GREY, linestyle=":", linewidth=1.5)
    axes.plot(d_ks, unscaled, "o", color=ORANGE, markersize=9)
    axes.plot(d_ks, scaled, "s", color=BLUE, markersize=9)
    axes.text(d_ks[-1] * 1.25, unscaled[-1], "q·k\n(dotted: √d_k)", color=INK, fontsize=FONT, va="center")
    axes.text(d_ks[-1] * 1.25, scaled[-1], "q·k / √d_k", color=INK, fontsize=FONT, va="center")
    headline(figure).set_text(
        f"The spread of a score grows to {unscaled[-1]:.0f}; divided by √d_k it is {np.mean(scaled):.0f} for every d_k"
    )
    return figure


def saturation(
    weights: np.ndarray, mean_gradient: float, d_k: int, scaled: bool, figure: Figure | None = None
) -> Figure:
    """The weights p of one query, and p (1 − p) of each: how far a weight moves when its own score does.

    mean_gradient: p (1 − p) averaged over many queries and all keys, drawn as a line.
    """
    S = len(weights)
    if figure is None:
        figure, (left, right) = new_figure(WIDE, 3.8, 1, 2)
        parts = SimpleNamespace(title=headline(figure))
        parts.weights = left.bar(range(S), [0.0] * S, color=BLUE)
        parts.slopes = right.bar(range(S), [0.0] * S, color=ORANGE)
        left.set(ylim=(0, 1.08), xticks=range(S), xlabel="key", ylabel="weight p")
        right.set(ylim=(0, 0.27), xticks=range(S), xlabel="key", ylabel="gradient p (1 − p)")
        left.axhline(1 / S, color=GREY, linestyle=":")
        left.text(S - 0.4, 1 / S + 0.02, "an even share", ha="right", fontsize=FONT - 1, color=INK)
        parts.mean = right.axhline(0, color=INK, linestyle="--", linewidth=1.2)
        parts.entropy = left.set_title(" ", fontsize=FONT)
        parts.mean_text = right.set_title(" ", fontsize=FONT)
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    for bar, slope, p in zip(parts.weights, parts.slopes, weights):
        bar.set_height(p)
        slope.set_height(p * (1 - p))
    parts.mean.set_ydata([mean_gradient, mean_gradient])
    parts.entropy.set_text(f"entropy {entropy(weights):.2f} of at most {np.log(S):.2f} nats")
    parts.mean_text.set_text(f"dashed: mean over many queries, {mean_gradient:.4f}")
    how = "divided by √d_k" if scaled else "not scaled"
    parts.title.set_text(f"d_k = {d_k}, scores {how}: the best key takes {weights.max():.2f} of the attention")
    return figure


def gradient_range(d_ks: Sequence[int], unscaled: np.ndarray, scaled: np.ndarray) -> Figure:
    """Size of the gradient at the query, as percentiles 10, 50 and 90 over many queries: arrays (3, number of d_ks)."""
    figure, axes = new_figure(WIDE, 4.0)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xticks=d_ks, xticklabels=map(str, d_ks), xlim=(d_ks[0] / 1.3, d_ks[-1] * 4), ylim=(1e-12, 1e3))
    axes.set(xlabel="d_k: features of a query and of a key", ylabel="gradient that reaches the query")
    axes.minorticks_off()
    for rows, color, marker, label in ((unscaled, ORANGE, "o", "not scaled"), (scaled, BLUE, "s", "divided by √d_k")):
        axes.fill_between(d_ks, rows[0], rows[2], color=color, alpha=0.25, linewidth=0)
        axes.plot(d_ks, rows[1], color=color, marker=marker)
        axes.text(d_ks[-1] * 1.15, rows[1][-1], label, color=INK, fontsize=FONT, va="center")
    low, _, high = unscaled[:, -1]
    title = f"d_k = {d_ks[-1]}, not scaled: a tenth of the queries get under {low:.0e}, a tenth over {high:.0f}"
    headline(figure).set_text(title)
    return figure


def entropy_curve(
    d_ks: Sequence[int],
    scaled: np.ndarray,
    unscaled: np.ndarray,
    n_keys: int,
    d_k: int,
    title: str,
    figure: Figure | None = None,
) -> Figure:
    """Mean entropy over d_k, scaled and unscaled, under the most that n_keys keys allow, ln n_keys. d_k is marked."""
    if figure is None:
        figure, axes = new_figure(WIDE, 3.9)
        axes.set_xscale("log", base=2)
        axes.set(xticks=d_ks, xticklabels=map(str, d_ks), xlim=(d_ks[0] / 1.3, d_ks[-1] * 4), xlabel="d_k")
        axes.set_ylabel("entropy (nats)")
        axes.minorticks_off()
        axes.axhline(0, color=LIGHT, zorder=0)
        parts = SimpleNamespace(
            limit=axes.axhline(0, color=GREY, linestyle=":"), here=axes.axvline(1, color=LIGHT, linewidth=8, zorder=0)
        )
        (parts.scaled,) = axes.plot([], [], "s-", color=BLUE)
        (parts.unscaled,) = axes.plot([], [], "o-", color=ORANGE)
        parts.labels = [
            axes.text(d_ks[-1] * 1.15, 0, text, fontsize=FONT, va="center", color=INK)
            for text in ("scaled", "not scaled")
        ]
        parts.limit_text = axes.text(d_ks[-1] * 1.15, 0, "", fontsize=FONT, va="bottom", color=INK)
        parts.title = headline(figure)
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    parts.scaled.set_data(d_ks, scaled)
    parts.unscaled.set_data(d_ks, unscaled)
    for label, line in zip(parts.labels, (scaled, unscaled)):
        label.set(y=line[-1] if np.isfinite(line[-1]) else 0, visible=bool(np.isfinite(line[-1])))
    limit = float(np.log(n_keys))
    parts.limit.set_ydata([limit, limit])
    axes = figure.axes[0]
    axes.set_ylim(-0.2 * limit, 1.6 * limit)  # room for an answer in bits, which is 1.44 times as large
    parts.limit_text.set(y=1.02 * limit, text=f"ln {n_keys} = {limit:.2f}")
    parts.here.set_xdata([d_k, d_k])
    parts.title.set_text(title)
    return figure


# ------------------------------------------------------------------------------------------------------- a trained head
def attention_map(
    weights: np.ndarray, tokens: Sequence[str], query: int, head: str, figure: Figure | None = None
) -> Figure:
    """What one head looks at: weights (T, T) as a heat map, rows are queries; beside it the row of one query as bars.

    head: its name for the title, such as "layer 1, head 3".
    """
    T = len(tokens)
    if figure is None:
        figure, (left, right) = new_figure(WIDE, max(3.2, 1.5 + 0.19 * T), 1, 2, width_ratios=[1.6, 1])
        image = left.imshow(np.zeros((T, T)), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        left.set(xticks=range(T), yticks=range(T), ylabel="query", xlabel="key")
        left.set_xticklabels(tokens, rotation=90)
        left.set_yticklabels(tokens)
        left.tick_params(length=0)
        bar = figure.colorbar(image, ax=left, fraction=0.04, pad=0.02)
        bar.ax.tick_params(labelsize=FONT - 1)
        bar.set_label("weight", size=FONT)
        parts = SimpleNamespace(
            image=image, row=left.add_patch(Rectangle((-0.5, 0), T, 1, fill=False, edgecolor=ORANGE, linewidth=2.5))
        )
        parts.bars, parts.numbers = empty_bars(right, tokens, ORANGE)
        parts.right = right.set_title(" ", fontsize=FONT, loc="left")
        right.set_xlabel("weight")
        parts.title = headline(figure)
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    parts.image.set_data(weights)
    parts.row.set_xy((-0.5, query - 0.5))
    set_bars(parts.bars, parts.numbers, weights[query])
    for number, weight in zip(parts.numbers, weights[query]):
        number.set_visible(bool(weight >= 0.05))
    parts.right.set_text(f"“{tokens[query]}” looks at")
    best = int(weights[query].argmax())
    parts.title.set_text(
        f"{head.capitalize()}: “{tokens[query]}” looks most at “{tokens[best]}” ({weights[query, best]:.2f})"
    )
    return figure
