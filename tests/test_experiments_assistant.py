"""Chapter 16's claims: the verdicts, and the measurements on models and paths whose answers are known."""

import math
from itertools import combinations

import pytest
import torch

from course_lib.assistant import add_tokens
from course_lib.chapters.assistant import claims as measured
from course_lib.chapters.assistant.dialogues import HELD_OUT, write
from course_lib.chapters.assistant.methods import Result, base_model, from_reward, good, log_p, speaks, tell, two_valued

OUTCOMES = {
    "assistant.format": {
        "confirmed": {"base": [1.0, 1.0, 0.9], "other_way": [0.75] * 3, "random_start": [0.0] * 3, "untuned": 0.0},
        "depends": {"base": [1.0, 1.0, 0.9], "other_way": [0.75, 0.25, 0.0], "random_start": [0.0] * 3, "untuned": 0.0},
        "not at this size": {
            "base": [1.0] * 3,
            "other_way": [1.0] * 3,
            "random_start": [0.4] * 3,
            "untuned": 0.0,
        },
    },
    "assistant.dpo": {
        "confirmed": {"ahead": [[0.05, 0.08, 0.03], [0.1, 0.2, 0.1]]},
        "depends": {"ahead": [[0.05, -0.08, 0.03], [0.0, 0.0, -0.1]]},
        "not at this size": {"ahead": [[0.01, -0.08, -0.03], [0.0, 0.0, -0.1]]},
    },
    "assistant.best_of_n": {
        "confirmed": {"times": [[2.4, 2.6, 2.2], [3.0, 2.8, 2.5]]},
        "depends": {"times": [[1.1, 1.2, 1.0], [3.0, 2.8, 2.5]]},
        "not at this size": {"times": [[1.1, 1.2, 1.0], [1.3, 1.4, 1.2]]},
    },
    "assistant.price": {
        "confirmed": {"apart": [0.05, 0.08, 0.02], "kept": [0.4, 0.3, 0.4]},
        "depends": {"apart": [0.05, 0.18, 0.02], "kept": [0.4, 0.3, 0.4]},
        "not at this size": {"apart": [0.05, 0.18, 0.02], "kept": [0.0, 0.1, 0.0]},
    },
    "assistant.sharpens": {
        "confirmed": {"first": [0.8, 0.7, 0.9, 0.4, 0.5, 0.4], "last": [0.1, 0.2, 0.1, 0.1, 0.07, 0.04]},
        "depends": {"first": [0.8, 0.7, 0.9, 0.4, 0.5, 0.4], "last": [-0.1, 0.0, -0.4, 0.1, 0.07, 0.0]},
        "not at this size": {"first": [0.8, 0.7, 0.9, 0.4, 0.5, 0.4], "last": [-0.1, 0.0, -0.4, 0.0, 0.0, 0.0]},
    },
}


# ----------------------------------------------------------------------------------------------------------- dialogues
def test_no_question_about_a_held_out_fact_is_among_those_that_teach():
    held_out, others = (measured.questions(each) for each in (True, False))
    for kind in ("capital", "sound", "animal"):
        assert not set(held_out[kind]) & set(others[kind])
        assert len(held_out[kind]) + len(others[kind]) == 16
    words = {word for each in (*others["capital"], *others["sound"], *others["animal"]) for word in write(each)[0]}
    assert not words & {*HELD_OUT["capital"], *HELD_OUT["sound"]}
    assert len(held_out["reading"]) == 16


def test_questions_of_one_kind_have_one_length():
    for held_out in (True, False):
        for asked in measured.questions(held_out).values():
            assert len({len(write(each)[0]) for each in asked}) == 1


def test_the_base_knows_the_held_out_facts_in_a_story_and_answers_none_of_them_in_the_template():
    assert measured.known_in_stories() == 1
    found = measured.right(add_tokens(base_model(), 2).eval())
    assert set(found.values()) == {0}


