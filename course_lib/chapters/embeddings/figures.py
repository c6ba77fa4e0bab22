"""Figures of chapter 1: from text to vectors, look-ups, words on a map, people on a cube, gradients of rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon, Rectangle
from matplotlib.text import Annotation, Text
from torch import Tensor

from course_lib.live.drawing import Drawing, new_figure, new_panels
from course_lib.live.palette import (
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
    SKY,
    TITLE,
    WIDE,
)

# Each class of words has a colour, a marker and a name next to it. Any one of the three is enough to recognize it.
CLASS_STYLES = [(BLUE, "o"), (RED, "s"), (GREEN, "^"), (PURPLE, "D"), (ORANGE, "v"), (SKY, "P"), (GREY, "X")]


# --------------------------------------------------------------------------------------------------------------- tokens
SHOWN = 4  # number of features of each vector that are printed


def text_to_vectors(words: Sequence[str], ids: Sequence[int], weight: Tensor) -> Figure:
    """Draw the four stages of a text: characters, tokens, ids, and rows of the embedding table `weight` (V, d_model).

    Equal words have frames of the same colour, and the same numbers below them.
    """
    figure, axes = new_figure(WIDE, 4.4)
    axes.set(xlim=(-0.6, len(words) + 2.1), ylim=(8.6, -0.5), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    repeated = [word for word in dict.fromkeys(words) if words.count(word) > 1]
    colours = {word: (ORANGE, BLUE, GREEN)[n % 3] for n, word in enumerate(repeated)}
    norm = CenteredNorm(halfrange=weight[list(ids)][:, :SHOWN].abs().max().item())
    vectors = colormaps[DIVERGING]
    middle = (len(words) - 1) / 2
    axes.text(middle, 0, f"“{' '.join(words)}”", ha="center", va="center", fontsize=FONT + 3, color=INK)
    for n, (word, row) in enumerate(zip(words, ids)):
        frame: dict[str, Any] = {"edgecolor": colours.get(word, GREY), "linewidth": 2.4 if word in colours else 1}
        for y, text in ((1.9, word), (3.5, str(row))):
            axes.add_patch(Rectangle((n - 0.44, y - 0.42), 0.88, 0.84, facecolor="white", **frame))
            axes.text(n, y, text, ha="center", va="center", fontsize=FONT + 1, color=INK)
        for feature, number in enumerate(weight[row][:SHOWN].tolist()):
            shade = vectors(norm(number))
            axes.add_patch(Rectangle((n - 0.44, 4.8 + 0.75 * feature), 0.88, 0.75, facecolor=shade, edgecolor="white"))
            ink = "white" if sum(shade[:3]) < 1.3 else INK
            place = n, 5.175 + 0.75 * feature
            axes.text(*place, f"{number:+.2f}", ha="center", va="center", fontsize=FONT, color=ink)
        axes.add_patch(Rectangle((n - 0.44, 4.8), 0.88, 0.75 * SHOWN, fill=False, **frame))
        axes.text(n, 8.1, "⋮", ha="center", va="center", fontsize=FONT + 3, color=INK)
        for top, bottom in ((0.5, 1.4), (2.4, 3.0), (4.0, 4.7)):
            axes.annotate("", (n, bottom), (n, top), arrowprops={"arrowstyle": "-|>", "color": INK})
    V, d_model = weight.shape
    for y, text in (
        (0, "text: characters"),
        (1.9, f"tokens: {len(words)} pieces"),
        (3.5, f"ids: from 0 to {V - 1}"),
        (6.3, f"vectors: rows of the\n{V} × {d_model} table\n(first {SHOWN} features of {d_model})"),
    ):
        axes.text(len(words) - 0.35, y, text, va="center", fontsize=FONT, color=INK)
    same = " and ".join(f"“{word}”" for word in repeated)
    axes.set_title(f"The same token always has the same vector: here {same}", loc="left")
    return figure


def tokens_per_size(sizes: Sequence[int], tokens: Sequence[float], characters: float, words: float) -> Figure:
    """Draw how many tokens one story needs with byte-pair vocabularies of several sizes, between two bounds.

    Args:
        sizes: the number of entries of each vocabulary.
        tokens: the mean number of tokens per story with each of them.
        characters, words: the mean number of bytes per story, and of words and punctuation marks.
    """
    figure, axes = new_figure(7.5, 3.6)
    axes.plot(sizes, tokens, color=BLUE, marker="o")
    bounds = [(characters, "one token per byte", "bottom"), (words, "one token per word or mark", "top")]
    for level, name, side in bounds:
        axes.axhline(level, color=GREY, linestyle="--")
        place = level + (0.015 if side == "bottom" else -0.02) * characters
        axes.text(sizes[-1], place, f"{name}: {level:.0f}", color=INK, ha="right", va=side)
    axes.set(xlabel="entries in the vocabulary = rows of the table", ylabel="tokens per story")
    axes.set_ylim(0, 1.12 * characters)
    times = tokens[0] / tokens[-1]
    axes.set_title(f"From {sizes[0]} entries to {sizes[-1]}, a story takes {times:.1f} times fewer tokens")
    return figure


# -------------------------------------------------------------------------------------------------------------- look-up
@dataclass
class Lookup(Drawing):
    """Draw one-hot rows, the table, and the result: (T, V) × (V, d_model) = (T, d_model).

    Args:
        weight: (V, d_model), small.
        ids: T ids.
        rows: (T, d_model), the result of a look-up, right or wrong; all NaN if there is none.
    """

    weight: Tensor
    ids: Sequence[int]
    rows: Tensor

    def build(self) -> Figure:
        (V, d_model), T = self.weight.shape, len(self.ids)
        figure, panels = new_panels(WIDE, 3.4, 3, width_ratios=[V, 1.7 * d_model, 1.7 * d_model])
        self.cells: list[list[list[Text]]] = []
        self.frames: list[list[Patch]] = []
        shapes = [("one-hot rows", T, V), ("the table", V, d_model), ("the result", T, d_model)]
        for axes, (name, height, width) in zip(panels, shapes):
            axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), xticks=range(width), yticks=range(height))
            axes.tick_params(length=0)
            axes.spines[["left", "bottom"]].set_visible(False)
            axes.set_title(f"{name} ({height}, {width})", fontsize=FONT)
            places = [[(x, y) for x in range(width)] for y in range(height)]
            self.cells.append([[axes.text(*place, "", ha="center", va="center") for place in line] for line in places])
            frames = [
                axes.add_patch(Rectangle((-0.46, y - 0.42), width - 0.08, 0.84, fill=False, color=GREY, linewidth=0.8))
                for y in range(height)
            ]
            self.frames.append(frames)
        panels[0].set(xlabel="token id", ylabel="position in the text")
        panels[1].set(xlabel="feature", ylabel="token id = row")
        panels[2].set(xlabel="feature", ylabel="position in the text")
        self.headline = figure.suptitle("", x=0.01, ha="left", fontsize=TITLE)
        return figure

    def move(self) -> None:
        one_hot = torch.nn.functional.one_hot(torch.tensor(self.ids), len(self.weight))
        for cells, values in zip(self.cells, (one_hot, self.weight, self.rows)):
            for line, numbers in zip(cells, values.tolist()):
                for cell, number in zip(line, numbers):
                    cell.set_text("?" if number != number else f"{number:.3g}")
        for line in self.cells[0]:
            for cell in line:
                cell.set_fontweight("bold" if cell.get_text() == "1" else "normal")
                cell.set_color(INK if cell.get_text() == "1" else GREY)
        for row, frame in enumerate(self.frames[1]):
            frame.set(color=BLUE if row in self.ids else LIGHT, linewidth=2.2 if row in self.ids else 0.8)
        right = [torch.allclose(self.rows[place], self.weight[i]) for place, i in enumerate(self.ids)]
        for place, frame in enumerate(self.frames[2]):
            frame.set(color=BLUE if right[place] else RED, linewidth=2.2, linestyle="-" if right[place] else "--")
        asked = ", ".join(map(str, self.ids))
        if self.rows.isnan().all():
            self.headline.set_text(f"Ids {asked}: there is no result to show")
        elif all(right):
            self.headline.set_text(f"Ids {asked}: the result is rows {asked} of the table, in that order")
        else:
            wrong = ", ".join(str(place) for place, fine in enumerate(right) if not fine)
            self.headline.set_text(f"Ids {asked}: the result is wrong at position {wrong} (dashed)")


# ------------------------------------------------------------------------------------------------------ words on a map
def principal_axes(vectors: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return the plane closest to a cloud of vectors: (centre (D,), axes (D, 2), fraction of the variance that it
    keeps).

    Each axis has the sign for which its largest coordinate is positive, so that the picture is the same on every
    machine.

    Source: Pearson 1901 (principal component analysis).
    """
    vectors = vectors.double()
    centre = vectors.mean(0)
    _, sizes, directions = torch.linalg.svd(vectors - centre, full_matrices=False)
    axes = directions[:2].T  # (D, 2)
    largest = axes.abs().argmax(0)
    axes = axes * axes[largest, torch.arange(2)].sign()
    return centre, axes, (sizes[:2].square().sum() / sizes.square().sum()).item()


