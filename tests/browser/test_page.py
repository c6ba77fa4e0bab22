"""What a learner meets in JupyterLab: the keyboard, names, sizes, a narrow window. See also test_next_morning.py."""

import json

import pytest

from course_lib.live.beginning import where_you_were
from tests.browser.axe import OURS, findings
from tests.browser.lab import FIGURE, GUESS, PICTURE

NUMBER = 'guess("attention.rung")'
BOX = """from course_lib.chapters.embeddings.tokenizer_box import TokenizerBox
from course_lib.tinytown import BytePairTokenizer, WordTokenizer
TokenizerBox(WordTokenizer(), {300: BytePairTokenizer.train("the dog", 300)}, "the dog", 300)"""
PLAY = """import ipywidgets
from course_lib.live.page import publish
publish(ipywidgets.VBox([ipywidgets.Play()]), "", "");"""
CLAIM = """from course_lib.claims import recorded, settle
settle("attention.one_matrix", findings=recorded())"""


@pytest.fixture(scope="module")
def page(lab):
    """A page on which a figure, two guesses, a picture, the tokenizer box and what plays have been run."""
    page = lab.open(lab.write("day.ipynb", FIGURE, GUESS, NUMBER, PICTURE, BOX, PLAY))
    lab.run(page)
    page.locator(".course-live img").wait_for()
    yield page
    page.close()


def test_code_of_the_library_breaks_between_words_and_a_tab_of_exercises_says_so(lab):
    code = (
        "from course_lib.embeddings import TokenEmbedding\nfrom course_lib.live import source\nsource(TokenEmbedding)"
    )
    (lab.folder / "exercises").mkdir(exist_ok=True)
    page = lab.open(lab.write("exercises/source.ipynb", GUESS, code))
    lab.run(page)
    shown = page.locator(".jp-OutputArea .jp-RenderedMarkdown pre code")
    shown.wait_for()
    assert shown.evaluate("(code) => getComputedStyle(code).wordBreak") == "normal"
    before = "(label) => getComputedStyle(label, '::before').content"
    assert page.locator(".lm-mod-current .lm-TabBar-tabLabel", has_text="source").evaluate(before) == '"Exercises · "'
    page.close()


def test_after_a_commit_the_next_key_runs_the_next_cell(lab):
    page = lab.open(lab.write("commit.ipynb", GUESS, "print('the next cell')"))
    lab.run(page)
    asked = page.locator(".course-live", has_text="Commit")
    asked.locator("input[type=radio]").first.click()
    asked.get_by_role("button", name="70%").click()
    asked.get_by_role("button", name="Commit").click()
    asked.get_by_text("Kept: ").wait_for()
    page.locator(".jp-OutputArea-prompt").last.wait_for()
    before = page.locator(".jp-InputPrompt").all_inner_texts()
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(
        "(before) => [...document.querySelectorAll('.jp-InputPrompt')].map((each) => each.innerText).join() != before",
        arg=",".join(before),
        timeout=10_000,
    )
    page.close()


def test_the_beginning_of_a_tall_output_comes_back_unless_the_learner_scrolls_on(lab):
    """The next cell comes into sight and stays where it is while the output grows above it, out of sight."""
    tall = "import time\nfor i in range(60):\n    print('line', i)\ntime.sleep(0.5)"
    page = lab.open(lab.write("tall.ipynb", GUESS, "#\n" * 18, tall, "#\n" * 10, "#\n" * 40))
    lab.run(page)
    cell = page.locator(".jp-CodeCell").nth(2)
    top = "(cell) => cell.querySelector('.jp-Cell-outputWrapper').getBoundingClientRect().top"
    for scrolls in (False, True):
        page.locator(".jp-WindowedPanel-outer").evaluate("(panel) => { panel.scrollTop = 50; }")
        cell.locator(".cm-content").evaluate("(code) => code.focus({preventScroll: true})")
        page.keyboard.press("Shift+Enter")
        page.wait_for_function(f"({top})(document.querySelectorAll('.jp-CodeCell')[2]) < 0")
        if scrolls:
            page.mouse.move(600, 400)
            page.mouse.wheel(0, 1)
        page.wait_for_function("!document.querySelectorAll('.jp-InputPrompt')[2].textContent.includes('*')")
        page.evaluate("new Promise((done) => setTimeout(done, 400))")  # the page waits for less
        assert (0 < cell.evaluate(top) < 300) == (not scrolls)
        assert page.locator(".jp-CodeCell.jp-mod-active").evaluate("(cell) => cell.innerText").count("#") == 10
    page.close()


