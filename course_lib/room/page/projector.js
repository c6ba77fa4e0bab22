// The projector: the current guess with its bars, and the mistakes by exercise. The key after # in the address is hidden
// at once.
import { $, ask, make, say, wait } from "./room.js";

if (location.hash) sessionStorage.key_of_room = location.hash.slice(1);
history.replaceState(null, "", location.pathname);
const state = { now: null, bars: "", mistakes: "" };
const press = (id, on) => $(id).setAttribute("aria-pressed", on);

async function look(message, path = "class") {
  const { status, error, ...now } = await ask(sessionStorage.key_of_room ?? "", path, message);
  if (status == 200) show(now);
  say(error ?? "");
}

function row(label, count, most, right) {
  const bar = make("i");
  bar.style.width = `${(100 * count) / most}%`;
  return make("li", { className: right ? "right" : "" }, make("span", {}, (right ? "✓ " : "") + label),
    make("span", { className: "track", ariaHidden: "true" }, bar), make("span", { className: "count" }, String(count)));
}

function show(now) {
  const before = state.now;
  state.now = now;
  $("address").textContent = location.origin;
  $("code-shown").textContent = now.code;
  $("crowd").textContent = `${now.votes} of ${Math.max(now.votes, now.learners)} have voted`;
  $("seats").hidden = now.learners < 0.9 * now.seats;
  $("seats").textContent = `seats ${now.learners} of ${now.seats}`;
  if ($("choose").options.length != now.questions.length)
    $("choose").replaceChildren(...now.questions.map((id) => make("option", { value: id }, id)));
  $("choose").value = now.id;
  if (before?.id != now.id) {
    $("question").innerHTML = now.text;
    $("bars").classList.toggle("numbers", now.unit !== null);
    document.body.classList.toggle("blind", now.open); // so that the other votes influence no one
  }
  const bars = JSON.stringify([now.bars, now.open]), mistakes = JSON.stringify([now.mistakes, now.learners]);
  const most = Math.max(1, ...now.bars.map(([, count]) => count));
  if (bars != state.bars)
    $("bars").replaceChildren(...now.bars.map(([label, count]) => row(label, count, most, !now.open && label == now.answer)));
  $("measured").hidden = now.open;
  if (!now.open && (before?.id != now.id || before.open)) {
    document.body.classList.remove("blind");
    const share = now.votes ? ` ${now.right} of ${now.votes} guessed this.` : "";
    $("measured").replaceChildren(make("strong", {}, `Measured: ${now.answer}.`), share, make("div", { innerHTML: now.reason }));
    $("measured").scrollIntoView({ block: "nearest" });
  }
  $("reveal").disabled = $("bare").disabled = !now.open;
  press("bare", !document.body.classList.contains("blind"));
  if (mistakes != state.mistakes) showMistakes(now);
  Object.assign(state, { bars, mistakes });
}

function showMistakes({ mistakes, learners }) {
  const parts = mistakes.map(({ exercise, title, names }) => make("section", {},
    make("h2", {}, `${title} `, make("code", {}, exercise)),
    make("ol", {}, ...names.map(([name, count]) => row(name, count, learners, false)))));
  if (!parts.length) parts.push(make("p", {}, "No mistake has arrived yet."));
  $("mistakes").replaceChildren(make("h1", {}, "The most frequent mistakes"), ...parts);
}

function go(step) {
  const ids = state.now?.questions ?? [], id = ids[ids.indexOf(state.now?.id) + step];
  if (id) look({ guess: id, reveal: false });
}

const does = {
  previous: () => go(-1),
  next: () => go(1),
  reveal: () => state.now?.open && look({ guess: state.now.id, reveal: true }),
  bare: () => state.now?.open && press("bare", !document.body.classList.toggle("blind")),
  turn: () => press("turn", ($("guess").hidden = !($("mistakes").hidden = !$("mistakes").hidden))),
};
for (const [id, act] of Object.entries(does)) $(id).onclick = act;
$("renew").onclick = () => { // no keyboard shortcut, because the whole class would have to type a new code
  const silent = state.now?.silent, who = silent == 1 ? "1 learner who has" : `${silent} learners who have`;
  if (!silent || confirm(`Make a new code? The ${who} not voted yet must join again with it.`)) look({}, "code");
};
$("choose").onchange = (event) => {
  look({ guess: event.target.value, reveal: false });
  event.target.blur(); // so that the page receives the key R again
};
const keys = { ArrowLeft: "previous", ArrowRight: "next", r: "reveal", b: "bare", m: "turn" };
addEventListener("keydown", (event) => {
  const id = keys[event.key.length == 1 ? event.key.toLowerCase() : event.key];
  if (!id || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select")) return;
  event.preventDefault();
  does[id]();
});

for (;;) {
  if (!document.hidden) await look();
  await wait(1000);
}
