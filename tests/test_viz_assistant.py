"""Chapter 16's figures and live figures: points on the frontier, methods beside it, and two rewards."""

import math

import pytest
import torch
from sliders import LiveFigureTests

from course_lib.chapters.assistant import figures
from course_lib.chapters.assistant import widgets as built
from course_lib.chapters.assistant.methods import TOKENIZER, Result, good
from course_lib.tinytown import Tinytown

pytestmark = pytest.mark.usefixtures("no_pixels")  # tests that want a real picture ask for `pixels`


def told():
    """Three steps of training: four stories each, of which none, two and three are good."""
    speaking = [story for story in Tinytown(3).sample(400) if good(ids_of([story])).item()][:3]
    silent = [story for story in Tinytown(4).sample(20) if not good(ids_of([story])).item()][:4]
    return [ids_of(silent), ids_of(speaking[:2] + silent[:2]), ids_of(speaking + silent[:1])]


def ids_of(stories: list[str]) -> torch.Tensor:
    rows = [TOKENIZER.encode(story) for story in stories]
    longest = max(map(len, rows))
    return torch.tensor([row + [TOKENIZER.eos_id] * (longest - len(row)) for row in rows])


def two_rewards():
    return built.two_rewards(told(), lambda ids: torch.full((len(ids),), 0.75))


@pytest.fixture(params=[built.price, two_rewards], ids=["price", "two_rewards"])
def make(request):
    return request.param


class TestEveryLiveFigure(LiveFigureTests):
    pass


@pytest.mark.parametrize("beta", [0.1, 0.3, 1.0])
def test_the_point_of_a_price_is_where_a_line_of_equal_value_touches_the_frontier(beta):
    live = built.price()
    live.render(beta=beta)
    ((nats, share),) = live.drawing.best.get_xydata()
    odds = built.RATE / (1 - built.RATE) * math.exp(1 / beta)
    assert share == pytest.approx(odds / (1 + odds))
    divergences, shares = figures.curve(built.RATE)
    values = shares - beta * divergences
    assert share - beta * nats == pytest.approx(values.max(), abs=1e-3)
    (x0, y0), (x1, y1) = live.drawing.line.get_xydata()
    assert (y1 - y0) / (x1 - x0) == pytest.approx(beta)


def test_a_step_shows_both_rewards_and_the_first_text_that_was_told():
    live, stories = two_rewards(), told()
    for step, true in enumerate((0.0, 0.5, 0.75), start=1):
        live.render(step=step)
        assert live.drawing.marks.get_ydata() == pytest.approx([0.75, true])
        assert live.drawing.headline.get_text().endswith(f"0.75, and the true one {true:.2f}")
        first = TOKENIZER.decode([i for i in stories[step - 1][0].tolist() if i > TOKENIZER.eos_id])
        assert first[:40] in live.text


def test_methods_are_points_at_their_divergence_and_share_and_far_ones_stand_at_the_edge():
    results = {
        "base": [("", Result(0.1, 0.0, 0.1))],
        "policy gradient": [("β = 0.1", Result(0.6, 2.5, 0.6)), ("β = 0", Result(0.0, 80.0, 1.0))],
    }
    (axes,) = figures.methods(0.1, results).axes
    marks = {line.get_label(): line.get_xydata().tolist() for line in axes.lines[1:]}
    assert marks == {"base": [[0.0, 0.1]], "policy gradient": [[2.5, 0.6], [4.0, 0.0]]}
    assert "β = 0: 80 nats →" in [text.get_text() for text in axes.texts]
    told_in_words = figures.methods_in_words(results)
    assert "base: 10% at 0.0 nats; policy gradient (β = 0.1): 60% at 2.5 nats" in told_in_words
    assert "  " not in told_in_words


def test_the_frontier_ends_where_every_story_is_good():
    divergences, shares = figures.curve(0.1)
    assert (divergences[0], shares[0]) == pytest.approx((0, 0.1), abs=1e-9)
    assert (divergences[-1], shares[-1]) == pytest.approx((math.log(10), 1))
