"""Figures of chapter 5: who bit whom, the clock hands, likeness over distance, RoPE's turn, ALiBi's eyesight, reach."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from course_lib.live.drawing import (
    BLUE,
    DIVERGING,
    FONT,
    GREEN,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    PURPLE,
    RED,
    SEQUENTIAL,
    fix_layout,
    headline,
    new_figure,
)

WIDE = 8.8  # inches


# --------------------------------------------------------------------------------------------------------- who bit whom
def right_answers(shares: Mapping[str, float], chance: float) -> Figure:
    """Share of right answers per model, under a line for mere guessing."""
    figure, axes = new_figure(WIDE, 1.3 + 0.42 * len(shares))
    places = range(len(shares))
    axes.barh(places, shares.values(), color=[BLUE if share > chance + 0.1 else ORANGE for share in shares.values()])
    for place, share in zip(places, shares.values()):
        axes.text(share + 0.01, place, f"{100 * share:.0f} %", va="center", fontsize=FONT, color=INK)
    axes.axvline(chance, color=INK, linestyle=":")
    axes.text(chance + 0.01, -0.75, "guessing", fontsize=FONT - 1, color=INK)
    axes.set(yticks=places, yticklabels=shares, ylim=(len(shares) - 0.5, -1.1), xlim=(0, 1.15))
    axes.set(xticks=[0, 0.25, 0.5, 0.75, 1], xlabel="share of right answers to “who bit?”")
    learnt = [name for name, share in shares.items() if share > chance + 0.1]
    headline(figure).set_text(f"{len(learnt)} of {len(shares)} models can tell who bit whom; the others guess")
    return figure


# ------------------------------------------------------------------------------------------------------ the clock hands
MOST_HANDS = 8


def clock_hands(table: np.ndarray, position: int, figure: Figure | None = None) -> Figure:
    """The code of one position as clock hands, one for each pair of features, beside the table as a heat map.

    table: (positions, d_model) of sines and cosines, d_model even and at most 16. A hand points up at position 0 and
    turns clockwise: its sine goes to the right, its cosine up.
    """
    positions, d_model = table.shape
    if figure is None:
        figure, (dial, heat) = new_figure(WIDE, 4.2, 1, 2, width_ratios=[1.5, 1])
        dial.set(xlim=(-1.2, 9.0), ylim=(-5.4, 1.4), aspect="equal", xticks=[], yticks=[])
        dial.spines[:].set_visible(False)
        dial.set_title("one hand per pair of features", fontsize=FONT)
        parts = SimpleNamespace(title=headline(figure), faces=[], hands=[], names=[])
        for _ in range(MOST_HANDS):
            parts.faces.append(dial.add_patch(Circle((0, 0), 1.0, facecolor=LIGHT, edgecolor=GREY)))
            parts.hands.append(dial.plot([], [], color=BLUE, linewidth=3, solid_capstyle="round")[0])
            parts.names.append(dial.text(0, 0, "", ha="center", va="top", fontsize=FONT - 1, color=INK))
        parts.image = heat.imshow(
            table, cmap=DIVERGING, vmin=-1, vmax=1, aspect="auto", extent=(-0.5, 15.5, positions - 0.5, -0.5)
        )
        parts.row = heat.add_patch(Rectangle((-0.5, 0), 16, 1, fill=False, edgecolor=INK, linewidth=2))
        heat.set(xlabel="feature (sine, cosine, sine, …)", ylabel="position (tokens)")
        heat.set_title("one row per position", fontsize=FONT)
        bar = figure.colorbar(parts.image, ax=heat, fraction=0.05, pad=0.03)
        bar.ax.tick_params(labelsize=FONT - 1)
        bar.set_label("value", size=FONT)
        figure.parts = parts
        fix_layout(figure)
    parts, hands = figure.parts, d_model // 2
    turns = position / 10000 ** (2 * np.arange(hands) / d_model) / (2 * np.pi)
    for i in range(MOST_HANDS):
        shown = i < hands
        sine, cosine = table[position, 2 * i : 2 * i + 2] if shown else (0, 0)
        x, y = 2.6 * (i % 4), -3.5 * (i // 4) if hands > 4 else -1.75  # two rows of four, or one half-way down
        parts.faces[i].center = x, y
        parts.hands[i].set_data([x, x + 0.9 * sine], [y, y + 0.9 * cosine])
        digits = 2 if shown and turns[i] >= 0.1 else 3
        words = f"{2 * i}, {2 * i + 1}\n{turns[i]:.{digits}f} turns" if shown else ""
        parts.names[i].set(position=(x, y - 1.15), text=words)
        for part in (parts.faces[i], parts.hands[i]):
            part.set_visible(shown)
    parts.image.set_data(table)
    parts.image.set_extent((-0.5, d_model - 0.5, positions - 0.5, -0.5))
    figure.axes[1].set(xlim=(-0.5, d_model - 0.5), xticks=range(0, d_model, 2 if d_model > 8 else 1))
    parts.row.set(y=position - 0.5, width=d_model)
    parts.title.set_text(f"Position {position}: the first hand has made {turns[0]:.2f} turns, the last {turns[-1]:.3f}")
    return figure


# ------------------------------------------------------------------------------------------------ likeness and distance
def likeness(curve: np.ndarray, d_model: int, figure: Figure | None = None) -> Figure:
    """Cosine between the codes of two positions over their distance, to both sides. curve: (furthest + 1,)."""
    furthest = len(curve) - 1
    if figure is None:
        figure, axes = new_figure(WIDE, 3.7)
        axes.axhline(0, color=GREY, linewidth=1)
        parts = SimpleNamespace(title=headline(figure), line=axes.plot([], [], color=BLUE)[0])
        (parts.rise,) = axes.plot([], [], "o", color=ORANGE, markersize=8)
        parts.note = axes.text(
            0.02, 0.92, "orange dot: from here it rises for the first time", transform=axes.transAxes, fontsize=FONT
        )
        axes.set(ylim=(-0.75, 1.35), yticks=[-0.5, 0, 0.5, 1], ylabel="cosine of the two codes")
        axes.set_xlabel("distance (tokens); below 0: before")
        axes.set_xlim(-1000, 1000)  # the widest labels that there will be
        figure.parts = parts
        fix_layout(figure)
    parts, axes = figure.parts, figure.axes[0]
    parts.line.set_data(np.arange(-furthest, furthest + 1), np.concatenate([curve[:0:-1], curve]))
    rises = np.flatnonzero(np.diff(curve) > 0)
    axes.set_xlim(-furthest, furthest)
    parts.rise.set_data(rises[:1], curve[rises[:1]])
    parts.note.set_visible(len(rises) > 0)
    if len(rises):
        title = f"d_model = {d_model}: less alike up to {rises[0]} apart, then up and down; the same to both sides"
    else:
        title = f"d_model = {d_model}: the further, the less alike, up to {furthest} apart; the same to both sides"
    parts.title.set_text(title)
    return figure


def learned_likeness(cosines: np.ndarray) -> Figure:
    """Cosine between the rows of a learned table (P, P), and its mean over the distance."""
    P = len(cosines)
    figure, (left, right) = new_figure(WIDE, 3.9, 1, 2, width_ratios=[1, 1.1])
    image = left.imshow(cosines, cmap=DIVERGING, vmin=-1, vmax=1)
    left.set(xlabel="position (tokens)", ylabel="position (tokens)")
    bar = figure.colorbar(image, ax=left, fraction=0.05, pad=0.03)
    bar.ax.tick_params(labelsize=FONT - 1)
    bar.set_label("cosine of two rows", size=FONT)
    means = [np.diagonal(cosines, k).mean() for k in range(1, P)]
    right.axhline(0, color=GREY, linewidth=1)
    right.plot(range(1, P), means, color=BLUE)
    right.set(xlabel="distance (tokens)", ylabel="mean cosine", ylim=(-1, 1))
    headline(figure).set_text("Nobody told the table that positions have neighbours: it has learned it")
    return figure


# ---------------------------------------------------------------------------------------------------------------- RoPE
def rotary_pair(
    query: np.ndarray, key: np.ndarray, t: int, s: int, angle: float, figure: Figure | None = None
) -> Figure:
    """One pair of features: a query at place t and a key at place s (both of length 1), each turned by `angle` degrees
    per token, and their dot product over the distance."""

    def turned(vector, place):
        a = np.radians(angle * place)
        return np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) @ vector

    reach = 40
    if figure is None:
        figure, (plane, right) = new_figure(WIDE, 3.9, 1, 2, width_ratios=[1, 1.35])
        plane.add_patch(Circle((0, 0), 1, facecolor=LIGHT, edgecolor="none", zorder=0))
        plane.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        plane.set(xlabel="first feature of the pair", ylabel="second feature")
        plane.set_title("dotted: before the turn", fontsize=FONT)
        parts = SimpleNamespace(title=headline(figure), start=[], arrows=[], names=[])
        for vector, color in ((query, BLUE), (key, ORANGE)):
            parts.start.append(plane.plot([0, vector[0]], [0, vector[1]], color=color, linestyle=":", linewidth=1.5)[0])
            parts.arrows.append(plane.plot([], [], color=color, linewidth=3, marker="o", markevery=[1])[0])
            parts.names.append(plane.text(0, 0, "", fontsize=FONT, color=INK, ha="center", va="center", weight="bold"))
        right.axhline(0, color=GREY, linewidth=1)
        (parts.curve,) = right.plot([], [], color=PURPLE)
        (parts.here,) = right.plot([], [], "o", color=RED, markersize=10)
        right.set(xlim=(-reach - 2, reach + 2), ylim=(-1.3, 1.3), ylabel="score: q · k")
        right.set_xlabel("distance: place of the query − place of the key (tokens)")
        right.set_title("the score at every distance", fontsize=FONT)
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    ends = turned(query, t), turned(key, s)
    for end, arrow, name, text, out in zip(ends, parts.arrows, parts.names, ("q", "k"), (1.18, 1.38)):
        arrow.set_data([0, end[0]], [0, end[1]])
        name.set(position=out * end, text=text)
    distances = np.arange(-reach, reach + 1)
    parts.curve.set_data(distances, [turned(query, d) @ key for d in distances])
    score = ends[0] @ ends[1]
    parts.here.set_data([t - s], [score])
    said = f"Only the distance counts: query at {t}, key at {s}, distance {t - s}: score {score:.2f}"
    parts.title.set_text(said.replace("-", "−"))
    return figure


def rotary_scores(
    distances: np.ndarray,
    yours: np.ndarray,
    elsewhere: np.ndarray,
    library: np.ndarray,
    title: str,
    figure: Figure | None = None,
) -> Figure:
    """Scores of one query and one key over their distance: from two places of the query, and the library's."""
    if figure is None:
        figure, axes = new_figure(WIDE, 3.7)
        axes.axhline(0, color=GREY, linewidth=1)
        parts = SimpleNamespace(title=headline(figure))
        (parts.library,) = axes.plot([], [], color=GREY, linewidth=7, alpha=0.5, label="the library's")
        (parts.yours,) = axes.plot([], [], color=BLUE, label="yours, the query where the slider says")
        (parts.elsewhere,) = axes.plot([], [], color=ORANGE, linestyle="--", label="yours, the query at place 100")
        axes.set(xlim=(distances[0], distances[-1]), ylim=(-1.3, 1.9), yticks=[-1, 0, 1], ylabel="score: q · k")
        axes.set_xlabel("distance: place of the query − place of the key (tokens)")
        axes.legend(loc="upper center", ncols=3, fontsize=FONT - 1, frameon=False)
        figure.parts = parts
        fix_layout(figure)
    for line, scores in zip(
        (figure.parts.library, figure.parts.yours, figure.parts.elsewhere), (library, yours, elsewhere)
    ):
        line.set_data(distances, np.clip(scores, -9, 9))
    figure.parts.title.set_text(title)
    return figure


