"""Text: Tinytown, a world small enough to know exactly; tokenizers; batches.

Chapters 1, 12 and 13. Real text has an entropy that nobody knows, so nobody can say how far a model is from perfect.
Tinytown is a grammar that fits on two screens (`OPENINGS`, `BEATS`, `CLOSINGS` below). It writes short stories, gives
the exact probability of each, and so its exact entropy: the loss that no model can beat.

How a story is made: an opening introduces somebody; then beats follow, no topic twice, until a closing sentence ends
it. A beat is a line of words and slots. `{animal:animal}` draws a word of the class `animal` and remembers it as
`animal`; `{animal}` says it again; `{animal/sound}` says what belongs to it. A draw never takes a word that its line,
or the hero, has drawn already; only the hero's role may come again, for a king may meet a king.
"""

import math
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import islice

import torch
from torch import Tensor

# ------------------------------------------------------------------------------------------------------------ the world
MEN = ("tom", "ben", "max", "leo", "sam", "jack", "hugo", "paul", "adam", "felix")
WOMEN = ("anna", "emma", "lily", "mia", "zoe", "clara", "ruth", "nina", "julia", "alice")
#             word        gender  age      rank
ROLES = {
    "man": ("he", "adult", "common"),
    "woman": ("she", "adult", "common"),
    "boy": ("he", "child", "common"),
    "girl": ("she", "child", "common"),
    "king": ("he", "adult", "royal"),
    "queen": ("she", "adult", "royal"),
    "prince": ("he", "child", "royal"),
    "princess": ("she", "child", "royal"),
}
ANIMAL_SOUNDS = {
    "cat": "meow", "dog": "woof", "cow": "moo", "duck": "quack", "pig": "oink", "horse": "neigh", "lion": "roar", "mouse": "squeak",
    "frog": "ribbit", "bird": "tweet", "wolf": "awoo", "snake": "hiss", "donkey": "heehaw", "owl": "hoot", "goat": "maa", "hen": "cluck",
}  # fmt: skip
CAPITALS = {
    "france": "paris", "italy": "rome", "spain": "madrid", "germany": "berlin", "japan": "tokyo", "england": "london",
    "portugal": "lisbon", "norway": "oslo", "greece": "athens", "egypt": "cairo", "russia": "moscow", "austria": "vienna",
    "poland": "warsaw", "ireland": "dublin", "sweden": "stockholm", "peru": "lima",
}  # fmt: skip
OPPOSITES = {"big": "small", "tall": "short", "fast": "slow", "loud": "quiet", "heavy": "light", "rich": "poor", "strong": "weak", "young": "old"}  # fmt: skip
REACTIONS = {"happy": "sang", "scared": "hid", "angry": "shouted", "bored": "yawned", "proud": "smiled", "thirsty": "drank", "lonely": "wept", "surprised": "laughed"}  # fmt: skip
GEAR = {"rainy": "umbrella", "cold": "coat", "sunny": "sunglasses", "windy": "scarf", "snowy": "sled"}
ATTACKS = {
    "bit": "bite",
    "chased": "chase",
    "kicked": "kick",
    "pushed": "push",
    "followed": "follow",
    "scratched": "scratch",
}

