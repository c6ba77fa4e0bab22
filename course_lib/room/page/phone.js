// A learner's phone: one question at a time, one vote, which may be changed until the reveal. Text of the room's own
// pages is HTML; whatever else comes is text.
const $ = (id) => document.getElementById(id);
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const [door, ballot, fieldset, measured] = [$("door"), $("ballot"), document.querySelector("fieldset"), $("measured")];
const store = (() => { try { localStorage.room; return localStorage; } catch { return {}; } })(); // forbidden in some
const isNew = !store.room;
store.room ||= [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const state = { now: {}, pending: null, shown: "", n: 0 };

async function ask(path, message) {
  const headers = { Authorization: `Bearer ${store.room}`, "Content-Type": "application/json" };
  try {
    const body = message && JSON.stringify(message);
    const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body, signal: AbortSignal.timeout(5000) });
    return { status: answer.status, ...(await answer.json()) };
  } catch {
    return { status: 0, error: "The room cannot be reached; this page keeps trying." };
  }
}

function say(text) {
  if ($("status").textContent != text) $("status").textContent = text;
}

const again = (status) => status == 0 || status == 429 || status >= 500;

door.onsubmit = async (event) => {
  event.preventDefault();
  const answer = await ask("join", { code: $("code").value, token: store.room });
  say(answer.error ?? "");
  if (answer.status == 200) await look();
};

ballot.onsubmit = (event) => {
  event.preventDefault();
  const picked = (new FormData(ballot).get("answer") ?? "").trim(), isNumber = state.now.unit !== null;
  if (!picked) return say(isNumber ? "Type a number first." : "Pick one first.");
  const answer = isNumber ? picked.replace(",", ".") : picked;
  state.n = Math.max(Date.now(), state.n + 1); // a vote that arrives late does not undo a newer one
  state.pending = { guess: state.now.id, answer, n: state.n };
  send();
};

async function send() {
  const vote = state.pending;
  say("Sending …");
  const answer = await ask("vote", vote);
  if (vote != state.pending) return;
  if (!again(answer.status)) state.pending = null;
  say(answer.error ?? "Sent. You may change it until the reveal.");
}

function option(text) {
  const label = Object.assign(document.createElement("label"), { className: "option" });
  const input = Object.assign(document.createElement("input"), { type: "radio", name: "answer", value: text });
  label.append(input, text);
  return label;
}

function number(unit) {
  const label = Object.assign(document.createElement("label"), { textContent: "A number" });
  label.append(" ", Object.assign(document.createElement("input"), { name: "answer", inputMode: "decimal", size: 10 }), ` ${unit}`);
  return label;
}

function show(now) {
  state.now = now;
  state.n = Math.max(state.n, now.n);
  if (state.shown != now.id) {
    const legend = Object.assign(document.createElement("legend"), { innerHTML: now.text });
    fieldset.replaceChildren(legend, ...(now.unit === null ? now.options.map(option) : [number(now.unit)]));
    const mine = now.mine ?? "";
    for (const input of fieldset.querySelectorAll("input"))
      if (input.type == "radio") input.checked = input.value == mine; else input.value = mine;
    say(now.open && mine ? "Sent. You may change it until the reveal." : "");
  }
  fieldset.disabled = !now.open;
  ballot.querySelector("button").hidden = !now.open;
  if (!now.open && measured.dataset.of != now.id) {
    const verdict = Object.assign(document.createElement("strong"), { textContent: `Measured: ${now.answer}` });
    measured.replaceChildren(verdict, Object.assign(document.createElement("div"), { innerHTML: now.reason }));
    say(now.mine === null ? "Votes are closed." : `Your guess: ${now.mine} ${now.unit ?? ""}`);
  }
  measured.dataset.of = now.open ? "" : now.id;
  measured.hidden = now.open;
  state.shown = now.id;
}

async function look() {
  if (state.pending) await send();
  const now = await ask("now");
  const out = now.status == 401;
  if (now.status == 200) show(now);
  else if (!out) say(now.error);
  if (out || now.status == 200) [door.hidden, ballot.hidden] = [!out, out];
  if (out) measured.hidden = true;
}

door.hidden = !isNew;
for (;;) {
  if (!document.hidden && door.hidden) await look();
  await wait(1200 + 800 * Math.random());
}
