"""Figures of chapter 17: tensor by tensor how far two models lie apart, and the ladder with your own model on it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from course_lib.ladder.picture import Ladder, draw
from course_lib.ladder.rungs import RUNGS, Height, Rung, Shape, recorded
from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure
from course_lib.live.palette import BLUE, FONT, GREY, INK, ORANGE, WIDE

LOWEST = 1e-8  # what is equal is drawn here: a logarithmic axis has no 0


@dataclass
class Differences(Drawing):
    """Largest difference of each tensor, in the order of the computation; the one that the function names is marked.

    names: of the tensors. largest: (N,), one figure per tensor. found: the name that the function returned, or None.
    """

    names: Sequence[str]
    largest: np.ndarray
    tolerance: float
    found: str | None

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 3.2)
        self.bars = axes.barh(range(len(self.names)), np.ones(len(self.names)), left=LOWEST, color=BLUE)
        axes.set(xscale="log", xlim=(LOWEST, 10), xlabel="largest difference (log scale)")
        axes.set_yticks(range(len(self.names)), self.names)
        axes.invert_yaxis()
        axes.axvline(self.tolerance, color=GREY, linestyle=":")
        above = axes.get_xaxis_transform()
        axes.text(
            self.tolerance, 1.01, "allowed", ha="center", va="bottom", fontsize=FONT - 1.5, color=INK, transform=above
        )
        self.headline = headline(figure)
        fix_layout(figure)
        return figure

    def move(self) -> None:
        for bar, name, value in zip(self.bars, self.names, self.largest):
            bar.set_width(max(float(value), LOWEST) - LOWEST)
            bar.set_color(ORANGE if name == self.found else BLUE)
        self.headline.set_text(
            f"The difference begins at {self.found}" if self.found else "No tensor is named as different"
        )


def ladder_with_yours(yours: Height, label: str = "your GPT") -> tuple[Figure, str]:
    """Return the recorded ladder with one more rung, your model's, and the same in words."""
    mine = Rung("yours", "your_gpt", label, Shape(n_layers=4), (), 0)
    way = [rung for rung in RUNGS.values() if not rung.aside]
    ladder = Ladder([*way, mine], recorded() | {"yours": yours}, {}, "your_gpt")
    return draw(ladder), "\n".join(ladder.lines())
