"""Chapter 9's measurements, each against plain PyTorch, a closed form or a case whose answer is known."""

import math

import pytest
import torch
import torch.nn.functional as F

from course_lib.chapters.gpt import claims as gpt
from course_lib.claims import find, recorded
from course_lib.claims.interventions import patch
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.pretrained import load_pretrained, shipped_figures

OUTCOMES = {
    "gpt.initial_loss": {
        "confirmed": {"small": 0.05, "gpt2": 0.08},
        "depends": {"small": 0.05, "gpt2": 0.16},
        "refuted": {"small": 120.0, "gpt2": 700.0},
    },
    "gpt.branch_scale": {
        "confirmed": {"plain": [4.0, 4.6], "divided": [1.0, 1.0]},
        "depends": {"plain": [4.0, 4.6], "divided": [1.0, 2.5]},
        "refuted": {"plain": [4.0, 4.6], "divided": [3.9, 4.5]},
    },
    "gpt.tying": {
        "confirmed": {"small": -0.1, "large": 0.0},
        "depends": {"small": 0.0, "large": 1.0},
        "not at this size": {"small": 0.4, "large": 1.0},
    },
    "gpt.lens": {
        "confirmed": {"lens": [18.0, 2.3, 1.0], "fitted": [2.0, 1.1, 0.7]},
        "depends": {"lens": [18.0, 2.3, 2.4], "fitted": [2.0, 1.1, 0.7]},
        "refuted": {"lens": [18.0, 2.3, 2.4], "fitted": [2.0, 1.1, 1.2]},
    },
    "gpt.one_block_less": {
        "confirmed": {"kept": [0.02, 0.94, 0.92, 0.85], "costs": [8.6, 0.2, 0.2, 0.5]},
        "depends": {"kept": [0.02, 0.94, 0.92, 0.92], "costs": [8.6, 0.2, 0.2, 0.3]},
        "not at this size": {"kept": [0.9, 0.5, 0.92, 0.92], "costs": [0.3, 2.0, 0.2, 0.3]},
    },
}


@pytest.fixture(scope="module")
def trained():
    return load_pretrained("tinytown")[0]


# ------------------------------------------------------------------------------------------------------- how it starts
def test_the_first_loss_exceeds_ln_v_by_half_the_variance_of_the_logits():
    """So ln V is right within 0.1 nats at the course's size, and not at GPT-2's."""
    figures = find("gpt.initial_loss")().figures
    assert figures["small"] == pytest.approx(0.02**2 * 128 / 2, abs=0.04)
    assert figures["gpt2"] == pytest.approx(0.02**2 * 768 / 2, abs=0.05)
    assert figures["small"] < 0.1 < figures["gpt2"]


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
    assert logits.shape == (gpt.TEXTS, gpt.T, 343)
    # The loss of random targets is ln Σ exp − mean logit, on average.
    expected = (logits.logsumexp(dim=-1) - logits.mean(dim=-1)).mean().item()
    assert loss == pytest.approx(expected, rel=0.03)
    assert (own > 0.9) == tied


def test_an_untied_table_of_any_size_leaves_the_first_loss_at_ln_v():
    for std in (0.01, 2.0):
        assert gpt.first_guess(std, tied=False)[1] == pytest.approx(math.log(343), rel=0.03)


@pytest.mark.parametrize("tied", [False, True])
def test_the_expected_first_loss_is_half_the_variance_of_the_logits_above_ln_v_tied_or_not(tied):
    """The card's rows, of a few random targets, differ from it by chance: 0.05 tied, 0.02 with an output of its own."""
    torch.manual_seed(0)
    model = DecoderOnly(
        TransformerConfig(vocab_size=343, d_model=128, n_heads=4, n_layers=1, max_seq_len=gpt.T, tie_weights=tied)
    )
    with torch.no_grad():
        logits = model.eval()(torch.randint(343, (32, gpt.T)))
    gap = (logits.logsumexp(dim=-1) - logits.mean(dim=-1)).mean().item() - math.log(343)
    assert gap == pytest.approx(logits.var().item() / 2, rel=0.1)
    assert gap == pytest.approx(0.02**2 * 128 / 2, rel=0.2)


