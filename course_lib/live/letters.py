"""A canvas that keeps its letters: most words of a figure stay the same while a slider moves."""

from typing import Any

import numpy as np
from matplotlib.backend_bases import GraphicsContextBase
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.font_manager import FontProperties

MOST = 2_000  # texts kept: about thirty figures' worth, a few kB each


class LetterCanvas(FigureCanvasAgg):
    """A canvas with the same pixels as `Agg` that shapes each text only once. It is for figures that are redrawn often,
    because shaping letters takes up to two thirds of the time."""

    def __init__(self, figure=None):
        super().__init__(figure)
        self._stamps: dict[tuple, list[tuple]] = {}

    def get_renderer(self) -> RendererAgg:
        """Return the renderer for the figure's present size and resolution, with the text kept from earlier ones."""
        key = *self.get_width_height(physical=True), self.figure.dpi
        if key != self._lastKey:
            self.renderer, self._lastKey = LetterRenderer(*key, self._stamps), key
        return self.renderer


class LetterRenderer(RendererAgg):
    """The renderer of `Agg`, except that it reuses the letters' bitmaps for a text it has already drawn at the same
    position."""

    def __init__(self, width: float, height: float, dpi: float, stamps: dict[tuple, list[tuple]]):
        super().__init__(width, height, dpi)
        self._stamps = stamps

    def draw_text(
        self,
        gc: GraphicsContextBase,
        x: float,
        y: float,
        s: str,
        prop: FontProperties,
        angle: float,
        ismath: Any = False,
        mtext: Any = None,
    ) -> None:
        """Draw s at (x, y) in pixels, from its bitmaps if they are kept. gc: colour and clipping, which may differ."""
        key = s, hash(prop), float(x), float(y), angle, ismath, gc.get_antialiased(), self.width, self.height, self.dpi
        if key not in self._stamps:
            self._renderer = witness = _Witness(self._renderer)
            try:
                super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)
            finally:
                self._renderer = witness.renderer
            if witness.saw_all and witness.stamps:
                if len(self._stamps) >= MOST:
                    self._stamps.clear()
                self._stamps[key] = witness.stamps
            return
        for bitmap, *place in self._stamps[key]:
            self._renderer.draw_text_image(bitmap, *place, gc)


class _Witness:
    """A stand-in for the `Agg` renderer while it draws one text. It records the bitmaps of the letters."""

    def __init__(self, renderer: Any):
        self.renderer, self.saw_all = renderer, True
        self.stamps: list[tuple] = []

    def draw_text_image(self, bitmap: Any, x: int, y: int, angle: float, gc: GraphicsContextBase) -> None:
        self.saw_all &= isinstance(bitmap, np.ndarray)  # older versions pass a font, which changes later
        self.stamps.append((bitmap, x, y, angle))
        self.renderer.draw_text_image(bitmap, x, y, angle, gc)

    def __getattr__(self, name: str) -> Any:
        self.saw_all = False  # the bar of a fraction is not a letter, so such a text is redrawn each time
        return getattr(self.renderer, name)
