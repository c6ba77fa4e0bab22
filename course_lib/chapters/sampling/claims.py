"""Chapter 13's claims: what temperature, filters and greed do to text whose language is known exactly."""

import math
import statistics
from collections.abc import Iterable
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from course_lib.beam import beam_search
from course_lib.claims.registry import Finding, Source, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained
from course_lib.sampling import generate, next_token_distribution
from course_lib.tinytown import Tinytown, WordTokenizer, join_words, split_words

SEEDS = (0, 1, 2)

HOW_TO_GENERATE = Source(
    "von Platen 2020",
    "How to generate text: using different decoding methods for language generation with Transformers",
    "https://huggingface.co/blog/how-to-generate",
)


@cache
def _positions(seed: int, n_stories: int = 5) -> tuple[Tensor, Tensor]:
    """Return the model's logits and Tinytown's exact chances at every position of held-out stories: both (N, V)."""
    model, tokenizer = load_pretrained("tinytown")
    town, logits, truth = Tinytown(), [], []
    for story in Tinytown(HELD_OUT_SEED + seed).sample(n_stories):
        words = split_words(story)
        with evaluating(model):
            logits.append(model(torch.tensor([tokenizer.encode(story)[:-1]]))[0])  # (T, V)
        for t in range(len(words) + 1):
            exact = town.next_word(join_words(words[:t]))
            truth.append([exact.get(token, 0.0) for token in tokenizer.tokens])
    return torch.cat(logits), torch.tensor(truth)


# --------------------------------------------------------------------------------------------------------- temperature
def entropy_share(logits: Tensor, temperature: float) -> Tensor:
    """Return the entropy at that temperature as a share of the largest, ln V: logits (N, V) -> (N,)."""
    p = next_token_distribution(logits.double(), temperature)
    return torch.special.entr(p).sum(dim=-1) / math.log(logits.shape[-1])


@experiment(
    "sampling.more_uniform",
    claim="Temperatures above 1 make the probabilities of the next token more uniform.",
    source=Source(
        "Raschka 2024",
        "Build a Large Language Model (From Scratch), § 5.3.1",
        "https://github.com/rasbt/LLMs-from-scratch/blob/main/ch05/01_main-chapter-code/ch05.ipynb",
    ),
    control="The same logits at T = 1; and what a uniform choice would give, entropy ln V.",
    threshold="Confirmed if the entropy rises from T = 1 to T = 2 at every position of the stories, refuted if it "
    "falls at every one, else it depends.",
    seeds=SEEDS,
)
def more_uniform() -> Finding:
    """Measure the trained model's logits at every position of held-out stories: entropy at T = 1 and at T = 2."""
    cool, warm = ([entropy_share(_positions(seed)[0], T) for seed in SEEDS] for T in (1.0, 2.0))
    rises = torch.cat([two > one for one, two in zip(cool, warm)])
    means = [torch.cat(shares).mean().item() for shares in (cool, warm)]
    return Finding(
        measured=f"entropy rises at {rises.double().mean():.0%} of the positions, on average from {means[0]:.0%} to "
        f"{means[1]:.0%} of that of a uniform choice",
        values=tuple(shares.mean().item() for shares in warm),
        verdict="confirmed" if rises.all() else "depends" if rises.any() else "refuted",
        because="T divides the differences of the logits, which are all that counts. More uniform is far from uniform: "
        "that is the limit of T without bound.",
    )


# -------------------------------------------------------------------------------------------------------------- filters
OPEN = 8  # possible words: where at least so many may follow, the next word is open


def kept(seed: int, **setting: Any) -> tuple[float, float]:
    """Return the mean number of tokens that a filter keeps: where Tinytown allows one word, and where it allows at
    least OPEN.
    """
    logits, truth = _positions(seed)
    counts = (next_token_distribution(logits, **setting) > 0).sum(dim=-1).double()  # (N,)
    possible = (truth > 0).sum(dim=-1)
    return counts[possible == 1].mean().item(), counts[possible >= OPEN].mean().item()


