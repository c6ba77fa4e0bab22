"""Chapter 9's figures and live figures: what they draw, computed another way, over every value of every control."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from helpers import opinionated_reader
from sliders import LiveFigureTests, values

from course_lib.chapters.gpt import figures
from course_lib.chapters.gpt import widgets as built
from course_lib.chapters.gpt.claims import first_guess
from course_lib.trace import trace

pytestmark = pytest.mark.usefixtures("no_pixels")
TEXT = "the dog bit the cow ."
TOKENS = ["<bos>", "the", "dog", "bit", "the", "cow", "."]


@pytest.fixture(scope="module")
def model():
    return opinionated_reader()


MAKERS = {
    "trace_explorer": lambda model: built.trace_explorer(*model, TEXT),
    "lens_viewer": lambda model: built.lens_viewer(*model, TEXT),
    "start_slider": lambda model: built.start_slider(),
}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def make(request, model):
    return partial(request.param, model)


class TestEveryLiveFigure(LiveFigureTests):
    pass


# ------------------------------------------------------------------------------------------------------- trace explorer
def test_the_explorer_shows_every_tensor_as_the_trace_recorded_it(model):
    net, tokenizer = model
    explorer = built.trace_explorer(net, tokenizer, TEXT)
    with torch.no_grad(), trace(net) as seen:
        net(torch.tensor([tokenizer.encode(TEXT, end=False)]))
    for name in values(explorer._controls["name"]):
        explorer.render(name=name, head=1)
        recorded = seen[name][0]
        expected = recorded[1] if recorded.dim() == 3 else recorded
        image = explorer.drawing.image
        assert np.allclose(image.get_array(), expected), name
        assert image.get_extent() == [-0.5, expected.shape[1] - 0.5, len(TOKENS) - 0.5, -0.5]
        assert str(tuple(seen[name].shape)) in explorer.text
        assert f"std {expected.std(correction=0):.3g}" in explorer.text
        assert (", head 1" in explorer.text) == (recorded.dim() == 3)
        assert sum(bar.get_height() for bar in explorer.drawing.bars) == pytest.approx(100)


def test_the_explorer_offers_the_whole_way_from_ids_to_logits_in_order(model):
    names = values(built.trace_explorer(*model, TEXT)._controls["name"])
    assert names[:2] == ["token_embedding", "positions"]
    assert names[-2:] == ["final_norm", "output"]
    streams = [name for name in names if name in ("blocks.0", "blocks.1", "blocks.2")]
    assert streams == ["blocks.0", "blocks.1", "blocks.2"]
    assert len(names) == len(set(names)) == 4 + 3 * 11


@pytest.mark.parametrize(
    ("name", "letters"),
    [("blocks.1.attention.weights", "(B, H, T, S)"), ("blocks.1", "(B, T, d_model)"), ("output", "(B, T, V)"),
     ("blocks.0.feed_forward.hidden", "(B, T, d_ff)"), ("blocks.0.attention.key", "(B, H, S, D)")],
)  # fmt: skip
def test_every_tensor_is_named_with_its_dimensions(name, letters):
    assert letters in built.meaning(name)


def test_numbers_without_a_sign_get_a_scale_from_zero_and_others_a_symmetric_one():
    view = figures.TensorView(np.array([[0.0, 2.0], [1.0, 0.0]]), ["a", "b"], "key", "one").draw()
    assert view.image.get_clim() == (0, 2)
    view.update(**figures.TensorView(np.array([[-3.0, 2.0, 0.5], [1.0, 0.0, 0.0]]), ["a", "b"], "feature", "two").data)
    assert view.image.get_clim() == (-3, 3)
    assert view.headline.get_text() == "two"


def test_a_tensor_of_equal_numbers_can_be_drawn():
    view = figures.TensorView(np.zeros((2, 3)), ["a", "b"], "feature", "zeros").draw()
    assert max(bar.get_height() for bar in view.bars) == 100


def test_statistics_are_those_of_numpy():
    numbers = figures.statistics(np.array([[0.0, -2.0], [4.0, 0.0]]))
    assert numbers == {"mean": 0.5, "std": pytest.approx(math.sqrt(4.75)), "smallest": -2, "largest": 4, "zeros": 0.5}


# ------------------------------------------------------------------------------------------------------------- the lens
def test_the_last_row_of_the_lens_is_what_the_model_says(model):
    net, tokenizer = model
    viewer = built.lens_viewer(net, tokenizer, TEXT)
    with torch.no_grad():
        probabilities = net(torch.tensor([tokenizer.encode(TEXT, end=False)]))[0].softmax(dim=-1)
    for place in range(len(TOKENS)):
        viewer.render(place=place)
        best = probabilities[place].topk(5)
        said = [text.get_text() for text in viewer.drawing.texts[-1]]
        assert said == [f"{tokenizer.tokens[i]}  {p:.2f}" for p, i in zip(best.values.tolist(), best.indices.tolist())]
        word = tokenizer.tokens[best.indices[0]]
        assert viewer.drawing.headline.get_text().startswith(
            f"After “{TOKENS[place]}” (position {place}) the lens shows “{word}” from "
        )
        assert viewer.drawing.cells[-1][0].get_linewidth() == 3, "the answer is framed"


def test_cells_are_darker_where_the_word_is_more_probable():
    lens = figures.LensTable(
        [["a", "b"], ["c", "a"]], np.array([[1.0, 0.0], [0.5, 0.2]]), ["0", "1"], "c", "title"
    ).draw()
    shades = [[sum(cell.get_facecolor()[:3]) for cell in row] for row in lens.cells]
    assert shades[0][0] < shades[1][0] < shades[1][1] < shades[0][1] == 3
    assert [[cell.get_linewidth() for cell in row] for row in lens.cells] == [[1, 1], [3, 1]]


def test_the_lens_curve_writes_every_loss_and_the_limit():
    figure = figures.lens_curve([2.3, 1.0], 0.65, "title")
    assert [text.get_text() for text in figure.axes[0].texts][:2] == ["2.3", "1.0"]
    assert figure.axes[0].lines[1].get_ydata()[0] == 0.65


def test_the_lens_curve_draws_its_control_beside_it():
    lines = figures.lens_curve([2.3, 1.0], 0.65, "title", fitted=[1.1, 0.9]).axes[0].lines
    assert [line.get_ydata().tolist() for line in lines[:2]] == [[2.3, 1.0], [1.1, 0.9]]
    assert lines[0].get_linestyle() != lines[1].get_linestyle()


# --------------------------------------------------------------------------------------------------------- two effects
def test_each_part_has_a_bar_for_its_direct_and_one_for_its_total_effect():
    axes = figures.effects({"a": 0.2, "b": -0.05}, {"a": 1.01, "b": 0.0}, "title").axes[0]
    assert [bar.get_width() for bar in axes.patches] == [0.2, -0.05, 1.01, 0.0]
    assert [text.get_text() for text in axes.texts] == ["20% direct", "-5% direct", "101% total", "0% total"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


# ------------------------------------------------------------------------------------------------------ the first guess
@pytest.mark.parametrize(
    ("std", "tied"),
    [(0.02, True), *(pytest.param(*each, marks=pytest.mark.proof) for each in ((1.0, True), (1.0, False)))],
)
def test_the_start_slider_marks_the_loss_of_the_untrained_model(std, tied):
    live = built.start_slider()
    live.render(std=std, tied=tied)
    logits, loss, _ = first_guess(std, tied)
    assert live.drawing.here.get_xydata().tolist() == [[std, pytest.approx(loss)]]
    assert tuple(live.drawing.curve.get_xdata()) == built.STDS
    assert f"first loss {loss:.2f} nats" in live.text
    assert live.drawing.right.get_xlim()[1] == pytest.approx(logits.abs().max().item())
    says_ln_v = live.drawing.headline.get_text().endswith("the first loss is near ln V")
    assert says_ln_v == (loss < 1.05 * math.log(343))
