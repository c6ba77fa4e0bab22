"""Chapter 6's claims: figures for every outcome, what is mended, and the tools behind the experiments."""

import pytest
import torch
import torch.nn.functional as F

from course_lib.chapters.feed_forward import claims
from course_lib.claims import find, recorded
from course_lib.claims.letters import train_on_letters
from course_lib.config import TransformerConfig, preset
from course_lib.feed_forward import load_balance_loss
from course_lib.gpt import DecoderOnly
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import CAPITALS, WordTokenizer

OUTCOMES = {
    "feed_forward.active_units": {
        "confirmed": {"after": [0.05, 0.06, 0.09]},
        "not at this size": {"after": [0.05, 0.06, 0.3]},
    },
    "feed_forward.width": {"confirmed": {"apart": 0.02}, "not at this size": {"apart": 0.12}},
    "feed_forward.nonlinearity": {
        "confirmed": {"gain_early": 0.02, "gain_late": 0.01},
        "depends": {"gain_early": 0.02, "gain_late": 0.2},
        "refuted": {"gain_early": 0.1, "gain_late": 0.2},
    },
    "feed_forward.swiglu_size": {"by construction": {}},
    "feed_forward.swiglu_quality": {
        "confirmed": {"lead": [0.01, 0.02, 0.05]},
        "not at this size": {"lead": [0.01, -0.02, 0.05]},
    },
    "feed_forward.experts": {
        "confirmed": {"lead": [0.2, 0.1, 0.3]},
        "not at this size": {"lead": [0.2, -0.1, 0.3]},
    },
    "feed_forward.few_experts": {
        "confirmed": {"without": [0.6, 0.7, 0.8], "with_loss": [0.3, 0.25, 0.4]},
        "depends": {"without": [0.6, 0.4, 0.8], "with_loss": [0.3, 0.25, 0.6]},
        "not at this size": {"without": [0.3, 0.4, 0.8], "with_loss": [0.3, 0.25, 0.6]},
    },
    "feed_forward.capitals": {
        "confirmed": {"lost": [1.0, 1.0, 0.95], "others_kept": [0.99, 0.95, 0.98], "random_kept": 1.0},
        "depends": {"lost": [1.0, 1.0, 1.0], "others_kept": [0.99, 0.55, 0.98], "random_kept": 1.0},
        "refuted": {"lost": [1.0, 1.0, 1.0], "others_kept": [0.99, 0.55, 0.98], "random_kept": 0.5},
    },
    "feed_forward.facts": {
        "confirmed": {"by_layer": [0.2, 0.9, 0.3, 0.1]},
        "depends": {"by_layer": [0.98, 0.3, 0.2, 0.3]},
        "not at this size": {"by_layer": [0.1, 0.2, 0.1, 0.1]},
    },
    "feed_forward.facts_elsewhere": {
        "confirmed": {"attention": [0.8, 0.7, 0.9], "feed_forward": [0.8, 0.7, 0.9]},
        "depends": {"attention": [0.8, 0.7, 0.9], "feed_forward": [0.1, 0.2, 0.6]},
        "not at this size": {"attention": [0.1, 0.1, 0.1], "feed_forward": [0.1, 0.1, 0.6]},
    },
}
UNTRAINED = {"vocab_size": 31, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64, "activation": "relu"}


def test_swiglu_weighs_as_much_as_what_it_replaces():
    finding = find("feed_forward.swiglu_size")()
    llama = preset("llama-7b")
    two = 2 * 4 * llama.d_model**2 + 5 * llama.d_model
    assert finding.values[0] == pytest.approx(3 * llama.d_model * llama.d_ff / two)
    assert finding.verdict == "by construction"
    assert "1.01 times the parameters" in finding.measured
    assert finding.measured.endswith("1.50 times at equal width")


def test_which_capitals_stay_depends_on_the_criterion_that_chooses_the_units(trained):
    lead, logit, log_probability = (claims.without_its_units(*trained, criterion) for criterion in claims.CRITERIA)
    assert lead[0] == logit[0] == log_probability[0] == 1, "the country's own capital is lost by each criterion"
    assert logit[1] < 0.7 < 0.9 < min(lead[1], log_probability[1])
    assert claims.kept_without_random_units(*trained, seed=0) > 0.95


def test_the_network_that_carries_a_capital_is_not_in_a_middle_layer():
    found = recorded()["feed_forward.facts"].figures["by_layer"]
    assert found[0] > 0.9 > 0.4 > max(found[1:])
    assert "mid-layer" in find("feed_forward.facts").source.quote