@experiment(
    "sampling.sure_keeps",
    claim="Top-p keeps only a few words where the next one is predictable, and a wide range where it is not.",
    source=HOW_TO_GENERATE,
    control="Top-k at the same positions, with the k that keeps as many tokens as top-p does where the word is open.",
    threshold="Confirmed if in every seed top-p keeps at most 2 tokens on average where one word is possible, and at "
    f"least 3 times as many where at least {OPEN} are; refuted if it keeps as many or more where one is; else it "
    "depends.",
    seeds=SEEDS,
)
def sure_keeps() -> Finding:
    """Measure p = 0.9 at positions of held-out stories, sorted by how many words the grammar allows there."""
    found = [kept(seed, top_p=0.9) for seed in SEEDS]
    sure, unsure = (statistics.fmean(column) for column in zip(*found))
    same = round(kept(SEEDS[0], top_k=round(unsure))[0])
    adapts = all(one <= 2 and many >= 3 * one for one, many in found)
    return Finding(
        measured=f"p = 0.9 keeps {sure:.1f} tokens where one word is possible, {unsure:.0f} where at least {OPEN} are; "
        f"top-k = {round(unsure)} keeps {same} at both",
        values=tuple(many / one for one, many in found),
        verdict="confirmed" if adapts else "refuted" if all(many <= one for one, many in found) else "depends",
        because="The favourite alone may reach p; an even distribution needs most of its tokens to reach it. A fixed k "
        "cannot tell the two apart.",
    )


# -------------------------------------------------------------------------------------------------------- greedy
def log_p(model: DecoderOnly, tokenizer: WordTokenizer, story: str) -> float:
    """Return ln p of a whole story under the model, its end included."""
    ids = torch.tensor([tokenizer.encode(story)])  # (1, T)
    with evaluating(model):
        return model(ids[:, :-1]).log_softmax(dim=-1).gather(-1, ids[:, 1:, None]).sum().item()


@cache
def _stories_in_a_row(temperature: float = 0, seed: int = 0, n_tokens: int = 400) -> list[str]:
    """Return the whole stories in a text of that length, which does not stop where a story ends, in order."""
    model, tokenizer = load_pretrained("tinytown")
    start, generator = torch.tensor([[tokenizer.bos_id]]), torch.Generator().manual_seed(seed)
    ids = cast(Tensor, generate(model, start, n_tokens, temperature=temperature, generator=generator))
    words = " ".join(tokenizer.tokens[i] for i in ids[0].tolist())
    parts = [part.split("<eos>")[0] for part in words.split("<bos>")[1:] if "<eos>" in part]
    return [join_words(part.split()) for part in parts]


@experiment(
    "sampling.most_probable",
    claim="Greedy search misses more probable texts that are hidden behind a less probable word.",
    source=HOW_TO_GENERATE,
    control="The same model gives every text its ln p; one of the texts held against the greedy one is longer than it, "
    "so that length alone cannot explain the difference.",
    threshold="Confirmed if a text that is no shorter has a ln p higher by more than 1; depends if only a shorter one "
    "has; refuted if none.",
)
def most_probable() -> Finding:
    """Measure ln p under the model: of the greedy story, of what 16 beams find by mean, and of a short story made by
    hand.
    """
    model, tokenizer = load_pretrained("tinytown")
    start = torch.tensor([[tokenizer.bos_id]])
    ids, _ = beam_search(model, start, 60, n_beams=16, stop=tokenizer.eos_id, length_penalty=1)
    texts = [_stories_in_a_row()[0], tokenizer.decode(ids[0])]
    texts.append("once there was a queen called anna . she wore a diadem . then she went to bed .")
    (greedy, words), long, short = ((log_p(model, tokenizer, text), len(split_words(text))) for text in texts)
    hidden = long[0] > greedy + 1 and long[1] >= words
    return Finding(
        measured=f"ln p of the greedy story {greedy:.0f} ({words} words), of one that 16 beams find {long[0]:.0f} "
        f"({long[1]} words), of a short one {short[0]:.0f} ({short[1]} words)",
        values=(greedy, long[0], short[0]),
        verdict="confirmed" if hidden else "depends" if short[0] > greedy + 1 else "refuted",
        because="The best step each time is not the best text: each step is chosen without a look at what it leads to.",
    )


