// The state of the page as the fragment of its address, and back: a link to it shows another reader the same.

const VIEWS = {maps: "maps", ribbons: "flow"};  // in the address -> in view.js
const A_PART = /^(0|[1-9]\d*)(\.[a-z_]+(\.(0|[1-9]\d*))?)?$/;

/** The fragment for what is seen; `sliders` as in __init__.py. What is as at first is left out, except text and view. */
export function addressOf({typed, open, view, token, without, how}, sliders) {
  const told = new URLSearchParams({text: typed, view: Object.keys(VIEWS).find((name) => VIEWS[name] === view)});
  if (open) told.set("part", open);
  if (token !== null) told.set("token", token);
  if (without.length) told.set("without", without.join(" "));
  for (const [name, label] of sliders) if (name in how) told.set(label, how[name]);
  return told.toString();
}

/** What a fragment asks for, of what `about` has. Whatever it asks wrongly is as at first. */
export function fromAddress(fragment, about) {
  const asked = new URLSearchParams(fragment), found = {how: {}}, [text, part, view] = ["text", "part", "view"].map((name) => asked.get(name));
  if (text || (text !== null && view)) found.text = text;
  if (about.whole.includes(part)) Object.assign(found, {open: part, view: "maps"});
  else if (view) found.open = null;  // an address that has a view is whole: in it no part was open
  if (Object.hasOwn(VIEWS, view)) found.view = VIEWS[view];
  if (/^\d{1,6}$/.test(asked.get("token"))) found.token = Number(asked.get("token"));
  found.without = (asked.get("without") ?? "").split(" ").filter((each) => A_PART.test(each));
  for (const [name, label] of about.sliders) {
    if (/^\d+(\.\d+)?$/.test(asked.get(label))) found.how[name] = Number(asked.get(label));
  }
  return found;
}