# A class is the set of words a slot may draw. Equal chances, unless weights are given.
CLASSES: dict[str, tuple[str, ...] | dict[str, float]] = {
    "role": tuple(ROLES),
    "name": MEN + WOMEN,
    "animal": tuple(ANIMAL_SOUNDS),
    "animals": tuple({"mouse": "mice", "wolf": "wolves"}.get(animal, animal + "s") for animal in ANIMAL_SOUNDS),
    "creature": (*tuple(ANIMAL_SOUNDS), "farmer", "baker", "nurse", "teacher", "doctor", "sailor", "painter", "driver"),
    "thing": ("mat", "rug", "bed", "sofa", "chair", "box", "table", "bench", "pillow", "blanket"),
    "rest": ("sat", "lay", "slept", "rested"),
    "animal_adjective": ("tired", "sleepy", "hungry", "sick", "lazy", "sad", "nervous", "clever"),
    "thing_adjective": ("soft", "warm", "dry", "clean", "flat", "new", "wide", "cosy"),
    "colour": ("red", "blue", "green", "yellow", "black", "white", "brown", "grey"),
    "attack": tuple(ATTACKS),
    "cry": ("cried", "screamed", "jumped", "trembled"),
    "country": tuple(CAPITALS),
    # Unequal on purpose: a long tail is what top-k and top-p are for.
    "food": {"pizza": 20, "soup": 15, "pasta": 12, "cake": 10, "rice": 8, "salad": 7, "bread": 6, "cheese": 5, "sushi": 4, "curry": 3, "tacos": 2, "honey": 1},
    "code": ("moon", "star", "sun", "tree", "river", "stone", "cloud", "leaf", "fire", "snow", "sand", "wind", "hill", "lake", "rain", "sea"),
    "gift": ("ball", "book", "cup", "kite", "key", "ring", "drum", "lamp", "spoon", "clock"),
    "weather": tuple(GEAR),
    "quality": tuple(OPPOSITES) + tuple(OPPOSITES.values()),
    "feeling": tuple(REACTIONS),
    "weekday": ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
    "royal": tuple(role for role, (_, _, rank) in ROLES.items() if rank == "royal"),
    "common": tuple(role for role, (_, _, rank) in ROLES.items() if rank == "common"),
    "adult": tuple(role for role, (_, age, _) in ROLES.items() if age == "adult"),
    "child": tuple(role for role, (_, age, _) in ROLES.items() if age == "child"),
    "royal_home": ("castle", "palace"),
    "common_home": ("house", "cottage"),
    "place": ("park", "garden", "market", "forest", "library", "station"),
    "number": ("two", "three", "four", "five"),
}  # fmt: skip

# A relation says what belongs to a word: one word, or a few to draw from.
RELATIONS: dict[str, dict[str, str | tuple[str, ...]]] = {
    "name": {role: MEN if pronoun == "he" else WOMEN for role, (pronoun, _, _) in ROLES.items()},
    "pronoun": {role: pronoun for role, (pronoun, _, _) in ROLES.items()} | dict.fromkeys(MEN, "he") | dict.fromkeys(WOMEN, "she"),
    "possessive": {role: "his" if pronoun == "he" else "her" for role, (pronoun, _, _) in ROLES.items()},
    "kind": {
        name: tuple(role for role, (pronoun, _, _) in ROLES.items() if (pronoun == "he") == (name in MEN))
        for name in MEN + WOMEN
    },
    "home": {role: ("castle", "palace") if rank == "royal" else ("house", "cottage") for role, (_, _, rank) in ROLES.items()},
    "hat": {role: ("crown", "diadem") if rank == "royal" else ("cap", "bonnet") for role, (_, _, rank) in ROLES.items()},
    "duty": {role: "school" if age == "child" else "work" for role, (_, age, _) in ROLES.items()},
    "sound": ANIMAL_SOUNDS,
    "capital": CAPITALS,
    "opposite": OPPOSITES | {right: left for left, right in OPPOSITES.items()},
    "act": REACTIONS,
    "gear": GEAR,
    "base": ATTACKS,
}  # fmt: skip

