"""What a saved notebook stores of each widget, so that it opens without an error with a new kernel.

The file refers to widgets that exist only in the kernel, and JupyterLab reports an error for each missing one. Before
it saves, an empty widget of the same name is therefore written into the file. A page whose kernel still has the real
widget uses that one; any other page uses the empty one, which is below its still.
"""

from functools import cache
from pathlib import Path

VIEW = "application/vnd.jupyter.widget-view+json"
STILL = "course-still"  # the CSS class of the still of a widget


@cache
def keep_widgets() -> None:
    """Tell the page, once in each kernel, what to save. A widget that is never shown carries saved.js to the page."""
    import anywidget

    class Keeper(anywidget.AnyWidget):
        _esm = Path(__file__).with_name("saved.js").read_text(encoding="utf-8")

    Keeper()
