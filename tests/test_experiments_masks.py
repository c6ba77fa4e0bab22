"""Chapter 3's claims: the tools that measure them, and which figures lead to which verdict."""

import pytest
import torch

from course_lib.chapters.masks import claims as built
from course_lib.claims import find
from course_lib.masks import causal_mask

OUTCOMES = {
    "masks.leak": {"by construction": {"masked": 0.0, "own": 1.2, "unmasked": 8.5}},
    "masks.cheating": {
        "confirmed": {"cheats": True, "unmasked": [6.5, 7.0, 6.1], "never_asked": [8.0, 9.0, 7.5], "uniform": 5.8},
        "depends": {"cheats": True, "unmasked": [4.5, 3.9, 6.1], "never_asked": [8.0, 9.0, 7.5], "uniform": 5.8},
        "refuted": {"cheats": True, "unmasked": [2.1, 2.2, 2.0], "never_asked": [5.0, 9.0, 7.5], "uniform": 5.8},
    },
    "masks.empty_row": {
        "confirmed": {"apart": 0.0, "on_hidden": 0.0, "fits": [True, True, True]},
        "depends": {"apart": 0.0, "on_hidden": 1.0, "fits": [True, True, False]},
        "refuted": {"apart": 0.1, "on_hidden": 1.0, "fits": [True, True, False]},
    },
}


def test_a_model_that_does_not_cheat_refutes_that_models_do():
    figures = OUTCOMES["masks.cheating"]["confirmed"] | {"cheats": False}
    assert built.cheating_verdict(**figures) == "refuted"


def test_without_its_mask_the_same_model_leaks():
    torch.manual_seed(0)
    assert built.moved_by_a_change(built.without_mask(built.small_decoder(0)))[0] > 0.1


def test_a_model_that_peeks_is_caught(monkeypatch):
    class Peeking(torch.nn.Module):
        def forward(self, ids):
            return torch.nn.functional.one_hot(ids.roll(-1, dims=1), 50).float() + ids[..., None]

    monkeypatch.setattr(built, "small_decoder", lambda seed: Peeking())
    with pytest.raises(ValueError, match="earlier outputs move"):
        find("masks.leak")()


def test_a_large_number_is_no_minus_infinity_where_nothing_may_be_seen():
    found = find("masks.empty_row")()
    assert found.values == pytest.approx([1] * 6), "all of the weight lies on keys that are hidden"
    assert "differ by 0 " in found.measured
    assert dict(found.rows[1:]) == {"float32": "yes", "bfloat16": "yes", "float16": "no"}


def test_every_format_can_hold_its_own_smallest_number():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert built.can_hold(torch.finfo(dtype).min, dtype)


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


def test_the_model_without_a_mask_sees_its_answers_and_the_other_does_not():
    torch.manual_seed(0)
    ids = torch.randint(3, 300, (1, 8))
    changed = ids.clone()
    changed[0, 5] += 1
    for kind, moves in ((built.MASKED, False), (built.UNMASKED, True), (built.NEVER_ASKED, True)):
        model = built.NextWord(kind)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        before, after = (model(each, ids)[0][0, :5] for each in (ids, changed))
        assert bool((before - after).abs().max() > 1e-3) == moves


def test_the_last_position_counts_unless_the_model_is_never_asked_there():
    ids = torch.randint(3, 300, (2, 8), generator=torch.Generator().manual_seed(0))
    other = torch.cat([ids[:, :-1], ids[:, -1:] + 1], dim=1)
    for kind, counts in ((built.MASKED, True), (built.UNMASKED, True), (built.NEVER_ASKED, False)):
        model = built.NextWord(kind)
        losses = [model(ids, targets)[1].item() for targets in (ids, other)]
        assert (losses[0] != losses[1]) == counts


def test_word_frequencies_predict_a_word_better_than_a_uniform_guess():
    assert 4.5 < built.loss_of_word_frequencies() < 4.65


@pytest.mark.proof
def test_what_a_model_without_a_mask_knows_at_inference_it_learned_at_the_last_positions():
    """One seed, at one rate. The measurement at each model's best rate is on record."""
    unmasked, never_asked = (
        built.losses_of(built.train_next_word(kind, 0)) for kind in (built.UNMASKED, built.NEVER_ASKED)
    )
    assert max(unmasked[0], never_asked[0]) < 0.6
    assert never_asked[1] > unmasked[1] + 2
