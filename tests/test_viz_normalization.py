"""Chapter 7's figures and live figures: what they draw, computed another way, over every value of every control."""

import numpy as np
import pytest
import torch
from sliders import LiveFigureTests
from torch import nn

from course_lib.chapters.normalization import figures
from course_lib.chapters.normalization import widgets as built

pytestmark = pytest.mark.usefixtures("no_pixels")  # tests that want a real picture ask for `pixels`
MAKERS = {
    "shift_and_scale": built.shift_and_scale,
    "norm_axes": built.norm_axes,
    "depth_sliders": built.depth_sliders,
}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def make(request):
    return request.param


class TestEveryLiveFigure(LiveFigureTests):
    pass


# -------------------------------------------------------------------------------------------------- what a norm forgets
@pytest.mark.parametrize(("power", "shift", "eps"), [(0.0, 0, 1e-5), (-1.5, -35, 1e-12), (2.0, 100, 0.1)])
def test_the_bars_are_pytorchs_norms(power, shift, eps):
    live = built.shift_and_scale()
    live.render(power=power, shift=shift, eps=eps)
    x = torch.tensor([10.0, 20, 30, 40], dtype=torch.float64) * 10**power + shift
    layer = nn.LayerNorm(4, eps=eps, dtype=torch.float64)(x).tolist()
    rms = nn.RMSNorm(4, eps=eps, dtype=torch.float64)(x).tolist()
    shown = [[bar.get_height() for bar in bars] for bars in live.drawing.bars]
    for bars, expected in zip(shown, (x.tolist(), layer, rms)):
        assert bars == pytest.approx(expected, abs=1e-9)


def test_the_numbers_at_the_bars_have_no_negative_zero_and_no_powers_of_ten():
    live = built.shift_and_scale()
    for state in ({"power": -4.0, "shift": 0, "eps": 0.1}, {"power": 2.0, "shift": 100, "eps": 1e-5}):
        live.render(**state)
        shown = [number.get_text() for numbers in live.drawing.numbers for number in numbers]
        assert "-0.00" not in shown
        assert not any("e" in text for text in shown), shown


def test_the_words_say_the_number_that_stands_at_the_bar():
    """A number that is rounded twice may end up on the other side of a half: 1.05501 is not 1.05."""
    live = built.shift_and_scale()
    live.render(shift=-100)
    assert live.drawing.numbers[2][1].get_text() == "-1.06"
    assert "RMSNorm: -1.19, -1.06, -0.923, -0.791." in live.text


def test_a_mean_just_below_zero_is_zero():
    live = built.shift_and_scale(layer=lambda x, gamma, beta, eps: x - x.mean() - 1e-3)
    assert live.drawing.headline.get_text().startswith("LayerNorm: mean 0.0, ")


def test_layer_norm_forgets_shift_and_scale_and_rms_norm_scale_alone():
    live = built.shift_and_scale()

    def bars(**state):
        live.render(eps=1e-12, **state)
        return [[round(bar.get_height(), 6) for bar in bars] for bars in live.drawing.bars[1:]]

    layer, rms = bars(power=0.0, shift=0)
    assert layer == pytest.approx([-1.341641, -0.447214, 0.447214, 1.341641])
    assert bars(power=1.0, shift=0) == [layer, rms]
    shifted_layer, shifted_rms = bars(power=0.0, shift=50)
    assert shifted_layer == layer
    assert shifted_rms != rms


