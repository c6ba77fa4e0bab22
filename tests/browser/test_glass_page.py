"""The glass model in JupyterLab and on a page of its own: what is moved, removed or written is followed at once."""

import functools
import math
import re
import shutil
import threading
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from matplotlib import image

from course_lib.gpt import DecoderOnly
from course_lib.live.glass import SENTENCES, html, packed_small
from course_lib.pretrained import load_pretrained
from tests.browser.axe import findings
from tests.live_in_browser import ROOT

GLASS = "from course_lib.live.glass import glass\nglass()"
BARS = ".glass .bars"
FIRST = f"{BARS} .bar span:first-child"
DRAWN = "new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(seen)))"  # what was asked for is seen


@pytest.fixture(scope="module", params=["a page of its own", "a notebook"])
def page(lab, request):
    """The glass model, with all that the browser says against it."""
    if request.param == "a notebook":
        page = lab.open(lab.write("glass.ipynb", GLASS), height=1000)
        lab.run(page)
    else:
        path = lab.folder / "glass.html"
        path.write_text(html(), encoding="utf-8")
        page = lab.blank(width=848, height=900)
    page.said = []
    page.on("console", lambda message: message.type == "error" and page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda asked: page.said.append(asked.url) if asked.url.startswith("http") else None)
    if request.param != "a notebook":
        page.goto(path.as_uri())
    page.locator(".glass .bar").first.wait_for()
    yield page
    assert [each for each in page.said if "127.0.0.1" not in each] == []
    page.close()


def test_a_text_is_followed_from_word_to_word(page):
    field = page.locator(".glass input[type=text]")
    assert field.input_value() == SENTENCES[0]
    assert page.locator(FIRST).first.inner_text() == "lisbon"
    page.get_by_role("button", name="Write the next word").click()
    assert field.input_value() == f"{SENTENCES[0]} lisbon"
    field.fill("the dragon laughed")
    note = page.locator(".glass .note")
    assert note.inner_text().startswith("This model does not know “dragon”, so it is left out.")
    field.fill("the dragon and the robot laughed")
    assert note.inner_text().startswith("This model does not know “dragon” and “robot”, so they are left out.")
    field.fill(f"the {' '.join(f'dragon{i}' for i in 'abcdefg')} laughed")
    assert "“dragone”, and 2 more, so they are left out." in note.inner_text()
    part = re.search(r"press “Maps”, then “(.+?)”", note.inner_text())[1]
    page.get_by_role("button", name="Maps").click()
    assert page.locator('.glass [data-part="embedding"] b').inner_text() == part
    page.get_by_role("button", name="Ribbons").click()
    assert page.locator(".glass .chips button").all_inner_texts() == ["<bos>", "the", "laughed"]
    page.locator(".glass .chips button").nth(1).click()
    assert page.get_by_role("button", name="Choose the last token to continue").is_disabled()
    page.locator(".glass select").select_option(SENTENCES[1])
    assert page.locator(FIRST).first.inner_text() == "owl"


def test_a_part_opens_with_its_numbers_and_what_is_removed_is_missed(page):
    page.locator(".glass select").select_option(SENTENCES[0])
    page.locator(".glass select").select_option(SENTENCES[2])
    page.get_by_role("button", name="Maps").click()
    page.locator('.glass [data-part="1.head.2"]').click()
    panel = page.locator(".glass .panel")
    assert "course_lib/heads.py, line" in panel.inner_text()
    assert "Shape: weights (H, T, T) = (4, 13, 13)" in panel.inner_text()
    before = page.locator(BARS).inner_text()
    panel.get_by_role("button", name="Remove the whole layer").click()
    assert page.locator(BARS).inner_text() != before
    panel.get_by_role("button", name="Put the whole layer back").click()
    assert page.locator(BARS).inner_text() == before
    for part in ("embedding", "0.feed_forward", "3.lens", "next"):
        page.locator(f'.glass [data-part="{part}"]').click()
        assert "Shape:" in panel.inner_text()
    page.locator('.glass [data-part="1.head.2"]').click()
    panel.get_by_role("button", name="Play this row").click()
    page.wait_for_function("document.querySelector('.row-of-attention').dataset.step == 3")


def test_the_way_through_the_page_is_walked_by_one_key(page):
    page.locator(".glass select").select_option(SENTENCES[0])
    page.get_by_role("button", name="Show me around").focus()
    guide, opened, told = page.locator(".glass .guide"), set(), set()
    while page.keyboard.press("Enter") or guide.is_visible():
        assert page.locator(".glass .here").count() == 1
        told.add(guide.locator("p").inner_text())
        opened |= {part.get_attribute("data-part") for part in page.locator('.glass [aria-expanded="true"]').all()}
    assert len(told) == 9
    assert {"embedding", "0.head.0", "3.feed_forward", "0.lens", "next"} <= opened
    assert page.locator(".glass .here").count() == 0
    assert page.evaluate("document.activeElement.innerText") == "Show me around"
    page.locator('.glass [data-part="next"]').click()


