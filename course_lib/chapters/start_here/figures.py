"""Figures of chapter 0: the next word according to the model and to the grammar, and a map of the entire decoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

from course_lib.live.drawing import Drawing, new_figure, new_panels
from course_lib.live.numbers import percent
from course_lib.live.palette import BLUE, FONT, GREY, INK, LIGHT, ORANGE, SKY, TITLE, WIDE

SMALL = FONT - 1


# -------------------------------------------------------------------------------------------------------- the next word
@dataclass
class NextWords(Drawing):
    """Draw one bar for each possible next word: filled for the model's probability, dotted for the exact one."""

    words: Sequence[str]
    model: Sequence[float]
    exact: Sequence[float]
    title: str

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 3.4)
        figure.set_layout_engine(None)  # fixed positions: nothing jumps when a slider moves
        axes.set_position((0.17, 0.18, 0.8, 0.66))
        rows = range(len(self.words))
        axes.set(xlim=(0, 1.12), ylim=(len(self.words) - 0.5, -0.5), xticks=[0, 0.25, 0.5, 0.75, 1])
        axes.set_xlabel("probability (blue: by the model; dotted outline: exact, by the rules)")
        self.axes, none = axes, [0.0] * len(rows)
        self.model_bars = axes.barh(rows, none, 0.62, color=SKY, edgecolor=BLUE)
        self.exact_bars = axes.barh(rows, none, 0.84, fill=False, edgecolor=INK, linestyle=":", linewidth=1.6)
        self.numbers = [axes.text(0, row, "", va="center", fontsize=FONT) for row in rows]
        self.headline = figure.text(0.01, 0.91, "", fontsize=TITLE)
        return figure

    def move(self) -> None:
        self.axes.set_yticks(range(len(self.words)), self.words, fontsize=FONT)
        each = zip(self.model_bars, self.exact_bars, self.numbers, self.model, self.exact)
        for bar, outline, number, share, truth in each:
            bar.set_width(share)
            outline.set_width(truth)
            number.set(x=max(share, truth) + 0.015, text=f"{share:.2f}")
        self.headline.set_text(self.title)


# -------------------------------------------------------------------------------------------------------------- the map
@dataclass(frozen=True)
class Part:
    """Describe one part of a decoder for the map.

    Fields:
        name, does: its name, and a sentence about what it does.
        letters, shape: the shape of its output, as dimension letters and as numbers.
        parameters: its number of parameters, in all blocks together.
        chapter: the chapter that teaches it.
        place: "alone" before or after the blocks; "reads" the residual stream; "adds" to it; or is the "stream".
        in_blocks: True if every block contains it.
        instead: the text on the map for a part without its own parameters.
    """

    name: str
    does: str
    letters: str
    shape: tuple[int, ...]
    parameters: int
    chapter: int
    place: str = "alone"
    in_blocks: bool = False
    instead: str = "none"


def total_of(parts: Sequence[Part]) -> int:
    """Return the number of parameters of the entire model."""
    return sum(part.parameters for part in parts)


def weight_of(part: Part, total: int) -> str:
    """Return how much of the model a part is, in words."""
    if not part.parameters:
        return "no parameters"
    return f"{part.parameters:,} parameters, {percent(part.parameters / total)} of the model"


def _title(parts: Sequence[Part], chosen: str) -> str:
    part = next(part for part in parts if part.name == chosen)
    return f"{chosen}: {weight_of(part, total_of(parts))}"


@dataclass
class ShareBars(Drawing):
    """Draw the parameters of every part that has some, as bars; the part named `chosen` is highlighted."""

    parts: Sequence[Part]
    chosen: str

    def build(self) -> Figure:
        owners = [part for part in self.parts if part.parameters]
        figure, axes = new_figure(5.2, 0.9 + 0.33 * len(owners))
        figure.set_layout_engine(None)
        axes.set_position((0.31, 0.03, 0.68, 0.82))
        axes.set_yticks(range(len(owners)), [part.name for part in owners], fontsize=FONT)
        self.rows, self.headline = Rows(axes, owners), figure.text(0.01, 0.91, "", fontsize=TITLE)
        return figure

    def move(self) -> None:
        self.headline.set_text(_title(self.parts, self.chosen))
        self.rows.mark(self.chosen, self.figure.axes[0].get_yticklabels())


