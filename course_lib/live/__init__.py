"""Live figures: what puts sliders in front of a figure, and what keeps a page readable when no kernel runs.

The figures themselves stand with their chapters. Importing this package imports neither matplotlib nor ipywidgets:
they come with the first name that needs them. Every notebook's first cell takes one from here, and from then on a
NameError there says which cells to run, and controls wait for the cell that runs.
"""

import importlib

from course_lib.live.names import explain_names
from course_lib.live.turns import take_turns

_HOMES = {
    "LiveFigure": "figure",
    "explorable": "explorers",
    "explore": "explorers",
    "guess": "guesses",
    "reveal": "guesses",
    "show": "figure",
    "source": "figure",
    "table": "tables",
}
__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    explain_names()
    take_turns()
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
