"""Tinytown against brute force and closed forms; tokenizers and batches by their properties."""

import math
import re

import pytest
import torch

from course_lib import text
from course_lib.text import (
    ANIMAL_SOUNDS,
    CAPITALS,
    CLASSES,
    Batches,
    BytePairTokenizer,
    Line,
    Tinytown,
    WordTokenizer,
    encode_stories,
    join_words,
    split_words,
)


@pytest.fixture
def tiny_world(monkeypatch):
    """A grammar with a few hundred stories, so that every one of them can be written down."""
    monkeypatch.setattr(
        text,
        "CLASSES",
        {"role": ("king", "queen"), "name": ("tom", "ben", "ada"), "food": {"pie": 3, "jam": 1, "tom": 2}},
    )
    relations = {"name": {"king": ("tom", "ben"), "queen": ("ada",)}, "hat": {"king": "crown", "queen": ("tiara")}}
    monkeypatch.setattr(text, "RELATIONS", relations)
    beats = {
        "eat": ("{name} ate {food:food} .", "{name} ate {food:food} . then {left:food} ."),
        "hat": ("the {role} has a {role/hat} .",),
        "meet": ("{name} met {friend:name} .",),
    }
    monkeypatch.setattr(text, "_OPENINGS", (Line.parse("a {role:role} called {name:role/name} ."),))
    monkeypatch.setattr(
        text, "_BEATS", tuple(Line.parse(line, topic) for topic, lines in beats.items() for line in lines)
    )
    monkeypatch.setattr(text, "_CLOSINGS", (Line.parse("good night ."), Line.parse("the {role} slept .")))
    monkeypatch.setattr(text, "_START", (frozenset(), 3))
    remembered = (text._story_totals, text._line_entropy, text._next_lines, text._support)
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


def test_probabilities_of_all_stories_sum_to_one_and_give_the_entropy(tiny_world, as_a_learner):
    town = Tinytown(0)

    def every_story(prefix):
        for word in town.next_word(join_words(prefix)):
            yield from [join_words(prefix)] if word == text.EOS else every_story([*prefix, word])

    stories = list(every_story([]))
    assert len(stories) == len(set(stories))
    assert set(town.sample(2000)) <= set(stories)
    probabilities = {story: math.exp(town.log_prob(story)) for story in stories}
    assert 100 < len(stories) < 1000
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-9), (
        "either stories are missing or a probability is wrong"
    )
    nats = -sum(p * math.log(p) for p in probabilities.values())
    tokens = sum(p * (len(split_words(story)) + 1) for story, p in probabilities.items())
    assert town.entropy() == pytest.approx(nats / tokens, rel=1e-9)
    assert town.story_length() == pytest.approx(tokens, rel=1e-9)


def test_stories_are_drawn_as_often_as_their_probability_says(tiny_world, as_a_learner):
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
    beats = sum(len(lines) for lines in text.BEATS.values())
    by_hand = (1 / 3) * (1 / 8) * (1 / 10) * (1 / beats) * (1 / 16) * text.STOP * (1 / 4)
    assert Tinytown().log_prob(story) == pytest.approx(math.log(by_hand), rel=1e-12)


def test_entropy_is_the_mean_information_of_stories(as_a_learner):
    town = Tinytown(3)
    information = torch.tensor([-town.log_prob(story) for story in town.sample(2000)], dtype=torch.float64)
    error = information.std() / math.sqrt(len(information))
    assert abs(information.mean() - town.entropy() * town.story_length()) < 4 * error


def test_every_story_has_exactly_one_derivation_and_it_says_the_story(as_a_learner):
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
        for i, word in enumerate([*words, text.EOS]):
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
    topics = {
        topic for story in Tinytown(7).sample(300) for step in Tinytown().parse(story) if (topic := step.line.topic)
    }
    assert topics == set(text.BEATS)


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
def test_seed_must_be_an_integer(seed, as_a_learner):
    with pytest.raises(TypeError, match="seed"):
        Tinytown(seed)


# ----------------------------------------------------------------------------------------------------------- tokenizers
def test_word_tokenizer_gives_back_what_it_was_given():
    tokenizer = WordTokenizer()
    for story in Tinytown(9).sample(200):
        ids = tokenizer.encode(story)
        assert ids[0] == tokenizer.bos_id
        assert ids[-1] == tokenizer.eos_id
        assert tokenizer.decode(ids) == story
        assert tokenizer.decode(torch.tensor(ids)) == story
        assert tokenizer.encode(story, end=False) == ids[:-1]


def test_unknown_words_and_ids_are_named(as_a_learner):
    tokenizer = WordTokenizer()
    with pytest.raises(ValueError, match=r"'catt'.*cat"):
        tokenizer.encode("the catt sat")
    with pytest.raises(ValueError, match=str(len(tokenizer))):
        tokenizer.decode([len(tokenizer)])
    with pytest.raises(ValueError, match="twice"):
        WordTokenizer(["cat", "cat"])


def test_byte_pairs_cover_any_text_and_shorten_what_they_were_trained_on():
    stories = " ".join(Tinytown(0).sample(300))
    tokenizer = BytePairTokenizer.train(stories, vocab_size=400)
    assert 256 < len(tokenizer) <= 400
    for sample in (stories[:500], "naïve 你好 🙂", "", "  two  spaces\n"):
        ids = tokenizer.encode(sample)
        assert tokenizer.decode(ids) == sample
        assert max(ids, default=0) < len(tokenizer)
    assert len(tokenizer.encode(stories[:2000])) < 2000 / 2
    assert len(tokenizer.encode("你")) == 3, "an unseen character falls back to its bytes"


def test_byte_pair_vocabulary_holds_every_byte(as_a_learner):
    with pytest.raises(ValueError, match="256"):
        BytePairTokenizer.train("abc", vocab_size=100)


# -------------------------------------------------------------------------------------------------------------- batches
def test_targets_are_the_inputs_one_step_later():
    ids = torch.arange(50) * 3
    batches = Batches(ids, batch_size=8, T=7, generator=torch.Generator().manual_seed(0))
    seen = set()
    for _ in range(200):
        inputs, targets = next(batches)
        assert inputs.shape == targets.shape == (8, 7)
        assert torch.equal(targets, inputs + 3)
        seen |= set(inputs[:, 0].tolist())
    assert seen == set(ids[: 50 - 7].tolist()), "every place from which a row can be read is used, and no other"


def test_rows_can_begin_at_stories_only():
    tokenizer = WordTokenizer()
    ids = encode_stories(Tinytown(0).sample(50), tokenizer)
    inputs, _ = next(Batches(ids, 64, 20, torch.Generator().manual_seed(1), start_id=tokenizer.bos_id))
    assert (inputs[:, 0] == tokenizer.bos_id).all()


def test_same_generator_state_gives_the_same_batches():
    ids = torch.arange(100)
    first, second = (Batches(ids, 4, 5, torch.Generator().manual_seed(3)) for _ in range(2))
    for _ in range(5):
        assert torch.equal(next(first)[0], next(second)[0])


def test_a_text_that_is_too_short_is_refused(as_a_learner):
    Batches(torch.arange(6), 1, 5)
    with pytest.raises(ValueError, match="at least 7 ids"):
        Batches(torch.arange(6), 1, 6)
    with pytest.raises(ValueError, match="start_id=9"):
        Batches(torch.arange(6), 1, 2, start_id=9)
    with pytest.raises(ValueError, match="shape"):
        Batches(torch.zeros(2, 3, dtype=torch.long), 1, 1)
    with pytest.raises(ValueError, match="batch_size"):
        Batches(torch.arange(6), 0, 2)
