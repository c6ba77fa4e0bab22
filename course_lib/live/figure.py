"""What makes a figure live: sliders, a picture that is redrawn in place, and a sentence about what it shows.

A pure function draws the figure, which is sent as one PNG: nothing flickers, and nothing is loaded from elsewhere.
While a control moves, the PNG has only the page's resolution and little compression. At rest, a sharp PNG replaces it.
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
NARROW = "calc(100% - 4px)"  # the greatest width of a control: a phone's page is narrow, and the margins take 4 pixels
REST = 0.3  # seconds without a new value before the sharp picture is sent; a held key repeats sooner


def png(figure: Figure) -> bytes:
    """Return the figure as PNG bytes."""
    buffer = io.BytesIO()
    # Less compression saves a tenth of the time and adds a fiftieth to the size.
    figure.savefig(buffer, format="png", dpi=DPI, pil_kwargs={"compress_level": 3})
    return buffer.getvalue()


def light_png(figure: Figure) -> bytes:
    """Return the figure as PNG bytes, quickly: the page's resolution, no transparency, the least compression."""
    canvas = cast(FigureCanvasAgg, figure.canvas)  # every `Drawing` has one
    canvas.draw()
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").save(buffer, format="png", compress_level=1)
    return buffer.getvalue()


def few_colours(image: bytes) -> bytes:
    """Return the same picture in 256 colours: a quarter of the bytes where thin lines cross."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(image)).convert("RGB").quantize(dither=Image.Dither.NONE).save(buffer, "png", optimize=True)
    return buffer.getvalue()


def size(figure: Figure) -> tuple[int, int]:
    """Return the width and height of a figure in pixels of the page."""
    width, height = (enlarged(100 * inches) for inches in figure.get_size_inches())
    return width, height


def as_html(image: bytes, figure: Figure, alt: str, caption: str = "") -> str:
    """Return the picture of a figure in its own size, with a description for readers who cannot see it; see
    `picture`."""
    return picture(image, *size(figure), alt, caption)


def as_widget(image: bytes, figure: Figure) -> widgets.Image:
    """Return the picture of a figure as a widget. On a narrow page it shrinks and keeps its proportions from the
    start."""
    width, height = map(str, size(figure))
    layout = widgets.Layout(width=f"{width}px", height="auto", max_width="calc(100% - 8px)")
    return widgets.Image(value=image, format="png", width=width, height=height, layout=layout)


class show:
    """Show a figure in a notebook, with a text that says what it shows.

    Args:
        figure: from a function of `course_lib.live.drawing`.
        alt: a description that is not on the picture: a screen reader speaks it, and "In words" below unfolds it. Say
            what a reader who cannot see the picture should know: the message and its numbers. The tests of the
            notebooks compare this text, so round the numbers in it.

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
    """Return the library's own code of functions, methods or classes, with syntax colours, for the end of a cell.

    The marks for the formatter are removed.
    """
    code = "\n".join(map(inspect.getsource, things)).replace("  # fmt: skip", "")
    return Markdown(f"```python\n{code}```")