# ----------------------------------------------------------------------------------------------------- the keyboard
def cells(page) -> list[str]:
    return page.locator(".jp-CodeCell .jp-InputArea-editor").all_inner_texts()


@pytest.mark.parametrize(
    "control", ["[role=slider]", ".widget-readout", "input[type=radio]", ".widget-toggle-button", "summary"]
)
def test_no_key_in_a_control_reaches_the_cells(page, control):
    before = cells(page)
    page.locator(f"{control}:visible").first.focus()
    for key in ("x", "a", "b", "d", "d", "c", "v", "m", "z", "ArrowDown", "ArrowUp", "k", "j"):
        page.keyboard.press(key)
    assert cells(page) == before
    assert page.locator(".jp-MarkdownCell").count() == 0
    assert page.evaluate("(control) => !!document.activeElement.closest('.jp-OutputArea')", control)


FOCUSED = """(live) => {
    const at = document.activeElement;
    const name = at.getAttribute("aria-label") || at.labels?.[0]?.innerText || at.innerText || "";
    return live.contains(at) ? `${at.getAttribute("role") || at.type || at.tagName}: ${name.trim()}` : "";
}"""
CONTROLS = "[role=slider], .widget-readout, input, select, button"


@pytest.mark.parametrize("figure", ["sharpness", "also knows the positions"])  # a guess that no other test commits
def test_tab_alone_reaches_every_control_of_a_figure_and_leaves_it(page, figure):
    live = page.locator(".course-live", has_text=figure).first
    live.locator(CONTROLS).first.focus()
    reached = [live.evaluate(FOCUSED)]
    while reached[-1] and len(reached) < 20:
        page.keyboard.press("Tab")
        reached.append(live.evaluate(FOCUSED))
    assert reached[-1] == "", f"the focus never leaves: {reached}"
    enabled = live.locator(CONTROLS).evaluate_all("(found) => found.filter((each) => !each.disabled).length")
    assert len(set(reached[:-1])) == len(reached) - 1 == enabled > 1


def test_a_key_outside_of_controls_is_still_a_command(page):
    before = cells(page)
    page.locator(".jp-InputPrompt").first.click()
    page.keyboard.press("b")
    assert len(cells(page)) == len(before) + 1
    page.keyboard.press("d")
    page.keyboard.press("d")
    assert cells(page) == before


