"""Chapter 3's figures and live figures: what they draw, computed another way, over every value of every control."""

import math

import numpy as np
import pytest
import torch
from sliders import LiveFigureTests

from course_lib.chapters.masks import figures
from course_lib.chapters.masks import widgets as built

SCORES = np.array([[0.5, -0.1, 0.6, 1.5], [-0.2, -0.2, 1.5, 0.7], [-0.4, 0.5, -0.4, -0.5], [0.2, -1.9, -1.7, -0.5]])
MAKERS = {
    "mask_patterns": built.mask_patterns,
    "masked_row": lambda: built.masked_row(SCORES, list("abcd")),
    "leak_test": built.leak_test,
}
pytestmark = pytest.mark.usefixtures("no_pixels")


def title(drawing):
    return drawing.headline.get_text()


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def make(request):
    return request.param


class TestEveryLiveFigure(LiveFigureTests):
    distinct = 8


def test_a_live_figure_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    built.leak_test()
    assert torch.equal(torch.randn(3), expected)


# -------------------------------------------------------------------------------------------------------- the mechanism
def test_the_drawing_of_a_mask_shows_infinity_hatching_and_no_weight_exactly_where_it_hides():
    scores, mask = np.round(SCORES, 1), np.tri(4, dtype=bool)
    raised = np.exp(np.where(mask, scores, -np.inf))
    weights = raised / raised.sum(axis=1, keepdims=True)
    (axes,) = figures.masking(list("abcd"), scores, mask, weights).axes
    cells = [text.get_text() for text in axes.texts if text.get_fontsize() == 9]
    tables = np.array(cells).reshape(4, 4, 4)  # scores, mask, masked scores, weights
    assert tables[0].astype(float).tolist() == scores.tolist()
    assert (tables[1] == "T").tolist() == mask.tolist()
    assert (tables[2] == "−∞").tolist() == (~mask).tolist()
    assert np.allclose(tables[3].astype(float), weights, atol=0.0051)
    hatched = [bool(patch.get_hatch()) for patch in axes.patches[1::2]]
    assert hatched == [False] * 16 + 3 * (~mask).flatten().tolist(), "what is hidden is marked by more than its colour"


# ------------------------------------------------------------------------------------------------------------- patterns
ALLOWED = {
    built.BERT: lambda t, s, source: True,
    built.GPT: lambda t, s, source: s <= t,
    built.T5: lambda t, s, source: s < source or s <= t,
}


@pytest.mark.parametrize(("length", "prefix", "padding"), [(2, 0, 0), (8, 3, 0), (8, 3, 2), (16, 16, 8), (5, 16, 8)])
@pytest.mark.parametrize("pattern", ALLOWED)
def test_a_pair_is_coloured_exactly_if_its_family_allows_it(pattern, length, prefix, padding):
    live = built.mask_patterns()
    live.render(pattern=pattern, length=length, prefix=prefix, padding=padding)
    real = max(1, length - padding)
    counts = {}
    for image, (name, allows) in zip(live.drawing.images, ALLOWED.items()):
        expected = [[int(s < real and allows(t, s, min(prefix, length))) for s in range(length)] for t in range(length)]
        assert image.get_array().tolist() == expected
        assert tuple(image.get_extent()) == (-0.5, length - 0.5, length - 0.5, -0.5)
        counts[name] = sum(map(sum, expected))
    assert title(live.drawing) == f"{pattern}: {counts[pattern]} of {length**2} pairs may attend (coloured)"
    assert live.text.endswith(f"{counts[pattern]} pairs.")
    framed = [axes.get_title().startswith("▸") for axes in live.figure.axes]
    assert framed == [name == pattern for name in ALLOWED], "the chosen one is marked by more than its colour"


@pytest.mark.parametrize(("prefix", "marked"), [(0, False), (3, True), (8, False), (16, False)])
def test_dashed_lines_mark_where_the_target_of_t5_begins_and_nothing_else(prefix, marked):
    live = built.mask_patterns()
    live.render(length=8, prefix=prefix)
    for name, (across, down) in zip(ALLOWED, live.drawing.edges):
        assert across.get_visible() == down.get_visible() == (marked and name == built.T5)
        if across.get_visible():
            assert [*across.get_ydata(), *down.get_xdata()] == [prefix - 0.5] * 4


