"""Chapter 2's figures and live figures: what they draw, computed another way, over every value of every control."""

import math
import re
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import opinionated_reader
from sliders import LiveFigureTests
from torch.distributions import Categorical

from course_lib.chapters.attention import figures
from course_lib.chapters.attention import widgets as built
from course_lib.grading import EXERCISES
from course_lib.live import explorable, explore


def right_attention(q, k, v, mask=None):
    weights = (q @ k.T / math.sqrt(q.shape[-1])).masked_fill(torch.zeros(4, 4).bool() if mask is None else ~mask, -1e30)
    return weights.softmax(-1) @ v, weights.softmax(-1)


def right_entropy(scores, d_k, scaled):
    return Categorical(logits=scores / math.sqrt(d_k) if scaled else scores).entropy()


@pytest.fixture(scope="module")
def trained():
    return opinionated_reader()


MAKERS = {
    "soft_dictionary": lambda trained: built.soft_dictionary(),
    "walk_through": lambda trained: built.walk_through(),
    "walk_through, own function": lambda trained: built.walk_through(right_attention),
    "saturation": lambda trained: built.saturation_sliders(),
    "entropy": lambda trained: built.explore_entropy(right_entropy),
    "softmax": lambda trained: built.explore_softmax(torch.softmax),
    "head_viewer": lambda trained: built.head_viewer(*trained, "the dog bit the cow ."),
}
pytestmark = pytest.mark.usefixtures("no_pixels")  # tests that want a real picture ask for `pixels`


def in_data(patch):
    return patch.get_patch_transform().transform(patch.get_path().vertices).tolist()


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def make(request, trained):
    return partial(request.param, trained)


class TestEveryLiveFigure(LiveFigureTests):
    pass


# -------------------------------------------------------------------------------------------------------- the mechanism
def test_the_drawing_of_the_mechanism_holds_every_number_and_frames_the_query():
    rng = torch.Generator().manual_seed(0)
    x, q, k, v = (torch.randn(5, 4, generator=rng).round(decimals=1) for _ in range(4))
    weights = (q @ k.T / 2).softmax(dim=-1)
    tensors = {"x": x, "Q": q, "K": k, "V": v, "scores": q @ k.T / 2, "weights": weights, "output": weights @ v}
    words = ["the", "dog", "chased", "the", "cow"]
    figure = figures.mechanism(words, {name: tensor.numpy() for name, tensor in tensors.items()}, query=3)
    (axes,) = figure.axes
    shown = [text.get_text() for text in axes.texts]
    numbers = [text.replace("−", "-") for text in shown if re.fullmatch(r"−?\d*\.?\d+", text)]
    drawn = torch.tensor([float(number) for number in numbers])
    assert torch.allclose(drawn, torch.cat([tensor.flatten() for tensor in tensors.values()]), atol=0.0051)
    assert {f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items()} <= set(shown)
    assert shown.count("dog") == 3, "beside x, and below scores and weights"
    frames = [patch for patch in axes.patches if patch.get_linewidth() == 2]
    assert [round(frame.get_width() / figures.CELL_WIDTH) for frame in frames] == [4, 4, 5, 5, 4]
    first = axes.patches[0].get_y()  # of x, where the framed row is the query's
    assert frames[0].get_y() == pytest.approx(first + 3 * figures.CELL_HEIGHT)
    one, other = (words[s] for s in (-weights[3]).argsort()[:2])
    assert re.search(rf"“the” .*“{one}”.*“{other}”", figure.texts[0].get_text())


# ---------------------------------------------------------------------------------------------------- a soft dictionary
def test_a_sharp_look_up_returns_the_value_of_the_best_key():
    lake = built.soft_dictionary()
    for angle, temperature in built.STATIONS.values():
        lake.render(angle=angle, sharpness=50.0)
        assert f"answer {temperature:.1f} °C" in lake.text
        assert f"Answer {temperature:.1f} °C" in lake.drawing.headline.get_text()


