"""Figures of chapter 16: all claims at a glance, and one of them with what was measured."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.text import Text

from course_lib.live.drawing import Drawing, new_figure
from course_lib.live.palette import BLUE, FONT, GREY, INK, LIGHT, ORANGE, RED

# A verdict is a colour, a sign and a word: none of the three is needed to know it.
MARKS = {"confirmed": (BLUE, "o", "holds"), "depends": (ORANGE, "D", "depends"), "refuted": (RED, "X", "does not hold")}


def count(verdicts: Sequence[str], verdict: str) -> int:
    return sum(each == verdict for each in verdicts)


def overview_title(verdicts: Sequence[str]) -> str:
    """How many of the claims hold, as a sentence."""
    held, depends, not_held = (count(verdicts, verdict) for verdict in MARKS)
    return f"Of {len(verdicts)} popular claims, {held} hold, {depends} depend on conditions, {not_held} do not hold"


def overview(chapters: Mapping[str, Sequence[str]]) -> Figure:
    """One row for each chapter, one sign for each claim, the claims that hold first.

    chapters: title of a chapter -> the verdicts of its claims, each "confirmed", "depends" or "refuted".
    """
    order = list(MARKS)
    widest = max((len(verdicts) for verdicts in chapters.values()), default=1)
    figure, axes = new_figure(9.2, 0.36 * len(chapters) + 1.3)
    for row, verdicts in enumerate(chapters.values()):
        for place, verdict in enumerate(sorted(verdicts, key=order.index)):
            colour, sign, _ = MARKS[verdict]
            axes.plot(place + 1, row, sign, color=colour, markersize=11, markeredgecolor="white")
    everything = [verdict for verdicts in chapters.values() for verdict in verdicts]
    for place, (verdict, (colour, sign, word)) in enumerate(MARKS.items()):
        x = 1 + place * max(widest, 6) / 3
        axes.plot(x, len(chapters) + 0.35, sign, color=colour, markersize=11, markeredgecolor="white")
        axes.text(
            x + 0.25, len(chapters) + 0.35, f"{word}: {count(everything, verdict)}",
            va="center", fontsize=FONT, color=INK,
        )  # fmt: skip
    axes.set(xlim=(0.4, max(widest, 6) + 1.2), ylim=(len(chapters) + 0.9, -0.7), xticks=[])
    axes.set_yticks(range(len(chapters)), list(chapters), fontsize=FONT)
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xlabel("one sign for each claim, measured by an experiment of the course")
    axes.set_title(overview_title(everything), loc="left")
    return figure


# The parts of a card: what stands in front, lines allotted, letters in a line.
PARTS = {
    "claim": ("the claim", 2, 78),
    "source": ("said by", 3, 104),
    "control": ("control", 4, 104),
    "threshold": ("threshold", 4, 104),
    "measured": ("measured", 4, 104),
    "because": ("so", 4, 104),
}
SMALL = FONT - 1.5
LINE, GAP = 0.172, 0.1  # inches


@dataclass
class Card(Drawing):
    """One claim as a page: what is said and by whom, how it was tested, what was measured, what follows.

    control and threshold were stated before the run. seeds: those that were drawn from; empty where nothing is drawn.
    """

    claim: str
    source: str
    control: str
    threshold: str
    seeds: str
    measured: str
    because: str
    verdict: str

    def build(self) -> Figure:
        heights = {part: lines * LINE * (1.25 if part == "claim" else 1) + GAP for part, (_, lines, _) in PARTS.items()}
        whole = sum(heights.values()) + 0.45
        figure, axes = new_figure(9.2, whole)
        figure.set_layout_engine(None)  # fixed places: nothing jumps from claim to claim
        axes.set_position((0, 0, 1, 1))
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.axis("off")
        self.texts: dict[str, Text] = {}
        y = whole - 0.1
        for part, (name, _, _) in PARTS.items():
            if part in ("source", "measured"):
                axes.axhline((y + GAP / 2) / whole, 0.03, 0.97, color=LIGHT)
            size = FONT + 1 if part == "claim" else SMALL
            axes.text(0.03, y / whole, name, va="top", fontsize=SMALL, color=GREY)
            self.texts[part] = axes.text(
                0.14, y / whole, "", va="top", fontsize=size, linespacing=1.2, color=INK, parse_math=False
            )
            y -= heights[part]
        (self.mark,) = axes.plot([0.045], [0.2 / whole], marker="o", markersize=13, linestyle="none")
        self.word = axes.text(0.065, 0.2 / whole, "", va="center", fontsize=FONT, color=INK)
        return figure

    def move(self) -> None:
        colour, sign, word = MARKS[self.verdict]
        said = {part: getattr(self, part) for part in PARTS}
        said["claim"] = f"“{self.claim}”"
        if self.seeds:
            said["measured"] += f" (seeds {self.seeds})"
        for part, (_, _, width) in PARTS.items():
            self.texts[part].set_text(textwrap.fill(said[part], width))
        self.mark.set(marker=sign, color=colour)
        self.word.set_text(word)