@dataclass
class WordMap(Drawing):
    """Draw words as points in a plane. Each class has its own colour and marker, and its name in its middle.

    A word is next to its point if there is room; some words in a crowd are left out.

    Args:
        points: (n, 2), one for each word of all classes, in their order.
        classes: name of a class -> its words.
        limits: smallest x, largest x, smallest y, largest y.
    """

    points: Tensor
    classes: Mapping[str, Sequence[str]]
    limits: tuple[float, float, float, float]
    title: str

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 4.5)
        axes.set(xlabel="first principal axis of the finished table", ylabel="second principal axis", title="Words")
        axes.set(xlim=self.limits[:2], ylim=self.limits[2:])
        self.axes, self.headline = axes, axes.title
        self.dots: list[Line2D] = []
        self.names: list[Annotation] = []
        self.words: list[Annotation] = []
        for (name, group), (colour, marker) in zip(self.classes.items(), CLASS_STYLES):
            self.dots += axes.plot([], [], linestyle="", marker=marker, color=colour, markersize=6.5, alpha=0.85)
            self.names.append(_label(axes, name, color=colour, fontsize=14, fontweight="bold"))
            self.words += [_label(axes, word, color=INK, fontsize=10) for word in group]
        figure.draw_without_rendering()  # fixes the layout, so that positions on the page can be computed below
        self.sizes = {label: label.get_window_extent().size for label in [*self.names, *self.words]}
        return figure

    def move(self) -> None:
        self.headline.set_text(self.title)
        groups = self.points.split([len(words) for words in self.classes.values()])
        for dots, group in zip(self.dots, groups):
            dots.set_data(*group.T.tolist())
        page = Page(self.axes, self.points, self.sizes)
        for name, group in zip(self.names, groups):
            page.place(name, group.mean(0), page.around_group(group, name), always=True)
        for word, point in zip(self.words, self.points):
            page.place(word, point, page.around_dot(word))


