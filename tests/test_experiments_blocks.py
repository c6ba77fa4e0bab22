"""Chapter 8's measurements, each against a closed form, plain PyTorch or a case whose answer is known."""

import math
import statistics

import pytest
import torch
from torch import nn

from course_lib.chapters.blocks import claims as blocks
from course_lib.claims import find
from course_lib.gpt import DecoderOnly

FAST = {
    "blocks.vanishing": "depends",
    "blocks.unchanged": "depends",
    "blocks.guarantee": "refuted",
    "blocks.post_norm_gradient": "depends",
    "blocks.why_residual": "depends",
}


@pytest.mark.parametrize(("id", "verdict"), FAST.items())
def test_a_claim_gets_the_verdict_that_its_figures_give(id, verdict):
    assert find(id)().verdict == verdict


def test_the_gradients_of_fifty_layers_lie_where_other_seeds_were_measured():
    """Medians of an earlier measurement with nn.Linear and other seeds: 3.2e-12 without skips, 11.5 times with."""
    assert math.log10(find("blocks.vanishing")().mean) == pytest.approx(math.log10(3.2e-12), abs=0.5)
    assert find("blocks.unchanged")().mean == pytest.approx(11.5, rel=0.4)


def test_a_plain_stack_vanishes_or_explodes_by_the_size_of_its_weights():
    """Its verdict may not be read off one initialisation: 2.5 times nn.Linear's weights bring all of the gradient."""
    default, tuned = (
        statistics.median(blocks.tanh_gradients(50, False, gain, seed=seed)[0] / 8 for seed in range(9))
        for gain in (1.0, 2.5)
    )
    assert default < 1e-10
    assert 0.1 < tuned < 10


def test_post_norm_starves_the_first_blocks_of_a_decoder_beside_an_encoder_and_not_of_a_decoder_alone():
    for seed in blocks.SEEDS:
        starved, fed = (blocks.beside_an_encoder(order, 18, seed) for order in ("post", "pre"))
        assert len(starved) == 18
        assert starved[0] / starved[-1] < 0.1 < fed[0] / fed[-1]
        alone = blocks.stack_profile("post-norm", 18, seed=seed).weight_gradient
        assert alone[0] / alone[-1] > 0.5


def test_without_residuals_queries_and_keys_lose_their_gradient_and_the_rest_does_not():
    for depth in (8, 24):
        without, with_it = (
            blocks.stack_profile(arrangement, depth).part_gradients for arrangement in ("no residual", "pre-norm")
        )
        ratio = {part: statistics.median(a / b for a, b in zip(without[part], with_it[part])) for part in blocks.PARTS}
        assert max(ratio["q_proj"], ratio["k_proj"]) < 0.2
        assert min(ratio["v_proj"], ratio["up_proj"]) > 1


def test_the_gradients_of_a_profile_are_those_of_the_model():
    torch.manual_seed(0)
    model = blocks.small_model("pre-norm", 2, 64)
    blocks.start_with(model, "xavier")
    nn.init.normal_(model.token_embedding.weight)
    model.output.weight = nn.Parameter(0.02 * torch.randn(64, 32))
    ids, targets = torch.randint(64, (2, 4, blocks.T)).unbind()
    model(ids, targets)[1].backward()
    found = blocks.stack_profile("pre-norm", 2).part_gradients
    for part in ("q_proj", "k_proj", "v_proj"):
        expected = [getattr(block.attention, part).weight.grad.norm().item() for block in model.blocks]
        assert found[part] == pytest.approx(expected, rel=1e-4)
    expected = [block.feed_forward.up_proj.weight.grad.norm().item() for block in model.blocks]
    assert found["up_proj"] == pytest.approx(expected, rel=1e-4)