def model_map(parts: Sequence[Part], chosen: str, n_layers: int) -> Figure:
    """Draw the entire map on one page, for readers who cannot press buttons. It shows the flow of the parts from top to
    bottom, and the output shape, the parameters and the chapter of each part."""
    stream = next(part for part in parts if part.place == "stream")
    rows = [part for part in parts if part is not stream]
    figure, (flow, bars) = new_panels(9.5, 1.25 + 0.4 * len(rows), 2)
    figure.set_layout_engine(None)
    flow.set_position((0.01, 0.02, 0.57, 0.82))
    bars.set_position((0.6, 0.02, 0.39, 0.82))
    boxes = _flow(flow, rows, stream, n_layers)
    boxes[chosen].set(facecolor=ORANGE, linewidth=2)
    Rows(bars, rows).mark(chosen)
    bars.set_yticks([])
    for axes, x, head in ((flow, 3.35, "output shape"), (flow, 4.85, "chapter"), (bars, 0, "parameters")):
        axes.text(x, -0.75, head, fontsize=SMALL, color=INK, style="italic")
    figure.text(0.01, 0.945, _title(parts, chosen), fontsize=TITLE)
    return figure


class Rows:
    """Draw a bar and a number for each part, from top to bottom."""

    def __init__(self, axes: Axes, parts: Sequence[Part]):
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        most, total = max(part.parameters for part in parts), total_of(parts)
        axes.set(xlim=(0, 1.75 * most), ylim=(len(parts) - 0.5, -0.5), xticks=[])
        self.parts, self.numbers = parts, []
        for row, part in enumerate(parts):
            text = f"{part.parameters:,}  ({percent(part.parameters / total)})" if part.parameters else part.instead
            place = part.parameters + 0.02 * most, row
            self.numbers.append(axes.text(*place, text, va="center", fontsize=SMALL, color=INK))
        lengths = [part.parameters for part in parts]
        self.bars = axes.barh(range(len(parts)), lengths, 0.62, edgecolor=INK, linewidth=0.6)

    def mark(self, chosen: str, labels: Sequence[Text] = ()) -> None:
        """Show the chosen row in another colour and in bold, so that colour is not the only difference."""
        for part, bar, number in zip(self.parts, self.bars, self.numbers):
            bar.set_facecolor(ORANGE if part.name == chosen else LIGHT)
            number.set_fontweight("bold" if part.name == chosen else "normal")
        for part, label in zip(self.parts, labels):
            label.set_fontweight("bold" if part.name == chosen else "normal")


def _flow(axes: Axes, rows: Sequence[Part], stream: Part, n_layers: int) -> dict[str, FancyBboxPatch]:
    """Draw the boxes of the flow, with the stream next to the parts that read it or add to it. Return name -> its
    box."""
    axes.set(xlim=(0, 5.4), ylim=(len(rows) - 0.5, -0.5), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    boxes: dict[str, FancyBboxPatch] = {}

    def box(part: Part, x: float, top: float, width: float, height: float, **text: Any) -> None:
        patch = FancyBboxPatch(
            (x, top), width, height, boxstyle="round,pad=0,rounding_size=0.08", facecolor="white", edgecolor=INK
        )
        boxes[part.name] = patch
        axes.add_patch(patch)
        axes.text(x + width / 2, top + height / 2, part.name, ha="center", va="center", fontsize=FONT, **text)

    beside = [row for row, part in enumerate(rows) if part.place != "alone"]
    box(stream, 0.05, beside[0] - 0.4, 0.34, beside[-1] - beside[0] + 0.8, rotation=90)
    boxes[stream.name].set_facecolor(SKY)
    _arrow(axes, (0.22, beside[-1] + 0.4), (0.22, beside[-1] + 0.66))
    inside = [row for row, part in enumerate(rows) if part.in_blocks]
    frame = (0.46, inside[0] - 0.48), 2.7, inside[-1] - inside[0] + 0.96
    axes.add_patch(FancyBboxPatch(*frame, boxstyle="square,pad=0", fill=False, edgecolor=GREY, linestyle="--"))
    axes.text(3.1, sum(inside) / len(inside), f"{n_layers} ×", ha="right", va="center", fontsize=FONT, color=INK)
    for row, part in enumerate(rows):
        if part.place == "alone":
            box(part, 0.05, row - 0.34, 2.6, 0.68)
            if row + 1 < len(rows):
                x = 0.22 if row + 1 == beside[0] else 1.35  # the point where it flows into the stream
                _arrow(axes, (x, row + 0.34), (x, row + 0.62))
        else:
            box(part, 0.92, row - 0.34, 1.73, 0.68)
            ends = (0.39, row), (0.92, row)
            _arrow(axes, *(ends if part.place == "reads" else ends[::-1]))
            if part.place == "adds":
                axes.text(0.68, row - 0.03, "+", ha="center", va="bottom", fontsize=FONT, weight="bold")
            else:
                _arrow(axes, (1.8, row + 0.34), (1.8, row + 0.66))
        axes.text(3.35, row, str(part.shape), va="center", fontsize=SMALL, color=INK)
        axes.text(5.1, row, str(part.chapter), va="center", ha="center", fontsize=SMALL, color=INK)
    return boxes


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": INK, "shrinkA": 0, "shrinkB": 0})
