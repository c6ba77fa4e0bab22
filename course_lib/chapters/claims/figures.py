"""Figures of chapter 17: how a verdict is reached, twelve claims with their results, and one claim as a card."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

from course_lib.live.drawing import Drawing, new_figure
from course_lib.live.palette import BLUE, FONT, GREY, INK, LIGHT, ORANGE, RED, WIDE

# A verdict has a colour, a sign and a word. Any one of the three is enough to recognize it.
MARKS = {
    "confirmed": (BLUE, "o"),
    "depends": (ORANGE, "D"),
    "refuted": (RED, "X"),
    "not at this size": (GREY, "^"),
    "by construction": (INK, "s"),
}


def way_to_a_verdict(
    claim: str, control: str, threshold: str, values: Sequence[float], beside: float, at: float, unit: str, verdict: str
) -> Figure:
    """Draw how an experiment settles a claim: what is stated before the run, the value of each seed, and the verdict.

    values: one value for each seed. `beside`: the control's value. at: the threshold; the claim holds below it.
    """
    figure, axes = new_figure(WIDE, 3.9)
    stated = (("the claim", claim), ("control", control), ("threshold", threshold))
    for i, (name, said) in enumerate(stated):
        axes.add_patch(FancyBboxPatch((3.4 * i, 2.35), 2.9, 1.35, "round,pad=0.05", facecolor=LIGHT, edgecolor=INK))
        axes.text(3.4 * i + 0.05, 3.62, name, va="top", fontsize=FONT, weight="bold", color=INK)
        axes.text(3.4 * i + 0.05, 3.28, textwrap.fill(said, 31), va="top", fontsize=FONT - 1.5, color=INK)
    axes.text(0, 3.92, "stated before the run", fontsize=FONT, color=GREY)
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.5}
    for i in range(2):
        axes.annotate("", (3.4 * i + 3.3, 3.0), (3.4 * i + 3.0, 3.0), arrowprops=arrow)
    most = 1.25 * max(*values, beside, at)

    def x(value: float) -> float:
        return 7.4 * value / most

    axes.text(0, 1.87, f"measured: {unit}", fontsize=FONT, color=GREY)
    for low, high in ((0, at), (at, most)):
        axes.fill_between([x(low), x(high)], 0.75, 1.55, facecolor="white" if low else LIGHT, edgecolor=GREY)
    axes.text((x(at) + x(most)) / 2, 1.42, "refuted", ha="center", va="center", fontsize=FONT - 1, color=INK)
    axes.plot([x(at)] * 2, [0.65, 1.65], color=INK, linewidth=2)
    axes.text(0, 0.6, f"confirmed up to {at:g}", va="top", fontsize=FONT, color=INK)  # its box may be too narrow
    axes.text(0, 0.32, f"◆ control: {beside:.1f}", va="top", fontsize=FONT, color=BLUE)
    axes.plot(
        [x(value) for value in values], [1.0] * len(values), "o", color=RED, markersize=11, markeredgecolor="white"
    )
    axes.text(x(min(values)), 0.6, f"{len(values)} seeds: {_list(values)}", va="top", fontsize=FONT, color=INK)
    axes.plot([x(beside)], [1.0], "D", color=BLUE, markersize=9, markeredgecolor="white", clip_on=False)
    axes.annotate("", (8.3, 1.15), (7.6, 1.15), arrowprops=arrow)
    colour, sign = MARKS[verdict]
    axes.plot([8.55], [1.15], sign, color=colour, markersize=13)
    axes.text(8.75, 1.15, verdict, va="center", fontsize=FONT, weight="bold", color=INK)
    axes.set(xlim=(-0.15, 10.1), ylim=(0.05, 4.1))
    axes.axis("off")
    axes.set_title("The verdict follows from the numbers, by a rule that was fixed before the run", loc="left")
    return figure


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


SENTENCE = re.compile(r"(?<=[.)]) (?=[A-Z(])")  # between two sentences


def headlines(rows: Sequence[tuple[str, str, str]], title: str, sources: Sequence[str] = ()) -> Figure:
    """Draw several claims with their results: (verdict, claim, finding) for each. If a finding is too long, its last
    sentences are left out.

    sources: who made each claim, in grey below the claim.
    """
    figure, axes = new_figure(WIDE, 0.65 + (0.75 if sources else 0.6) * len(rows))
    for row, (verdict, claim, finding) in enumerate(rows):
        colour, sign = MARKS[verdict]
        axes.plot([0.012], [row], sign, color=colour, markersize=11, markeredgecolor="white")
        for x, said, width in ((0.035, claim, 52), (0.48, finding, 64)):
            sentences = SENTENCE.split(said)
            while len(lines := textwrap.wrap(" ".join(sentences), width)) > 3 and len(sentences) > 1:
                sentences.pop()
            by = sources[row] if sources and said == claim else ""
            text = "\n".join([*lines, *[""] * bool(by)])
            axes.text(x, row, text, va="center", fontsize=FONT - 2.5, linespacing=1.15, color=INK)
            if by:
                below = "\n".join([*[""] * len(lines), f"({by})"])
                axes.text(x, row, below, va="center", fontsize=FONT - 2.5, linespacing=1.15, color=GREY)
        axes.axhline(row + 0.5, color=LIGHT, linewidth=0.8)
    for place, (verdict, (colour, sign)) in enumerate(MARKS.items()):
        x = 0.012 + (0.0, 0.13, 0.245, 0.35, 0.52)[place]
        axes.plot([x], [-1.1], sign, color=colour, markersize=9, markeredgecolor="white")
        axes.text(x + 0.018, -1.1, verdict, va="center", fontsize=FONT - 1, color=INK)
    axes.text(0.035, -0.64, "claim", va="center", fontsize=FONT - 1.5, color=GREY)
    axes.text(0.48, -0.64, "result", va="center", fontsize=FONT - 1.5, color=GREY)
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -1.5))
    axes.axis("off")
    axes.set_title(textwrap.fill(title, 84), loc="left")
    return figure


def count(verdicts: Sequence[str], verdict: str) -> int:
    return sum(each == verdict for each in verdicts)


def overview_title(verdicts: Sequence[str]) -> str:
    """Return a sentence that says how many claims got each verdict."""
    told = {"depends": "depending on conditions", "not at this size": "undecided at this size"}
    counts = ((count(verdicts, verdict), told.get(verdict, verdict)) for verdict in MARKS)
    return f"{len(verdicts)} popular claims: " + ", ".join(f"{n} {verdict}" for n, verdict in counts if n)


# The parts of a card: its label, the number of lines reserved for it, and the number of letters in a line.
PARTS = {
    "claim": ("the claim", 3, 78),
    "measured": ("measured", 5, 104),
    "because": ("reason", 3, 104),
    "quote": ("their words", 5, 104),
    "source": ("source", 3, 104),
    "control": ("control", 3, 104),
    "outcomes": ("outcomes", 6, 104),
}
SMALL = FONT - 2.4
LINE, GAP = 0.172, 0.1  # inches


@dataclass
class Card(Drawing):
    """Draw one claim as a page: the claim, the measurement and the conclusion, then the author's words and the test.

    `control` and `outcomes` were stated before the run. outcomes: verdict -> the condition for it.
    """

    claim: str
    measured: str
    because: str
    quote: str
    source: str
    control: str
    outcomes: Mapping[str, str]
    verdict: str

    def build(self) -> Figure:
        heights = {part: lines * LINE * (1.25 if part == "claim" else 1) + GAP for part, (_, lines, _) in PARTS.items()}
        whole = sum(heights.values()) + 0.45
        figure, axes = new_figure(WIDE, whole)
        figure.set_layout_engine(None)  # fixed positions: nothing moves from claim to claim
        axes.set_position((0, 0, 1, 1))
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.axis("off")
        self.texts: dict[str, Text] = {}
        y = whole - 0.1
        for part, (name, _, _) in PARTS.items():
            if part in ("measured", "quote"):
                axes.axhline((y + GAP / 2) / whole, 0.03, 0.97, color=LIGHT)
            size = FONT if part == "claim" else SMALL
            axes.text(0.03, y / whole, name, va="top", fontsize=SMALL, color=GREY)
            self.texts[part] = axes.text(
                0.14, y / whole, "", va="top", fontsize=size, linespacing=1.2, color=INK, parse_math=False
            )
            y -= heights[part]
        (self.mark,) = axes.plot([0.045], [0.2 / whole], marker="o", markersize=13, linestyle="none")
        self.word = axes.text(0.065, 0.2 / whole, "", va="center", fontsize=FONT, color=INK)
        return figure

    def move(self) -> None:
        colour, sign = MARKS[self.verdict]
        outcomes = [f"{verdict}: {when}" for verdict, when in self.outcomes.items()]
        for part, (_, _, width) in PARTS.items():
            lines = outcomes if part == "outcomes" else [getattr(self, part)]
            self.texts[part].set_text("\n".join(textwrap.fill(line, width) for line in lines))
        self.mark.set(marker=sign, color=colour)
        self.word.set_text(self.verdict)
