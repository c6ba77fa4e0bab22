"""Tinytown: a world small enough to know exactly.

Chapters 1, 12 and 13. Real text has an entropy that nobody knows, so nobody can say how far a model is from perfect.
Tinytown is a grammar that fits on one page. It writes short stories, gives the exact probability of each, and
so its exact entropy: the loss that no model can beat.
"""

import math
import random
from collections.abc import Iterator
from functools import cache

from course_lib.checks import require_seed
from course_lib.tinytown import grammar
from course_lib.tinytown.grammar import (
    EOS,
    Bindings,
    Line,
    Plan,
    Step,
    Word,
    choices,
    join_words,
    say,
    split_words,
    support,
)
from course_lib.tinytown.world import CLASSES, RELATIONS


class Tinytown:
    """The micro-world: an endless, seeded supply of stories whose probabilities are known exactly.

    Args:
        seed: same seed, same stories, on any machine and any Python.

    Errors: TypeError if seed is not an integer.
    Source: this course. The grammar is the page `course_lib/assets/tables/world.toml`.

    >>> town = Tinytown(seed=0)
    >>> story = next(town.stories())
    >>> -town.log_prob(story) / (len(split_words(story)) + 1)   # nats per predicted token; the + 1 is <eos>
    """

    def __init__(self, seed: int = 0):
        self.seed = require_seed(seed)

    def stories(self) -> Iterator[str]:
        """Stories without end, each a string such as "once there was a king called tom. he wore a crown. at last tom
        went home."."""
        random_source = random.Random(self.seed)
        while True:
            yield join_words(self._story(random_source))

    def sample(self, n: int) -> list[str]:
        """The first `n` stories."""
        return grammar.first(n, self.stories())

    @staticmethod
    def _story(random_source: random.Random) -> list[str]:
        words: list[str] = []
        hero: Bindings = {}  # what the opening drew; every later line knows it
        plan = grammar.START
        while lines := grammar.next_lines(plan):
            line, plan = grammar.pick(lines, random_source)
            bindings = dict(hero)
            for word in line.words:
                if word.source:
                    bindings[word.name] = grammar.pick(choices(word, bindings), random_source)
                words.append(say(word, bindings))
            hero = hero or bindings
        return words

    # Every question about a text is one walk: follow all the ways in which the grammar could have said these words.
    @staticmethod
    def _walk(words: list[str], at_end=lambda *_: None) -> Iterator[tuple[float, list[Step]]]:
        """Every derivation of the whole text as (log probability, steps). `at_end(log_probability, word, bindings)` is
        called for each way in which the text can go on, where the words run out."""

        def follow(line, start, log_probability, bindings):
            """Say `line` from `start` on; None if the text disagrees or ends first."""
            for i, word in enumerate(line.words, start):
                if i == len(words):
                    return at_end(log_probability, word, bindings)
                if word.source and words[i] not in support(word):  # the quick no: the chances take longer
                    return None
                probability = choices(word, bindings).get(words[i])
                if not probability:
                    return None
                log_probability += math.log(probability)
                if word.source:
                    bindings[word.name] = words[i]
            return log_probability

        def tell(plan, hero, start, log_probability, steps):
            lines = grammar.next_lines(plan)
            if not lines and start == len(words):
                at_end(log_probability, Word(literal=EOS), hero)
                yield log_probability, steps
            for (line, later), probability in lines.items():
                bindings = dict(hero)
                result = follow(line, start, log_probability + math.log(probability), bindings)
                if result is not None:
                    told = [*steps, Step(line, start, bindings)]
                    yield from tell(later, hero or bindings, start + len(line.words), result, told)

        return tell(grammar.START, {}, 0, 0.0, [])

    def log_prob(self, story: str) -> float:
        """ln P(story) in nats, exact. A text that Tinytown cannot say has probability 0: −inf."""
        probabilities = [math.exp(log_probability) for log_probability, _ in self._walk(split_words(story))]
        return math.log(sum(probabilities)) if probabilities else -math.inf

    def parse(self, story: str) -> list[Step]:
        """The derivation of a story: which line said which words, and what each slot holds.

        Errors: ValueError if Tinytown cannot say this text."""
        derivations = [steps for _, steps in self._walk(split_words(story))]
        if not derivations:
            raise ValueError(f"this is not a Tinytown story: {story!r}. Tinytown().sample(3) shows what one looks like")
        return derivations[0]  # there is never a second one: the tests hold the grammar to that

    def next_word(self, prefix: str = "") -> dict[str, float]:
        """The exact probability of each word after `prefix`, most probable first; `<eos>` where the story may end.

        Errors: ValueError if no story begins like this."""
        weights: dict[str, float] = {}

        def collect(log_probability, word, bindings):
            for option, probability in choices(word, bindings).items():
                weights[option] = weights.get(option, 0.0) + math.exp(log_probability) * probability

        for _ in self._walk(split_words(prefix), at_end=collect):
            pass
        if not weights:
            raise ValueError(f"no Tinytown story begins with {prefix!r}")
        total = sum(weights.values())
        return {word: weight / total for word, weight in sorted(weights.items(), key=lambda item: -item[1])}

    def entropy(self) -> float:
        """The entropy of Tinytown in nats per predicted token, the end of the story included: the loss of a perfect
        model.

        Exact, from the grammar: the expected information of all choices in a story, divided by the expected number of
        tokens."""
        nats, tokens = totals(grammar.START)
        return nats / tokens

    def story_length(self) -> float:
        """Expected number of predicted tokens in a story: its words, its punctuation and `<eos>`."""
        return totals(grammar.START)[1]

    @property
    def vocabulary(self) -> list[str]:
        """Every word and sign that Tinytown can say, sorted."""
        words = {word.literal for line in grammar.LINES for word in line.words if word.literal}
        words.update(*CLASSES.values())
        for relation in RELATIONS.values():
            for value in relation.values():
                words.update((value,) if isinstance(value, str) else value)
        return sorted(words)


