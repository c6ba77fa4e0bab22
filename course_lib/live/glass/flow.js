// The flow: every way by which something reaches the chosen token, drawn as ribbons from layer to layer.

const LABELS = 84, FAN = 66, WIDEST = 12;  // pixels: for the words, for the ribbons to the next word, of a ribbon
const MOST = 400;  // ribbons: what is fainter than so many others is not seen beside them
const THICK = 7, PAIRS = 12;  // pixels of the widest query or key; so many tokens of an open head are drawn apart
const APART = 90;  // pixels more for the layer of an open head, where there are many

/**
 * What leads to position `at`, from the last layer to the first: {ribbons, nodes}.
 *
 * ribbons: {l, h, s, t, length, importance}, a vector of this length that head h of layer l carries from s to t.
 * nodes: for each column, 0 before the first layer, position -> importance. The chosen token's is 1. That of a source is
 * its target's, times its ribbon's share of the target's widest; what is below `faintest` is left out. A token hands its
 * own importance on to itself, for that is what the residual stream does.
 */
export function waysTo(glass, at, faintest) {
  const L = glass.layers.length, ribbons = [], nodes = Array.from({length: L + 1}, () => new Map());
  nodes[L].set(at, 1);
  for (let l = L - 1; l >= 0; l--) for (const [t, importance] of nodes[l + 1]) {
    const lengths = glass.written(l, t), widest = Math.max(...lengths.map((each) => Math.max(...each)), 1e-9);
    const reach = (s, passed) => nodes[l].set(s, Math.max(passed, nodes[l].get(s) ?? 0));
    reach(t, importance);
    lengths.forEach((each, h) => each.forEach((length, s) => {
      const passed = (importance * length) / widest;
      if (passed < faintest) return;
      ribbons.push({l, h, s, t, length, importance: passed});
      reach(s, passed);
    }));
  }
  return {ribbons, nodes};
}

/**
 * The drawing, what sets the ribbons to the next words, and how far the open head is from the words: [svg, (next) => …,
 * pixels]; next: [word, share, y] of the bars beside it, y in the drawing.
 * words: of all positions; width in pixels; beside: whether bars stand beside it, so that ribbons lead there;
 * percent: a share in words; escaped: a word in HTML; colours: of the heads;
 * opened: [layer, head] that is taken apart into query, keys and values, or null; open(part, position): what a click
 * does, on a part or on a token; tell(text): what pointing at a ribbon does.
 */