class LiveFigure(widgets.VBox):
    """A figure with sliders in front of it.

    Args:
        draw: draw(**state) -> the `Drawing` of this state, a pure function. Only the first drawing is built; later ones
            pass their data to it, and its artists move.
        controls: name of an argument of `draw` -> the widget that sets it. Their values together are the state.
        describe: describe(**state) -> one or two sentences (plain text) about what the picture shows now. They are
            below the picture, and screen readers read them.
        also: also(**state) -> text in a separate box below, such as generated text.

    A moving slider sends a light picture at once, and the sharp one after `REST` seconds without a change. Values do
    not queue: while the kernel draws a picture, the page holds back new values and then sends the newest.

    `render(**state)` draws a state in full, without a kernel or a browser, for tests. A value missing from the state
    stays as it is. An exception in `draw` is shown under the picture, because it would otherwise vanish in a callback.
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
        self._drawn = self.drawing.data  # the data of the picture on the page
        self._say(self.state)
        self._image = as_widget(png(self.figure), self.figure)
        self._caption = widgets.HTML()
        self._below = widgets.HTML()
        self._write()
        ticks = [control for control in self._controls.values() if isinstance(control, widgets.Checkbox)]
        named = [len(control.description) for control in self._controls.values() if control not in ticks]
        for control in self._controls.values():
            # One width for all names aligns the sliders; a checkbox has its label to the right of its box.
            control.style.description_width = (
                "initial" if control in ticks else f"{enlarged(7.5 * max(named, default=0) + 16)}px"
            )
            # Two controls side by side fit a page of 848 pixels.
            control.layout.width = control.layout.width or f"{enlarged(460 if len(self._controls) <= 3 else 410)}px"
            control.layout.max_width = NARROW
            control.observe(self._moved, names="value")
        self._shown = [self._image, self._caption, *([self._below] if also else [])]
        super().__init__([*self._front(list(self._controls.values())), *self._shown])

    @staticmethod
    def _front(controls: list[widgets.Widget]) -> list[widgets.Widget]:
        """Return up to three controls one below the other; more go side by side, so that the picture stays on the
        screen."""
        if len(controls) <= 3:
            return controls
        return [widgets.Box(controls, layout=widgets.Layout(flex_flow="row wrap", width="100%", max_width="980px"))]

    @property
    def figure(self) -> Figure:
        """Return the figure, which is the same object in every state."""
        return self.drawing.figure

    @property
    def state(self) -> dict[str, Any]:
        """Return the present value of every control."""
        return {name: control.value for name, control in self._controls.items()}

    def render(self, **state: Any) -> bytes:
        """Return the PNG bytes of the figure in this state; `text` and `also_text` then describe it."""
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
        except RuntimeError:  # a plain process runs nothing later, so the sharp picture is sent now
            loop = None
        try:
            self._update(self.state)
            # Draw here and not in a callback of the loop: the page holds back new values while this runs.
            self._image.value = light_png(self.figure) if loop else png(self.figure)
            self._write()
        except Exception as error:
            self._caption.value = f"<b>This setting did not work:</b> {html.escape(f'{type(error).__name__}: {error}')}"
        else:
            self._cancel()
            self._rest = loop.call_later(REST, self.settle) if loop else None

    def settle(self) -> None:
        """Send the sharp picture if the page shows a light one."""
        with TURN:
            if self._rest:
                self._cancel()
                self.drawing.update(**self._drawn)  # a later state may have failed halfway
                self._image.value = png(self.figure)

    def _cancel(self) -> None:
        if self._rest:
            self._rest.cancel()
        self._rest = None

    def close(self) -> None:
        """Close the widget and send no further picture."""
        self._cancel()
        super().close()

    def _write(self) -> None:
        self._caption.value = f'<div role="status" style="line-height:1.5">{html.escape(self.text)}</div>'
        self._below.value = f'<div style="line-height:1.5;max-width:70em">{html.escape(self.also_text)}</div>'

    # In print, on GitHub and without a kernel, a still of the figure replaces the sliders.
    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={control.value}" for name, control in self._controls.items())
        return "\n".join(filter(None, [f"[live figure: {settings}] {self.text}", self.also_text]))

    @property
    def still(self) -> str:
        """Return the picture and the words under it as HTML that needs no kernel."""
        self.settle()
        words = "".join(f"<div>{html.escape(text)}</div>" for text in (self.text, self.also_text) if text)
        return as_html(self._image.value, self.figure, self.text, words)

    def _ipython_display_(self) -> None:
        publish(self, self.still, repr(self))


def slider(description: str, value: float, low: float, high: float, step: float) -> widgets.Widget:
    """Return a slider for a number. It has whole numbers if all arguments are whole, and the figure is redrawn as it
    moves."""
    kind = (
        widgets.IntSlider
        if all(isinstance(number, int) for number in (value, low, high, step))
        else widgets.FloatSlider
    )
    return kind(value=value, min=low, max=high, step=step, description=description, continuous_update=True)


def steps(description: str, values: Sequence[int], value: int) -> widgets.SelectionSlider:
    """Return a slider over the given whole numbers."""
    return widgets.SelectionSlider(
        options=[(f"{number:,}", number) for number in values], value=value, description=description
    )


def dropdown(description: str, options: Sequence | Mapping, value) -> widgets.Widget:
    """Return a list from which the reader chooses one option."""
    options = list(options.items()) if isinstance(options, Mapping) else list(options)
    return widgets.Dropdown(options=options, value=value, description=description)
