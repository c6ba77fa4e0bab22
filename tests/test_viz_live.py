"""The machinery of live figures: what a slider triggers, what is shown, and what happens when something goes wrong."""

import asyncio
import base64
import inspect
import io
import re
import textwrap
import threading
from dataclasses import dataclass
from fractions import Fraction
from html.parser import HTMLParser

import ipywidgets as widgets
import matplotlib.image
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.live import LiveFigure, explorable, explore, show, source
from course_lib.live.drawing import Drawing, as_function, fix_layout, new_figure, new_panels
from course_lib.live.figure import DPI, REST, dropdown, light_png, png, slider
from course_lib.live.page import VIEW, WAKE, has_controls


@dataclass
class Bar(Drawing):
    """One bar: the smallest drawing there is."""

    height: float
    colour: str = "red"

    def build(self):
        figure, axes = new_figure(3, 2)
        axes.set_ylim(0, 10)
        (self.bar,) = axes.bar([0], [1])
        return figure

    def move(self):
        if self.height > 9:
            raise ValueError("too high")
        self.bar.set_height(self.height)
        self.bar.set_color(self.colour)


bar = as_function(Bar)


def test_two_figures_are_never_drawn_at_once():
    """JupyterLab may move them in two threads, and both would draw from torch's generator."""
    both, met = threading.Barrier(2), []

    def draw(height):
        try:
            both.wait(timeout=0.2)
            met.append(height)
        except threading.BrokenBarrierError:  # nobody else is drawing: as it should be
            both.reset()
        return Bar(height)

    figures = [LiveFigure(Bar, {"height": slider("height", 1, 0, 9, 1)}, "a bar of {height}".format) for _ in range(2)]
    for figure in figures:
        figure._draw = draw
    threads = [threading.Thread(target=figure.children[0].set_trait, args=("value", 5)) for figure in figures]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert met == []
    assert [figure.drawing.height for figure in figures] == [5, 5]


@pytest.fixture
def live():
    controls = {"height": slider("Height", 2, 0, 10, 1), "colour": dropdown("Colour", ["red", "blue"], "red")}
    return LiveFigure(
        Bar, controls, lambda height, colour: f"A {colour} bar of {height}.", lambda **state: f"<{state['height']}>"
    )


def pixels(data):
    return matplotlib.image.imread(io.BytesIO(data))


def test_render_draws_the_state_that_is_asked_for_into_one_figure(live):
    figure = live.figure
    low, high = pixels(live.render(height=1)), pixels(live.render(height=8))
    assert low.shape == high.shape == (2 * DPI, 3 * DPI, 4)
    red = lambda image: int(((image[..., 0] > 0.9) & (image[..., 1] < 0.1)).sum())  # noqa: E731
    assert red(high) > 5 * red(low)
    assert live.figure is figure, "artists move; nothing is rebuilt"
    assert live.text == "A red bar of 8."
    assert live.render(height=5) == png(bar(5)), "a redrawn figure equals a fresh one"


def test_moving_a_slider_changes_picture_and_words(live):
    picture = next(child for child in live.children if type(child).__name__ == "Image")
    before = picture.value
    live.children[0].value = 7
    assert picture.value != before
    assert picture.value == png(bar(7))
    assert any(
        "A red bar of 7." in getattr(child, "value", "")
        for child in live.children
        if isinstance(getattr(child, "value", ""), str)
    )
    assert any(
        "&lt;7&gt;" in getattr(child, "value", "")
        for child in live.children
        if isinstance(getattr(child, "value", ""), str)
    ), "text is escaped"


def test_an_error_in_a_callback_is_shown_and_the_picture_stays(live):
    picture = next(child for child in live.children if type(child).__name__ == "Image")
    live.children[0].value = 9
    before = picture.value
    live.children[0].value = 10
    assert picture.value == before
    assert any("too high" in str(getattr(child, "value", "")) for child in live.children)
    live.children[0].value = 3
    assert picture.value == png(bar(3))
    assert not any("too high" in str(getattr(child, "value", "")) for child in live.children)


