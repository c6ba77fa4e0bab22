"""Pure figure functions, one module per chapter.

The pattern, so that a slider moves a figure without rebuilding it: a function takes its data and `figure=None`. Without
a figure it makes one and keeps the artists that move in `figure.parts`; with one that it made before, it moves them.
Either way the result depends on the data alone.

    def bars(probabilities, labels, figure=None):
        if figure is None:
            figure, axes = new_figure(7, 3)
            figure.parts = SimpleNamespace(bars=axes.barh(labels, probabilities, color=BLUE), title=axes.set_title(""))
        for bar, probability in zip(figure.parts.bars, probabilities):
            bar.set_width(probability)
        figure.parts.title.set_text(f"{labels[probabilities.argmax()]} leads")
        return figure
"""

from typing import Any, overload

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

# Okabe & Ito's palette, which stays distinct for colour-blind readers; meaning never rides on colour alone.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
)
GREY, LIGHT, INK = "#7F7F7F", "#E4E4E4", "#222222"
SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"

FONT, TITLE = 11, 12.5  # points
WIDE = 8.4  # inches: fits a 1280-pixel JupyterLab with its file browser open


@overload
def new_figure(width: float = ..., height: float = ...) -> tuple[Figure, Axes]: ...
@overload
def new_figure(
    width: float = ..., height: float = ..., rows: int = ..., columns: int = ..., **grid: Any
) -> tuple[Figure, Any]: ...
def new_figure(
    width: float = 7.5, height: float = 4.0, rows: int = 1, columns: int = 1, **grid
) -> tuple[Figure, Axes | np.ndarray]:
    """A figure of width × height inches (100 screen pixels each) without pyplot, so that nothing global keeps it alive.

    Returns (figure, axes): one Axes, or an array of them as in `Figure.subplots`. `grid` goes to `subplots`
    (`width_ratios=…`).
    """
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, gridspec_kw=grid or None)
    for one in [axes] if isinstance(axes, Axes) else axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(labelsize=FONT - 1, colors=INK)
        one.xaxis.label.set_size(FONT)
        one.yaxis.label.set_size(FONT)
        one.title.set_size(TITLE)
    return figure, axes


def headline(figure: Figure) -> Text:
    """An empty title over all axes, at the left, to be filled when the figure is drawn."""
    return figure.suptitle(" ", fontsize=TITLE, x=0.01, ha="left")


def fix_layout(figure: Figure, **pads: float) -> None:
    """Lay out once: axes that do not move, and a quicker redraw. pads: of the constrained layout, such as w_pad."""
    figure.get_layout_engine().set(**pads)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # not "none": with that in its place, every picture is drawn twice
