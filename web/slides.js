// What slides need beyond reveal.js: text that fits, the glass model where it is opened, keys that leave a slider, the
// presenter's window.
(async () => {
  const more = JSON.parse(document.getElementById("more").textContent);
  const parts = [...document.querySelectorAll(".slides > section")];
  await window.MathJax?.startup?.promise;

  const over = (box) => box.scrollHeight > box.clientHeight || box.scrollWidth > box.clientWidth;
  const fit = (box, largest, least, whole = box) => {  // the largest type with which all of a box is to be seen
    for (let size = largest; over(whole) && size > least; ) box.style.fontSize = `${(size -= 1)}px`;
  };
  for (const slide of parts) {
    slide.classList.add("answered");
    for (const box of slide.querySelectorAll(".formula, pre")) if (box.scrollWidth > box.clientWidth) fit(box, 36, 14);
    fit(slide, 30, 18, slide.querySelector(".body"));
    slide.classList.remove("answered");
  }

  const fill = (slide) => {
    for (const frame of slide?.querySelectorAll("iframe.glass:not([srcdoc])") ?? []) {
      frame.addEventListener("load", () => frame.contentWindow.addEventListener("keydown", leave, true));
      frame.srcdoc = more.glasses[frame.dataset.glass];
    }
  };
  const leave = (event) => {  // out of a control, and on; the other keys are the control's
    const turn = {PageDown: "next", PageUp: "prev", Escape: ""}[event.key];
    if (turn === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    document.activeElement.blur();
    window.focus();
    if (turn) Reveal[turn]();
  };
  document.addEventListener("keydown", (event) => event.target.matches?.("input, button") && leave(event), true);

  // ------------------------------------------------------------------------------------------ the presenter's window
  let presenter = null;
  const began = Date.now();
  let since = Date.now(), part = "";
  const text = (id, words) => { presenter.document.getElementById(id).textContent = words; };
  const minutes = (from) => {
    const seconds = Math.floor((Date.now() - from) / 1000);
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  };
  const tick = () => {
    if (!presenter || presenter.closed) return;
    text("clock", new Date().toLocaleTimeString([], {hour: "2-digit", minute: "2-digit"}));
    text("passed", `${minutes(began)} in all, ${minutes(since)} in this section`);
  };
  const tell = () => {
    const slide = Reveal.getCurrentSlide(), next = parts[parts.indexOf(slide) + 1];
    if (slide.dataset.part !== part) [part, since] = [slide.dataset.part, Date.now()];
    if (!presenter || presenter.closed) return;
    text("where", `${parts.indexOf(slide) + 1} of ${parts.length} · ${part}`);
    const first = next && (next.querySelector("h2, blockquote, .question, figcaption, img") ?? next);
    text("next", next ? (first.alt || first.textContent).trim().slice(0, 140) : "the end");
    presenter.document.getElementById("note").innerHTML = more.notes[part] ?? "";
    presenter.document.getElementById("prose").innerHTML = slide.querySelector("aside.notes").innerHTML;
    tick();
  };
  const present = () => {
    presenter = window.open("", "presenter", "width=900,height=760");
    if (!presenter) return alert("The browser blocked the presenter's window. Allow this page to open windows.");
    presenter.document.write(`<!doctype html><html lang="en"><meta charset="utf-8"><title>Presenter</title><style>
      body { font: 20px/1.4 system-ui, sans-serif; margin: 20px; color: #1a1a1a; background: #fff }
      header { display: flex; justify-content: space-between; align-items: baseline; border-bottom: 1px solid #bbb }
      #clock { font-size: 40px } #note { background: #eaf3f9; padding: 4px 14px; margin: 14px 0 } #next { color: #555 }
      li { margin: 6px 0 } pre { font-size: 15px }</style>
      <header><span id="where"></span><span id="passed"></span><b id="clock"></b></header>
      <div id="note"></div><p>Next: <span id="next"></span></p><div id="prose"></div>`);
    presenter.document.close();
    presenter.addEventListener("keydown", (event) => {
      const turn = {ArrowRight: "next", PageDown: "next", " ": "next", ArrowLeft: "prev", PageUp: "prev"}[event.key];
      if (turn) { event.preventDefault(); Reveal[turn](); }
    });
    tell();
  };
  setInterval(tick, 1000);

  Reveal.on("ready", () => { fill(Reveal.getCurrentSlide()); tell(); });
  Reveal.on("slidechanged", (event) => { fill(event.currentSlide); tell(); });
  const answered = (event, shown) => event.fragment.closest("section").classList.toggle("answered", shown);
  Reveal.on("fragmentshown", (event) => event.fragment.matches(".answer") && answered(event, true));
  Reveal.on("fragmenthidden", (event) => event.fragment.matches(".answer") && answered(event, false));
  addEventListener("beforeprint", () => parts.forEach((slide) => { fill(slide); slide.classList.add("answered"); }));
  await Reveal.initialize({
    width: 1280, height: 720, margin: 0, hash: true, center: false, controls: false, slideNumber: "c/t",
    transition: "none", display: "flex", scrollActivationWidth: null, keyboard: {80: present},
    keyboardCondition: null,
  });
  Reveal.addKeyBinding({keyCode: 80, key: "P", description: "Presenter's window"}, present);
  document.documentElement.dataset.ready = "yes";
  setTimeout(() => parts.forEach(fill), 3000);  // so that whoever prints, prints the glass model as well
})();