def test_attention_that_starts_on_its_own_token_puts_most_weight_there():
    torch.manual_seed(3)
    model = blocks.small_model("no residual", 1, 50)
    blocks.start_with(model, "own token")
    weights = model.attention_weights(torch.randint(50, (1, 12)))[0]  # (B, H, T, T)
    assert weights.diagonal(dim1=2, dim2=3).mean() > 0.7
    assert blocks.stack_profile("no residual", 8, start="own token").cosine < 0.9
    assert blocks.stack_profile("no residual", 8).cosine > 0.99


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(("gain", "scale"), [(1.0, 1.0), (2.5, 0.3), (0.5, 1.7)])
def test_gradients_of_a_tanh_stack_are_those_of_plain_modules(skip, gain, scale):
    rng = torch.Generator().manual_seed(4)
    x = torch.randn(1, 64, generator=rng).requires_grad_()
    stream, inputs = x, [x]
    for _ in range(3):
        layer = nn.Linear(64, 64)
        with torch.no_grad():
            layer.weight.copy_((2 * torch.rand(64, 64, generator=rng) - 1) / 8)
            layer.bias.copy_((2 * torch.rand(64, generator=rng) - 1) / 8)
        branch = scale * torch.tanh(gain * layer(stream))
        stream = stream + branch if skip else branch
        stream.retain_grad()
        inputs.append(stream)
    stream.sum().backward()
    expected = [each.grad.norm().item() for each in inputs[:-1]]
    assert blocks.tanh_gradients(3, skip, gain, scale, seed=4) == pytest.approx(expected, rel=1e-5)


def test_a_branch_of_size_zero_passes_the_gradient_as_it_is():
    assert blocks.tanh_gradients(30, skip=True, scale=0.0) == pytest.approx([8.0] * 30)
    assert blocks.tanh_gradients(30, skip=False, scale=0.0) == [0.0] * 30


@pytest.mark.parametrize("arrangement", blocks.ARRANGEMENTS)
def test_a_profile_has_one_entry_per_block_and_leaves_the_global_library_as_it_was(arrangement):
    before = DecoderOnly.__init__
    profile = blocks.stack_profile(arrangement, 3)
    assert len(profile.std) == len(profile.stream_gradient) == len(profile.weight_gradient) == 3
    assert -1 <= profile.cosine <= 1.0 + 1e-9
    assert DecoderOnly.__init__ is before


def test_post_norm_ends_every_block_at_variance_one():
    profile = blocks.stack_profile("post-norm", 5, gain=2.0)
    assert profile.std == pytest.approx([1.0] * 5, abs=1e-3)


def test_pre_norm_grows_like_a_sum_and_no_norm_like_a_product():
    pre, none = (blocks.stack_profile(arrangement, 24).std for arrangement in ("pre-norm", "no norm"))
    assert 2 < pre[-1] / pre[0] < math.sqrt(24) * 1.5
    assert none[-1] / none[0] > 1e3


def test_without_branches_the_tokens_stay_as_different_as_they_were_drawn():
    """Weights times 0: the stream is the embeddings, and random vectors of 32 features are nearly orthogonal, up to the
    tokens that occur twice among 32 draws of 64."""
    assert blocks.stack_profile("pre-norm", 6, gain=0.0).cosine == pytest.approx(1 / 64, abs=0.03)


def test_rearranged_blocks_compute_what_their_name_says():
    x = torch.randn(2, 4, 32)
    plain = blocks.small_model("no norm", 1, 10).blocks[0]
    expected = x + plain.attention(x, is_causal=True)
    torch.testing.assert_close(plain(x), expected + plain.feed_forward(expected))
    bare = blocks.small_model("no residual", 1, 10).blocks[0]
    inner = bare.attention(bare.norm1(x), is_causal=True)
    torch.testing.assert_close(bare(x), bare.feed_forward(bare.norm2(inner)))


def test_the_loss_of_knowing_frequencies_is_the_entropy_of_the_words():
    ids = blocks.tinytown_ids().tolist()
    shares = [ids.count(i) / len(ids) for i in set(ids)]
    assert blocks.frequency_loss() == pytest.approx(-sum(p * math.log(p) for p in shares), rel=1e-5)


def test_a_run_is_learning_only_when_it_is_well_below_the_frequencies():
    assert blocks.learned(blocks.frequency_loss() - 0.6)
    assert not blocks.learned(blocks.frequency_loss() - 0.4)
    assert not blocks.learned(math.inf)


def test_a_small_run_starts_at_ln_v_and_learns():
    losses = blocks.training_losses("pre-norm", 1, 1e-2, 0, steps=25)
    assert len(losses) == 25
    assert losses[0] == pytest.approx(math.log(343), rel=0.03)
    assert blocks.final(losses) < losses[0] - 0.7