def repeated(temperature: float, seed: int, n_tokens: int = 400) -> float:
    """Return the share of the whole stories in that many tokens, written one after the other, that came before word for
    word.
    """
    stories = _stories_in_a_row(temperature, seed, n_tokens)
    return sum(story in stories[:n] for n, story in enumerate(stories)) / len(stories)


@experiment(
    "sampling.circles",
    claim="With greedy search a model quickly starts repeating itself.",
    source=HOW_TO_GENERATE,
    control="The same model, beginning and number of tokens, but each token drawn at T = 1.",
    threshold="Confirmed if at least a fifth of the greedy stories are repeats and in every seed less than half as "
    "many of the drawn ones; refuted if none of the greedy ones is; else it depends.",
    seeds=SEEDS,
)
def circles() -> Finding:
    """Measure the share of the stories in 400 tokens that came before, greedy and drawn."""
    greedy, drawn = repeated(0, SEEDS[0]), [repeated(1.0, seed) for seed in SEEDS]
    confirmed = greedy >= 0.2 and max(drawn) < greedy / 2
    return Finding(
        measured=f"repeats among the stories in 400 tokens: greedy {100 * greedy:.0f} %, drawn at T = 1 "
        f"{100 * statistics.fmean(drawn):.0f} %",
        values=(greedy, *drawn),
        verdict="confirmed" if confirmed else "depends" if greedy > 0 else "refuted",
        because="A rule without chance that sees a limited past must go in circles once it meets the same past again.",
    )


# --------------------------------------------------------------------------------------------- filters and creativity
def let_through(seed: int, temperature: float, most_lost: float = 0.01, **values: list[float]) -> float:
    """Return the least probability of impossible words that one kind of filter leaves while it loses at most
    `most_lost` of the true probability of the possible ones; both averaged over positions. values: top_k=[…], top_p=[…]
    or min_p=[…].
    """
    logits, truth = _positions(seed)
    ((name, settings),) = values.items()
    left = []
    for setting in settings:
        chosen: dict[str, Any] = {name: setting}
        p = next_token_distribution(logits, temperature, **chosen)
        if (truth * (p == 0)).sum(dim=1).mean() <= most_lost:
            left.append((p * (truth == 0)).sum(dim=1).mean().item())
    return min(left)


@experiment(
    "sampling.top_p_better",
    claim="Nucleus sampling (top-p) is the best decoding strategy, better than top-k.",
    source=Source(
        "Holtzman et al. 2020",
        "The Curious Case of Neural Text Degeneration, abstract",
        "https://arxiv.org/abs/1904.09751",
    ),
    control="The same logits at the same positions; each filter at its best setting among those that lose at most 1 % "
    "of the true probability of the possible words.",
    threshold="Better is: at least half a per cent fewer of the draws are impossible words. Confirmed if top-p is "
    "better at T = 1 and at T = 1.5, depends if at one of them, refuted if at neither.",
    seeds=SEEDS,
)
def top_p_better() -> Finding:
    """Measure impossible words let through at a loss of at most 1 % of the possible ones, at T = 1 and T = 1.5."""
    grids: dict[str, Any] = {"top_k": list(range(4, 100, 2)), "top_p": [1 - 0.01 * i for i in range(40)]}
    found = {
        T: {name: [100 * let_through(seed, T, **{name: grid}) for seed in SEEDS] for name, grid in grids.items()}
        for T in (1.0, 1.5)
    }
    k, p = ({T: statistics.fmean(each[name]) for T, each in found.items()} for name in grids)
    matters = [k[T] - p[T] > 0.5 for T in found]  # half a per cent of the draws
    return Finding(
        measured=f"draws that are impossible words: at T = 1 {k[1.0]:.1f} % with top-k, {p[1.0]:.1f} % with top-p; "
        f"at T = 1.5 {k[1.5]:.1f} % and {p[1.5]:.1f} %",
        values=tuple(found[1.5]["top_p"]),
        verdict="confirmed" if all(matters) else "depends" if any(matters) else "refuted",
        because="One k must serve places with one possible word and places with sixteen, and p adapts; but where the "
        "model hardly errs, a filter has little to do.",
    )


