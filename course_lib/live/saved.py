"""What a saved notebook holds of each widget, so that a new kernel's page opens without an error.

The file names a widget that lives in the kernel alone, and JupyterLab complains of each that is gone. So before it
saves, an empty widget of the same name is written beside the cells: a page whose kernel still has the real one takes
that, and every other the empty one, which stands below its still.
"""

from functools import cache
from pathlib import Path

VIEW = "application/vnd.jupyter.widget-view+json"
STILL = "course-still"  # a CSS class: of what the page keeps of a widget


@cache
def keep_widgets() -> None:
    """Let the page know, once in a kernel, what to save: saved.js waits there in a widget that is never shown."""
    import anywidget

    class Keeper(anywidget.AnyWidget):
        _esm = Path(__file__).with_name("saved.js").read_text(encoding="utf-8")

    Keeper()