# ------------------------------------------------------------------------------------------------ names and pictures
def test_every_control_has_a_name_and_every_picture_its_words(page):
    page.wait_for_function("!document.querySelector('.course-live:not([role])')")
    unnamed = """(found) => found.filter((control) => !(control.getAttribute("aria-label") || control.textContent.trim()
        || control.labels?.length && [...control.labels].some((label) => label.textContent.trim())))
        .map((control) => control.outerHTML)"""
    controls = ".course-live :is(input, select, textarea, button, [role=slider], [contenteditable])"
    assert page.locator(controls).count() > 10
    assert page.locator(controls).evaluate_all(unnamed) == []
    assert page.locator("label[title=null]").count() == 0
    pictures = ".jp-OutputArea :is(figure, [role=figure]) img"
    assert page.locator(pictures).count() == page.locator(".jp-OutputArea img").count() >= 2
    assert all(page.locator(pictures).evaluate_all("(found) => found.map((image) => image.alt.split(' ').length > 4)"))
    sure = page.locator(".widget-toggle-button")
    if sure.first.is_enabled():
        sure.first.click()
        page.wait_for_function("document.querySelector('.widget-toggle-button').ariaPressed == 'true'")
    assert sure.evaluate_all("(found) => found.filter((button) => button.ariaPressed == 'true').length") == 1


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_axe_finds_nothing_grave_in_what_the_course_shows(lab, theme):
    lab.set("@jupyterlab/apputils-extension:themes", theme=theme)
    page = lab.open(lab.write(f"axe_{theme[-4:].strip()}.ipynb", FIGURE, GUESS, NUMBER, PICTURE, BOX, PLAY, CLAIM))
    lab.run(page)
    page.locator(".course-live img").wait_for()
    assert page.evaluate("document.body.dataset.jpThemeName") == theme
    assert findings(page, OURS) == []
    page.close()
    lab.set("@jupyterlab/apputils-extension:themes", theme="JupyterLab Light")


# ------------------------------------------------------------------------------------------------------------- sizes
SIZES = """(found) => found.map((live) => {
    const pane = live.closest(".jp-OutputArea-output").getBoundingClientRect(), box = live.getBoundingClientRect();
    const parts = [...live.querySelectorAll(`.jupyter-widgets:not(.widget-image)${innerWidth > 600 ? ", img" : ""}`)];
    const inside = parts.map((part) => part.getBoundingClientRect().right);
    return [box.width, box.height, Math.max(...inside) - pane.right];
})"""
LARGEST = [  # of all live figures, those that need most room: in height, in controls, in the width of a control
    "counting.parameter_bill", "feed_forward.unit_map", "blocks.stack_explorer", "positions.rotary_pair",
    "heads.shapes_and_costs", "training.schedule_sliders", "efficiency.cache_sliders",
]  # fmt: skip
BUILD = f"""from course_lib.bench.live import live_figures
for name in {LARGEST}:
    display(live_figures()[name]())"""


def test_the_largest_live_figures_fit_their_page(lab):
    page = lab.open(lab.write("sizes.ipynb", BUILD))
    lab.run(page)
    page.wait_for_function("(n) => document.querySelectorAll('.course-live img').length == n", arg=len(LARGEST))
    figures = page.locator(".course-live")
    assert all(wide <= 848 and high <= 560 and over < 1 for wide, high, over in figures.evaluate_all(SIZES))
    page.get_by_role("tab", name="File Browser").first.click()  # as on a phone: the list of files makes way
    for width in (853, 390):  # 1280 at 150%, and a phone
        resize(page, width)
        over = figures.evaluate_all(SIZES)
        assert all(out < 1 for *_, out in over), (width, over)
    page.close()


# ------------------------------------------------------------------------------------------------------------- looks
LONG = "guess('attention.below_entropy')"  # its options take two lines each on a phone
PRINTED = "print('once there was a princess called anna, who lived near a mountain ' * 4)"
CODE = """from course_lib.attention import scaled_dot_product_attention
from course_lib.live import source
source(scaled_dot_product_attention)"""
CLIMB = "from course_lib.ladder import climb\nclimb('attention')"
MAP = """from course_lib.chapters.start_here.widgets import ModelMap
from course_lib.pretrained import load_pretrained
ModelMap(*load_pretrained("tinytown"), "the dog")"""

