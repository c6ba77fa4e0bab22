// The glass model as a page: a sentence, its way through the model, the next word.
import {Glass, draw, largest, nextTokenDistribution, randomNumbers, readModel} from "./engine.js";
import {drawFlow} from "./flow.js";
import {stillOf} from "./still.js";
import {tokenizerOf} from "./text.js";

const MUCH = 1e5;  // numbers: a logit lens of more, in all blocks together, is read a block at a time
const SHOWN = 8, STEP = 900;  // words in a row of bars; ms between two steps of the motion, and until what moved no more is kept
const few = (numbers) => `(${number(numbers[0], 1)}, ${number(numbers[1], 1)}, …)`;
const number = (x, digits = 2) => (Math.abs(x) < 0.5 * 10 ** -digits ? 0 : x).toFixed(digits).replace("-", "−");
const percent = (p) => (p === 0 ? "0" : p === 1 ? "100" : p > 0.999 ? ">99.9" : p < 0.001 ? "<0.1" : (100 * p).toFixed(p < 0.1 || p > 0.99 ? 1 : 0)) + "%";
const surprises = (logits) => {  // of each token, in nats
  const [[, most]] = largest(logits, 1), sum = Math.log(logits.reduce((sum, x) => sum + Math.exp(x - most), 0)) + most;
  return Float64Array.from(logits, (x) => sum - x);
};
const named = (words) => new Intl.ListFormat("en").format(
  [...words.slice(0, 5).map((word) => `“${word}”`), ...(words.length > 5 ? [`${words.length - 5} more`] : [])]);
const escaped = (word) => word.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);

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

/**
 * Draw the glass model into a box. bytes: what Python's `pack` gives. about: texts for each part, see __init__.py; it may
 * also hold what `seen` gives, to begin with that. shown: is given what `seen` gives, after each change.
 * own: of a page that has an address, {link: what is seen -> its address, onlyHere: whether it is a file of this computer}.
 */
