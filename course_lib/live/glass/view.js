// The glass model as a page: a sentence, its way through the model, the next word. `mount(box, bytes, about)` draws it;
// as the module of a widget it is called by `render`.
import {Glass, draw, encode, nextTokenDistribution, randomNumbers, readModel} from "./engine.js";

const SHOWN = 8;  // words in a row of bars
const STEP = 900;  // ms between two steps of the motion
const number = (x, digits = 2) => (Math.abs(x) < 0.5 * 10 ** -digits ? 0 : x).toFixed(digits).replace("-", "−");
const percent = (p) => (p >= 0.9995 ? "100" : p < 0.001 ? "<0.1" : (100 * p).toFixed(p < 0.1 ? 1 : 0)) + " %";

/** An element with attributes, properties that are functions, and children. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat());
  return element;
}

/** Draw the glass model into a box. bytes: what Python's `pack` gives. about: texts for each part, see __init__.py. */
export function mount(box, bytes, about) {
  const model = readModel(bytes), glass = new Glass(model), {tokens, config} = model;
  const state = {
    text: about.sentences[0], position: null, open: about.open ?? null, removed: new Set(), random: randomNumbers(0),
    how: {temperature: 1, topK: null, topP: null, minP: null},
  };
  let words = [], ids = [];
  const at = () => Math.min(state.position ?? ids.length - 1, ids.length - 1);
  const width = (rows, position, size) => rows.subarray(position * size, (position + 1) * size);
  const H = config.n_heads, T = config.max_seq_len;

  const input = make("input", {type: "text", "aria-label": "your text", spellcheck: "false", autocomplete: "off",
                               input: () => { state.text = input.value; state.position = null; compute(); }});
  const choice = make("select", {"aria-label": "a sentence to begin with", change: () => begin(choice.value)},
                      about.sentences.map((each) => make("option", {}, each)));
  const note = make("p", {class: "note", role: "status"});
  const chips = make("div", {class: "chips", role: "group", "aria-label": "tokens: choose one to follow"});
  const path = make("div", {class: "path"});
  const panel = make("section", {class: "panel", "aria-live": "polite", "aria-label": "the part that is open"});
  const bars = make("div", {class: "bars"});
  const write = make("button", {type: "button", class: "main", click: next}, "Write the next word");
  const sliders = about.sliders.map(([name, label, low, high, step, off]) => {
    const output = make("output", {}, "");
    const slider = make("input", {type: "range", min: low, max: high, step, value: off, "aria-label": label, input: set});
    function set() {
      const value = Number(slider.value), isOff = value === off && name !== "temperature";
      state.how[name] = isOff ? null : value;
      output.textContent = isOff ? "off" : slider.value;
      slider.setAttribute("aria-valuetext", output.textContent);
      showNext();
    }
    return {set, element: make("label", {class: "slider"}, make("span", {}, label), slider, output)};
  });
  box.classList.add("glass");
  box.setAttribute("data-lm-suppress-shortcuts", "true");  // JupyterLab's keys stay outside
  box.replaceChildren(
    make("div", {class: "text"}, input, choice), note, chips,
    make("div", {class: "columns"},
      make("section", {"aria-label": "the way through the model"}, make("h3", {}, "Through the model"), path),
      make("section", {"aria-label": "the next word"}, make("h3", {}, "The next word"), bars,
           make("div", {class: "sliders"}, sliders.map((each) => each.element)), write)),
    panel);
  begin(state.text);

  function begin(text) {
    input.value = state.text = text;
    state.position = null;
    compute();
    sliders.forEach((each) => each.set());
  }

  /** Run the model on the text and show all of it anew. */
  function compute() {
    const read = encode(state.text, tokens), most = T - 1;
    ids = read.ids.slice(0, most);
    words = ids.map((id) => tokens[id]);
    const unknown = [...new Set(read.unknown)];
    note.textContent = unknown.length
      ? `This model knows ${tokens.length} words; not among them: ${unknown.slice(0, 5).join(", ")}.`
      : read.ids.length > most ? `It reads ${most} tokens; the rest is left out.` : "";
    glass.run(ids, state.removed);
    show();
  }

  function show() {
    chips.replaceChildren(...words.map((word, t) => make("button", {
      type: "button", "aria-pressed": String(t === at()), title: `token ${t}, id ${ids[t]}`,
      click: () => { state.position = t === ids.length - 1 ? null : t; show(); chips.children[t].focus(); },
    }, word)));
    path.replaceChildren(
      stage("embedding", "Embedding + position", bit(width(glass.layers[0].before, at(), config.d_model))),
      ...glass.layers.flatMap((layer, l) => [
        make("div", {class: `layer${state.removed.has(String(l)) ? " gone" : ""}`},
          make("div", {class: "name"}, `Block ${l + 1}`),
          make("div", {class: "heads"}, Array.from({length: H}, (_, h) => headButton(l, h))),
          stage(`${l}.feed_forward`, "Feed-forward", units(l).slice(0, 1).map(([unit, a]) => `unit ${unit}: ${number(a, 1)}`).join()),
          lens(l)),
      ]));
    showNext();
    showPanel();
  }

  /** A part of the path that opens on a click. */
  function stage(part, title, content) {
    return make("button", {type: "button", class: `stage${state.removed.has(part) ? " gone" : ""}`, "data-part": part,
                           "aria-expanded": String(state.open === part), click: () => open(part)},
                make("b", {}, title), make("span", {}, content));
  }

  /** The first numbers of a row, in words. */
  function bit(row) {
    return `${[...row.slice(0, 3)].map((x) => number(x)).join("  ")} … (${row.length})`;
  }

  function headButton(l, h) {
    const part = `${l}.head.${h}`, size = 80, canvas = make("canvas", {width: size, height: size, "aria-hidden": "true"});
    paint(canvas, l, h, size);
    const seen = strongest(l, h);
    return make("button", {type: "button", class: `head${state.removed.has(part) ? " gone" : ""}`, "data-part": part,
                           "aria-expanded": String(state.open === part), click: () => open(part),
                           "aria-label": `block ${l + 1}, head ${l}.${h}: looks most at “${words[seen]}”`}, canvas);
  }

  function weight(l, h, t, s) { return glass.layers[l].weights[(h * T + t) * T + s]; }

  function strongest(l, h) {
    let best = 0;
    for (let s = 0; s <= at(); s++) if (weight(l, h, at(), s) > weight(l, h, at(), best)) best = s;
    return best;
  }

  /** A head's weights as a small map: a row for each token, dark where it looks. */
  function paint(canvas, l, h, size) {
    const context = canvas.getContext("2d"), n = ids.length, side = size / n;
    context.fillStyle = "#fff";
    context.fillRect(0, 0, size, size);
    for (let t = 0; t < n; t++) for (let s = 0; s <= t; s++) {
      context.fillStyle = `rgba(0, 90, 150, ${weight(l, h, t, s)})`;
      context.fillRect(s * side, t * side, side, side);
    }
    context.strokeStyle = "#b34700";
    context.strokeRect(0.5, at() * side + 0.5, size - 1, Math.max(1, side - 1));
  }

  /** The units of a layer that fire most for the chosen token: [unit, activation]. */
  function units(l) {
    const row = width(glass.layers[l].hidden, at(), config.d_ff);
    return [...row.entries()].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  }

  /** What the model would say if it ended after this layer. */
  function lens(l) {
    const [[id, p]] = likely(nextTokenDistribution(glass.lens(l, at())));
    return stage(`${l}.lens`, "would say", `${tokens[id]} ${percent(p)}`);
  }

  function likely(p) {
    return [...p.entries()].sort((a, b) => b[1] - a[1]).slice(0, SHOWN);
  }

  function showNext() {
    if (!ids.length) return;
    const p = nextTokenDistribution(glass.logitsAt(at()), state.how);
    bars.replaceChildren(...row(likely(p).map(([id, share]) => [tokens[id], share])));
    write.disabled = at() !== ids.length - 1 || ids.length >= T - 1;
    write.title = write.disabled ? "choose the last token" : "";
  }

  /** Bars with a word before and a share behind each. */
  function row(entries) {
    return entries.map(([word, share]) => make("div", {class: "bar"}, make("span", {}, word),
      make("i", {style: `--share: ${share}`}), make("span", {}, percent(share))));
  }

  /** Draw a word from the probabilities that are shown, and set it behind the text. */
  function next() {
    const id = draw(nextTokenDistribution(glass.logitsAt(ids.length - 1), state.how), state.random());
    if (tokens[id] === "<eos>") { note.textContent = "The model ends its story here."; return; }
    begin(`${state.text.trim()} ${tokens[id]}`);
    write.focus();
  }

  // --- the part that is open ----------------------------------------------------------------------------------------
  function open(part) {
    state.open = state.open === part ? null : part;
    for (const button of path.querySelectorAll("[data-part]")) {
      button.setAttribute("aria-expanded", String(button.dataset.part === state.open));
    }
    showPanel();
  }

  function remover(part, what) {
    const gone = state.removed.has(part);
    return make("button", {type: "button", "aria-pressed": String(gone), click: () => {
      gone ? state.removed.delete(part) : state.removed.add(part);
      glass.run(ids, state.removed);
      show();
      panel.querySelector("button")?.focus();
    }}, gone ? `Put ${what} back` : `Remove ${what}`);
  }

  function showPanel() {
    if (!state.open) {
      panel.replaceChildren(make("p", {}, "Choose a part above: a head, a feed-forward network, the embedding. It opens here with its numbers."));
      return;
    }
    const [l, kind, index] = state.open.split(".");
    const key = state.open === "embedding" ? "embedding" : kind, told = about.parts[key];
    const body = {embedding: openEmbedding, head: openHead, feed_forward: openUnits, lens: openLens}[key];
    const title = key === "embedding" ? told.title : `Block ${+l + 1}, ${told.title}${index ? ` ${l}.${index}` : ""}`;
    panel.replaceChildren(
      make("h3", {}, title), make("p", {}, told.text), make("code", {class: "formula"}, told.formula),
      ...body(+l, +index),
      make("p", {class: "where"}, `Chapter ${told.chapter}. Computed by `, make("code", {}, told.code), ` (${told.line})`));
  }

  function openEmbedding() {
    const d = config.d_model;
    const line = (name, numbers) => make("tr", {}, make("th", {scope: "row"}, name),
      ...[...numbers.slice(0, 6)].map((x) => make("td", {}, number(x))), make("td", {}, "…"));
    const token = width(glass.embedded, at(), d), sum = width(glass.layers[0].before, at(), d);
    return [make("table", {}, line(`“${words[at()]}”, id ${ids[at()]}`, token),
                 line(`position ${at()}`, sum.map((x, i) => x - token[i])), line("together", sum)),
            shape(`(T, d_model) = (${ids.length}, ${d})`)];
  }

  function shape(text) { return make("p", {class: "shape"}, `Shape: ${text}`); }

  /** One row of attention, which the play button builds up: query · keys, softmax, mix. */
  function openHead(l, h) {
    const t = at(), layer = glass.layers[l], D = glass.d_head;
    const rows = words.slice(0, t + 1).map((word, s) => {
      const value = layer.value.subarray(s * glass.d_kv, s * glass.d_kv + 3);
      return make("tr", {}, make("th", {scope: "row"}, word),
        make("td", {class: "step1"}, number(layer.scores[(h * T + t) * T + s])),
        make("td", {class: "step2"}, make("i", {style: `--share: ${weight(l, h, t, s)}`}), percent(weight(l, h, t, s))),
        make("td", {class: "step3"}, `${percent(weight(l, h, t, s))} × (${[...value].map((x) => number(x, 1)).join(", ")}, …)`));
    });
    const mix = width(layer.heads, t, config.d_model).subarray(h * D, h * D + 3);
    const table = make("table", {class: "row-of-attention"},
      make("tr", {}, make("th", {}, `“${words[t]}” asks`), make("th", {class: "step1"}, "query · key / √D"),
           make("th", {class: "step2"}, "softmax"), make("th", {class: "step3"}, "of its value")),
      ...rows, make("tr", {class: "step3"}, make("th", {scope: "row"}, "the sum"), make("td"), make("td"),
                    make("td", {}, `(${[...mix].map((x) => number(x, 1)).join(", ")}, …)`)));
    const play = make("button", {type: "button", hidden: matchMedia("(prefers-reduced-motion: reduce)").matches, click: () => {
      for (let step = 0; step <= 3; step++) setTimeout(() => table.setAttribute("data-step", step), STEP * step);
    }}, "▶ Play this row");
    return [make("div", {class: "buttons"}, play, remover(`${l}.head.${h}`, "this head"), remover(`${l}.attention`, "all heads of the block"),
                 remover(`${l}`, "the whole block")),
            make("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "one row of attention"}, table),
            shape(`weights (H, T, T) = (${H}, ${ids.length}, ${ids.length}); query, key, value (T, D) = (${ids.length}, ${D})`)];
  }

  function openUnits(l) {
    const most = units(l).slice(0, SHOWN), largest = Math.abs(most[0][1]) || 1;
    return [make("div", {class: "buttons"}, remover(`${l}.feed_forward`, "this network")),
            ...most.map(([unit, a]) => make("div", {class: "bar wide"}, make("span", {}, `unit ${unit}`),
              make("i", {style: `--share: ${Math.abs(a) / largest}`}), make("span", {}, number(a)),
              remover(`${l}.unit.${unit}`, `unit ${unit}`))),
            ...[...state.removed].filter((part) => part.startsWith(`${l}.unit.`)).map((part) => remover(part, `unit ${part.split(".")[2]}`)),
            shape(`hidden (T, d_ff) = (${ids.length}, ${config.d_ff})`)];
  }

  function openLens(l) {
    const p = nextTokenDistribution(glass.lens(l, at()));
    return [...row(likely(p).map(([id, share]) => [tokens[id], share])), shape(`logits (T, V) = (${ids.length}, ${tokens.length})`)];
  }
}

/** What anywidget calls. */
function render({model, el}) {
  const packed = model.get("packed");
  mount(el, new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength), model.get("about"));
}
export default {render};