OVERLAPPING = """(labels) => labels.flatMap((one, i) => {
    const words = document.createRange(), next = labels[i + 1]?.getBoundingClientRect().top ?? Infinity;
    words.selectNodeContents(one);
    const radio = one.querySelector("input").getBoundingClientRect(), box = words.getBoundingClientRect();
    const first = one.getBoundingClientRect();
    return box.bottom > next + 1 || radio.top > first.top + 8 || radio.left > first.left + 4 ? [one.textContent] : [];
})"""
BROKEN = r"""(texts) => texts.flatMap((text) => {
    const found = [], walk = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
    for (let node; node = walk.nextNode();) for (const word of node.data.matchAll(/[a-z]{3,}/g)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map(({top}) => Math.round(top))).size > 1) found.push(word[0]);
    }
    return found;
})"""
ASIDE = """(boxes) => boxes.filter((box) => box.scrollWidth > box.clientWidth + 1 && !box.querySelector(":scope > img"))
    .map((box) => box.className)"""
CUT = """(buttons) => buttons.filter((it) => it.scrollWidth > it.clientWidth + 1 && !it.matches(".residual-stream"))
    .map((it) => it.textContent)"""


@pytest.fixture(scope="module")
def looks(lab):
    """A page with what may look wrong on a narrow or a dark page."""
    lab.set("@jupyterlab/apputils-extension:themes", theme="JupyterLab Dark")
    page = lab.open(lab.write("looks.ipynb", GUESS, LONG, PRINTED, CODE, FIGURE, PICTURE, CLIMB, MAP))
    lab.run(page)
    page.get_by_role("tab", name="File Browser").first.click()
    yield page
    page.close()
    lab.set("@jupyterlab/apputils-extension:themes", theme="JupyterLab Light")


