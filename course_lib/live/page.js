// What ipywidgets leave out. It runs once in a page, however many live figures the notebook has.
if (!window.courseLive) {
  window.courseLive = true;
  // A key belongs to the control that has the focus and is no command of the notebook, except combinations such as Ctrl+S.
  addEventListener(
    "keydown",
    (event) => {
      const combined = event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key == "Enter");
      const output = event.target.closest?.(".jp-OutputArea-output");
      if (output) event.target.toggleAttribute("data-lm-suppress-shortcuts", !combined);
    },
    true,
  );
  const set = (element, name, value) => element.getAttribute(name) == value || element.setAttribute(name, value);
  // Names for screen readers: the words below a picture are its alt; a control has the name beside it, or the question
  // above it; of a row of buttons the chosen one is told as pressed.
  const describe = (live) => {
    const image = live.querySelector("img"),
      words = live.querySelector("[role=status]");
    if (image?.matches(".widget-image") && words) set(image, "alt", words.textContent);
    set(live, "role", image ? "figure" : "group");
    const question = live.querySelector(".widget-html-content")?.textContent ?? "";
    set(live, "aria-label", image ? "Live figure" : question.slice(0, 200) || "Live");
    for (const label of live.querySelectorAll("label[title=null]")) label.removeAttribute("title");
    const kinds = {
      slider: "[role=slider]",
      textbox: ".widget-readout",
      radiogroup: ".widget-radio-box",
      group: ".widget-toggle-buttons > div",
      "": ".widget-text input",
    };
    for (const [role, selector] of Object.entries(kinds))
      for (const part of live.querySelectorAll(selector)) {
        const box = part.closest(".widget-inline-hbox, .widget-radio, .widget-toggle-buttons");
        if (role) set(part, "role", role);
        set(part, "aria-label", box?.querySelector("label.widget-label")?.textContent || question);
      }
    for (const [icon, name] of Object.entries({ play: "Play", pause: "Pause", stop: "Stop", retweet: "Repeat" }))
      for (const mark of live.querySelectorAll(`.widget-play .fa-${icon}`))
        set(mark.parentElement, "aria-label", name);
    for (const button of live.querySelectorAll(".widget-toggle-button"))
      set(button, "aria-pressed", button.classList.contains("mod-active"));
  };
  // Where a control that has the focus is disabled or goes, its cell takes the focus, or the next key would be nobody's.
  let due = false,
    control,
    cell;
  addEventListener("focusin", ({ target }) => {
    if (target.closest?.(".course-live")) [control, cell] = [target, target.closest(".jp-Cell")];
  });
  const keepFocus = () => {
    if (document.activeElement != document.body || !control || (control.isConnected && !control.disabled)) return;
    cell?.focus();
    control = null;
  };
  // JupyterLab shows the next cell when one has run, and keeps it there while an output grows above it, out of sight: the
  // output's beginning is brought back, unless the learner scrolls on or runs another cell.
  let ran, runs;
  addEventListener(
    "keydown",
    (event) => {
      ran = event.shiftKey && event.key == "Enter" ? event.target.closest?.(".jp-CodeCell") : null;
      runs = false;
    },
    true,
  );
  for (const moved of ["wheel", "touchmove", "pointerdown"])
    addEventListener(
      moved,
      () => {
        ran = null;
      },
      true,
    );
  const comeBack = (cell) =>
    setTimeout(() => {
      const panel = cell.closest(".jp-WindowedPanel-outer"),
        output = cell.querySelector(".jp-Cell-outputWrapper");
      if (ran != cell || !panel) return;
      ran = null;
      const above = (part) => part.getBoundingClientRect().top - panel.getBoundingClientRect().top - 8;
      if (above(output) < 0) panel.scrollTop += above(cell.offsetHeight < panel.clientHeight ? cell : output);
    }, 150);
  new MutationObserver(() => {
    const star = ran?.querySelector(".jp-InputPrompt")?.textContent.includes("*");
    if (ran && runs && !star) comeBack(ran);
    runs = star;
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      document.querySelectorAll(".course-live").forEach(describe);
      keepFocus();
    });
  }).observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] });
}
