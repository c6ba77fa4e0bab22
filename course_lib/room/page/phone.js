// A learner's phone: one question at a time, and one vote, which can be changed until the reveal.
import { $, ask, make, say, wait } from "./room.js";

const [door, ballot, fieldset, measured] = [$("door"), $("ballot"), document.querySelector("fieldset"), $("measured")];
const store = (() => { try { localStorage.room; return localStorage; } catch { return {}; } })(); // some browsers forbid it
door.hidden = Boolean(store.room);
store.room ||= [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const state = { now: {}, pending: null, shown: "", n: 0, said: "" };
const tell = (text) => say((state.said = text)); // stays until the next message; connection errors do not

// If many join at once, the room says how long to wait. A random wait keeps them from retrying together.
async function join(code) {
  for (;;) {
    const { status, error, after } = await ask(store.room, "join", { code, token: store.room });
    if (status != 429) return { status, error };
    tell(error);
    await wait(1000 * after * (1 + Math.random()));
  }
}

door.onsubmit = async (event) => {
  event.preventDefault();
  const button = door.querySelector("button"), code = $("code").value;
  button.disabled = true;
  const { status, error } = await join(code);
  button.disabled = false;
  tell(error ?? "");
  door.hidden = status == 200;
  if (status != 200) return;
  store.code = code;
  look();
};

ballot.onsubmit = (event) => {
  event.preventDefault();
  const picked = (new FormData(ballot).get("answer") ?? "").trim(), isNumber = state.now.unit !== null;
  if (!picked) return tell(isNumber ? "Type a number first." : "Pick one first.");
  state.n = Math.max(Date.now(), state.n + 1); // so that a late vote does not replace a newer one
  state.pending = { guess: state.now.id, answer: isNumber ? picked.replace(",", ".") : picked, n: state.n };
  tell("Sending …");
  send();
};

async function send() {
  const vote = state.pending;
  const { status, error } = await ask(store.room, "vote", vote);
  if (vote != state.pending) return;
  if ([0, 401, 429].includes(status) || status >= 500) return say(error); // the next poll sends it
  state.pending = null;
  tell(error ?? "Sent. You can change it until the answer is revealed.");
}

function option(text) {
  return make("label", { className: "option" }, make("input", { type: "radio", name: "answer", value: text }), text);
}

function show(now) {
  state.now = now;
  state.n = Math.max(state.n, now.n);
  if (state.shown != now.id) {
    const number = make("input", { name: "answer", inputMode: "decimal", size: 10 });
    const answers = now.unit === null ? now.options.map(option) : [make("label", {}, "A number ", number, ` ${now.unit}`)];
    fieldset.replaceChildren(make("legend", { innerHTML: now.text }), ...answers);
    const mine = now.mine ?? "";
    for (const input of fieldset.querySelectorAll("input"))
      if (input.type == "radio") input.checked = input.value == mine; else input.value = mine;
    tell(mine ? "Sent. You can change it until the answer is revealed." : "");
  }
  fieldset.disabled = !now.open;
  ballot.querySelector("button").hidden = !now.open;
  if (!now.open && measured.dataset.of != now.id) {
    measured.replaceChildren(make("strong", {}, `Measured: ${now.answer}`), make("div", { innerHTML: now.reason }));
    tell(now.mine === null ? "Voting is closed." : `Your guess: ${now.mine} ${now.unit ?? ""}`);
  }
  measured.dataset.of = now.open ? "" : now.id;
  measured.hidden = now.open;
  state.shown = now.id;
}

// A room that was opened again does not know this phone. Its code is the same, unless the teacher chose a new one.
async function ask_now() {
  const now = await ask(store.room, "now");
  if (now.status != 401 || !store.code) return now;
  const { status } = await join(store.code);
  if (status == 403) store.code = "";
  return status == 200 ? ask(store.room, "now") : now;
}

async function look() {
  if (state.pending) await send();
  const now = await ask_now();
  if (now.status == 200) show(now);
  say(now.status == 200 ? state.said : now.status == 401 ? "" : now.error);
  if (now.status == 401) measured.hidden = true; // the room was opened again and requires its code
  if (now.status == 401 || now.status == 200) [door.hidden, ballot.hidden] = [now.status == 200, now.status == 401];
}

for (;;) {
  if (!document.hidden && door.hidden) await look();
  await wait(1200 + 800 * Math.random());
}
