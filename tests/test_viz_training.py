"""Chapter 12's figures and live figures: what they draw, computed another way, over every value of every control."""

import math

import numpy as np
import pytest
from sliders import LiveFigureTests

from course_lib.chapters.training import figures
from course_lib.chapters.training import widgets as built

pytestmark = pytest.mark.usefixtures("no_pixels")  # tests that want a real picture ask for `pixels`


@pytest.fixture
def sliders():
    return built.schedule_sliders()


@pytest.fixture(params=[built.schedule_sliders, built.ability_slider], ids=["schedule", "abilities"])
def make(request):
    return request.param


class TestEveryLiveFigure(LiveFigureTests):
    pass


@pytest.mark.parametrize(("at", "rate"), [(0, 0.0), (5, 0.002), (10, 0.004), (55, 0.0025), (100, 0.001)])
def test_the_schedule_passes_through_points_computed_by_hand(sliders, at, rate):
    sliders.render(peak=0.004, warmup=100, total=1000, floor=0.25, at=at)
    x, y = sliders.drawing.here.get_xydata()[0]
    assert (x, y) == pytest.approx((10 * at, rate), abs=1e-9)
    assert f"Step {10 * at}: {rate:.4f}." in sliders.text


def test_without_warm_up_and_with_a_full_floor_the_rate_is_constant(sliders):
    sliders.render(peak=0.002, warmup=0, total=200, floor=1.0)
    assert set(sliders.drawing.line.get_ydata()) == {0.002}
    assert "Mean over the run: 100% of the peak." in sliders.text
    assert "steady" in sliders.drawing.headline.get_text()


def test_the_title_speaks_of_your_schedule_only_once_there_is_one():
    def unwritten(*arguments):
        raise NotImplementedError

    titles = [built.schedule_explorer(each).drawing.headline.get_text() for each in (unwritten, lambda *_: 0.001)]
    assert titles == [
        "No schedule of yours yet: the library's (dashed)",
        "Your schedule (line) and the library's (dashed)",
    ]


def test_the_live_curve_grows_by_each_point_and_says_so(pixels):
    curve = built.LiveCurve(entropy=0.65, guessing=5.84, total=200)
    first = bytes(curve._image.value)
    assert first.startswith(b"\x89PNG")
    assert "can fall to 0.65 and no further" in curve._caption.value
    curve.add(0, 5.8)
    curve.add(100, 1.25)
    assert curve.drawing.line.get_xydata().tolist() == [[0, 5.8], [100, 1.25]]
    assert "Step 100: the loss is 1.25, still 0.60 nats above the entropy" in curve._caption.value
    assert bytes(curve._image.value) != first
    assert (curve._bar.value, curve._bar.max) == (100, 200)


def test_the_live_curve_reads_complete_before_training():
    curve = built.LiveCurve(entropy=0.65, guessing=5.84, total=200)
    assert repr(curve).startswith("[live curve: 200 steps]")
    assert f'<img alt="{curve!r}"' in curve.still
    before = repr(curve)
    curve.add(10, 3.0)
    assert repr(curve) == before, "the page's text does not depend on time"


def test_static_figures_draw_the_data_they_are_given():
    noisy = figures.LossCurve([0, 2], [5.8, 2.0], 0.65, 4, 5.84, batch_losses=[5.9, 2.2, 1.8]).draw()
    assert noisy.line.get_xydata().tolist() == [[0, 5.8], [2, 2.0]]
    assert noisy.batches.get_xydata().tolist() == [[1, 5.9], [2, 2.2], [3, 1.8]], "one for each step, from 1"
    for losses in ([5.8, 2.0], [5.8, 5.7], [5.8, math.inf]):
        drawn = figures.LossCurve([0, 2], losses, 0.65, 4, 5.84, batch_losses=[5.9]).draw()
        box = drawn.key.get_window_extent().transformed(drawn.axes.transData.inverted())
        curve = np.interp(np.linspace(box.x0, box.x1), [0, 2], losses)
        assert box.y0 > curve.max() or box.y1 < curve.min(), "no line crosses the key"

    jump = figures.jump([3.2, 3.1, 0.4, 0.2], [0, 2, 4], [0.05, 0.1, 0.9], guessing=math.log(24))
    assert jump.axes[1].lines[0].get_ydata().tolist() == [0.05, 0.1, 0.9]
    assert jump.texts[0].get_text() == "The loss stays high, then falls; half of the copies are correct at step 4"
    never = figures.jump([3.2, 3.1], [0, 2], [0.05, 0.1], guessing=math.log(24))
    assert never.texts[0].get_text().endswith("the copies stay wrong")


