"""Chapter 9's measurements, each against plain PyTorch, a closed form or a case whose answer is known."""

import math
import statistics

import pytest
import torch
import torch.nn.functional as F

from course_lib.chapters.gpt import claims as gpt
from course_lib.claims import find
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.pretrained import load_pretrained, shipped_figures


@pytest.fixture(scope="module")
def trained():
    return load_pretrained("tinytown")[0]


@pytest.fixture
def few_stories(monkeypatch):
    monkeypatch.setattr(gpt, "STORIES", 25)


# ------------------------------------------------------------------------------------------------------- how it starts
def test_an_untrained_model_starts_at_ln_v_only_from_a_small_table():
    finding = find("gpt.initial_loss")()
    assert finding.verdict == "depends"
    assert finding.mean == pytest.approx(math.log(343), abs=0.05)
    assert "over 100" in finding.measured


@pytest.mark.parametrize("tied", [False, True])
def test_the_first_guess_is_that_of_the_model_described(tied):
    logits, loss, own = gpt.first_guess(0.3, tied, seed=2)
    model = gpt.untrained(0.3, tied, seed=2)
    assert (model.output.weight is model.token_embedding.weight) == tied
    assert model.token_embedding.weight.std().item() == pytest.approx(0.3, rel=0.03)
    assert logits.shape == (8, gpt.T, 343)
    # The loss of random targets is ln Σ exp − mean logit, on average.
    expected = (logits.logsumexp(dim=-1) - logits.mean(dim=-1)).mean().item()
    assert loss == pytest.approx(expected, rel=0.03)
    assert (own > 0.9) == tied


def test_an_untied_table_of_any_size_leaves_the_first_loss_at_ln_v():
    for std in (0.01, 2.0):
        assert gpt.first_guess(std, tied=False)[1] == pytest.approx(math.log(343), rel=0.03)


@pytest.mark.proof
def test_branches_add_up_as_the_root_of_their_number_unless_they_start_smaller():
    finding = find("gpt.branch_scale")()
    assert finding.verdict == "confirmed"
    assert finding.mean == pytest.approx(1, abs=0.1)
    assert gpt.stream_growth(18, scaled=False) / gpt.stream_growth(2, scaled=False) == pytest.approx(3, rel=0.2)
    assert gpt.stream_growth(2, scaled=False) / gpt.stream_growth(2, scaled=True) == pytest.approx(2, rel=0.15)


# --------------------------------------------------------------------------------------------------------------- tying
@pytest.mark.parametrize(
    ("small", "large", "verdict"),
    [(0.0, 0.0, "confirmed"), (-0.3, 0.01, "confirmed"), (0.12, 1.6, "depends"), (1.0, 2.0, "refuted")],
)
def test_the_verdict_on_tying_follows_what_it_costs(monkeypatch, small, large, verdict):
    def losses(tied, std, seed, steps):
        return (2.0 + tied * (small if std < 0.1 else large),) * 10

    monkeypatch.setattr(gpt, "tying_losses", losses)
    finding = find("gpt.tying")()
    assert finding.verdict == verdict
    assert finding.values == pytest.approx([small] * 3)


def test_a_tied_table_from_n01_starts_far_above_ln_v_and_the_other_three_at_it():
    starts = {(tied, std): gpt.tying_losses(tied, std, steps=2)[0] for tied in (False, True) for std in (0.02, 1.0)}
    assert starts.pop((True, 1.0)) > 40
    assert list(starts.values()) == pytest.approx([math.log(343)] * 3, rel=0.03)


@pytest.mark.parametrize(
    ("nats", "said"),
    [(0.01, "no difference"), (-0.01, "no difference"), (0.118, "about 0.1 nats worse"), (1.58, "about 1.5 nats worse"),
     (-0.3, "about 0.3 nats better")],
)  # fmt: skip
def test_costs_are_said_in_words(nats, said):
    assert gpt._cost(nats) == said


# ------------------------------------------------------------------------------------------------- what the blocks add
def test_the_lens_behind_the_last_block_is_the_model_itself(trained):
    ids = torch.randint(3, 343, (2, 9))
    lens = gpt.logit_lens(trained, ids)
    assert lens.shape == (5, 2, 9, 343)
    with torch.no_grad():
        torch.testing.assert_close(lens[-1], trained(ids))


def test_the_lens_at_the_start_reads_the_embeddings_alone(trained):
    ids = torch.randint(3, 343, (1, 6))
    with torch.no_grad():
        start = trained.token_embedding.weight[ids] + trained.positions.weight[:6]
        norm = trained.final_norm
        expected = F.layer_norm(start, (128,), norm.weight, norm.bias, norm.eps) @ trained.output.weight.T
    torch.testing.assert_close(gpt.logit_lens(trained, ids)[0], expected)


def test_lens_losses_end_at_the_models_own_loss(trained):
    losses = gpt.lens_losses(trained, 25)
    assert losses.shape[0] == 5
    assert losses[-1].mean().item() == pytest.approx(gpt.loss_without_block(trained, None, 25), rel=1e-5)
    assert losses[-1].mean().item() == pytest.approx(shipped_figures()["figures"]["loss"], rel=0.1)


def test_the_lens_falls_on_average_but_not_for_every_token(few_stories):
    finding = find("gpt.lens")()
    assert finding.verdict == "depends"
    assert list(finding.values) == sorted(finding.values, reverse=True)
    assert finding.values[0] > math.log(343) > finding.values[1]


def test_leaving_out_a_block_is_the_model_whose_block_writes_nothing(trained):
    """A block whose two writing matrices are 0 passes the stream on as it is."""
    silenced = load_pretrained("tinytown")[0]
    with torch.no_grad():
        for writes in (silenced.blocks[2].attention.out_proj, silenced.blocks[2].feed_forward.down_proj):
            writes.weight.zero_()
            writes.bias.zero_()
    expected = gpt.loss_without_block(silenced, None, 10)
    assert gpt.loss_without_block(trained, 2, 10) == pytest.approx(expected, rel=1e-5)
    assert len(trained.blocks) == 4, "the model is whole again"


def test_the_model_is_whole_again_even_if_measuring_fails(trained):
    broken = DecoderOnly(TransformerConfig(vocab_size=5, d_model=8, n_heads=2, n_layers=2, max_seq_len=4))
    with pytest.raises(ValueError, match="max_seq_len"):
        gpt.loss_without_block(broken, 0, 3)
    assert len(broken.blocks) == 2


def test_some_blocks_of_the_trained_model_are_dearer_than_others(few_stories):
    finding = find("gpt.one_block_less")()
    assert finding.verdict == "depends"
    assert min(finding.values) > 0, "no block is worse than nothing"
    assert finding.values[0] == max(finding.values)
    assert statistics.median(finding.values) < 1 < max(finding.values)
