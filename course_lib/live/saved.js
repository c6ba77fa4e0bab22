// JupyterLab's manager of widgets knows its notebook; others' do not, and nothing happens there. The full state that a
// learner has chosen to save stays; an empty widget goes once its cell has run again. The names are those in saved.py.
const VIEW = "application/vnd.jupyter.widget-view+json";
const STATE = "application/vnd.jupyter.widget-state+json";
const EMPTY = {
  model_name: "HTMLModel",
  model_module: "@jupyter-widgets/controls",
  model_module_version: "*",
  state: { _dom_classes: ["course-gone"] },
};

export default {
  initialize({ model }) {
    const notebook = model.widget_manager.context;
    if (!notebook?.saveState) return;
    const keep = (_, now) => {
      if (now != "started") return;
      const before = notebook.model.getMetadata("widgets")?.[STATE]?.state ?? {};
      const isFull = ([, widget]) => !widget.state._dom_classes?.includes("course-gone");
      const state = Object.fromEntries(Object.entries(before).filter(isFull));
      for (const { outputs } of notebook.model.cells)
        for (let i = 1; i < (outputs?.length ?? 0); i++) {
          const id = outputs.get(i).data[VIEW]?.model_id;
          const isOurs = String(outputs.get(i - 1).data["text/html"] ?? "").includes('class="course-still"');
          if (id && isOurs) state[id] ??= EMPTY;
        }
      notebook.model.setMetadata("widgets", { [STATE]: { version_major: 2, version_minor: 0, state } });
    };
    notebook.saveState.connect(keep);
    return () => notebook.saveState.disconnect(keep);
  },
};
