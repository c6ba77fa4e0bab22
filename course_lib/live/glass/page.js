// What the glass model does where it has a page of its own: it fetches the model, and hears what the page around it says.

async function inThePage() {
  const code = document.querySelector("#packed").textContent, packed = await fetch(`data:;base64,${code}`);  // the quickest decoder
  return new Uint8Array(await packed.arrayBuffer());
}

/** The model out of a file beside the page, with progress; a page that has no server says what it needs. */
async function fetched(file) {
  const note = document.querySelector(".note"), size = (bytes) => (bytes / 1e6).toFixed(1);
  try {
    const answer = await fetch(file), all = Number(answer.headers.get("Content-Length"));
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    let came = 0;
    const counted = new TransformStream({transform(part, stream) {
      came += part.length;
      note.textContent = `Loading the model: ${size(came)}${all ? ` of ${size(all)}` : ""} MB`;
      stream.enqueue(part);
    }});
    const whole = answer.body.pipeThrough(counted).pipeThrough(new DecompressionStream("gzip"));
    const bytes = new Uint8Array(await new Response(whole).arrayBuffer());
    note.textContent = `Loaded ${size(came)} MB. Unpacking the model and reading the first sentence …`;
    // Until that is seen: what follows lets no frame through. A hidden page draws none, and waits for none.
    await new Promise((seen) => { requestAnimationFrame(() => setTimeout(seen)); setTimeout(seen, 300); });
    return bytes;
  } catch (error) {
    note.textContent = `The model could not be loaded (${error.message}). This page loads it from its own folder, so it needs `
      + "a server: run “python -m http.server” in that folder and open the address that it prints.";
    throw error;
  }
}

/** The model in the page: it begins with what the address says, and the address follows what is done to it. */
function play(bytes, told) {
  const here = () => location.href.split("#")[0], writes = /^(https?|file):$/.test(location.protocol);  // a slide has no address
  const link = (seen) => `${here()}#${addressOf(seen, told.sliders)}`;
  let last, soon;
  const start = () => {
    const asked = fromAddress(location.hash.slice(1), told), {sentences} = told, {text} = asked;
    last = null;
    clearTimeout(soon);
    mount(document.querySelector("main"), bytes, {...told, ...asked, sentences: text ? [text, ...sentences.filter((each) => each !== text)] : sentences},
      (seen) => {
        const now = link(seen);
        if (last !== null && now !== last) {
          clearTimeout(soon);
          soon = setTimeout(() => history.replaceState(null, "", now), 300);
        }
        last = now;
      }, writes ? {link, onlyHere: location.protocol === "file:"} : null);
  };
  start();
  if (writes) addEventListener("hashchange", start);  // another link to this page, or an address that was typed
}
if (parent !== window) {
  document.body.classList.add("framed");  // the page around it has a heading, and is the course
  document.querySelector(".own p").remove();
  // the page around it makes the frame as high as what stands here, and says which theme it has
  const tell = () => parent.postMessage({high: Math.ceil(document.body.getBoundingClientRect().bottom + scrollY)}, "*");
  new ResizeObserver(tell).observe(document.body);
  addEventListener("message", ({source, data}) => {
    const {dataset} = document.body;
    if (source !== parent) return;
    if (["light", "dark"].includes(data?.theme)) dataset.jpThemeLight = data.theme === "light";
    else delete dataset.jpThemeLight;  // the system's
    tell();  // that page may not have listened before
  });
}
