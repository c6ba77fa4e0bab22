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

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

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

STYLE = {"font": 11, "title": 12.5}


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
        one.tick_params(labelsize=STYLE["font"] - 1, colors=INK)
        one.xaxis.label.set_size(STYLE["font"])
        one.yaxis.label.set_size(STYLE["font"])
        one.title.set_size(STYLE["title"])
    return figure, axes