def test_unknown_state_is_named(live):
    with pytest.raises(ValueError, match=r"'width'.*'colour', 'height'"):
        live.render(width=3)


class Images(HTMLParser):
    """The images of some HTML, as dictionaries of their attributes."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found += [dict(attributes)] if tag == "img" else []


def test_the_page_reads_complete_without_a_kernel(live):
    live.children[0].value = 7
    (image,) = Images(live.still).found
    assert base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) == png(bar(7))
    assert image["alt"] == "A red bar of 7."
    words = live.still.rpartition("<img")[2].partition(">")[2]
    assert "A red bar of 7." in words
    assert "&lt;7&gt;" in words, "text is escaped"
    assert repr(live) == "[live figure: height=7, colour=red] A red bar of 7.\n<7>"


def test_show_carries_the_words_and_the_size():
    figure = bar(4)
    words = 'A bar of "four" <units> & more.'
    shown = show(figure, alt=words)
    (image,) = Images(shown._repr_html_()).found
    assert repr(shown) == image["alt"] == words, "what a quote or a bracket would end is whole"
    assert (image["width"], image["height"]) == ("300", "200")
    assert np.array_equal(pixels(base64.b64decode(image["src"].partition(",")[2])), pixels(png(figure)))
    with pytest.raises(ValueError, match="alt"):
        show(figure, alt=" ")


def test_source_shows_the_code_itself_and_nothing_else():
    shown = source(Fraction.limit_denominator, textwrap.dedent).data
    before, code, after = re.split(r"^```(?:python)?$", shown, flags=re.MULTILINE)
    assert before == after == ""
    assert inspect.getsource(Fraction.limit_denominator) in code
    assert inspect.getsource(textwrap.dedent) in code


# ------------------------------------------------------------------------------------- light while it moves, then sharp
def picture_of(live):
    return next(child for child in live.children if type(child).__name__ == "Image")


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time is a number that a test sets: nothing waits, nothing depends on the machine."""

    now = 0.0

    def time(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds
        self.run_until_complete(asyncio.sleep(0))

    def move(self, live, *heights):
        async def kernel():
            for height in heights:
                live.children[0].value = height

        self.run_until_complete(kernel())


@pytest.fixture
def clock():
    loop = Clock()
    yield loop
    loop.close()


def size(data):
    return pixels(data).shape[:2]


def test_a_moving_figure_is_light_and_a_resting_one_is_sharp(live, clock):
    sent = []
    picture_of(live).observe(lambda change: sent.append(change.new), names="value")
    clock.move(live, 3)
    clock.pass_by(0.9 * REST)
    clock.move(live, 5, 7)
    assert [size(each) for each in sent] == [(200, 300)] * 3, "a pixel for each of the page's"
    assert sent[-1] == light_png(bar(7)), "the newest value is shown"
    clock.pass_by(0.9 * REST)
    assert len(sent) == 3, "it has not rested yet: each value starts the rest anew"
    clock.pass_by(0.2 * REST)
    assert sent[3:] == [png(bar(7))], "one sharp picture, of the newest value alone"
    clock.pass_by(10 * REST)
    assert len(sent) == 4


def test_the_light_picture_shows_what_the_sharp_one_does():
    figure = bar(6)
    sharp = pixels(png(figure))[..., :3]
    halved = sharp.reshape(200, 2, 300, 2, 3).mean(axis=(1, 3))
    apart = lambda height: np.abs(pixels(light_png(bar(height)))[..., :3] - halved).mean()  # noqa: E731
    assert apart(6) < min(apart(1), apart(9)) / 4
    light_png(figure)
    assert png(figure) == png(bar(6)), "nor does it change the figure"


def test_what_a_page_keeps_is_sharp_even_while_it_moves(live, clock):
    clock.move(live, 7)
    (image,) = Images(live.still).found
    assert base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) == png(bar(7))
    sent = []
    picture_of(live).observe(lambda change: sent.append(change.new), names="value")
    clock.pass_by(2 * REST)
    assert not sent, "and needs no second one"


