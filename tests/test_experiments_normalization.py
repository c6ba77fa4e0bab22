"""Chapter 7's claims: the quick experiments whole, the long ones with their sizes cut down; the tools behind them."""

import math

import pytest
import torch
from torch import nn

from course_lib.chapters.normalization import claims as claims
from course_lib.claims import find, in_order
from course_lib.contents import chapter_of
from course_lib.tinytown import Tinytown


def test_the_chapter_has_its_claims():
    names = ("depth", "any_depth", "needed", "rms_quality", "eps", "batch", "rms_speed")
    assert {each.id for each in in_order([chapter_of("normalization").number])} == {
        f"normalization.{name}" for name in names
    }


# ------------------------------------------------------------------------------------------------------ whole
def test_growth_without_norms_depends_on_the_initial_weights():
    finding = find("normalization.depth")()
    assert finding.verdict == "depends"
    assert min(finding.values) > 1e8
    mild = claims.spread_by_depth(None)
    assert 10 < mild[-1] / mild[0] < 100
    assert "harmless" not in finding.because, "whether a growth of forty times harms was not measured"


def test_pre_norm_streams_grow_like_the_root_of_the_depth():
    finding = find("normalization.any_depth")()
    assert finding.verdict == "depends"
    assert math.sqrt(50) / 2 < min(finding.values) <= max(finding.values) < math.sqrt(50) * 2
    assert finding.measured.startswith("standard deviation after 50 blocks: 1.0 with post-norm, about 7")


def test_eps_outside_the_root_brings_noise_to_half_of_full_size():
    finding = find("normalization.eps")()
    assert finding.verdict == "depends"
    assert finding.values[0] == pytest.approx(0.5 * math.sqrt(1e-12 + 1e-6) / 1e-6)


def test_batch_norm_leaks_and_layer_norm_does_not():
    finding = find("normalization.batch")()
    assert finding.verdict == "refuted"
    assert min(finding.values) > 0.1
    assert finding.measured.endswith("yes with BatchNorm, no with LayerNorm")


# ------------------------------------------------------------------------------------------------------ cut down
@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(claims, "SEEDS", (0,))
    monkeypatch.setattr(claims, "STEPS", 8)


@pytest.mark.proof
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("id", ["normalization.needed", "normalization.rms_quality"])
def test_the_trainings_run(id):
    assert math.isfinite(find(id)().values[0])


@pytest.mark.parametrize(
    ("without", "verdict", "said"),
    [
        ({1e-2: 2.2, 1e-1: math.inf}, "depends", "at 0.1 it fails without and learns with"),
        ({1e-2: 3.0, 1e-1: 3.0}, "confirmed", "at learning rate 0.01 the model fails without norms"),
        ({1e-2: 1.8, 1e-1: 2.0}, "refuted", "at 0.1 it learns without and learns with"),
    ],
)
def test_the_verdict_on_training_without_norms_follows_the_losses(monkeypatch, without, verdict, said):
    monkeypatch.setattr(claims, "train_with", lambda norm, peak, seed: 1.7 if norm else without[peak])
    finding = find("normalization.needed")()
    assert finding.verdict == verdict
    assert said in finding.measured


@pytest.mark.parametrize(("rms", "verdict"), [(1.52, "confirmed"), (1.3, "confirmed"), (1.7, "refuted")])
def test_the_verdict_on_rms_norm_follows_the_losses(monkeypatch, rms, verdict):
    monkeypatch.setattr(claims, "train_with", lambda norm, peak, seed, n_layers: rms if norm == "rms" else 1.5)
    assert find("normalization.rms_quality")().verdict == verdict


@pytest.mark.parametrize(
    ("hand", "fused", "verdict"),
    [((0.6, 0.6), (1.3, 1.3), "depends"), ((0.9, 0.88), (0.85, 0.9), "confirmed"), ((1.0, 1.1), (1.3, 1.2), "refuted")],
)
def test_the_verdict_on_speed_follows_the_ratios(monkeypatch, hand, fused, verdict):
    monkeypatch.setattr(claims, "compare_speed", lambda: {"by hand": list(hand), "fused": list(fused)})
    experiment = find("normalization.rms_speed")
    assert experiment.timed
    assert experiment().verdict == verdict


# ------------------------------------------------------------------------------------------------------ the tools
def test_speed_is_compared_at_every_width_and_both_ways():
    ratios = claims.compare_speed(widths=(8, 16), rounds=2)
    assert list(ratios) == ["by hand", "fused"]
    assert all(len(values) == 2 and min(values) > 0 for values in ratios.values())


def test_the_norms_by_hand_are_pytorchs():
    x, weight, bias = 3 * torch.randn(5, 12) + 2, torch.randn(12), torch.randn(12)
    layer, rms = nn.LayerNorm(12), nn.RMSNorm(12, eps=1e-6)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
        rms.weight.copy_(weight)
    torch.testing.assert_close(claims.layer_norm_by_hand(x, weight, bias), layer(x))
    torch.testing.assert_close(claims.rms_norm_by_hand(x, weight), rms(x))


def test_batch_norm_is_pytorchs_module_while_training():
    x = torch.randn(3, 5, 7)
    expected = nn.BatchNorm1d(7)(x.reshape(15, 7)).reshape(3, 5, 7)
    torch.testing.assert_close(claims.batch_or_layer_norm("batch", x), expected)


@pytest.mark.parametrize("residual", [True, False])
def test_post_norm_holds_the_spread_at_one(residual):
    spreads = claims.spread_by_depth("post", residual, "xavier", n_blocks=6)
    assert spreads[1:] == pytest.approx([1] * 6, abs=0.01)


def test_eps_factor_is_what_the_norm_does_to_the_deviation():
    x = 1e-3 * torch.randn(1000, dtype=torch.float64)
    deviation = x.std(correction=0).item()
    inside, outside = claims.eps_factor(deviation)
    after = nn.LayerNorm(1000, eps=1e-6, dtype=torch.float64)(x).std(correction=0).item()
    assert inside == pytest.approx(after)
    assert outside == pytest.approx(deviation / (deviation + 1e-6))


def test_training_that_diverges_counts_as_an_infinite_loss(monkeypatch):
    def diverge(*arguments, **settings):
        raise claims.TrainingDiverged("at step 3")

    monkeypatch.setattr(claims, "train_on_letters", diverge)
    assert claims.train_with(None, 1.0, seed=0) == math.inf


def test_norms_are_left_out_everywhere():
    seen = []
    claims.train_on_letters(0, steps=1, prepare=lambda model: (claims.leave_norms_out(model), seen.append(model)))
    assert not [name for name, _ in seen[0].named_parameters() if "norm" in name]


def test_whoever_knows_only_how_frequent_letters_are_pays_what_we_say():
    text = " ".join(Tinytown(0).sample(300))
    shares = torch.tensor([text.count(letter) / len(text) for letter in set(text)])
    assert -(shares * shares.log()).sum().item() == pytest.approx(claims.LETTERS_ALONE, abs=0.02)