OPENINGS = (
    "once there was a {role:role} called {name:role/name} .",
    "long ago there lived a {role:role} called {name:role/name} .",
    "this is the story of a {role:role} called {name:role/name} .",
)
# Topic -> its lines. Every line of every topic is as likely as the next, among those whose topic is new and whose
# sentences still fit.
BEATS: dict[str, tuple[str, ...]] = {
    "home": (
        "{role/pronoun} lived in a {home:role/home} .",
        "{name} lived in a {shade:colour} {home:role/home} .",
    ),
    "hat": (
        "{role/pronoun} wore a {hat:role/hat} .",
        "{name} put on {role/possessive} {shade:colour} {hat:role/hat} .",
    ),
    "day": (
        "every {day:weekday} {name} went to {role/duty} .",
        "{role/pronoun} went to {role/duty} with {friend:name} every {day:weekday} .",
    ),
    # "it" is the animal when the animal can be so, and the thing when the thing can: the two lists of adjectives share
    # no word.
    "rest": (
        "the {animal:animal} {rest:rest} on the {thing:thing} because it was {why:animal_adjective} . yes , the {animal} was very {why} .",
        "the {animal:animal} {rest:rest} on the {thing:thing} because it was {why:thing_adjective} . yes , the {thing} was very {why} .",
        "the {shade:colour} {animal:animal} {rest:rest} on the {tint:colour} {thing:thing} because it was {why:animal_adjective} . yes , the {shade} {animal} was very {why} .",
        "the {shade:colour} {animal:animal} {rest:rest} on the {tint:colour} {thing:thing} because it was {why:thing_adjective} . yes , the {tint} {thing} was very {why} .",
        "the {animals:animals} {rest:rest} on the {thing:thing} because they were {why:animal_adjective} . yes , the {animals} were very {why} .",
        "the {animals:animals} {rest:rest} on the {thing:thing} because it was {why:thing_adjective} . yes , the {thing} was very {why} .",
    ),
    # Who did it to whom is in the order of the words alone.
    "bite": (
        "the {agent:creature} {did:attack} the {victim:creature} . so the {victim} {cry:cry} .",
        "the {agent:creature} {did:attack} the {victim:creature} . who {did} the {victim} ? it was the {agent} .",
        "the {agent:creature} {did:attack} the {victim:creature} . who did the {agent} {did/base} ? it was the {victim} .",
    ),
    "travel": (
        "{name} went to {country:country} . the capital of {country} is {country/capital} .",
        "{name} flew to {country:country} . {role/pronoun} saw {country/capital} , the capital of {country} .",
        "what is the capital of {country:country} ? it is {country/capital} .",
    ),
    "eat": (
        "{name} wanted to eat {food:food} .",
        "{name} wanted to eat {food:food} . but there was only {left:food} .",
    ),
    "say": (
        "{name} said : {first:code} {second:code} {third:code} . {friend:name} said it too : {first} {second} {third} .",
        "the {animal:animal} said {animal/sound} .",
    ),
    "give": (
        "{name} gave {friend:name} a {shade:colour} {gift:gift} . now {friend} has the {shade} {gift} .",
        "{friend:name} gave {name} a {shade:colour} {gift:gift} . now {name} has the {shade} {gift} .",
    ),
    "pet": (
        "{name} had a {animal:animal} . the {animal} was {mood:animal_adjective} .",
        "{name} had a {animal:animal} . {role/possessive} {animal} said {animal/sound} .",
        "{name} had {number:number} {animals:animals} . the {animals} were {mood:animal_adjective} .",
    ),
    "weather": (
        "it was a {weather:weather} day . so {name} took {role/possessive} {weather/gear} .",
        "it was a {weather:weather} {day:weekday} . so {role/pronoun} took {role/possessive} {weather/gear} .",
    ),
    "quality": (
        "the {animal:animal} was not {quality:quality} . it was {quality/opposite} .",
        "{name} was not {quality:quality} . {role/pronoun} was {quality/opposite} .",
    ),
    "mood": (
        "{name} was {feeling:feeling} , so {role/pronoun} {feeling/act} .",
        "{name} met {friend:name} in the {place:place} . {friend} said that {friend/pronoun} was {feeling:feeling} .",
        "{name} and {friend:name} were {feeling:feeling} , so they {feeling/act} .",
    ),
    # What the eight roles share is all that the world says of them: their gender, their rank, their age.
    "friend": (
        "{name} met {friend:name} . {friend} was a {guest:friend/kind} .",
        "{name} met a {guest:role} called {friend:guest/name} .",
    ),
    "court": (
        "in the {place:royal_home} {name} met a {guest:royal} .",
        "in the {place:common_home} {name} met a {guest:common} .",
    ),
    "company": (
        "at work {name} met a {guest:adult} .",
        "at school {name} met a {guest:child} .",
    ),
}  # fmt: skip
CLOSINGS = (
    "then {role/pronoun} went to bed .",
    "at last {name} went home .",
    "in the end {name} was happy .",
    "and that was the end of the day .",
)
MAX_BEAT_SENTENCES = 6  # with the opening and the closing, 3 to 8 sentences
STOP = 0.25  # chance that the closing follows, after each beat

SENTENCE_ENDS = frozenset(".?")


# ------------------------------------------------------------------------------------------------------ lines and slots
@dataclass(frozen=True)
class Word:
    """One word of a line: a literal; or a draw (`name` and `source` set); or a word said again or derived (`name`
    alone, `relation`)."""

    literal: str | None = None
    name: str | None = None
    source: str | None = None  # a class, or "slot/relation" with several words to draw from
    relation: str | None = None


