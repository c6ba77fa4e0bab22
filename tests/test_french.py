"""The pairs of Tinytown against French as a dictionary and a grammar book have it, written down here once more."""

import math
import random
from collections import Counter
from contextlib import suppress
from itertools import cycle, product

import pytest
from helpers import OnlyRandom

from course_lib.tinytown import Tinytown, french, join_words, split_words
from course_lib.tinytown.french import TinytownPairs

# From a dictionary, by gender. What the library lists form by form follows here from rules.
ANIMALS = {
    "m": {"cat": "chat", "dog": "chien", "horse": "cheval", "wolf": "loup", "pig": "cochon"},
    "f": {"mouse": "souris", "cow": "vache", "frog": "grenouille", "goat": "chèvre", "hen": "poule"},
}
THINGS = {
    "m": {"mat": "tapis", "book": "livre", "bench": "banc"},
    "f": {"chair": "chaise", "box": "boîte", "key": "clé"},
}
PLACES = {"m": {"garden": "jardin", "castle": "château"}, "f": {"house": "maison", "forest": "forêt"}}
ENGLISH_PLURALS = {"mouse": "mice", "wolf": "wolves", "bench": "benches", "box": "boxes"}
SIZES = {"": "", "big": "grand", "small": "petit", "old": "vieux", "beautiful": "beau"}
COLOURS = {"": "", "black": "noir", "white": "blanc", "green": "vert", "red": "rouge", "grey": "gris"}
MOODS = {"tired": "fatigué", "happy": "heureux", "sad": "triste", "sick": "malade"}
FEMININES = {"vieux": "vieille", "beau": "belle", "blanc": "blanche", "heureux": "heureuse"}
DETERMINERS = {
    "m": {"the": "le", "a": "un", "his": "son", "her": "son"},
    "f": {"the": "la", "a": "une", "his": "sa", "her": "sa"},
    "plural": {"the": "les", "his": "ses", "her": "ses", "two": "deux", "three": "trois"},
}


def plural(word):
    if not word or word[-1] in "sx":
        return word
    return word[:-2] + "aux" if word.endswith("al") else word + "x" if word.endswith("eau") else word + "s"


def agree(adjective, gender, many):
    if gender == "f" and adjective:
        adjective = FEMININES.get(adjective) or (adjective if adjective.endswith("e") else adjective + "e")
    return plural(adjective) if many else adjective


def noun_phrases(nouns):
    """Every noun phrase around these nouns: English, French, gender, whether many."""
    for gender, many in product("mf", (False, True)):
        determiners = DETERMINERS["plural" if many else gender]
        for noun, determiner, size, colour in product(nouns[gender], determiners, SIZES, COLOURS):
            english_noun = ENGLISH_PLURALS.get(noun, noun + "s") if many else noun
            french_noun = plural(nouns[gender][noun]) if many else nouns[gender][noun]
            article = "an" if (determiner, size) == ("a", "old") else determiner
            adjectives = agree(SIZES[size], gender, many), agree(COLOURS[colour], gender, many)
            english = [article, size, colour, english_noun]
            translation = [determiners[determiner], adjectives[0], french_noun, adjectives[1]]
            yield " ".join(filter(None, english)), " ".join(filter(None, translation)), gender, many


def test_every_subject_has_its_forms_and_agrees_with_its_verb_and_its_mood():
    translate = TinytownPairs().translate
    phrases = list(noun_phrases(ANIMALS))
    assert len(phrases) == len({english for english, *_ in phrases}) == 10 * (4 + 5) * 5 * 6
    for (english, translation, gender, many), mood in zip(phrases, cycle(MOODS)):
        was, verb, have = ("were", "étaient", "ont") if many else ("was", "était", "a")
        feeling = agree(MOODS[mood], gender, many)
        assert translate(f"{english} {was} {mood}.") == f"{translation} {verb} {feeling}."
        assert translate(f"{english} {was} not very {mood}.") == f"{translation} n'{verb} pas très {feeling}."
        assert translate(f"{english} did not bite the cat.") == f"{translation} n'{have} pas mordu le chat."


