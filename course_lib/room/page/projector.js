// The projector: the current guess with its bars, and the mistakes by exercise. The key that came behind # in the address
// goes out of sight at once. Text of the course's own pages is HTML; whatever else comes is text.
const $ = (id) => document.getElementById(id);
const make = (name, fields, ...parts) => {
  const element = Object.assign(document.createElement(name), fields);
  element.append(...parts);
  return element;
};
if (location.hash) sessionStorage.key_of_room = location.hash.slice(1);
history.replaceState(null, "", location.pathname);
const state = { now: null, bars: "" };

async function ask(message) {
  const headers = { Authorization: `Bearer ${sessionStorage.key_of_room ?? ""}`, "Content-Type": "application/json" };
  try {
    const body = message && JSON.stringify(message);
    const answer = await fetch("class", { method: body ? "POST" : "GET", headers, body, signal: AbortSignal.timeout(5000) });
    const told = await answer.json();
    if (answer.ok) show(told);
    say(answer.ok ? "" : told.error);
  } catch {
    say("The room cannot be reached; it may be closed.");
  }
}

function say(text) {
  if ($("status").textContent != text) $("status").textContent = text;
}

function row(label, count, most, right) {
  const bar = make("i");
  bar.style.width = `${(100 * count) / most}%`;
  const track = make("span", { className: "track", ariaHidden: "true" }, bar);
  return make("li", { className: right ? "right" : "" },
    make("span", {}, (right ? "✓ " : "") + label), track, make("span", { className: "count" }, String(count)));
}

function show(now) {
  const before = state.now;
  state.now = now;
  $("address").textContent = location.origin;
  $("code-shown").textContent = now.code;
  $("crowd").textContent = `${now.votes} votes, ${now.learners} in the room`;
  if ($("choose").options.length != now.questions.length)
    $("choose").replaceChildren(...now.questions.map((id) => make("option", { value: id }, id)));
  $("choose").value = now.id;
  if (before?.id != now.id) $("question").innerHTML = now.text;
  const drawn = JSON.stringify([now.bars, now.open]);
  if (drawn != state.bars) {
    const most = Math.max(1, ...now.bars.map(([, count]) => count));
    $("bars").replaceChildren(...now.bars.map(([label, count]) => row(label, count, most, !now.open && label == now.answer)));
    state.bars = drawn;
  }
  $("measured").hidden = now.open;
  if (!now.open && (before?.id != now.id || before.open)) {
    document.body.classList.remove("blind");
    const share = now.votes ? ` ${now.right} of ${now.votes} said so.` : "";
    $("measured").replaceChildren(make("strong", {}, `Measured: ${now.answer}.`), share, make("div", { innerHTML: now.reason }));
    $("measured").scrollIntoView({ block: "nearest" });
  }
  $("reveal").disabled = !now.open;
  $("blind").disabled = !now.open;
  press("blind", document.body.classList.contains("blind"));
  const parts = now.mistakes.map(({ exercise, title, names }) => {
    const rows = names.map(([name, count]) => row(name, count, now.learners, false));
    return make("section", {}, make("h2", {}, `${title} `, make("code", {}, exercise)), make("ol", {}, ...rows));
  });
  const text = JSON.stringify([now.mistakes, now.learners]);
  if (text != state.mistakes) $("mistakes").replaceChildren(make("h1", {}, "The most frequent mistakes"),
    ...(parts.length ? parts : [make("p", {}, "None has arrived yet.")]));
  state.mistakes = text;
}

const press = (id, on) => $(id).setAttribute("aria-pressed", on);
const go = (step) => {
  const ids = state.now?.questions ?? [];
  const id = ids[ids.indexOf(state.now?.id) + step];
  if (id) ask({ guess: id, reveal: false });
};
const does = {
  previous: () => go(-1),
  next: () => go(1),
  reveal: () => state.now?.open && ask({ guess: state.now.id, reveal: true }),
  blind: () => state.now?.open && press("blind", document.body.classList.toggle("blind")),
  turn: () => {
    $("guess").hidden = !($("mistakes").hidden = !$("mistakes").hidden);
    press("turn", $("guess").hidden);
  },
};
for (const [id, act] of Object.entries(does)) $(id).onclick = act;
$("choose").onchange = (event) => ask({ guess: event.target.value, reveal: false });
const keys = { ArrowLeft: "previous", ArrowRight: "next", r: "reveal", b: "blind", m: "turn" };
addEventListener("keydown", (event) => {
  const id = keys[event.key.length == 1 ? event.key.toLowerCase() : event.key];
  if (!id || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select")) return;
  event.preventDefault();
  does[id]();
});

for (;;) {
  if (!document.hidden) await ask();
  await new Promise((done) => setTimeout(done, 1000));
}
