"""Chapter 2's experiments: the verdicts, and figures that follow from elsewhere."""

import math
import random

import pytest
import torch

from course_lib.chapters.attention import claims as attention
from course_lib.claims import find
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.masks import causal_mask
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown
from course_lib.tinytown.world import CLASSES
from course_lib.trace import trace


def test_scores_spread_with_the_root_of_d_k():
    finding = find("attention.spread")()
    assert finding.verdict == "confirmed"
    assert all(slope == pytest.approx(0.5, abs=0.02) for slope in finding.values), "variances add"


def test_scores_that_do_not_grow_would_not_confirm_it(monkeypatch):
    monkeypatch.setattr(attention, "drawn", lambda seed, *shapes: [torch.randn(n, d) / d for n, d in shapes])
    assert find("attention.spread")().verdict == "depends"


@pytest.mark.parametrize("scaled", [False, True])
def test_the_gradient_at_a_query_is_the_covariance_of_keys_and_values(scaled):
    """∂(Σ wᵢ vᵢ)/∂q = Σ wᵢ (vᵢ − Σ wⱼ vⱼ) kᵢ, divided by √d_k if the scores are."""
    d_k = 16
    q, k, v = attention.drawn(3, (500, d_k), (64, d_k), (64, 1))
    scale = math.sqrt(d_k) if scaled else 1
    weights = torch.exp(q @ k.T / scale)
    weights /= weights.sum(dim=-1, keepdim=True)
    expected = ((weights * (v.T - weights @ v)) @ k / scale).norm(dim=-1)
    torch.testing.assert_close(attention.gradients_at_queries(d_k, scaled, 3), expected)


def test_most_gradients_vanish_and_a_few_explode():
    finding = find("attention.vanishing")()
    assert finding.verdict == "depends"
    assert all(0 < share < 0.1 for share in finding.values)


def test_large_scores_look_up_one_value():
    finding = find("attention.soft_dictionary")()
    assert finding.verdict == "confirmed"
    assert max(finding.values) < 1e-3


def test_for_most_queries_the_best_key_is_the_nearest_in_direction_and_for_some_it_is_not():
    finding = find("attention.resemblance")()
    assert finding.verdict == "depends"
    assert all(0.7 < share < 0.9 for share in finding.values)


def test_with_keys_of_one_length_the_best_is_always_the_nearest():
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(50, 16, 2, 1, max_seq_len=32))
    ids = torch.randint(50, (1, 32))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    assert min(attention.most_similar_first(model, ids)) < 1
    attend = type(model.blocks[0].attention)

    class OneLength(attend):
        def keys_and_values(self, source):
            key, value = super().keys_and_values(source)
            return torch.nn.functional.normalize(key, dim=-1), value

    model.blocks[0].attention.__class__ = OneLength
    assert attention.most_similar_first(model, ids) == [1, 1]


def test_attention_is_not_linear_in_its_input():
    finding = find("attention.linear")()
    assert finding.verdict == "depends"
    assert min(finding.values) > 0.3
    assert "no error but rounding" in finding.measured, "for given weights it is"


def test_with_keys_that_are_all_alike_attention_would_be_linear(monkeypatch):
    """W_K = 0: every weight is 1 / S whatever x is, so the same measurement must confirm the claim."""
    ordinary = attention.drawn

    def no_keys(seed, *shapes):
        x, W_Q, W_K, W_V, *second = ordinary(seed, *shapes)
        return [x, W_Q, 0 * W_K, W_V, second[0], 0 * second[1], second[2]]

    monkeypatch.setattr(attention, "drawn", no_keys)
    assert find("attention.linear")().verdict == "confirmed"


def test_scores_take_four_bytes_for_each_pair():
    finding = find("attention.score_memory")()
    assert finding.verdict == "confirmed"
    assert finding.values == (4 * 2048**2, 4 * 2048**2, 2048**2, 4 * 2048**2)


@pytest.mark.parametrize("n_heads", [1, 4])
def test_leaving_out_the_scale_is_attention_without_the_division(n_heads):
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(9, 16, n_heads, 1, max_seq_len=6, positions="none"))
    ids = torch.randint(9, (2, 6))
    with trace(model, "blocks.0.attention.query", "blocks.0.attention.key") as seen:
        model(ids)
    scores = seen["blocks.0.attention.query"] @ seen["blocks.0.attention.key"].transpose(-2, -1)
    expected = scores.masked_fill(~causal_mask(6), -torch.inf).softmax(dim=-1)
    assert not torch.allclose(model.attention_weights(ids)[0], expected, atol=1e-4)
    attention.leave_out_scale(model)
    torch.testing.assert_close(model.attention_weights(ids)[0], expected)


def test_one_matrix_for_both_makes_scores_symmetric():
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(9, 16, 2, 1, max_seq_len=6, positions="none"))
    attention.share_query_and_key(model)
    with trace(model, "blocks.0.attention.query", "blocks.0.attention.key") as seen:
        model(torch.randint(9, (2, 6)))
    scores = seen["blocks.0.attention.query"] @ seen["blocks.0.attention.key"].transpose(-2, -1)
    torch.testing.assert_close(scores, scores.transpose(-2, -1))


