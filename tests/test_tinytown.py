"""Tinytown against brute force and closed forms."""

import math
import random
import re

import pytest
import torch
from helpers import OnlyRandom

from course_lib.tinytown import ANIMAL_SOUNDS, CAPITALS, CLASSES, EOS, Tinytown, grammar, join_words, split_words
from course_lib.tinytown import stories as tinytown


@pytest.fixture
def tiny_world(monkeypatch):
    """A grammar with about a thousand stories, so that every one of them can be written down."""
    classes = {"role": ("king", "queen"), "name": ("tom", "ben", "ada"), "food": {"pie": 3, "jam": 1, "tom": 2}}
    relations = {"name": {"king": ("tom", "ben"), "queen": ("ada",)}, "hat": {"king": "crown", "queen": ("tiara")}}
    page = """
opening a {role:role} called {name:role/name} .
eat     {name} ate {food:food} .
eat     {name} ate {food:food} . then {left:food} .
keep    the {role} has a {role/hat} and {food:food} .
meet    {name} met {friend:name} .
closing good night .
closing the {role} slept .
"""
    lines = tuple(grammar.Line.parse(row) for row in page.strip().splitlines())
    start = (frozenset(), 4)  # sentences of the opening and the beats
    for name, value in {"CLASSES": classes, "RELATIONS": relations, "LINES": lines, "START": start}.items():
        monkeypatch.setattr(grammar, name, value)
    remembered = (tinytown.totals, tinytown.line_entropy, grammar.next_lines, grammar.support)
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


def test_probabilities_of_all_stories_sum_to_one_and_give_the_entropy(tiny_world):
    town = Tinytown(0)

    def every_story(prefix):
        for word in town.next_word(join_words(prefix)):
            yield from [join_words(prefix)] if word == EOS else every_story([*prefix, word])

    stories = list(every_story([]))
    assert len(stories) == len(set(stories))
    assert set(town.sample(2000)) <= set(stories)
    probabilities = {story: math.exp(town.log_prob(story)) for story in stories}
    assert 100 < len(stories) < 2000
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-9), (
        "either stories are missing or a probability is wrong"
    )
    nats = -sum(p * math.log(p) for p in probabilities.values())
    tokens = sum(p * (len(split_words(story)) + 1) for story, p in probabilities.items())
    assert town.entropy() == pytest.approx(nats / tokens, rel=1e-9)
    assert town.story_length() == pytest.approx(tokens, rel=1e-9)


def test_stories_are_drawn_as_often_as_their_probability_says(tiny_world):
    town = Tinytown(1)
    n = 6_000
    counts: dict[str, int] = {}
    for story in town.sample(n):
        counts[story] = counts.get(story, 0) + 1
    # Pearson's statistic over the common stories: its mean is the number of cells, its variance twice that.
    common = {story: n * math.exp(town.log_prob(story)) for story in counts}
    common = {story: expected for story, expected in common.items() if expected > 20}
    statistic = sum((counts[story] - expected) ** 2 / expected for story, expected in common.items())
    assert abs(statistic - len(common)) < 5 * math.sqrt(2 * len(common))


def test_log_prob_of_a_short_story_is_the_product_of_its_choices():
    story = "once there was a king called tom. the lion said roar. at last tom went home."
    beats = len(grammar.LINES) - 3 - 4
    by_hand = (1 / 3) * (1 / 8) * (1 / 10) * (1 / beats) * (1 / 16) * 0.25 * (1 / 4)
    assert Tinytown().log_prob(story) == pytest.approx(math.log(by_hand), rel=1e-12)


def test_entropy_is_the_mean_information_of_stories():
    town = Tinytown(3)
    information = torch.tensor([-town.log_prob(story) for story in town.sample(2000)], dtype=torch.float64)
    error = information.std() / math.sqrt(len(information))
    assert abs(information.mean() - town.entropy() * town.story_length()) < 4 * error


def test_every_story_has_exactly_one_derivation_and_it_says_the_story():
    town = Tinytown(5)
    for story in town.sample(1000):
        derivations = list(town._walk(split_words(story)))
        assert len(derivations) == 1, f"{len(derivations)} derivations of {story!r}"
        said = [word for step in derivations[0][1] for _, _, word in step.said]
        assert join_words(said) == story


def test_next_word_probabilities_multiply_to_the_probability_of_the_story():
    town = Tinytown(8)
    for story in town.sample(5):
        words = split_words(story)
        total = 0.0
        for i, word in enumerate([*words, EOS]):
            distribution = town.next_word(join_words(words[:i]))
            assert sum(distribution.values()) == pytest.approx(1, abs=1e-12)
            total += math.log(distribution[word])
        assert total == pytest.approx(town.log_prob(story), abs=1e-9)


def test_same_seed_same_stories_and_other_seed_others():
    assert Tinytown(4).sample(20) == Tinytown(4).sample(20)
    assert Tinytown(4).sample(20) != Tinytown(5).sample(20)


def test_world_has_the_promised_size():
    town = Tinytown(6)
    assert 250 <= len(town.vocabulary) <= 400
    for story in town.sample(500):
        assert 3 <= len(re.findall(r"[.?]", story)) <= 8, story
        assert set(split_words(story)) <= set(town.vocabulary)


def test_world_holds_every_phenomenon_unambiguously():
    assert not set(CLASSES["animal_adjective"]) & set(CLASSES["thing_adjective"]), "'it' could be either"
    assert len(set(ANIMAL_SOUNDS.values())) == len(ANIMAL_SOUNDS)
    assert len(set(CAPITALS.values())) == len(CAPITALS)
    topics = {step.line.topic for story in Tinytown(7).sample(300) for step in Tinytown().parse(story)}
    assert topics == {line.topic for line in grammar.LINES}


def test_a_king_may_meet_a_king_but_nobody_meets_himself():
    story = "once there was a king called tom. tom met a king called ben. at last tom went home."
    assert Tinytown().log_prob(story) > -math.inf
    assert Tinytown().log_prob(story.replace("ben", "tom")) == -math.inf


def test_what_tinytown_cannot_say_has_probability_zero():
    town = Tinytown()
    story = "once there was a king called tom. tom wanted to eat soup. at last tom went home."
    assert town.log_prob(story) > -math.inf
    for wrong in (
        story.replace("king", "queen"),
        story[:-1],
        story + " he slept.",
        story.replace("soup", "stones"),
        "",
    ):
        assert town.log_prob(wrong) == -math.inf
        with pytest.raises(ValueError, match="not a Tinytown story"):
            town.parse(wrong)
    with pytest.raises(ValueError, match="begins with"):
        town.next_word("the king of france")


@pytest.mark.parametrize("seed", [1.5, "0", None, True])
def test_seed_must_be_an_integer(seed):
    with pytest.raises(TypeError, match="seed"):
        Tinytown(seed)


def test_stories_use_nothing_of_a_random_source_but_what_every_python_draws_alike(monkeypatch):
    expected = Tinytown(2).sample(20)

    monkeypatch.setattr(random, "Random", OnlyRandom)
    assert Tinytown(2).sample(20) == expected


def test_a_sample_has_as_many_stories_as_asked_for():
    assert Tinytown().sample(0) == []
    with pytest.raises(ValueError, match="-1"):
        Tinytown().sample(-1)


def test_the_exercise_on_the_limit_asks_for_the_exact_entropy_of_a_story():
    from course_lib.grading import EXERCISES

    bits = Tinytown().entropy() * Tinytown().story_length() / math.log(2)
    assert EXERCISES["training.limit"].reference == pytest.approx(bits, rel=1e-7)