def test_sharpness_zero_gives_the_plain_average_from_everywhere():
    lake = built.soft_dictionary()
    for angle in (0, 130, 355):
        lake.render(angle=angle, sharpness=0.0)
        assert [bar.get_width() for bar in lake.drawing.bars] == [0.25] * 4
        assert "answer 19.5 °C" in lake.text


def test_the_look_up_averages_with_the_softmax_of_the_cosines():
    lake = built.soft_dictionary()
    lake.render(angle=60, sharpness=2.0)
    expected = [math.exp(2 * math.cos(math.radians(60 - key))) for key, _ in built.STATIONS.values()]
    widths = [bar.get_width() for bar in lake.drawing.bars]
    assert widths == pytest.approx([weight / sum(expected) for weight in expected], abs=1e-6)
    x, y = lake.drawing.query.get_xydata()[1]
    assert (x, y) == pytest.approx((0.5, math.sqrt(3) / 2))


# ---------------------------------------------------------------------------------------- one query, from scores to mix
@pytest.mark.parametrize("hide_later", [False, True])
@pytest.mark.parametrize("query", range(4))
def test_the_walk_shows_pytorchs_own_weights_and_output(query, hide_later):
    walk = built.walk_through()
    walk.render(query=query, hide_later=hide_later)
    parts = walk.drawing
    weights = F.scaled_dot_product_attention(built.Q, built.K, torch.eye(4), is_causal=hide_later)[query]
    output = F.scaled_dot_product_attention(built.Q, built.K, built.V, is_causal=hide_later)[query]
    assert [bar.get_width() for bar in parts.weight_bars] == pytest.approx(weights.tolist(), abs=1e-6)
    assert parts.star.get_xydata()[0].tolist() == pytest.approx(output.tolist(), abs=1e-6)
    assert f"output ({output[0]:.2f}, {output[1]:.2f})" in walk.text
    hidden = [text.get_text() for text in parts.score_numbers].count("−inf: hidden")
    assert hidden == (3 - query if hide_later else 0)
    assert not any(outline.get_visible() for outline in parts.outlines)


def test_the_walk_is_driven_by_the_learners_function():
    def unscaled(q, k, v, mask=None):
        weights = (q @ k.T).softmax(-1)
        return weights @ v, weights

    walk = explore("attention.scaled_dot_product", unscaled)
    walk.render(query=2)
    shown = [bar.get_width() for bar in walk.drawing.weight_bars]
    outlines = [outline.get_width() for outline in walk.drawing.outlines]
    assert shown == pytest.approx((built.Q[2] @ built.K.T).softmax(-1).tolist())
    assert outlines == pytest.approx((built.Q[2] @ built.K.T / 2).softmax(-1).tolist())
    assert "The library (outlines) has 0.192, 0.316" in walk.text
    right = explore("attention.scaled_dot_product", right_attention)
    assert "agrees with the library" in right.text


def test_an_empty_answer_is_drawn_without_weights(pixels):
    walk = explore("attention.scaled_dot_product", unanswered)
    assert walk.render(query=3).startswith(b"\x89PNG")
    assert walk.drawing.headline.get_text() == "token 3: no weights to show"
    assert [number.get_text() for number in walk.drawing.weight_numbers] == ["?"] * 4


def raises(*arguments):
    raise IndexError("too many indices")


def unanswered(*arguments):
    raise NotImplementedError


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (unanswered, "still empty"),
        (raises, "IndexError: too many indices"),
        (lambda q, k, v, mask=None: None, "It returned one NoneType"),
        (lambda q, k, v, mask=None: v, "It returned one Tensor"),
        (lambda q, k, v, mask=None: (v, v, v), "It returned 3 parts"),
        (lambda q, k, v, mask=None: (v, v), "weights (4, 2)"),
        (lambda q, k, v, mask=None: (v, torch.full((4, 4), torch.nan)), "NaN"),
        (lambda q, k: (q, k), "TypeError"),
    ],
)
def test_whatever_a_learners_attention_does_the_figure_says_so(function, said):
    walk = explore("attention.scaled_dot_product", function)
    assert said in walk.text
    walk.render(query=3, hide_later=True)
    assert said in walk.text