def test_ribbons_lead_to_the_chosen_token_and_follow_what_is_removed(page):
    page.locator(".glass select").select_option(SENTENCES[2])
    page.get_by_role("button", name="Ribbons").click()
    ribbons, panel = page.locator(".glass [data-ribbon]"), page.locator(".glass .panel")
    told = page.locator(".glass .ribbons + .shape")

    def thickest(event: str) -> None:
        thickness = "(ribbon) => +ribbon.getAttribute('stroke-width')"
        ribbons.evaluate_all(
            f"""(all) => all.sort((a, b) => ({thickness})(b) - ({thickness})(a))[0]
                .dispatchEvent(new MouseEvent('{event}', {{bubbles: true}}))"""
        )

    thickest("mouseover")
    said = re.match(r"Layer (\d), head (\d): “.+” takes from “.+”: weight .+%, norm \d", told.inner_text())
    layer, head = said.groups()
    thickest("click")
    assert panel.locator("h3").inner_text() == f"Layer {layer}, head {head}"
    before, its = ribbons.count(), page.locator(f".glass [data-ribbon][style*='block: {layer}']")
    panel.get_by_role("button", name="Remove all heads of the layer").click()
    assert its.count() == 0
    page.get_by_role("button", name=f"Put layer {layer}, attention back").click()
    assert (its.count() > 0, ribbons.count()) == (True, before)
    page.locator(".glass .flow .word").nth(1).click()
    assert page.locator(".glass .chips [aria-pressed=true]").inner_text() == "paul"
    assert "what reaches “paul”" in page.locator(".glass .flow").get_attribute("aria-label")
    page.get_by_role("button", name="▶ Play", exact=True).click()
    page.locator(".glass .flow.playing").wait_for()
    page.get_by_role("button", name="Maps").click()


def test_ribbons_are_read_and_opened_by_keys(page):
    page.locator(".glass select").select_option(SENTENCES[2])
    page.get_by_role("button", name="Ribbons").click()
    told = page.locator(".glass .ribbons + .shape")
    page.locator(".glass .ribbons").focus()
    assert told.inner_text().startswith("↓ and ↑ go from ribbon to ribbon")
    read = []
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
        read.append(told.inner_text())
    assert read[0] == read[2] != read[1]
    layer, head = re.match(r"Layer (\d), head (\d): ", read[2]).groups()
    page.keyboard.press("Enter")
    assert page.locator(".glass .panel h3").inner_text() == f"Layer {layer}, head {head}"
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "the flow"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Maps").click()


def test_a_slider_changes_the_ribbons_to_the_next_words_alone(page):
    page.locator(".glass select").select_option(SENTENCES[2])
    page.get_by_role("button", name="Ribbons").click()
    width = "(ribbon) => +ribbon.getAttribute('stroke-width')"
    first, kept = page.locator(".glass .ribbon.last").first, page.locator(".glass .ribbon").first.element_handle()
    page.evaluate(DRAWN)
    at_one = first.evaluate(width)
    page.get_by_role("slider", name="temperature").fill("2")
    page.evaluate(DRAWN)
    assert first.evaluate(width) < at_one
    assert kept.evaluate("(ribbon) => ribbon.isConnected"), "the other ribbons are drawn anew for nothing"
    page.get_by_role("slider", name="temperature").fill("1")
    page.get_by_role("button", name="Maps").click()


def test_the_words_that_it_knows_can_be_looked_up(page):
    page.locator('.glass [data-part="embedding"]').click()
    known = page.locator(".glass .panel details")
    known.locator("summary").click()
    assert {"<bos>", "lisbon", "owl"} <= set(known.inner_text().split())
    page.locator('.glass [data-part="embedding"]').click()


def test_a_head_opens_with_its_whole_map_and_a_click_follows_a_row(page):
    page.locator(".glass select").select_option(SENTENCES[2])
    page.locator('.glass [data-part="1.head.2"]').click()
    canvas, asks, answers = page.locator(".glass .map canvas"), 4, 5
    wide, words = canvas.bounding_box()["width"], page.locator(".glass .chips button").all_inner_texts()
    cell = (wide - 62) / len(words)  # the words beside it take 62 pixels
    canvas.hover(position={"x": 62 + (answers + 0.5) * cell, "y": 62 + (asks + 0.5) * cell})
    assert (
        f"“{words[asks]}” looks at “{words[answers]}”: hidden by the mask" in page.locator(".glass .map").inner_text()
    )
    canvas.click(position={"x": 62 + 0.5 * cell, "y": 62 + (asks + 0.5) * cell})
    assert page.locator('.glass .chips [aria-pressed="true"]').inner_text() == words[asks]
    page.locator('.glass [data-part="1.head.2"]').click()