@dataclass(frozen=True)
class Line:
    """A line of the grammar: its words, its topic (None for openings and closings) and the number of its sentences."""

    text: str
    words: tuple[Word, ...]
    topic: str | None
    sentences: int

    @staticmethod
    def parse(text: str, topic: str | None = None) -> "Line":
        words = []
        for piece in text.split():
            slot = re.fullmatch(r"\{(\w+)(?::([\w/]+))?(?:/(\w+))?\}", piece)
            words.append(Word(name=slot[1], source=slot[2], relation=slot[3]) if slot else Word(literal=piece))
        return Line(text, tuple(words), topic, sum(word.literal in SENTENCE_ENDS for word in words))

    @property
    def draws(self) -> tuple[Word, ...]:
        return tuple(word for word in self.words if word.source)


@dataclass(frozen=True)
class Step:
    """One line as it was said in a story: the line, where it starts (in words), and what its slots hold."""

    line: Line
    start: int
    bindings: dict[str, str]

    @property
    def said(self) -> list[tuple[int, Word, str]]:
        """(position in the story, the word of the line, the word said) for every word."""
        return [(self.start + i, word, _say(word, self.bindings)) for i, word in enumerate(self.line.words)]


Bindings = dict[str, str]
Plan = tuple[frozenset[str], int]  # topics used, sentences of beats still allowed

_OPENINGS = tuple(Line.parse(text) for text in OPENINGS)
_BEATS = tuple(Line.parse(text, topic) for topic, texts in BEATS.items() for text in texts)
_CLOSINGS = tuple(Line.parse(text) for text in CLOSINGS)


def _say(word: Word, bindings: Bindings) -> str:
    if word.literal is not None:
        return word.literal
    return RELATIONS[word.relation][bindings[word.name]] if word.relation else bindings[word.name]


def _choices(word: Word, bindings: Bindings) -> dict[str, float]:
    """What a draw may take, with probabilities: its class, or what belongs to an earlier word, less the words already
    drawn."""
    if "/" in word.source:
        slot, relation = word.source.split("/")
        options = RELATIONS[relation][bindings[slot]]
    else:
        options = CLASSES[word.source]
    weights = options if isinstance(options, dict) else dict.fromkeys(options, 1.0)
    taken = {said for slot, said in bindings.items() if slot != "role"}
    weights = {option: weight for option, weight in weights.items() if option not in taken}
    total = sum(weights.values())
    return {option: weight / total for option, weight in weights.items()}


@cache
def _next_lines(plan: Plan) -> list[tuple[float, Line]]:
    """The lines that may follow, with their probabilities. Closings end the story."""
    used, room = plan
    beats = [line for line in _BEATS if line.topic not in used and line.sentences <= room]
    stop = 0.0 if not used else STOP if beats else 1.0
    lines = [(stop / len(_CLOSINGS), line) for line in _CLOSINGS] if stop else []
    return lines + [((1 - stop) / len(beats), line) for line in beats]


def _after(plan: Plan, line: Line) -> Plan:
    used, room = plan
    return used | {line.topic}, room - line.sentences


_START: Plan = (frozenset(), MAX_BEAT_SENTENCES)