# Losses of every run, by hand: what would follow for the claim if the training came out so.
def outcome(monkeypatch, loss_of):
    monkeypatch.setattr(blocks, "training_losses", lambda *setting: (loss_of(*setting),) * 10)


@pytest.mark.parametrize(
    ("without", "own_token", "verdict"), [(4.5, 4.5, "confirmed"), (4.5, 3.0, "depends"), (2.0, 2.0, "refuted")]
)
def test_residuals_are_needed_only_if_no_start_does_without_them(monkeypatch, without, own_token, verdict):
    def loss_of(arrangement, n_layers, peak, warmup, start, *_):
        return 2.5 if arrangement == "pre-norm" else own_token if start == "own token" else without

    outcome(monkeypatch, loss_of)
    assert find("blocks.no_residual")().verdict == verdict


@pytest.mark.parametrize(
    ("cold", "warm", "small", "verdict"),
    [(4.5, 2.0, 4.5, "confirmed"), (4.5, 2.0, 2.0, "depends"), (2.0, 2.0, 2.0, "refuted"), (4.5, 4.5, 4.5, "depends")],
)
def test_the_warm_up_verdict_follows_the_three_settings(monkeypatch, cold, warm, small, verdict):
    def loss_of(arrangement, n_layers, peak, warmup, start, *_):
        if arrangement == "pre-norm":  # the control, treated in the same three ways
            return 1.2 if start == "gpt2" else 1.1 if warmup else 1.3
        return small if start == "gpt2" else warm if warmup else cold

    outcome(monkeypatch, loss_of)
    finding = find("blocks.warmup")()
    assert finding.verdict == verdict
    assert finding.measured.endswith("pre-norm 1.3, 1.1, 1.2, 1.2")
    assert len(finding.values) == 24, "two orders, four helps, three seeds"


def test_the_warm_up_is_not_needed_by_post_norm_if_pre_norm_needs_it_as_much(monkeypatch):
    """Stuck without a warm-up, whatever the order of norm and addition: then the need is not post-norm's."""
    outcome(monkeypatch, lambda arrangement, n_layers, peak, warmup, *_: 2.0 if warmup else 4.5)
    assert find("blocks.warmup")().verdict == "depends"


@pytest.mark.parametrize(
    ("pre_learns", "post_learns", "verdict"),
    [
        ({"xavier 0", "xavier 60", "gpt2 0", "gpt2 60"}, {"gpt2 60"}, "confirmed"),
        ({"gpt2 0"}, set(), "confirmed"),
        ({"xavier 0", "gpt2 0"}, {"xavier 0", "gpt2 0"}, "depends"),
        ({"gpt2 60"}, {"gpt2 60", "gpt2 0"}, "refuted"),
        ({"xavier 0"}, {"gpt2 60"}, "refuted"),
    ],
)
def test_the_larger_rates_verdict_gives_both_orders_the_same_help(monkeypatch, pre_learns, post_learns, verdict):
    seen = set()

    def loss_of(arrangement, n_layers, peak, warmup, start, *_):
        seen.add((arrangement, warmup, start))
        return 2.0 if f"{start} {warmup}" in (pre_learns if arrangement == "pre-norm" else post_learns) else 4.5

    outcome(monkeypatch, loss_of)
    finding = find("blocks.large_rates")()
    assert finding.verdict == verdict
    losses = torch.tensor(finding.values).view(2, len(blocks.HELPS), len(blocks.SEEDS))  # as chapter 8 prints them
    assert [(each == 2.0).all(dim=1).sum() for each in losses] == [len(pre_learns), len(post_learns)]
    helps = [{tuple(setting) for order, *setting in seen if order == each} for each in ("pre-norm", "post-norm")]
    assert helps[0] == helps[1], "every help that one is given the other is given as well"


def test_a_run_that_diverges_counts_as_not_learnt(monkeypatch):
    def diverge(*_, **__):
        raise blocks.TrainingDiverged("NaN")

    monkeypatch.setattr(blocks, "train", diverge)
    losses = blocks.training_losses("pre-norm", 1, 99.0, 0, steps=12)
    assert not blocks.learned(blocks.final(losses))