def test_sliders_answer_to_keys_and_keys_stay_inside(page):
    page.locator(".glass select").select_option(SENTENCES[0])
    before = page.locator(BARS).inner_text()
    page.get_by_role("slider", name="temperature").focus()
    page.keyboard.press("End")
    assert page.locator(BARS).inner_text() != before
    page.get_by_role("slider", name="top-k").focus()
    page.keyboard.press("Home")
    assert page.locator(f"{BARS} .bar").first.inner_text().split("\n")[-1] == "100%"
    for key in ("x", "b", "d", "d"):
        page.keyboard.press(key)
    assert page.locator(".jp-CodeCell").count() in (0, 1)
    page.keyboard.press("End")
    page.get_by_role("slider", name="temperature").fill("1")
    assert page.locator(BARS).inner_text() == before


def test_each_filter_says_how_many_words_it_leaves(page):
    page.locator(".glass select").select_option(SENTENCES[0])
    temperature, top_k = (page.get_by_role("slider", name=name) for name in ("temperature", "top-k"))
    temperature.fill("2")
    top_k.fill("7")
    assert page.locator('.glass [data-part="next"]').inner_text().split("\n")[-1] == "all 343 → top-k 7"
    page.locator('.glass [data-part="next"]').click()
    table = page.locator(".glass .panel table")
    assert table.locator("tr").last.inner_text().split() == ["words", "left", "343", "343", "7"]
    below = page.get_by_role("slider", name="min-p").bounding_box()
    top_k.fill("1")
    assert table.locator("tr").last.inner_text().split()[-1] == "1"
    assert page.get_by_role("slider", name="min-p").bounding_box() == below  # nothing jumps under the pointer
    page.locator('.glass [data-part="next"]').click()
    temperature.fill("1")
    top_k.fill("50")


def test_it_fits_a_phone(page):
    if page.locator(".jp-Notebook").count():
        page.get_by_role("tab", name="File Browser").first.click()
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("innerWidth == 390")
    inside = """(box) => [box, ...box.querySelectorAll(".path, .bars, .sliders, .panel")]
        .every((part) => part.scrollWidth <= part.clientWidth + 1)"""
    assert page.locator(".glass").evaluate(inside)


ENDS = """() => {  // of each ribbon to a next word: where it ends, where its bar is, the edges of the ribbons' box
    const bars = [...document.querySelectorAll(".bars .bar")];
    const box = document.querySelector(".ribbons").getBoundingClientRect();
    return [...document.querySelectorAll(".ribbon.last")].map((ribbon, i) => {
        const {top, height} = bars[i].getBoundingClientRect(), end = ribbon.getPointAtLength(ribbon.getTotalLength());
        return [end.matrixTransform(ribbon.getScreenCTM()).y, top + height / 2, box.top, box.bottom];
    });
}"""


def require_level(page) -> None:
    """Raise if a ribbon to a next word does not end in view, beside its bar."""
    page.evaluate(DRAWN)
    ends = page.evaluate(ENDS)
    assert len(ends) == page.locator(".glass .bar").count()
    for end, bar, top, bottom in ends:
        assert abs(end - bar) <= 4
        assert top <= end <= bottom


@pytest.fixture(params=[1000, 1280])
def alone(lab, request):
    """The page of its own, anew, at two widths."""
    path = lab.folder / "alone.html"
    path.write_text(html(), encoding="utf-8")
    page = lab.blank(width=request.param, height=900)
    page.goto(path.as_uri())
    page.locator(".glass .bar").first.wait_for()
    yield page
    page.close()


def test_each_ribbon_to_a_next_word_ends_beside_its_bar_whatever_the_tour_says(alone):
    require_level(alone)
    alone.get_by_role("button", name="Show me around").click()
    for _ in range(3):
        if alone.locator(".glass .ribbon.last").count():
            require_level(alone)
        alone.get_by_role("button", name="Next", exact=True).click()
    alone.get_by_role("button", name="Close").click()
    alone.get_by_role("button", name="Ribbons").click()
    require_level(alone)
    alone.get_by_role("slider", name="top-k").fill("2")
    require_level(alone)


def test_of_a_long_text_the_ribbons_to_the_next_words_stay_beside_their_bars(alone):
    alone.locator(".glass input[type=text]").fill(" ".join(["the dog saw the cat ."] * 7))
    require_level(alone)
    region = alone.locator(".glass .ribbons")
    cut = """(region) => [...region.querySelectorAll(".word")].filter((word) => {
        const {top, bottom} = word.getBoundingClientRect(), edge = region.getBoundingClientRect().top;
        return top < edge - 3 && bottom > edge + 3;
    }).length"""
    assert region.evaluate(cut) == 0, "no word is cut in half where it begins"
    for top in (0, 47):
        region.evaluate(f"(region) => region.scrollTop = {top}")
        require_level(alone)
        assert region.evaluate("(region) => region.scrollTop") == top
    marked = (
        "(region) => getComputedStyle(region).backgroundAttachment"  # those that scroll along cover those that stay
    )
    assert region.evaluate(marked) == "local, local, scroll, scroll"


