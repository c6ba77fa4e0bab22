"""How long a live figure takes in JupyterLab, from the key press to the new picture: needs playwright and a Chromium.

    python tests/live_in_browser.py [FIGURE ...]

A figure is "chapter.function" of a widgets module that needs no arguments. In one page and one run, a do-nothing widget
(the same slider, whose callback sends one of two ready-made light pictures of the same size) takes turns with it.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ["attention.soft_dictionary", "attention.saturation_sliders", "counting.parameter_bill"]

CELL = """
import io
import ipywidgets as widgets
from PIL import Image
from course_lib.chapters.{chapter}.widgets import {name}
from course_lib.live.figure import light_png
live = {name}()
display(live)
plain = Image.open(io.BytesIO(light_png(live.figure)))
frames = []
for grey in (0, 255):
    plain.putpixel((0, 0), (grey,) * 3)
    buffer = io.BytesIO(); plain.save(buffer, format="png", compress_level=1); frames.append(buffer.getvalue())
slide = widgets.IntSlider(value=0, min=0, max=1000, description="nothing")
ready = widgets.Image(value=frames[0], format="png", layout=widgets.Layout(width="100px", height="50px"))
slide.observe(lambda change: setattr(ready, "value", frames[change.new % 2]), names="value")
nothing = widgets.VBox([slide, ready]); nothing.add_class("nothing")
display(nothing)
"""


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def jupyter(folder: str, python: str):
    """A JupyterLab of this environment in a folder, as long as the block lasts: gives its address."""
    port, token = _free_port(), "measured"
    command = [python, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}", "--port-retries=0"]
    command += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, **quiet)
    try:
        for _ in range(120):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={token}")
                break
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/lab/tree/{{}}?reset&token={token}"
    finally:
        server.terminate()
        server.wait()


def _hold(page, box: str, presses: int, every_ms: float) -> tuple[list[float], int]:
    """Press a key again and again: (ms from each picture's last key before it, pictures seen)."""
    handle = page.locator(f"{box} [role=slider]").first
    handle.focus()
    page.evaluate("(box) => { const s = window.seen[box]; s.keys = []; s.loads = []; window.now_box = box; }", box)
    for i in range(presses):
        page.keyboard.press("ArrowRight" if i % 20 < 10 else "ArrowLeft")
        if every_ms:
            page.wait_for_timeout(every_ms)
        else:  # each key waits for its own picture, so that a slow one is not counted from the key after it
            with contextlib.suppress(Exception):  # a key at the end of a slider brings no picture
                page.wait_for_function(f"window.seen['{box}'].loads.length > {i}", timeout=1000)
            page.wait_for_timeout(50)
    page.wait_for_timeout(150)  # less than the rest: the sharp picture is not counted
    seen = page.evaluate("(box) => window.seen[box]", box)
    page.wait_for_timeout(700)
    waits = []
    for key, following in zip(seen["keys"], [*seen["keys"][1:], float("inf")]):
        waits += [load - key for load in seen["loads"] if key <= load < following][:1]
    return waits, len(seen["loads"])


def measure_in_browser(names=FIGURES, presses: int = 8, python: str = sys.executable, chromium: str | None = None):
    """Rows of milliseconds from key press to picture, and pictures while a key is held, for figures and for nothing."""
    from playwright.sync_api import sync_playwright

    rows = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        for name in names:
            chapter, function = name.split(".")
            source = CELL.format(chapter=chapter, name=function)
            cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
            kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
            notebook = {"nbformat": 4, "nbformat_minor": 4, "metadata": kernel, "cells": [cell]}
            Path(folder, f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
        with jupyter(folder, python) as address:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            for name in names:
                rows.append({"figure": name} | _measure_page(browser, address.format(f"{name}.ipynb"), presses))
                print(json.dumps(rows[-1]), flush=True)
            browser.close()
    return rows


def _measure_page(browser, address: str, presses: int) -> dict:
    page = browser.new_page(viewport={"width": 1200, "height": 1400})
    page.goto(address)
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
    page.wait_for_timeout(3000)
    for dialog in page.locator(".jp-Dialog .jp-mod-accept").all():
        dialog.click()
    page.locator(".jp-Notebook .jp-Cell .cm-content").first.click()
    page.keyboard.press("Shift+Enter")
    page.locator(".nothing img").wait_for(timeout=60_000)
    page.locator(".course-live img").first.wait_for(timeout=60_000)
    page.wait_for_timeout(1500)
    page.evaluate(
        """() => {
          window.seen = {};
          for (const box of [".course-live", ".nothing"]) {
            const one = window.seen[box] = {keys: [], loads: []};
            document.querySelector(box + " img").addEventListener("load", () => one.loads.push(performance.now()));
          }
          addEventListener("keydown", () => {
            if (window.now_box) window.seen[window.now_box].keys.push(performance.now());
          }, true);
        }"""
    )
    row = {}
    single, held = {".course-live": [], ".nothing": []}, {".course-live": 0, ".nothing": 0}
    for _ in range(3):  # they take turns, so that both meet the same machine
        for box in single:
            single[box] += _hold(page, box, presses, 0)[0]
            held[box] += _hold(page, box, 2 * presses, 33)[1]
    ours, nothing = (statistics.median(single[box]) for box in single)
    row |= {"ours_ms": round(ours, 1), "nothing_ms": round(nothing, 1), "ratio": round(ours / nothing, 2)}
    row |= {"held": held[".course-live"], "held_nothing": held[".nothing"]}
    row["frames_share"] = round(held[".course-live"] / max(1, held[".nothing"]), 2)
    page.close()
    return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", default=FIGURES)
    parser.add_argument("--chromium", help="the path of a Chromium, instead of playwright's own")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs JupyterLab")
    given = parser.parse_args()
    measure_in_browser(given.figures, python=given.python, chromium=given.chromium)
