"""How fast the glass model answers in a browser: `python -m tests.browser.glass_speed [MODEL]`. It asserts nothing.

MODEL: Tinytown's, over a text of 48 tokens, with a head open among the maps and then beside the ribbons; or such as
smollm2-135m, or gpt2-untrained, which has GPT-2's size and weights of chance, over a sentence of 13 words.
Two times for each move: how long the page works on it, and when the frame that shows it is drawn; frames come every
16.7 ms at best, and two are waited for, so that the first is surely on the screen.
"""

import sys
import tempfile
from pathlib import Path
from statistics import quantiles

import torch

from course_lib.config import preset
from course_lib.gpt import DecoderOnly
from course_lib.live.glass import html
from course_lib.pretrained import load_pretrained, load_tokenizer
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
        if (act.includes("main")) set("input[type=text]", words.slice(0, -7).join(" "));
        await frame(); await frame();
        const began = performance.now();
        move(n);
        const worked = performance.now() - began;
        await frame(); await frame();
        if (n >= 5) found.push([worked, performance.now() - began]);
    }
    return found;
}"""


SENTENCE = "When Mary and John went to the store, John gave a drink to"


def opened(name: str):
    """A model, its tokenizer and a text."""
    if name == "gpt2-untrained":
        torch.manual_seed(0)
        return DecoderOnly(preset("gpt2")).eval(), load_tokenizer("gpt2-tokenizer"), SENTENCE
    model, tokenizer = load_pretrained(name)
    if name != "tinytown":
        return model, tokenizer, SENTENCE
    story = next(story for story in Tinytown(3).sample(50) if len(tokenizer.encode(story, end=False)) >= 48)
    ids = tokenizer.encode(story, end=False)[1:48]  # with <bos> 48 tokens
    return model, tokenizer, " ".join(tokenizer.tokens[i] for i in ids)


def main(name: str = "tinytown", times: int = 30) -> None:
    """Open the page, move everything, print the tables."""
    from playwright.sync_api import sync_playwright

    model, tokenizer, text = opened(name)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        path = Path(folder) / "glass.html"
        path.write_text(html(model, tokenizer), encoding="utf-8")
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 848, "height": 900})
        page.goto(path.as_uri())
        page.locator(".glass .bar").first.wait_for(timeout=120_000)
        began = page.evaluate("performance.now()")
        print(f"from opening to the first answer: {began:.0f} ms, {path.stat().st_size / 1e6:.1f} MB, nothing fetched")
        page.locator(".glass input[type=text]").fill(text)
        for view in ("Maps", "Ribbons"):
            page.get_by_role("button", name=view).click()
            if view == "Maps":
                page.locator('.glass [data-part="2.head.3"]').click()
            print(f"{view + ', a head open':<24}{'work p50':>10}{'p95':>8}{'frame p50':>12}{'p95':>8}   ms")
            for move, act in MOVES.items():
                columns = zip(*page.evaluate(SCRIPT, [text, act, times]))
                (w50, w95), (f50, f95) = ((cuts[9], cuts[18]) for cuts in (quantiles(each, n=20) for each in columns))
                print(f"{move:<24}{w50:>10.1f}{w95:>8.1f}{f50:>12.1f}{f95:>8.1f}")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:2])
