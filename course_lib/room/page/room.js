// Shared by both pages. Text from the course is HTML; all other text is shown as plain text.
export const $ = (id) => document.getElementById(id);
export const wait = (ms) => new Promise((done) => setTimeout(done, ms));

export function make(name, fields, ...parts) {
  const element = Object.assign(document.createElement(name), fields);
  element.append(...parts);
  return element;
}

export function say(text) {
  if ($("status").textContent != text) $("status").textContent = text;
}

// A message that arrives twice changes nothing, so a message without an answer is sent again.
export async function ask(bearer, path, message) {
  const headers = { Authorization: `Bearer ${bearer}`, "Content-Type": "application/json" };
  const body = message && JSON.stringify(message);
  for (let tries = 3; tries; tries--) {
    try {
      const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body, signal: AbortSignal.timeout(5000) });
      const after = Number(answer.headers.get("Retry-After"));
      return { status: answer.status, after, ...(await answer.json()) };
    } catch {
      await wait(300);
    }
  }
  return { status: 0, error: "The room cannot be reached; this page keeps trying." };
}