export function drawFlow(glass, {words, at, width, beside, percent, escaped, colours, opened, open, tell}) {
  const {d_model: d, max_seq_len: room} = glass.config, L = glass.layers.length, n = words.length, deep = L > 8;
  const {ribbons: all, nodes} = waysTo(glass, at, deep ? 0.25 : 0.15);
  const ribbons = all.sort((a, b) => b.importance - a.importance).slice(0, MOST);
  const fan = beside ? FAN : 14;
  const step = Math.max(deep ? 44 : 0, (width - LABELS - fan) / L), more = deep && opened ? APART : 0, right = LABELS + L * step + more + fan;
  const row = Math.max(13, Math.min(24, 330 / n)), height = Math.max(n * row, 176) + 22;
  const x = (column) => LABELS + column * step + (more && more * Math.min(1, Math.max(0, column - opened[0]))), y = (t) => (t + 0.5) * row;
  const added = glass.layers.map(({feed_forward}) => Math.hypot(...feed_forward.subarray(at * d, (at + 1) * d)));
  const longest = Math.max(...added, ...ribbons.map((each) => each.length), 1e-9);
  const thick = (length) => Math.max(0.7, (WIDEST * length) / longest).toFixed(1);
  const curve = (x0, y0, x1, y1) => `M${x0} ${y0}C${(x0 + x1) / 2} ${y0} ${(x0 + x1) / 2} ${y1} ${x1} ${y1}`;
  const most = glass.layers.map((_, l) => ribbons.filter((each) => each.l === l && each.t === at).sort((a, b) => b.length - a.length)[0]);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), parts = [];  // as text: ten times as quick
  const weight = (l, h, t, s) => glass.layers[l].weights[(h * room + t) * room + s];
  const put = (tag, attributes, title = "", text = "") => parts.push(`<${tag} ${Object.entries(attributes).map(([name, value]) =>
    `${name}="${value}"`).join(" ")}>${title && `<title>${escaped(title)}</title>`}${escaped(text)}</${tag}>`);
  nodes.slice(1).forEach((reached, l) => reached.forEach((importance, t) =>
    put("path", {d: `M${x(l)} ${y(t)}H${x(l + 1)}`, class: "stream", opacity: 0.25 + 0.75 * importance})));
  ribbons.reverse().forEach(({l, h, s, t, length, importance}, i) => put("path", {
    d: curve(x(l) + 3, y(s), x(l + 1) - 3, y(t)), class: "ribbon", pathLength: 1, stroke: opened ? "var(--quiet)" : colours[h], "stroke-width": thick(length),
    style: `--block: ${l}`, opacity: (l === opened?.[0] ? 0.07 : (0.25 + 0.6 * importance) * (opened ? 0.4 : 1)).toFixed(2), "data-ribbon": i}));
  if (opened) takeApart(...opened);
  nodes.forEach((reached, column) => reached.forEach((importance, t) =>
    put("circle", {cx: x(column), cy: y(t), r: t === at ? 3.5 : 2.2, class: "node", opacity: 0.3 + 0.7 * importance})));
  added.forEach((length, l) => {
    put("circle", {cx: x(l + 1) - 8, cy: y(at), r: thick(length) / 2, class: "network", style: `--block: ${l}`, "data-opens": `${l}.feed_forward`},
        `Layer ${l}: the feed-forward network adds a vector of norm ${length.toFixed(2)}`);
    put("text", {x: x(l + 0.5), y: height - 5, class: "column"}, "", step < 50 ? `${l}` : `Layer ${l}`);
  });
  parts.push(`<g class="labels"><rect width="${LABELS - 4}" height="${height}" class="behind"></rect>`);
  put("rect", {x: 1, y: y(at) - Math.min(row, 18) / 2, width: LABELS - 5, height: Math.min(row, 18), rx: 4, class: "ground"});
  words.forEach((word, t) => put("text", {x: LABELS - 7, y: y(t), class: t === at ? "word at" : "word", "data-at": t}, "",
                                 word.length > 11 ? `${word.slice(0, 10)}…` : word));
  svg.innerHTML = `${parts.join("")}</g><g></g>`;
  for (const [name, value] of Object.entries({
    viewBox: `0 0 ${right} ${height}`, width: right, height, role: "img", class: "flow", style: `--pause: ${Math.min(0.8, 6 / L)}s`,
    "aria-label": `what reaches “${words[at]}”. ${most.map((each, l) => each ? `Layer ${l}: most from “${words[each.s]}”, by head ${each.h}. ` : "").join("")}`,
  })) svg.setAttribute(name, value);
  const here = at;
  svg.addEventListener("click", ({target: {dataset: {ribbon, opens, at}}}) => {
    if (opens) open(opens, here);
    else if (ribbon) open(`${ribbons[ribbon].l}.head.${ribbons[ribbon].h}`, ribbons[ribbon].t);
    else if (at) open(null, Number(at));
  });
  svg.addEventListener("mouseout", () => tell());
  svg.addEventListener("mouseover", ({target: {dataset}}) => {
    if (dataset.tells) tell(dataset.tells);
    if (!dataset.ribbon) return;
    const {l, h, s, t, length} = ribbons[dataset.ribbon];
    tell(`Layer ${l}, head ${h}: “${words[t]}” takes from “${words[s]}”: weight ${percent(weight(l, h, t, s))}, norm ${length.toFixed(2)}`);
  });

  /** An open head: the chosen token's query goes to its own key and to that of each earlier token; where they meet, a
   *  circle as large as the weight; from there the value goes on. Widths: the norms, of the value what is written of it. */
  function takeApart(l, h) {
    const layer = glass.layers[l], D = glass.d_head, kv = Math.floor((h * glass.config.n_kv_heads) / glass.config.n_heads) * D;
    const norm = (rows, from) => Math.hypot(...rows.subarray(from, from + D)), lengths = glass.written(l, at)[h];
    const sources = [...lengths.keys()].sort((a, b) => weight(l, h, at, b) - weight(l, h, at, a)).slice(0, PAIRS);
    const query = norm(layer.query, at * d + h * D), keys = sources.map((s) => norm(layer.key, s * glass.d_kv + kv));
    const most = Math.max(query, ...keys, 1e-9), from = x(l) + 3, meet = x(l + 0.55), to = x(l + 1) - 3;
    const line = (kind, path, width, when, told) => put("path", {
      d: path, class: `ribbon ${kind}`, pathLength: 1, "stroke-width": width.toFixed(1), style: `--block: ${when}`, "data-tells": escaped(told)});
    sources.forEach((s, i) => {
      const share = weight(l, h, at, s), score = layer.scores[(h * room + at) * room + s].toFixed(1);
      const met = `“${words[at]}” asks “${words[s]}”: q · k / √D = ${score}, weight ${percent(share)}`;
      line("key", `M${from} ${y(s)}H${meet}`, Math.max(1, (THICK * keys[i]) / most), l, `The key of “${words[s]}”: norm ${keys[i].toFixed(2)}`);
      line("query", curve(from, y(at), meet, y(s)), Math.max(0.7, (0.25 + 0.75 * share) * (THICK * query) / most), l, met);
      if (lengths[s] > 0) line("value", curve(meet, y(s), to, y(at)), +thick(lengths[s]), l + 0.7,
        `${percent(share)} of the value of “${words[s]}”, through W_O: norm ${lengths[s].toFixed(2)}`);
      put("circle", {cx: meet, cy: y(s), r: (1.5 + 6 * Math.sqrt(share)).toFixed(1), class: "meeting", style: `--block: ${l + 0.5}`, "data-tells": escaped(met)});
    });
  }

  return [svg, (next) => {
    parts.length = 0;
    if (beside) next.forEach(([word, share, end]) => put("path", {
      d: curve(x(L), y(at), right, end), class: "ribbon last", pathLength: 1, style: `--block: ${L}`,
      "stroke-width": Math.max(0.7, 18 * share)}, `${word} ${percent(share)}`));
    svg.lastChild.innerHTML = parts.join("");
  }, opened ? x(opened[0]) - LABELS : right];
}