# ------------------------------------------------------------------------------------------------------------- Tinytown
class Tinytown:
    """The micro-world: an endless, seeded supply of stories whose probabilities are known exactly.

    Args:
        seed: same seed, same stories, on any machine and any Python.

    Errors: TypeError if seed is not an integer.
    Source: this course. The grammar is the text at the top of this module.

    >>> town = Tinytown(seed=0)
    >>> story = next(town.stories())
    >>> -town.log_prob(story) / (len(split_words(story)) + 1)   # nats per predicted token; the + 1 is <eos>
    """

    def __init__(self, seed: int = 0):
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"seed must be an integer, got {seed!r}")
        self.seed = seed

    def stories(self) -> Iterator[str]:
        """Stories without end, each a string such as "once there was a king called tom. he wore a crown. at last tom
        went home."."""
        random_source = random.Random(self.seed)
        while True:
            yield join_words(self._story(random_source))

    def sample(self, n: int) -> list[str]:
        """The first `n` stories."""
        if n < 0:
            raise ValueError(f"n must be at least 0, got {n}")
        return list(islice(self.stories(), n))

    @staticmethod
    def _story(random_source: random.Random) -> list[str]:
        def pick(options):  # `random()` alone is promised to give the same numbers in every Python
            target = random_source.random()
            for option, probability in options:
                target -= probability
                if target < 0:
                    return option
            return option  # rounding left a sliver: the last option takes it

        def say(line, bindings):
            for word in line.words:
                if word.source:
                    bindings[word.name] = pick(_choices(word, bindings).items())
                words.append(_say(word, bindings))

        words: list[str] = []
        hero: Bindings = {}
        say(pick((line, 1 / len(_OPENINGS)) for line in _OPENINGS), hero)
        plan = _START
        while True:
            line = pick((line, probability) for probability, line in _next_lines(plan))
            say(line, dict(hero))
            if line.topic is None:
                return words
            plan = _after(plan, line)

    # Every question about a text is one walk: follow all the ways in which the grammar could have said these words.
    @staticmethod
    def _walk(words: list[str], at_end=None) -> Iterator[tuple[float, list[Step]]]:
        """Every derivation of the whole text as (log probability, steps). `at_end(log_probability, word, bindings)` is
        called for each way in which the text can go on, where the words run out in the middle of the story."""

        def follow(line, start, log_probability, bindings):
            """Say `line` from `start` on; None if the text disagrees or ends first."""
            for i, word in enumerate(line.words):
                if start + i == len(words):
                    if at_end:
                        at_end(log_probability, word, bindings)
                    return None
                given = words[start + i]
                if word.source:
                    if given not in _support(word):  # the quick no, before the chances are worked out
                        return None
                    probability = _choices(word, bindings).get(given)
                    if not probability:
                        return None
                    bindings[word.name] = given
                    log_probability += math.log(probability)
                elif _say(word, bindings) != given:
                    return None
            return log_probability

        def beats(plan, hero, start, log_probability, steps):
            for probability, line in _next_lines(plan):
                bindings = dict(hero)
                result = follow(line, start, log_probability + math.log(probability), bindings)
                if result is None:
                    continue
                end, steps_now = start + len(line.words), [*steps, Step(line, start, bindings)]
                if line.topic is not None:
                    yield from beats(_after(plan, line), hero, end, result, steps_now)
                elif end == len(words):
                    if at_end:
                        at_end(result, Word(literal=EOS), bindings)
                    yield result, steps_now

        for opening in _OPENINGS:
            hero: Bindings = {}
            log_probability = follow(opening, 0, -math.log(len(_OPENINGS)), hero)
            if log_probability is not None:
                first = [Step(opening, 0, dict(hero))]
                yield from beats(_START, hero, len(opening.words), log_probability, first)

    def log_prob(self, story: str) -> float:
        """ln P(story) in nats, exact. A text that Tinytown cannot say has probability 0: −inf."""
        probabilities = [math.exp(log_probability) for log_probability, _ in self._walk(split_words(story))]
        return math.log(sum(probabilities)) if probabilities else -math.inf

    def parse(self, story: str) -> list[Step]:
        """The derivation of a story: which line said which words, and what each slot holds.

        Errors: ValueError if Tinytown cannot say this text."""
        derivations = [steps for _, steps in self._walk(split_words(story))]
        if not derivations:
            raise ValueError(
                f"this is not a Tinytown story: {story!r}. `Tinytown(seed).stories()` shows what one looks like."
            )
        return derivations[0]  # there is never a second one: the tests hold the grammar to that

    def next_word(self, prefix: str = "") -> dict[str, float]:
        """The exact probability of each word after `prefix`, most probable first; `<eos>` where the story may end.

        Errors: ValueError if no story begins like this."""
        weights: dict[str, float] = {}

        def collect(log_probability, word, bindings):
            options = _choices(word, bindings) if word.source else {_say(word, bindings): 1.0}
            for option, probability in options.items():
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
        nats, tokens = _story_totals()
        return nats / tokens

    def story_length(self) -> float:
        """Expected number of predicted tokens in a story: its words, its punctuation and `<eos>`."""
        return _story_totals()[1]

    @property
    def vocabulary(self) -> list[str]:
        """Every word and sign that Tinytown can say, sorted."""
        literals = {word.literal for line in _OPENINGS + _BEATS + _CLOSINGS for word in line.words if word.literal}
        drawn = {option for options in CLASSES.values() for option in options}
        related = {
            word
            for relation in RELATIONS.values()
            for value in relation.values()
            for word in ((value,) if isinstance(value, str) else value)
        }
        return sorted(literals | drawn | related)


