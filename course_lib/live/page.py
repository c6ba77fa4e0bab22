"""What a notebook's page keeps of a widget: a still, for the next day, for exported pages, for print.

A widget lives in the kernel. A page that is opened again with a new kernel has lost it, and says "model not found" in
its place. So each is shown twice: first a still, which is HTML with `<img alt>` and stays; then the widget. STYLE shows
one of the two, and says so where a widget has lost its kernel; `saved` sees to the file that is opened again. LOOKS
mends what JupyterLab and ipywidgets leave ugly. Of what has controls the still says how they come: WAKE.

STYLE, LOOKS and SCRIPT serve the session that ran a cell: `refresh` leaves them out of the notebooks that it keeps.
"""

import base64
import html
import os
from collections.abc import Callable

from course_lib.live.saved import GONE, STILL, VIEW, keep_widgets

ENLARGED = "COURSE_ENLARGED"  # an environment variable: how much larger a lecture hall's figures are
LEAST = 560  # pixels of a picture's width on a phone, if it has no fewer: its labels can be read, it is moved sideways
LIVE = "course-live"  # the CSS class of a widget; `STILL` is that of its still

LOST = (
    "The kernel behind this has stopped or cannot be reached: nothing answers here until you run the cells above, and "
    "this one again."
)
ASLEEP = "Kept from an earlier session. To bring its controls back, run the cells above, then this one."
# Below a still whose cell has not run here. It needs no style, for none comes with a file; once the cell has run, STYLE
# takes it away, but not from an exported page, whose body is the notebook.
WAKE = '<p class="course-wake"><em>To bring this to life, run the cells above, then this one.</em></p>'