def _label(axes: Axes, text: str, **style: Any) -> Annotation:
    label = axes.annotate(text, (0, 0), (0, 0), textcoords="offset points", va="bottom", **style)
    label.set_in_layout(False)
    return label


class Page:
    """Find room for labels on a map, where a label covers no dot and no earlier label. Units: points of the page."""

    def __init__(self, axes: Axes, points: Tensor, sizes: Mapping[Annotation, tuple[float, float]]):
        self.axes, self.scale = axes, 72 / axes.figure.dpi
        self.sizes = {label: (np.array(size) * self.scale).tolist() for label, size in sizes.items()}
        self.frame = (np.array(axes.bbox.extents) * self.scale).tolist()
        self.taken = [(x - 3.5, y - 3.5, x + 3.5, y + 3.5) for x, y in self.at(points).tolist()]

    def at(self, points: Tensor) -> np.ndarray:
        return self.axes.transData.transform(points.cpu().numpy()) * self.scale

    def around_dot(self, label: Annotation) -> list[tuple[float, float]]:
        width, height = self.sizes[label]
        sides = [(x, -height / 2) for x in (5, -5 - width)] + [(-width / 2, y) for y in (5, -5 - height)]
        corners = [(x, y) for y in (3, -3 - height) for x in (4, -4 - width)]
        return sides + corners + [(x, y) for y in (9, -9 - height) for x in (12, -12 - width)]

    def around_group(self, group: Tensor, label: Annotation) -> list[tuple[float, float]]:
        width, height = self.sizes[label]
        dots, middle = self.at(group), self.at(group.mean(0, keepdim=True))[0]
        half_width, half_height = ((dots.max(0) - dots.min(0)) / 2).tolist()
        shift_x, shift_y = ((dots.max(0) + dots.min(0)) / 2 - middle - (width / 2, height / 2)).tolist()
        return [
            (
                shift_x + (half_width + width / 2 + 0.8 * gap) * math.cos(math.radians(turn)),
                shift_y + (half_height + height / 2 + gap) * math.sin(math.radians(turn)),
            )
            for gap in (14, 30, 50, 75, 105, 140)  # above, below, to the sides, then farther away
            for turn in (90, -90, 60, 120, -60, -120, 0, 180)
        ]

    def place(self, label: Annotation, point: Tensor, offsets: list[tuple[float, float]], always: bool = False) -> None:
        """Put the label at the first offset from the point where there is room; hide it if there is none."""
        label.xy = tuple(point.tolist())
        (x, y), (width, height) = self.at(point[None])[0].tolist(), self.sizes[label]
        boxes = [(x + dx, y + dy, x + dx + width, y + dy + height) for dx, dy in offsets]
        free = [offset for offset, box in zip(offsets, boxes) if self._is_free(box)]
        label.set_visible(bool(free) or always)
        offset = (free or offsets)[0]
        label.set_position(offset)
        if free or always:
            self.taken.append(boxes[offsets.index(offset)])

    def _is_free(self, box: tuple[float, float, float, float]) -> bool:
        left, low, right, high = self.frame
        inside = left < box[0] and low < box[1] and box[2] < right and box[3] < high
        return inside and not any(
            box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in self.taken
        )