def test_branches_add_up_as_the_root_of_their_number_unless_they_start_smaller():
    assert gpt.stream_growth(18, scaled=False) / gpt.stream_growth(2, scaled=False) == pytest.approx(3, rel=0.2)
    assert gpt.stream_growth(18, scaled=True) / gpt.stream_growth(2, scaled=True) == pytest.approx(1, rel=0.2)
    assert gpt.stream_growth(2, scaled=False) / gpt.stream_growth(2, scaled=True) == pytest.approx(2, rel=0.15)


def test_with_the_usual_small_table_branches_add_up_to_more_than_the_root_and_the_division_still_holds_them():
    """The card once measured with a table from N(0, 1) alone, and said that the division removes exactly the root."""
    small = [gpt.stream_growth(32, False, seed, 0.02) / gpt.stream_growth(2, False, seed, 0.02) for seed in gpt.SEEDS]
    assert all(4.2 < growth < 5.2 for growth in small)
    assert gpt.branch_scale_verdict(plain=[4.0, 4.6], divided=[1.0, 1.6]) == "depends"


def test_one_model_is_read_by_the_lens_and_the_card_says_so():
    assert "one trained model" in find("gpt.lens").control
    assert "one model" in recorded()["gpt.lens"].because


# --------------------------------------------------------------------------------------------------------------- tying
def test_both_tables_of_an_untied_model_are_drawn_as_a_tied_one_is_and_each_arm_has_its_rate(monkeypatch):
    seen = {}

    def losses(tied, std, seed, steps, large_output, rate):
        assert large_output != tied
        seen.setdefault((tied, std), set()).add(rate)
        return (2.0 + abs(math.log(rate / (0.001 if tied else 0.016))),) * 10

    monkeypatch.setattr(gpt, "tying_losses", losses)
    assert find("gpt.tying")().figures == {"small": 0.0, "large": 0.0}, "at one rate for both they would differ"
    assert all(rates >= {0.001, 0.004, 0.016} for rates in seen.values())


def test_no_figure_of_tying_on_record_lies_near_the_threshold_of_its_verdict():
    """The threshold was once 0.1 nats, and the figure after four times the steps 0.101."""
    finding = recorded()["gpt.tying"]
    (longer,) = finding.tried
    assert all(abs(cost - 0.2) > 0.08 for cost in finding.figures.values())
    assert gpt.tying_verdict(finding.figures["small"], 0.101) == gpt.tying_verdict(0.05, 0.099) == longer.verdict


def test_a_tied_table_from_n01_starts_far_above_ln_v_and_the_other_three_at_it():
    starts = {(tied, std): gpt.tying_losses(tied, std, steps=2)[0] for tied in (False, True) for std in (0.02, 1.0)}
    assert starts.pop((True, 1.0)) > 40
    assert list(starts.values()) == pytest.approx([math.log(343)] * 3, rel=0.03)
    assert gpt.tying_losses(False, 1.0, steps=1, large_output=True)[0] > 10, "a large output table, without any tie"


@pytest.mark.parametrize(
    ("nats", "said"),
    [(0.01, "the two losses differ by less than 0.1 nats"), (-0.09, "the two losses differ by less than 0.1 nats"),
     (0.118, "the tied model’s loss is about 0.1 nats higher"), (1.2, "the tied model’s loss is about 1 nat higher"),
     (1.58, "the tied model’s loss is about 1.5 nats higher"), (-0.3, "the tied model’s loss is about 0.3 nats lower")],
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


def test_what_the_lens_shows_on_record_falls_from_above_ln_v_and_the_fitted_readers_are_ahead():
    figures = recorded()["gpt.lens"].figures
    lens, fitted = figures["lens"], figures["fitted"]
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
    for_all = gpt.mean_writes(lonely, 0, by_word=False)
    assert (for_all == for_all[0]).all(), "the control: one average, whatever the word"


def test_no_block_is_spare_and_the_first_is_needed_most_as_the_paper_says_of_early_layers():
    figures = recorded()["gpt.one_block_less"].figures
    kept, costs = figures["kept"], figures["costs"]
    assert kept[0] < 0.1 < 0.85 < min(kept[1:])
    assert costs[0] == max(costs)
    assert min(costs) > 0.1, "ten times what the whole model loses above the entropy"
    assert "early and final layers cause the most degradation" in find("gpt.one_block_less").source.quote


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
