"""What the figures of several chapters share: numbers in words, and the figures that more than one chapter draws."""

import math

import numpy as np
import pytest

from course_lib.live import numbers
from course_lib.live import shared_figures as figures


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "", "0"),
        (384, "", "384"),
        (848_512, "", "849 k"),
        (999_499, "", "999 k"),
        (999_500, "", "1.00 M"),
        (124_439_808, "", "124 M"),
        (6_738_415_616, "", "6.74 B"),
        (1_991_036_928, "B", "1.99 GB"),
        (16e12, "B", "16.0 TB"),
        (3.15e23, "FLOP", "315 ZFLOP"),
    ],
)
def test_a_short_number_has_three_digits_and_a_prefix(value, unit, text):
    assert numbers.short(value, unit) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0%"), (0.0001, "under 1%"), (0.00501, "1%"), (0.455, "46%"), (1, "100%")]
)
def test_a_share_that_would_read_zero_says_so(share, text):
    assert numbers.percent(share) == text


@pytest.mark.parametrize(("weights", "nats"), [([0.25] * 4, math.log(4)), ([1, 0, 0], 0), ([0.5, 0.5, 0], math.log(2))])
def test_entropy_of_even_and_certain_weights(weights, nats):
    assert numbers.entropy(np.array(weights)) == pytest.approx(nats)


def test_a_distribution_without_tokens_says_so():
    assert figures.what_is_left(["a", "b"], np.zeros(2)) == "No token is left"


def test_rows_hold_the_likeliest_of_model_and_truth_and_the_rest_in_one():
    tokens = [f"t{i}" for i in range(20)]
    model = np.arange(20) / 190
    truth = np.zeros(20)
    truth[0] = 1.0
    bars = figures.NextToken(tokens, model, model, truth, rows=4).draw()
    names = [label.get_text() for label in bars.axes.get_yticklabels()]
    assert names == ["t19", "t18", "t17", "t0", "16 more"]
    assert bars.now_bars[-1].get_width() == pytest.approx(sum(range(1, 17)) / 190)
