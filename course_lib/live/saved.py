"""What a saved notebook holds of each widget, so that a new kernel's page opens without an error.

The file names a widget that lives in the kernel alone, and JupyterLab complains of each that is gone. So before it
saves, an empty widget of the same name is written beside the cells: a page whose kernel still has the real one takes
that, and every other the empty one, which stands below its still.
"""

import json
from functools import cache

VIEW = "application/vnd.jupyter.widget-view+json"
STILL = "course-still"  # a CSS class: of what the page keeps of a widget
GONE = "course-gone"  # and of the empty widget
STATE = "application/vnd.jupyter.widget-state+json"  # where ipywidgets look for widgets of an earlier kernel
EMPTY = {
    "model_name": "HTMLModel",
    "model_module": "@jupyter-widgets/controls",
    "model_module_version": "*",
    "state": {"_dom_classes": [GONE]},
}
# JupyterLab's manager of widgets knows its notebook; others' do not, and nothing happens there. The full state that a
# learner has chosen to save stays; an empty widget goes once its cell has run again.
MODULE = f"""
export default {{ initialize({{ model }}) {{
  const notebook = model.widget_manager.context;
  if (!notebook?.saveState) return;
  const keep = (_, now) => {{
    if (now != "started") return;
    const before = notebook.model.getMetadata("widgets")?.["{STATE}"]?.state ?? {{}};
    const isFull = ([, widget]) => !widget.state._dom_classes?.includes("{GONE}");
    const state = Object.fromEntries(Object.entries(before).filter(isFull));
    for (const {{ outputs }} of notebook.model.cells) for (let i = 1; i < (outputs?.length ?? 0); i++) {{
      const id = outputs.get(i).data["{VIEW}"]?.model_id;
      const isOurs = String(outputs.get(i - 1).data["text/html"] ?? "").includes('class="{STILL}"');
      if (id && isOurs) state[id] ??= {json.dumps(EMPTY)};
    }}
    notebook.model.setMetadata("widgets", {{"{STATE}": {{ version_major: 2, version_minor: 0, state }}}});
  }};
  notebook.saveState.connect(keep);
  return () => notebook.saveState.disconnect(keep);
}} }};
"""


@cache
def keep_widgets() -> None:
    """Let the page know, once in a kernel, what to save; `MODULE` waits there in a widget that is never shown."""
    import anywidget

    class Keeper(anywidget.AnyWidget):
        _esm = MODULE

    Keeper()