def test_an_answer_is_right_if_all_of_its_words_are():
    model = measured.begun(measured.BEGUN["often"], 0)
    asked = measured.questions(held_out=True)["capital"]
    ids, is_right = measured.answers(model, asked, 3, torch.Generator().manual_seed(0))
    assert ids.shape[0] == 12
    assert is_right.shape == (4, 3)
    for row, each in zip(ids.view(4, 3, -1), asked):
        wanted = [measured.CHAT.id(word) for word in write(each)[0]]
        assert all(one.tolist()[: len(wanted) - 5] == wanted[:-5] for one in row), "the question itself is kept"
    wanted = torch.tensor([[measured.CHAT.id(word) for word in write(each)[0]] for each in asked])
    assert torch.equal(is_right, (ids.view(4, 3, -1) == wanted[:, None]).all(dim=-1).float())


def test_a_question_for_three_capitals_is_held_out_if_one_of_its_countries_is():
    practice = measured.PRACTICE
    assert len(measured.ASKED) == 32
    for each in (*measured.ASKED, *practice):
        assert any(word in HELD_OUT["capital"] for word in write(each)[0]) == (each in measured.ASKED)
    assert len({len(write(each)[0]) for each in (*measured.ASKED, *practice)}) == 1


# ------------------------------------------------------------------------------------------------------------- rewards
def test_the_tokens_of_a_story_add_up_to_the_whole():
    stories = tell(base_model(), 8, torch.Generator().manual_seed(3))
    with torch.no_grad():
        assert torch.allclose(measured.token_log_p(base_model(), stories).sum(dim=1), log_p(base_model(), stories))


def test_the_first_update_of_ppo_is_one_of_policy_gradient(monkeypatch):
    """While no probability has changed, the ratio is 1, and its gradient is that of ln p."""
    monkeypatch.setattr(measured, "UPDATES", 1)
    monkeypatch.setattr(measured, "STORIES", 24)
    clipped = measured.proximal(0.3, 1, 1e-4, 0)
    plain = from_reward(base_model(), good, 0.3, 1, 1e-4, 0, 24, progress=False)
    for one, other in zip(clipped.parameters(), plain.parameters()):
        assert torch.allclose(one, other, atol=1e-6)


def test_the_share_at_a_divergence_is_read_between_the_points_of_a_path(monkeypatch):
    monkeypatch.setattr(measured, "base_rate", lambda: 0.1)
    path = [Result(0.2, 0.5, 0.2), Result(0.9, 0.4, 0.9), Result(0.4, 1.5, 0.6), Result(0.0, 20.0, 1.0)]
    assert measured.share_at(path, 0.25) == pytest.approx(0.15)
    assert measured.share_at(path, 1.0) == pytest.approx(0.3), "points nearer to the base again are left out"
    assert measured.share_at(path, 30.0) == 0.0, "never reached: at the farthest"


def test_the_base_is_at_the_beginning_of_its_own_path():
    watched, generator = measured.Watched(speaks), torch.Generator().manual_seed(0)
    stories = tell(base_model(), 60, generator)
    for part in stories.split(6):
        watched(part)
    first, second = watched.path()
    assert (first.divergence, second.divergence) == (0, 0)
    assert (first.good + second.good) / 2 == pytest.approx(good(stories).mean().item())
    assert (first.earned + second.earned) / 2 == pytest.approx(speaks(stories).mean().item())


@pytest.mark.proof
def test_best_of_n_has_the_share_and_the_divergence_that_the_formula_gives():
    stories, rewards = measured.base_stories()
    rate = rewards.mean().item()
    for n in measured.NS:
        share = good(measured.best_of(stories, rewards, n)).mean().item()
        assert share == pytest.approx(1 - (1 - rate) ** n, abs=0.1)
        assert two_valued(rate, share) < math.log(n)


# ----------------------------------------------------------------------------------------------------- verified answers
def test_pass_at_k_is_the_mean_over_all_choices_of_k_answers():
    found = [1, 0, 0, 1, 0, 0]
    for k in (1, 2, 3, 6):
        chosen = list(combinations(found, k))
        assert measured.pass_at([2], k, n=6) == pytest.approx(sum(map(any, chosen)) / len(chosen))
    assert measured.pass_at([0, 6], 3, n=6) == 0.5


@pytest.mark.proof
def test_learning_from_verified_answers_raises_pass_at_1():
    base = measured.begun(measured.BEGUN["often"], 0)
    before = measured.passes(base, seed=0)
    after = measured.passes(measured.verified(base, 12, 3e-4, seed=0), seed=0)
    assert after[0] > before[0] + 0.1
    assert list(before) == sorted(before)
