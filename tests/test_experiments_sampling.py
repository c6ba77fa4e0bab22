"""Chapter 13's experiments: the verdicts, and the measurements on distributions whose answers are known."""

import math

import pytest
import torch

from course_lib.chapters.sampling import claims as sampling
from course_lib.claims import find
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown
from course_lib.training import story_losses


def test_the_entropy_share_of_seven_logits_is_that_by_hand():
    logits = torch.tensor([[2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0]])
    r = math.exp(-0.25)
    p = [r**i * (1 - r) / (1 - r**7) for i in range(7)]
    by_hand = -sum(x * math.log(x) for x in p) / math.log(7)
    assert sampling.entropy_share(logits, 2.0).item() == pytest.approx(by_hand, abs=1e-6)
    assert sampling.entropy_share(torch.zeros(1, 7), 1.0).item() == pytest.approx(1)


def test_a_temperature_above_one_is_more_uniform_and_far_from_uniform():
    finding = find("sampling.more_uniform")()
    assert finding.verdict == "confirmed"
    assert all(0.1 < share < 0.5 for share in finding.values)


def test_top_p_adapts_to_how_open_the_next_word_is():
    finding = find("sampling.sure_keeps")()
    assert finding.verdict == "confirmed"
    assert "12 at both" in finding.measured, "top-k does not"
    for seed in sampling.SEEDS:
        sure, unsure = sampling.kept(seed, top_k=7)
        assert sure == unsure == 7


@pytest.mark.parametrize(("found", "verdict"), [((1, 9), "confirmed"), ((5, 5), "refuted"), ((1.5, 3), "depends")])
def test_the_verdict_on_top_p_follows_what_is_kept(monkeypatch, found, verdict):
    monkeypatch.setattr(sampling, "kept", lambda seed, **setting: found)
    assert find("sampling.sure_keeps")().verdict == verdict


def test_ln_p_of_a_story_is_minus_its_loss():
    model, tokenizer = load_pretrained("tinytown")
    story = next(Tinytown(3).stories())
    nats, _ = story_losses(model, [tokenizer.encode(story)])
    assert sampling.log_p(model, tokenizer, story) == pytest.approx(-nats.item(), rel=1e-5)


@pytest.mark.proof
def test_greedy_misses_a_longer_text_that_is_more_probable():
    finding = find("sampling.most_probable")()
    assert finding.verdict == "confirmed"
    greedy, long, short = finding.values
    # A short story that Tinytown can tell; the model's ln p must be near the exact one
    exact = Tinytown().log_prob("once there was a queen called anna. she wore a diadem. then she went to bed.")
    assert short == pytest.approx(exact, abs=1)
    assert greedy + 1 < long < short


@pytest.mark.proof
def test_greedy_comes_round_and_drawn_text_does_not():
    finding = find("sampling.circles")()
    assert finding.verdict == "confirmed"
    greedy, *drawn = finding.values
    assert greedy > 0.2
    assert max(drawn) < 0.1


@pytest.mark.parametrize(
    ("greedy", "drawn", "verdict"), [(0.4, 0.0, "confirmed"), (0.4, 0.4, "depends"), (0.0, 0.0, "refuted")]
)
def test_the_verdict_on_circles_follows_both(monkeypatch, greedy, drawn, verdict):
    monkeypatch.setattr(sampling, "repeated", lambda temperature, seed: drawn if temperature else greedy)
    assert find("sampling.circles")().verdict == verdict


# ------------------------------------------------------------------------------------------------------------- filters
def test_a_model_that_knows_the_chances_lets_nothing_through(monkeypatch):
    truth = torch.tensor([[0.5, 0.3, 0.2, 0.0], [1.0, 0.0, 0.0, 0.0]])
    monkeypatch.setattr(sampling, "_positions", lambda seed: (truth.clamp_min(1e-9).log(), truth))
    assert sampling.let_through(0, 1.0, top_p=[1.0]) == pytest.approx(0, abs=1e-8)


def test_a_filter_that_loses_too_much_is_not_counted(monkeypatch):
    """Even logits, two possible words of four: k = 1 loses half of the truth, k = 4 lets half through."""
    truth = torch.tensor([[0.5, 0.5, 0.0, 0.0]])
    monkeypatch.setattr(sampling, "_positions", lambda seed: (torch.tensor([[1.0, 0.9, 0.8, 0.7]]), truth))
    p = torch.tensor([1.0, 0.9, 0.8, 0.7]).softmax(dim=-1)
    assert sampling.let_through(0, 1.0, top_k=[1, 4]) == pytest.approx(p[2:].sum().item())
    assert sampling.let_through(0, 1.0, top_k=[1, 2, 4]) == pytest.approx(0)
    assert sampling.let_through(0, 1.0, most_lost=0.6, top_k=[1]) == pytest.approx(0)


@pytest.mark.proof
def test_top_p_is_better_where_it_matters():
    finding = find("sampling.top_p_better")()
    assert finding.verdict == "depends"
    assert all(0 <= share < 1 for share in finding.values), "per cent, at T = 1.5"


def test_positions_hold_exact_chances():
    logits, truth = sampling._positions(0, n_stories=1)
    story = next(Tinytown(sampling.HELD_OUT_SEED).stories())
    torch.testing.assert_close(truth.sum(dim=-1), torch.ones(len(truth)))
    tokenizer = load_pretrained("tinytown")[1]
    ids = tokenizer.encode(story)[1:]
    chosen = truth[range(len(ids)), ids].double().log().sum().item()
    assert chosen == pytest.approx(Tinytown().log_prob(story), rel=1e-4)
    assert logits.shape == truth.shape


# ---------------------------------------------------------------------------------------------------------- creativity
def test_without_chance_all_texts_are_one():
    sense, variety = sampling.sense_and_variety(0, seed=5, n_texts=6, n_tokens=8)
    assert sense in (0, 1)
    assert variety <= 5 + 8, "the beginning and eight tokens, once"


def test_nonsense_is_seen_as_nonsense():
    assert sampling.sense_and_variety(6.0, seed=0, n_texts=10, n_tokens=20)[0] == 0
    assert sampling.sense_and_variety(0.3, seed=0, n_texts=10, n_tokens=10)[0] > 0.7


@pytest.mark.proof
def test_beyond_one_sense_is_the_price():
    finding = find("sampling.creative")()
    assert finding.verdict == "depends"
    assert all(0.2 < sense < 0.8 for sense in finding.values)