def test_where_the_next_words_stand_below_no_ribbon_leads_to_them(alone):
    alone.set_viewport_size({"width": 600, "height": 900})
    alone.wait_for_function("innerWidth == 600")
    alone.evaluate(DRAWN)
    assert alone.locator(".glass .ribbon.last").count() == 0
    alone.set_viewport_size({"width": 900, "height": 900})
    alone.wait_for_function("innerWidth == 900")
    require_level(alone)


def test_the_chosen_token_stands_on_a_ground_of_its_own_among_the_ribbons(alone):
    """A full stop alone is too small to be seen."""
    alone.locator(".glass input[type=text]").fill("the dog saw the cat .")
    ground, word = alone.locator(".glass .flow .ground"), alone.locator(".glass .flow .word.at")
    assert word.text_content() == "."
    around, within = ground.bounding_box(), word.bounding_box()
    assert around["width"] > 40
    assert around["x"] <= within["x"]
    assert abs(around["y"] + around["height"] / 2 - within["y"] - within["height"] / 2) < 2
    paints = "(shape) => getComputedStyle(shape).fill"
    assert ground.evaluate(paints) != alone.locator(".glass .flow .labels rect").first.evaluate(paints)


def test_what_opens_has_the_same_mark(alone):
    mark = "(all) => all.map((each) => getComputedStyle(each, '::after').content.includes('›'))"
    assert alone.locator(".glass .stage b").evaluate_all(mark) == [True]  # the words that can come
    alone.get_by_role("button", name="Maps").click()
    assert alone.locator(".glass .stage b").evaluate_all(mark) == [True] * 10  # embedding, 4 layers of two, the words


def test_what_is_told_of_a_ribbon_begins_like_a_sentence(alone):
    alone.get_by_role("button", name="Maps").click()
    alone.locator('.glass [data-part="1.head.2"]').click()
    alone.get_by_role("button", name="Ribbons").click()
    told, lines = alone.locator(".glass .ribbons + .shape"), []
    for kind in ("key", "query", "value", "meeting"):
        alone.locator(f".glass .flow .{kind}").first.dispatch_event("mouseover")
        lines.append(told.inner_text())
    lines += alone.locator(".glass .flow .network title").evaluate_all("(all) => all.map((each) => each.textContent)")
    assert [line for line in lines if line[0].islower()] == []