@pytest.mark.parametrize(
    ("before", "nouns", "translation_before"),
    [
        ("tom slept in", PLACES, "tom a dormi dans"),
        ("she jumped on", THINGS, "elle a sauté sur"),
        ("he took", THINGS, "il a pris"),
        ("emma chased", ANIMALS, "emma a poursuivi"),
    ],
)
def test_every_phrase_behind_a_verb_has_its_forms(before, nouns, translation_before):
    for english, translation, _, _ in noun_phrases(nouns):
        assert TinytownPairs().translate(f"{before} {english}.") == f"{translation_before} {translation}."


def test_after_not_a_becomes_de():
    for english, translation, _, _ in noun_phrases(ANIMALS):
        first, rest = translation.split(maxsplit=1)
        first = "de" if english.split()[0] in ("a", "an") else first
        assert TinytownPairs().translate(f"ben did not follow {english}.") == f"ben n'a pas suivi {first} {rest}."


@pytest.mark.parametrize(
    ("english", "translation", "alignment"),
    [
        ("the black cat was sad.", "le chat noir était triste.", "0-0 2-1 1-2 3-3 4-4 5-5"),
        (
            "an old white mouse slept on two big green boxes.",
            "une vieille souris blanche a dormi sur deux grandes boîtes vertes.",
            "0-0 1-1 3-2 2-3 4-4 4-5 5-6 6-7 7-8 9-9 8-10 10-11",
        ),
        ("she was not very happy.", "elle n'était pas très heureuse.", "0-0 2-1 1-2 2-3 3-4 4-5 5-6"),
        ("the goats were not red.", "les chèvres n'étaient pas rouges.", "0-0 1-1 3-2 2-3 3-4 4-5 5-6"),
        (
            "her grey horses did not bite a beautiful dog.",
            "ses chevaux gris n'ont pas mordu de beau chien.",
            "0-0 2-1 1-2 4-3 3-4 4-5 5-6 6-7 7-8 8-9 9-10",
        ),
        (
            "the hens sang in his small castle.",
            "les poules ont chanté dans son petit château.",
            "0-0 1-1 2-2 2-3 3-4 4-5 5-6 6-7 7-8",
        ),
        ("anna laughed in his garden.", "anna a ri dans son jardin.", "0-0 1-1 1-2 2-3 3-4 4-5 5-6"),
        ("he smiled in her forests.", "il a souri dans ses forêts.", "0-0 1-1 1-2 2-3 3-4 4-5 5-6"),
        ("tom took her key.", "tom a pris sa clé.", "0-0 1-1 1-2 2-3 3-4 4-5"),
        ("three wolves saw the chairs.", "trois loups ont vu les chaises.", "0-0 1-1 2-2 2-3 3-4 4-5 5-6"),
        ("ben pushed a pig.", "ben a poussé un cochon.", "0-0 1-1 1-2 2-3 3-4 4-5"),
    ],
)  # fmt: skip
def test_sentences_translated_and_aligned_by_hand(english, translation, alignment):
    pairs = TinytownPairs()
    assert pairs.translate(english) == translation
    assert " ".join(f"{i}-{j}" for i, j in pairs.alignment(english)) == alignment


def test_every_word_is_aligned_and_every_french_word_once():
    pairs = TinytownPairs(1)
    crossed = 0
    for english, translation in pairs.sample(500):
        alignment = pairs.alignment(english)
        sources, targets = zip(*alignment)
        assert list(targets) == list(range(len(split_words(translation))))
        assert set(sources) == set(range(len(split_words(english))))
        assert max(Counter(sources).values()) <= 2
        crossed += list(sources) != sorted(sources)
    assert crossed > 250, "most sentences cross somewhere: an alignment matrix must not look like a diagonal"


def test_pairs_are_short_and_their_tokenizer_knows_every_word_and_no_other():
    pairs = TinytownPairs(2)
    tokenizer, used = pairs.tokenizer(), set()
    for side in (0, 1):
        sentences = [pair[side] for pair in pairs.sample(5000)]
        lengths = [len(split_words(sentence)) for sentence in sentences]
        assert min(lengths) == 4
        assert max(lengths) == 12 + side
        words = {word for sentence in sentences for word in split_words(sentence)}
        assert 80 <= len(words) <= 120
        used |= words
        for sentence in sentences[:500]:
            assert tokenizer.decode(tokenizer.encode(sentence)) == sentence
    assert used == set(tokenizer.tokens[3:])


def test_english_words_are_tinytowns():
    known = set(Tinytown().vocabulary)
    known |= {ENGLISH_PLURALS.get(word, word + "s") for word in known} | {"an", "beautiful"}
    assert {word for english, _ in TinytownPairs(2).sample(5000) for word in split_words(english)} <= known


