"""A JupyterLab with a browser: a copy of the notebooks, and pages to open them in."""

import contextlib
import json
import os
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from course_lib.cli import start
from course_lib.live.page import VIEW
from tests.live_in_browser import ROOT, jupyter

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
KERNELS = "@jupyterlab/apputils-extension:kernels-settings"
BY_START = json.loads((start.SETTINGS / "labconfig" / "default_setting_overrides.json").read_text(encoding="utf-8"))
SETTINGS = {  # all cells stay on the page, and nothing asks or is fetched
    KERNELS: BY_START[KERNELS],
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}
# Cells that several files of tests run.
FIGURE = "from course_lib.chapters.attention.widgets import soft_dictionary\nsoft_dictionary()"
GUESS = 'from course_lib.live import guess, show\nguess("attention.sharpness")'
PICTURE = """from course_lib.live.drawing import new_figure
figure, axes = new_figure(5, 2)
show(figure, alt="Two empty axes, from zero to one.")"""
IDLE = """() => document.querySelector(".jp-Notebook-ExecutionIndicator")?.dataset.status == "idle"
    && ![...document.querySelectorAll(".jp-InputPrompt")].some((prompt) => prompt.textContent.includes("*"))"""

# Each of a saved page's widgets is looked for in the kernel for two seconds, and is then there or lost.
LOOKED_FOR = """(expected) => {
    const places = [...document.querySelectorAll(".jp-OutputArea-child > .lm-Panel.jp-OutputArea-output")];
    return places.length >= expected && !places.some((place) => place.textContent == "Loading widget...");
}"""

# A cell that runs shows a star in place of its number. Looked for from before the run: a quick one is over in a moment.
WATCH = """() => {
    window.started = false;
    const watch = new MutationObserver(() => {
        if ([...document.querySelectorAll(".jp-InputPrompt")].some((prompt) => prompt.textContent.includes("*"))) {
            window.started = true;
            watch.disconnect();
        }
    });
    watch.observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


class Lab:
    """A JupyterLab with a browser. `folder` holds a copy of the notebooks and the learner's record."""

    def __init__(self, folder: Path, address: str, browser):
        self.folder, self._address, self._browser = folder, address, browser
        for name, setting in SETTINGS.items():
            self.set(name, **setting)

    def ask(self, path: str, method: str = "GET", data=None):
        """Return what the server answers, or None."""
        server, token = self._address.partition("/lab/")[0], self._address.rpartition("token=")[2]
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"{server}{path}?token={token}", data=body, method=method)
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def set(self, name: str, **setting) -> None:
        """Change a setting of JupyterLab, for pages that are opened from now on."""
        self.ask(f"/lab/api/settings/{name}", "PUT", {"raw": json.dumps(setting)})

    def write(self, name: str, *sources: str) -> str:
        """Write a notebook of code cells that were never run, and return its name."""
        cells = [
            {"cell_type": "code", "id": f"cell-{i}", "source": source, "metadata": {}, "outputs": []}
            | {"execution_count": None}
            for i, source in enumerate(sources)
        ]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}
        (self.folder / name).write_text(json.dumps(notebook), encoding="utf-8")
        return name

    def open(self, name: str, width: int = 1280, height: int = 720, wrong: list[str] | None = None):
        """Return a page that shows a notebook with a kernel that is ready. What the browser complains of, from the
        first moment on, is added to `wrong`."""
        page = self.blank(width, height)
        if wrong is not None:
            listen(page, wrong)
        # A notebook calls itself idle before it has a kernel, too, and who runs a cell then is asked to select one.
        with page.expect_websocket(lambda socket: "/api/kernels/" in socket.url):
            page.goto(self._address.format(name))
        page.wait_for_function(IDLE, timeout=60_000)
        cells = json.loads((self.folder / name).read_text(encoding="utf-8"))["cells"]
        widgets = sum(VIEW in output.get("data", {}) for cell in cells for output in cell.get("outputs", []))
        page.wait_for_function(LOOKED_FOR, arg=widgets)
        return page

    def blank(self, width: int = 1280, height: int = 720):
        """Return an empty page."""
        page = self._browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(60_000)
        return page

    def run(self, page) -> None:
        """Run all cells, and wait until the last has run."""
        run_all(page)

    def save(self, page) -> dict:
        """Save as a learner does, and return what stands in the file."""
        save(page)
        name = page.url.partition("/tree/")[2].partition("?")[0]
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def stop_kernels(self) -> None:
        """Shut all kernels down, as the end of a day does."""
        for session in self.ask("/api/sessions"):
            self.ask(f"/api/sessions/{session['id']}", "DELETE")


