"""How fast the glass model answers in a browser: `python -m tests.browser.glass_speed`. It asserts nothing.

Two times for each move, over a text of 48 tokens: how long the page works on it, and when the frame that shows it is
drawn; frames come every 16.7 ms at best, and two are waited for, so that the first is surely on the screen.
"""

import tempfile
from pathlib import Path
from statistics import quantiles

from course_lib.live.glass import html
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown
from tests.browser.lab import chromium

MOVES = {  # what is moved: what is done n times, JavaScript
    "a sampling slider": "n => set('input[aria-label=temperature]', 0.5 + (n % 20) / 20)",
    "a word swapped": "n => set('input[type=text]', words.with(3, n % 2 ? 'dog' : 'cat').join(' '))",
    "a head removed": "n => document.querySelector('.panel .buttons button:nth-child(2)').click()",
    "a new token": "n => document.querySelector('.main').click()",
}
SCRIPT = """async ([text, act, times]) => {
    const words = text.split(" ");
    const set = (selector, value) => {
        const field = document.querySelector(".glass " + selector);
        field.value = value;
        field.dispatchEvent(new Event("input"));
    };
    const move = eval(act), frame = () => new Promise(requestAnimationFrame), found = [];
    for (let n = 0; n < times + 5; n++) {
        if (act.includes("main")) set("input[type=text]", words.slice(0, 40).join(" "));
        await frame(); await frame();
        const began = performance.now();
        move(n);
        const worked = performance.now() - began;
        await frame(); await frame();
        if (n >= 5) found.push([worked, performance.now() - began]);
    }
    return found;
}"""


def main(times: int = 30) -> None:
    """Open the page, move everything, print the table."""
    from playwright.sync_api import sync_playwright

    tokenizer = load_pretrained("tinytown")[1]
    story = next(story for story in Tinytown(3).sample(50) if len(tokenizer.encode(story, end=False)) >= 48)
    ids = tokenizer.encode(story, end=False)[1:48]  # with <bos> 48 tokens
    text = " ".join(tokenizer.tokens[i] for i in ids)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        path = Path(folder) / "glass.html"
        path.write_text(html(), encoding="utf-8")
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 848, "height": 900})
        page.goto(path.as_uri())
        page.locator(".glass .bar").first.wait_for()
        began = page.evaluate("performance.now()")
        print(f"from opening to the first answer: {began:.0f} ms, {path.stat().st_size / 1e6:.1f} MB, nothing fetched")
        page.locator(".glass input[type=text]").fill(text)
        page.get_by_role("button", name="Maps").click()
        page.locator('.glass [data-part="2.head.3"]').click()
        print(f"{'48 tokens':<20}{'work p50':>10}{'p95':>8}{'frame p50':>12}{'p95':>8}   ms")
        for name, act in MOVES.items():
            columns = zip(*page.evaluate(SCRIPT, [text, act, times]))
            (w50, w95), (f50, f95) = ((cuts[9], cuts[18]) for cuts in (quantiles(each, n=20) for each in columns))
            print(f"{name:<20}{w50:>10.1f}{w95:>8.1f}{f50:>12.1f}{f95:>8.1f}")
        browser.close()


if __name__ == "__main__":
    main()
