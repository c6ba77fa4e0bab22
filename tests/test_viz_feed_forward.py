"""Chapter 6's figures and live figures: what they draw, computed another way, over every value of every control."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sliders import LiveFigureTests

from course_lib.chapters.feed_forward import figures
from course_lib.chapters.feed_forward import widgets as built
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import CAPITALS

pytestmark = pytest.mark.usefixtures("no_pixels")  # tests that want a real picture ask for `pixels`


@pytest.fixture(scope="module")
def trained():
    return load_pretrained("tinytown")


MAKERS = {
    "unit_map": lambda trained: built.unit_map(),
    "piece_builder": lambda trained: built.piece_builder(),
    "fact_eraser": lambda trained: built.fact_eraser(*trained),
}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def make(request, trained):
    return partial(request.param, trained)


class TestEveryLiveFigure(LiveFigureTests):
    pass


# ------------------------------------------------------------------------------------------------------------ unit map
def test_the_small_example_holds_the_numbers_that_are_done_by_hand():
    x, up, down = built.small_example()
    scores = x @ up
    assert scores[:8].tolist() == pytest.approx([0.74, 0.474, -1.09, -0.448, 0.704, -0.162, 0.697, -0.148], abs=6e-4)
    assert (scores > 0).sum() == 5
    assert (scores.relu() @ down).tolist() == pytest.approx([0.567, 0.44, -0.1, -0.406], abs=6e-4)


def test_the_answers_below_the_questions_on_the_small_example():
    """Raising a feature leaves at least 5 units firing; no token makes more than 13 fire; flipped signs give 11."""
    x, up, _ = built.small_example()
    at_the_end = []
    for feature in range(4):
        raised = x.repeat(26, 1)
        raised[:, feature] = torch.linspace(x[feature].item(), 1.5, 26)
        firing = (raised @ up > 0).sum(dim=1)
        assert firing.min() == 5
        at_the_end.append(firing[-1].item())
    assert at_the_end == [5, 8, 6, 8]
    tokens = torch.randn(50_000, 4, generator=torch.Generator().manual_seed(0))
    assert (tokens @ up > 0).sum(dim=1).max() == 13
    assert (-x @ up > 0).sum() == 11


@pytest.mark.parametrize(("activation", "nonlinearity"), [("relu", F.relu), ("gelu", F.gelu)])
def test_the_unit_map_shows_scores_units_and_their_sum(activation, nonlinearity):
    unit_map = built.unit_map()
    given = [-1.2, 0.3, 1.5, -0.7]
    unit_map.render(**{f"x{i}": value for i, value in enumerate(given)}, activation=activation)
    _, up, down = built.small_example()
    scores = F.linear(torch.tensor(given), up.T)
    parts = unit_map.drawing
    assert [bar.get_height() for bar in parts.outlines] == pytest.approx(scores.tolist(), abs=1e-5)
    assert [bar.get_height() for bar in parts.bars] == pytest.approx(nonlinearity(scores).tolist(), abs=1e-5)
    assert [bar.get_width() for bar in parts.outputs] == pytest.approx((nonlinearity(scores) @ down).tolist(), abs=1e-5)
    fire = [i for i in range(16) if scores[i] > 0]
    assert [i for i, label in enumerate(parts.labels) if label.get_fontweight() == "bold"] == fire
    assert parts.headline.get_text().startswith(f"{len(fire)} of 16")


def test_no_bar_leaves_the_unit_map_at_any_corner():
    unit_map = built.unit_map()
    for corner in product((-1.5, 1.5), repeat=4):
        unit_map.render(**{f"x{i}": value for i, value in enumerate(corner)})
        left, right = unit_map.figure.axes
        assert all(abs(bar.get_height()) <= left.get_ylim()[1] for bar in unit_map.drawing.outlines)
        assert all(abs(bar.get_width()) <= right.get_xlim()[1] for bar in unit_map.drawing.outputs)


# ------------------------------------------------------------------------------------------ straight pieces that add up
@pytest.mark.parametrize("n_units", range(1, 17))
def test_the_words_count_the_straight_pieces_of_the_line_that_is_drawn(n_units):
    builder = built.piece_builder()
    builder.render(n_units=n_units)
    bent = np.abs(np.diff(builder.drawing.total_line.get_ydata(), 2)) > 1e-6
    kinks = int(bent[0]) + int((bent[1:] & ~bent[:-1]).sum())  # a kink between two points of the line shows at both
    assert f"ReLU: {kinks + 1} straight piece{'s' * (kinks > 0)}," in builder.text
    assert kinks + 1 == n_units, "with every unit comes one more"


def test_the_units_shares_make_the_line_and_twice_as_many_never_fit_worse():
    builder = built.piece_builder()
    for n_units in (1, 3, 4, 8, 16):
        builder.render(n_units=n_units)
        line = builder.drawing.total_line.get_ydata()
        shares = [part.get_ydata() for part in builder.drawing.unit_lines if len(part.get_xdata())]
        assert len(shares) == n_units
        assert np.ptp(line - sum(shares)) < 1e-8, "the shares and one constant make the whole"
    squared = []
    for n_units in (1, 2, 4, 8, 16):  # each set of kinks holds the one before
        builder.render(n_units=n_units)
        wanted = builder.figure.axes[0].lines[0].get_ydata()
        squared.append(((builder.drawing.total_line.get_ydata() - wanted) ** 2).mean())
    assert squared == sorted(squared, reverse=True)
    assert squared[-1] < 0.01 * squared[0]


def test_without_an_activation_any_number_of_units_makes_one_straight_line():
    builder = built.piece_builder()
    for n_units in (1, 16):
        builder.render(n_units=n_units, relu=False)
        assert np.abs(np.diff(builder.drawing.total_line.get_ydata(), 2)).max() < 1e-8
        assert "1 straight piece," in builder.text


# -------------------------------------------------------------------------------------------------- where a fact sits
def test_the_eraser_takes_a_capital_away_and_gives_it_back(trained):
    eraser = built.fact_eraser(*trained)
    for country in ("france", "peru"):
        place = list(CAPITALS).index(country)
        eraser.render(country=country, n_removed=0)
        assert all(bar.get_height() > 0.9 for bar in eraser.drawing.bars)
        eraser.render(country=country, n_removed=128)
        heights = [bar.get_height() for bar in eraser.drawing.bars]
        assert heights[place] < 0.5
        assert sum(height > 0.5 for height in heights) >= 13
        assert eraser.drawing.bars[place].get_hatch() == "//", "the chosen one is told by more than its colour"
        assert CAPITALS[country] in eraser.text
        assert "above 0.5" in eraser.text


def test_the_criterion_of_a_lost_capital_stands_in_the_picture():
    names = ["france → paris", "peru → lima", "italy → rome"]
    chances = figures.CapitalChances(names, np.array([0.3, 0.9, 0.6]), 0, 96).draw()
    assert chances.headline.get_text() == "96 units of france removed: 1 of 3 capitals falls below 0.5"
    assert [line.get_ydata()[0] for line in chances.axes.lines] == [0.5]
    chances.update(chances=np.array([0.3, 0.4, 0.6]))
    assert chances.headline.get_text() == "96 units of france removed: 2 of 3 capitals fall below 0.5"
    chances.update(chances=np.array([0.5, 0.9, 0.6]))
    assert chances.headline.get_text() == "96 units of france removed: no capital falls below 0.5"


# ------------------------------------------------------------------------------------------------------- static figures
def test_one_tokens_way_shows_its_four_tensors_and_names_the_strongest_units():
    rng = np.random.default_rng(0)
    x, scores, output = rng.normal(size=6), rng.normal(size=24), rng.normal(size=6)
    hidden = np.maximum(scores, 0)
    way = figures.expand_contract(x, scores, hidden, output, "cow", n_named=4)
    columns = [image.get_array()[:, 0].tolist() for image in way.axes[0].images]
    assert columns == [x.tolist(), scores.tolist(), hidden.tolist(), output.tolist()]
    written = [text.get_text() for text in way.axes[0].texts]
    named = [int(text.split(":")[0].removeprefix("unit ")) for text in written if text.startswith("unit ")]
    assert set(named) == set(np.argsort(-scores)[:4].tolist())
    assert f"{(scores > 0).sum()} of 24\nunits fire" in written


def test_static_figures_draw_the_data_they_are_given():
    curves = {"dense": ([60, 90], [2.5, 2.0]), "free": ([60, 90], [2.4, 1.9]), "equal": ([60, 90], [2.6, 1.8])}
    loads = {"free": [0.6, 0.3, 0.1], "equal": [0.4, 0.35, 0.25]}
    mixtures = figures.mixture_in_training(curves, loads)
    left, right = mixtures.axes
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in left.lines] == list(curves.values())
    assert [bar.get_height() for bar in right.patches] == [*loads["free"], *loads["equal"]]
    assert (
        mixtures.texts[0].get_text()
        == "The busiest of 3 experts processes 60% of the letters; with the load-balancing loss, 40%"
    )
    z = np.linspace(-4, 4, 9)
    curves = figures.activations(z, {"double": 2 * z, "flat": 0 * z})
    for axes in curves.axes:
        assert axes.lines[0].get_ydata().tolist() == (2 * z).tolist()
    assert [text.get_text() for text in curves.axes[0].get_legend().get_texts()] == ["double", "flat"]
