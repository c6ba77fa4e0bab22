"""Chapter 6's claims: the quick experiments whole, the long ones with their sizes cut down; the tools behind them."""

import pytest
import torch
import torch.nn.functional as F

from course_lib.chapters.feed_forward import claims
from course_lib.claims import find, in_order, letters
from course_lib.config import TransformerConfig, preset
from course_lib.contents import chapter_of
from course_lib.gpt import DecoderOnly
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import CAPITALS, WordTokenizer

UNTRAINED = {"vocab_size": 31, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64, "activation": "relu"}


def test_the_chapter_has_its_claims():
    assert {each.id for each in in_order([chapter_of("feed_forward").number])} == {
        f"feed_forward.{name}"
        for name in (
            "active_units",
            "width",
            "nonlinearity",
            "swiglu_size",
            "swiglu_quality",
            "capitals",
            "facts_elsewhere",
        )
    }


# ------------------------------------------------------------------------------------------------------ whole
def test_swiglu_weighs_as_much_as_what_it_replaces():
    finding = find("feed_forward.swiglu_size")()
    llama = preset("llama-7b")
    two = 2 * 4 * llama.d_model**2 + 5 * llama.d_model
    assert finding.values[0] == pytest.approx(3 * llama.d_model * llama.d_ff / two)
    assert finding.verdict == "confirmed"
    assert finding.measured == "1.01 times at LLaMA's width (11,008), 1.50 times at equal width"


def test_deleting_a_fact_deletes_that_fact():
    finding = find("feed_forward.capitals")()
    assert finding.verdict == "confirmed"
    assert finding.values[0] < 0.1
    assert finding.measured == (
        "96 of 2,048 units removed: 16 of 16 capitals fall below p = 0.5, 15 are no longer the most probable word; of "
        "the others 99 % keep p > 0.5 (random units: 100 %)"
    )


@pytest.mark.parametrize(("chance", "verdict"), [(0.02, "confirmed"), (0.45, "depends"), (0.99, "refuted")])
def test_a_capital_is_gone_only_if_it_is_so_by_both_criteria(monkeypatch, chance, verdict):
    """p = 0.45 is below a half, and may still be the most probable word by far."""
    chosen, country = torch.zeros(4, 512, dtype=torch.bool), iter(range(16))

    def next_words(model, ids, removed=None):
        own = next(country) if removed is chosen else None
        p = torch.zeros(16, 343)
        for row, answer in enumerate(claims.capital_questions(claims.WordTokenizer())[1]):
            p[row, answer] = chance if row == own else 0.99
            p[row, 0] = 0.1
        return p

    monkeypatch.setattr(claims, "strongest", lambda contribution, n: chosen if contribution.min() < 0 else ~chosen)
    monkeypatch.setattr(claims, "next_words", next_words)
    assert find("feed_forward.capitals")().verdict == verdict


@pytest.mark.proof
def test_facts_are_kept_in_feed_forward_networks_and_need_none():
    finding = find("feed_forward.facts_elsewhere")()
    assert finding.verdict == "depends"
    assert len(finding.values) == 3
    assert min(finding.values) > 0.95


@pytest.mark.parametrize(
    ("share", "recalled", "verdict"), [(0.98, 1.0, "depends"), (0.98, 0.1, "confirmed"), (0.2, 1.0, "refuted")]
)
def test_the_verdict_on_stored_facts_follows_the_exchange_and_the_recall(share, recalled, verdict, monkeypatch):
    monkeypatch.setattr(claims, "carried", lambda model, tokenizer, at, apart: share)
    monkeypatch.setattr(claims, "learn_facts", lambda seed, feed_forward=True: 1.0 if feed_forward else recalled)
    assert find("feed_forward.facts_elsewhere")().verdict == verdict


def test_a_capital_goes_with_the_first_feed_forward_network(trained):
    model, tokenizer = trained
    for apart in (1, 7):
        assert claims.carried(model, tokenizer, "blocks.0.feed_forward", apart) > 0.9
        assert claims.carried(model, tokenizer, "blocks.0.attention.head.0", apart) > 0.9, "it brings the country"
        assert abs(claims.carried(model, tokenizer, "blocks.1.attention", apart)) < 0.1
        assert claims.carried(model, tokenizer, "blocks.3", apart) == pytest.approx(1, abs=1e-3), "the whole stream"


# ------------------------------------------------------------------------------------------------------ cut down
@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(claims, "SEEDS", (0,))
    monkeypatch.setattr(letters, "STEPS", 60)