def test_an_error_after_a_light_picture_leaves_the_last_good_one_which_turns_sharp(live, clock):
    clock.move(live, 6, 10)
    assert any("too high" in str(getattr(child, "value", "")) for child in live.children)
    assert picture_of(live).value == light_png(bar(6))
    clock.pass_by(2 * REST)
    assert picture_of(live).value == png(bar(6))
    assert any("too high" in str(getattr(child, "value", "")) for child in live.children), "it still says so"


@dataclass
class HalfMoved(Bar):
    """A bar that has moved already when its state fails."""

    def move(self):
        self.bar.set_height(self.height)
        if self.height > 9:
            raise ValueError("too high")


def test_the_sharp_picture_is_the_last_good_state_also_where_a_later_one_failed_half_way(clock):
    figure = LiveFigure(HalfMoved, {"height": slider("Height", 2, 0, 10, 1)}, "a bar of {height}".format)
    clock.move(figure, 6, 10)
    assert picture_of(figure).value == light_png(HalfMoved(6).figure)
    clock.pass_by(2 * REST)
    assert picture_of(figure).value == png(HalfMoved(6).figure)


def test_a_closed_figure_leaves_no_timer_and_a_process_without_a_loop_starts_none(live, clock):
    clock.move(live, 7)
    before = picture_of(live).value
    live.close()
    clock.pass_by(2 * REST)
    assert picture_of(live).value == before
    assert live._rest is None
    live.children[0].value = 5
    assert picture_of(live).value == png(bar(5))
    assert live._rest is None


# ---------------------------------------------------------------------------------------------- what builds and updates
def test_an_updated_drawing_equals_a_fresh_one_and_keeps_its_figure():
    moved = Bar(2)
    figure = moved.figure
    moved.update(height=7, colour="blue")
    assert moved.figure is figure
    assert png(figure) == png(Bar(7, "blue").figure) != png(Bar(7).figure)
    moved.update(colour="red")
    assert png(figure) == png(Bar(7).figure), "what is not named stays"


def test_a_drawing_is_built_once_and_only_when_it_is_asked_for(monkeypatch):
    built = []
    monkeypatch.setattr(Bar, "build", lambda self, build=Bar.build: built.append(self.height) or build(self))
    first, second = Bar(1), Bar(2)
    assert not built
    first.update(**second.data)
    first.draw()
    assert first.figure is first.figure
    assert built == [2]


def test_data_that_a_drawing_does_not_have_are_named_and_change_nothing():
    drawing = Bar(2).draw()
    with pytest.raises(TypeError, match=r"Bar has no \['width'\].*'height', 'colour'"):
        drawing.update(height=3, width=1)
    assert drawing.height == drawing.bar.get_height() == 2


def test_a_drawing_as_a_function_gives_its_figure():
    assert png(as_function(Bar)(4, colour="blue")) == png(Bar(4, "blue").figure)
    assert as_function(Bar).__doc__ == Bar.__doc__


def test_panels_come_row_by_row():
    figure, panels = new_panels(3, 2, 2, 2)
    assert panels == figure.axes
    corners = [(axes.get_position().x0, -axes.get_position().y0) for axes in panels]
    assert corners == sorted(corners, key=lambda corner: corner[::-1])


@pytest.mark.proof
def test_remembered_letters_are_drawn_as_new_ones_are():
    """Moved, in another colour, size, angle or clip, at another resolution, as a formula: beside Agg's own canvas."""

    def pixels(canvas):
        canvas.draw()
        return np.asarray(canvas.buffer_rgba()).copy()

    figure, axes = new_figure(3, 2)
    text = axes.text(0.3, 0.5, "fig. fi ÄÖ", clip_on=True)
    axes.set_title(r"$\frac{1}{2}\sqrt{d}$ and words")
    changes = (
        {}, {"color": "red"}, {"x": 0.31}, {"rotation": 30}, {"fontsize": 14}, {"text": "other"}, {"alpha": 0.5},
        {"x": 0.95}, {"fontweight": "bold"}, {"text": ""}, {"text": "two\nlines"}, {"antialiased": False},
    )  # fmt: skip
    for change in changes:
        text.set(**change)
        for dpi in (100, 200, 100):
            figure.set_dpi(dpi)
            remembered = figure.canvas
            found = [pixels(remembered) for _ in range(2)]
            expected = pixels(FigureCanvasAgg(figure))
            figure.set_canvas(remembered)
            assert all(np.array_equal(each, expected) for each in found), change