# ----------------------------------------------------------------------------------------------------------- neighbours
@dataclass
class NearestBars(Drawing):
    """Draw the best matches as bars, with the best at the top. The marked ones are filled, the others hatched.

    Args:
        labels: names of the bars. If there are fewer than the first time, the bottom stays empty.
        cosines: the lengths of the bars.
    """

    labels: Sequence[str]
    cosines: Sequence[float]
    marked: Sequence[bool]
    title: str

    def build(self) -> Figure:
        figure, axes = new_figure(7.5, 3.8)
        slots = range(len(self.labels))
        self.bars = axes.barh(slots, [0.0] * len(self.labels), height=0.72)
        self.values = [axes.text(0, i, "", va="center", color=INK) for i in slots]
        axes.set(xlim=(-1, 1.12), xlabel="cosine with the chosen vector", yticks=list(slots))
        axes.set_ylim(len(self.labels) - 0.4, -0.6)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0, labelsize=FONT)
        self.axes, self.headline = axes, axes.set_title("")
        return figure

    def move(self) -> None:
        empty = len(self.bars) - len(self.labels)
        labels, cosines = [*self.labels, *[""] * empty], [*self.cosines, *[0.0] * empty]
        marked = [*self.marked, *[False] * empty]
        self.axes.set_yticks(range(len(labels)), labels)
        for bar, value, label, cosine, mark in zip(self.bars, self.values, labels, cosines, marked):
            bar.set_width(cosine)
            bar.set(facecolor=BLUE if mark else "white", edgecolor=BLUE if mark else GREY, hatch="" if mark else "///")
            value.set_text(f"{cosine:.2f}" if label else "")
            value.set_position((cosine + (0.02 if cosine >= 0 else -0.02), value.get_position()[1]))
            value.set_horizontalalignment("left" if cosine >= 0 else "right")
        self.headline.set_text(self.title)


def curves(
    steps: Sequence[float], lines: Mapping[str, Sequence[float]], title: str, ylabel: str, ranks: bool = False
) -> Figure:
    """Draw lines over training steps, each with its name at its end. `ranks`: use a log axis with 1 at the top."""
    figure, axes = new_figure(WIDE, 3.8)
    axes.set(xlabel="training step", ylabel=ylabel, title=title)
    for values, (colour, marker) in zip(lines.values(), CLASS_STYLES):
        axes.plot(steps, values, color=colour, marker=marker, markersize=5)
    if ranks:
        axes.set_yscale("log")
        axes.set_ylim(1.25 * max(max(values) for values in lines.values()), 0.8)
        marks = [1, 2, 5, 10, 20, 50, 100, 200]
        axes.set_yticks(marks, map(str, marks))
        axes.yaxis.minorticks_off()
        axes.set_ylim(1.25 * max(max(values) for values in lines.values()), 0.8)
    else:
        axes.axhline(0, color=GREY, linewidth=0.8)
    heights = {
        name: axes.transLimits.transform(axes.transScale.transform((steps[-1], values[-1])))[1]
        for name, values in lines.items()
    }
    colours = {name: colour for name, (colour, _) in zip(lines, CLASS_STYLES)}
    lowest = -1.0
    for name in sorted(heights, key=lambda name: heights[name]):
        lowest = max(heights[name], lowest + 0.085)  # keep names apart where lines end together
        place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "center"}
        axes.annotate(name, (1, lowest), (6, 0), color=colours[name], fontsize=FONT, **place)
    return figure


# ------------------------------------------------------------------------------------------------------------ analogies
CUBE_AXES = (1.0, 0.0), (0.42, 0.36), (0.0, 1.0)  # the direction of each feature on the page: right, to the back, up


