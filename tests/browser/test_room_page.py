"""The live room from end to end: a notebook's kernel and a phone vote, the projector shows it, the teacher reveals."""

from contextlib import ExitStack
from operator import attrgetter

import pytest

from course_lib.course.contents import BY_SLUG
from course_lib.room.tally import Tally
from tests.browser.axe import findings
from tests.test_room import GUESS, MISTAKEN, opened

JOIN = """import os
os.environ["COURSE_PROGRESS"] = ":memory:"  # what another test has guessed is fixed
import torch
from course_lib.grading import check
from course_lib.live import guess
from course_lib.room import join
join("{address}", "{code}")
def softmax(x, dim):
    return torch.exp(x) / torch.exp(x).sum(dim, keepdim=True)
check("{exercise}", softmax)"""
RIGHT = "20.0 °C, only east"


@pytest.fixture
def screens(lab):
    """A room, and what opens its projector's page and a phone's: scheme -> page. Nothing may be said against them."""
    tally, said = Tally([BY_SLUG["attention"]]), []
    with ExitStack() as open:
        address = open.enter_context(opened(tally))

        def screen(path: str, width: int, height: int, scheme: str):
            page = lab.blank(width, height)
            open.callback(page.close)
            page.emulate_media(color_scheme=scheme)
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("request", lambda asked: asked.url.startswith(f"http://{address}/") or said.append(asked.url))
            page.goto(f"http://{address}/{path}")
            return page

        yield tally, address, screen
        assert said == []


def test_a_kernel_and_a_phone_vote_the_projector_shows_it_and_the_teacher_reveals(lab, screens):
    tally, address, screen = screens
    projector = screen(f"projector#{tally.key}", 1280, 720, "dark")
    projector.locator("#choose").select_option(GUESS)
    projector.get_by_text("multiply every score by 50").wait_for()
    assert tally.key not in projector.url
    assert tally.code in projector.locator("header").inner_text()

    notebook = lab.open(
        lab.write(
            "room.ipynb", JOIN.format(address=address, code=tally.code, exercise=MISTAKEN[0]), f'guess("{GUESS}")'
        )
    )
    lab.run(notebook)
    asked = notebook.locator(".course-live", has_text="Commit")
    asked.get_by_label(RIGHT).check()
    asked.get_by_role("button", name="70%").click()
    asked.get_by_role("button", name="Commit").click()

    phone = screen("", 390, 844, "light")
    phone.get_by_label("The code on the projector").fill(tally.code.lower())
    phone.keyboard.press("Enter")
    for answer in ("1000 °C, fifty times as much", "19.5 °C, the plain average of the four"):  # a change of mind
        phone.get_by_label(answer).check()
        phone.get_by_role("button", name="Send").click()
        phone.get_by_text("Sent. You can change it").wait_for()
    projector.get_by_text("2 of 2 have voted").wait_for()
    assert projector.locator("#bars .count").all_inner_texts() == [""] * 4  # hidden, so that nobody follows the crowd
    projector.keyboard.press("b")
    projector.locator("#bars li", has_text=answer).get_by_text("1", exact=True).wait_for()
    projector.locator("#bars li", has_text=RIGHT).get_by_text("1", exact=True).wait_for()
    assert sum(map(int, projector.locator("#bars .count").all_inner_texts())) == 2
    found = [*findings(projector), *findings(phone)]

    projector.keyboard.press("r")
    for page in (projector, phone):
        page.get_by_text(f"Measured: {RIGHT}").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert "until its weight is 1" in page.locator("#measured").inner_text()
    assert projector.locator("li.right").inner_text().startswith(f"✓ {RIGHT}")
    projector.keyboard.press("m")
    projector.get_by_text(MISTAKEN[1]).wait_for()
    found += [*findings(projector), *findings(phone)]
    assert found == []
    projector.keyboard.press("ArrowRight")
    phone.get_by_text("Which token gets the most weight").wait_for()
    assert phone.get_by_role("radio", checked=True).count() == 0
    notebook.close()


def test_a_crowd_at_the_door_waits_and_a_new_code_asks_only_those_that_never_voted(screens):
    tally, _, screen = screens
    phones = [screen("", 390, 844, "light") for _ in range(2)]
    tally._joins._left = 0.0  # as after a burst: the phone is told to wait, and asks again by itself
    for phone in phones:
        phone.get_by_label("The code on the projector").fill(tally.code)
        phone.get_by_role("button", name="Join").click()
        phone.get_by_role("button", name="Send").wait_for()
    tally.show(GUESS)
    phones[0].get_by_label(RIGHT).check()
    phones[0].get_by_role("button", name="Send").click()
    phones[0].get_by_text("Sent. You can change it").wait_for()

    for i in range(364):
        tally._paces[f"{i:032x}"] = tally._joins
    projector, asked = screen(f"projector#{tally.key}", 1280, 720, "light"), []
    projector.get_by_text("seats 366 of 400").wait_for()
    old = tally.code
    for answer in ("dismiss", "accept"):
        act = attrgetter(answer)
        projector.once("dialog", lambda dialog, act=act: (asked.append(dialog.message), act(dialog)()))
        projector.get_by_role("button", name="New code").focus()
        projector.keyboard.press("Enter")
        projector.get_by_text(old if answer == "dismiss" else "1 of 1 have voted").wait_for()
    assert asked == ["Make a new code? The 365 learners who have not voted yet must join again with it."] * 2
    assert old != tally.code == projector.locator("#code-shown").inner_text()
    assert projector.locator("#seats").is_hidden()
    phones[1].get_by_label("The code on the projector").wait_for()  # it is asked for the new one
    assert phones[0].get_by_label(RIGHT).is_checked()
    assert findings(projector) == []
