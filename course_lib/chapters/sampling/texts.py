"""Chapter 13's measurements of texts that a model has written: sense, variety and likelihood, and the first mistake."""

import math

import torch
from torch import Tensor

from course_lib.gpt import DecoderOnly
from course_lib.tinytown import Tinytown, WordTokenizer, split_words


def first_impossible(town: Tinytown, story: str) -> str:
    """Return the first word that is impossible at its position, with nine words before it, or "none"."""
    said = split_words(story)
    for i, word in enumerate(said):
        if word not in town.next_word(" ".join(said[:i])):
            return f"… {' '.join(said[max(0, i - 9) : i])} [{word}]"
    return "none"


@torch.no_grad()
def first_mistakes(model: DecoderOnly, tokenizer: WordTokenizer, ids: list[int]) -> list[tuple]:
    """Return a row for the first impossible word of each story in a text, without rows that have the same words.

    Each row: the word with nine words before it; the model's probability for it, for the most probable possible word
    and for all possible words together, predicted from the text before; and the number of possible words.
    """
    town, rows = Tinytown(), dict[str, tuple]()
    said: list[str] | None = []
    for t, i in enumerate(ids):
        if i == tokenizer.bos_id:
            said = []  # a new story; None: this one already has a mistake
        elif i != tokenizer.eos_id and said is not None:
            word, possible = tokenizer.tokens[i], town.next_word(" ".join(said))
            if word in possible:
                said.append(word)
                continue
            p = model(torch.tensor([ids[max(0, t - model.config.max_seq_len) : t]]))[0, -1].softmax(dim=-1)  # (V,)
            others = p[[tokenizer.id(other) for other in possible]]
            name = f"… {' '.join(said[-9:])} [{word}]"
            rows.setdefault(name, (name, p[i].item(), others.max().item(), others.sum().item(), len(possible)))
            said = None
    return list(rows.values())


def is_possible(town: Tinytown, tokenizer: WordTokenizer, ids: list[int]) -> bool:
    """Return whether Tinytown could have produced this text, finished or unfinished."""
    if tokenizer.eos_id in ids:
        return town.log_prob(tokenizer.decode(ids[: ids.index(tokenizer.eos_id)])) > -math.inf
    try:
        return bool(town.next_word(tokenizer.decode(ids)))
    except ValueError:  # no story of Tinytown begins like this
        return False


@torch.no_grad()
def measure(model: DecoderOnly, tokenizer: WordTokenizer, ids: Tensor, n: int) -> tuple[float, int, float]:
    """Return (sense, variety, likelihood) of the texts ids (B, S) after their first n tokens, up to their ends."""
    town, new = Tinytown(), ids[:, n:]  # (B, S − n)
    ends = new == tokenizer.eos_id  # a text that has ended is filled with <eos>
    counts = ends.cumsum(dim=1) - ends.int() == 0
    log_p = model(ids[:, :-1]).log_softmax(dim=-1).gather(-1, ids[:, 1:, None])[:, n - 1 :, 0]  # (B, S − n)
    sense = sum(is_possible(town, tokenizer, row) for row in ids.tolist()) / len(ids)
    return sense, len(new[counts].unique()), log_p[counts].mean().item()
