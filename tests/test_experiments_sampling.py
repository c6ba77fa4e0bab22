"""Chapter 13's experiments: the verdicts, and the measurements on distributions whose answers are known."""

import math

import pytest
import torch

from course_lib.chapters.sampling import claims as sampling
from course_lib.claims import find
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown
from course_lib.training import story_losses


def test_temperature_two_leaves_a_clear_favourite():
    finding = find("sampling.nearly_uniform")()
    assert finding.verdict == "refuted"
    ratio, entropy = finding.values
    assert ratio == pytest.approx(math.exp(1.5)), "the logits differ by 3, and T = 2"
    r = math.exp(-0.25)
    p = [r**i * (1 - r) / (1 - r**7) for i in range(7)]
    assert entropy == pytest.approx(-sum(x * math.log(x) for x in p), abs=1e-6)


def test_the_favourite_alone_reaches_p():
    finding = find("sampling.sure_keeps")()
    assert finding.verdict == "refuted"
    assert finding.values == (1.0,)


def test_a_less_confident_model_would_keep_more(monkeypatch):
    monkeypatch.setattr(sampling, "SURE", torch.tensor([2.0, 1.9, -3.0, -4.0]))
    assert find("sampling.sure_keeps")().verdict == "confirmed"


def test_ln_p_of_a_story_is_minus_its_loss():
    model, tokenizer = load_pretrained("tinytown")
    story = next(Tinytown(3).stories())
    nats, _ = story_losses(model, [tokenizer.encode(story)])
    assert sampling.log_p(model, tokenizer, story) == pytest.approx(-nats.item(), rel=1e-5)


@pytest.mark.proof
def test_greedy_misses_a_more_probable_story():
    finding = find("sampling.most_probable")()
    assert finding.verdict == "refuted"
    greedy, short = finding.values
    # A short story that Tinytown can tell; the model's ln p must be near the exact one
    exact = Tinytown().log_prob("once there was a queen called anna. she wore a diadem. then she went to bed.")
    assert short == pytest.approx(exact, abs=1)
    assert short > greedy + 1


@pytest.mark.proof
def test_greedy_comes_round():
    finding = find("sampling.circles")()
    assert finding.verdict == "confirmed"
    assert all(2 < words <= 343 for words in finding.values), "there are no more words than that"


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