def test_letters_that_stay_are_shaped_once(monkeypatch):
    shaped = []
    own = RendererAgg._draw_text_glyphs_and_boxes
    monkeypatch.setattr(
        RendererAgg, "_draw_text_glyphs_and_boxes", lambda *given: shaped.append(given[2:4]) or own(*given)
    )
    figure, axes = new_figure(3, 2)
    moving = axes.text(0.5, 0.5, "0")
    fix_layout(figure)
    figure.canvas.draw()
    assert len(shaped) > 10
    del shaped[:]
    moving.set_text("1")
    figure.canvas.draw()
    assert len(shaped) == 1


def test_figures_leave_nothing_behind_in_pyplot():
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    new_panels(3, 2, 2, 2)
    assert plt.get_fignums() == before


def test_sliders_are_whole_where_their_numbers_are():
    assert type(slider("k", 3, 1, 9, 1)).__name__ == "IntSlider"
    assert type(slider("T", 1.0, 0.0, 2.0, 0.1)).__name__ == "FloatSlider"
    assert dropdown("x", {"one": 1, "two": 2}, 2).value == 2


# --------------------------------------------------------------------------------------- what a page keeps of a widget
def test_a_widget_leaves_a_still_that_no_kernel_is_needed_for():
    source = "from course_lib.chapters.attention.widgets import soft_dictionary\nsoft_dictionary()"
    notebook = new_notebook(cells=[new_code_cell(source)])
    NotebookClient(notebook).execute()
    still, view = notebook.cells[0].outputs
    assert set(still.data) == {"text/html", "text/plain"}
    assert set(view.data) == {VIEW}, "the still is an output of its own, which a lost widget cannot take with it"
    assert still.data["text/plain"].startswith("[live figure:")
    (image,) = Images(still.data["text/html"]).found
    assert len(image["alt"].split()) >= 5


# -------------------------------------------------------------------------------------------------------------- explore
def test_explore_takes_a_function_and_names_what_there_is():
    assert "attention.scaled_dot_product" in explorable()
    with pytest.raises(KeyError, match=r"attention\.scaled_dot_product"):
        explore("attention.scaled_dot_produkt", len)
    with pytest.raises(TypeError, match="without calling"):
        explore("attention.scaled_dot_product", 3)


def broken(*args, **kwargs):
    raise ZeroDivisionError("learner's own")


@pytest.mark.parametrize(
    "exercise_id",
    [pytest.param(each, marks=[pytest.mark.proof] * (i % 4 > 0)) for i, each in enumerate(explorable())],
)
@pytest.mark.parametrize(
    "function",
    [
        lambda *args, **kwargs: None,
        *(pytest.param(each, marks=pytest.mark.proof) for each in (broken, lambda *args, **kwargs: "text")),
    ],
)
def test_explore_survives_every_function_of_a_learner(exercise_id, function):
    widget = explore(exercise_id, function)
    assert len(repr(widget)) > 20


# ------------------------------------------------------------------------------------------------ how long figures take


def test_of_what_can_be_moved_or_pressed_the_still_says_how_it_comes_to_life():
    button, words = widgets.Button(), widgets.HTML("words")
    shown = widgets.VBox([words, widgets.Box(), widgets.VBox([widgets.IntProgress(), widgets.Image()])])
    assert has_controls(button)
    assert has_controls(widgets.VBox([words, widgets.Box([button])]))
    assert not has_controls(shown)
    cells = [
        "import ipywidgets as widgets\nfrom course_lib.live.page import publish",
        "publish(widgets.IntSlider(), 'a still', 'words');",
        "publish(widgets.HTML(), 'a still', 'words');",
        "publish(widgets.Button(), '', '');",
    ]
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    NotebookClient(notebook).execute()
    assert [WAKE in cell.outputs[0].data["text/html"] for cell in notebook.cells[1:]] == [True, False, False]