export function mount(box, bytes, about, shown = () => {}, own = null) {
  const model = readModel(bytes), glass = new Glass(model), tokenizer = tokenizerOf(model.tokenizer), {config} = model, {one} = about;
  const state = {
    text: about.text ?? about.sentences[0], position: about.token ?? null, open: about.open ?? null, view: about.view, effect: "",
    removed: new Set((about.without ?? []).filter((part) => glass.has(part))), random: randomNumbers(0), how: {}, set: {}};
  let words = [], ids = [], leftOut = [], wide = 500, lensed = new Map(), likely = [], setFan, frame, twin = null;  // wide: pixels of the way; lensed: layer -> what it would say
  const at = () => Math.min(state.position ?? ids.length - 1, ids.length - 1);
  const width = (rows, position, size) => rows.subarray(position * size, (position + 1) * size);
  const shape = (text) => make("p", {class: "shape"}, `Shape: ${text}`);
  const weight = (l, h, t, s) => glass.layers[l].weights[(h * T + t) * T + s];
  const H = config.n_heads, T = config.max_seq_len, SIDE = 80, lensIsLong = config.n_layers * config.vocab_size > MUCH;
  const many = config.n_layers > 8 || H > 5;
  let map = new ImageData(1, 1), drawn = document.createElement("canvas").getContext("2d");
  const whole = make("canvas", {role: "img"}).getContext("2d", {alpha: false});  // of the head that is open
  // One map for each head, kept: to make one takes longer than to draw on it.
  const maps = glass.layers.map(() => Array.from({length: H}, () =>
    make("canvas", {width: SIDE, height: SIDE, "aria-hidden": "true"}).getContext("2d", {alpha: false})));

  const input = make("input", {type: "text", "aria-label": "your text", spellcheck: "false", autocomplete: "off",
                               input: () => { state.text = input.value; state.position = null; compute(); }});
  const choice = make("select", {"aria-label": "a sentence to begin with", change: () => { begin(choice.value); choice.value = ""; }},
                      make("option", {value: ""}, "Examples"), about.sentences.map((each) => make("option", {}, each)));
  const note = make("p", {class: "note", role: "status"});
  const gone = make("div", {class: "buttons"}), offers = make("div", {class: "buttons offers", hidden: true});
  const chips = make("div", {class: "chips", role: "toolbar", "aria-label": "tokens: arrow keys move, Enter follows one", keydown: (event) => {
    const all = [...chips.querySelectorAll("button")], on = all.indexOf(event.target);
    const to = {ArrowLeft: on - 1, ArrowRight: on + 1, Home: 0, End: all.length - 1}[event.key];
    if (to === undefined || on < 0) return;
    event.preventDefault();
    all[Math.max(0, Math.min(all.length - 1, to))].focus();
  }});
  const path = make("div", {class: `path${many ? " many" : ""}`, style: `--map: ${many ? 18 : 40}px; --maps: ${H * 26}px`});
  const views = make("div", {class: "views", role: "group", "aria-label": "how the path is drawn"},
    [["maps", "Maps"], ["flow", "Ribbons"]].map(([view, name]) => make("button", {type: "button", "data-view": view, click: () => { state.view = view; show(); }}, name)));
  const panel = make("section", {class: "panel", "aria-live": "polite", "aria-label": "the part that is open"});
  const bars = make("div", {class: "bars"}), compared = make("p", {class: "compared", hidden: true});
  const both = make("p", {class: "both", "aria-hidden": "true", hidden: true}, make("span", {}, "before"), make("span", {}, "now"));
  const filters = make("div", {class: "path"});
  const write = make("button", {type: "button", class: "main", click: next}, `Write the next ${one}`);
  const sliders = about.sliders.map(([name, label, low, high, step, off]) => {
    const output = make("output", {}, "");
    const slider = make("input", {type: "range", min: low, max: high, step, value: off, "aria-label": label,
                                  input: () => { set(); showNext(); tell(); }});
    slider.value = about.how?.[name] ?? off;
    function set() {
      const value = Number(slider.value), isOff = value === off && name !== "temperature";
      state.how[name] = isOff ? null : value;
      if (value === off) delete state.set[name]; else state.set[name] = value;
      output.textContent = isOff ? "off" : slider.value;
      slider.setAttribute("aria-valuetext", output.textContent);
    }
    set();
    return make("label", {class: "slider"}, make("span", {}, label), slider, output);
  });
  box.classList.add("glass");
  box.setAttribute("data-lm-suppress-shortcuts", "true");  // JupyterLab's keys stay outside
  const guide = make("section", {class: "guide", "aria-label": "a guided tour of the page", "aria-live": "polite", hidden: true});
  const around = make("button", {type: "button", click: () => lead(0)}, "Show me around");
  const address = make("input", {type: "url", readonly: true, "aria-label": "the link to what is shown"});
  const sent = make("span", {role: "status"}), link = make("div", {class: "link", hidden: true}, sent, address);
  box.replaceChildren(
    make("div", {class: "text"}, input, choice, around, own ? sharing() : []), own ? link : "", make("div", {class: "told"}, note, gone), offers, guide, chips,
    make("div", {class: "columns"},
      make("section", {"aria-label": "the path through the model"}, make("div", {class: "heading"}, make("h3", {}, "Through the model"), views), path),
      make("section", {"aria-label": `the next ${one}`}, make("div", {class: "heading"}, make("h3", {}, `The next ${one}`), both), bars, filters,
           make("div", {class: "sliders"}, sliders), write)),
    panel);
  input.value = state.text;
  compute();
  if (!ids.length) begin(about.sentences[0]);
  if (state.position >= ids.length - 1) state.position = null;
  new ResizeObserver(([{contentRect: {width}}]) => { if (width && width !== wide) { wide = width; if (state.view === "flow") show(); } }).observe(path);

  function begin(text) {
    Object.assign(state, {text, position: null});
    input.value = text;
    compute();
  }

  /** What a link keeps: the text that the model reads and the one that was typed, the part, the view, the token, … */
  function seen() {
    return {text: state.known, typed: state.text, open: state.open, view: state.view, token: state.position, without: [...state.removed], how: {...state.set}};
  }

  function tell() {
    if (own && address.value !== own.link(seen())) link.hidden = true;  // that link is out of date
    shown(seen());
  }

  /** The buttons of a page with an address: a link to what is shown, and a picture of it. */
  function sharing() {
    const copy = async () => {
      address.value = own.link(seen());
      link.hidden = false;
      address.select();  // a page that may not write to the clipboard leaves the keys to the reader
      const copied = await Promise.resolve().then(() => navigator.clipboard.writeText(address.value)).then(() => true, () => false);
      sent.textContent = `${copied ? "The link to this view is copied." : "Copy the selected link with Ctrl+C (on a Mac ⌘C)."}${own.onlyHere ? " It works only on this computer, because this page is a file." : ""}`;
    };
    const save = async () => {
      const picture = await stillOf([chips, box.querySelector(".columns"), ...(state.open ? [panel] : [])], `“${state.known}”${summary()}`);
      const file = make("a", {href: picture, download: "glass-model.png"});
      file.click();
      setTimeout(() => URL.revokeObjectURL(picture), 60_000);
    };
    return [make("button", {type: "button", click: copy}, "Copy link"), make("button", {type: "button", click: save}, "Save picture")];
  }

  /** What was removed and which sliders were moved, after the text of a picture. */
  function summary() {
    return [...[...state.removed].map((part) => `without ${nameOf(part)}`),
      ...about.sliders.filter(([name]) => name in state.set).map(([name, label]) => `${label} ${state.set[name]}`)].map((each) => ` · ${each}`).join("");
  }

  /** A part in words. */
  function nameOf(part) {
    const [l, kind, index] = part.split(".");
    return `layer ${l}${kind ? `, ${about.parts[kind]?.title ?? kind}` : ""}${index ? ` ${index}` : ""}`;
  }

  /** A step of the way through the page: it opens its part, marks what it speaks of, and says what there is to see and to try. */
  function lead(step) {
    const all = about.tour, {part, view, marks, text} = all[step] ?? {};
    state.removed.clear();  // what a step has removed is there for the next
    state.effect = "";
    glass.run(ids, state.removed);
    box.querySelectorAll(".here").forEach((each) => each.classList.remove("here"));
    guide.hidden = !all[step];
    if (guide.hidden) { show(); around.focus(); return; }
    Object.assign(state, {open: part ?? state.open, view});
    show();
    const marked = {tokens: chips, path, panel, filters: box.querySelector(".sliders"), write}[marks];
    marked.classList.add("here");
    (marked === path ? box.querySelector(".columns") : marked).before(guide);  // so that both can be seen at once
    const button = (name, to) => make("button", {type: "button", disabled: to < 0, click: () => lead(to)}, name);
    const on = button(step + 1 < all.length ? "Next" : "Done", step + 1);
    guide.replaceChildren(make("p", {}, text), make("div", {class: "buttons"}, button("Back", step - 1), on,
      step + 1 < all.length ? button("Close", all.length) : "", make("span", {}, `${step + 1} of ${all.length}`)));
    marked.scrollIntoView({block: "nearest"});
    on.focus();
  }

  /** Read the text, run the model on it, and show all of it anew. */
  function compute() {
    const read = tokenizer.encode(state.text), most = T - 1, unknown = [...new Set(read.unknown)];
    note.textContent = unknown.length
      ? `This model does not know ${named(unknown)}, so ${unknown.length === 1 ? "it is" : "they are"} left out. (To see all ${tokenizer.size} tokens that it knows, press “Maps”, then “${about.parts.embedding.title}”.)`
      : read.ids.length > most ? `It reads ${most} tokens; the rest is left out.`
      : state.text.trim() ? "" : read.ids.length ? `Nothing typed: the bars show which ${one} may begin a text.` : "Nothing typed: everything below still shows the last text.";
    leftOut = tokenizer.leftOut(state.text).filter(([, before]) => before <= most);
    offers.hidden = true;
    clearTimeout(state.offering);  // half a word is unknown, too: nothing is offered while keys are pressed
    if (unknown.length) state.offering = setTimeout(offer, STEP);
    state.known = unknown.length ? tokenizer.decode(read.ids) : state.text;
    if (read.ids.length) follow(read.ids.slice(0, most));
  }

  /** The examples that share most with the text, as buttons: a word that few examples have counts for more. */
  function offer() {
    const wordsOf = (text) => new Set(text.toLowerCase().split(/\s+/)), typed = wordsOf(state.text);
    const all = about.sentences.filter((each) => each !== state.text && !tokenizer.encode(each).unknown.length).map((each) => [each, wordsOf(each)]);
    const near = ([, its]) => [...its].reduce((sum, word) => sum + typed.has(word) / all.filter(([, other]) => other.has(word)).length, 0);
    const best = all.sort((a, b) => near(b) - near(a)).slice(0, 2);
    offers.replaceChildren(make("span", {}, "Examples that it knows:"), ...best.map(([each]) =>
      make("button", {type: "button", click: () => { begin(each); input.focus(); }}, each)));
    offers.hidden = !best.length;
  }

  function follow(given) {
    ids = given;
    state.effect = "";
    words = ids.map(tokenizer.show);
    glass.run(ids, state.removed);
    show();
  }

  function show() {
    chips.querySelectorAll("del").forEach((each) => each.remove());
    while (chips.children.length > words.length) chips.lastChild.remove();
    words.forEach((word, t) => {  // those that are there stay: most words do
      const chip = chips.children[t] ?? chips.appendChild(make("button", {
        type: "button", click: () => { state.position = t === ids.length - 1 ? null : t; show(); },
      }));
      if (chip.textContent !== word) { chip.textContent = word; chip.title = `token ${t}, id ${ids[t]}`; }
      chip.setAttribute("aria-pressed", String(t === at()));
      chip.tabIndex = t === at() ? 0 : -1;  // the Tab key stops once, at the chosen token
    });
    const known = [...chips.children];
    for (const [word, before] of leftOut) chips.insertBefore(make("del", {title: "unknown to this model, so left out"}, word), known[before] ?? null);
    gone.replaceChildren(...[...state.removed].map((part) => remover(part, nameOf(part))));
    lensed.clear();
    for (const button of views.children) button.setAttribute("aria-pressed", String(button.dataset.view === state.view));
    (state.view === "maps" ? showMaps : showFlow)();
    showNext();
    showPanel();
  }

  function showMaps() {
    path.replaceChildren(
      stage("embedding", about.parts.embedding.title, `${few(width(glass.layers[0].before, at(), config.d_model))}: ${config.d_model} numbers`),
      ...(many ? [make("div", {class: "layer name"}, [`${config.n_layers} layers`, `Heads 0 to ${H - 1}`, "Feed-forward", "Would say"].map((name) => make("span", {}, name)))] : []),
      ...glass.layers.map((layer, l) =>
        make("div", {class: `layer${state.removed.has(String(l)) ? " gone" : ""}`},
          make("div", {class: "name"}, `Layer ${l}`),
          make("div", {class: "heads"}, Array.from({length: H}, (_, h) => headButton(l, h))),
          stage(`${l}.feed_forward`, "Feed-forward", units(l, 1).map(([unit, a]) => `unit ${unit}: ${number(a, 1)}`).join()),
          lens(l))));
    clearTimeout(state.reading);
    if (lensIsLong) state.reading = setTimeout(readLens);
  }

  /** The ways of everything that reaches the chosen token, and a line that says how to read them. */
  function showFlow() {
    const HOW = `${state.position === null ? "" : `It shows “${words[at()]}” now; choose the last token to go back. `}Point to a ribbon to read it; click to open its head.${config.n_layers > 9 ? " Scroll to the left for the first layers." : ""}`;
    const told = make("p", {class: "shape", role: "status"}, HOW);
    const [l, kind, head] = state.open?.split(".") ?? [], opened = kind === "head" ? [+l, +head] : null;
    const beside = wide >= 400 && bars.getBoundingClientRect().left > path.getBoundingClientRect().right;  // on a phone they stand below
    const [drawing, fan, start] = drawFlow(glass, {
      words, at: at(), beside, percent, escaped, opened, colours: about.colours, width: Math.max(300, wide), tell: (text) => { told.textContent = text ?? HOW; },
      open: (part, position) => {  // of a ribbon: its head, with the token that it leads to
        state.position = position === ids.length - 1 ? null : position;
        if (part) state.open = part;
        show();
        if (part) path.querySelector(".ribbons").focus({preventScroll: true});
      },
    });
    setFan = () => {  // level with the bars, wherever these are and however far the ribbons are scrolled
      const {top} = drawing.getBoundingClientRect();
      fan([...bars.children].map((bar) => bar.getBoundingClientRect()).map((bar, i) => [...likely[i].slice(0, 2), (bar.top + bar.bottom) / 2 - top]));
    };
    const play = make("button", {type: "button", hidden: matchMedia("(prefers-reduced-motion: reduce)").matches, click: () => {
      drawing.classList.remove("playing"); requestAnimationFrame(() => drawing.classList.add("playing")); along(state.playing = performance.now()); }}, "▶ Play");
    const along = (began) => requestAnimationFrame((now) => {  // of more layers than fit, those that play are in view
      const share = (now - began) / 6000;
      region.scrollLeft = share * region.scrollWidth - region.clientWidth / 2;
      if (share < 1 && region.isConnected && state.playing === began) along(began);
    });
    const heads = about.colours.flatMap((colour, h) => [make("b", {style: `color: ${colour}`}, " ■"), ` ${h}`]);
    const three = ["query", "key", "value"].map((name) => make("b", {class: name}, ` ■ ${name}`));
    const close = make("button", {type: "button", hidden: !opened, click: () => open(state.open)}, "All ribbons");
    const says = opened ? [`Layer ${opened[0]}, head ${opened[1]}:`, three, " · ● the weight where query and key meet · its numbers are below"]
      : ["Heads:", heads, " · width: the norm of the vector that a head carries · ● feed-forward"];
    const before = many && path.querySelector(".ribbons"), right = before ? before.scrollWidth - before.scrollLeft : 0;  // at first the chosen token's end
    const region = make("div", {class: "scroll ribbons", tabindex: "0", role: "region", "aria-label": "the flow"}, drawing);
    let on = -1;  // the ribbon that the keys have come to, counted from the widest way
    region.onfocus = () => { told.textContent = "↓ and ↑ go from ribbon to ribbon, Enter opens a head."; };
    region.onkeydown = (event) => {
      const step = {ArrowDown: 1, ArrowUp: -1}[event.key], all = [...drawing.querySelectorAll("[data-ribbon]")].reverse();
      if (event.key === "Enter") all[on]?.dispatchEvent(new MouseEvent("click", {bubbles: true}));
      if (!step || !all.length) return;
      event.preventDefault();
      on = Math.max(0, Math.min(all.length - 1, on + step));
      all.forEach((each, i) => each.classList.toggle("on", i === on));
      all[on].dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
    };
    region.onscroll = () => {
      drawing.querySelector(".labels").setAttribute("transform", `translate(${region.scrollLeft} 0)`);
      if (state.top !== region.scrollTop) { state.top = region.scrollTop; setFan(); }
    };
    path.replaceChildren(
      region, told, make("div", {class: "buttons"}, play, close, make("p", {class: "legend"}, ...says.flat())));
    requestAnimationFrame(() => {  // of a long text the chosen token is in view; otherwise nothing moves
      region.scrollTop = state.top ?? 0;
      const below = drawing.querySelector(".at").getBoundingClientRect().top - region.getBoundingClientRect().top;
      if (below < 0 || below > region.clientHeight - 24) region.scrollTop += below - region.clientHeight / 2;
    });
    fanSoon();
    if (many) region.scrollLeft = Math.min(region.scrollWidth - right, state.apart === state.open ? Infinity : start);  // what opens is in view
    state.apart = state.open;
  }

  /** Set the ribbons to the next words in the next frame, once: to read where the bars are costs a layout. */
  function fanSoon() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => setFan());
  }

  /** A part of the path that opens on a click. */
  function stage(part, title, content) {
    return make("button", {type: "button", class: `stage${state.removed.has(part) ? " gone" : ""}`, "data-part": part,
                           "aria-expanded": String(state.open === part), click: () => open(part)},
                make("b", {}, title), make("span", {}, content));
  }

  function headButton(l, h) {
    const part = `${l}.head.${h}`;
    paint(maps[l][h], l, h);
    const [[seen]] = largest(glass.layers[l].weights.subarray((h * T + at()) * T, (h * T + at()) * T + at() + 1), 1);
    return make("button", {type: "button", class: `head${state.removed.has(part) ? " gone" : ""}`, "data-part": part,
                           "aria-expanded": String(state.open === part), click: () => open(part),
                           "aria-label": `layer ${l}, head ${h}: looks most at “${words[seen]}”`}, maps[l][h].canvas);
  }

  /** A head's weights on the hidden canvas, a pixel for each: enlarged at once, they take a tenth of as many rectangles. */
  function pixels(l, h, hidden) {
    const n = ids.length;
    if (map.width !== n) { map = new ImageData(n, n); drawn.canvas.width = drawn.canvas.height = n; }
    map.data.fill(255);
    if (hidden < 255) for (let t = 0; t < n; t++) for (let s = t + 1; s < n; s++) map.data.fill(hidden, 4 * (t * n + s), 4 * (t * n + s) + 3);
    for (let t = 0; t < n; t++) for (let s = 0; s <= t; s++) {
      const pixel = 4 * (t * n + s), w = weight(l, h, t, s);  // red, green, blue, opacity: from white to the deepest blue
      map.data[pixel] = 255 - 255 * w;
      map.data[pixel + 1] = 255 - 165 * w;
      map.data[pixel + 2] = 255 - 105 * w;
    }
    drawn.putImageData(map, 0, 0);
  }

  /** A head's weights as a small map: a row for each token, dark where it looks. */
  function paint(context, l, h) {
    const side = SIDE / ids.length;
    pixels(l, h, 255);
    context.imageSmoothingEnabled = false;
    context.drawImage(drawn.canvas, 0, 0, SIDE, SIDE);
    context.strokeStyle = "#b34700";
    context.strokeRect(0.5, at() * side + 0.5, SIDE - 1, Math.max(1, side - 1));
  }

  /** The units of a layer that fire most for the chosen token: [unit, activation]. */
  function units(l, n = SHOWN) {
    return largest(width(glass.layers[l].hidden, at(), config.d_ff), n, Math.abs);
  }

  /** What the model would say if it ended after this layer. */
  function lens(l) { return stage(`${l}.lens`, "Would say", lensIsLong ? lensed.get(l) ?? "…" : wouldSay(l)); }

  function wouldSay(l) {
    const [[id, p]] = largest(nextTokenDistribution(glass.lens(l, at())), 1);
    return `${tokenizer.show(id)} ${percent(p)}`;
  }

  /** Of a large model: the next block's, and the others after it, so that a key that is pressed need not wait for all. */
  function readLens() {
    const l = lensed.size;
    if (l === config.n_layers || state.view !== "maps") return;
    lensed.set(l, wouldSay(l));
    path.querySelector(`[data-part="${l}.lens"] span`).textContent = lensed.get(l);
    state.reading = setTimeout(readLens);
  }

  function showNext() {
    if (!ids.length) return;
    const filtered = stages(), now = filtered.at(-1)[1], logits = wholeLogits(), before = logits && stages(logits).at(-1)[1];
    likely = largest(before ? now.map((p, id) => Math.max(p, before[id])) : now, SHOWN).filter(([, share]) => share > 0)
      .map(([id]) => [tokenizer.show(id), now[id], before?.[id]]);
    bars.replaceChildren(...row(likely));
    both.hidden = compared.hidden = !before;
    if (before) compare(logits, glass.logitsAt(at()));
    if (state.view === "flow") fanSoon();
    const left = filtered.map(([name, each]) => {
      const n = each.reduce((n, x) => n + (x > 0), 0);
      return `${name || (n === each.length ? "all" : "")} ${n.toLocaleString("en")}`;
    });
    const was = filters.contains(document.activeElement);
    filters.replaceChildren(stage("next", `${one === "word" ? "Words" : "Tokens"} that remain`, left.join(" → ")));
    if (was) filters.firstChild.focus();
    if (state.open === "next") showPanel();
    write.disabled = at() !== ids.length - 1 || ids.length >= T - 1;
    write.textContent = ids.length >= T - 1 ? "No more tokens fit" : write.disabled ? "Choose the last token to continue" : `Write the next ${one}`;
  }

  /** The logits of the model with all its parts, or null while none is removed. It runs in rooms of its own. */
  function wholeLogits() {
    if (!state.removed.size) return null;
    twin ??= new Glass(model);
    twin.run(ids);
    return twin.logitsAt(at());
  }

  /** What all removals together have changed, without filters: where it moves nothing that is about to be pressed. */
  function compare(before, now) {
    const [[id]] = largest(before, 1), [was, is] = [before, now].map(surprises);
    const apart = was.reduce((sum, x, i) => sum + Math.exp(-x) * (is[i] - x), 0);
    compared.textContent = `Compared with the whole model, the surprise of “${tokenizer.show(id)}” goes from ${number(was[id], 3)} to ${number(is[id], 3)} nats. `
      + `All ${one}s together: ${apart < 0.0005 ? "less than 0.001" : number(apart, 3)} nats (KL divergence).`;
    (state.view === "maps" ? path : write).after(compared);
  }

  /** The probabilities as they are and after each filter that is on: [its name, (V,)], the last ones are drawn from. */
  function stages(logits = glass.logitsAt(at())) {
    const on = {temperature: state.how.temperature};
    const found = [["", nextTokenDistribution(logits, on)]];
    for (const [name, label] of [["topK", "top-k"], ["topP", "top-p"], ["minP", "min-p"]]) {
      if (state.how[name] === null) continue;
      on[name] = state.how[name];
      found.push([label, nextTokenDistribution(logits, on)]);
    }
    return found;
  }

  /** Bars with a word before and a share behind each; of a model that has lost parts, with the share from before, too. */
  function row(entries) {
    return entries.map(([word, share, was]) => make("div", {class: `bar${was === undefined ? "" : " two"}`}, make("span", {}, word),
      make("i", {style: `--share: ${share}; --was: ${was}`}), was === undefined ? "" : make("span", {class: "was"}, percent(was)), make("span", {}, percent(share))));
  }

  /** Draw a word from the probabilities that are shown, and set it behind the text. */
  function next() {
    const id = draw(nextTokenDistribution(glass.logitsAt(ids.length - 1), state.how), state.random());
    if (tokenizer.ends(id)) { note.textContent = "The model ends its text here."; return; }
    state.position = null;
    const written = [...ids, id];
    leftOut = [];
    offers.hidden = true;
    clearTimeout(state.offering);
    input.value = state.text = state.known = tokenizer.decode(written);
    follow(written);
    write.focus();
  }

  function open(part) {
    state.open = state.open === part ? null : part;
    state.effect = "";
    box.querySelectorAll("[data-part]").forEach((each) => each.setAttribute("aria-expanded", String(each.dataset.part === state.open)));
    if (state.view === "flow") {  // a head that opens is taken apart there
      const within = path.contains(document.activeElement);
      showFlow();
      showNext();
      if (within) path.querySelector(".ribbons").focus();
    }
    showPanel();
    if (state.open && box.clientWidth < 620) panel.scrollIntoView();  // on a phone it opens far below what was pressed
  }

  function remover(part, what) {
    const gone = state.removed.has(part);
    return make("button", {type: "button", "aria-pressed": String(gone), click: () => {
      const share = (id) => nextTokenDistribution(glass.logitsAt(at()))[id], [[id]] = largest(glass.logitsAt(at()), 1), before = share(id);
      const nats = (share) => number(-Math.log(share), 3);
      gone ? state.removed.delete(part) : state.removed.add(part);
      glass.run(ids, state.removed);
      state.effect = `${gone ? "With" : "Without"} ${what}: “${tokenizer.show(id)}” goes from ${percent(before)} to ${percent(share(id))} as the next ${one}, and its surprise from ${nats(before)} to ${nats(share(id))} nats.`;
      show();
      panel.querySelector("button")?.focus();
    }}, gone ? `Put ${what} back` : `Remove ${what}`);
  }

  function showPanel() {
    tell();
    if (!state.open) {
      panel.replaceChildren(make("p", {}, "Choose a part above: a ribbon, a head, a feed-forward network. It opens here with its numbers."));
      return;
    }
    const [l, kind, index] = state.open.split(".");
    const key = kind ?? state.open, told = about.parts[key];
    const body = {embedding: openEmbedding, head: openHead, feed_forward: openUnits, lens: openLens, next: openNext}[key];
    const title = !kind ? told.title : `Layer ${l}, ${told.title}${index ? ` ${index}` : ""}`;
    panel.replaceChildren(
      make("h3", {}, title), make("p", {}, told.text), make("code", {class: "formula"}, told.formula),
      make("p", {class: "effect", role: "status"}, state.effect), ...body(+l, +index),
      make("p", {class: "where"}, `Chapter ${told.chapter}. Computed by `, make("code", {}, told.code), ` (${told.line})`));
  }

  function openEmbedding() {
    const d = config.d_model;
    const line = (name, numbers) => make("tr", {}, make("th", {scope: "row"}, name),
      ...Array.from(numbers.slice(0, 6), (x) => make("td", {}, number(x))), make("td", {}, "…"));
    const token = width(glass.embedded, at(), d), sum = width(glass.layers[0].before, at(), d);
    const added = ["learned", "sinusoidal"].includes(config.positions);
    const all = Array.from({length: Math.min(tokenizer.size, 1000)}, (_, id) => tokenizer.show(id));
    return [make("table", {}, line(`“${words[at()]}”, id ${ids[at()]}`, token),
                 ...(added ? [line(`position ${at()}`, sum.map((x, i) => x - token[i])), line("together", sum)] : [])),
            make("details", {}, make("summary", {}, `The tokens it knows: ${config.vocab_size}${all.length < tokenizer.size ? `, the first ${all.length} of them` : ""}`), all.join("  ")),
            shape(`(T, d_model) = (${ids.length}, ${d})`)];
  }

  /** All rows of a head with the words at both sides, and what is hidden in grey. A click on a row follows its token. */
  function wholeMap(l, h) {
    const n = ids.length, edge = 62, there = wide < 400 ? wide - edge - 40 : 250;  // a phone has less
    const cell = Math.max(there < 250 ? 8 : 10, Math.min(16, Math.floor(there / n))), side = edge + n * cell + 2;
    const found = make("p", {class: "shape", style: `width: ${side}px`}, "Point to read a weight; click to follow a row.");
    const cellOf = (event) => [event.offsetY, event.offsetX].map((at) => Math.floor((at - edge) / cell));
    const {canvas} = whole;
    if (canvas.width !== 2 * side) canvas.width = canvas.height = 2 * side;  // two pixels for each of the page's: sharp letters
    canvas.style.width = canvas.style.height = `${side}px`;
    canvas.setAttribute("aria-label",
      `the weights of head ${h} in layer ${l}, ${n} query tokens by ${n} key tokens; the table shows the chosen row`);
    canvas.onmousemove = (event) => {
      const [t, s] = cellOf(event);
      if (words[t] && words[s]) found.textContent = `“${words[t]}” looks at “${words[s]}”: ${s > t ? "hidden by the mask" : percent(weight(l, h, t, s))}`;
    };
    canvas.onclick = (event) => { const [t] = cellOf(event); if (words[t]) { state.position = t === n - 1 ? null : t; show(); } };
    cancelAnimationFrame(state.drawing);  // the largest of the page's pictures is drawn once for each frame, not for each move
    state.drawing = requestAnimationFrame(() => drawWhole(l, h, n, cell, edge));
    return make("div", {class: "map scroll", tabindex: "0", role: "region", "aria-label": "the map of this head"}, canvas, found);
  }

  function drawWhole(l, h, n, cell, edge) {
    const pen = whole;
    pen.setTransform(2, 0, 0, 2, 0, 0);
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, pen.canvas.width, pen.canvas.height);
    pixels(l, h, 225);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(drawn.canvas, edge, edge, n * cell, n * cell);
    pen.font = `${Math.min(11, cell - 1)}px system-ui, sans-serif`;
    Object.assign(pen, {textAlign: "right", textBaseline: "middle"});
    for (const down of [false, true]) {  // the words of the rows, then those of the columns, from top to bottom
      if (down) pen.transform(0, 1, -1, 0, 0, 0);
      words.forEach((word, t) => {
        pen.fillStyle = t === at() ? "#b34700" : "#222";
        pen.fillText(word.slice(0, 10), edge - 4, (down ? -1 : 1) * (edge + (t + 0.5) * cell));
      });
    }
    pen.setTransform(2, 0, 0, 2, 0, 0);
    pen.strokeStyle = "#b34700";
    pen.strokeRect(edge, edge + at() * cell, n * cell, cell);
  }

  /** One row of attention, which the play button builds up: query · keys, softmax, mix. */
  function openHead(l, h) {
    const t = at(), layer = glass.layers[l], D = glass.d_head;
    const kv = Math.floor((h * config.n_kv_heads) / H) * D;  // whose keys and values this head reads
    // As text that the browser reads: made one by one, elements for 48 tokens take as long as the model.
    const line = (word, key, score, share, value, step = "") => `<tr class="${step}"><th scope="row">${escaped(word)}</th><td>${key}</td>
      <td class="step1">${score}</td><td class="step2">${share}</td><td class="step3">${value}</td></tr>`;
    const rows = words.slice(0, t + 1).map((word, s) => {
      const [key, value] = [layer.key, layer.value].map((all) => few(all.subarray(s * glass.d_kv + kv))), share = weight(l, h, t, s);
      return line(word, key, number(layer.scores[(h * T + t) * T + s]), `<i style="--share: ${share}"></i>${escaped(percent(share))}`, value);
    });
    const later = words.length - t - 1;
    if (later) rows.push(line(`${later} later ${one}${later === 1 ? "" : "s"}`, "hidden by the mask", "−∞", "0%", ""));
    const query = width(layer.query, t, config.d_model).subarray(h * D), mix = width(layer.heads, t, config.d_model).subarray(h * D);
    const table = make("table", {class: "row-of-attention"});
    table.innerHTML = `<tr><th>token<th>its key<th class="step1">q · k / √D${config.alibi_slopes ? " − slope × distance" : ""}
      <th class="step2">softmax<th class="step3">× value</tr>${rows.join("")}${line("the sum", "", "", "", few(mix), "step3")}`;
    const play = make("button", {type: "button", hidden: matchMedia("(prefers-reduced-motion: reduce)").matches, click: () => {
      for (let step = 0; step <= 3; step++) setTimeout(() => table.setAttribute("data-step", step), STEP * step);
    }}, "▶ Play this row");
    return [make("div", {class: "buttons"}, play, remover(`${l}.head.${h}`, "this head"), remover(`${l}.attention`, "all heads of the layer"),
                 remover(`${l}`, "the whole layer")),
            make("div", {class: "opened"}, wholeMap(l, h), make("div", {},
              make("p", {}, `“${words[t]}” asks with its query ${few(query)}:`),
              make("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "one row of attention"}, table))),
            shape(`weights (H, T, T) = (${H}, ${ids.length}, ${ids.length}); query, key, value (T, D) = (${ids.length}, ${D})`)];
  }

  function openUnits(l) {
    const most = units(l), scale = Math.abs(most[0][1]) || 1;
    return [make("div", {class: "buttons"}, remover(`${l}.feed_forward`, "this network")),
            ...most.map(([unit, a]) => make("div", {class: "bar wide"}, make("span", {}, `unit ${unit}`),
              make("i", {style: `--share: ${Math.abs(a) / scale}`}), make("span", {}, number(a)),
              remover(`${l}.unit.${unit}`, `unit ${unit}`))),
            shape(`hidden (T, d_ff) = (${ids.length}, ${config.d_ff})`)];
  }

  function openLens(l) {
    const p = nextTokenDistribution(glass.lens(l, at())), layer = glass.layers[l];
    const line = (name, rows) => {
      const numbers = width(rows, at(), config.d_model);
      return make("tr", {}, make("th", {scope: "row"}, name), make("td", {}, number(Math.hypot(...numbers), 1)),
                  ...[...numbers.subarray(0, 4)].map((x) => make("td", {}, number(x))), make("td", {}, "…"));
    };
    return [make("table", {}, make("tr", {}, make("th", {}, `“${words[at()]}”`), make("th", {}, "norm"), make("th", {colspan: 5}, "numbers")),
                 line("residual stream before", layer.before), line("+ attention", layer.attention),
                 line("+ feed-forward", layer.feed_forward), line(config.norm_position === "pre" ? "= after" : "= after, normalized", layer.after)),
            make("p", {}, "Read as if this were the last layer:"),
            ...row(largest(p, SHOWN).map(([id, share]) => [tokenizer.show(id), share])), shape(`logits (T, V) = (${ids.length}, ${config.vocab_size})`)];
  }

  /** The most probable words with their logits, and what each filter leaves of them. */
  function openNext() {
    const found = stages(), logits = glass.logitsAt(at()), plain = nextTokenDistribution(logits);
    const columns = [["softmax", plain], ...found.map(([name, p]) => [name || `÷ temperature ${state.how.temperature}`, p])];
    return [make("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "the filters"}, make("table", {},
      make("tr", {}, make("th", {}, one), make("th", {}, "logit"), ...columns.map(([name]) => make("th", {}, name))),
      ...largest(plain, SHOWN).map(([id]) => make("tr", {}, make("th", {scope: "row"}, tokenizer.show(id)), make("td", {}, number(logits[id])),
        ...columns.map(([, p]) => make("td", {}, p[id] > 0 ? percent(p[id]) : "–")))),
      make("tr", {}, make("th", {scope: "row"}, `${one}s left`), make("td"),
        ...columns.map(([, p]) => make("td", {}, String(p.reduce((n, x) => n + (x > 0), 0))))))),
      shape(`logits (T, V) = (${ids.length}, ${config.vocab_size})`)];
  }
}

export default {  // what anywidget calls
  render({model, el}) {
    const {buffer, byteOffset, byteLength} = model.get("packed");
    let resting;  // the kernel draws what the notebook keeps, once nothing has moved for a moment
    const keep = ({text, open, view}) => { model.set("seen", {text, open, view}); model.save_changes(); };
    const about = {...model.get("about"), ...model.get("seen")};  // a notebook that is opened again shows the text that it left
    mount(el, new Uint8Array(buffer, byteOffset, byteLength), about, (seen) => {
      clearTimeout(resting);
      resting = setTimeout(keep, STEP, seen);
    });
  },
};
