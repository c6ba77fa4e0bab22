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
    names = ("depth", "any_depth", "needed", "rms_quality", "deep_blocks", "eps", "batch", "rms_speed")
    assert {each.id for each in in_order([chapter_of("normalization").number])} == {
        f"normalization.{name}" for name in names
    }


# ------------------------------------------------------------------------------------------------------ whole
def test_growth_without_norms_is_exponential_whatever_its_rate():
    finding = find("normalization.depth")()
    assert finding.verdict == "confirmed"
    assert min(finding.values) > 0.8
    assert "harmless" not in finding.because, "whether a growth of forty times harms was not measured"


def test_evenness_tells_the_exponential_from_the_root():
    assert claims.evenness([1.08**n for n in range(51)]) == pytest.approx(1)
    assert claims.evenness([math.sqrt(1 + n) for n in range(51)]) < 0.25


@pytest.mark.parametrize(
    ("without", "held", "verdict"),
    [(1.0, 0.3, "confirmed"), (1.0, 0.9, "depends"), (0.6, 0.3, "depends"), (0.2, 0.2, "refuted")],
)
def test_the_verdict_on_exponential_growth_follows_the_halves(without, held, verdict, monkeypatch):
    def spreads(norm, initialization, seed):
        return [1.0] + [2.0] * 24 + [2.0] + [2.0 ** (1 + (held if norm else without))] * 25

    monkeypatch.setattr(claims, "spread_by_depth", spreads)
    assert find("normalization.depth")().verdict == verdict


def test_pre_norm_streams_grow_like_the_root_of_the_depth():
    finding = find("normalization.any_depth")()
    assert finding.verdict == "confirmed"
    assert math.sqrt(1 + 50 / 2) < min(finding.values) <= max(finding.values) < math.sqrt(1 + 3 * 50 / 2)
    assert finding.measured.startswith("standard deviation after 50 blocks: 1.0 with post-norm, about 7")


def test_a_stream_that_grows_faster_than_the_lemma_says_refutes_it(monkeypatch):
    monkeypatch.setattr(
        claims,
        "spread_by_depth",
        lambda norm, initialization, seed: [1.0 if norm == "post" else 1.1**n for n in range(51)],
    )
    assert find("normalization.any_depth")().verdict == "refuted"


def test_eps_outside_the_root_brings_noise_to_half_of_full_size():
    finding = find("normalization.eps")()
    assert finding.verdict == "depends"
    assert finding.values[0] == pytest.approx(0.5 * math.sqrt(1e-12 + 1e-6) / 1e-6)
    assert "leaves PyTorch's LayerNorm with 0.001: eps in the root gives 0.001, outside 0.500" in finding.measured


def test_batch_norm_leaks_and_layer_norm_does_not():
    for seed in claims.SEEDS:
        assert claims.leak_between_texts("batch", seed) > 0.1
        assert claims.leak_between_texts("layer", seed) == 0


@pytest.mark.parametrize(("behind", "verdict"), [(0.3, "confirmed"), (0.04, "depends"), (-0.1, "refuted")])
def test_the_verdict_on_batch_norm_follows_the_losses(behind, verdict, monkeypatch):
    def pretend(seed, steps, prepare, n_layers):
        return None, 1.8 + (behind if prepare else 0)

    monkeypatch.setattr(claims, "train_on_letters", pretend)
    assert find("normalization.batch")().verdict == verdict


def test_batch_norm_takes_the_place_of_every_norm_and_remembers_means_for_inference():
    seen = []
    model, loss = claims.train_on_letters(
        0, steps=2, prepare=lambda model: (claims.use_batch_norm(model), seen.append(model))
    )
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
    assert len(norms) == 3
    assert not any(type(module).__name__ == "LayerNorm" for module in model.modules())
    x = torch.randn(2, 5, 32)
    with torch.no_grad():
        own = model.eval().final_norm(x)[:1]
        torch.testing.assert_close(model.final_norm(x[:1]), own)
    assert math.isfinite(loss)


def test_a_block_costs_what_the_loss_rises_without_it():
    torch.manual_seed(0)
    model, _ = claims.train_on_letters(0, steps=4, n_layers=3)
    blocks = list(model.blocks)
    costs = claims.block_costs(model, n_rows=5)
    assert list(model.blocks) == blocks
    inputs, targets = (each[:5] for each in claims.held_out_letters())
    with torch.no_grad():
        whole = model.eval()(inputs, targets)[1].item()
        model.add_module("blocks", nn.ModuleList([blocks[0], blocks[2]]))
        lacking = model(inputs, targets)[1].item()
    assert costs[1] == pytest.approx(lacking - whole, abs=1e-5)


def test_scaled_norms_are_divided_by_the_root_of_the_blocks_number():
    model, _ = claims.train_on_letters(0, steps=1, n_layers=3)
    x = torch.randn(1, 4, 32)
    with torch.no_grad():
        before = [block.norm2(x) for block in model.blocks]
        claims.scale_norms(model)
        for number, (block, plain) in enumerate(zip(model.blocks, before), start=1):
            torch.testing.assert_close(block.norm2(x), plain / math.sqrt(number))


@pytest.mark.parametrize(
    ("pre", "scaled", "verdict"), [(0.1, 0.4, "confirmed"), (0.1, 0.05, "depends"), (0.6, 0.9, "refuted")]
)
def test_the_verdict_on_deep_blocks_follows_the_shares(pre, scaled, verdict, monkeypatch):
    def share(norm_position, seed, prepare):
        return 0.5 if norm_position == "post" else scaled if prepare else pre

    monkeypatch.setattr(claims, "deep_share", share)
    assert find("normalization.deep_blocks")().verdict == verdict


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
    monkeypatch.setattr(claims, "model_ratio", lambda: fused[0])
    experiment = find("normalization.rms_speed")
    assert experiment.timed
    assert experiment().verdict == verdict


# ------------------------------------------------------------------------------------------------------ the tools
def test_speed_is_compared_at_every_width_and_both_ways():
    ratios = claims.compare_speed(widths=(8, 16), rounds=2)
    assert list(ratios) == ["by hand", "fused"]
    assert all(len(values) == 2 and min(values) > 0 for values in ratios.values())
    assert claims.model_ratio(d_model=8, T=4, rounds=1) > 0


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
