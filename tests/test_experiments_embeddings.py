"""Chapter 1's experiments: the verdicts on the shipped tables, and on tables whose answers are known."""

import math

import pytest
import torch

from course_lib.chapters.embeddings import claims as embeddings
from course_lib.claims import find
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.tinytown import ANIMAL_SOUNDS, ROLES, Tinytown, WordTokenizer


def test_mean_cosine_counts_pairs_and_not_rows_with_themselves():
    table = torch.tensor([[1.0, 0], [0, 2], [3, 3], [5, 5]])
    assert embeddings.mean_cosine(table, [0, 1]) == pytest.approx(0)
    assert embeddings.mean_cosine(table, [2, 3]) == pytest.approx(1)
    assert embeddings.mean_cosine(table, [0, 1, 2]) == pytest.approx(2 * math.sqrt(0.5) / 3)
    assert embeddings.mean_cosine(table, [0], [1, 2]) == pytest.approx(math.sqrt(0.5) / 2), (
        "with others: those pairs alone"
    )


def test_strangers_are_all_words_but_the_animals():
    animals, strangers = embeddings.animals_and_strangers()
    tokens = WordTokenizer().tokens
    assert {tokens[i] for i in animals} == set(ANIMAL_SOUNDS)
    assert {tokens[i] for i in strangers} == {*tokens[3:]} - set(ANIMAL_SOUNDS)


def test_two_tables_learn_what_follows_a_word():
    untrained, trained = (embeddings.two_tables(0.02, 0, steps)[1] for steps in (1, 120))
    assert untrained == pytest.approx(math.log(len(WordTokenizer())), rel=0.01), "before the first step: an even guess"
    assert trained < 0.6 * untrained


@pytest.mark.proof
def test_nearness_depends_on_the_start(monkeypatch):
    monkeypatch.setattr(embeddings, "SEEDS", (0,))
    monkeypatch.setattr(embeddings, "STEPS", 200)
    finding = find("embeddings.similar_words")()
    assert finding.verdict == "depends"
    assert finding.values[0] > 0.7


@pytest.mark.parametrize(
    ("small", "large", "verdict"), [(0.9, 0.7, "confirmed"), (0.9, 0.4, "depends"), (0.5, 0.4, "refuted")]
)
def test_the_verdict_on_nearness_follows_both_starts(monkeypatch, small, large, verdict):
    animals, _ = embeddings.animals_and_strangers()

    def pretended(std, seed, steps=0):
        """All animals have this cosine with each other."""
        table = torch.zeros(len(WordTokenizer()), 400)
        table[range(len(table)), range(len(table))] = 1
        near = small if std == 0.02 else large
        table[animals, 399] = math.sqrt(near / (1 - near))
        return table, 1.9

    monkeypatch.setattr(embeddings, "two_tables", pretended)
    finding = find("embeddings.similar_words")()
    assert finding.verdict == verdict
    assert finding.values == pytest.approx((small,) * 3)
    assert "of an animal and another word 0.0 and 0.0" in finding.measured


@pytest.mark.parametrize(("goes_on", "verdict"), [(0.8, "refuted"), (0.9, "depends")])
def test_animals_come_together_and_part_again(monkeypatch, goes_on, verdict):
    """In the shipped model, measured; in the two tables, pretended."""
    animals, _ = embeddings.animals_and_strangers()

    def pretended(std, seed, steps):
        table = torch.eye(len(WordTokenizer()), 400)
        near = 0.9 if steps == embeddings.STEPS else goes_on
        table[animals, 399] = math.sqrt(near / (1 - near))
        return table, 1.9

    monkeypatch.setattr(embeddings, "two_tables", pretended)
    finding = find("embeddings.longer_is_nearer")()
    assert finding.verdict == verdict
    nearest, last, *two = finding.values
    assert 1 >= nearest > last + 0.1
    assert two == pytest.approx([goes_on] * 3)


@pytest.mark.proof
def test_in_two_tables_animals_part_again(monkeypatch):
    animals, _ = embeddings.animals_and_strangers()
    early, late = (embeddings.mean_cosine(embeddings.two_tables(0.02, 0, steps)[0], animals) for steps in (300, 900))
    assert early > late + 0.05


