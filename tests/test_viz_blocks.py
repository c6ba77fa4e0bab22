"""Chapter 8's figures and live figures: what they draw, computed another way, over every value of every control."""

import math
import re
from itertools import combinations, product

import numpy as np
import pytest
from sliders import LiveFigureTests

from course_lib.chapters.blocks import figures
from course_lib.chapters.blocks import widgets as built
from course_lib.chapters.blocks.claims import ARRANGEMENTS, stack_profile, tanh_gradients

pytestmark = pytest.mark.usefixtures("no_pixels")
MAKERS = {"depth": built.depth_slider, "stack": built.stack_explorer}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def make(request):
    return request.param


class TestEveryLiveFigure(LiveFigureTests):
    pass


@pytest.mark.parametrize(("depth", "gain", "scale"), [(1, 1.0, 1.0), (37, 2.0, 0.5), (100, 3.0, 2.0)])
def test_the_depth_slider_draws_the_gradient_of_every_layer(depth, gain, scale):
    live = built.depth_slider()
    live.render(depth=depth, gain=gain, scale=scale)
    for line, skip in ((live.drawing.skip, True), (live.drawing.plain, False)):
        assert line.get_xdata().tolist() == list(range(1, depth + 1))
        assert line.get_ydata() == pytest.approx(tanh_gradients(depth, skip, gain, scale))
    first = figures.power(tanh_gradients(depth, True, gain, scale)[0])
    assert f"gets {first} with the skip" in live.text
    assert f"{first} reaches the first with the skip" in live.drawing.headline.get_text()


def test_a_gradient_of_zero_has_no_place_on_a_logarithmic_axis_and_is_left_out():
    live = built.depth_slider()
    live.render(scale=0.0)
    assert live.drawing.plain.get_xydata().size == 0
    assert live.drawing.skip.get_ydata() == pytest.approx([8.0] * 50)
    assert "8 with the skip and 0 without" in live.text


def test_the_two_names_at_the_ends_never_touch():
    live = built.depth_slider()
    for depth, gain, scale in product((1, 50, 100), (0.25, 1.0, 3.0), (0.0, 1.0, 2.0)):
        live.render(depth=depth, gain=gain, scale=scale)
        low, high = live.drawing.axes.get_ylim()
        places = [math.log(name.get_position()[1]) for name in live.drawing.names]
        assert abs(places[0] - places[1]) > 0.06 * math.log(high / low), (depth, gain, scale)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_the_stack_explorer_draws_stream_and_gradient(arrangement):
    live = built.stack_explorer()
    live.render(arrangement=arrangement, depth=8, gain=0.5)
    profile = stack_profile(arrangement, 8, 0.5)
    assert live.drawing.std_line.get_ydata() == pytest.approx(profile.std)
    assert live.drawing.gradient_line.get_ydata() == pytest.approx(profile.stream_gradient)
    assert live.text.startswith(f"{arrangement}, 8 blocks, weights × 0.5")


def test_overflow_is_said_in_words():
    live = built.stack_explorer()
    live.render(arrangement="no norm", depth=48, gain=2.0)
    assert "too large for float32" in live.text
    assert live.drawing.lost[1].get_text() == "not a finite number anywhere"


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0"), (1, "1"), (0.0123, "0.012"), (3.14159, "3.1"), (117.4, "117"), (2.6e-12, "3e-12"), (4.2e7, "4e7"),
     (float("inf"), "too large for float32"), (float("nan"), "too large for float32")],
)  # fmt: skip
def test_numbers_are_written_as_people_read_them(number, said):
    assert figures.power(number) == said


@pytest.mark.parametrize("n", [1, 2, 9, 10, 11, 48, 50, 100])
def test_ticks_are_whole_numbers_inside_the_axis(n):
    places = figures.ticks(n)
    assert places == sorted(set(places))
    assert places[0] == 1
    assert places[-1] <= n
    assert len(places) <= 12


def test_places_that_are_too_near_are_moved_apart_in_order():
    moved = figures.spread([1.0, 1.1, 5.0, 0.95], 0.5)
    order = np.argsort([1.0, 1.1, 5.0, 0.95])
    assert np.argsort(moved).tolist() == order.tolist()
    assert np.diff(np.sort(moved)).min() > 0.49
    assert moved[2] == 5.0
    assert figures.spread([1.0, 2.0], 0.5) == [1.0, 2.0]


def test_loss_curves_draw_running_means_and_the_baseline():
    losses = [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    figure = figures.loss_curves({"one": losses, "two": losses[::-1]}, 4.5, "A title", smooth=3)
    one, two, baseline = figure.axes[0].lines
    assert np.allclose(one.get_xydata(), [[3, 4], [4, 3], [5, 2], [6, 1]])
    assert two.get_ydata()[-1] == pytest.approx(4)
    assert set(baseline.get_ydata()) == {4.5}
    assert [text.get_text() for text in figure.axes[0].texts] == ["word frequencies alone", "one", "two"]


def test_the_residual_stream_is_drawn_with_what_every_branch_adds():
    figure = figures.residual_stream([1.0, 2.5, 9.0], [0.5, 3.25], [1.5, 4.0], "a token")
    written = [text.get_text() for text in figure.axes[0].texts]
    assert [text for text in written if text.startswith("adds")] == [f"adds {n:.1f}" for n in (0.5, 1.5, 3.25, 4.0)]
    assert [text for text in written if re.fullmatch(r"\d\.\d", text)] == ["1.0", "2.5", "9.0"]
    assert written.count("norm") == written.count("+") == 4
    figure.draw_without_rendering()
    numbers = [text.get_window_extent() for text in figure.axes[0].texts if not text.get_text().startswith("+")]
    assert not any(one.overlaps(other) for one, other in combinations(numbers, 2))


def test_the_diagram_has_the_norms_where_their_names_say():
    left, right = figures.block_diagram().axes
    for axes, on_the_path in ((left, False), (right, True)):
        norms = [text.get_position()[0] for text in axes.texts if text.get_text() == "norm"]
        assert len(norms) == 2
        assert all((x == pytest.approx(0.5)) == on_the_path for x in norms)