# ------------------------------------------------------------------------------------------------------------- why √d_k
@pytest.mark.parametrize("scaled", [False, True])
def test_saturation_shows_p_times_one_minus_p_as_autograd_has_it(scaled):
    sliders = built.saturation_sliders()
    sliders.render(d_k=16, scaled=scaled)
    parts = sliders.drawing
    weights = torch.tensor([bar.get_height() for bar in parts.bars])
    jacobian = torch.autograd.functional.jacobian(lambda scores: scores.softmax(-1), weights.log())
    assert weights.sum().item() == pytest.approx(1, abs=1e-5)
    assert [bar.get_height() for bar in parts.slopes] == pytest.approx(jacobian.diagonal().tolist(), abs=1e-5)
    entropy = Categorical(probs=weights).entropy()
    assert f"entropy {entropy:.2f} of at most 2.08 nats" in parts.entropy.get_text()
    assert f"entropy {entropy:.2f} nats" in sliders.text


def test_saturation_opens_at_a_wide_head_whose_best_key_takes_nearly_all():
    sliders = built.saturation_sliders()
    assert sliders.text.startswith("d_k = 64, scores not divided. A typical query: largest weight 0.89, entropy 0.35")
    assert sliders.drawing.weights.max() == pytest.approx(0.89, abs=0.005)
    sliders.render(d_k=64, scaled=True)
    assert sliders.drawing.weights.max() == pytest.approx(0.32, abs=0.005), "the text below the figure quotes both"


def test_only_unscaled_weights_saturate_as_d_k_grows():
    sliders = built.saturation_sliders()

    def mean_entropy(d_k, scaled):
        sliders.render(d_k=d_k, scaled=scaled)
        return float(re.search(r"queries: entropy ([\d.]+)", sliders.text)[1])

    unscaled = [mean_entropy(d_k, False) for d_k in (1, 4, 16, 64, 256, 1024)]
    scaled = [mean_entropy(d_k, True) for d_k in (1, 4, 16, 64, 256, 1024)]
    assert all(later < earlier for earlier, later in pairwise(unscaled))
    assert unscaled[-1] < 0.2
    assert max(scaled) - min(scaled) < 0.2


def test_the_query_that_is_drawn_saturates_only_without_the_division():
    sliders = built.saturation_sliders()

    def largest(d_k, scaled):
        sliders.render(d_k=d_k, scaled=scaled)
        return sliders.drawing.weights.max()

    unscaled = [largest(d_k, False) for d_k in built.D_KS]
    scaled = [largest(d_k, True) for d_k in built.D_KS]
    assert all(later >= earlier - 0.001 for earlier, later in pairwise(unscaled))
    assert unscaled[0] < 0.3
    assert unscaled[-1] > 0.95
    assert max(scaled) < 0.4


def test_static_figures_draw_the_data_they_are_given():
    d_ks = [4, 64, 1024]
    spread = figures.score_spread(d_ks, [2.1, 7.9, 31.6], [1.05, 0.99, 0.99])
    lines = [line.get_ydata().tolist() for line in spread.axes[0].lines]
    assert [2.1, 7.9, 31.6] in lines
    assert [1.05, 0.99, 0.99] in lines
    assert spread.texts[0].get_text() == "A typical score grows to 32; divided by √d_k it is 1 for every d_k"


