"""The base of every figure: objects that build a figure once and update it, and the blank figures they start from.

A figure that never moves is a function from data to `Figure`. A figure that a slider moves is a `Drawing`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, Literal, ParamSpec, Self

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from course_lib.live.letters import LetterCanvas
from course_lib.live.palette import FONT, INK, TITLE

P = ParamSpec("P")
Side = Literal["left", "center", "right"]  # how a text is aligned


def new_figure(width: float = 7.5, height: float = 4.0) -> tuple[Figure, Axes]:
    """Return a figure of width × height inches (100 screen pixels each) and its only axes."""
    figure, (axes,) = new_panels(width, height)
    return figure, axes


def new_panels(
    width: float, height: float, columns: int = 1, rows: int = 1, width_ratios: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its axes, row by row. It does without `pyplot`, so nothing global keeps the figure in
    memory."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    LetterCanvas(figure)
    panels = list(figure.subplots(rows, columns, squeeze=False, width_ratios=width_ratios).flat)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=FONT - 1, colors=INK)
        axes.xaxis.label.set_fontsize(FONT)
        axes.yaxis.label.set_fontsize(FONT)
        axes.title.set_fontsize(TITLE)
    return figure, panels


def headline(figure: Figure) -> Text:
    """Return an empty title above all axes, aligned left; the drawing fills it in later."""
    return figure.suptitle(" ", fontsize=TITLE, x=0.01, ha="left")


def fix_layout(figure: Figure, **pads: float) -> None:
    """Lay the figure out once, so that its axes stay in place and it redraws faster.

    pads: the padding of the constrained layout, such as w_pad.
    """
    if engine := figure.get_layout_engine():
        engine.set(**pads)
        engine.execute(figure)
    figure.set_layout_engine(None)  # not "none", which draws every picture twice


@dataclass
class Drawing(ABC):
    """A figure and the artists in it that move. It is built once and updated whenever the data change.

    A subclass is a `dataclass` whose fields are the data. `build` makes the figure and stores the artists that move as
    attributes; `move` sets them from the fields. The result depends only on the data, not on earlier pictures. An
    optional `title` replaces the headline that a drawing finds by itself.

        @dataclass
        class Bars(Drawing):
            labels: Sequence[str]
            chances: np.ndarray

            def build(self) -> Figure:
                figure, axes = new_figure(7, 3)
                self.bars = axes.barh(self.labels, self.chances)
                self.headline = headline(figure)
                return figure

            def move(self) -> None:
                for bar, chance in zip(self.bars, self.chances):
                    bar.set_width(chance)
                self.headline.set_text(f"{self.labels[self.chances.argmax()]} leads")

        bars = Bars(["cat", "dog"], np.array([0.2, 0.8]))
        bars.figure  # is built now
        bars.update(chances=np.array([0.7, 0.3]))  # its artists move
    """

    def __post_init__(self) -> None:
        self._figure: Figure | None = None

    @abstractmethod
    def build(self) -> Figure:
        """Make the figure and store the artists that move."""

    @abstractmethod
    def move(self) -> None:
        """Set the artists from the data."""

    def draw(self) -> Self:
        """Build the figure if there is none yet, and set its artists from the data."""
        if self._figure is None:
            self._figure = self.build()
        self.move()
        return self

    def update(self, **data: Any) -> None:
        """Change some of the data and redraw. Errors: TypeError for a name that is not a field."""
        if unknown := data.keys() - self.data.keys():
            raise TypeError(f"{type(self).__name__} has no {sorted(unknown)}: its data are {list(self.data)}")
        for name, value in data.items():
            setattr(self, name, value)
        self.draw()

    @property
    def data(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def figure(self) -> Figure:
        """Return the figure. The first access builds and draws it."""
        return self._figure or self.draw().figure


def as_function(drawing: Callable[P, Drawing]) -> Callable[P, Figure]:
    """Return a function for notebooks that takes the data of a `Drawing` and returns its `Figure`."""

    @wraps(drawing)
    def draw(*args: P.args, **kwargs: P.kwargs) -> Figure:
        return drawing(*args, **kwargs).figure

    return draw