# --------------------------------------------------------------------------------------------------------------- ALiBi
def eyesight(bias: np.ndarray, weights: np.ndarray, head: int, figure: Figure | None = None) -> Figure:
    """What ALiBi takes from the scores of one head, as a heat map (T, T), −inf where a later token is hidden; and the
    weights (T,) that the last query gives if all its scores are equal otherwise."""
    T = len(weights)
    if figure is None:
        figure, (left, right) = new_figure(WIDE, 3.8, 1, 2, width_ratios=[1, 1.3])
        figure.get_layout_engine().set(w_pad=0.1)
        hidden_grey = colormaps[SEQUENTIAL].with_extremes(bad=LIGHT)
        image = left.imshow(np.zeros((2, 2)), cmap=hidden_grey, vmin=-8, vmax=0)
        left.set(xlabel="key (place)", ylabel="query (place)")
        left.set_title("added to the scores", fontsize=FONT)
        colors = figure.colorbar(image, ax=left, fraction=0.05, pad=0.03, extend="min")
        colors.ax.tick_params(labelsize=FONT - 1)
        parts = SimpleNamespace(title=headline(figure), image=image)
        parts.bars = right.bar(range(32), [0.0] * 32, color=BLUE)
        right.set(ylim=(0, 0.65), xlabel="key (place)", ylabel="weight")
        right.set_title("the last token's weights, all scores equal before", fontsize=FONT)
        figure.parts = parts
        fix_layout(figure)
    parts = figure.parts
    left, right = figure.axes[:2]
    parts.image.set_data(np.ma.masked_invalid(bias))
    parts.image.set_extent((-0.5, T - 0.5, T - 0.5, -0.5))
    ticks = range(0, T, max(1, T // 8))
    left.set(xlim=(-0.5, T - 0.5), ylim=(T - 0.5, -0.5), xticks=ticks, yticks=ticks)
    right.set(xlim=(-0.6, T - 0.4), xticks=ticks)
    for place, bar in enumerate(parts.bars):
        bar.set(height=weights[place] if place < T else 0, visible=place < T)
    near = weights[-4:].sum()
    parts.title.set_text(f"Head {head} of 8 gives {100 * near:.0f} % of its attention to the last 4 of {T} tokens")
    return figure


# --------------------------------------------------------------------------------------------------------------- reach
def reach_curves(lengths: Sequence[int], losses: Mapping[str, Sequence[float]], trained: int) -> Figure:
    """Loss over the length of the text, one line per way of telling positions; the trained length is marked."""
    figure, axes = new_figure(WIDE, 4.2)
    axes.axvline(trained, color=GREY, linestyle=":")
    markers = zip(losses.items(), (ORANGE, GREY, BLUE, GREEN), "os^D")
    ends = []
    for (name, values), color, marker in markers:
        axes.plot(lengths, values, color=color, marker=marker, markersize=8)
        ends.append((values[-1], name))
    low, high = min(map(min, losses.values())), max(map(max, losses.values()))
    apart = 0.07 * (high - low)
    place = -np.inf
    for value, name in sorted(ends):  # labels that would touch are moved up
        place = max(value, place + apart)
        axes.text(lengths[-1] * 1.02, place, name, fontsize=FONT, va="center", color=INK)
    axes.text(trained * 1.01, high + apart, "trained on this length", fontsize=FONT - 1, color=INK, va="bottom")
    axes.set(xlim=(lengths[0] * 0.8, lengths[-1] * 1.2), ylim=(low - 2 * apart, high + 3 * apart), xticks=lengths)
    axes.set(xlabel="tokens of text that the model is given", ylabel="loss on the same last words (nats)")
    holding = [name for name, values in losses.items() if max(values) - values[0] < 0.15]
    told = f"only {holding[0]} keeps" if len(holding) == 1 else f"{len(holding)} of {len(losses)} keep"
    headline(figure).set_text(f"Trained on {trained} tokens, {told} its loss on four times as many")
    return figure
