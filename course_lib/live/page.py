"""What a notebook's page keeps of a widget: a still, for the next day, for exported pages and for print.

A widget exists only in the kernel. With a new kernel, a page has lost it and shows "model not found" instead. Each
widget is therefore shown twice: first as a still, which is HTML with `<img alt>` and stays, then as the widget.

- `page.css` shows one of the two, says so if a widget has lost its kernel, and improves the look of JupyterLab.
- `page.js` adds names for screen readers and keeps the focus.
- `saved` prepares the file for opening again.
- WAKE, below the still of a figure with controls, says how to bring the controls back.
- SERVICE serves only the session that ran a cell: `refresh` leaves it out of the notebooks that it saves.
"""

import base64
import html
import os
import re
from collections.abc import Callable
from pathlib import Path

from course_lib.live.saved import STILL, VIEW, keep_widgets

ENLARGED = "COURSE_ENLARGED"  # an environment variable: the factor for figures in a lecture hall
LIVE = "course-live"  # the CSS class of a widget in page.css and page.js; `STILL` is the class of its still

# Below a still whose cell has not run here. It has no style, because a saved file has none. Once the cell has run,
# page.css hides it, but not on an exported page, whose body is the notebook.
WAKE = '<p class="course-wake"><em>To bring this to life, run the cells above, then this one.</em></p>'


def _part(tag: str, name: str) -> str:
    """Return a file of this folder as an element of a page, without comments and indentation."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    text = re.sub(r"/\*[^*]*\*/|^ *//[^\n]*", "", text, flags=re.MULTILINE)
    lines = filter(None, map(str.strip, text.splitlines()))
    return "\n".join([f"<{tag}>", *lines, f"</{tag}>"])


SERVICE = f"\n{_part('style', 'page.css')}\n{_part('script', 'page.js')}"


def enlarged(pixels: float) -> int:
    """Return a size in pixels of the page as this session shows it: larger under `start --projector`."""
    return round(pixels * float(os.environ.get(ENLARGED, 1)))


def picture(image: bytes, width: int, height: int, alt: str, caption: str = "") -> str:
    """Return a PNG as HTML: a figure on a light card, which also suits a dark page.

    Args:
        width, height: in pixels of the page.
        alt: the description for readers who cannot see it.
        caption: HTML below the picture. Without one, the description can be unfolded there.
    """
    code = base64.b64encode(image).decode()
    words = html.escape(alt)
    below = caption or f"<details><summary>In words</summary>{words}</details>"
    card = "max-width: calc(100% - 8px); height: auto; padding: 4px; background: white; border-radius: 4px;"
    return (
        f'<figure style="margin: 0;"><img alt="{words}" width="{width}" height="{height}" style="{card}" '
        f'src="data:image/png;base64,{code}"><figcaption>{below}</figcaption></figure>'
    )


def has_controls(widget) -> bool:
    """Return whether a reader can operate a widget, because at least one of its parts is not just displayed."""
    from ipywidgets import HTML, Box, Image, IntProgress

    parts = getattr(widget, "children", ())
    return any(map(has_controls, parts)) or not isinstance(widget, (Box, HTML, Image, IntProgress))


def publish(widget, still: str, text: str) -> Callable[[str, str], None]:
    """Show a widget and its still. Return a function that replaces the still.

    Args:
        widget: exists as long as the kernel.
        still: the HTML in its place.
        text: the same for readers without HTML.
    """
    from IPython.display import display, publish_display_data

    wake = WAKE if has_controls(widget) else ""

    def kept(still: str, text: str) -> dict:
        below = wake if still else ""
        return {"text/html": f'<div class="{STILL}">{still}{below}</div>{SERVICE}', "text/plain": text}

    keep_widgets()
    widget.add_class(LIVE)
    handle = display(kept(still, text), raw=True, display_id=True)
    publish_display_data({VIEW: widget.get_view_spec()})
    return lambda still, text: handle.update(kept(still, text), raw=True)