# ----------------------------------------------------------------------------------------------------------- analogies
def test_a_cube_has_ninety_six_parallelograms():
    """From each of 8 corners two steps in disjoint, non-empty sets of directions: 3³ − 2 · 2³ + 1 = 12 pairs."""
    found = embeddings.parallelograms()
    assert len(found) == len(set(found)) == 8 * 12
    assert ("king", "man", "woman", "queen") in found
    assert all(len(set(corners)) == 4 for corners in found)


def test_the_shipped_table_solves_its_analogies_and_king_alone_does_not():
    finding = find("embeddings.analogies")()
    assert finding.verdict == "confirmed"
    left_out, honest, alone = finding.values
    assert left_out >= honest > 0.9
    assert alone < 0.5


def test_a_table_whose_directions_are_the_traits_solves_all(monkeypatch):
    traits = sorted({trait for each in ROLES.values() for trait in each})
    table = torch.zeros(len(WordTokenizer()), 400)
    table[range(len(table)), range(len(table))] = 0.01  # nothing in common with another row
    for role, own in ROLES.items():
        for trait in own:
            table[WordTokenizer().id(role), 390 + traits.index(trait)] = 1
    monkeypatch.setattr(embeddings, "embeddings_by_step", lambda: {0: table})
    assert find("embeddings.analogies")().values[:2] == (1.0, 1.0)


def test_a_drawn_table_solves_none(monkeypatch):
    table = torch.randn(len(WordTokenizer()), 64)
    monkeypatch.setattr(embeddings, "embeddings_by_step", lambda: {0: table})
    finding = find("embeddings.analogies")()
    assert finding.verdict == "refuted"
    assert finding.values[1] == 0.0, "the nearest row of all is one of the inputs"


# ------------------------------------------------------------------------------------------------- gradients and sizes
def test_a_story_reaches_its_own_rows_or_all():
    finding = find("embeddings.own_rows")()
    assert finding.verdict == "depends"
    tokenizer = WordTokenizer()
    for seed, share in zip(embeddings.SEEDS, finding.values):
        read = set(tokenizer.encode(next(Tinytown(seed).stories()))[:-1])  # <eos> is predicted, not read
        assert share == pytest.approx(len(read) / len(tokenizer))
    assert "100 % tied" in finding.measured


def test_adamw_moves_rows_without_a_gradient():
    finding = find("embeddings.standing_still")()
    assert finding.verdict == "depends"
    # Adam's second step after one gradient g: lr · (0.09 / 0.19) / √(0.000999 / 0.001999), whatever g is, and a little
    # decay on top.
    expected = 0.1 * (0.09 / 0.19) / math.sqrt(0.000999 / 0.001999)
    assert all(moved == pytest.approx(expected, rel=0.03) for moved in finding.values)


@pytest.mark.parametrize(
    ("slow", "fast", "verdict"), [(0.2, 0.0, "depends"), (0.2, 0.1, "confirmed"), (0.0, 0.03, "refuted")]
)
def test_the_verdict_on_the_factor_follows_what_small_words_cost_at_both_rates(monkeypatch, slow, fast, verdict):
    config = TransformerConfig(40, 32, 4, 1, max_seq_len=64, positions="sinusoidal", tie_weights=False)

    def trained(seed, steps, positions, tie_weights, peak, prepare):
        torch.manual_seed(seed)
        model = DecoderOnly(config)
        prepare(model)
        size = (model.token_embedding(torch.arange(40)).std() / 0.5**0.5).item()
        assert size == pytest.approx(0.028, rel=0.1) or size == pytest.approx(0.78, rel=0.1)
        return model, 2 + (slow if peak == 1e-3 else fast) * (size < 0.1)

    monkeypatch.setattr(embeddings, "train_on_letters", trained)
    finding = find("embeddings.times_root_d")()
    assert finding.verdict == verdict
    assert finding.values == pytest.approx([slow] * 3 + [fast] * 3)
    assert "1.4, 39 (start N(0, 1)), 0.028, 0.78 (start 0.02)" in finding.measured
    assert "give no reason" in finding.because, "what the factor does is measured, what it was meant for is not"


@pytest.mark.proof
@pytest.mark.parametrize(("rate", "drowned"), [(1e-3, True), (1e-2, False)])
def test_small_words_beside_large_positions_are_learned_as_fast_as_the_rate_lets_them_grow(rate, drowned):
    small, large = (
        embeddings.train_on_letters(
            0, 150, positions="sinusoidal", tie_weights=False, peak=rate, prepare=embeddings.words_of_size(ratio)
        )[1]
        for ratio in (0.028, 0.78)
    )
    assert (small > large + 0.05) == drowned
