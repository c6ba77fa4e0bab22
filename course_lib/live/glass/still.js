// A picture of a part of the page: what its elements look like, drawn again in SVG, then as PNG.
//
// The page's own HTML within an SVG (a foreignObject) would be shorter, but some browsers refuse to turn it into PNG.

const EDGE = 12, LINE = 24, SCALE = 2;  // pixels around it; of the line below it; of the PNG for each of the page's
const DRAWN = ["fill", "stroke", "stroke-width", "opacity", "font-size", "font-weight", "text-anchor", "dominant-baseline"];
const clean = (text) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
const clear = (colour) => colour === "transparent" || colour.endsWith(", 0)");

/** A PNG of some elements that stand below each other, with a line of words below them: the address of a blob. */
export async function stillOf(elements, words) {
  const boxes = elements.map((each) => each.getBoundingClientRect());
  const left = Math.min(...boxes.map((box) => box.left)), top = boxes[0].top;
  const wide = Math.max(...boxes.map((box) => box.right)) - left, high = boxes.at(-1).bottom - top;
  const style = getComputedStyle(elements[0].closest(".glass")), lines = broken(words, (wide - 40) / 6.6);
  const size = [wide + 2 * EDGE, high + 2 * EDGE + LINE * lines.length];
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${size[0]}" height="${size[1]}" font-family="system-ui, sans-serif">
    <rect width="100%" height="100%" fill="${style.backgroundColor}"/>
    <g transform="translate(${EDGE - left} ${EDGE - top})">${elements.map(drawn).join("")}</g>
    ${lines.map((line, i) => `<text x="${EDGE}" y="${high + 2 * EDGE + LINE * (i + 0.5)}" font-size="13" fill="${style.color}">${clean(line)}</text>`).join("")}</svg>`;
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = size.map((each) => Math.ceil(SCALE * each));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return URL.createObjectURL(await new Promise((done) => canvas.toBlob(done)));
}

/** A text in lines of at most so many letters. */
function broken(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) {
    if (lines.at(-1).length + word.length > most) lines.push("");
    lines.push(`${lines.pop()} ${word}`.trim());
  }
  return lines;
}

/** An element as SVG, at its place in the window: ground, edge, then what is in it. */
function drawn(element) {
  const box = element.getBoundingClientRect(), style = getComputedStyle(element), tag = element.localName;
  if (!box.width || !box.height || style.visibility === "hidden" || style.clipPath !== "none") return "";
  const at = `x="${box.left}" y="${box.top}" width="${box.width}" height="${box.height}"`;
  if (tag === "canvas") return `<image ${at} href="data:image/png;base64,${element.toDataURL().split(",")[1]}" style="filter: ${style.filter}; image-rendering: pixelated"/>`;
  if (tag === "svg") return nested(element, at);
  if (element.type === "range") return slider(element, box, style);
  const share = Number(style.getPropertyValue("--share")), bar = tag === "i" && style.backgroundImage !== "none";
  const ground = bar ? style.getPropertyValue("--soft") : style.backgroundColor, edge = style.borderTopStyle === "none" ? 0 : parseFloat(style.borderTopWidth);
  let found = "";
  if (!clear(ground) || edge) found += `<rect ${at} rx="${parseFloat(style.borderTopLeftRadius)}" fill="${clear(ground) ? "none" : ground}"
    ${edge ? `stroke="${style.borderTopColor}" stroke-width="${edge}"` : ""}/>`;
  const was = parseFloat(style.getPropertyValue("--was")), low = was >= 0 ? 8 : box.height;  // pixels; a removal's bar has two parts
  if (bar) found += `<rect x="${box.left}" y="${box.bottom - low}" width="${box.width * share}" height="${low}" rx="3" fill="${style.getPropertyValue("--blue")}"/>`;
  if (bar && was >= 0) found += `<rect x="${box.left}" y="${box.top}" width="${box.width * was}" height="5" rx="2" fill="${style.getPropertyValue("--quiet")}"/>`;
  const within = [...element.childNodes].map((each) => each.nodeType === Node.TEXT_NODE ? written(each, style) : each.nodeType === Node.ELEMENT_NODE ? drawn(each) : "").join("");
  const name = style.overflow === "visible" ? "" : `clip${Math.round(box.left)}-${Math.round(box.top)}-${Math.round(box.width)}`;
  found += name ? `<clipPath id="${name}"><rect ${at}/></clipPath><g clip-path="url(#${name})">${within}</g>` : within;
  return style.opacity === "1" ? found : `<g opacity="${style.opacity}">${found}</g>`;
}

/** A text as the browser has broken it: a line of it for each height at which its letters stand. */
function written(node, style) {
  const range = document.createRange(), lines = new Map(), text = node.data;
  for (const {index, 0: word} of text.matchAll(/\S+\s?/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.trimEnd().length);
    const {left, bottom, top, width, right} = range.getBoundingClientRect(), key = Math.round(top);
    if (!width) continue;
    const line = lines.get(key) ?? {left, y: (top + bottom) / 2, words: []};
    line.right = right;
    line.words.push(word.trimEnd());
    lines.set(key, line);
  }
  const how = `font-size="${style.fontSize}" font-weight="${style.fontWeight}" fill="${style.color}" text-decoration="${style.textDecorationLine}"
    font-family="${clean(style.fontFamily)}" dominant-baseline="central"`;
  return [...lines.values()].map(({left, right, y, words}) => `<text x="${left}" y="${y}" textLength="${right - left}" ${how}>${clean(words.join(" "))}</text>`).join("");
}

/** A drawing of the page: its shapes with the looks that style sheets give them. */
function nested(svg, at) {
  const copy = svg.cloneNode(true), shapes = [...copy.querySelectorAll("*")];
  [...svg.querySelectorAll("*")].forEach((each, i) => {
    const style = getComputedStyle(each);
    for (const name of DRAWN) shapes[i].setAttribute(name, style.getPropertyValue(name));
    shapes[i].removeAttribute("style");
  });
  copy.querySelectorAll("title").forEach((each) => each.remove());
  return `<svg ${at} viewBox="${svg.getAttribute("viewBox")}">${new XMLSerializer().serializeToString(copy).replace(/^<svg[^>]*>|<\/svg>$/g, "")}</svg>`;
}

function slider({min, max, value}, box, style) {
  const y = box.top + box.height / 2, share = (value - min) / (max - min), x = box.left + 8 + share * (box.width - 16);
  return `<line x1="${box.left}" x2="${box.right}" y1="${y}" y2="${y}" stroke="${style.getPropertyValue("--line")}" stroke-width="4"/>
    <circle cx="${x}" cy="${y}" r="7" fill="${style.accentColor}"/>`;
}
