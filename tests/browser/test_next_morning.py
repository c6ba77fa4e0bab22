"""What a learner finds in JupyterLab before the first run and the next morning: stills, a new kernel, a lost one."""

import json
import os
import signal

import psutil
import pytest

from course_lib.course.glossary import glossary
from tests.browser.lab import FIGURE, GUESS, PICTURE, SETTINGS
from tests.live_in_browser import ROOT

STATE = "application/vnd.jupyter.widget-state+json"  # where ipywidgets look for widgets of an earlier kernel
GLASS = "from course_lib.live.glass import glass\nglass()"
THREAD = """import threading, ipywidgets
slider, said = ipywidgets.IntSlider(), ipywidgets.Label()
names = set()
def moved(change):
    names.add(threading.current_thread().name)
    said.value = f"{change.new} moves in " + ", ".join(sorted(names))
slider.observe(moved, "value")
ipywidgets.VBox([slider, said])"""
LEFT = "paul gave emma a yellow"  # what the learner leaves in it
ERROR = "Error displaying widget"
SHOWN = "(found) => found.map((element) => element.getBoundingClientRect().height > 0)"
ASLEEP = """() => [...document.querySelectorAll(".jp-OutputArea-child")].filter(
    (output) => getComputedStyle(output, "::before").content.includes("earlier session")).length"""
TRACKER = "@jupyterlab/notebook-extension:tracker"
IN_VIEW = """(term) => [...document.querySelectorAll(".jp-Notebook strong")].some((element) =>
    element.textContent == term && element.getBoundingClientRect().top > 0
    && element.getBoundingClientRect().bottom < innerHeight)"""
LOST = """(found) => found.map((element) => getComputedStyle(element, "::before").content)"""


def lost(page) -> list[bool]:
    """Whether each living widget of the page says that its kernel is gone."""
    return ["kernel" in said for said in page.locator(".course-live").evaluate_all(LOST)]


# ------------------------------------------------------------------------------------------------- before the first run
def test_a_still_says_how_it_comes_to_life_until_its_cell_has_run(lab):
    pristine = ROOT / "notebooks" / "02_attention.ipynb"  # that of the lab may have been run and saved
    book = json.loads(pristine.read_text(encoding="utf-8"))
    alive = ("soft_dictionary()", 'guess("attention.sharpness")')
    first, *_ = (cell for cell in book["cells"] if cell["cell_type"] == "code")
    cells = [cell for cell in book["cells"] if "".join(cell["source"]) in alive]
    (lab.folder / "asleep.ipynb").write_text(json.dumps(book | {"cells": [first, *cells]}), encoding="utf-8")
    page = lab.open("asleep.ipynb")
    asleep = page.get_by_text("To bring this to life, run the cells above, then this one")
    asleep.nth(1).wait_for()
    assert asleep.evaluate_all(SHOWN) == [True, True]
    lab.run(page)
    page.locator(".course-live img").wait_for()
    assert not any(asleep.evaluate_all(SHOWN))
    lab.save(page)
    page.close()
    lab.stop_kernels()
    page = lab.open("asleep.ipynb")
    assert page.evaluate(ASLEEP) == 2
    twice = page.get_by_text("To bring this to life").evaluate_all(SHOWN)
    assert not any(twice), "the page says it once"
    page.close()


# ------------------------------------------------------------------------------------------------- the next morning
def test_the_glossary_leads_to_the_cell_that_defines_a_term(lab):
    (lab.folder / "glossary.md").write_text(glossary(lab.folder), encoding="utf-8")
    lab.set(TRACKER)  # JupyterLab's own way of loading cells: with all of them on the page it leads nowhere
    page = lab.blank()
    page.goto(lab._address.format("00_start_here.ipynb"))
    page.locator(".jp-RenderedMarkdown a", has_text="glossary").first.click()
    page.locator("tr", has=page.locator("strong", has_text="saturated")).locator("a").click()
    page.locator(".jp-RenderedMarkdown strong:visible", has_text="saturated").wait_for()
    page.wait_for_function(IN_VIEW, arg="saturated")
    page.close()
    lab.set(TRACKER, **SETTINGS[TRACKER])