@cache
def _story_totals() -> tuple[float, float]:
    """(entropy in nats, expected predicted tokens) of a whole story, by the chain rule over the plan and over every
    line's draws."""

    @cache
    def rest(plan: Plan) -> tuple[float, float]:
        nats = tokens = 0.0
        for probability, line in _next_lines(plan):
            later_nats, later_tokens = (0.0, 1.0) if line.topic is None else rest(_after(plan, line))  # 1.0 is <eos>
            nats += probability * (-math.log(probability) + _line_entropy(line, _OPENINGS[0].draws) + later_nats)
            tokens += probability * (len(line.words) + later_tokens)
        return nats, tokens

    nats, tokens = rest(_START)
    opening = math.log(len(_OPENINGS)) + sum(_line_entropy(line) for line in _OPENINGS) / len(_OPENINGS)
    return nats + opening, tokens + sum(len(line.words) for line in _OPENINGS) / len(_OPENINGS)


@cache
def _line_entropy(line: Line, hero: tuple[Word, ...] = ()) -> float:
    """Entropy of a line's draws in nats, averaged over what the hero's draws may hold."""
    entropy = 0.0
    for i, draw in enumerate(line.draws):
        entropy += _expected_entropy(draw, _relevant(draw, hero + line.draws[:i]), {})
    return entropy


def _relevant(draw: Word, earlier: tuple[Word, ...]) -> tuple[Word, ...]:
    """Those earlier draws on which this draw's choices depend: the slot that it belongs to, and those that may take one
    of its words."""
    needed: set[Word] = set()
    queue = [draw]
    while queue:
        current = queue.pop()
        before = earlier[: earlier.index(current)] if current in earlier else earlier
        for other in before:
            depends = current.source.startswith(f"{other.name}/") or _support(other) & _support(current)
            if depends and other not in needed:
                needed.add(other)
                queue.append(other)
    return tuple(word for word in earlier if word in needed)


def _expected_entropy(draw: Word, given: tuple[Word, ...], bindings: Bindings) -> float:
    if not given:
        return -sum(probability * math.log(probability) for probability in _choices(draw, bindings).values())
    first, *others = given
    return sum(
        probability * _expected_entropy(draw, tuple(others), bindings | {first.name: option})
        for option, probability in _choices(first, bindings).items()
    )


@cache
def _support(draw: Word) -> frozenset[str]:
    """Every word that a draw could ever take."""
    if "/" not in draw.source:
        return frozenset(CLASSES[draw.source])
    relation = RELATIONS[draw.source.split("/")[1]]
    return frozenset(word for options in relation.values() for word in options)


# ----------------------------------------------------------------------------------------------------------- tokenizers
PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"


def split_words(text: str) -> list[str]:
    """Words and punctuation marks, each by itself: "yes, it is." -> ["yes", ",", "it", "is", "."]."""
    return re.findall(r"<\w+>|\w+|[^\w\s]", text)


def join_words(words: Iterable[str]) -> str:
    """The inverse of `split_words`: no space before a punctuation mark."""
    return re.sub(r" ([.,:?!;])", r"\1", " ".join(words))


