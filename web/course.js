// A figure of recorded states: a slider (and a button that plays them) swaps pictures that were drawn beforehand.
// And before that, what the builder's own pages leave out for readers without sight or mouse.
for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.setAttribute("aria-level", "2");
for (const fold of document.querySelectorAll("details.hide > summary")) fold.removeAttribute("aria-label");
const reach = (selector) => {  // what is wider than its place takes the focus, so that the arrow keys scroll it
  for (const box of document.querySelectorAll(selector)) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
};
reach("article pre, article .table-wrapper, article div.cell_output");
addEventListener("load", () => window.MathJax?.startup?.promise?.then(() => reach("article mjx-container")));

// The glass model's frame is as high as what stands in it: a frame that scrolls within a page hides its controls. The
// model says how high that is, and is told this page's theme (page.js): into a frame of a file no page may look.
const frames = [...document.querySelectorAll("article iframe.glass")];
addEventListener("message", ({source, data}) => {
  const frame = frames.find((each) => each.contentWindow === source);
  if (frame && data.high) frame.style.height = `${data.high + 8}px`;
});
const tell = () => frames.forEach(({contentWindow}) => contentWindow.postMessage({theme: document.body.dataset.theme}, "*"));
new MutationObserver(tell).observe(document.body, {attributeFilter: ["data-theme"]});
frames.forEach((frame) => frame.addEventListener("load", tell));
tell();
for (const link of document.querySelectorAll("a[target=glass]")) {  // below it: what it brings begins at the frame's top
  link.addEventListener("click", () => document.querySelector("iframe[name=glass]").scrollIntoView());
}

const still = matchMedia("(prefers-reduced-motion: reduce)");

for (const figure of document.querySelectorAll("figure.states")) {
  const states = JSON.parse(figure.querySelector("script").textContent);
  const image = figure.querySelector("img"), slider = figure.querySelector("input");
  const value = figure.querySelector("output"), words = figure.querySelector("figcaption");
  const button = figure.querySelector("button");
  const first = image.getAttribute("src");
  const folder = first.startsWith("data:") ? "" : first.replace(/[^/]*$/, "");  // on slides the states are within
  let playing = 0;

  const show = (index) => {
    const state = states[index];
    slider.value = index;
    slider.setAttribute("aria-valuetext", state.value);
    value.textContent = state.value;
    image.src = folder + state.file;
    image.alt = state.words[0];
    words.replaceChildren(...state.words.map((text) => {
      const line = document.createElement("p");
      line.textContent = text;
      return line;
    }));
  };

  const fetchAll = () => {  // all pictures, once somebody comes near: then none is late
    for (const state of states) new Image().src = folder + state.file;
  };
  figure.addEventListener("pointerenter", fetchAll, {once: true});
  figure.addEventListener("focusin", fetchAll, {once: true});

  const stop = () => {
    clearInterval(playing);
    playing = 0;
    button.textContent = "▶ Play";
  };
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  button.hidden = still.matches;
  still.addEventListener("change", () => { stop(); button.hidden = still.matches; });
  button.addEventListener("click", () => {
    if (playing) return stop();
    let index = Number(slider.value) % (states.length - 1);
    button.textContent = "■ Stop";
    playing = setInterval(() => {
      show(index);
      if (++index === states.length) stop();
    }, 500);
  });
  figure.querySelector(".controls").hidden = false;  // without scripts the picture stands alone
}

// What is wider than its box says so at its edge: a phone shows no scroll bars.
const mark = new ResizeObserver((seen) => {
  for (const {target} of seen) target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 8);
});
for (const part of document.querySelectorAll("article :is(figure.picture, figure.states, div.cell_output pre, .table-wrapper)")) mark.observe(part);

// The address of a page that is meant to be shared gets a button that copies it.
for (const address of navigator.clipboard ? document.querySelectorAll("p.share code") : []) {
  const button = document.createElement("button");
  button.textContent = "Copy address";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(address.textContent);
    button.textContent = "Copied";
  });
  address.after(" ", button);
}