@pytest.mark.parametrize("state", [False, True], ids=["without-state", "with-state"])
def test_a_saved_page_is_complete_with_a_new_kernel(lab, state):
    lab.set("@jupyter-widgets/jupyterlab-manager:plugin", saveState=state)
    name = lab.write(f"morning_{state}.ipynb", FIGURE, GUESS, PICTURE, GLASS)
    page = lab.open(name)
    lab.run(page)
    asked = page.locator(".course-live", has_text="Commit")
    if not asked.locator("input[type=radio]").first.is_disabled():
        asked.locator("input[type=radio]").nth(1).check()
        asked.get_by_role("button", name="70%").click()
        asked.get_by_role("button", name="Commit").click()
    asked.get_by_text("Kept: ").wait_for()
    page.locator(".glass input[type=text]").fill("paul gave emma a yellow dragon")
    page.get_by_role("button", name="Maps").click()
    page.locator('.glass [data-part="1.head.2"]').click()
    page.locator(f'img[alt*="{LEFT}"]').wait_for(state="attached")
    assert ("ImageModel" in json.dumps(lab.save(page)["metadata"])) == state
    page.close()
    lab.stop_kernels()

    wrong: list[str] = []
    page = lab.open(name, wrong=wrong)
    page.get_by_text("Kept: ").locator("visible=true").first.wait_for()
    assert not any(page.get_by_text(ERROR).evaluate_all(SHOWN))
    figure, picture, *of_the_model = page.locator("img:visible").all()
    assert "answer 18.6 °C" in figure.get_attribute("alt")
    assert picture.get_attribute("alt") == "Two empty axes, from zero to one."
    alts = [image.get_attribute("alt") for image in of_the_model]
    if state:
        assert not alts, "the model itself is there"
        page.locator(".glass .panel", has_text="Layer 1, head 2").wait_for()
        assert page.locator(".glass input[type=text]").input_value() == LEFT
    else:
        assert len(alts) == 1
        assert alts[0].startswith(f"“{LEFT}” … the next word: "), "the text that was left, as far as the model knows it"
        assert "Layer 1, head 2: “yellow” looks most at" in alts[0]
    assert all(image.evaluate("(image) => image.naturalWidth") > 0 for image in (figure, picture, *of_the_model))
    assert page.get_by_text("answer 18.6 °C").locator("visible=true").count() == 1
    if state:
        assert lost(page) == 3 * [True], "what was brought back from its state says that nobody answers"
    else:
        assert page.evaluate(ASLEEP) == 3
        lab.run(page)
        kept = page.locator(".course-live", has_text="Commit")
        kept.get_by_text("Kept: ").wait_for()
        assert kept.locator("input:checked").is_disabled(), "the record brings the guess back"
        assert not any(lost(page))
    assert wrong == [], "the browser's console is silent"
    page.close()
    lab.set("@jupyter-widgets/jupyterlab-manager:plugin", saveState=False)


def test_a_page_that_is_opened_again_takes_its_widgets_from_the_kernel_that_still_has_them(lab):
    name = lab.write("again.ipynb", FIGURE, GUESS)
    page = lab.open(name)
    lab.run(page)
    for _ in range(2):
        assert len(lab.save(page)["metadata"]["widgets"][STATE]["state"]) == 2
        page.close()
        page = lab.open(name)
        assert page.locator(".course-live:visible").count() == 2
        assert page.evaluate(ASLEEP) == 0
        before = page.locator(".course-live img").get_attribute("src")
        page.locator("[role=slider]").first.press("ArrowRight")
        page.wait_for_function("(old) => document.querySelector('.course-live img').src != old", arg=before)
        lab.run(page)
    page.close()


def test_a_control_never_works_beside_a_cell_or_another_control(lab):
    """In two threads they would draw from one generator, and no seed would hold."""
    page = lab.open(lab.write("threads.ipynb", THREAD))
    lab.run(page)
    for moves in range(1, 5):
        page.locator("[role=slider]").first.press("ArrowRight")
        page.locator(".widget-label", has_text=f"{moves} moves in ").wait_for()
    assert page.locator(".widget-label", has_text="moves in ").inner_text() == "4 moves in MainThread"
    page.close()


def test_a_kernel_that_died_or_was_shut_down_is_said(lab):
    lab.stop_kernels()
    page = lab.open(lab.write("lost.ipynb", FIGURE))
    for end in ("killed", "shut down"):
        lab.run(page)
        page.locator(".course-live img").wait_for()
        assert lost(page) == [False]
        if end == "killed":
            (kernel,) = (each["kernel"]["id"] for each in lab.ask("/api/sessions") if each["path"] == "lost.ipynb")
            os.kill(process_of(kernel), signal.SIGKILL)
            page.locator(".jp-Dialog .jp-mod-accept").click()  # "appears to have died. It will restart automatically."
        else:
            page.locator(".lm-MenuBar-itemLabel", has_text="Kernel").first.click()
            page.locator(".lm-Menu-itemLabel", has_text="Shut Down Kernel").first.click()
        page.wait_for_function(
            "getComputedStyle(document.querySelector('.course-live'), '::before').content.includes('kernel')"
        )
    page.close()


def process_of(kernel: str) -> int:
    """The process that a kernel of this id runs in."""
    for each in psutil.process_iter(["pid", "cmdline"]):
        if any(f"kernel-{kernel}.json" in word for word in each.info["cmdline"] or ()):
            return each.info["pid"]
    raise LookupError(f"no process runs the kernel {kernel}")
