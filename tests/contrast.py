"""What of a figure's words can be read: the contrast of each with the very pixels that it is printed on.

A text is judged at the moment in which it is drawn, so all that lies behind it counts: a bar, a heat map's cell, a box,
transparent or not. The measure and its limits are those of WCAG 2.2, success criterion 1.4.3 (level AA).
"""

import contextlib
import math
import sys
from collections.abc import Iterator
from unittest import mock

import numpy as np
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from course_lib.live import drawing

DPI = 50  # a coarse picture will do
NORMAL, LARGE = 4.5, 3.0
SPREAD = 0.2  # of a text's ground: what covers less is a line or an edge that crosses it


def luminance(rgb) -> np.ndarray:
    """Return the relative luminance of colours (..., 3) in 0 … 1."""
    rgb = np.asarray(rgb, dtype=float)[..., :3]
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def contrast(one, other) -> float:
    """Return the contrast of two colours, 1 to 21."""
    dark, light = sorted((float(luminance(one)), float(luminance(other))))
    return (light + 0.05) / (dark + 0.05)


class Reader(RendererAgg):
    """Agg's renderer, which notes the words that stand out too little from what is already drawn."""

    def __init__(self, figure: Figure):
        super().__init__(*(round(side * DPI) for side in figure.get_size_inches()), DPI)
        self.unreadable: dict[str, str] = {}

    def draw_text(self, gc, x, y, s, prop, angle, ismath=False, mtext=None):
        size = prop.get_size_in_points()
        needed = LARGE if size >= 18 or (size >= 14 and prop.get_weight() in ("bold", 700)) else NORMAL
        for ground, share in self._grounds(x, y, self.get_text_width_height_descent(s, prop, ismath), angle):
            red, green, blue, alpha = to_rgba(gc.get_rgb())
            alpha = alpha * gc.get_alpha() if gc.get_alpha() is not None else alpha
            ink = alpha * np.array([red, green, blue]) + (1 - alpha) * ground
            if share >= SPREAD and (found := contrast(ink, ground)) < needed:
                self.unreadable[s] = f"{s!r}: {_hex(ink)} on {_hex(ground)} has {found:.1f}:1"
        super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)

    def _grounds(self, x, y, size, angle):
        """The colours on which a text will stand, and the share of each."""
        width, height, _ = size
        turn = math.radians(angle)
        along, up = np.meshgrid(np.linspace(0, 1, 24) * width, np.linspace(0.1, 0.7, 6) * height)
        columns = (x + along * math.cos(turn) - up * math.sin(turn)).round().astype(int)
        rows = (y - along * math.sin(turn) - up * math.cos(turn)).round().astype(int)
        pixels = np.asarray(self.buffer_rgba())
        seen = (rows >= 0) & (rows < pixels.shape[0]) & (columns >= 0) & (columns < pixels.shape[1])
        if not seen.any():
            return []
        colours, counts = np.unique(pixels[rows[seen], columns[seen]][:, :3], axis=0, return_counts=True)
        return [(colour / 255, count / seen.sum()) for colour, count in zip(colours, counts)]


def _hex(rgb) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


def unreadable(figure: Figure) -> list[str]:
    """Return a sentence for each text of a figure whose contrast is too low. The figure is left as it was."""
    dpi, layout = figure.dpi, figure.get_layout_engine()
    reader = Reader(figure)
    try:
        figure.set_dpi(DPI)
        figure.set_layout_engine(None)
        figure.draw(reader)
    finally:
        figure.set_dpi(dpi)
        figure.set_layout_engine(layout)
    return list(reader.unreadable.values())


@contextlib.contextmanager
def drawn() -> Iterator[dict[str, Figure]]:
    """Give the figures that are made in this block, the newest of each function that makes one, by its name."""
    made: dict[str, Figure] = {}

    def canvas(figure: Figure, make=drawing.LetterCanvas):
        frame = sys._getframe(1)
        while frame.f_code.co_filename == drawing.__file__:
            frame = frame.f_back
        maker = f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"
        if maker.startswith("course_lib."):  # a test's own figures may look as they like
            made[maker] = figure
        return make(figure)

    with mock.patch.object(drawing, "LetterCanvas", canvas):
        yield made