def test_the_moves_the_sweep_and_the_law_are_drawn_as_they_are_given():
    lines = [line.get_xydata().tolist() for line in figures.moves({"new rows": [1.0, 0.5, 0.2]}).axes[0].lines]
    assert lines == [[[1, 1.0], [2, 0.5], [3, 0.2]]]

    runs = {"1, constant": ([0, 1, 1], [5.8, 2.0, 1.5]), "1, decayed": ([0, 1, 0], [5.8, 2.0, 1.2])}
    left, right = figures.schedules(50, runs).axes
    assert [line.get_xydata().tolist() for line in left.lines] == [[[0, 0], [50, 1], [100, y]] for y in (1, 0)]
    assert [line.get_ydata().tolist() for line in right.lines] == [losses for _, losses in runs.values()]
    assert figures.schedules(50, runs).texts[0].get_text() == "The run “1, decayed” ends lowest"

    swept = figures.sweep({"32": {0.01: [2.0, 4.0], 0.02: [1.0, None]}}, 0.65, "one")
    mean, *seeds = [line.get_xydata().tolist() for line in swept.axes[0].lines][:4]
    assert mean == [[0.01, 3.0], [0.02, 1.0]]
    assert seeds[:2] == [[[0.01, 2.0], [0.01, 4.0]], [[0.02, 1.0]]], "one that diverged is left out"
    assert seeds[2] == [[0.02, 1.0]], "the lowest is ringed"

    compared = figures.optimizers({"Muon": {0.01: [0.4, 0.5, 0.9], 0.02: [0.2, 0.4, 0.3], 0.04: [0.1, None, 2]}}, "two")
    line, best = (line.get_xydata().round(9).tolist() for line in compared.axes[0].lines)
    assert line == [[0.01, 0.6], [0.02, 0.3]], "a rate at which a run diverged is left out"
    assert best == [[0.02, 0.3]]
    band = compared.axes[0].collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == pytest.approx((0.2, 0.9))

    other = figures.Predicted("64", 9, 4000, 0.85, 0.75)
    law = figures.above_entropy({"8": [(1000, 1.65)]}, {"8": [(1000, 1.75), (2000, 1.15)]}, [other], 0.65, "law")
    found = [[[x, round(y, 9)] for x, y in line.get_xydata().tolist()] for line in law.axes[0].lines]
    assert found == [[[1000, 1.0]], [[1000, 1.1], [2000, 0.5]], [[4000, 0.2]], [[4000, 0.1]]]


def test_an_ability_is_drawn_at_the_step_that_is_asked_for():
    right = {"capitals": [0.0, 0.5, 1.0], "copying": [0.0, 0.0, 0.25]}
    drawing = figures.Abilities([0, 20, 100], [5.8, 2.0, 1.0], right, 0.65, 1).draw()
    assert [bar.get_width() for bar in drawing.bars] == [0.5, 0.0]
    assert drawing.dot.get_xydata().tolist() == [[20, 2.0]]
    drawing.update(at=2)
    assert [bar.get_width() for bar in drawing.bars] == [1.0, 0.25]
    assert "Step 100: 0.35 nats above" in drawing.headline.get_text()
