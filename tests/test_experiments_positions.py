"""Chapter 5's claims: the quick experiments whole, the trainings with fewer steps."""

import math
from itertools import pairwise

import pytest
import torch

from course_lib.chapters.positions import claims as built
from course_lib.claims import find


@pytest.fixture
def fresh():
    """Trainings are remembered; a test with other sizes must neither find nor leave any."""
    caches = (built.reach, built._reader, built.learn_who_bit, built._texts)
    for remembered in caches:
        remembered.cache_clear()
    yield
    for remembered in caches:
        remembered.cache_clear()


def test_attention_is_found_equivariant_and_not_invariant():
    found = find("positions.invariance")()
    assert found.verdict == "depends"
    assert min(found.values) > 0.05, "outputs at a position change by as much as an output is large"
    assert found.measured.count("nothing but rounding") == 2, "each token's own output stays, and so does the mean"


def test_attention_that_sees_places_would_not_be_called_equivariant(monkeypatch):
    class Placed(torch.nn.Module):
        def __init__(self, d_model, n_heads):
            super().__init__()

        def forward(self, x):
            return x + torch.arange(x.shape[1], dtype=x.dtype)[:, None]

    monkeypatch.setattr(built, "MultiHeadAttention", Placed)
    found = find("positions.invariance")()
    assert found.verdict == "refuted"
    assert found.measured.count("nothing but rounding") == 1, "the mean alone stays"


def test_an_average_over_all_tokens_would_be_called_invariant(monkeypatch):
    class Average(torch.nn.Module):
        def __init__(self, d_model, n_heads):
            super().__init__()

        def forward(self, x):
            return x.mean(dim=1, keepdim=True).expand_as(x)

    monkeypatch.setattr(built, "MultiHeadAttention", Average)
    assert find("positions.invariance")().verdict == "confirmed"