def sense_and_variety(temperature: float, seed: int, n_texts: int = 30, n_tokens: int = 25) -> tuple[float, int]:
    """Return (share of texts that Tinytown could have said, number of different words in them), from "once there was
    a".
    """
    model, tokenizer = load_pretrained("tinytown")
    town = Tinytown()
    start = torch.tensor([tokenizer.encode("once there was a", end=False)] * n_texts)
    generator = torch.Generator().manual_seed(seed)
    ids = generate(model, start, n_tokens, temperature=temperature, stop=tokenizer.eos_id, generator=generator)
    sensible, words = 0, set()
    for row in cast(Tensor, ids).tolist():
        text = row[: row.index(tokenizer.eos_id)] if tokenizer.eos_id in row else row
        words |= set(text)
        try:
            chances = town.next_word(tokenizer.decode(text))
            sensible += "<eos>" in chances or len(text) == len(row)
        except ValueError:  # no story begins like this
            pass
    return sensible / n_texts, len(words)


@experiment(
    "sampling.creative",
    claim="Temperature is a language model's creativity parameter: the higher, the more creative.",
    source=Source(
        "Peeperkorn et al. 2024",
        "Is Temperature the Creativity Parameter of Large Language Models?, abstract (a common claim, which they test)",
        "https://arxiv.org/abs/2405.00492",
    ),
    control="The same model, beginning, seeds, number and length of texts; beside the different words, the share of "
    "the texts that Tinytown could have told.",
    threshold="Confirmed if the number of different words grows by more than a tenth from T = 0 to 1 and from 1 to 1.5 "
    "while the share of texts that make sense falls by less than a tenth; refuted if the words grow in neither; else "
    "it depends.",
    seeds=SEEDS,
)
def creative() -> Finding:
    """Count the different words in 30 texts of 25 more tokens, and the share that makes sense, at T = 0, 1 and 1.5."""
    found = {T: [sense_and_variety(T, seed) for seed in SEEDS] for T in (0, 1.0, 1.5)}
    sense = {T: statistics.fmean(pair[0] for pair in pairs) for T, pairs in found.items()}
    variety = {T: statistics.fmean(pair[1] for pair in pairs) for T, pairs in found.items()}
    gains = [variety[1.0] / variety[0] - 1, variety[1.5] / variety[1.0] - 1]
    kept_sense = sense[1.5] > sense[1.0] - 0.1
    return Finding(
        measured=f"T = 0, 1, 1.5: about {_tens(variety.values())} different words; "
        f"{_tens(100 * share for share in sense.values())} % of the texts make sense",
        values=tuple(pair[0] for pair in found[1.5]),
        verdict="confirmed" if min(gains) > 0.1 and kept_sense else "depends" if max(gains) > 0.1 else "refuted",
        because="At T = 0 all texts are the same, here with a mistake. At T = 1 they vary, and most make sense. At "
        "1.5 words that cannot come, each one rare, together spoil half of the texts.",
    )


def _tens(numbers: Iterable[float]) -> str:
    return ", ".join(str(10 * round(number / 10)) for number in numbers)