def test_a_capital_goes_with_the_first_feed_forward_network(trained):
    model, tokenizer = trained
    for apart in (1, 7):
        assert claims.carried(model, tokenizer, "blocks.0.feed_forward", apart) > 0.9
        assert claims.carried(model, tokenizer, "blocks.0.attention.head.0", apart) > 0.9, "it brings the country"
        assert abs(claims.carried(model, tokenizer, "blocks.1.attention", apart)) < 0.1
        assert claims.carried(model, tokenizer, "blocks.3", apart) == pytest.approx(1, abs=1e-3), "the whole stream"


# ------------------------------------------------------------------------------------------------------ the tools
def test_without_feed_forward_networks_they_give_0_and_stay_so():
    model = DecoderOnly(TransformerConfig(**UNTRAINED))
    claims.leave_feed_forward_out(model)
    for block in model.blocks:
        assert not block.feed_forward(torch.randn(2, 5, 32)).any()
        assert not any(parameter.requires_grad for parameter in block.feed_forward.parameters())


def test_shapes_that_are_compared_have_equally_many_weights():
    sizes = [4 * d_model**2 + 2 * d_model * d_ff for d_model, d_ff in claims.EQUAL_WEIGHTS.values()]
    assert max(sizes) / min(sizes) < 1.005
    assert [round(d_ff / d_model) for d_model, d_ff in claims.EQUAL_WEIGHTS.values()] == list(claims.EQUAL_WEIGHTS)


def test_a_model_without_activations_is_linear_between_its_two_matrices():
    model, _ = train_on_letters(0, steps=1, nonlinearity=False, n_layers=2)
    x = torch.randn(3, 32)
    for block in model.blocks:
        zero = block.feed_forward(torch.zeros(32))
        with torch.no_grad():
            torch.testing.assert_close(block.feed_forward(2 * x) - zero, 2 * (block.feed_forward(x) - zero))


def test_the_dense_network_and_the_mixture_have_equal_active_and_the_wide_one_equal_total_parameters():
    used = {name: claims.parameters_of(name) for name in claims.NETWORKS}
    assert used["mixture"] == used["balanced"]
    (active, total), dense, wide = used["mixture"], used["dense"], used["wide"]
    assert active == 3 * 32 * 32 + 8 * 32
    assert total == 8 * 3 * 32 * 32 + 8 * 32
    assert active < dense[0] == dense[1] < 1.01 * active
    assert total < wide[0] == wide[1] < 1.01 * total


def test_a_balanced_mixture_adds_the_loss_of_its_router_in_training_only():
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(31, 32, 4, 2, 64, activation="swiglu", n_experts=4, experts_per_token=1))
    ids, targets = torch.randint(31, (2, 3, 20))
    _, alone = model(ids, targets)
    scores = []
    for block in model.blocks:
        block.feed_forward.router.register_forward_hook(lambda _, inputs, output: scores.append(output))
    claims.balance_load(model)
    for _ in range(2):  # nothing is left over from the call before
        scores.clear()
        _, both = model(ids, targets)
        expected = alone + 0.01 * sum(load_balance_loss(each) for each in scores)
        torch.testing.assert_close(both, expected)
    model.eval()
    torch.testing.assert_close(model(ids, targets)[1], alone)


def test_the_load_of_the_experts_is_the_fraction_of_tokens_with_the_largest_score():
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(31, 32, 4, 1, 64, activation="swiglu", n_experts=4, experts_per_token=1))
    ids = torch.randint(31, (3, 20))
    chosen = []
    model.blocks[0].feed_forward.router.register_forward_hook(
        lambda _, x, y: chosen.extend(y.argmax(-1).flatten().tolist())
    )
    load = claims.expert_load(model, ids)
    assert load == pytest.approx(sorted((chosen.count(e) / 60 for e in range(4)), reverse=True))


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


@pytest.mark.parametrize("part", ["attention", "feed_forward"])
def test_only_the_part_that_is_asked_for_learns_the_facts(part, monkeypatch):
    seen = []
    monkeypatch.setattr(claims, "train", lambda model, *arguments, **settings: seen.append(model))
    claims.learn_facts(0, part, steps=1)
    for name, parameter in seen[0].named_parameters():
        assert parameter.requires_grad == (f".{part}." in name), name
