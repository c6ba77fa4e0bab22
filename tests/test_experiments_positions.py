"""Chapter 5's claims: the tools that measure them, and which figures lead to which verdict."""

import math
from itertools import pairwise

import pytest
import torch

from course_lib.chapters.positions import claims as built
from course_lib.claims import find
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.positions import rotary_angles

OUTCOMES = {
    "positions.invariance": {
        "confirmed": {"by_position": 0.0, "by_token": 0.0, "by_mean": 0.0},
        "depends": {"by_position": 0.2, "by_token": 0.0, "by_mean": 0.0},
        "refuted": {"by_position": 0.2, "by_token": 0.2, "by_mean": 0.0},
    },
    "positions.order": {
        "confirmed": {"without": [0.5, 0.5, 0.6]},
        "depends": {"without": [0.5, 0.5, 1.0]},
        "refuted": {"without": [1.0, 0.95, 1.0]},
    },
    "positions.slowest_hand": {
        "confirmed": {"geometric": True, "first": [1.0, 1.0], "last": [1.0, 0.995]},
        "depends": {"geometric": True, "first": [1.0, 1.0], "last": [0.96, 0.1]},
        "refuted": {"geometric": False, "first": [1.0, 1.0], "last": [1.0, 1.0]},
    },
    "positions.near_and_far": {
        "confirmed": {"symmetrical": True, "near": 0.97, "far": 0.4, "rises": 0},
        "depends": {"symmetrical": True, "near": 0.97, "far": 0.4, "rises": 35},
        "refuted": {"symmetrical": False, "near": 0.97, "far": 0.4, "rises": 0},
    },
    "positions.sinusoids_reach": {
        "confirmed": {"rises": [0.1, -0.1, 0.0]},
        "not at this size": {"rises": [0.1, 0.5, 0.9]},
    },
    "positions.relative_reach": {
        "confirmed": {"rope": [0.5, 0.3], "alibi": [0.6, 0.6]},
        "depends": {"rope": [0.5, -0.3], "alibi": [0.6, 0.6]},
        "refuted": {"rope": [0.1, -0.3], "alibi": [0.0, 0.1]},
    },
    "positions.yarn": {
        "confirmed": {"read": [0.01, 0.4], "tuned": [0.02, 0.1]},
        "depends": {"read": [-0.05, 0.4], "tuned": [0.0, 0.1]},
        "not at this size": {"read": [-0.05, -0.2], "tuned": [-0.01, 0.005]},
    },
    "positions.learned_equal": {
        "confirmed": {"differences": [0.04, -0.04, 0.01]},
        "not at this size": {"differences": [0.09, 0.05, 0.07]},
    },
}


@pytest.fixture
def fresh():
    """Trainings are remembered; a test with other sizes must neither find nor leave any."""
    caches = (
        *(built.reach, built._reader, built.best_reader, built.best_stretch),
        *(built.who_bit_run, built._texts),
    )
    for remembered in caches:
        remembered.cache_clear()
    yield
    for remembered in caches:
        remembered.cache_clear()


def test_attention_is_found_equivariant_and_not_invariant():
    found = find("positions.invariance")()
    assert found.verdict == "depends"
    assert min(found.values) > 0.05, "outputs at a position change by as much as an output is large"
    changes = dict(found.rows)
    stays = changes["the output of each token"], changes["the mean of all outputs"]
    assert set(stays) == {"only by rounding"}, "each token's own output stays, and so does the mean"


