"""The grammar of Tinytown: its words, its lines with their slots, and which line can follow which.

Chapters 1 and 12. The lines come from `assets/tables/world.toml`. A slot never takes a word that an earlier slot of its
line or of the opening has taken. The hero's role is the only exception, because a king may meet another king.
"""

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from course_lib.checks import require_count, require_text, require_texts
from course_lib.tinytown.world import CLASSES, MAX_SENTENCES, RELATIONS, STOP, STORY

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"


def split_words(text: str) -> list[str]:
    """Split a text into words and punctuation marks: "yes, it is." -> ["yes", ",", "it", "is", "."]. An elided letter
    in French keeps its apostrophe: "n'est" -> ["n'", "est"]."""
    require_text(text)
    return re.findall(r"<\w+>|\b\w'|\w+|[^\w\s]", text)


def join_words(words: Iterable[str]) -> str:
    """Join words into a text, the inverse of `split_words`: no space before punctuation or after an elided letter."""
    require_texts(words=words)
    return re.sub(r" (?=[.,:?!;])|(?<=\b\w') ", "", " ".join(words))


def first(n: int, endless: Iterator) -> list:
    """Return the first `n` items of an endless iterator. Errors: ValueError if n < 0."""
    require_count(n=n)
    return list(islice(endless, n))


def pick(options: dict[Any, float], random_source: random.Random) -> Any:
    """Sample one of the options. `options` has the probability of each."""
    target = random_source.random()  # Python guarantees the same numbers in every version only for random()
    for option, probability in options.items():
        target -= probability
        if target < 0:
            return option
    return option  # reached only if rounding makes the probabilities sum to less than 1


@dataclass(frozen=True)
class Word:
    """Describe one word of a line. It is a literal, or a new word for a slot (`name` and `source` are set), or a word
    that repeats a slot (only `name`) or derives from it (`name` and `relation`). Unused fields are empty."""

    literal: str = ""
    name: str = ""
    source: str = ""  # a class, or "slot/relation" with several possible words
    relation: str = ""


@dataclass(frozen=True)
class Line:
    """Hold a line of the grammar: its text, its topic, its words and its number of sentences."""

    text: str
    topic: str
    words: tuple[Word, ...]
    sentences: int

    @staticmethod
    def parse(row: str) -> "Line":
        topic, text = row.split(maxsplit=1)
        words = []
        for piece in text.split():
            slot = re.fullmatch(r"\{(\w+)(?::([\w/]+))?(?:/(\w+))?\}", piece)
            words.append(Word("", *slot.groups("")) if slot else Word(literal=piece))
        return Line(text, topic, tuple(words), sum(word.literal in (".", "?") for word in words))

    @property
    def draws(self) -> tuple[Word, ...]:
        return tuple(word for word in self.words if word.source)


LINES = tuple(Line.parse(row) for row in STORY.strip().splitlines())
Bindings = dict[str, str]  # slot -> its word
Plan = tuple[frozenset[str], int]  # (topics already used, sentences still allowed)
START: Plan = (frozenset(), MAX_SENTENCES)


def say(word: Word, bindings: Bindings) -> str:
    """Return the text of a word, given the words in the slots."""
    if word.literal:
        return word.literal
    return RELATIONS[word.relation][bindings[word.name]] if word.relation else bindings[word.name]


@dataclass(frozen=True)
class Step:
    """Hold one line of a story: the line, the position of its first word in the story, and the words in its slots."""

    line: Line
    start: int
    bindings: Bindings

    @property
    def said(self) -> list[tuple[int, Word, str]]:
        """Return (position in the story, the word's description, its text) for every word of the line."""
        return [(self.start + i, word, say(word, self.bindings)) for i, word in enumerate(self.line.words)]


def choices(word: Word, bindings: Bindings) -> dict[str, float]:
    """Return every text that a word can have, with its probability. A slot takes a word from its class, or a word that
    belongs to an earlier slot, except for the words already taken."""
    if not word.source:
        return {say(word, bindings): 1.0}
    if "/" in word.source:
        slot, relation = word.source.split("/")
        options: str | tuple[str, ...] | dict[str, float] = RELATIONS[relation][bindings[slot]]
    else:
        options = CLASSES[word.source]
    weights = options if isinstance(options, dict) else dict.fromkeys(options, 1.0)
    taken = {said for slot, said in bindings.items() if slot != "role"}
    weights = {option: weight for option, weight in weights.items() if option not in taken}
    total = sum(weights.values())
    return {option: weight / total for option, weight in weights.items()}


@cache
def support(draw: Word) -> frozenset[str]:
    """Return every word that a slot can take in any story."""
    if "/" not in draw.source:
        return frozenset(CLASSES[draw.source])
    return frozenset(word for options in RELATIONS[draw.source.split("/")[1]].values() for word in options)


@cache
def next_lines(plan: Plan) -> dict[tuple[Line, Plan], float]:
    """Return the probability of each (next line, plan after it). No line follows a closing."""
    told, room = plan
    openings, closings = ([line for line in LINES if line.topic == topic] for topic in ("opening", "closing"))
    beats = [line for line in LINES if line.topic not in told | {"closing"} and line.sentences <= room]
    stop = 0.0 if told == {"opening"} else STOP if beats else 1.0
    shares = [(stop, closings), (1 - stop, beats)] if told else [(1.0, openings)]
    return {
        (line, (told | {line.topic}, room - line.sentences)): share / len(lines)
        for share, lines in shares
        if share and "closing" not in told
        for line in lines
    }
