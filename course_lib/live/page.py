"""What a notebook's page keeps of a widget: a still, for the next day, for exported pages, for print.

A widget lives in the kernel. A page that is opened again with a new kernel has lost it, and says "model not found" in
its place. So each is shown twice: first a still, which is HTML with `<img alt>` and stays; then the widget. STYLE shows
one of the two.
"""

import base64
import html
from collections.abc import Callable

VIEW = "application/vnd.jupyter.widget-view+json"
STILL, LIVE = "course-still", "course-live"  # CSS classes of the two

# The output with the still makes way for a living widget in the output below it; a view that is dead is not shown.
_OUTPUT = ".jp-OutputArea-child"
STYLE = (
    f"<style>{_OUTPUT}:has(.{STILL}):has(+ {_OUTPUT} .{LIVE}), "
    f"{_OUTPUT}:has(.{STILL}) + {_OUTPUT}:has(> .lm-Panel):not(:has(.{LIVE})) {{display: none}}</style>"
)
# What ipywidgets leave out. A key belongs to the control that has the focus and is no command of the notebook's, except
# combinations such as Ctrl+S and Shift+Enter. The words below a picture are its alt; a slider has the name beside it.
SCRIPT = f"""<script>
if (!window.courseLive) {{
  window.courseLive = true;
  addEventListener("keydown", (event) => {{
    const combined = event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key == "Enter");
    if (event.target.closest?.(".{LIVE}")) event.target.toggleAttribute("data-lm-suppress-shortcuts", !combined);
  }}, true);
  new MutationObserver(() => {{
    for (const live of document.querySelectorAll(".{LIVE}")) {{
      const image = live.querySelector("img"), words = live.querySelector("[role=status]");
      if (image && words) image.alt = words.textContent;
      for (const slider of live.querySelectorAll("[role=slider]"))
        slider.setAttribute("aria-label", slider.closest(".jupyter-widgets").querySelector("label").textContent);
    }}
  }}).observe(document.body, {{childList: true, subtree: true}});
}}
</script>"""


def picture(image: bytes, width: int, height: int, alt: str) -> str:
    """A PNG as HTML, `width` by `height` pixels of the page, with the words of those who do not see it."""
    code = base64.b64encode(image).decode()
    return (
        f'<img alt="{html.escape(alt)}" width="{width}" height="{height}" style="max-width: 100%; height: auto;" '
        f'src="data:image/png;base64,{code}">'
    )


def publish(widget, still: str, text: str) -> Callable[[str, str], None]:
    """Show an ipywidget and what the page keeps of it. Returns a function that replaces what is kept.

    Args:
        widget: what lives as long as the kernel. still: HTML in its place. text: the same for readers without HTML.
    """
    from IPython.display import display, publish_display_data

    def kept(still: str, text: str) -> dict:
        return {"text/html": f'<div class="{STILL}">{still}</div>\n{STYLE}\n{SCRIPT}', "text/plain": text}

    widget.add_class(LIVE)
    handle = display(kept(still, text), raw=True, display_id=True)
    publish_display_data({VIEW: widget._repr_mimebundle_()[VIEW]})
    return lambda still, text: handle.update(kept(still, text), raw=True)