@pytest.mark.proof
@pytest.mark.usefixtures("small")
class TestShortRuns:
    def test_training_silences_units(self):
        finding = find("feed_forward.active_units")()
        assert finding.measured.startswith("5 of 10 before training"), "a fresh score is as often above 0 as below"
        assert 0.1 < finding.values[0] < 0.45

    @pytest.mark.proof
    def test_about_half_of_the_gain_needs_the_nonlinearity(self, monkeypatch):
        monkeypatch.setattr(letters, "STEPS", 300)
        finding = find("feed_forward.nonlinearity")()
        assert 0.1 < finding.values[0] < 0.9
        assert finding.verdict == "depends"

    @pytest.mark.parametrize("id", ["feed_forward.width", "feed_forward.swiglu_quality"])
    def test_the_other_trainings_run_and_give_losses_below_guessing(self, id):
        finding = find(id)()
        assert 1 < finding.values[0] < 3.4, "ln 31 = 3.43 is the loss of a blind guess"


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [((1.42, 1.4, 1.41), "confirmed"), ((1.6, 1.4, 1.6), "depends"), ((1.5, 1.4, 1.9), "refuted")],
)
def test_the_verdict_on_the_width_follows_the_losses(monkeypatch, losses, verdict):
    by_ratio = dict(zip((1, 4, 16), losses))

    def pretend(seed, d_model, d_ff, n_heads):
        assert 11_000 < 4 * d_model**2 + 2 * d_model * d_ff < 15_000, "about as many weights at every ratio"
        return None, by_ratio[d_ff // d_model]

    monkeypatch.setattr(claims, "train_on_letters", pretend)
    assert find("feed_forward.width")().verdict == verdict


@pytest.mark.parametrize(
    ("straight", "verdict"), [(1.6, "depends"), (1.79, "confirmed"), (1.41, "refuted"), (2.0, "confirmed")]
)
def test_the_verdict_on_the_nonlinearity_follows_the_losses(monkeypatch, straight, verdict):
    def pretend(seed, nonlinearity=True, prepare=None):
        return None, 1.8 if prepare else 1.4 if nonlinearity else straight

    monkeypatch.setattr(claims, "train_on_letters", pretend)
    assert find("feed_forward.nonlinearity")().verdict == verdict


def test_without_feed_forward_networks_they_give_0_and_stay_so():
    model = DecoderOnly(TransformerConfig(**UNTRAINED))
    claims.leave_feed_forward_out(model)
    for block in model.blocks:
        assert not block.feed_forward(torch.randn(2, 5, 32)).any()
        assert not any(parameter.requires_grad for parameter in block.feed_forward.parameters())


@pytest.mark.parametrize(
    ("before", "after", "verdict"), [(0.5, 0.27, "depends"), (0.5, 0.05, "confirmed"), (0.2, 0.6, "refuted")]
)
def test_the_verdict_on_active_units_follows_the_shares(monkeypatch, before, after, verdict):
    def pretend(seed, on_step, **config):
        on_step(0, before)
        on_step(1, None)
        return after, 0.0

    monkeypatch.setattr(claims, "train_on_letters", pretend)
    monkeypatch.setattr(claims, "active_shares", lambda share, ids: [share, share])
    assert find("feed_forward.active_units")().verdict == verdict


@pytest.mark.parametrize(("swiglu", "verdict"), [(1.2, "confirmed"), (1.31, "depends"), (1.5, "refuted")])
def test_the_verdict_on_swiglu_follows_the_losses(monkeypatch, swiglu, verdict):
    losses = {"relu": 1.32, "gelu": 1.4, "swiglu": swiglu}
    monkeypatch.setattr(claims, "train_on_letters", lambda seed, activation, d_ff: (None, losses[activation]))
    assert find("feed_forward.swiglu_quality")().verdict == verdict


# ------------------------------------------------------------------------------------------------------ the tools
def test_active_shares_count_what_the_first_layer_says():
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(**UNTRAINED)).eval()
    ids = torch.randint(31, (3, 20))
    seen = []
    for block in model.blocks:
        block.feed_forward.up_proj.register_forward_hook(lambda _, inputs, scores: seen.append(scores > 0))
    shares = claims.active_shares(model, ids)
    assert shares == pytest.approx([fired.float().mean().item() for fired in seen[:2]])


@pytest.fixture(scope="module")
def trained():
    return load_pretrained("tinytown")


@pytest.mark.parametrize("wording", [claims.ASKED, claims.TOLD])
def test_the_questions_are_answered_by_the_capitals(wording):
    tokenizer = WordTokenizer()
    ids, answers = claims.capital_questions(tokenizer, wording)
    for row, answer, (country, capital) in zip(ids, answers, CAPITALS.items()):
        assert tokenizer.decode(row).count(country) >= 1
        assert tokenizer.tokens[answer] == capital
        assert capital not in tokenizer.decode(row)


def test_a_contribution_is_the_lead_lost_when_a_unit_fades(trained):
    model, tokenizer = trained
    ids, answers = claims.capital_questions(tokenizer)
    contribution = claims.contributions(model, ids, answers)
    layer, unit = 2, int(contribution[4, 2].argmax())

    def lead(scale):
        weight = model.blocks[layer].feed_forward.down_proj.weight
        column = weight[:, unit].detach().clone()
        with torch.no_grad():
            weight[:, unit] = scale * column
            logits = model(ids)[4, -1]
            weight[:, unit] = column
        return (logits[answers[4]] - logits[answers].mean()).item()

    slope = (lead(1.01) - lead(0.99)) / 0.02  # by how much the lead grows with the unit's voice
    assert contribution[4, layer, unit].item() == pytest.approx(slope, rel=0.02)


def test_removing_a_unit_is_setting_its_value_to_zero(trained):
    model, tokenizer = trained
    ids, answers = claims.capital_questions(tokenizer)
    removed = torch.zeros(4, 512, dtype=torch.bool)
    removed[2, 200:300] = True
    chances = claims.answer_chances(model, ids, answers, removed)
    weight = model.blocks[2].feed_forward.down_proj.weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight[:, 200:300] = 0
        expected = F.softmax(model(ids)[:, -1], dim=-1)[torch.arange(16), answers]
        weight.copy_(kept)
    torch.testing.assert_close(chances, expected)
    intact = claims.answer_chances(model, ids, answers)
    assert (intact > 0.9).all(), "the hooks are gone"


def test_the_strongest_units_are_chosen_over_all_layers():
    contribution = torch.tensor([[0.1, 3.0, -5.0], [2.0, 0.2, 0.0]])
    assert claims.strongest(contribution, 2).tolist() == [[False, True, False], [True, False, False]]


@pytest.mark.proof
def test_a_feed_forward_network_alone_can_store_facts_too():
    assert claims.learn_facts(seed=0, elsewhere=False) > 0.2, "guessing finds one in sixty"
