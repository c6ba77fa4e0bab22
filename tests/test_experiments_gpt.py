"""Chapter 9's measurements, each against plain PyTorch, a closed form or a case whose answer is known."""

import math

import pytest
import torch
import torch.nn.functional as F

from course_lib.chapters.gpt import claims as gpt
from course_lib.claims import find
from course_lib.claims.interventions import patch
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
    assert finding.verdict == "confirmed"
    assert finding.mean == pytest.approx(math.log(343), abs=0.05)
    assert "over 100 if tied to the output, 5.9 if not" in finding.measured


def test_the_first_loss_does_not_tell_whether_the_mask_is_there():
    """An untrained model cannot use what it sees. Targets that are not shifted show, and only if tables are tied."""
    for seed in gpt.SEEDS:
        for tied in (True, False):
            model = gpt.untrained(0.02, tied, seed)
            ids = torch.randint(343, (16, 65))
            with torch.no_grad():
                right = model(ids[:, :-1], ids[:, 1:])[1].item()
                unshifted = model(ids, ids)[1].item()
                for block in model.blocks:
                    block.is_causal = False
                unmasked = model(ids[:, :-1], ids[:, 1:])[1].item()
            assert unmasked == pytest.approx(right, abs=0.05)
            assert (unshifted < right - 0.5) == tied


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
    def losses(tied, std, seed, steps, large_output=False):
        assert large_output != tied, "an untied model draws both its tables as the tied one is drawn"
        return (2.0 + tied * (small if std < 0.1 else large),) * 10

    monkeypatch.setattr(gpt, "tying_losses", losses)
    finding = find("gpt.tying")()
    assert finding.verdict == verdict
    assert finding.values == pytest.approx([small] * 3)


def test_a_tied_table_from_n01_starts_far_above_ln_v_and_the_other_three_at_it():
    starts = {(tied, std): gpt.tying_losses(tied, std, steps=2)[0] for tied in (False, True) for std in (0.02, 1.0)}
    assert starts.pop((True, 1.0)) > 40
    assert list(starts.values()) == pytest.approx([math.log(343)] * 3, rel=0.03)
    assert gpt.tying_losses(False, 1.0, steps=1, large_output=True)[0] > 10, "a large output table, without any tie"


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
    assert losses[-1].mean().item() == pytest.approx(gpt.without_block(trained, None, 25)[0], rel=1e-5)
    assert losses[-1].mean().item() == pytest.approx(shipped_figures()["figures"]["loss"], rel=0.1)


@pytest.mark.proof
def test_a_reader_fitted_to_each_block_finds_what_the_lens_misses(trained, monkeypatch):
    monkeypatch.setattr(gpt, "FITTED", 120)
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    lens, fitted = gpt.lens_losses(trained, 25).mean(dim=1), gpt.fitted_losses(trained, 25, steps=60).mean(dim=1)
    assert (fitted[:3] < lens[:3] - 0.3).all()
    assert fitted[-1] == pytest.approx(lens[-1].item(), abs=0.1), "after the last block there is nothing to find"
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())
    assert all(parameter.grad is None for parameter in trained.parameters())


@pytest.mark.proof
def test_the_lens_falls_on_average_but_not_for_every_token(few_stories):
    finding = find("gpt.lens")()
    assert finding.verdict == "depends"
    lens, fitted = finding.values[:5], finding.values[5:]
    assert list(lens) == sorted(lens, reverse=True)
    assert lens[0] > math.log(343) > lens[1] > fitted[1]


def test_leaving_out_a_block_is_the_model_whose_block_writes_nothing(trained):
    """A block whose two writing matrices are 0 passes the stream on as it is."""
    silenced = load_pretrained("tinytown")[0]
    with torch.no_grad():
        for writes in (silenced.blocks[2].attention.out_proj, silenced.blocks[2].feed_forward.down_proj):
            writes.weight.zero_()
            writes.bias.zero_()
    expected = gpt.without_block(silenced, None, 10)
    assert gpt.without_block(trained, 2, 10) == pytest.approx(expected, rel=1e-5)
    assert len(trained.blocks) == 4, "the model is whole again"


def test_the_model_is_whole_again_even_if_measuring_fails():
    broken = DecoderOnly(TransformerConfig(vocab_size=400, d_model=8, n_heads=2, n_layers=2, max_seq_len=4))
    with pytest.raises(ValueError, match="max_seq_len"):
        gpt.without_block(broken, 0, 3)
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        x = broken.dropout(broken.positions(broken.token_embedding(ids)))
        for block in broken.blocks:
            x = block(x)
        torch.testing.assert_close(broken(ids), broken.output(broken.final_norm(x)))


def test_a_block_that_writes_the_same_after_the_same_word_is_replaced_by_its_average(trained, monkeypatch):
    """With one block that looks nowhere else, the average for each token is the block itself."""
    monkeypatch.setattr(gpt, "FITTED", 20)
    lonely = load_pretrained("tinytown")[0]
    with torch.no_grad():
        lonely.blocks[0].attention.out_proj.weight.zero_()
        lonely.positions.weight.zero_()
    instead = gpt.mean_writes(lonely, 0)
    stories = gpt.encoded(20, 1)
    monkeypatch.setattr(gpt, "encoded", lambda *_, **__: stories)
    assert gpt.without_block(lonely, 0, 20, instead=instead) == pytest.approx(
        gpt.without_block(lonely, None, 20), rel=1e-3
    )


@pytest.mark.proof
def test_no_block_is_spare_and_the_first_is_missed_most(few_stories):
    finding = find("gpt.one_block_less")()
    assert finding.verdict == "depends"
    kept, costs = finding.values[:4], finding.values[4:]
    assert kept[0] < 0.1 < 0.85 < min(kept[1:])
    assert costs[0] == max(costs)
    assert min(costs) > 0.1, "ten times what the whole model loses above the entropy"


def test_who_chased_whom_is_decided_by_attention_in_block_3_and_written_in_block_4(trained):
    """What chapter 9 shows with `patch`: for pairs that it does not use."""
    tokenizer = load_pretrained("tinytown")[1]

    def asked(one, other):
        story = f"once there was a king called tom . the {one} chased the {other} . who chased the {other} ? it was the"
        return torch.tensor([tokenizer.encode(story, end=False)])

    for one, other in (("duck", "horse"), ("mouse", "snake"), ("bird", "donkey")):
        this, exchanged = asked(one, other), asked(other, one)
        right, wrong = tokenizer.id(one), tokenizer.id(other)

        def lead(change, right=right, wrong=wrong):
            return (change[0, -1, right] - change[0, -1, wrong]).item()

        with torch.no_grad():
            whole = lead(trained(exchanged) - trained(this))
        undone = {
            at: lead(patch(trained, this, exchanged, at, positions=[-1])) / whole
            for i in range(4)
            for at in (f"blocks.{i}.attention", f"blocks.{i}.feed_forward")
        }
        assert undone.pop("blocks.2.attention") > 0.9
        assert undone.pop("blocks.3.feed_forward") > 0.6
        assert max(map(abs, undone.values())) < 0.15
        assert lead(patch(trained, this, exchanged, "blocks.2.attention.head.3", positions=[-1])) / whole > 0.6