@cache
def totals(plan: Plan, hero: tuple[Word, ...] = ()) -> tuple[float, float]:
    """(entropy in nats, expected predicted tokens) of what is still to come, by the chain rule over the lines and over
    every line's draws. `hero`: the draws of the opening."""
    lines = grammar.next_lines(plan)
    nats, tokens = 0.0, 0.0 if lines else 1.0  # 1.0 is <eos>
    for (line, later), probability in lines.items():
        later_nats, later_tokens = totals(later, hero or line.draws)
        nats += probability * (-math.log(probability) + line_entropy(line, hero) + later_nats)
        tokens += probability * (len(line.words) + later_tokens)
    return nats, tokens


@cache
def line_entropy(line: Line, hero: tuple[Word, ...]) -> float:
    """Entropy of a line's draws in nats, averaged over what earlier draws may hold."""
    draws = line.draws
    return sum(expected_entropy(draw, relevant(draw, hero + draws[:i]), {}) for i, draw in enumerate(draws))


def relevant(draw: Word, earlier: tuple[Word, ...]) -> list[Word]:
    """Those earlier draws on which this draw's choices depend, directly or not: the slot that it belongs to, and those
    that may take one of its words."""
    needed = [draw]
    for other in reversed(earlier):
        links = (word.source.startswith(f"{other.name}/") or support(other) & support(word) for word in needed)
        if any(links):
            needed.insert(0, other)
    return needed[:-1]


def expected_entropy(draw: Word, given: list[Word], bindings: Bindings) -> float:
    if not given:
        return -sum(probability * math.log(probability) for probability in choices(draw, bindings).values())
    return sum(
        probability * expected_entropy(draw, given[1:], bindings | {given[0].name: option})
        for option, probability in choices(given[0], bindings).items()
    )
