"""The built web edition in a browser: needs playwright and a Chromium, and `python -m course_lib site` before it.

    python tests/site_in_browser.py [--site build/site] [--chromium /usr/bin/chromium]

Every page is opened wide and light, then where both side columns leave little room, then narrow and dark. What would
annoy a reader is printed, a line each: a request to another server, an answer that is an error, a message in the
console, a formula that did not set, a page wider than the screen, a picture that did not load, code that is cut or far
from its output, a slider that the arrow keys do not move. Ends with 1 if there is any.
"""

import argparse
import contextlib
import functools
import http.server
import sys
import threading
from pathlib import Path

VIEWS = ((1280, "light"), (1100, "light"), (390, "dark"))
LOOK = """async () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  for (const image of document.images) image.loading = "eager";
  await Promise.all([...document.images].map((image) => image.decode().catch(() => {})));
  await window.MathJax?.startup?.promise;
  const wide = document.documentElement.scrollWidth - innerWidth;
  return [
    ...(wide > 0 ? [`the page is ${wide} pixels wider than the screen`] : []),
    ...[...document.images].filter((image) => !image.naturalWidth).map((image) => `${image.src} did not load`),
    ...[...document.images].filter((image) => !image.alt).map((image) => `${image.src} has no alt`),
    ...[...document.querySelectorAll("div.cell_input pre")].filter((code) => code.scrollWidth > code.clientWidth + 1)
      .map((code) => `code is cut: ${code.innerText.split(/\\n/)[0]}`),
    ...[...document.querySelectorAll("div.cell_input + div.cell_output > .output:first-child")]
      .map((shown) => [shown.getBoundingClientRect().top - shown.closest(".cell").firstElementChild
        .getBoundingClientRect().bottom, shown.innerText]).filter(([gap, words]) => gap > 16 && words.trim())
      .map(([gap, words]) => `an output stands ${gap} pixels below its code: ${words.trim().split(/\\n/)[0]}`),
    ...[...document.querySelectorAll("mjx-merror")].map((error) => `a formula failed: ${error.textContent}`),
    ...[...document.querySelectorAll(".math")].filter((math) => !math.querySelector("mjx-container"))
      .map((math) => `a formula was not set: ${math.textContent}`),
  ];
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a word about each."""

    def log_message(self, *_words):
        pass


@contextlib.contextmanager
def served(folder: Path):
    """The folder as a site on this machine, as long as the block lasts: gives its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


def sliders(page) -> list[str]:
    """Move every slider of recorded states by a key, to each end; say which pictures stay."""
    stuck = []
    for figure in page.locator("figure.states").all():
        control, image = figure.locator("input"), figure.locator("img")
        seen = set()
        for key in ("Home", "ArrowRight", "End"):
            control.press(key)
            seen.add((image.get_attribute("src"), control.get_attribute("aria-valuetext"), image.get_attribute("alt")))
            page.evaluate("(image) => image.decode()", image.element_handle())
        if len({src for src, _, _ in seen}) < 2 or len({text for _, text, _ in seen}) < 3:
            stuck.append(f"the slider {control.get_attribute('aria-label')!r} does not move its picture")
    return stuck


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--site", type=Path, default=Path("build/site"))
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    pages = sorted(path.relative_to(arguments.site).as_posix() for path in arguments.site.rglob("*.html"))
    found: list[str] = []
    moved = 0
    with served(arguments.site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.chromium, args=["--no-sandbox"])
        for width, scheme in VIEWS:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            told: list[str] = []
            page.on("console", lambda message, told=told: told.append(f"console: {message.text}"))
            page.on("pageerror", lambda error, told=told: told.append(f"error: {error}"))
            page.on("response", lambda answer, told=told: answer.status < 400 or told.append(f"missing: {answer.url}"))
            page.on(
                "request",
                lambda request, told=told: (
                    request.url.startswith((address, "data:", "blob:")) or told.append(f"asks {request.url}")
                ),
            )
            for name in pages:
                page.goto(address + name)
                told += page.evaluate(LOOK)
                told += sliders(page)
                moved += page.locator("figure.states").count()
                found += [f"{name} ({width}, {scheme}): {each}" for each in told]
                told.clear()
            page.close()
        browser.close()
    print(*found, f"{len(pages)} pages, {len(VIEWS)} views, {moved} sliders moved, {len(found)} findings", sep="\n")
    return 1 if found or not moved else 0


if __name__ == "__main__":
    sys.exit(main())