_OUTPUT = ".jp-OutputArea-child"
# An empty widget stands there, or "model not found": in files of other editors than JupyterLab.
_DEAD = f"{_OUTPUT}:has(> .lm-Panel.jupyter-widgets, > .lm-Panel > .{GONE}):not(:has(.{LIVE}))"
_WITHOUT_KERNEL = ".jp-NotebookPanel:has(.jp-Notebook-ExecutionIndicator:is({}))".format(
    ", ".join(f"[data-status={status}]" for status in ("unknown", "dead", "disconnected", "terminating"))
)
STYLE = f"""<style>
{_OUTPUT}:has(.{STILL}):has(+ {_OUTPUT} .{LIVE}),
{_OUTPUT}:has(.{STILL}) + {_DEAD} > *,
body:not(.jp-Notebook) .{STILL}:has(+ style) > .course-wake {{display: none}}
{_OUTPUT}:has(.{STILL}:not(:empty)) + {_DEAD}::before {{
  content: "{ASLEEP}"; margin-left: var(--jp-cell-prompt-width);
  color: var(--jp-ui-font-color1); font-size: 90%; opacity: 0.8}}
.{LIVE}.jupyter-widgets-disconnected::before, {_WITHOUT_KERNEL} .{LIVE}::before {{
  content: "{LOST}"; background: #fff4ce; color: #222; border-left: 4px solid #d55e00; padding: 4px 8px;
  font: 400 13px var(--jp-ui-font-family)}}
.{LIVE} {{container-type: inline-size}}
.{LIVE} .widget-image {{background: white; padding: 4px; margin: 0; border-radius: 4px; box-sizing: content-box}}
@container (max-width: 480px) {{
  .{LIVE} .widget-inline-hbox {{flex-wrap: wrap; height: auto}}
  .{LIVE} .widget-inline-hbox > :is(.slider-container, select, input) {{flex: 1 1 8em}}
  .{LIVE} select {{min-height: 28px}}
}}
@container (max-width: 360px) {{
  .{LIVE} .widget-inline-hbox:not(.widget-checkbox) > .widget-label {{flex: 1 0 100%; text-align: left}}
}}
</style>"""
# A chapter's notebook and its exercises have one name: the tab says which is which.
_TAB = '.lm-TabBar-tab[title*="exercises/"] .lm-TabBar-tabLabel'
_FIGURE = f"{_OUTPUT} figure"
_DARK = '[data-jp-theme-light="false"]'
_ARROW = "svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 9 9'%3E%3Cpath fill='%23ccc' d='m2 3 3 3 3-3'/%3E%3C/svg"
# What has the focus shows it. On a dark page pictures are dimmed; comments (a line's shapes) and the arrows of lists
# stand out. On a narrow one words and printed columns stay whole, an option goes on below itself, a long name, address
# or formula ends within the page, and a picture keeps a size at which its labels can be read: it is moved sideways, and
# the controls of a live one stay.
LOOKS = f"""<style>
{_TAB}::before {{content: "Exercises · "}}
{_DARK} :is({_OUTPUT} figure > img, .{LIVE} .widget-image) {{filter: brightness(0.88)}}
.jp-Notebook {{--jp-mirror-editor-comment-color: #2f6f6f}}
{_DARK} .jp-Notebook {{--jp-mirror-editor-comment-color: #7fb8b8}}
{_DARK} .{LIVE} {{--jp-widgets-dropdown-arrow: url("data:image/svg+xml,%3C{_ARROW}%3E")}}
.{LIVE} .widget-html-content {{line-height: 1.5}}
.{LIVE} .widget-html-content > b {{display: block; margin-bottom: 4px}}
.{LIVE} .widget-radio-box label {{display: flex; height: auto; line-height: 20px}}
.{LIVE} .widget-radio-box input {{flex: none; order: -1; height: 20px}}
.{LIVE} .widget-toggle-buttons + .widget-button {{margin-top: 8px}}
.{LIVE} .widget-button:not(.residual-stream) {{
  height: auto; white-space: normal; line-height: 20px; padding-top: 4px; padding-bottom: 4px}}
.{LIVE} :is(button, select, input, summary, [role=slider], .widget-readout):focus-visible {{
  outline: 2px solid var(--jp-ui-font-color1) !important; outline-offset: 2px}}
{_OUTPUT} .jp-OutputArea-output :is(pre, pre code) {{word-break: normal; overflow-wrap: anywhere}}
@media (max-width: 600px) {{
  {_OUTPUT} .jp-OutputArea-output.jp-RenderedText pre {{white-space: pre}}
  {_OUTPUT} .jp-RenderedMarkdown > pre, {_OUTPUT} .jp-RenderedMarkdown > pre code {{
    white-space: pre; overflow-wrap: normal !important; overflow-x: auto}}
  {_FIGURE} {{overflow-x: auto}}
  {_FIGURE} > img {{max-width: {LEAST}px !important}}
  {_FIGURE} > figcaption {{position: sticky; left: 0}}
  .{LIVE} {{overflow-x: auto}}
  .{LIVE} figure {{max-width: calc(100cqw - 8px)}}
  .{LIVE} .widget-image {{max-width: {LEAST}px !important; flex: none}}
  .{LIVE} > :not(.widget-image) {{
    position: sticky; left: var(--jp-widgets-margin); max-width: calc(100cqw - 4px) !important}}
  .jp-RenderedMarkdown:has(table) {{overflow-x: auto}}
  .jp-RenderedMarkdown :is(td, th) {{overflow-wrap: break-word}}
}}
{_OUTPUT} .jp-RenderedMarkdown > pre {{margin: 4px 7px; font-size: var(--jp-code-font-size)}}
{_OUTPUT}:has(> .jp-RenderedText) + {_OUTPUT} > :not(.jp-RenderedText) {{margin-top: 8px}}
.jp-Notebook .jp-RenderedHTMLCommon {{overflow-wrap: anywhere}}
.jp-Notebook .jp-RenderedMarkdown details {{margin-bottom: 1em}}
.jp-Notebook mjx-container[display=true] {{overflow: auto hidden}}
</style>"""
# What ipywidgets leave out. A key belongs to the control that has the focus and is no command of the notebook's, except
# combinations such as Ctrl+S and Shift+Enter. The words below a picture are its alt; a control has the name beside it,
# or the question above it; of a row of buttons the chosen one is told as pressed. Where a control that has the focus is
# disabled or goes, its cell takes the focus, or the next key would be nobody's. JupyterLab shows the next cell when one
# has run, and keeps it there while an output grows above it, out of sight: its beginning is brought back, unless the
# learner scrolls on or runs another.
SCRIPT = f"""<script>
if (!window.courseLive) {{
  window.courseLive = true;
  addEventListener("keydown", (event) => {{
    const combined = event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key == "Enter");
    const output = event.target.closest?.(".jp-OutputArea-output");
    if (output) event.target.toggleAttribute("data-lm-suppress-shortcuts", !combined);
  }}, true);
  const set = (element, name, value) => element.getAttribute(name) == value || element.setAttribute(name, value);
  const describe = (live) => {{
    const image = live.querySelector("img"), words = live.querySelector("[role=status]");
    if (image?.matches(".widget-image") && words) set(image, "alt", words.textContent);
    set(live, "role", image ? "figure" : "group");
    const question = live.querySelector(".widget-html-content")?.textContent ?? "";
    set(live, "aria-label", image ? "Live figure" : question.slice(0, 200) || "Live");
    for (const label of live.querySelectorAll("label[title=null]")) label.removeAttribute("title");
    const kinds = {{slider: "[role=slider]", textbox: ".widget-readout", radiogroup: ".widget-radio-box",
      group: ".widget-toggle-buttons > div", "": ".widget-text input"}};
    for (const [role, selector] of Object.entries(kinds)) for (const part of live.querySelectorAll(selector)) {{
      const box = part.closest(".widget-inline-hbox, .widget-radio, .widget-toggle-buttons");
      if (role) set(part, "role", role);
      set(part, "aria-label", box?.querySelector("label.widget-label")?.textContent || question);
    }}
    for (const [icon, name] of Object.entries({{play: "Play", pause: "Pause", stop: "Stop", retweet: "Repeat"}}))
      for (const mark of live.querySelectorAll(`.widget-play .fa-${{icon}}`))
        set(mark.parentElement, "aria-label", name);
    for (const button of live.querySelectorAll(".widget-toggle-button"))
      set(button, "aria-pressed", button.classList.contains("mod-active"));
  }};
  let due = false, control, cell;
  addEventListener("focusin", ({{target}}) => {{
    if (target.closest?.(".{LIVE}")) [control, cell] = [target, target.closest(".jp-Cell")];
  }});
  const keepFocus = () => {{
    if (document.activeElement != document.body || !control || (control.isConnected && !control.disabled)) return;
    cell?.focus();
    control = null;
  }};
  let ran, runs;
  addEventListener("keydown", (event) => {{
    ran = event.shiftKey && event.key == "Enter" ? event.target.closest?.(".jp-CodeCell") : null;
    runs = false;
  }}, true);
  for (const moved of ["wheel", "touchmove", "pointerdown"]) addEventListener(moved, () => {{ ran = null; }}, true);
  const comeBack = (cell) => setTimeout(() => {{
    const panel = cell.closest(".jp-WindowedPanel-outer"), output = cell.querySelector(".jp-Cell-outputWrapper");
    if (ran != cell || !panel) return;
    ran = null;
    const above = (part) => part.getBoundingClientRect().top - panel.getBoundingClientRect().top - 8;
    if (above(output) < 0) panel.scrollTop += above(cell.offsetHeight < panel.clientHeight ? cell : output);
  }}, 150);
  new MutationObserver(() => {{
    const star = ran?.querySelector(".jp-InputPrompt")?.textContent.includes("*");
    if (ran && runs && !star) comeBack(ran);
    runs = star;
    if (due) return;
    due = true;
    requestAnimationFrame(() => {{
      due = false;
      document.querySelectorAll(".{LIVE}").forEach(describe);
      keepFocus();
    }});
  }}).observe(document.body, {{childList: true, subtree: true, attributes: true, attributeFilter: ["class"]}});
}}
</script>"""
SERVICE = f"\n{STYLE}\n{LOOKS}\n{SCRIPT}"


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
