"""What makes a figure live: sliders, a picture that is redrawn in place, and a sentence that says what it shows.

A figure is drawn by a pure function and sent as one PNG, so nothing flickers and nothing is loaded from elsewhere.
While a control moves, the PNG is light: the pixels of the page, hardly compressed. At rest a sharp one takes its place.
"""

import asyncio
import html
import inspect
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import ipywidgets as widgets
import numpy as np
from IPython.display import Markdown
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from course_lib.live.drawing import Drawing
from course_lib.live.page import enlarged, picture, publish
from course_lib.live.turns import TURN

DPI = 200  # twice the 100 screen pixels of an inch: sharp on dense screens
NARROW = "calc(100% - 4px)"  # at most this wide is a control: a phone's page is narrow, and 4 are its margins
REST = 0.3  # seconds without a new value after which the sharp picture is sent; a key that is held repeats sooner


def png(figure: Figure) -> bytes:
    """The figure as PNG bytes."""
    buffer = io.BytesIO()
    # A lighter compression takes a tenth off the time, and adds a fiftieth to the bytes.
    figure.savefig(buffer, format="png", dpi=DPI, pil_kwargs={"compress_level": 3})
    return buffer.getvalue()


def light_png(figure: Figure) -> bytes:
    """The figure as PNG bytes, quickly: a pixel for each of the page's, no transparency, the least compression."""
    canvas = cast(FigureCanvasAgg, figure.canvas)  # as every `Drawing` has it
    canvas.draw()
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").save(buffer, format="png", compress_level=1)
    return buffer.getvalue()