def test_the_wavelengths_are_those_of_the_formula_and_end_short_of_ten_thousand_turns():
    for d_model in (8, 512):
        expected = [2 * math.pi * 10_000 ** (2 * i / d_model) for i in range(d_model // 2)]
        assert built.wavelengths(d_model).tolist() == pytest.approx(expected, rel=1e-4)
    found = find("positions.slowest_hand")()
    assert found.verdict == "depends"
    assert found.values == pytest.approx((2 * math.pi * 10_000 ** (510 / 512), 2 * math.pi * 1000), rel=1e-4)
    assert "0.16 of a rotation" in found.measured


def test_likeness_is_a_mean_of_cosines_that_falls_and_rises():
    curve = built.similarity(128, 100)
    expected = [sum(math.cos(k / 10_000 ** (i / 64)) for i in range(64)) / 64 for k in range(101)]
    assert curve.tolist() == pytest.approx(expected, abs=1e-6)
    found = find("positions.near_and_far")()
    assert found.verdict == "depends"
    assert found.values[0] == pytest.approx(sum(b > a for a, b in pairwise(expected)) / 100)
    assert "falls up to 11 apart" in found.measured


def test_who_bit_whom_has_every_pair_in_both_orders():
    sentences, who = built.who_bit_whom()
    assert len({tuple(sentence) for sentence in sentences.tolist()}) == 30
    swapped = sentences[:, [2, 1, 0, 3]]
    assert {tuple(s) for s in swapped.tolist()} == {tuple(s) for s in sentences.tolist()}
    assert torch.equal(who, sentences[:, 0])


@pytest.mark.proof
def test_order_is_invisible_to_a_bag_and_learnt_from_the_mask():
    """One seed. Half is the most that a function of the set of words can reach, whatever it learns."""
    for name, (family, positions, n_layers) in built.ORDER_MODELS.items():
        sees_a_bag = positions == "none" and (family == "encoder" or n_layers == 1)
        share = built.learn_who_bit(name, 0)
        assert share == 0.5 if sees_a_bag else share > 0.9, name


@pytest.mark.parametrize(
    ("learns", "verdict"), [((), "confirmed"), (("causal, no positions, 2 blocks",), "depends"), (None, "refuted")]
)
def test_the_verdict_on_order_follows_the_models(monkeypatch, learns, verdict):
    def pretended(name, seed):
        return 1.0 if learns is None or name in learns or "sinusoids" in name else 0.5

    monkeypatch.setattr(built, "learn_who_bit", pretended)
    assert find("positions.order")().verdict == verdict


def test_the_judged_words_are_the_same_at_every_length_and_an_untrained_model_guesses(fresh, monkeypatch):
    monkeypatch.setattr(built, "STORIES", 60)
    losses = built.reach("alibi", 0, 1)
    assert list(losses) == [32, 64, 96, 128]
    assert all(loss == pytest.approx(math.log(343), rel=0.1) for loss in losses.values())


REAL = {32: 1.5, 64: 1.5, 96: 1.5, 128: 1.5}


@pytest.mark.parametrize(
    ("claim", "rises", "verdict"),
    [
        ("positions.sinusoids_reach", {}, "confirmed"),
        ("positions.sinusoids_reach", {"sinusoidal": 0.6}, "refuted"),
        ("positions.relative_reach", {"sinusoidal": 0.6}, "confirmed"),
        ("positions.relative_reach", {"sinusoidal": 0.6, "rope": 0.6}, "depends"),
        ("positions.relative_reach", {"sinusoidal": 0.6, "rope": 0.6, "alibi": 0.6}, "refuted"),
        ("positions.relative_reach", {}, "refuted"),
    ],
)
def test_the_verdict_on_reach_follows_the_losses(monkeypatch, claim, rises, verdict):
    def pretended(scheme, seed, steps):
        return {length: loss + (length > 32) * rises.get(scheme, 0) for length, loss in REAL.items()}

    monkeypatch.setattr(built, "reach", pretended)
    assert find(claim)().verdict == verdict


@pytest.mark.parametrize(
    ("early", "later", "verdict"),
    [(0.02, -0.02, "confirmed"), (0.2, 0.1, "depends"), (0.2, 0.2, "refuted"), (0.02, 0.2, "refuted")],
)
def test_the_verdict_on_learned_tables_follows_the_gap(monkeypatch, early, later, verdict):
    def pretended(scheme, seed, steps):
        return {32: 1.5 + (scheme == "learned") * (early if steps == built.STEPS else later)}

    monkeypatch.setattr(built, "reach", pretended)
    found = find("positions.learned_equal")()
    assert found.verdict == verdict
    assert found.values == pytest.approx((later,) * 3)


@pytest.mark.proof
def test_sinusoids_lose_ground_beyond_the_trained_length_and_alibi_does_not(fresh, monkeypatch):
    """The experiment with fewer steps and one seed: the direction shows early."""
    monkeypatch.setattr(built, "STORIES", 800)
    sinusoids, alibi = built.reach("sinusoidal", 0, 200), built.reach("alibi", 0, 200)
    assert sinusoids[64] - sinusoids[32] > 0.15
    assert sinusoids[128] - sinusoids[32] > 0.3
    assert alibi[128] - alibi[32] < 0.1


@pytest.mark.proof
def test_with_a_window_the_judged_words_do_not_depend_on_what_is_further_back(fresh, monkeypatch):
    """Two layers of 32 tokens each look back 62: the first 50 of 128 tokens are out of reach of the last 16."""
    monkeypatch.setattr(built, "STORIES", 60)
    ids, windows = built._texts()
    near, far = built.reach_with_a_window("rope", 0, 5), built._judge(built._reader("rope", 0, 5), 128)
    changed = windows.clone()
    changed[:, :50] = 5
    monkeypatch.setattr(built, "_texts", lambda: (ids, changed))
    assert built.reach_with_a_window("rope", 0, 5) == pytest.approx(near, abs=1e-6)
    assert abs(built._judge(built._reader("rope", 0, 5), 128) - far) > 1e-5, "without the window they do"
