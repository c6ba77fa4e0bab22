"""Tinytown in two languages: short English sentences, and the one French sentence that translates each.

Chapter 11. What a translator must learn here, and where it shows:

- a colour follows its noun, a size precedes it: the big black cat -> le grand chat noir;
- articles, adjectives and verbs agree: the old mice were happy -> les vieilles souris étaient heureuses;
- his and her agree with what is owned, not with the owner: his house, her house -> sa maison;
- one word becomes two: slept -> a dormi; and "not" stands on both sides of the verb: did not bite -> n'a pas mordu;
- after "not", a is de: did not bite a cat -> n'a pas mordu de chat.

No French word that can follow le, la, sa, beau or vieux begins with a vowel or an h, so those keep their form. The one
elision is ne -> n' before a verb; `n'` is a token by itself.
"""

import math
import random
from collections.abc import Iterator

from course_lib.arguments import require_arguments
from course_lib.checks import require_seed
from course_lib.files import read_table
from course_lib.tinytown.grammar import first, join_words, split_words
from course_lib.tinytown.tokenizers import WordTokenizer

# What stands in each slot: assets/tables/french.toml.
WORDS: dict[str, dict[str, list[str]]] = {}  # slot -> English word -> its French
for slot, entries in (row.split(maxsplit=1) for row in read_table("french")["words"].strip().splitlines()):
    WORDS[slot] = {english: french for english, *french in map(str.split, entries.split(", "))}


def _patterns() -> Iterator[list[str]]:
    """Every kind of sentence, as its slots in order. A slot with a question mark is filled half of the time."""

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


PATTERNS = list(_patterns())  # each as likely as the next
Said = list[tuple[str, str]]  # (slot, English word) for every word of a sentence


class TinytownPairs:
    """An endless, seeded supply of short sentences, English and French.

    Args:
        seed: same seed, same pairs, on any machine and any Python.

    The French is a function of the English: given the English sentence its entropy is 0, and so is the loss of a
    perfect translator. The other way it is not: sa maison is his house or her house.

    Errors: TypeError if seed is not an integer; ValueError if `translate` or `alignment` is given what is not a
    sentence of this grammar.
    Source: this course.

    >>> TinytownPairs().translate("the big black cat did not bite his mice.")
    "le grand chat noir n'a pas mordu ses souris."
    """

    def __init__(self, seed: int = 0):
        self.seed = require_seed(seed)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """(English, French) without end. The English has 4 to 12 words, the full stop counted; the French one more at
        the most."""
        random_source = random.Random(self.seed)

        def draw(options):
            return options[int(random_source.random() * len(options))]

        while True:
            slots = [slot for slot in draw(PATTERNS) if not slot.endswith("?") or random_source.random() < 0.5]
            said = [(slot, draw(list(WORDS[slot.rstrip("?")]))) for slot in slots]
            yield _english(said), join_words(word for word, _ in _french(said))

    def sample(self, n: int) -> list[tuple[str, str]]:
        """The first `n` pairs."""
        return first(n, self.pairs())

    def translate(self, english: str) -> str:
        """The French of an English sentence, exact."""
        return join_words(word for word, _ in _french(_parse(english)))

    def alignment(self, english: str) -> list[tuple[int, int]]:
        """(index of an English word, index of a French word that it became), in French order, over the words that
        `split_words` gives. Every French word has one English word behind it; an English word has one or two."""
        return [(source, i) for i, (_, source) in enumerate(_french(_parse(english)))]

    def entropy(self) -> float:
        """The entropy of an English sentence in nats, exact: that of its pattern and of every slot's own draw."""
        nats = {slot: math.log(len(words)) for slot, words in WORDS.items()}
        # A slot with a question mark: filled or not, and half the time with what.
        nats |= {f"{slot}?": math.log(2) + nats[slot] / 2 for slot in WORDS}
        return math.log(len(PATTERNS)) + sum(nats[slot] for pattern in PATTERNS for slot in pattern) / len(PATTERNS)

    def tokenizer(self) -> WordTokenizer:
        """One token per word of either language: encoder and decoder of `EncoderDecoder` share one table. `n'` is a
        token by itself."""
        english = {"an"}.union(*WORDS.values())
        french = {form for words in WORDS.values() for forms in words.values() for form in forms} - {"m", "f"} | {"n'"}
        return WordTokenizer(sorted(english | french))


def _english(said: Said) -> str:
    return join_words(word for _, word in said).replace("a old", "an old")


def _parse(english: str) -> Said:
    """What each slot holds. A word can fill one of the slots that may come next, so there is one way at the most."""
    require_arguments(_parse, locals())
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
    """The French words, each with the index of its English word."""
    translated, before, behind, agreement = [], [], [], 0

    def form(french):
        return french[agreement % len(french)]

    for source, (slot, word) in enumerate(said):
        french = WORDS[slot.rstrip("?")][word]
        if slot in ("one", "none", "many", "size?"):  # these wait for their noun: it decides the form
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