def listen(page, wrong: list[str]) -> None:
    """Add to `wrong` what the console of a page complains of, and what is asked of any other server."""

    def asked(url: str) -> None:
        home = page.url.split("/lab")[0]
        if home.startswith("http") and not url.startswith((home, "ws" + home.removeprefix("http"), "data:", "blob:")):
            wrong.append(f"asked of outside: {url}")

    def said(message) -> None:
        if message.type in ("error", "warning"):
            wrong.append(f"the browser says: {message.text[:200]}")

    page.on("console", said)
    page.on("pageerror", lambda error: wrong.append(f"a script failed: {str(error)[:200]}"))
    page.on("request", lambda request: asked(request.url))


def run_all(page) -> None:
    """Run all cells, and wait until the last has run."""
    from playwright.sync_api import TimeoutError

    for last_try in (False, False, False, True):  # on a busy machine the menu may close before it is chosen from
        page.evaluate(WATCH)
        if said := page.locator(".jp-Dialog-content").all_inner_texts():
            raise RuntimeError(f"no cell can be run behind a dialog of JupyterLab: {said}")
        page.locator(".jp-InputPrompt").first.click()  # the menu is for the notebook that has the focus
        menu(page, "Run", "Run All Cells")
        try:
            page.wait_for_function("window.started", timeout=60_000 if last_try else 10_000)
            break
        except TimeoutError:
            if last_try:
                raise
    page.wait_for_function(IDLE, timeout=120_000)


def save(page) -> None:
    """Save a notebook as a learner does, and wait until the server has it."""
    with page.expect_response(lambda answer: answer.request.method == "PUT" and "/api/contents/" in answer.url):
        menu(page, "File", "Save Notebook")


def menu(page, *path: str) -> None:
    """Choose from JupyterLab's menus: the menu's name, then what an item begins with."""
    page.locator(".lm-MenuBar-itemLabel", has_text=path[0]).first.click()
    page.locator(".lm-Menu-itemLabel").filter(has_text=path[1]).first.click()


def chromium() -> str | None:
    """The path of a Chromium that is here, if there is one."""
    return next(filter(None, map(shutil.which, CHROMIUMS)), None)


@contextlib.contextmanager
def open_lab(folder: Path) -> Iterator[Lab]:
    """A JupyterLab over a copy of the notebooks in `folder`. Its settings and its record are its own."""
    from playwright.sync_api import sync_playwright

    for path in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy(path, folder)
    with (
        mock.patch.dict(os.environ, own_places(folder)),
        jupyter(str(folder), sys.executable) as address,
        sync_playwright() as play,
    ):
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        lab = Lab(folder, address, browser)
        yield lab
        lab.stop_kernels()
        browser.close()


def own_places(folder: Path) -> dict[str, str]:
    """What keeps a JupyterLab away from the record and the settings of whoever runs the tests."""
    places = {"JUPYTER_CONFIG_DIR": "config", "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTER_RUNTIME_DIR": "runtime"}
    places |= {"JUPYTERLAB_WORKSPACES_DIR": "workspaces", "JUPYTER_DATA_DIR": "data", "IPYTHONDIR": "ipython"}
    away = folder.parent / f"{folder.name}-lab"
    away.mkdir()
    return {name: str(away / place) for name, place in places.items()} | {
        "COURSE_PROGRESS": str(away / "progress.json")
    }
