"""What a notebook's page keeps of a widget: a still, for the next day, for exported pages, for print.

A widget lives in the kernel. A page that is opened again with a new kernel has lost it, and says "model not found" in
its place. So each is shown twice: first a still, which is HTML with `<img alt>` and stays; then the widget. `page.css`
shows one of the two, says so where a widget has lost its kernel, and improves what JupyterLab and ipywidgets draw;
`page.js` adds names for screen readers and keeps the focus. `saved` prepares the file that is opened again. The still
of a figure with controls says how to bring them back: WAKE.

SERVICE is for the session that ran a cell: `refresh` leaves it out of the notebooks that it keeps.
"""

import base64
import html
import os
import re
from collections.abc import Callable
from pathlib import Path

from course_lib.live.saved import STILL, VIEW, keep_widgets

ENLARGED = "COURSE_ENLARGED"  # an environment variable: how much larger a lecture hall's figures are
LIVE = "course-live"  # the CSS class of a widget, as page.css and page.js know it; `STILL` is that of its still

# Below a still whose cell has not run here. It needs no style, because none comes with a file. Once the cell has run,
# page.css takes it away, but not from an exported page, whose body is the notebook.
WAKE = '<p class="course-wake"><em>To bring this to life, run the cells above, then this one.</em></p>'


def _part(tag: str, name: str) -> str:
    """Return a file of this folder as an element of a page, without comments and indents."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    text = re.sub(r"/\*[^*]*\*/|^ *//[^\n]*", "", text, flags=re.MULTILINE)
    lines = filter(None, map(str.strip, text.splitlines()))
    return "\n".join([f"<{tag}>", *lines, f"</{tag}>"])


SERVICE = f"\n{_part('style', 'page.css')}\n{_part('script', 'page.js')}"


def enlarged(pixels: float) -> int:
    """Return a size in pixels of the page as this session shows it: larger under `start --projector`."""
    return round(pixels * float(os.environ.get(ENLARGED, 1)))


def picture(image: bytes, width: int, height: int, alt: str, caption: str = "") -> str:
    """Return a PNG as HTML: a figure on a light card, which suits a dark page, too.

    Args:
        width, height: in pixels of the page. alt: the words of those who do not see it.
        caption: HTML that stands below. Without one, the same words can be unfolded there.
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
    """Return whether a reader can do something with a widget: not all that it is made of is shown only."""
    from ipywidgets import HTML, Box, Image, IntProgress

    parts = getattr(widget, "children", ())
    return any(map(has_controls, parts)) or not isinstance(widget, (Box, HTML, Image, IntProgress))


def publish(widget, still: str, text: str) -> Callable[[str, str], None]:
    """Show an ipywidget and what the page keeps of it. Returns a function that replaces what is kept.

    Args:
        widget: what lives as long as the kernel. still: HTML in its place. text: the same for readers without HTML.
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
