"""Chapter 3's claims: the quick experiments whole, the trainings with fewer steps."""

import pytest
import torch

from course_lib.chapters.masks import claims as built
from course_lib.claims import find
from course_lib.masks import causal_mask


@pytest.fixture
def fresh():
    """Trainings are remembered; a test with other sizes must neither find nor leave any."""
    built.train_next_word.cache_clear()
    yield
    built.train_next_word.cache_clear()


def test_a_causal_model_does_not_leak():
    found = find("masks.leak")()
    assert found.verdict == "confirmed"
    assert max(found.values) < 1e-5


def test_without_its_mask_the_same_model_leaks():
    torch.manual_seed(0)
    assert built.moved_by_a_change(built.without_mask(built.small_decoder(0)))[0] > 0.1


def test_a_model_that_peeks_is_caught(monkeypatch):
    class Peeking(torch.nn.Module):
        def forward(self, ids):
            return torch.nn.functional.one_hot(ids.roll(-1, dims=1), 50).float() + ids[..., None]

    monkeypatch.setattr(built, "small_decoder", lambda seed: Peeking())
    found = find("masks.leak")()
    assert found.verdict == "refuted"
    assert max(found.values) >= 1


def test_one_pass_gives_what_a_pass_for_each_place_gives():
    found = find("masks.one_pass")()
    assert found.verdict == "confirmed"
    assert found.values == (0, 0, 0)


def test_a_model_that_sees_what_follows_needs_a_pass_for_each_place(monkeypatch):
    class Bag(torch.nn.Module):
        def forward(self, ids):
            return torch.nn.functional.one_hot(ids, 50).float().mean(dim=1, keepdim=True).expand(-1, ids.shape[1], -1)

    monkeypatch.setattr(built, "small_decoder", lambda seed: Bag())
    assert find("masks.one_pass")().verdict == "refuted"


def test_a_large_number_is_no_minus_infinity_where_nothing_may_be_seen():
    found = find("masks.empty_row")()
    assert found.verdict == "depends"
    assert found.values == pytest.approx((1, 1, 1)), "all of the weight lies on keys that were hidden"
    assert "differ by 0;" in found.measured
    assert "cannot be written" in found.measured


@pytest.mark.parametrize("seed", range(3))
def test_a_late_mask_divided_by_the_row_sums_is_the_mask_until_a_hidden_score_is_huge(seed):
    scores = torch.randn(6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    visible = causal_mask(6)

    def late(scores):
        kept = scores.softmax(dim=-1) * visible
        return kept / kept.sum(dim=-1, keepdim=True)

    def right(scores):
        return scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)

    torch.testing.assert_close(late(scores), right(scores))
    scores[0, 5] = 1000
    assert late(scores)[0].isnan().all(), "nothing is left of the visible weights to be divided"
    assert right(scores)[0].tolist() == [1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("masked", "bare", "verdict"),
    [
        ((1.4, 1.4), (0.5, 3.0), "confirmed"),
        ((1.4, 1.4), (1.4, 1.4), "refuted"),
        ((1.4, 1.4), (0.5, 1.4), "depends"),
    ],
)
def test_the_verdict_on_cheating_follows_the_losses(monkeypatch, masked, bare, verdict):
    monkeypatch.setattr(built, "learn_next_word", lambda flag, seed: masked if flag else bare)
    found = find("masks.cheating")()
    assert found.verdict == verdict
    assert found.values == pytest.approx([bare[1] - masked[1]] * 3)


def test_the_model_without_a_mask_sees_its_answers_and_the_other_does_not():
    torch.manual_seed(0)
    ids = torch.randint(3, 300, (1, 8))
    changed = ids.clone()
    changed[0, 5] += 1
    for family, moves in (("decoder", False), ("encoder", True)):
        model = built.NextWord(family)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        before, after = (model(each, ids)[0][0, :5] for each in (ids, changed))
        assert bool((before - after).abs().max() > 1e-3) == moves


@pytest.mark.proof
def test_with_a_mask_the_loss_in_use_is_the_loss_in_training_and_without_one_it_is_not(fresh, monkeypatch):
    """Fewer steps than the experiment: looking next door is learned early."""
    monkeypatch.setattr(built, "STEPS", 150)
    monkeypatch.setattr(built, "STORIES", 800)
    masked, bare = built.learn_next_word(True, 0), built.learn_next_word(False, 0)
    assert masked[0] == pytest.approx(masked[1], abs=0.15)
    assert bare[1] > bare[0] + 0.5
    assert bare[1] > masked[1]
