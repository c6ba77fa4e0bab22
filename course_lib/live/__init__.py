"""Live figures: sliders in front of a figure, on a page that stays readable when no kernel runs.

The figures themselves are in the chapters' folders. Importing this package does not import matplotlib or ipywidgets;
the first name that needs them does. The first cell of every notebook imports a name from here. From then on, a
`NameError` says which cells to run, and controls wait until the running cell ends.
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