# ----------------------------------------------------------------------------------------------------------- one row
@pytest.mark.parametrize("query", range(4))
def test_a_masked_row_shares_out_one_and_a_row_zeroed_afterwards_less(query):
    raised = [math.exp(score) for score in SCORES[query]]
    seen = raised[: query + 1]
    expected = {
        built.BEFORE: [each / sum(seen) for each in seen] + [0] * (3 - query),
        built.AFTER: [each / sum(raised) for each in seen] + [0] * (3 - query),
        built.NONE: [each / sum(raised) for each in raised],
    }
    live = built.masked_row(SCORES, list("abcd"))
    for how, weights in expected.items():
        live.render(query=query, how=how)
        parts = live.drawing
        assert [bar.get_width() for bar in parts.weight_bars] == pytest.approx(weights)
        assert parts.sum.get_text() == f"sum of the weights: {sum(weights):.2f}"
        assert title(live.drawing).endswith("the weights sum to 1") == (abs(sum(weights) - 1) < 1e-4)
        hidden = [note.get_text() for note in parts.notes].count("−inf: hidden")
        assert hidden == (3 - query if how == built.BEFORE else 0)
        zeroed = [number.get_text() for number in parts.numbers].count("0.00, zeroed")
        assert zeroed == (3 - query if how == built.AFTER else 0)
        assert parts.notes[0].get_text() == f"{SCORES[query][0]:.2f}".replace("-", "−"), "the first is always seen"


# ------------------------------------------------------------------------------------------------------------ leak test
REACHED = {  # which outputs can a change at `position` reach in two layers?
    "no mask": lambda t, position: True,
    "causal mask": lambda t, position: t >= position,
    "off by one": lambda t, position: t >= position - 2,  # one position further in each layer
    "prefix of 4": lambda t, position: t >= position or (position < 4 and t < 4),
}


@pytest.mark.parametrize("mask", REACHED)
def test_exactly_the_outputs_move_that_a_path_leads_to(mask):
    live = built.leak_test()
    for position in range(built.POSITIONS):
        live.render(mask=mask, position=position)
        moved = [bar.get_height() > 1e-5 for bar in live.drawing.bars]
        assert moved == [REACHED[mask](t, position) for t in range(built.POSITIONS)]
        leaks = sum(moved[:position])
        assert (f"{leaks} of the {position} outputs before it move" in title(live.drawing)) == (leaks > 0)


def test_leaks_are_hatched_and_not_only_red():
    bars = figures.LeakBars(np.array([0.5, 0.0, 2.0, 0.3]), 2, "Some mask").draw()
    assert [bar.get_hatch() for bar in bars.bars] == ["//", "//", None, None]
    assert title(bars) == "Some mask, token 2 changed: 1 of the 2 outputs before it move"


# ------------------------------------------------------------------------------------------------- with and without
def test_losses_are_drawn_in_pairs_and_the_worst_at_inference_is_named():
    figure = figures.losses(["with", "without"], [1.4, 0.5], [1.5, 3.0])
    assert [bar.get_width() for bar in figure.axes[0].patches] == [1.4, 0.5, 1.5, 3.0]
    assert figure.texts[0].get_text() == "Without: 0.5 nats in training, 3.0 at inference"


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([0.1, 0.2, 0.7], "In the last layer, 70% of the weight goes to one position: 1 to the right"),
        ([0.1, 0.8, 0.1], "In the last layer, 80% of the weight goes to one position: itself"),
        ([0.9, 0.0, 0.1], "In the last layer, 90% of the weight goes to one position: 1 to the left"),
    ],
)
def test_weights_over_the_distance_are_drawn_and_the_largest_is_named(weights, said):
    figure = figures.where_it_looks([-1, 0, 1], weights)
    assert [bar.get_height() for bar in figure.axes[0].patches] == weights
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["−1", "itself", "+1"]
    assert figure.texts[0].get_text() == said