class WordTokenizer:
    """One token per word or punctuation mark. The vocabulary is fixed; the first three ids are `<pad>`, `<bos>`,
    `<eos>`.

    Args:
        words: the vocabulary, without the three special tokens; Tinytown's if left out.

    Errors: ValueError for a word outside the vocabulary (with the nearest ones) and for an id outside [0, V).
    """

    def __init__(self, words: Iterable[str] | None = None):
        words = Tinytown().vocabulary if words is None else list(words)
        if len(set(words)) != len(words):
            raise ValueError("words must not hold the same word twice")
        self.tokens = [PAD, BOS, EOS, *words]
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.pad_id, self.bos_id, self.eos_id = 0, 1, 2

    def __len__(self) -> int:
        return len(self.tokens)

    def id(self, token: str) -> int:
        """The id of one token."""
        if token not in self.ids:
            near = get_close_matches(token, self.tokens, n=3)
            hint = f"; near it: {', '.join(near)}" if near else ""
            raise ValueError(f"{token!r} is not among the {len(self)} tokens of this vocabulary{hint}")
        return self.ids[token]

    def encode(self, text: str, end: bool = True) -> list[int]:
        """`<bos>`, the words, `<eos>`. With end=False there is no `<eos>`: a prompt to be continued."""
        ids = [self.bos_id] + [self.id(token) for token in split_words(text.lower())]
        return [*ids, self.eos_id] if end else ids

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """The text of these ids (a list or a one-dimensional tensor), without the special tokens."""
        ids = [int(i) for i in ids]
        for i in ids:
            if not 0 <= i < len(self):
                raise ValueError(f"id {i} is outside the vocabulary: ids run from 0 to {len(self) - 1}")
        return join_words(self.tokens[i] for i in ids if i > self.eos_id)


class BytePairTokenizer:
    """Byte-pair encoding (Gage 1994; Sennrich et al. 2016), by the `tokenizers` package: start from bytes, then merge
    the commonest neighbours again and again. No text is ever outside its vocabulary.

    `BytePairTokenizer.train(text, vocab_size)` learns the merges; `encode`, `decode` and `pieces` use them.
    """

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, text: str, vocab_size: int = 512) -> "BytePairTokenizer":
        """Learn merges on `text` until there are `vocab_size` tokens, or nothing occurs twice. The 256 bytes are always
        there."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        if vocab_size < 256:
            raise ValueError(f"vocab_size must be at least 256, one token for each byte, got {vocab_size}")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size, initial_alphabet=alphabet, min_frequency=2, show_progress=False
        )
        tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
        return cls(tokenizer)

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text).ids

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        return self._tokenizer.decode([int(i) for i in ids])

    def pieces(self, text: str) -> list[str]:
        """The text of each token, in order; a character of several bytes that was split shows as �."""
        return [self._tokenizer.decode([i]) for i in self.encode(text)]


# -------------------------------------------------------------------------------------------------------------- batches
class Batches:
    """An endless supply of (inputs, targets) from one long row of token ids: targets are the inputs one step later.

    Args:
        ids: (N,) the whole text as ids.
        batch_size: rows in a batch.
        T: tokens in a row.
        generator: draws the places; same generator state, same batches.
        start_id: if given, every row begins at a token with this id (such as `<bos>`), so that a story is never cut at
            its front.

    Each batch: inputs (B, T), targets (B, T), both on the device of `ids`.
    Errors: ValueError if there are not T + 1 tokens, or no row of T + 1 tokens begins with start_id.
    """

    def __init__(
        self,
        ids: Tensor,
        batch_size: int,
        T: int,
        generator: torch.Generator | None = None,
        start_id: int | None = None,
    ):
        if ids.dim() != 1:
            raise ValueError(f"ids must be one row of token ids, shape (N,), got shape {tuple(ids.shape)}")
        if batch_size < 1 or T < 1:
            raise ValueError(f"batch_size and T must be at least 1, got batch_size={batch_size}, T={T}")
        if len(ids) < T + 1:
            raise ValueError(f"T={T} needs at least {T + 1} ids (a target for the last input), got {len(ids)}")
        self.ids, self.batch_size, self.T, self.generator = ids, batch_size, T, generator
        last = len(ids) - T  # the last place from which T + 1 tokens can be read, plus one
        self.starts = torch.arange(last) if start_id is None else (ids[:last] == start_id).nonzero().flatten().cpu()
        if len(self.starts) == 0:
            raise ValueError(f"no row of {T + 1} ids begins with start_id={start_id}")

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(self.starts), (self.batch_size,), generator=self.generator)
        places = self.starts[chosen, None] + torch.arange(self.T + 1)  # (B, T + 1)
        rows = self.ids[places.to(self.ids.device)]  # (B, T + 1)
        return rows[:, :-1], rows[:, 1:]


def encode_stories(stories: Iterable[str], tokenizer: WordTokenizer) -> Tensor:
    """All stories one after another as one row of ids (N,), each from `<bos>` to `<eos>`."""
    return torch.tensor([i for story in stories for i in tokenizer.encode(story)])