def test_the_entropy_explorer_draws_the_learners_curve():
    curve = explore("attention.saturation", right_entropy)
    curve.render(d_k=256, n_keys=8)
    rng = torch.Generator().manual_seed(3)
    queries, keys = torch.randn(200, 1024, generator=rng), torch.randn(64, 1024, generator=rng)
    scores = queries[:, :256] @ keys[:8, :256].T
    here = built.D_KS.index(256)
    assert curve.drawing.unscaled_line.get_ydata()[here] == pytest.approx(Categorical(logits=scores).entropy().mean())
    assert curve.drawing.scaled_line.get_ydata()[here] == pytest.approx(
        Categorical(logits=scores / 16).entropy().mean()
    )
    assert curve.text.endswith("the largest possible entropy is ln 8 = 2.08.")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (unanswered, "still empty"),
        (raises, "IndexError"),
        (lambda scores, d_k, scaled: right_entropy(scores, d_k, scaled) / math.log(2), "is it in nats?"),
        (lambda scores, d_k, scaled: -right_entropy(scores, d_k, scaled), "never negative"),
        (lambda scores, d_k, scaled: right_entropy(scores, d_k, scaled) * torch.nan, "NaN"),
        (lambda scores, d_k, scaled: right_entropy(scores, d_k, scaled).mean(), "(200,), one per query. Yours gave ()"),
        (lambda scores, d_k, scaled: 1.5, "Yours gave float"),
    ],
)
def test_whatever_a_learners_entropy_does_the_figure_says_so(function, said):
    curve = explore("attention.saturation", function)
    assert said in curve.text
    curve.render(d_k=1024, n_keys=64)
    assert said in curve.text


# -------------------------------------------------------------------------------------------------------------- softmax
def test_the_softmax_explorer_shows_what_overflow_does():
    def naive(x, dim):
        return x.exp() / x.exp().sum(dim)

    careless, careful = explore("attention.softmax", naive), explore("attention.softmax", torch.softmax)
    assert careless.text == careful.text
    careless.render(power=4.0)
    careful.render(power=4.0)
    assert "NaN at scores up to 10,000" in careless.text
    assert [number.get_text() for number in careless.drawing.numbers][:3] == ["?", "?", "?"]
    assert careful.text == "Weights 1.000, 0.000, 0.000, 0.000; they sum to 1.000."


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (unanswered, "still empty"),
        (raises, "IndexError"),
        (lambda x, dim: x.exp(), "they should sum to exactly 1"),
        (lambda x, dim: x.sum(), "Your function returned ()"),
        (lambda x, dim: [0.25] * 4, "Your function returned list"),
    ],
)
def test_whatever_a_learners_softmax_does_the_figure_says_so(function, said):
    assert said in explore("attention.softmax", function).text


# ------------------------------------------------------------------------------------------------------- a trained head
def test_the_head_viewer_shows_the_models_own_weights(trained):
    model, tokenizer = trained
    viewer = built.head_viewer(model, tokenizer, "the dog bit the cow .", layer=1, head=1)
    ids = torch.tensor([tokenizer.encode("the dog bit the cow .", end=False)])
    tokens = ["<bos>", "the", "dog", "bit", "the", "cow", "."]
    for layer, head, query in [(1, 1, 6), (0, 0, 3), (2, 1, 0)]:
        viewer.render(layer=layer, head=head, query=query)
        weights = model.attention_weights(ids)[layer][0, head]
        parts = viewer.drawing
        assert np.allclose(parts.image.get_array(), weights)
        assert [bar.get_width() for bar in parts.bars] == pytest.approx(weights[query].tolist())
        best = int(weights[query].argmax())
        assert f"looks most at “{tokens[best]}” ({weights[query, best]:.2f})" in parts.headline.get_text()
        assert f"attends most to “{tokens[best]}” ({best}) {weights[query, best]:.2f}" in viewer.text
        assert parts.row.get_y() == query - 0.5


def test_the_explorers_belong_to_exercises_that_exist():
    assert set(built.EXPLORERS) <= set(explorable()) & {
        exercise if isinstance(exercise, str) else exercise.id for exercise in EXERCISES
    }