def resize(page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.wait_for_function("(width) => innerWidth == width", arg=width)
    page.wait_for_timeout(300)


@pytest.mark.parametrize("width", [1280, 853, 390])
def test_options_stand_one_below_the_other_beside_their_buttons(looks, width):
    resize(looks, width)
    asked = looks.locator(".widget-radio-box:visible")
    assert asked.count() == 2
    for box in asked.all():
        assert box.locator("label").evaluate_all(OVERLAPPING) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_no_word_of_an_output_is_broken(looks, width):
    resize(looks, width)
    assert looks.locator(".jp-OutputArea-output pre:visible").evaluate_all(BROKEN) == []


def test_printed_columns_stay_whole_on_a_phone(looks):
    resize(looks, 390)
    printed = looks.locator(".jp-RenderedText pre", has_text="once there was a princess")
    lines = printed.evaluate("(it) => it.clientHeight / parseFloat(getComputedStyle(it).lineHeight)")
    assert round(lines) == 1


def test_lines_of_code_stay_whole_on_a_phone_and_are_moved_sideways(looks):
    resize(looks, 390)
    shown = looks.locator(".jp-RenderedMarkdown > pre", has_text="def scaled_dot_product_attention")
    lines = shown.evaluate(
        "(it) => it.clientHeight / parseFloat(getComputedStyle(it.querySelector('code')).lineHeight)"
    )
    assert abs(lines - len(shown.inner_text().splitlines())) < 1
    assert shown.evaluate("(it) => it.scrollWidth > it.clientWidth")
    assert shown.bounding_box()["x"] + shown.bounding_box()["width"] <= 390


@pytest.mark.parametrize("which", ["figure:not(.course-live figure)", ".course-live figure"])
def test_a_pictures_labels_can_be_read_on_a_phone_and_it_is_moved_sideways(looks, which):
    resize(looks, 390)
    shown = looks.locator(f".jp-OutputArea-output {which}").locator("visible=true").first
    image, words = shown.locator("img"), shown.locator("figcaption")
    assert image.bounding_box()["width"] > 500
    assert shown.evaluate("(it) => it.scrollWidth > it.clientWidth")
    assert words.bounding_box()["x"] + words.bounding_box()["width"] <= 390
    resize(looks, 1280)
    assert shown.evaluate("(it) => it.scrollWidth == it.clientWidth")


def test_a_live_pictures_labels_can_be_read_on_a_phone_and_its_controls_stay(looks):
    resize(looks, 390)
    live = looks.locator(".course-live:has(> img):has([role=slider])").first
    control, said = live.locator("[role=slider]").first, live.locator("[role=status]").first
    before = control.bounding_box()["x"]
    assert live.locator("img").bounding_box()["width"] > 500
    live.evaluate("(it) => { it.scrollLeft = 150 }")
    assert live.evaluate("(it) => it.scrollLeft") == 150
    assert control.bounding_box()["x"] == before
    for part in (control, said):
        assert part.bounding_box()["x"] + part.bounding_box()["width"] <= 390
    resize(looks, 1280)
    assert live.evaluate("(it) => it.scrollWidth == it.clientWidth")


def test_the_way_back_to_a_section_leads_there_whatever_letters_its_heading_has(lab):
    name = lab.write("way.ipynb", "import torch", *["print(*range(9), sep='\\n')"] * 9)
    path = lab.folder / name
    notebook = json.loads(path.read_text())
    heading = {"cell_type": "markdown", "id": "why", "metadata": {}, "source": "## 2.4 Why √d_k?"}
    notebook["cells"].append(heading)
    said = where_you_were(name, "2.4 Why √d_k?", "why")
    notebook["cells"][0] = {"cell_type": "markdown", "id": "said", "metadata": {}, "source": said}
    path.write_text(json.dumps(notebook))
    page = lab.open(name)
    page.get_by_role("link", name="2.4 Why √d_k?").click()
    page.wait_for_function("document.querySelector('.jp-Notebook h2').getBoundingClientRect().top < innerHeight")
    page.close()


def test_words_of_a_table_stay_whole_on_a_phone(lab):
    name = lab.write("table.ipynb", GUESS)
    path = lab.folder / name
    notebook = json.loads(path.read_text())
    text = "| sign | meaning |\n|---|---|\n| `d_model` | features of a token: how many numbers its vector has |"
    notebook["cells"].append({"cell_type": "markdown", "id": "table", "metadata": {}, "source": text})
    path.write_text(json.dumps(notebook))
    page = lab.open(name)
    lab.run(page)
    page.get_by_role("tab", name="File Browser").first.click()
    resize(page, 390)
    assert page.locator("td code").evaluate("(it) => it.getClientRects().length") == 1
    page.close()


def test_nothing_of_the_course_is_cut_or_scrolls_sideways_on_a_phone(looks):
    resize(looks, 390)
    assert looks.locator(".course-live, .course-live .jupyter-widgets.widget-container").evaluate_all(ASIDE) == []
    assert looks.locator(".course-live .widget-button").evaluate_all(CUT) == []


def test_the_map_of_the_model_stands_beside_its_picture_at_one_and_a_half_times_the_size(looks):
    resize(looks, 853)
    beside = """(live) => live.querySelector("img").getBoundingClientRect().top - live.getBoundingClientRect().top"""
    assert looks.locator(".course-live:has(.residual-stream)").evaluate(beside) < 20


@pytest.mark.parametrize("control", ["input[type=radio]", ".widget-toggle-button", ".widget-button", "[role=slider]"])
def test_the_focus_is_seen(looks, control):
    resize(looks, 1280)
    looks.keyboard.press("Shift")  # whoever uses the keyboard is shown the focus
    looks.locator(f".course-live {control}:not([disabled])").locator("visible=true").first.focus()
    ring = looks.evaluate(
        "(control) => document.activeElement.matches(control) && getComputedStyle(document.activeElement).outline",
        control,
    )
    assert ring, "the focus is elsewhere"
    assert "solid 2px" in ring


def test_pictures_are_dimmed_on_a_dark_page_and_keep_their_words(looks):
    pictures = looks.locator(".jp-OutputArea-output img:visible")
    assert pictures.count() == 4
    assert set(pictures.evaluate_all("(all) => all.map((it) => getComputedStyle(it).filter)")) == {"brightness(0.88)"}
    assert all(pictures.evaluate_all("(all) => all.map((it) => it.alt.length > 20)"))
