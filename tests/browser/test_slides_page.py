"""The slides of a chapter in a browser: each fits, keys turn them, what is live lives, the presenter sees the notes."""

import re
from pathlib import Path

import pytest

from course_lib.course.contents import BY_SLUG
from course_lib.site.slides import slides
from tests.browser.axe import findings

ROOT = Path(__file__).parent.parent.parent
INSIDE = """() => {
    const slide = Reveal.getCurrentSlide(), frame = slide.getBoundingClientRect(), small = [], outside = [];
    for (const part of slide.querySelectorAll(".body, .body *:not(mjx-container *):not(option)")) {
        const box = part.getBoundingClientRect();
        if (!box.width || part.closest("mjx-assistive-mml")) continue;
        const beyond = box.right > frame.right + 1 || box.bottom > frame.bottom + 1 || box.left < frame.left - 1;
        if (beyond) outside.push(part.outerHTML);
        const words = [...part.childNodes].some((node) => node.nodeType == 3 && node.textContent.trim());
        if (words && parseFloat(getComputedStyle(part).fontSize) < 14) small.push(part.outerHTML);
    }
    const body = slide.querySelector(".body");
    const over = body.scrollHeight > body.clientHeight + 1 || body.scrollWidth > body.clientWidth + 1;
    return [over, outside.map((text) => text.slice(0, 80)), small.map((text) => text.slice(0, 80))];
}"""


@pytest.fixture(scope="module")
def page(lab):
    """The slides of chapter 2, with all that the browser says against them."""
    path = lab.folder / "slides.html"
    path.write_text(slides(ROOT, BY_SLUG["attention"]), encoding="utf-8")
    page = lab.blank()
    page.said = []
    page.on("console", lambda message: message.type == "error" and page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda asked: page.said.append(asked.url) if asked.url.startswith("http") else None)
    page.goto(path.as_uri())
    page.locator("html[data-ready]").wait_for()
    yield page
    assert page.said == []
    page.close()


def go(page, selector):
    """Show the first slide that holds something."""
    page.evaluate(
        """(selector) => {
            document.activeElement.blur();
            const slides = [...document.querySelectorAll(".slides > section")];
            Reveal.slide(slides.findIndex((slide) => slide.querySelector(selector)), 0, -1);
        }""",
        selector,
    )
    return page.locator("section.present")


def number(page):
    return page.evaluate("Reveal.getIndices().h")


def test_every_slide_fits_with_all_that_a_key_unfolds_in_type_that_can_be_read(page):
    count = page.locator(".slides > section").count()
    assert count > 40
    for index in range(count):
        page.evaluate(
            "(i) => { Reveal.slide(i); while (Reveal.availableFragments().next) Reveal.nextFragment(); }", index
        )
        assert page.evaluate(INSIDE) == [False, [], []], f"slide {index + 1}"
    assert page.locator("mjx-container").count() >= 3
    assert page.locator("mjx-merror").count() == 0


@pytest.mark.parametrize("selector", ["ul", ".right", "figure.states", "blockquote", "pre.output", ".formula"])
def test_nothing_on_it_keeps_anybody_out(page, selector):
    go(page, selector)
    page.evaluate("() => { while (Reveal.availableFragments().next) Reveal.nextFragment(); }")
    assert findings(page, "section.present") == []


def test_keys_turn_the_slides_and_unfold_an_answer(page):
    page.keyboard.press("Home")
    assert number(page) == 0
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert number(page) == 2
    page.keyboard.press("ArrowLeft")
    assert number(page) == 1
    page.keyboard.press("End")
    assert number(page) == page.locator(".slides > section").count() - 1
    slide = go(page, ".right")
    before = number(page)
    answer, mark = slide.locator(".answer"), "(row) => getComputedStyle(row).backgroundColor"
    unmarked = slide.locator(".right").evaluate(mark)
    assert answer.evaluate("(box) => getComputedStyle(box).visibility") == "hidden"
    page.keyboard.press("Space")
    assert number(page) == before
    assert answer.evaluate("(box) => getComputedStyle(box).visibility") == "visible"
    assert slide.locator(".right").evaluate(mark) != unmarked


def test_a_slider_walks_recorded_figures_and_page_down_leaves_it(page):
    slide = go(page, "figure.states")
    before, control = number(page), slide.get_by_role("slider")
    control.focus()
    seen = set()
    for key in ("Home", "ArrowRight", "End"):
        page.keyboard.press(key)
        seen.add((slide.locator("img").get_attribute("src"), slide.locator("figcaption").inner_text()))
        assert number(page) == before
    assert len(seen) == 3
    assert all(src.startswith("data:image/webp") for src, _ in seen)
    page.keyboard.press("PageDown")
    assert number(page) == before + 1


def test_the_glass_model_lives_and_page_up_leaves_it(page):
    slide = go(page, "iframe.glass")
    before = number(page)
    glass = slide.frame_locator("iframe.glass")
    assert glass.locator(".bar span").first.inner_text() == "dog"
    assert "Layer 2, head 3" in glass.locator(".panel").inner_text()
    glass.locator("input[type=text]").fill("the cat")
    page.keyboard.press("ArrowLeft")
    assert number(page) == before
    assert glass.locator(".chips button").all_inner_texts() == ["<bos>", "the", "cat"]
    page.keyboard.press("PageUp")
    page.wait_for_function("(before) => Reveal.getIndices().h == before - 1", arg=before)


def test_the_presenter_sees_the_notes_of_the_section_and_a_clock(page):
    go(page, ".right")
    with page.expect_popup() as opened:
        page.keyboard.press("p")
    presenter = opened.value
    part = page.locator("section.present").get_attribute("data-part")
    assert part in presenter.locator("#where").inner_text()
    assert "they guess:" in presenter.locator("#note").inner_text()
    assert re.match(r"\d?\d:\d\d", presenter.locator("#clock").inner_text())
    assert "0:" in presenter.locator("#passed").inner_text()
    before = number(page)
    presenter.keyboard.press("PageDown")
    presenter.keyboard.press("PageDown")
    presenter.keyboard.press("PageDown")
    assert number(page) > before
    page.keyboard.press("End")
    assert presenter.locator("#where").inner_text().endswith("Summary")
    assert presenter.locator("#next").inner_text() == "the end"
    presenter.close()


def test_f_fills_the_screen(page):
    page.keyboard.press("f")
    page.wait_for_function("document.fullscreenElement")
    page.evaluate("document.exitFullscreen()")


def test_in_print_each_slide_has_a_page_with_its_answer(page):
    page.keyboard.press("Home")
    page.emulate_media(media="print")
    printed = page.pdf(prefer_css_page_size=True, print_background=True)
    page.emulate_media(media="screen")
    count = page.locator(".slides > section").count()
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == count
    assert re.search(rb"/MediaBox\s*\[0 0 960 540\]", printed), "1280 × 720 pixels are 960 × 540 points"
