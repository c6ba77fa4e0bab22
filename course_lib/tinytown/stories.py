"""Tinytown stories: a language small enough to compute every probability exactly.

Chapters 1, 12 and 13. The entropy of real text is unknown, so we cannot tell how far a model is from perfect. Tinytown
is a grammar that fits on one page. It generates short stories and computes the exact probability of each. The exact
entropy follows: the lowest expected loss that any model can reach.
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
    """Generate stories whose probabilities are known exactly.

    Args:
        seed: the same seed gives the same stories, on any machine and in any version of Python.

    Errors: TypeError if seed is not an integer.
    Source: this course. The grammar is in `course_lib/assets/tables/world.toml`.

    >>> town = Tinytown(seed=0)
    >>> story = next(town.stories())
    >>> -town.log_prob(story) / (len(split_words(story)) + 1)   # nats per predicted token; the + 1 is <eos>
    """

    def __init__(self, seed: int = 0):
        self.seed = require_seed(seed)

    def stories(self) -> Iterator[str]:
        """Yield stories without end. Each is a string such as "once there was a king called tom. he wore a crown. at
        last tom went home."."""
        random_source = random.Random(self.seed)
        while True:
            yield join_words(self._story(random_source))

    def sample(self, n: int) -> list[str]:
        """Return the first `n` stories."""
        return grammar.first(n, self.stories())

    @staticmethod
    def _story(random_source: random.Random) -> list[str]:
        words: list[str] = []
        hero: Bindings = {}  # the slots of the opening, which every later line can use
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

    # `log_prob`, `parse` and `next_word` all use this walk over every way in which the grammar can produce these words.
    @staticmethod
    def _walk(words: list[str], at_end=lambda *_: None) -> Iterator[tuple[float, list[Step]]]:
        """Yield every derivation of the complete text as (log probability, steps). At the end of the words, call
        `at_end(log_probability, word, bindings)` for each way in which the text can continue."""

        def follow(line, start, log_probability, bindings):
            """Match `line` with the text from `start`; return the log probability, or None if the text differs or ends
            first."""
            for i, word in enumerate(line.words, start):
                if i == len(words):
                    return at_end(log_probability, word, bindings)
                if word.source and words[i] not in support(word):  # faster than `choices`
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
        """Return ln P(story) in nats, exactly. A text that is not a Tinytown story has probability 0: −inf."""
        probabilities = [math.exp(log_probability) for log_probability, _ in self._walk(split_words(story))]
        return math.log(sum(probabilities)) if probabilities else -math.inf

    def parse(self, story: str) -> list[Step]:
        """Return the derivation of a story: which line produced which words, and the word in each slot.

        Errors: ValueError if the text is not a Tinytown story."""
        derivations = [steps for _, steps in self._walk(split_words(story))]
        if not derivations:
            raise ValueError(f"this is not a Tinytown story: {story!r}. Tinytown().sample(3) shows what one looks like")
        return derivations[0]  # there is only one, as the tests check

    def next_word(self, prefix: str = "") -> dict[str, float]:
        """Return the exact probability of each next word after `prefix`, the most probable first. `<eos>` is among them
        if the story can end here.

        Errors: ValueError if no story begins with `prefix`."""
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
        """Return the entropy of Tinytown in nats per predicted token, including `<eos>`: the expected loss of a perfect
        model.

        The value is exact: the expected information of all choices in a story, divided by the expected number of
        tokens."""
        nats, tokens = totals(grammar.START)
        return nats / tokens

    def story_length(self) -> float:
        """Return the expected number of predicted tokens in a story: words, punctuation and `<eos>`."""
        return totals(grammar.START)[1]

    @property
    def vocabulary(self) -> list[str]:
        """Return every word and punctuation mark of Tinytown, sorted."""
        words = {word.literal for line in grammar.LINES for word in line.words if word.literal}
        words.update(*CLASSES.values())
        for relation in RELATIONS.values():
            for value in relation.values():
                words.update((value,) if isinstance(value, str) else value)
        return sorted(words)


@cache
def totals(plan: Plan, hero: tuple[Word, ...] = ()) -> tuple[float, float]:
    """Return (entropy in nats, expected number of predicted tokens) of the rest of a story, by the chain rule over the
    lines and over the slots of each line. `hero`: the slots of the opening."""
    lines = grammar.next_lines(plan)
    nats, tokens = 0.0, 0.0 if lines else 1.0  # 1.0 is <eos>
    for (line, later), probability in lines.items():
        later_nats, later_tokens = totals(later, hero or line.draws)
        nats += probability * (-math.log(probability) + line_entropy(line, hero) + later_nats)
        tokens += probability * (len(line.words) + later_tokens)
    return nats, tokens


@cache
def line_entropy(line: Line, hero: tuple[Word, ...]) -> float:
    """Return the entropy of the slots of a line in nats, averaged over the possible words in earlier slots."""
    draws = line.draws
    return sum(expected_entropy(draw, relevant(draw, hero + draws[:i]), {}) for i, draw in enumerate(draws))


def relevant(draw: Word, earlier: tuple[Word, ...]) -> list[Word]:
    """Return the earlier slots on which the choices of this slot depend, directly or indirectly: the slot that it
    belongs to, and every slot that can take one of its words."""
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
