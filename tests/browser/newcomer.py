"""A newcomer: opens a chapter, runs it, tries each control of each live figure from end to end by keyboard and mouse,
looks whether picture and words follow, saves, and opens it again with a new kernel.

    python -m tests.browser.newcomer [NOTEBOOK ...]

prints a row per notebook, and what is wrong below it. All notebooks take about ten minutes; the proofs visit a few.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import nbformat

from course_lib.course.contents import CHAPTERS
from tests.browser.axe import OURS, findings
from tests.browser.lab import Lab, open_lab

FIGURES = ".course-live:has(img.widget-image):visible"
ERROR = "Error displaying widget"
PANE, HEIGHT = 848, 560  # pixels: what a live figure may take at a window of 1280
LOOKS = "(live) => live.querySelector('img.widget-image').src + live.innerText"
CHANGED = "([live, before]) => live.querySelector('img.widget-image').src + live.innerText !== before"
SIZE = """(live) => { const box = live.getBoundingClientRect();
    return [box.width, box.height, live.scrollWidth - live.clientWidth]; }"""


@dataclass
class Visit:
    """What one chapter gave. moves: how many times something was set; wrong: a sentence for each thing that failed."""

    notebook: str
    figures: int = 0
    controls: int = 0
    moves: int = 0
    seconds_to_run: float = 0.0
    answers: list[float] = field(default_factory=list)  # ms from a key to the new picture or words
    wrong: list[str] = field(default_factory=list)

    def row(self) -> str:
        """The line of the table."""
        middle = sorted(self.answers)[len(self.answers) // 2] if self.answers else 0
        return (
            f"{self.notebook:<26}{self.figures:>8}{self.controls:>9}{self.moves:>7}{self.seconds_to_run:>8.0f} s"
            f"{middle:>8.0f} ms{len(self.wrong):>7}"
        )


HEAD = f"{'notebook':<26}{'figures':>8}{'controls':>9}{'moves':>7}{'ran in':>10}{'answers':>11}{'wrong':>7}"


def visit(lab: Lab, name: str) -> Visit:
    """Open a notebook of the lab, and do with it what a newcomer would."""
    seen = Visit(name)
    page = lab.open(name, height=900, wrong=seen.wrong)
    began = time.monotonic()
    lab.run(page)
    seen.seconds_to_run = time.monotonic() - began
    source = nbformat.read(lab.folder / name, as_version=4)
    expected = sum("raises-exception" in cell.metadata.get("tags", []) for cell in source.cells)
    errors = page.locator('[data-mime-type="application/vnd.jupyter.error"]').count()
    if errors > expected:
        seen.wrong.append(f"{errors} cells show an error, {expected} are meant to")
    for live in page.locator(FIGURES).all():
        _try(page, live, seen)
    seen.wrong += [f"axe says: {each}" for each in findings(page, OURS)]
    pictures = page.locator("img:visible").count()
    lab.save(page)
    page.close()
    lab.stop_kernels()
    page = lab.open(name, height=900, wrong=seen.wrong)
    if page.get_by_text(ERROR).locator("visible=true").count():
        seen.wrong.append(f"opened again it says: {ERROR}")
    again = page.locator("img:visible")
    again.first.wait_for()
    if again.count() < pictures:
        seen.wrong.append(f"opened again it shows {again.count()} pictures of {pictures}")
    page.close()
    lab.stop_kernels()
    return seen


def _try(page, live, seen: Visit) -> None:
    """Move every control of a figure, and look at its size."""
    live.scroll_into_view_if_needed()
    seen.figures += 1
    where = f"figure {seen.figures}"
    wide, high, hidden = live.evaluate(SIZE)
    if wide > PANE or high > HEIGHT or hidden > 1:
        seen.wrong.append(f"{where} takes {wide:.0f} × {high:.0f} px, {hidden} of them cut off")
    for slider in live.locator("[role=slider]").all():
        ways: dict[str, Callable] = {key: partial(slider.press, key) for key in ("End", "Home", "ArrowRight")}
        track = slider.locator("xpath=ancestor::*[contains(@class, 'noUi-target')]").bounding_box()
        at = track["x"] + 0.6 * track["width"], track["y"] + track["height"] / 2
        ways["a click"] = partial(page.mouse.click, *at)
        _moves(page, live, slider, "(it) => it.getAttribute('aria-valuenow')", ways, where, seen)
    for choice in live.locator("select").all():
        last = choice.evaluate("(it) => it.options.length - 1")
        ways = {f"option {i}": partial(choice.select_option, index=i) for i in (last, 0)}
        _moves(page, live, choice, "(it) => it.selectedIndex", ways, where, seen)
    for tick in live.locator("input[type=checkbox]").all():
        ways = {"the space bar": partial(tick.press, "Space"), "a click": tick.click}
        _moves(page, live, tick, "(it) => it.checked", ways, where, seen)
    if live.get_by_text("This setting did not work").count():
        seen.wrong.append(f"{where}: a setting did not work")


def _moves(page, live, control, value: str, ways, where: str, seen: Visit) -> None:
    """Set a control in each of several ways; a way that changes its value must change the figure."""
    seen.controls += 1
    name = control.get_attribute("aria-label") or ""
    if not name and control.evaluate("(it) => !it.labels?.length"):
        seen.wrong.append(f"{where}: a control has no name")
    for way, act in ways.items():
        before, old = live.evaluate(LOOKS), control.evaluate(value)
        began = time.monotonic()
        act()
        if control.evaluate(value) == old:
            continue  # it stood at this end
        seen.moves += 1
        try:
            page.wait_for_function(CHANGED, arg=[live.element_handle(), before], timeout=8_000, polling=5)
            seen.answers.append(1000 * (time.monotonic() - began))
        except Exception as error:  # playwright's own, which is not imported where it is missing
            if "Timeout" not in type(error).__name__:
                raise
            seen.wrong.append(f"{where}: {way} on “{name}” changes neither picture nor words")


def main() -> int:
    """Visit notebooks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", default=[chapter.notebook for chapter in CHAPTERS])
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, open_lab(Path(folder)) as lab:
        print(HEAD, flush=True)
        for name in parser.parse_args().notebooks:
            seen = visit(lab, name)
            print(seen.row(), *(f"    {sentence}" for sentence in seen.wrong), sep="\n", flush=True)
            wrong += len(seen.wrong)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
