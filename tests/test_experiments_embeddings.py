"""Chapter 1's experiments: figures that lead to each outcome, and tables and gradients whose answers are known."""

import math

import pytest
import torch

from course_lib.chapters.embeddings import claims as embeddings
from course_lib.claims import find, recorded
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.tinytown import ANIMAL_SOUNDS, ROLES, Tinytown, WordTokenizer

OUTCOMES = {
    "embeddings.similar_words": {
        "confirmed": {"small": [0.9] * 3, "large": [0.7] * 3, "longer": [0.7] * 3},
        "depends": {"small": [0.9] * 3, "large": [0.4] * 3, "longer": [0.7] * 3},
        "refuted": {"small": [0.5] * 3, "large": [0.4] * 3, "longer": [0.4] * 3},
    },
    "embeddings.analogies": {
        "confirmed": {"trained": 0.97, "counted": [0.95, 0.99, 0.92]},
        "depends": {"trained": 0.97, "counted": [0.3, 0.95, 0.4]},
        "refuted": {"trained": 0.6, "counted": [0.3, 0.4, 0.4]},
    },
    "embeddings.tied_table": {
        "confirmed": {"like_input": [0.6, 0.1], "like_output": [0.8, 1.0]},
        "depends": {"like_input": [0.9, 0.1], "like_output": [0.8, 1.0]},
        "refuted": {"like_input": [0.9, 1.0], "like_output": [0.8, 0.1]},
    },
    "embeddings.padding_row": {
        "confirmed": {"zero": {"SGD": 0.0, "AdamW": 0.0}, "filled": {"SGD": 0.0, "AdamW": 0.0}},
        "depends": {"zero": {"SGD": 0.0, "AdamW": 0.0}, "filled": {"SGD": 0.0, "AdamW": 0.02}},
        "refuted": {"zero": {"SGD": 0.1, "AdamW": 0.1}, "filled": {"SGD": 0.1, "AdamW": 0.1}},
    },
    "embeddings.times_root_d": {
        "confirmed": {"costs": [0.3, 0.2, 0.4]},
        "depends": {"costs": [0.3, 0.05, 0.4]},
        "refuted": {"costs": [0.02, -0.01, 0.05]},
    },
}


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
    untrained, trained = (embeddings.two_tables(0.01, 0, 0.02, steps)[0] for steps in (1, 120))
    assert untrained == pytest.approx(math.log(len(WordTokenizer())), rel=0.01), "before the first step: a blind guess"
    assert trained < 0.6 * untrained


def test_a_large_start_delays_nearness_and_does_not_prevent_it():
    """After a few hundred steps it looked as if random initial numbers stayed; longer training overwrites them."""
    figures = recorded()["embeddings.similar_words"].figures
    assert max(figures["large"]) < 0.5 < 0.6 < min(figures["longer"])


@pytest.mark.proof
def test_from_large_rows_two_animals_come_nearer_with_every_few_hundred_steps():
    animals, _ = embeddings.animals_and_strangers()
    early, late = (embeddings.mean_cosine(embeddings.two_tables(0.03, 0, 1.0, n)[1], animals) for n in (200, 800))
    assert late > early + 0.1


# ----------------------------------------------------------------------------------------------------------- analogies
def test_the_twelve_parallelograms_of_a_cube_give_ninety_six_sums():
    """From each of 8 corners two steps in disjoint, non-empty sets of directions: 3³ − 2 · 2³ + 1 = 12 pairs."""
    found = embeddings.parallelograms()
    assert len(found) == len(set(found)) == 8 * 12
    assert ("king", "man", "woman", "queen") in found
    assert all(len(set(corners)) == 4 for corners in found)


@pytest.mark.parametrize("search", ["inputs left out", "all rows"])
def test_a_table_whose_directions_are_the_traits_solves_all(search):
    traits = sorted({trait for each in ROLES.values() for trait in each})
    table = torch.zeros(len(WordTokenizer()), 400)
    table[range(len(table)), range(len(table))] = 0.01  # nothing in common with another row
    for role, own in ROLES.items():
        for trait in own:
            table[WordTokenizer().id(role), 390 + traits.index(trait)] = 1
    assert embeddings.first_places(table)[search] == 1.0


def test_a_random_table_solves_none():
    torch.manual_seed(0)
    table = torch.randn(len(WordTokenizer()), 64)
    assert embeddings.first_places(table)["all rows"] == 0.0, "the nearest row of all is one of the inputs"


def test_in_a_counted_table_animals_are_nearer_to_each_other_than_to_other_words():
    table = embeddings.counted_table(0)
    animals, strangers = embeddings.animals_and_strangers()
    assert table.shape == (len(WordTokenizer()), 64)
    assert embeddings.mean_cosine(table, animals) > embeddings.mean_cosine(table, animals, strangers) + 0.2


def test_the_verdict_on_analogies_is_not_that_of_one_trained_table():
    finding = recorded()["embeddings.analogies"]
    assert finding.verdict == "depends"
    assert finding.figures["trained"] > 0.9 > 2 * max(finding.figures["counted"])
    assert len(finding.figures["counted"]) == 3


# ------------------------------------------------------------------------------------------------- gradients and sizes
def test_a_tied_table_gets_the_gradients_of_both_ends_added():
    torch.manual_seed(3)
    tokenizer = WordTokenizer()
    tied = DecoderOnly(TransformerConfig(len(tokenizer), 16, 2, 1, max_seq_len=96, tie_weights=True))
    ids = torch.tensor([tokenizer.encode(next(Tinytown(3).stories()))])
    _, loss = tied(ids[:, :-1], targets=ids[:, 1:])
    (gradient,) = torch.autograd.grad(loss, tied.token_embedding.weight)
    from_look_up, from_scores = embeddings.gradients_of_both_ends(tied, ids)
    torch.testing.assert_close(from_look_up + from_scores, gradient)
    read = {*ids[0, :-1].tolist()}  # <eos> is predicted, not read
    assert {*from_look_up.abs().sum(-1).nonzero().flatten().tolist()} == read
    assert (from_scores.abs().sum(-1) > 0).all(), "every row makes a score"


def test_weight_decay_moves_a_padding_row_by_its_own_share():
    """Two steps of AdamW shrink a row of ones to (1 - 0.1 * 0.1)²; a row of zeros has nothing to lose."""
    finding = find("embeddings.padding_row")()
    assert finding.figures["filled"]["AdamW"] == pytest.approx(1 - 0.99**2, abs=1e-6)
    assert not any(finding.figures["zero"].values())


@pytest.mark.parametrize("ratio", [0.028, 0.78])
def test_words_begin_at_the_size_that_is_asked_for(ratio):
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(343, 32, 4, 1, max_seq_len=8, positions="sinusoidal", tie_weights=False))
    embeddings.words_of_size(ratio)(model)
    words = model.token_embedding(torch.arange(343))
    assert words.std().item() == pytest.approx(ratio * 0.5**0.5, rel=0.05)
