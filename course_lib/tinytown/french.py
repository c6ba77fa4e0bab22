"""Tinytown in two languages: short English sentences, each with exactly one French translation.

Chapter 11. A translator has to learn these rules here:

- a colour follows its noun, a size precedes it: the big black cat -> le grand chat noir;
- articles, adjectives and verbs agree with the noun: the old mice were happy -> les vieilles souris étaient heureuses;
- his and her agree with the thing owned, not with the owner: his house, her house -> sa maison;
- one word can become two: slept -> a dormi; and "not" surrounds the verb: did not bite -> n'a pas mordu;
- after "not", a becomes de: did not bite a cat -> n'a pas mordu de chat.

No French word that can follow le, la, sa, beau or vieux begins with a vowel or an h, so these never change their form.
The only elision is ne -> n' before a verb; `n'` is a separate token.
"""

import math
import random
from collections.abc import Iterator

from course_lib.checks import require_seed, require_text
from course_lib.course.files import read_table
from course_lib.tinytown.grammar import first, join_words, split_words
from course_lib.tinytown.tokenizers import WordTokenizer

# The words for each slot, from `assets/tables/french.toml`.
WORDS: dict[str, dict[str, list[str]]] = {}  # slot -> English word -> its French
for slot, entries in (row.split(maxsplit=1) for row in read_table("french")["words"].strip().splitlines()):
    WORDS[slot] = {english: french for english, *french in map(str.split, entries.split(", "))}


def _patterns() -> Iterator[list[str]]:
    """Yield every sentence pattern as a list of slots. A slot with a question mark is filled with probability 1/2."""

    def phrases(noun, one="one"):
        return [f"{one} size? colour? {noun}", f"many size? colour? {noun}s"]

    acts = [f"slept on {thing}" for thing in phrases("thing")] + [f"slept in {place}" for place in phrases("place")]
    acts += [f"bit {animal}" for animal in phrases("animal")] + [f"took {thing}" for thing in phrases("thing")]
    acts += [f"did not bite {animal}" for animal in phrases("animal", one="none")]
    moods, colours = ["mood", "not mood", "very mood", "not very mood"], ["colour", "not colour"]
    for subject, be in zip(["name", *phrases("animal")], ["was", "was", "were"]):
        states = [f"{be} {state}" for state in (moods if subject == "name" else moods + colours)]
        for predicate in states + acts:
            yield f"{subject} {predicate} .".split()


PATTERNS = list(_patterns())  # all equally likely
Said = list[tuple[str, str]]  # (slot, English word) for every word of a sentence


class TinytownPairs:
    """Generate pairs of a short English sentence and its French translation.

    Args:
        seed: the same seed gives the same pairs, on any machine and in any version of Python.

    The English sentence determines the French one: given the English, the entropy of the French is 0, and so is the
    loss of a perfect translator. The reverse is not true: sa maison can be his house or her house.

    Errors: TypeError if seed is not an integer; ValueError if `translate` or `alignment` is given a text that is not a
        sentence of this grammar.
    Source: this course.

    >>> TinytownPairs().translate("the big black cat did not bite his mice.")
    "le grand chat noir n'a pas mordu ses souris."
    """

    def __init__(self, seed: int = 0):
        self.seed = require_seed(seed)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield (English, French) without end. The English sentence has 4 to 12 words, including the full stop; the
        French sentence has at most one more."""
        random_source = random.Random(self.seed)

        def draw(options):
            return options[int(random_source.random() * len(options))]

        while True:
            slots = [slot for slot in draw(PATTERNS) if not slot.endswith("?") or random_source.random() < 0.5]
            said = [(slot, draw(list(WORDS[slot.rstrip("?")]))) for slot in slots]
            yield _english(said), join_words(word for word, _ in _french(said))

    def sample(self, n: int) -> list[tuple[str, str]]:
        """Return the first `n` pairs."""
        return first(n, self.pairs())

    def translate(self, english: str) -> str:
        """Return the French translation of an English sentence."""
        return join_words(word for word, _ in _french(_parse(english)))

    def alignment(self, english: str) -> list[tuple[int, int]]:
        """Return pairs (index of an English word, index of its French word) in French order. The indices count the
        words from `split_words`. Each French word has one English word; an English word has one or two French words."""
        return [(source, i) for i, (_, source) in enumerate(_french(_parse(english)))]

    def entropy(self) -> float:
        """Return the exact entropy of an English sentence in nats: the entropy of its pattern and of its slots."""
        nats = {slot: math.log(len(words)) for slot, words in WORDS.items()}
        # A slot with a question mark: ln 2 for whether it is filled, and half the time the entropy of its word.
        nats |= {f"{slot}?": math.log(2) + nats[slot] / 2 for slot in WORDS}
        return math.log(len(PATTERNS)) + sum(nats[slot] for pattern in PATTERNS for slot in pattern) / len(PATTERNS)

    def tokenizer(self) -> WordTokenizer:
        """Return a tokenizer with one token per word of either language, because the encoder and decoder of an
        `EncoderDecoder` share one embedding table. `n'` is a separate token."""
        english = {"an"}.union(*WORDS.values())
        french = {form for words in WORDS.values() for forms in words.values() for form in forms} - {"m", "f"} | {"n'"}
        return WordTokenizer(sorted(english | french))


def _english(said: Said) -> str:
    return join_words(word for _, word in said).replace("a old", "an old")


def _parse(english: str) -> Said:
    """Return the word in each slot. A word fits only one of the slots that can come next, so a parse is unique."""
    require_text(english)
    for pattern in PATTERNS:
        words, said = split_words(english.replace("a old", "?").replace("an old", "a old")), []
        for slot in pattern:
            if words and words[0] in WORDS[slot.rstrip("?")]:
                said.append((slot, words.pop(0)))
            elif not slot.endswith("?"):
                break
        else:
            if not words:
                return said
    raise ValueError(f"not a sentence of this grammar: {english!r}. TinytownPairs().sample(3) shows some that are")


def _french(said: Said) -> list[tuple[str, int]]:
    """Return the French words, each with the index of its English word."""
    translated, before, behind, agreement = [], [], [], 0

    def form(french):
        return french[agreement % len(french)]

    for source, (slot, word) in enumerate(said):
        french = WORDS[slot.rstrip("?")][word]
        if slot in ("one", "none", "many", "size?"):  # their form depends on the noun, which comes later
            before.append((french, source))
        elif slot == "colour?":
            behind.append((french, source))
        elif french[-1] in ("m", "f"):
            agreement = (french[-1] == "f") + 2 * slot.endswith("s")
            translated += [(form(words), place) for words, place in [*before, (french[:1], source), *behind]]
            before, behind = [], []
        elif slot == "not":
            translated[-1:] = [("n'", source), translated[-1], (form(french), source)]
        else:
            auxiliary = WORDS["did"]["did"] if slot in ("slept", "bit", "took") else None  # "has" or "have"
            translated += [(form(words), source) for words in (auxiliary, french) if words]
    return translated
