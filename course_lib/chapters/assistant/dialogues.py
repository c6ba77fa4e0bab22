"""Dialogues of chapter 16: questions about Tinytown with their answers, written in a chat template."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.assistant import ASSISTANT, TEMPLATE, USER
from course_lib.tinytown import ANIMAL_SOUNDS, BOS, CAPITALS, EOS, PAD, WordTokenizer, split_words
from course_lib.tinytown.world import PAGE

SPEAKERS = ("<user>", "<assistant>")
HELD_OUT = {"capital": ("spain", "norway", "poland", "peru"), "sound": ("pig", "frog", "wolf", "goat")}
CREATURES = tuple(ANIMAL_SOUNDS)


@dataclass(frozen=True)
class Dialogue:
    """Hold one question with its answer, and which kind of question it is."""

    kind: str
    question: str
    answer: str


def chat_tokenizer() -> WordTokenizer:
    """Return Tinytown's tokenizer with two more tokens at the end: <user> and <assistant>."""
    return WordTokenizer([*WordTokenizer().tokens[3:], *SPEAKERS])


def capital(country: str) -> Dialogue:
    return Dialogue("capital", f"what is the capital of {country}?", f"it is {CAPITALS[country]}.")


def sound(animal: str) -> Dialogue:
    return Dialogue("sound", f"the {animal} said what?", f"the {animal} said {ANIMAL_SOUNDS[animal]}.")


def animal(which: str) -> Dialogue:
    """Ask for the same fact as `sound`, in the other direction."""
    return Dialogue("animal", f"who said {ANIMAL_SOUNDS[which]}?", f"the {which} said {ANIMAL_SOUNDS[which]}.")


def bite(agent: str, did: str, victim: str) -> Dialogue:
    """Ask about a sentence that the user says first: the answer has to be read."""
    return Dialogue("reading", f"the {agent} {did} the {victim}. who {did} the {victim}?", f"it was the {agent}.")


def capitals(countries: Sequence[str]) -> Dialogue:
    """Ask for several facts at once: the right answer is one of so many that guessing hardly ever finds it."""
    cities = " and ".join(CAPITALS[country] for country in countries)
    return Dialogue("capitals", f"what is the capital of {' and '.join(countries)}?", f"it is {cities}.")


def lists(n: int, seed: int, held_out: bool = False) -> list[Dialogue]:
    """Return n questions for the capitals of three countries each. With held_out, at least one of the three is held
    out; otherwise none is."""
    chance, made = random.Random(seed), list[Dialogue]()
    while len(made) < n:
        three = chance.sample(list(CAPITALS), 3)
        if any(country in HELD_OUT["capital"] for country in three) == held_out:
            made.append(capitals(three))
    return made


def dialogues(n: int, seed: int, held_out: bool = False) -> list[Dialogue]:
    """Return n questions, a quarter of each kind: about the facts of HELD_OUT, or about all others."""
    chance, kinds = random.Random(seed), ("capital", "sound", "animal", "reading")
    countries = [name for name in CAPITALS if (name in HELD_OUT["capital"]) == held_out]
    animals = [name for name in ANIMAL_SOUNDS if (name in HELD_OUT["sound"]) == held_out]
    made = []
    for i in range(n):
        kind = kinds[i % len(kinds)]
        if kind == "capital":
            made.append(capital(chance.choice(countries)))
        elif kind == "reading":
            agent, victim = chance.sample(CREATURES, 2)
            made.append(bite(agent, chance.choice(list(PAGE["attacks"])), victim))
        else:
            made.append({"sound": sound, "animal": animal}[kind](chance.choice(animals)))
    return made


def write(dialogue: Dialogue, with_answer: bool = True) -> tuple[list[str], list[int]]:
    """Return the tokens of a dialogue in the chat template, and who wrote each: <bos> <user> … <assistant> … <eos>."""
    question, answer = split_words(dialogue.question), [*split_words(dialogue.answer), EOS]
    words = [BOS, "<user>", *question, "<assistant>"]
    roles = [TEMPLATE, TEMPLATE, *[USER] * len(question), TEMPLATE]
    return (words + answer, roles + [ASSISTANT] * len(answer)) if with_answer else (words, roles)


def as_batch(written: list[Dialogue], tokenizer: WordTokenizer) -> tuple[Tensor, Tensor]:
    """Return ids and roles, both (B, T), of dialogues of any length: <pad> fills the shorter rows at the end."""
    rows = [write(dialogue) for dialogue in written]
    T = max(len(words) for words, _ in rows)
    ids = [[tokenizer.id(word) for word in words + [PAD] * (T - len(words))] for words, _ in rows]
    roles = [roles + [TEMPLATE] * (T - len(roles)) for _, roles in rows]
    return torch.tensor(ids), torch.tensor(roles)  # (B, T) both