def people_cube(people: Mapping[str, Sequence[str]], features: Sequence[str], marked: Sequence[str]) -> Figure:
    """Draw people as the corners of a cube. Each edge joins two people who differ in only one feature.

    Args:
        people: name -> a value for each of the three features; the first person is in front, at the bottom left.
        features: names of the three features, which point to the right, to the back, and up.
        marked: four people, in order around the parallelogram that is filled.
    """
    first = next(iter(people.values()))
    places = {who: np.array([a != b for a, b in zip(of, first)]) @ np.array(CUBE_AXES) for who, of in people.items()}
    colours = BLUE, PURPLE, GREEN
    figure, axes = new_figure(6.4, 3.9)
    axes.set(xlim=(-0.55, 1.95), ylim=(-0.25, 1.5), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.add_patch(Polygon(np.array([places[who] for who in marked]), facecolor=SKY, alpha=0.35, zorder=0))
    for (one, of_one), (other, of_other) in combinations(people.items(), 2):
        differing = [n for n, (a, b) in enumerate(zip(of_one, of_other)) if a != b]
        if len(differing) == 1:
            axes.plot(*zip(places[one], places[other]), color=colours[differing[0]], zorder=1)
    for who, place in places.items():
        box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": GREY}
        axes.text(place[0], place[1], who, ha="center", va="center", fontsize=FONT, color=INK, bbox=box)
    ends = [list(dict.fromkeys(of[n] for of in people.values())) for n in range(3)]
    names = [f"{name}:\n{values[0]} → {values[1]}" for name, values in zip(features, ends)]
    spots = [((0.5, -0.05), "center", "top"), ((1.27, 0.12), "left", "center"), ((-0.06, 0.5), "right", "center")]
    for name, (spot, ha, va), colour in zip(names, spots, colours):
        axes.text(spot[0], spot[1], name, ha=ha, va=va, fontsize=FONT, fontweight="bold", color=colour)
    axes.set_title("Along each edge of the cube, one feature changes")
    return figure


# ------------------------------------------------------------------------------------------------------------ gradients
@dataclass
class GradientRows(Drawing):
    """Draw the size of the gradient of every row of the table, without and with weight tying.

    Args:
        untied, tied: (V,), the norm of each row's gradient; rows with exactly zero have no bar.
        stories: the number of stories in the batch, for the title.
    """

    untied: Tensor
    tied: Tensor
    stories: int

    def build(self) -> Figure:
        figure, panels = new_panels(WIDE, 4.4, rows=2)
        self.lines: list[LineCollection] = []
        self.titles: list[Text] = []
        for axes in panels:
            self.lines.append(axes.vlines(range(len(self.untied)), 1e-7, 1e-7, color=BLUE, linewidth=1.6))
            axes.set(yscale="log", ylim=(1e-7, 3), xlim=(-2, len(self.untied) + 1), ylabel="size of gradient")
            self.titles.append(axes.set_title(""))
        panels[1].set_xlabel("row of the table = token id")
        return figure

    def move(self) -> None:
        noun = "story" if self.stories == 1 else "stories"
        for norms, lines, title, name in zip((self.untied, self.tied), self.lines, self.titles, ("Untied", "Tied")):
            lines.set_segments([[(i, 1e-7), (i, max(norm, 1e-7))] for i, norm in enumerate(norms.tolist())])
            title.set_text(
                f"{name}, {self.stories} {noun}: {int((norms > 0).sum())} of {len(norms)} rows get a gradient"
            )


# -------------------------------------------------------------------------------------------------------------- scaling
@dataclass
class TokenAndPosition(Drawing):
    """Draw the typical size of a token's features and of its position's features, on a log axis.

    Args:
        token, position: root mean square of the features.
        same_word: cosine of one word's vector at two positions.
    """

    token: float
    position: float
    same_word: float

    def build(self) -> Figure:
        figure, axes = new_figure(8.2, 2.5)
        self.bars = axes.barh([0, 1], [1.0, 1.0], color=[BLUE, ORANGE], height=0.62)
        self.bars[1].set_hatch("//")
        self.values = [axes.text(1.0, i, "", va="center", color=INK) for i in (0, 1)]
        axes.set(xscale="log", xlim=(0.005, 100), xlabel="root mean square of the features", yticks=[0, 1])
        axes.set_yticklabels(["token", "position"], fontsize=FONT)
        axes.set_ylim(1.5, -0.5)
        self.headline = axes.set_title("")
        return figure

    def move(self) -> None:
        for bar, text, value in zip(self.bars, self.values, (self.token, self.position)):
            bar.set_width(value)
            text.set_text(f" {value:.3f}" if value < 10 else f" {value:.1f}")
            text.set_x(value)
        ratio = self.token / self.position
        size = f"{ratio:.1f} times as large as" if ratio >= 1.05 else f"{1 / ratio:.1f} times as small as"
        size = "as large as" if 1 / 1.05 < ratio < 1.05 else size
        self.headline.set_text(
            f"The token is {size} its position; one word at two positions: cosine {self.same_word:.2f}"
        )
