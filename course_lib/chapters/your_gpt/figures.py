"""Figures of chapter 18: how far apart two models are, tensor by tensor, and the ladder with your own model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from course_lib.ladder.picture import Ladder, draw
from course_lib.ladder.rungs import RUNGS, Height, Rung, Shape, recorded
from course_lib.live.drawing import Drawing, fix_layout, headline, new_figure
from course_lib.live.palette import BLUE, FONT, GREY, INK, ORANGE, WIDE

LOWEST = 1e-8  # the position of equal tensors, because a logarithmic axis has no 0


@dataclass
class Differences(Drawing):
    """Draw the largest difference of each tensor, in the order of the computation, and mark the one that the function
    returned.

    names: of the tensors. largest: (N,), one value per tensor. found: the name that the function returned, or None.
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


def ladder_with_yours(yours: Mapping[str, Height]) -> tuple[Figure, str]:
    """Return the recorded ladder with further rungs, name -> height, and the same in words."""
    own = {
        f"yours {i}": Rung(f"yours {i}", "your_gpt", label, Shape(n_layers=4, causal=True), (), 0)
        for i, label in enumerate(yours)
    }
    way = [rung for rung in RUNGS.values() if not rung.aside]
    ladder = Ladder([*way, *own.values()], recorded() | dict(zip(own, yours.values())), {}, "your_gpt")
    figure = draw(ladder)
    name, first = next(iter(yours.items()))
    message = f"{name[0].upper()}{name[1:]}: {first.above:.{first.digits}f} nats above the entropy"
    figure.suptitle(message, fontsize=FONT + 1.5, x=0.01, ha="left")
    return figure, "\n".join(ladder.lines())


def letters_curve(losses: Sequence[float], held_out: float, guessing: float, every: int = 25) -> Figure:
    """Draw the loss per letter over the steps, between guessing and the final loss on held-out letters. Each point is
    the mean of `every` steps."""
    figure, axes = new_figure(WIDE, 3.3)
    steps = [every * (i + 1) for i in range(len(losses))]
    axes.plot(steps, losses, color=BLUE, linewidth=1.8)
    axes.axhline(guessing, color=GREY, linestyle=":")
    axes.axhline(held_out, color=ORANGE, linestyle="--")
    axes.text(steps[-1], guessing, "guessing", ha="right", va="bottom", fontsize=FONT, color=INK)
    said = "held-out letters, at the end"
    axes.text(steps[-1], held_out, said, ha="right", va="bottom", fontsize=FONT, color=INK)
    axes.set(xlabel="step", ylabel="loss (nats per letter)", xlim=(0, steps[-1]), ylim=(0, guessing + 0.5))
    headline(figure).set_text(
        f"After {steps[-1]:,} steps: {held_out:.2f} nats per held-out letter; the entropy of this text is not known"
    )
    return figure