@pytest.fixture
def served(lab):
    """The address of a server of the lab's folder."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=lab.folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("opened", ["from a server", "as a file"])
def test_its_address_says_what_it_begins_with_and_the_page_around_it_which_theme(lab, served, opened):
    (lab.folder / "glass.html").write_text(html(), encoding="utf-8")
    shutil.copy(ROOT / "web" / "course.js", lab.folder)
    page, address = lab.blank(), "glass.html#text=the+black+dog&amp;part={}"
    frames = [f"<iframe class=glass src='{address.format(part)}'></iframe>" for part in ("2.head.3", "9.head.3")]
    around = f"<body data-theme=dark><article>{''.join(frames)}</article><script src=course.js></script>"
    (lab.folder / "around.html").write_text(around, encoding="utf-8")
    page.goto(f"{served if opened == 'from a server' else lab.folder.as_uri()}/around.html")
    right, wrong = page.frame_locator("iframe").nth(0), page.frame_locator("iframe").nth(1)
    assert right.locator(".panel h3").inner_text() == "Layer 2, head 3"
    assert right.locator(".chips button").all_inner_texts() == ["<bos>", "the", "black", "dog"]
    wrong.get_by_text("Choose a part above").wait_for()
    ground = "(box) => getComputedStyle(box).backgroundColor"
    right.locator("body[data-jp-theme-light=false]").wait_for()
    dark = right.locator(".glass").evaluate(ground)
    page.evaluate("document.body.dataset.theme = 'light'")
    right.locator("body[data-jp-theme-light=true]").wait_for()
    assert right.locator(".glass").evaluate(ground) != dark
    page.evaluate("document.body.dataset.theme = 'auto'")
    right.locator("body:not([data-jp-theme-light])").wait_for()
    page.close()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("opened", ["from a server", "as a file"])
def test_in_the_web_edition_its_frame_is_as_high_as_what_stands_in_it(lab, served, opened, width):
    (lab.folder / "glass.html").write_text(html(), encoding="utf-8")
    shutil.copy(ROOT / "web" / "course.js", lab.folder)
    shutil.copy(ROOT / "web" / "course.css", lab.folder)
    frame = '<iframe class="glass" name="glass" src="glass.html"></iframe>'
    link = '<a href="glass.html#part=2.head.3" target="glass">another</a>'
    head = '<!doctype html><meta name="viewport" content="width=device-width"><link rel="stylesheet" href="course.css">'
    (lab.folder / "page.html").write_text(
        f'{head}<article>{frame}{link}</article><script src="course.js"></script>', encoding="utf-8"
    )
    page = lab.blank(width=width, height=844)
    page.goto(f"{served if opened == 'from a server' else lab.folder.as_uri()}/page.html")
    within = page.frame_locator("iframe")
    within.locator(".bar").first.wait_for()

    def fitted() -> float:
        """Wait until all is in view, with little room below; return how high that is."""
        beyond = "innerHeight - scrollY - document.body.getBoundingClientRect().bottom"
        page.frame("glass").wait_for_function(f"{beyond} >= 0 && {beyond} < 20")
        return page.frame("glass").evaluate("innerHeight")

    fitted()
    within.get_by_role("button", name="Maps").click()
    before = fitted()
    within.locator('[data-part="1.head.2"]').click()
    assert fitted() > before + 100
    within.locator('[data-part="1.head.2"]').click()
    assert fitted() == before
    page.set_viewport_size({"width": width, "height": 400})
    page.get_by_role("link", name="another").click()
    page.wait_for_function(
        "document.querySelector('iframe').getBoundingClientRect().top >= 0"
    )  # and not what was below
    page.close()


def test_a_model_that_lies_beside_its_page_is_fetched_and_without_a_server_the_page_says_what_it_needs(lab, served):
    model, tokenizer = load_pretrained("tinytown")
    model = DecoderOnly(replace(model.config, d_model=72, n_heads=9, n_kv_heads=9, n_layers=12))
    path = lab.folder / "beside.html"
    path.write_text(html(model, tokenizer, sentences=["the black dog"], beside="small.bin"), encoding="utf-8")
    page = lab.blank()
    page.goto(f"{served}/beside.html")
    page.get_by_text("The model could not be loaded (the server answered 404)").wait_for()
    (lab.folder / "small.bin").write_bytes(packed_small(model, tokenizer))
    page.add_init_script("""(function look() {  // what each frame shows
        (window.told ??= new Set()).add(document.querySelector(".note")?.textContent);
        requestAnimationFrame(look);
    })()""")
    page.reload()
    page.locator(".glass .bar").first.wait_for()
    assert page.locator(".glass .chips button").all_inner_texts() == ["<bos>", "the", "black", "dog"]
    size = f"{(lab.folder / 'small.bin').stat().st_size / 1e6:.1f} MB"
    assert f"Loaded {size}. Unpacking the model and reading the first sentence …" in page.evaluate("[...told]")
    page.goto(path.as_uri())
    page.get_by_text("run “python -m http.server” in that folder").wait_for()
    page.close()


def test_of_a_long_text_the_chosen_token_is_in_view_among_the_ribbons(page):
    """All of them do not fit; whoever chooses one that is seen does not see it move."""
    page.get_by_role("button", name="Ribbons").click()
    page.locator(".glass input[type=text]").fill(" ".join(["the dog saw the cat ."] * 7))
    seen, chosen = page.locator(".glass .ribbons"), page.locator(".glass .flow .word.at")
    within = """([at, region]) => {
        const [word, box] = [at, region].map((each) => document.querySelector(each).getBoundingClientRect());
        return word.top >= box.top && word.bottom <= box.bottom;
    }"""
    page.wait_for_function(within, arg=[".glass .flow .word.at", ".glass .ribbons"])
    assert chosen.text_content() == "."
    top = seen.evaluate("region => region.scrollTop = 60")
    page.evaluate(DRAWN)
    page.locator(".glass .flow .word[data-at='12']").click()
    page.wait_for_function("document.querySelector('.glass .flow .word.at').dataset.at === '12'")
    page.wait_for_function(f"document.querySelector('.glass .ribbons').scrollTop === {top}")
    page.locator(".glass select").select_option(SENTENCES[0])


def test_many_layers_and_heads_are_found_and_fit_a_phone(lab):
    model, tokenizer = load_pretrained("tinytown")
    model = DecoderOnly(replace(model.config, d_model=72, n_heads=9, n_kv_heads=9, n_layers=12))
    path = lab.folder / "many.html"
    path.write_text(html(model, tokenizer, sentences=["the black dog"]), encoding="utf-8")
    page = lab.blank(width=390, height=844)
    page.goto(path.as_uri())
    page.get_by_text("Scroll to the left for the first layers.").wait_for()
    left = "document.querySelector('.ribbons').scrollLeft"
    last = page.evaluate(left)
    assert last > 0, "it begins at the end of the way"
    page.get_by_role("button", name="▶ Play", exact=True).click()
    page.wait_for_function(f"{left} === 0")  # what plays is in view: at first the first layers
    page.wait_for_function(f"{left} > 0")
    page.get_by_role("button", name="Maps").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for part in page.locator(".path .stage[data-part*='.']").all()[:4]:
        assert part.bounding_box()["width"] > 100, "room for its words"
    page.locator("[data-part='11.head.8']").click()
    heading, whole = page.locator(".layer.name"), page.locator(".path.many")
    assert heading.inner_text().startswith("12 layers")
    assert heading.bounding_box()["y"] == whole.bounding_box()["y"], "it stays while the layers scroll"
    for layer in (11, 2):  # what opens is in view among the ribbons
        page.locator(f"[data-part='{layer}.head.4']").click()
        page.get_by_role("button", name="Ribbons").click()
        seen = page.locator(".ribbons").bounding_box()
        for circle in page.locator(".meeting").all():
            assert seen["x"] + 84 < circle.bounding_box()["x"] < seen["x"] + seen["width"]  # 84: the words
        page.get_by_role("button", name="Maps").click()
    page.close()


def test_an_open_head_is_taken_apart_into_query_keys_and_values(page):
    page.locator(".glass select").select_option(SENTENCES[2])
    page.get_by_role("button", name="Maps").click()
    page.locator('.glass [data-part="1.head.2"]').click()
    table = page.locator(".glass .panel .row-of-attention tr:has(td):not(.step3)")
    weights = [float(each.strip("<> %")) for each in table.locator(".step2").all_inner_texts()]
    page.get_by_role("button", name="Ribbons").click()
    flow, told = page.locator(".glass .flow"), page.locator(".glass .ribbons + .shape")
    met = flow.locator(".meeting")
    kinds = [flow.locator(f".{kind}").count() for kind in ("query", "key", "value")]
    assert kinds == [met.count()] * 3 == [min(12, len(weights))] * 3
    sizes = met.evaluate_all("(all) => all.map((each) => +each.getAttribute('r'))")
    assert sizes == sorted(sizes, reverse=True)
    met.first.dispatch_event("mouseover")
    said = re.fullmatch(r"“yellow” asks “.+”: q · k / √D = −?[\d.]+, weight (\d+)%", told.inner_text())
    assert float(said[1]) == max(weights)
    assert "query ■ key ■ value" in page.locator(".glass .legend").inner_text()
    page.get_by_role("button", name="Remove this head").click()
    assert (flow.locator(".value").count(), met.count()) == (0, len(sizes)), "it asks, and adds nothing"
    page.get_by_role("button", name="Put this head back").click()
    page.get_by_role("button", name="Maps").click()
    page.locator('.glass [data-part="1.head.2"]').click()


def state_of(page) -> dict:
    """What a page shows of its state, as a reader sees it."""
    return {
        "text": page.locator(".glass .text input").input_value(),
        "token": page.locator('.glass .chips [aria-pressed="true"]').inner_text(),
        "view": page.locator('.glass .views [aria-pressed="true"]').inner_text(),
        "open": page.locator(".glass .panel h3").all_inner_texts(),
        "removed": page.locator(".glass .told .buttons button").all_inner_texts(),
        "sliders": [slider.input_value() for slider in page.locator(".glass .sliders input").all()],
        "bars": page.locator(BARS).inner_text(),
    }


@pytest.mark.parametrize("opened", ["from a server", "as a file"])
def test_a_link_shows_another_reader_the_same(lab, served, opened):
    """Everything that a reader has done is in the address, and nothing of it comes as code."""
    (lab.folder / "shared.html").write_text(html(), encoding="utf-8")
    home = f"{served if opened == 'from a server' else lab.folder.as_uri()}/shared.html"
    page, other, wrong = lab.blank(), lab.blank(), []
    for each in (page, other):
        each.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(home)
    page.locator(".glass .bar").first.wait_for()
    first = state_of(page)
    page.wait_for_timeout(500)
    assert page.url == home, "who only looks has no longer address"
    page.locator(".glass .text input").fill("the black owl sat on <b>the</b> red rug & it was")
    page.get_by_role("button", name="Maps").click()
    page.locator('.glass [data-part="1.head.2"]').click()
    page.get_by_role("button", name="Remove this head").click()
    page.locator('.glass [data-part="2.feed_forward"]').click()
    page.locator(".glass .panel .bar button").first.click()
    page.locator(".glass .chips button").nth(3).click()
    page.get_by_role("slider", name="temperature").fill("0.7")
    page.get_by_role("slider", name="min-p").fill("0.02")
    page.get_by_role("button", name="Ribbons").click()
    page.wait_for_function("location.hash.includes('view=ribbons')")
    expected = state_of(page)
    assert expected["removed"][0] == "Put layer 1, head 2 back"
    assert (len(expected["removed"]), expected["view"], expected["token"]) == (2, "Ribbons", "owl")
    other.goto(page.url)
    other.locator(".glass .bar").first.wait_for()
    assert state_of(other) == expected
    other.evaluate("location.hash = ''")  # an address that is typed is followed, too
    other.wait_for_function("!document.querySelector('.told .buttons button')")
    assert state_of(other) == first
    other.evaluate(
        "location.hash = 'text=the dog&part=9.head.1&view=xyz&token=99&without=9.head.0 1.head 01 __proto__ 0.head.1.5"
        "&temperature=hot&top-k=1e9&top-p=-1'"
    )
    other.wait_for_function("document.querySelector('.glass .text input').value === 'the dog'")
    found = state_of(other)
    assert (found["token"], found["removed"], found["sliders"]) == ("dog", [], first["sliders"])
    assert wrong == []
    page.close()
    other.close()


@pytest.mark.parametrize("may", [True, False], ids=["with the clipboard", "without permission"])
def test_the_link_can_be_copied_and_the_picture_saved(lab, served, may):
    (lab.folder / "shared.html").write_text(html(), encoding="utf-8")
    page = lab.blank()
    page.add_init_script(
        f"""navigator.clipboard.writeText = async (text) => {{
            if (!{str(may).lower()}) throw new DOMException("no", "NotAllowedError");
            window.copied = text;
        }}"""
    )
    page.goto(f"{served}/shared.html")
    page.get_by_role("button", name="Maps").click()
    page.get_by_role("button", name="Copy link").click()
    told, field = page.locator(".glass .link"), page.get_by_label("the link to what is shown")
    page.get_by_text("The link to this view is copied." if may else "Copy the selected link with Ctrl+C").wait_for()
    assert "this computer" not in told.inner_text()
    assert "view=maps" in field.input_value()
    if may:
        assert page.evaluate("copied") == field.input_value()
    else:
        assert page.evaluate("document.getSelection().toString()") == field.input_value()
    page.locator('.glass [data-part="1.head.2"]').click()
    assert told.is_hidden(), "that link would show something else"
    for view in ("Maps", "Ribbons"):
        page.get_by_role("button", name=view).click()
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save picture").click()
        assert saved.value.suggested_filename == "glass-model.png"
        path = lab.folder / f"{view}.png"
        saved.value.save_as(path)
        pixels = image.imread(path)
        assert pixels.shape[1] > 1600
        colours = {tuple(pixel) for pixel in pixels[::7, ::7, :3].reshape(-1, 3).round(1).tolist()}
        assert len(colours) > 20, "it is drawn"
    page.close()


def test_what_needs_an_address_is_absent_without_one(page):
    alone = page.locator(".jp-Notebook").count() == 0
    assert page.get_by_role("button", name="Copy link").count() == alone
    assert page.get_by_role("button", name="Save picture").count() == alone


def test_unknown_words_are_crossed_out_where_they_stand_and_near_examples_are_offered(page):
    field, chips, offers = (page.locator(f".glass {part}") for part in (".text input", ".chips", ".offers"))
    page.locator(".glass select").select_option(SENTENCES[0])
    field.fill("the quick brown owl sat on the lazy dog")
    crossed = chips.locator("del")
    assert chips.locator("button, del").all_inner_texts() == (
        ["<bos>", "the", "quick", "brown", "owl", "sat", "on", "the", "lazy", "dog"]
    ), "in the order in which they were typed"
    assert crossed.all_inner_texts() == ["quick"]
    assert crossed.first.evaluate("(word) => getComputedStyle(word).textDecorationLine") == "line-through"
    offers.get_by_role("button").first.wait_for()
    assert offers.inner_text().startswith("Examples that it knows:")
    assert offers.get_by_role("button").all_inner_texts()[0] == SENTENCES[1]
    field.fill("the owl sat")
    assert (crossed.count(), offers.is_hidden()) == (0, True)
    field.fill("quick quick fox the quick")
    assert chips.locator("button, del").all_inner_texts() == ["<bos>", "quick", "quick", "fox", "the", "quick"]
    offers.get_by_role("button").nth(1).wait_for()
    chosen = offers.get_by_role("button").nth(1).inner_text()
    offers.get_by_role("button").nth(1).click()
    assert (field.input_value(), crossed.count(), offers.is_hidden()) == (chosen, 0, True)
    assert page.evaluate("document.activeElement.type") == "text", "the keyboard has a place to continue from"
    field.fill("a zebra sat on the")
    page.get_by_role("button", name="Write the next word").click()
    assert crossed.count() == 0, "what was left out is no longer in the text"


def test_an_empty_text_says_what_the_bars_show(page):
    page.locator(".glass .text input").fill("  ")
    note = page.locator(".glass .note")
    assert note.inner_text() == "Nothing typed: the bars show which word may begin a text."
    assert page.locator(".glass .chips button").all_inner_texts() == ["<bos>"]
    page.locator(".glass select").select_option(SENTENCES[0])
    assert note.inner_text() == ""


def test_a_removal_is_shown_before_and_after_and_in_nats(page):
    """The bars compare with the whole model, whatever is chosen, typed or set while a part is gone."""
    page.locator(".glass select").select_option(SENTENCES[0])
    page.get_by_role("button", name="Maps").click()
    bars, effect, heads = page.locator(f"{BARS} .bar"), page.locator(".glass .compared"), page.locator(".glass .both")
    whole = bars.first.inner_text().split("\n")
    assert (len(whole), effect.is_hidden(), heads.is_hidden()) == (2, True, True)
    page.locator('.glass [data-part="0.head.0"]').click()
    page.get_by_role("button", name="Remove this head").click()
    assert heads.inner_text().split() == ["before", "now"]
    word, before, now = bars.first.inner_text().split("\n")
    assert [word, before] == whole
    assert now != before
    said = re.search(r"the surprise of “lisbon” goes from (\S+) to (\S+) nats", effect.inner_text())
    assert float(said[1]) < 0.002
    share = float(now.strip("%>")) / 100
    assert abs(math.exp(-float(said[2])) - share) < 0.01
    apart = float(re.search(r"All words together: (\S+) nats", effect.inner_text())[1])
    assert 0 < apart < 2
    assert "nats" in page.locator(".glass .panel .effect").inner_text()
    page.locator(".glass .text input").fill(SENTENCES[1])
    later = [bar.inner_text().split("\n") for bar in bars.all()]
    page.get_by_role("slider", name="top-k").fill("1")
    assert "0%" in {bar.inner_text().split("\n")[2] for bar in bars.all()} or bars.count() == 1
    page.get_by_role("slider", name="top-k").fill("50")
    page.get_by_role("button", name="Put layer 0, head 0 back").click()
    assert (effect.is_hidden(), heads.is_hidden()) == (True, True)
    plain = dict(bar.inner_text().split("\n") for bar in bars.all())
    assert {word: before for word, before, _ in later if word in plain} == {
        word: share for word, share in plain.items() if word in {each for each, *_ in later}
    }
    page.locator('.glass [data-part="0.head.0"]').click()


def test_a_word_that_a_removal_makes_improbable_stays_among_the_bars(page):
    page.locator(".glass select").select_option(SENTENCES[1])
    page.get_by_role("button", name="Maps").click()
    words = page.locator(FIRST).all_inner_texts()
    page.locator('.glass [data-part="1.head.0"]').click()
    page.get_by_role("button", name="Remove all heads of the layer").click()
    page.locator('.glass [data-part="2.head.0"]').click()
    page.get_by_role("button", name="Remove all heads of the layer").click()
    assert words[0] in page.locator(FIRST).all_inner_texts()
    assert page.locator(f"{BARS} .bar").count() <= 8
    for button in page.locator(".glass .told .buttons button").all()[::-1]:
        button.click()
    assert page.locator(FIRST).all_inner_texts() == words
    page.locator('.glass [data-part="2.head.0"]').click()


def test_one_key_leads_past_the_tokens_and_arrows_lead_among_them(alone):
    field, focused = alone.locator(".glass .text input"), "document.activeElement.innerText"
    alone.locator(".glass .chips button").last.focus()
    alone.keyboard.press("Home")
    assert alone.evaluate(focused) == "<bos>"
    for key in ("ArrowLeft", "ArrowRight", "ArrowRight"):
        alone.keyboard.press(key)
    chosen = alone.evaluate(focused)
    alone.keyboard.press("Enter")
    assert alone.locator('.glass .chips [aria-pressed="true"]').inner_text() == chosen
    assert alone.evaluate(focused) == chosen
    alone.keyboard.press("Tab")
    assert alone.evaluate(focused) == "Maps"
    alone.keyboard.press("Shift+Tab")
    assert alone.evaluate(focused) == chosen, "back to the token that is chosen"
    field.fill("the dog")
    assert alone.locator('.glass .chips [tabindex="0"]').all_inner_texts() == ["dog"]


SMALL = """(box) => [...box.querySelectorAll("button, input, select, summary, a")]
    .filter((each) => each.checkVisibility())
    .map((each) => [each.innerText || each.ariaLabel, each.getBoundingClientRect()])
    .filter(([, {width, height}]) => Math.min(width, height) < 24).map(([name]) => name)"""


def test_a_finger_meets_everything_that_can_be_pressed(alone):
    """24 pixels: WCAG 2.2, 2.5.8."""
    alone.set_viewport_size({"width": 390, "height": 844})
    alone.wait_for_function("innerWidth == 390")
    for part in ("embedding", "1.head.2", "2.feed_forward", "3.lens", "next"):
        alone.get_by_role("button", name="Maps").click()
        alone.locator(f'.glass [data-part="{part}"]').click()
        assert alone.locator("main").evaluate(SMALL) == []
    alone.get_by_role("button", name="Copy link").click()
    alone.get_by_role("button", name="Ribbons").click()
    assert alone.locator("main").evaluate(SMALL) == []


def test_a_page_of_its_own_says_what_it_is_and_leads_to_the_course(lab, served):
    (lab.folder / "home.html").write_text(html(home="index.html"), encoding="utf-8")
    (lab.folder / "index.html").write_text("<iframe class=glass src=home.html></iframe>", encoding="utf-8")
    page = lab.blank()
    page.goto(f"{served}/home.html")
    page.locator(".glass .bar").first.wait_for()
    heading, link = page.get_by_role("heading", level=1), page.get_by_role("link", name="Transformers, Measured")
    assert heading.count() == 1
    assert heading.bounding_box()["height"] > 20
    assert findings(page) == []
    link.click()
    page.wait_for_url("**/index.html")
    within = page.frame_locator("iframe")
    within.locator(".bar").first.wait_for()
    assert within.locator("h1").bounding_box()["height"] < 2, "the page around it has a heading"
    assert within.locator("header a").count() == 0
    page.close()
