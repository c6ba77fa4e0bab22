"""Chapter 12's measurements: the fast ones whole, the slow ones turned down; verdicts follow the figures."""

import math

import pytest
import torch

from course_lib.chapters.training import claims as training
from course_lib.chapters.training.claims import HELD_OUT_SEED
from course_lib.claims import find
from course_lib.gpt import IGNORED
from course_lib.tinytown import Tinytown, WordTokenizer, encode_stories
from course_lib.training import History


@pytest.fixture(scope="module")
def ids():
    return encode_stories(Tinytown(0).sample(400), WordTokenizer())


@pytest.fixture(autouse=True)
def few_stories(monkeypatch, ids):
    """Fewer stories: encoding thousands takes longer than the tests."""
    monkeypatch.setattr(training, "story_ids", lambda: ids)


def test_rows_begin_at_the_beginning_of_a_story_and_targets_are_one_step_later():
    inputs, targets = next(training.story_batches(8, seed=3))
    assert inputs.shape == targets.shape == (8, training.ROW)
    assert (inputs[:, 0] == WordTokenizer().bos_id).all()
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_an_untrained_model_has_the_loss_of_guessing_on_held_out_stories():
    model = training.small_model(16)
    assert training.held_out_loss(model, 20) == pytest.approx(math.log(len(WordTokenizer())), rel=0.03)


def test_held_out_stories_are_none_that_were_trained_on():
    assert not set(Tinytown(HELD_OUT_SEED).sample(200)) & set(Tinytown(0).sample(training.STORIES))


@pytest.mark.proof
def test_one_batch_can_be_memorized_and_teaches_nothing_about_new_stories(monkeypatch):
    monkeypatch.setattr(training, "SEEDS", (0,))
    finding = find("training.one_batch")()
    assert finding.verdict == "refuted"
    assert finding.mean > 3, "near guessing, ln V = 5.8"


@pytest.mark.parametrize(
    ("trained", "new", "verdict"), [(0.1, 5.0, "refuted"), (0.66, 0.68, "confirmed"), (0.5, 1.0, "depends")]
)
def test_the_verdict_on_one_batch_follows_both_losses(monkeypatch, trained, new, verdict):
    monkeypatch.setattr(training, "overfit", lambda seed: (History([5.8, trained]), new))
    assert find("training.one_batch")().verdict == verdict


def test_only_a_whole_checkpoint_goes_on_as_if_nothing_had_happened(monkeypatch):
    monkeypatch.setattr(training, "SEEDS", (0,))
    finding = find("training.resume")()
    assert finding.verdict == "refuted"
    assert "0 from a whole checkpoint" in finding.measured
    assert finding.mean > 0.02


def test_the_second_half_of_a_copy_row_repeats_the_first_and_alone_is_predicted():
    ids, targets = next(training.CopyBatches(16, seed=5))
    n = training.COPY_LENGTH
    assert ids.shape == targets.shape == (16, 2 * n - 1)
    assert torch.equal(ids[:, n:], ids[:, : n - 1])
    assert (targets[:, : n - 1] == IGNORED).all()
    assert torch.equal(targets[:, n - 1 :], ids[:, :n])


@pytest.mark.proof
def test_copying_is_learnt_from_nothing_to_nearly_all():
    losses, right = training.learn_to_copy(seed=1)
    assert losses[0] == pytest.approx(math.log(training.COPY_LETTERS), rel=0.1)
    assert right[0] < 0.2, "one letter in 24 by chance"
    assert right[-1] > 0.95
    assert len(right) == training.COPY_STEPS // 4 + 1


@pytest.mark.parametrize(
    ("right", "verdict"),
    [
        ([0.0] * 50 + [1.0] * 51, "refuted"),
        ([i / 100 for i in range(101)], "confirmed"),
        ([0.0] * 101, "confirmed"),
        ([min(1, i / 60) for i in range(101)], "depends"),
    ],
    ids=["at once", "evenly", "never", "between"],
)
def test_the_verdict_on_jumps_follows_the_rise(monkeypatch, right, verdict):
    monkeypatch.setattr(training, "learn_to_copy", lambda seed: ([], right))
    assert find("training.jump")().verdict == verdict


def test_a_larger_model_has_more_parameters_and_learns_more(monkeypatch):
    small, large = (training.train_at_scale(d_model, steps=30) for d_model in (8, 32))
    assert small[0] < large[0]
    assert small[1] > large[1] > Tinytown().entropy()
    counted = sum(parameter.numel() for parameter in training.small_model(32).parameters())
    assert large[0] == counted


def test_adamws_first_move_is_the_rate_and_later_ones_are_shorter():
    """Step 1: m/√v is the sign of the gradient. A constant gradient would keep it so; those of a text do not."""
    first, tenth, hundredth = training.moves(seed=1)
    assert first == pytest.approx(1, abs=1e-3)
    assert 0.2 < tenth < 0.5
    assert 0.08 < hundredth < 0.25


@pytest.mark.parametrize(
    ("few", "more", "verdict"),
    [(-1.0, -1.0, "confirmed"), (-0.3, -0.2, "refuted"), (-0.8, -0.8, "depends"), (-1.0, -0.3, "depends")],
    ids=["always half", "never", "between", "only after few steps"],
)
def test_the_factor_for_each_doubling_is_that_of_a_power_law(monkeypatch, few, more, verdict):
    """And it is measured after two numbers of steps: the first alone shows who learns faster."""
    exponents = dict(zip(training.SCALE_STEPS, (few, more)))
    monkeypatch.setattr(
        training, "train_at_scale", lambda d, steps, seed: (100 * d, 7 * float(100 * d) ** exponents[steps])
    )
    finding = find("training.scaling")()
    assert finding.values == pytest.approx([2**more] * 3, rel=1e-3)
    assert f"{2**few:.2f} after 150 steps, {2**more:.2f} after 600" in finding.measured
    assert finding.verdict == verdict
