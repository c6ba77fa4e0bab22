"""How Tinytown's page is read: words, lines and their slots, and what may follow what.

Chapters 1 and 12. The page itself is `assets/tables/world.toml`. A draw never takes a word that its line, or the hero,
has drawn already; only the hero's role may come again, for a king may meet a king.
"""

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from course_lib.arguments import require_arguments
from course_lib.checks import require_count
from course_lib.tinytown.world import CLASSES, MAX_SENTENCES, RELATIONS, STOP, STORY

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"


def split_words(text: str) -> list[str]:
    """Words and punctuation marks, each by itself: "yes, it is." -> ["yes", ",", "it", "is", "."]. An elided letter
    keeps its apostrophe, as French has it: "n'est" -> ["n'", "est"]."""
    require_arguments(split_words, locals())
    return re.findall(r"<\w+>|\b\w'|\w+|[^\w\s]", text)


def join_words(words: Iterable[str]) -> str:
    """The inverse of `split_words`: no space before a punctuation mark, none after an elided letter."""
    require_arguments(join_words, locals())
    return re.sub(r" (?=[.,:?!;])|(?<=\b\w') ", "", " ".join(words))


def first(n: int, endless: Iterator) -> list:
    """The first `n` of an endless supply. Errors: ValueError if n < 0."""
    require_arguments(first, locals())
    require_count(n=n)
    return list(islice(endless, n))


def pick(options: dict[Any, float], random_source: random.Random) -> Any:
    """One of the options, each as likely as the probability beside it."""
    target = random_source.random()  # this alone is promised to give the same numbers in every Python
    for option, probability in options.items():
        target -= probability
        if target < 0:
            return option
    return option  # rounding left a sliver: the last option takes it


@dataclass(frozen=True)
class Word:
    """One word of a line: a literal; or a draw (`name` and `source` set); or a word said again or derived (`name`
    alone, `relation`). What does not apply is empty."""

    literal: str = ""
    name: str = ""
    source: str = ""  # a class, or "slot/relation" with several words to draw from
    relation: str = ""


@dataclass(frozen=True)
class Line:
    """A line of the page: its words, its topic and the number of its sentences."""

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
Bindings = dict[str, str]  # what the slots hold
Plan = tuple[frozenset[str], int]  # topics told, sentences still allowed
START: Plan = (frozenset(), MAX_SENTENCES)


def say(word: Word, bindings: Bindings) -> str:
    """The word that stands here, once the draws of its line are made."""
    if word.literal:
        return word.literal
    return RELATIONS[word.relation][bindings[word.name]] if word.relation else bindings[word.name]


@dataclass(frozen=True)
class Step:
    """One line as it was said in a story: the line, where it starts (in words), and what its slots hold."""

    line: Line
    start: int
    bindings: Bindings

    @property
    def said(self) -> list[tuple[int, Word, str]]:
        """(position in the story, the word of the line, the word said) for every word."""
        return [(self.start + i, word, say(word, self.bindings)) for i, word in enumerate(self.line.words)]


def choices(word: Word, bindings: Bindings) -> dict[str, float]:
    """What may stand here, with probabilities. A draw: its class, or what belongs to an earlier word, less the words
    already drawn."""
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
    """Every word that a draw could ever take."""
    if "/" not in draw.source:
        return frozenset(CLASSES[draw.source])
    return frozenset(word for options in RELATIONS[draw.source.split("/")[1]].values() for word in options)


@cache
def next_lines(plan: Plan) -> dict[tuple[Line, Plan], float]:
    """Each line that may follow, with the plan after it, and its probability; none after a closing."""
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
