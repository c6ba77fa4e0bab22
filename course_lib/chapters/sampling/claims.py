"""Chapter 13's claims: what temperature, filters and greed do to text whose language is known exactly."""

import math
import statistics
from collections.abc import Iterable
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from course_lib.claims.registry import Finding, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained
from course_lib.sampling import generate, next_token_distribution
from course_lib.tinytown import Tinytown, WordTokenizer, encode_stories, join_words, split_words

SEEDS = (0, 1, 2)
SEVEN = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0])  # the course notes' logits for temperature
SURE = torch.tensor([5.0, 2.0, 1.0, 0.5, 0.1, -1.0, -2.0, -3.0])  # and their confident model


# ------------------------------------------------------------------------------------------------------- by hand
@experiment("sampling.nearly_uniform", claim="At temperature 2 a model chooses nearly uniformly.")
def nearly_uniform() -> Finding:
    """The notes' seven logits: how often the first word comes for each time that the last does, and the entropy."""
    p = next_token_distribution(SEVEN, temperature=2.0).double()
    ratio, entropy = (p[0] / p[-1]).item(), -(p * p.log()).sum().item()
    return Finding(
        measured=f"the first word comes {ratio:.1f} times as often as the last; "
        f"entropy {100 * entropy / math.log(7):.0f} % of its maximum",
        values=(ratio, entropy),
        verdict="refuted" if ratio > 2 else "confirmed",
        because="Entropy is flat near its maximum: almost reached, while one word is still several times as likely as "
        "another.",
    )


@experiment("sampling.sure_keeps", claim="With p = 0.9, a confident model keeps two or three tokens.")
def sure_keeps() -> Finding:
    kept = int((next_token_distribution(SURE, top_p=0.9) > 0).sum())
    favourite = SURE.softmax(dim=-1)[0].item()
    return Finding(
        measured=f"favourite {favourite:.2f}; top-p = 0.9 keeps {kept}",
        values=(float(kept),),
        verdict="confirmed" if kept in (2, 3) else "refuted",
        because="Top-p keeps the smallest set that reaches p, and the favourite alone has reached it.",
    )


# -------------------------------------------------------------------------------------------------------- greedy
def log_p(model: DecoderOnly, tokenizer: WordTokenizer, story: str) -> float:
    """ln p of a whole story under the model, its end included."""
    ids = torch.tensor([tokenizer.encode(story)])  # (1, T)
    with evaluating(model):
        return model(ids[:, :-1]).log_softmax(dim=-1).gather(-1, ids[:, 1:, None]).sum().item()


@cache
def _greedy_stories(n_tokens: int = 400) -> list[str]:
    """The whole stories in greedy text of that length, in order."""
    model, tokenizer = load_pretrained("tinytown")
    ids = cast(Tensor, generate(model, torch.tensor([[tokenizer.bos_id]]), n_tokens, temperature=0))
    words = " ".join(tokenizer.tokens[i] for i in ids[0].tolist())
    parts = [part.split("<eos>")[0] for part in words.split("<bos>")[1:] if "<eos>" in part]
    return [join_words(part.split()) for part in parts]


@experiment("sampling.most_probable", claim="Greedy decoding finds the most probable text.")
def most_probable() -> Finding:
    """ln p under the model: of the greedy story, and of a short story that anybody could write."""
    model, tokenizer = load_pretrained("tinytown")
    short = "once there was a queen called anna . she wore a diadem . then she went to bed ."
    greedy, other = log_p(model, tokenizer, _greedy_stories()[0]), log_p(model, tokenizer, short)
    return Finding(
        measured=f"ln p of the greedy story {greedy:.0f}, of a short one {other:.0f}",
        values=(greedy, other),
        verdict="refuted" if other > greedy else "depends",
        because="The best step each time is not the best text: each step is chosen without a look at what it leads to.",
    )


@experiment("sampling.circles", claim="Greedy decoding repeats itself.")
def circles() -> Finding:
    """Share of the stories in 400 greedy tokens that came before; words until a one-word table comes round."""
    stories = _greedy_stories()
    again = sum(story in stories[:n] for n, story in enumerate(stories)) / len(stories)
    tokenizer, rounds = WordTokenizer(), []
    for seed in SEEDS:
        ids = encode_stories(Tinytown(seed).sample(300), tokenizer)
        pairs = torch.zeros(len(tokenizer), len(tokenizer))  # how often b follows a
        pairs.index_put_((ids[:-1], ids[1:]), torch.tensor(1.0), accumulate=True)
        seen, word = [], tokenizer.bos_id
        while word not in seen:
            seen.append(word)
            word = int(pairs[word].argmax())
        rounds.append(float(len(seen)))
    return Finding(
        measured=f"{100 * again:.0f} % of the stories in 400 greedy tokens are repeats; a table that knows one word "
        f"back comes round within {max(rounds):.0f} words",
        values=tuple(rounds),
        verdict="confirmed" if again > 0 and max(rounds) <= len(tokenizer) else "refuted",
        because="A rule without chance that sees a limited past must go in circles once it meets the same past again.",
    )


# --------------------------------------------------------------------------------------------- filters and creativity
@cache
def _positions(seed: int, n_stories: int = 5) -> tuple[Tensor, Tensor]:
    """The model's logits and Tinytown's exact chances at every position of held-out stories: both (N, V)."""
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


def let_through(seed: int, temperature: float, most_lost: float = 0.01, **values: list[float]) -> float:
    """Least probability of impossible words that one kind of filter leaves while it loses at most `most_lost` of the
    true probability of the possible ones; both averaged over positions. values: top_k=[…], top_p=[…] or min_p=[…].
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


@experiment("sampling.top_p_better", claim="Top-p is generally better than top-k.")
def top_p_better() -> Finding:
    """Impossible words let through at a loss of at most 1 % of the possible ones, at T = 1 and T = 1.5."""
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
    """(share of texts that Tinytown could have said, number of different words in them), from "once there was a"."""
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


@experiment("sampling.creative", claim="A higher temperature makes a model more creative.")
def creative() -> Finding:
    """Different words in 30 texts of 25 more tokens, and the share that makes sense, at T = 0, 1 and 1.5."""
    found = {T: [sense_and_variety(T, seed) for seed in SEEDS] for T in (0, 1.0, 1.5)}
    sense = {T: statistics.fmean(pair[0] for pair in pairs) for T, pairs in found.items()}
    variety = {T: statistics.fmean(pair[1] for pair in pairs) for T, pairs in found.items()}
    gains = [variety[1.0] / variety[0] - 1, variety[1.5] / variety[1.0] - 1]
    return Finding(
        measured=f"T = 0, 1, 1.5: about {_tens(variety.values())} different words; "
        f"{_tens(100 * share for share in sense.values())} % of the texts make sense",
        values=tuple(pair[0] for pair in found[1.5]),
        verdict="confirmed" if min(gains) > 0.1 else "depends" if max(gains) > 0.1 else "refuted",
        because="At T = 0 all texts are one, here with a mistake. Up to T = 1 variety is cheap; beyond, hundreds of "
        "words that cannot come wake up together, and sense is the price.",
    )


def _tens(numbers: Iterable[float]) -> str:
    return ", ".join(str(10 * round(number / 10)) for number in numbers)