# ------------------------------------------------------------------------------------------- which numbers share a mean
def test_the_tensor_of_small_numbers_has_mean_three_and_a_half_in_its_first_token():
    x = built.lecture_tensor()
    assert x.shape == (3, 4, 6)
    assert x[0, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert x[1, 2].tolist() == [2.5, 3.5, 4.5, 5.5, 6.5, 7.5]
    assert x[2].tolist() == [[t] * 6 for t in range(4)]


@pytest.mark.parametrize("norm", ["layer", "rms", "batch"])
def test_exactly_the_coloured_numbers_decide_the_result(norm):
    sentence, position, feature = 1, 2, 3
    live = built.norm_axes()
    live.render(norm=norm, sentence=sentence, position=position, feature=feature)
    cells = [cell.get_facecolor() != (1, 1, 1, 1) for cell in live.drawing.cells]
    x = built.lecture_tensor().requires_grad_()
    if norm == "batch":
        result = nn.BatchNorm1d(6)(x.reshape(12, 6)).reshape(3, 4, 6)
    else:
        result = nn.LayerNorm(6)(x) if norm == "layer" else nn.RMSNorm(6)(x)
    result[sentence, position, feature].backward()
    outside = ~torch.tensor(cells).view(3, 4, 6)
    assert outside.sum() == 72 - (12 if norm == "batch" else 6)
    assert (x.grad[outside] == 0).all(), "what is not coloured has no say"
    assert (x.grad[~outside] != 0).sum() > 1
    assert f"becomes {result[sentence, position, feature]:.2f}" in live.drawing.headline.get_text()
    assert sum(cell.get_linewidth() > 1 for cell in live.drawing.cells) == 1


# ---------------------------------------------------------------------------------------------------- spread by depth
def test_the_depth_figure_explodes_only_without_norm():
    live = built.depth_sliders()

    def height(**state):
        live.render(n_blocks=50, **state)
        return live.drawing.dot.get_ydata()[0]

    assert height(norm="none", initialization="xavier", residual=True) > 1e8
    assert 1 < height(norm="pre", initialization="xavier", residual=True) < 20
    assert height(norm="post", initialization="xavier", residual=True) == pytest.approx(1, abs=0.01)
    assert height(norm="none", initialization="default", residual=False) < 0.2
    assert live.drawing.setting_text.get_text() == "Norm: none, PyTorch's initial weights, no residual"
    low, high = live.figure.axes[0].get_ylim()
    assert low < 0.04
    assert high > 1e11


# ------------------------------------------------------------------------------------------------------- static figures
def test_static_figures_draw_the_data_they_are_given():
    pair = figures.pre_and_post(np.array([1, 2, 2.5]), np.array([1.0, 1, 1]))
    assert [line.get_ydata().tolist() for line in pair.axes[0].lines][1:] == [[1, 2, 2.5], [1, 1, 1]]
    assert pair.texts[0].get_text() == "After 2 blocks: post-norm 1.0, pre-norm 2.5 and still growing"
    places = figures.eps_places(np.array([1e-6, 1e-3, 1]), np.array([0.1, 0.6, 1]), np.array([0.5, 0.9, 1]))
    assert [line.get_ydata().tolist() for line in places.axes[0].lines] == [[0.1, 0.6, 1], [0.5, 0.9, 1]]
    by_rate = figures.loss_by_rate([0.01, 0.1], {"with norms": [2.1, 2.0], "no norms": [2.7, 2.3]}, 2.9)
    axes = by_rate.axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[2.9, 2.9], [2.1, 2.0], [2.7, 2.3]]
    assert [text.get_text() for text in axes.texts] == ["letter frequencies only", "with norms", "no norms"]


@pytest.mark.parametrize(
    ("hand", "fused", "title"),
    [
        ([0.6, 0.7], [1.2, 1.3], "faster by hand, slower with PyTorch's functions"),
        ([0.6, 1.2], [0.9, 0.8], "as fast or mixed by hand, faster with PyTorch's functions"),
    ],
)
def test_the_title_of_the_speed_figure_follows_the_bars(hand, fused, title):
    figure = figures.speed_ratios([256, 512], {"by hand": hand, "with PyTorch's functions": fused})
    assert figure.texts[0].get_text() == f"On cpu, 1 thread: RMSNorm is {title}"
    assert [bar.get_height() for bar in figure.axes[0].patches] == [*hand, *fused]