def few_colours(image: bytes) -> bytes:
    """The same picture in 256 colours: a quarter of the bytes where thin lines cross."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(image)).convert("RGB").quantize(dither=Image.Dither.NONE).save(buffer, "png", optimize=True)
    return buffer.getvalue()


def size(figure: Figure) -> tuple[int, int]:
    """Return the width and height of a figure in pixels of the page."""
    width, height = (enlarged(100 * inches) for inches in figure.get_size_inches())
    return width, height


def as_html(image: bytes, figure: Figure, alt: str, caption: str = "") -> str:
    """Return the picture of a figure in its own size, with the words of those who do not see it; see `picture`."""
    return picture(image, *size(figure), alt, caption)


def as_widget(image: bytes, figure: Figure) -> widgets.Image:
    """Return the picture of a figure as a widget: on a narrow page it shrinks, and keeps its shape from the start."""
    width, height = map(str, size(figure))
    layout = widgets.Layout(width=f"{width}px", height="auto", max_width="calc(100% - 8px)")
    return widgets.Image(value=image, format="png", width=width, height=height, layout=layout)


class show:
    """Show a figure in a notebook, with a text that says what it shows.

    Args:
        figure: from a function of `course_lib.live.drawing`.
        alt: not on the picture: a screen reader speaks it, and "In words" below unfolds it. Say what a reader who does
            not see the picture should know: the message and its numbers. It is compared when the notebooks are tested,
            so round what it quotes.

    Errors: ValueError if alt is empty.
    """

    def __init__(self, figure: Figure, alt: str):
        if not alt.strip():
            raise ValueError("alt must say in words what the figure shows")
        self.figure, self.alt = figure, alt

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        return as_html(png(self.figure), self.figure, self.alt)


def source(*things) -> Markdown:
    """The code of functions, methods or classes as the library holds it, coloured, for the end of a cell; without the
    marks that speak to the formatter alone."""
    code = "\n".join(map(inspect.getsource, things)).replace("  # fmt: skip", "")
    return Markdown(f"```python\n{code}```")


class LiveFigure(widgets.VBox):
    """A figure with sliders in front of it.

    Args:
        draw: draw(**state) -> the `Drawing` of this state, a pure function. The first one is built; later ones lend it
            their data, and its artists move.
        controls: name of an argument of `draw` -> the ipywidget that sets it. Their values together are the state.
        describe: describe(**state) -> one or two sentences (plain text) under the picture: what it shows now. Screen
            readers read it.
        also: also(**state) -> text shown in a box of its own below, such as generated text.

    A slider that moves sends a light picture at once, and when it has rested for `REST` seconds the sharp one. Values
    do not queue: the page holds back what comes while a picture is drawn, and sends the newest of it.

    `render(**state)` draws a state in full: it works without a kernel or a browser, for tests. State that is left out
    keeps its present value. An exception in `draw` is shown under the picture: it must not vanish in a callback.
    """

    _rest: asyncio.TimerHandle | None = None  # runs while a light picture is shown

    def __init__(
        self,
        draw: Callable[..., Drawing],
        controls: Mapping[str, widgets.Widget],
        describe: Callable[..., str],
        also: Callable[..., str] | None = None,
    ):
        self._draw, self._controls, self._describe, self._also = draw, dict(controls), describe, also
        self.drawing = draw(**self.state)
        self._drawn = self.drawing.data  # of the picture that is shown
        self._say(self.state)
        self._image = as_widget(png(self.figure), self.figure)
        self._caption = widgets.HTML()
        self._below = widgets.HTML()
        self._write()
        ticks = [control for control in self._controls.values() if isinstance(control, widgets.Checkbox)]
        named = [len(control.description) for control in self._controls.values() if control not in ticks]
        for control in self._controls.values():
            # One width for all names, so that the sliders stand in line; the words of a checkbox stand behind its box.
            control.style.description_width = (
                "initial" if control in ticks else f"{enlarged(7.5 * max(named, default=0) + 16)}px"
            )
            # Two side by side fit a page of 848 pixels.
            control.layout.width = control.layout.width or f"{enlarged(460 if len(self._controls) <= 3 else 410)}px"
            control.layout.max_width = NARROW
            control.observe(self._moved, names="value")
        self._shown = [self._image, self._caption, *([self._below] if also else [])]
        super().__init__([*self._front(list(self._controls.values())), *self._shown])

    @staticmethod
    def _front(controls: list[widgets.Widget]) -> list[widgets.Widget]:
        """Up to three controls stand one below the other; more go side by side, to leave the picture on the screen."""
        if len(controls) <= 3:
            return controls
        return [widgets.Box(controls, layout=widgets.Layout(flex_flow="row wrap", width="100%", max_width="980px"))]

    @property
    def figure(self) -> Figure:
        """The figure, the same one whatever the state."""
        return self.drawing.figure

    @property
    def state(self) -> dict[str, Any]:
        """The present value of every control."""
        return {name: control.value for name, control in self._controls.items()}

    def render(self, **state: Any) -> bytes:
        """PNG bytes of the figure in this state; `text` and `also_text` then describe it."""
        unknown = state.keys() - self._controls.keys()
        if unknown:
            raise ValueError(f"unknown state {sorted(unknown)}: the controls are {sorted(self._controls)}")
        self._update(self.state | state)
        return png(self.figure)

    def _update(self, state: dict[str, Any]) -> None:
        data = self._draw(**state).data
        self.drawing.update(**data)
        self._say(state)
        self._drawn = data

    def _say(self, state: dict[str, Any]) -> None:
        self.text = self._describe(**state)
        self.also_text = self._also(**state) if self._also else ""

    def _moved(self, _change) -> None:
        with TURN:
            self._draw_anew()

    def _draw_anew(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a plain process: nothing runs later, so the sharp picture comes now
            loop = None
        try:
            self._update(self.state)
            # Drawn here and not in a callback of the loop: the page holds values back for as long as this runs.
            self._image.value = light_png(self.figure) if loop else png(self.figure)
            self._write()
        except Exception as error:
            self._caption.value = f"<b>This setting did not work:</b> {html.escape(f'{type(error).__name__}: {error}')}"
        else:
            self._cancel()
            self._rest = loop.call_later(REST, self.settle) if loop else None

    def settle(self) -> None:
        """Send the sharp picture if the one that is shown is light."""
        with TURN:
            if self._rest:
                self._cancel()
                self.drawing.update(**self._drawn)  # a later state may have failed half-way
                self._image.value = png(self.figure)

    def _cancel(self) -> None:
        if self._rest:
            self._rest.cancel()
        self._rest = None

    def close(self) -> None:
        """Close the widget; no picture follows."""
        self._cancel()
        super().close()

    def _write(self) -> None:
        self._caption.value = f'<div role="status" style="line-height:1.5">{html.escape(self.text)}</div>'
        self._below.value = f'<div style="line-height:1.5;max-width:70em">{html.escape(self.also_text)}</div>'

    # In print, on GitHub and without its kernel, the figure as it was when it was shown stands in for the sliders.
    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={control.value}" for name, control in self._controls.items())
        return "\n".join(filter(None, [f"[live figure: {settings}] {self.text}", self.also_text]))

    @property
    def still(self) -> str:
        """The picture and the words under it as HTML that needs no kernel."""
        self.settle()
        words = "".join(f"<div>{html.escape(text)}</div>" for text in (self.text, self.also_text) if text)
        return as_html(self._image.value, self.figure, self.text, words)

    def _ipython_display_(self) -> None:
        publish(self, self.still, repr(self))


def slider(description: str, value: float, low: float, high: float, step: float) -> widgets.Widget:
    """A slider for a number: whole numbers if all are whole, and redrawn while it moves."""
    kind = (
        widgets.IntSlider
        if all(isinstance(number, int) for number in (value, low, high, step))
        else widgets.FloatSlider
    )
    return kind(value=value, min=low, max=high, step=step, description=description, continuous_update=True)


def dropdown(description: str, options: Sequence | Mapping, value) -> widgets.Widget:
    """A list to choose one from."""
    options = list(options.items()) if isinstance(options, Mapping) else list(options)
    return widgets.Dropdown(options=options, value=value, description=description)