def test_translating_gives_the_pair_and_other_seeds_give_other_pairs():
    pairs = TinytownPairs(3)
    assert pairs.sample(200) == TinytownPairs(3).sample(200) != TinytownPairs(4).sample(200)
    for english, translation in pairs.sample(200):
        assert pairs.translate(english) == translation


def test_pairs_use_nothing_of_a_random_source_but_what_every_python_draws_alike(monkeypatch):
    expected = TinytownPairs(5).sample(50)

    monkeypatch.setattr(random, "Random", OnlyRandom)
    assert TinytownPairs(5).sample(50) == expected


def test_a_sentence_can_be_read_in_one_way_only():
    """So the entropy of the draws is the entropy of the sentences."""
    starts = [(pattern, i) for pattern in french.PATTERNS for i in range(len(pattern)) if pattern[i].endswith("?")]
    for pattern, i in starts:
        end = next(j for j in range(i, len(pattern)) if not pattern[j].endswith("?"))
        words = [set(french.WORDS[slot.rstrip("?")]) for slot in pattern[i : end + 1]]
        assert sum(map(len, words)) == len(set().union(*words)), pattern[i : end + 1]


def test_no_sentence_belongs_to_two_patterns(monkeypatch):
    patterns, sentences = french.PATTERNS, [english for english, _ in TinytownPairs(6).sample(300)]
    readings = Counter()
    for pattern in patterns:
        monkeypatch.setattr(french, "PATTERNS", [pattern])
        for english in set(sentences):
            with suppress(ValueError):
                TinytownPairs().translate(english)
                readings[english] += 1
    assert readings == dict.fromkeys(sentences, 1)


@pytest.fixture
def few_words(monkeypatch):
    """Two words for a slot, "a" and "old" among them, and short patterns: every sentence can be written down."""
    words = {slot: dict(list(options.items())[1:3]) or options for slot, options in french.WORDS.items()}
    monkeypatch.setattr(french, "WORDS", words)
    monkeypatch.setattr(french, "PATTERNS", [pattern for pattern in french.PATTERNS if len(pattern) < 8])


def test_entropy_is_that_of_all_sentences_and_they_are_drawn_as_often_as_it_says(few_words):
    probabilities = Counter()
    for pattern in french.PATTERNS:
        options = [[*french.WORDS[slot.rstrip("?")], *([""] if slot.endswith("?") else [])] for slot in pattern]
        for words in product(*options):
            chance = 1 / len(french.PATTERNS)
            for slot, word in zip(pattern, words):
                n = len(french.WORDS[slot.rstrip("?")])
                chance *= (0.5 if slot.endswith("?") else 1.0) * (1 / n if word else 1.0)
            probabilities[join_words(filter(None, words)).replace("a old", "an old")] += chance
    assert sum(probabilities.values()) == pytest.approx(1)
    nats = -sum(chance * math.log(chance) for chance in probabilities.values())
    assert TinytownPairs().entropy() == pytest.approx(nats, rel=1e-12)

    n = 6_000
    counts = Counter(english for english, _ in TinytownPairs(7).sample(n))
    assert set(counts) <= set(probabilities)
    # Pearson's statistic over the common sentences: its mean is the number of cells, its variance twice that.
    common = {english: n * chance for english, chance in probabilities.items() if n * chance > 10}
    statistic = sum((counts[english] - expected) ** 2 / expected for english, expected in common.items())
    assert len(common) > 50
    assert abs(statistic - len(common)) < 5 * math.sqrt(2 * len(common))


@pytest.mark.parametrize(
    "english",
    [
        "",
        ".",
        "the cat",
        "a old cat was sad.",
        "an big cat was sad.",
        "a cats were sad.",
        "the cats was sad.",
        "tom was black.",
        "the black big cat was sad.",
        "le chat a dormi.",
        "the cat slept on the dog.",
    ],
)
def test_what_is_not_of_the_grammar_is_refused(english):
    for question in (TinytownPairs().translate, TinytownPairs().alignment):
        with pytest.raises(ValueError, match="not a sentence of this grammar"):
            question(english)


@pytest.mark.parametrize("seed", [1.5, "0", None, True])
def test_seed_must_be_an_integer(seed):
    with pytest.raises(TypeError, match="seed"):
        TinytownPairs(seed)
