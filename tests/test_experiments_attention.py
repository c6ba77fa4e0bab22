"""Chapter 2's experiments: figures that lead to each outcome, and figures that follow from elsewhere."""

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

OUTCOMES = {
    "attention.spread": {"by construction": {"slopes": [0.5, 0.5, 0.49], "divided": [0.99, 1.01]}},
    "attention.vanishing": {
        "confirmed": {"median": [0.01, 0.02, 0.01], "mean": [0.05, 0.04, 0.05]},
        "depends": {"median": [0.01, 0.02, 0.01], "mean": [0.3, 0.3, 0.4]},
        "refuted": {"median": [0.7, 0.6, 0.7], "mean": [0.8, 0.9, 0.8]},
    },
    "attention.resemblance": {
        "confirmed": {"shares": [0.96, 0.97, 0.99]},
        "depends": {"shares": [0.8, 0.7, 0.8]},
        "refuted": {"shares": [0.3, 0.4, 0.3]},
    },
    "attention.linear": {"by construction": {"rebuilt": [1e-16, 2e-16, 1e-16]}},
    "attention.score_memory": {"by construction": {"narrow": 400.0, "wide": 400.0, "half": 100.0}},
    "attention.unscaled_training": {
        "confirmed": {"wide": [0.3, 0.2, 0.4], "narrow": [0.0, -0.1, 0.0]},
        "depends": {"wide": [0.3, 0.05, 0.4], "narrow": [0.0, 0.0, 0.0]},
        "refuted": {"wide": [0.03, 0.05, 0.0], "narrow": [0.0, 0.0, 0.0]},
    },
    "attention.one_matrix": {
        "confirmed": {"plain": [0.01, 0.08, 0.0], "published": [0.0, -0.1, 0.02]},
        "depends": {"plain": [0.2, 0.1, 0.2], "published": [0.0, 0.01, 0.02]},
        "not at this size": {"plain": [0.2, 0.1, 0.2], "published": [0.2, 0.01, 0.1]},
    },
}


def gradients(d_k, scaled, seed):
    """By hand. At score i: wᵢ (vᵢ − Σ wⱼ vⱼ). At the query: the sum of these times kᵢ, divided by √d_k if the scores
    are."""
    q, k, v = attention.drawn(seed, (500, d_k), (64, d_k), (64, 1))
    scale = math.sqrt(d_k) if scaled else 1
    weights = (q @ k.T / scale).softmax(dim=-1)
    at_scores = weights * (v.T - weights @ v)
    return at_scores.norm(dim=-1), (at_scores @ k / scale).norm(dim=-1)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_gradient_is_that_of_the_softmax(scaled):
    torch.testing.assert_close(attention.gradient_at_scores(16, scaled, 3), gradients(16, scaled, 3)[0])


@pytest.mark.parametrize("seed", attention.SEEDS)
def test_what_looked_like_exploding_gradients_is_the_factor_that_scaling_divides_by(seed):
    """At the query, leaving out the division also leaves out a factor 1/√d_k of the chain rule, here 1/32."""
    (plain, at_query), (scaled, scaled_at_query) = (gradients(1024, s, seed) for s in (False, True))
    assert (at_query.quantile(0.95) / scaled_at_query.quantile(0.95)).item() > 30
    assert (plain.quantile(0.95) / scaled.quantile(0.95)).item() < 2
    assert (plain.median() / scaled.median()).item() < 1e-3


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


def test_two_layers_are_one_mix_of_one_product_and_not_linear_in_their_input():
    finding = find("attention.linear")()
    assert max(finding.figures["rebuilt"]) < 1e-12
    assert min(finding.values) > 0.3, "x doubled"


def test_most_queries_lose_their_gradient_and_the_average_query_keeps_some():
    """So the median alone would confirm the claim, and the mean alone would not."""
    figures = find("attention.vanishing")().figures
    assert max(figures["median"]) < 0.01
    assert min(figures["mean"]) > 0.2
    assert attention.vanishing_verdict(figures["median"], figures["median"]) == "confirmed"
    assert attention.vanishing_verdict(figures["mean"], figures["mean"]) == "refuted"


def test_with_keys_that_are_all_alike_attention_would_be_linear(monkeypatch):
    """W_K = 0: every weight is 1 / S whatever x is, so the output doubles with x."""
    ordinary = attention.drawn

    def no_keys(seed, *shapes):
        x, W_Q, W_K, W_V, *second = ordinary(seed, *shapes)
        return [x, W_Q, 0 * W_K, W_V, second[0], 0 * second[1], second[2]]

    monkeypatch.setattr(attention, "drawn", no_keys)
    assert max(find("attention.linear")().values) < 1e-12


def test_scores_take_four_bytes_for_each_pair():
    assert find("attention.score_memory")().values == (4 * 2048**2, 4 * 2048**2, 2048**2, 4 * 2048**2)


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


def test_whether_wide_heads_begin_saturated_depends_on_the_initialization():
    """512 keys: the classes of PyTorch begin with scores of about 4, numbers of 0.02 at 128 features with 0.6."""
    torch.manual_seed(0)
    x = torch.randn(512, 128)
    linear = torch.nn.Linear(128, 128).weight.detach().T
    small = 0.02 * torch.randn(128, 128)
    largest = {}
    for name, W in (("nn.Linear", linear), ("0.02", small)):
        scores = (x @ W) @ (x @ W[:, torch.randperm(128)]).T
        largest[name] = scores.softmax(dim=-1).amax(dim=-1).mean().item()
    assert largest["nn.Linear"] > 0.3 > 0.05 > largest["0.02"]


def test_looking_elsewhere_hides_each_token_from_itself_alone():
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(9, 16, 2, 1, max_seq_len=6, positions="none"))
    attention.look_elsewhere(model)
    weights = model.attention_weights(torch.randint(9, (2, 6)))[0]  # (B, H, T, T)
    visible = torch.ones(6, 6).tril(-1).bool()
    visible[0, 0] = True
    assert torch.equal(weights > 0, visible.expand_as(weights))


def test_as_published_keys_have_one_length_and_the_direction_of_the_shared_matrix():
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(9, 16, 2, 1, max_seq_len=6, positions="none"))
    attention.share_as_published(model)
    ids = torch.randint(9, (2, 6))
    with trace(model, "blocks.0.attention.query", "blocks.0.attention.key") as seen:
        model(ids)
    query, key = seen["blocks.0.attention.query"], seen["blocks.0.attention.key"]
    torch.testing.assert_close(key.norm(dim=-1), torch.full(key.shape[:-1], math.sqrt(8)))
    torch.testing.assert_close(torch.cosine_similarity(query, key, dim=-1), torch.ones(key.shape[:-1]))
    assert (model.attention_weights(ids)[0].diagonal(dim1=-2, dim2=-1)[..., 1:] == 0).all(), "none looks at itself"
    matrices = [p for name, p in model.named_parameters() if name.endswith("_proj.weight") and "attention" in name]
    assert len(matrices) == 3, "one for queries and keys, one for values, one for the output"


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