@pytest.mark.parametrize(
    ("wide", "better", "narrow", "verdict"),
    [
        (0.4, 0.3, 0.0, "confirmed"),
        (0.4, 0.02, 0.0, "depends"),
        (0.4, 0.3, 0.3, "depends"),
        (0.05, 0.02, 0.0, "refuted"),
    ],
)
def test_the_verdict_on_the_scale_follows_both_widths_and_both_rates(monkeypatch, wide, better, narrow, verdict):
    """wide: the cost at the rate of 0.01; better: at 0.003. With the division both rates are as good."""

    def trained(seed, steps, d_model, n_heads, peak, prepare):
        model = DecoderOnly(TransformerConfig(40, 8, 1, 1, max_seq_len=64))
        plain = model.blocks[0].attention.q_proj._forward_hooks.copy()
        prepare(model)
        undivided = len(model.blocks[0].attention.q_proj._forward_hooks) > len(plain)
        cost = narrow if n_heads == 32 else wide if peak == 1e-2 else better
        return model, 1.5 + undivided * cost

    monkeypatch.setattr(attention, "train_on_letters", trained)
    found = find("attention.unscaled_training")()
    assert found.verdict == verdict
    assert found.values == pytest.approx((better,) * 3)


@pytest.mark.proof
def test_no_softmax_is_saturated_at_the_start_with_or_without_the_division():
    weights = []
    for divided in (True, False):
        torch.manual_seed(0)
        model = DecoderOnly(TransformerConfig(40, 128, 1, 1, max_seq_len=64, positions="rope"))
        if not divided:
            attention.leave_out_scale(model)
        weights.append(attention.largest_weight(model))
    assert 1 / 64 < weights[0] <= weights[1] < 0.2, "an even share of 64 letters, and of fewer early on, is near it"


@pytest.mark.parametrize(
    ("shared", "elsewhere", "verdict"),
    [(0.1, 0.08, "refuted"), (0.1, 0.0, "confirmed"), (0.0, 0.1, "confirmed"), (0.1, (0.0, 0.1, 0.1), "depends")],
)
def test_the_verdict_on_one_matrix_follows_its_cost(monkeypatch, shared, elsewhere, verdict):
    def trained(seed, steps, n_layers, prepare):
        other = elsewhere[seed] if isinstance(elsewhere, tuple) else elsewhere
        costs = {attention.share_query_and_key: shared, attention.share_and_look_elsewhere: other}
        return None, 1.5 + costs.get(prepare, 0)

    monkeypatch.setattr(attention, "train_on_letters", trained)
    found = find("attention.one_matrix")()
    assert found.verdict == verdict
    assert found.values == pytest.approx((shared,) * 3)


def test_looking_elsewhere_hides_each_token_from_itself_alone():
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(9, 16, 2, 1, max_seq_len=6, positions="none"))
    attention.look_elsewhere(model)
    weights = model.attention_weights(torch.randint(9, (2, 6)))[0]  # (B, H, T, T)
    visible = torch.ones(6, 6).tril(-1).bool()
    visible[0, 0] = True
    assert torch.equal(weights > 0, visible.expand_as(weights))


def test_keys_as_drawn_are_not_trained_and_one_matrix_is():
    torch.manual_seed(0)
    counts = []
    for prepare in (attention.keep_keys_as_drawn, attention.share_query_and_key):
        model = DecoderOnly(TransformerConfig(9, 16, 2, 1, max_seq_len=6))
        prepare(model)
        counts.append(sum(p.numel() for p in model.parameters() if p.requires_grad))
    assert counts[0] == counts[1], "the control trains as many numbers"


# ----------------------------------------------------------------------------------------- what moves a model's answer
@pytest.mark.parametrize("seed", range(3))
def test_the_question_moves_the_answer_though_the_head_that_looks_there_gives_it_next_to_no_weight(seed):
    """Matched changes alone: every text is one that Tinytown can tell, and one thing in it is told otherwise."""
    model, tokenizer = load_pretrained("tinytown")
    town, creatures = Tinytown(), random.Random(seed).sample(CLASSES["creature"], 4)

    def told(agent, victim, question):
        asked = f"who chased the {victim}" if question == "who" else f"who did the {agent} chase"
        return f"once there was a king called tom . the {agent} chased the {victim} . {asked} ? it was the"

    def read(text):
        """(what Tinytown says next, what the model says next, the head's weights from the last word)."""
        ids = torch.tensor([tokenizer.encode(text, end=False)])
        with torch.no_grad():
            answer = tokenizer.tokens[model(ids)[0, -1].argmax()]
            return next(iter(town.next_word(text))), answer, model.attention_weights(ids)[2][0, 3, -1]

    agent, victim, another, third = creatures
    due, said, looked = read(told(agent, victim, "who"))
    assert due == said == agent
    assert looked[10] > 0.5, "the agent"
    assert looked[15:20].sum() < 0.1, "the five words of the question"
    assert read(told(agent, another, "who"))[:2] == (agent, agent), "another victim changes nothing"
    assert read(told(third, victim, "who"))[:2] == (third, third), "another agent is another answer"
    assert read(told(agent, victim, "whom"))[:2] == (victim, victim), "and so is another question"