def test_the_wavelengths_are_those_of_the_formula_and_end_short_of_ten_thousand_turns():
    for d_model in (8, 512):
        expected = [2 * math.pi * 10_000 ** (2 * i / d_model) for i in range(d_model // 2)]
        assert built.wavelengths(d_model).tolist() == pytest.approx(expected, rel=1e-4)
    found = find("positions.slowest_hand")()
    assert found.verdict == "depends"
    ends = (10_000 ** (2046 / 2048), 10_000 ** (510 / 512), 1000)
    assert found.values == pytest.approx([2 * math.pi * end for end in ends], rel=1e-4)
    assert [abs(end - 1) <= 0.01 for end in found.figures["last"]] == [True, False, False], "chapter 17 says so"
    assert "60,611" in found.measured


def test_a_hope_is_not_refuted_by_a_small_model():
    for id in ("positions.sinusoids_reach", "positions.learned_equal", "positions.yarn"):
        assert "refuted" not in find(id).outcomes
    assert "may" in find("positions.sinusoids_reach").claim


def test_likeness_is_a_mean_of_cosines_that_falls_and_rises():
    curve = built.similarity(128, 100)
    expected = [sum(math.cos(k / 10_000 ** (i / 64)) for i in range(64)) / 64 for k in range(101)]
    assert curve.tolist() == pytest.approx(expected, abs=1e-6)
    found = find("positions.near_and_far")()
    assert found.verdict == "depends"
    assert found.values[0] == pytest.approx(sum(b > a for a, b in pairwise(expected)) / 100)
    assert "falls up to a distance of 11" in found.measured


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


def test_the_judged_words_are_the_same_at_every_length_and_an_untrained_model_guesses(fresh, monkeypatch):
    monkeypatch.setattr(built, "STORIES", 60)
    monkeypatch.setattr(built, "STEPS", 2)
    losses = built.reach("alibi", 0, 1e-6)
    assert list(losses) == [32, 64, 96, 128]
    assert all(loss == pytest.approx(math.log(343), rel=0.1) for loss in losses.values())


def test_the_weight_at_new_distances_of_an_untrained_reader_is_what_its_slopes_leave(fresh, monkeypatch):
    """Its queries and keys are small, so that ALiBi alone decides: exp(−slope · distance), up to a few percent."""
    monkeypatch.setattr(built, "STORIES", 60)
    monkeypatch.setattr(built, "STEPS", 1)

    def expected(slope, t):
        weights = [math.exp(-slope * distance) for distance in range(t + 1)]
        return sum(weights[32:]) / sum(weights)

    slopes = [2 ** (-2 * h) for h in (1, 2, 3, 4)]
    means = [sum(expected(slope, t) for t in range(112, 128)) / 16 for slope in slopes]
    assert built.weight_beyond("alibi", 0, 1e-6) == pytest.approx(means, abs=0.03)


@pytest.mark.proof
def test_with_a_window_the_judged_words_do_not_depend_on_what_is_further_back(fresh, monkeypatch):
    """Two layers of 32 tokens each look back 62: the first 50 of 128 tokens are out of reach of the last 16."""
    monkeypatch.setattr(built, "STORIES", 60)
    monkeypatch.setattr(built, "STEPS", 5)
    ids, windows = built._texts()
    near, far = built.reach_with_a_window("rope", 0), built._judge(built._reader("rope", 0, 0.02, built.USUAL), 128)
    changed = windows.clone()
    changed[:, :50] = 5
    monkeypatch.setattr(built, "_texts", lambda: (ids, changed))
    assert built.reach_with_a_window("rope", 0) == pytest.approx(near, abs=1e-6)
    assert abs(built._judge(built._reader("rope", 0, 0.02, built.USUAL), 128) - far) > 1e-5, (
        "without the window they do"
    )


# ------------------------------------------------------------------------------------------------------ RoPE, stretched
def small_reader():
    torch.manual_seed(0)
    return DecoderOnly(TransformerConfig(20, 48, 4, 2, 128, positions="rope", tie_weights=False)).double().eval()


def angles(model, positions):
    config = model.config
    return rotary_angles(positions, config.d_head, config.rope_theta, torch.float64, config.rope_scaling)


def test_interpolation_gives_every_fourth_token_the_angles_of_training():
    model = small_reader()
    changed = built.stretched(model, "interpolated positions", 4)
    torch.testing.assert_close(angles(changed, 4 * torch.arange(32)), angles(model, torch.arange(32)))


def test_a_larger_base_keeps_the_first_pair_and_slows_the_last_as_much_as_interpolation():
    model, one = small_reader(), torch.tensor([1])
    slower = angles(model, one) / angles(built.stretched(model, "larger base", 4, 1), one)
    expected = [4 ** (i / 5) for i in range(6)]  # D = 12: six pairs
    assert slower[0].tolist() == pytest.approx(expected)


def test_yarn_keeps_the_fast_pairs_slows_the_others_and_enlarges_all_scores():
    model, one = small_reader(), torch.tensor([1])
    changed = built.stretched(model, "YaRN", 4, (0.25, 1.0)).double()
    slower = angles(model, one) / angles(changed, one)
    assert slower[0].tolist() == pytest.approx([1, 1, 4, 4, 4, 4]), "5 and 1.1 rotations in 32 tokens; 0.24 and fewer"
    x = torch.randn(1, 1, 48, dtype=torch.float64)
    queries, keys = (
        [getattr(each.blocks[0].attention, name)(x) for each in (changed, model)] for name in ("q_proj", "k_proj")
    )
    torch.testing.assert_close(queries[0], queries[1] * (0.1 * math.log(4) + 1) ** 2)
    torch.testing.assert_close(*keys)


def test_the_model_itself_stays_and_an_unchanged_copy_computes_the_same():
    model, ids = small_reader(), torch.arange(20)[None]
    before = model(ids)
    for method, settings in built.METHODS.items():
        changed = built.stretched(model, method, 2, settings[0]).double().eval()
        assert torch.equal(changed(ids), before) == (method == "unchanged"), method
    assert torch.equal(model(ids), before)


def test_the_losses_along_the_text_average_to_the_loss_on_whole_texts(fresh, monkeypatch):
    monkeypatch.setattr(built, "STORIES", 60)
    monkeypatch.setattr(built, "STEPS", 2)
    monkeypatch.setattr(built, "JUDGED", 128)
    losses = built.loss_by_position("unchanged", 0)
    assert len(losses) == 16
    assert sum(losses) / 16 == pytest.approx(built._judge(built._reader("rope", 0, 0.02, built.USUAL), 128), abs=1e-4)
