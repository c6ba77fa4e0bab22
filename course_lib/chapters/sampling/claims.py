"""Chapter 13's claims: what temperature, filters and greedy decoding do to text whose language is known exactly."""

import math
import statistics
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from course_lib.beam import beam_search
from course_lib.claims.registry import Measurement, Source, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained
from course_lib.sampling import generate, next_token_distribution
from course_lib.tinytown import Tinytown, WordTokenizer, join_words, split_words

SEEDS = (0, 1, 2)


def how_to_generate(place: str, quote: str) -> Source:
    return Source(
        "von Platen 2020",
        "How to generate text: using different decoding methods for language generation with Transformers",
        "https://huggingface.co/blog/how-to-generate",
        place=place,
        quote=quote,
    )


def holtzman(place: str, quote: str) -> Source:
    return Source(
        "Holtzman et al. 2020",
        "The Curious Case of Neural Text Degeneration",
        "https://arxiv.org/abs/1904.09751",
        place=place,
        quote=quote,
    )


@cache
def positions(seed: int, n_stories: int = 5) -> tuple[Tensor, Tensor]:
    """Return the model's logits and Tinytown's exact probabilities at every position of held-out stories: both (N,
    V)."""
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
    """Return the entropy at that temperature as a fraction of its maximum, ln V: logits (N, V) -> (N,)."""
    p = next_token_distribution(logits.double(), temperature)
    return torch.special.entr(p).sum(dim=-1) / math.log(logits.shape[-1])


def uniform_verdict() -> str:
    """Say why a measurement adds nothing to this claim.

    by construction: the entropy of softmax(logits / T) rises with T, whatever the logits, unless all of them are equal
    """
    return "by construction"


@experiment(
    "sampling.more_uniform",
    claim="Temperatures greater than 1 will result in more uniformly distributed token probabilities after applying "
    "the softmax",
    source=Source(
        "Raschka 2024",
        "Build a Large Language Model (From Scratch)",
        "https://github.com/rasbt/LLMs-from-scratch/blob/main/ch05/01_main-chapter-code/ch05.ipynb",
        place="§ 5.3.1",
        quote="Temperatures greater than 1 will result in more uniformly distributed token probabilities after "
        "applying the softmax",
    ),
    control="The same logits at T = 1, and a uniform choice among all tokens, which has the entropy ln V.",
    verdict=uniform_verdict,
    seeds=SEEDS,
)
def more_uniform() -> Measurement:
    """Measure the entropy at T = 1 and at T = 2 at every position of held-out stories."""
    cool, warm = ([entropy_share(positions(seed)[0], T) for seed in SEEDS] for T in (1.0, 2.0))
    assert all((two > one).all() for one, two in zip(cool, warm)), "the theorem is wrong, or this code"
    means = [torch.cat(shares).mean().item() for shares in (cool, warm)]
    return Measurement(
        measured=f"from T = 1 to T = 2 the entropy rises at every position, on average from {means[0]:.0%} to "
        f"{means[1]:.0%} of the entropy of a uniform choice",
        values=[shares.mean().item() for shares in warm],
        figures={},
        because="A higher T brings the logits closer together, so the entropy cannot fall, whatever the logits are. "
        "How much it rises is a measurement: at T = 2 the model is still far from uniform.",
    )


# -------------------------------------------------------------------------------------------------------------- filters
OPEN = 8  # the next word is open if at least this many words are possible


def kept(seed: int, **setting: Any) -> tuple[float, float]:
    """Return the mean number of tokens that a filter keeps, if Tinytown allows one word, and if it allows at least
    OPEN.
    """
    logits, truth = positions(seed)
    counts = (next_token_distribution(logits, **setting) > 0).sum(dim=-1).double()  # (N,)
    possible = (truth > 0).sum(dim=-1)
    return counts[possible == 1].mean().item(), counts[possible >= OPEN].mean().item()


def adapts_verdict(at_one: list[list[float]], at_two: list[list[float]]) -> str:
    """Compare the numbers of tokens kept, for each seed: where one word is possible, and where many are.

    A temperature passes if for each seed at most 2 tokens are kept where one word is possible, and at least 3 times
    that number where many are.

    confirmed: both T = 1 and T = 2 pass
    depends: one of them passes
    refuted: neither passes
    """
    passed = [all(one <= 2 and many >= 3 * one for one, many in found) for found in (at_one, at_two)]
    return "confirmed" if all(passed) else "depends" if any(passed) else "refuted"


@experiment(
    "sampling.sure_keeps",
    claim="Top-p keeps a wide range of words where the next word is less predictable, and only a few words where it is "
    "more predictable.",
    source=how_to_generate(
        "section on top-p",
        "It can be seen that it keeps a wide range of words where the next word is arguably less predictable, … and "
        "only a few words when the next word seems more predictable",
    ),
    control="Top-k at the same positions, with the k that keeps as many tokens as top-p does where many words are "
    "possible.",
    verdict=adapts_verdict,
    seeds=SEEDS,
)
def sure_keeps() -> Measurement:
    """Count the tokens that p = 0.9 keeps in held-out stories, by how many words the grammar allows at the position."""
    found = {T: [kept(seed, temperature=T, top_p=0.9) for seed in SEEDS] for T in (1.0, 2.0)}
    means = {T: [statistics.fmean(column) for column in zip(*pairs)] for T, pairs in found.items()}
    k = round(means[1.0][1])
    same = round(kept(SEEDS[0], top_k=k)[0])
    return Measurement(
        measured=f"where only one word is possible, top-p keeps {means[1.0][0]:.1f} tokens at T = 1, and "
        f"{means[2.0][0]:.0f} at T = 2",
        rows=(
            ("tokens kept where …", "one word is possible", f"{OPEN} or more words are possible"),
            ("top-p, p = 0.9, T = 1", f"{means[1.0][0]:.1f}", f"{k}"),
            ("top-p, p = 0.9, T = 2", f"{means[2.0][0]:.0f}", f"{means[2.0][1]:.0f}"),
            (f"top-k, k = {k}", f"{same}", f"{k}"),
        ),
        values=[many / one for one, many in found[1.0]],
        figures={"at_one": [list(pair) for pair in found[1.0]], "at_two": [list(pair) for pair in found[2.0]]},
        because="It depends on the temperature. Where only one word is possible, it has nearly all the probability at "
        "T = 1, so top-p keeps hardly any other. At T = 2 part of the probability is in the tail, even there.",
    )


# -------------------------------------------------------------------------------------------------------- greedy
def log_p(model: DecoderOnly, tokenizer: WordTokenizer, story: str) -> float:
    """Return ln p of an entire story under the model, including its end."""
    ids = torch.tensor([tokenizer.encode(story)])  # (1, T)
    with evaluating(model):
        return model(ids[:, :-1]).log_softmax(dim=-1).gather(-1, ids[:, 1:, None]).sum().item()


@cache
def _stories_in_a_row(temperature: float = 0, seed: int = 0, beginning: str = "", n_tokens: int = 400) -> list[str]:
    """Return the complete stories, in order, in a text of that length that continues after the end of a story."""
    model, tokenizer = load_pretrained("tinytown")
    start = torch.tensor([tokenizer.encode(beginning, end=False)])
    generator = torch.Generator().manual_seed(seed)
    ids = cast(Tensor, generate(model, start, n_tokens, temperature=temperature, generator=generator))
    words = " ".join(tokenizer.tokens[i] for i in ids[0].tolist())
    parts = [part.split("<eos>")[0] for part in words.split("<bos>")[1:] if "<eos>" in part]
    return [join_words(part.split()) for part in parts]


Text = tuple[float, int]  # ln p, number of words
STARTS = (
    "",
    *(f"once there was a {hero}" for hero in ("boy", "girl", "king", "man", "princess", "queen", "woman")),
    *(f"long ago there lived a {hero}" for hero in ("boy", "girl", "king", "man")),
)


def greedy_and_searched(beginning: str, n_beams: int = 16) -> tuple[Text, Text]:
    """Return the story that greedy decoding writes from a beginning, and the one that a beam search finds by mean ln
    p."""
    model, tokenizer = load_pretrained("tinytown")
    start = torch.tensor([tokenizer.encode(beginning, end=False)])
    room = model.config.max_seq_len - start.shape[1]
    ids = cast(Tensor, generate(model, start, room, temperature=0, stop=tokenizer.eos_id))
    found, _ = beam_search(model, start, room, n_beams=n_beams, stop=tokenizer.eos_id, length_penalty=1)

    def text(row: Tensor) -> Text:
        words = tokenizer.decode(row)
        return log_p(model, tokenizer, words), len(split_words(words))

    return text(ids[0]), text(found[0])


def hidden_verdict(greedy: Sequence[Sequence[float]], searched: Sequence[Sequence[float]]) -> str:
    """Compare ln p and length of the greedy text and of one that a wider search finds, for each beginning.

    confirmed: from at least 9 of 10 beginnings the searched text is more probable by a factor of e, and no shorter
    depends: from fewer, but from at least one
    refuted: from none
    """
    better = [other[0] > one[0] + 1 and other[1] >= one[1] for one, other in zip(greedy, searched)]
    return "confirmed" if statistics.fmean(better) >= 0.9 else "depends" if any(better) else "refuted"


@experiment(
    "sampling.most_probable",
    claim="Greedy search misses high probability words hidden behind a low probability word.",
    source=how_to_generate(
        "section on greedy search",
        "The major drawback of greedy search though is that it misses high probability words hidden behind a low "
        "probability word",
    ),
    control="The same model, beginnings and room for both. Only a text that is no shorter counts, because each further "
    "word lowers the probability.",
    verdict=hidden_verdict,
)
def most_probable() -> Measurement:
    """Measure ln p of the greedy story, and of the one that 16 beams find by mean ln p, from twelve beginnings."""
    greedy, searched = (list(column) for column in zip(*map(greedy_and_searched, STARTS)))
    better = [other[0] > one[0] + 1 for one, other in zip(greedy, searched)]
    longer = [other[1] >= one[1] for one, other in zip(greedy, searched)]
    both = sum(map(all, zip(better, longer)))
    return Measurement(
        measured=f"from {both} of {len(STARTS)} beginnings, 16 beams find a text that is clearly more probable than "
        "the greedy one and no shorter",
        rows=(
            ("with 16 beams the search finds", "beginnings"),
            ("a clearly more probable text, no shorter", f"{both}"),
            ("a clearly more probable text, but shorter", f"{sum(better) - both}"),
            ("none that is clearly more probable", f"{len(STARTS) - sum(better)}"),
        ),
        values=[other[0] - one[0] for one, other in zip(greedy, searched)],
        figures={"greedy": greedy, "searched": searched},
        because="It depends on the beginning. Where the first words of greedy search are a poor choice, the beams find "
        "a clearly more probable text that is no shorter. Elsewhere it is shorter, or not clearly more probable.",
    )


BEGINNINGS = ("once there was a king", "once there was a queen", "once there was a girl")


def repeated(temperature: float, seed: int, beginning: str = "", n_tokens: int = 400) -> float:
    """Return the fraction of the complete stories in this many tokens that repeat an earlier one word for word."""
    stories = _stories_in_a_row(temperature, seed, beginning, n_tokens)
    return sum(story in stories[:n] for n, story in enumerate(stories)) / len(stories)


def tokens_before_a_repeat(beginning: str = "") -> int:
    """Return the number of tokens of greedy text before the first story that repeats an earlier one word for word.

    Errors: ValueError if there is none.
    """
    stories = _stories_in_a_row(0, 0, beginning, 400)
    repeats = [n for n, story in enumerate(stories) if story in stories[:n]]
    if not repeats:
        raise ValueError(f"no story is repeated in 400 tokens from {beginning!r}")
    return sum(len(split_words(story)) + 2 for story in stories[: repeats[0]])  # 2: <bos> and <eos>


def circles_verdict(greedy: list[float], drawn: list[float]) -> str:
    """Compare the fraction of stories that are repeats, for each beginning: greedy, and sampled at T = 1.

    confirmed: at least a fifth of the greedy stories from each beginning, and less than half that fraction when sampled
    depends: some greedy stories are repeats, but fewer, or just as many when sampled
    refuted: no greedy story from any beginning is a repeat
    """
    if min(greedy) >= 0.2 and max(drawn) < min(greedy) / 2:
        return "confirmed"
    return "depends" if max(greedy) > 0 else "refuted"


@experiment(
    "sampling.circles",
    claim="With greedy search the model starts repeating itself.",
    source=how_to_generate(
        "section on greedy search",
        "The generated words following the context are reasonable, but the model quickly starts repeating itself! This "
        "is a very common problem in language generation in general and seems to be even more so in greedy and beam "
        "search",
    ),
    control="The same model, beginnings and number of tokens, with each token sampled at T = 1.",
    verdict=circles_verdict,
    seeds=SEEDS,
)
def circles() -> Measurement:
    """Measure the fraction of repeated stories in 400 tokens, greedy and sampled, from three beginnings."""
    greedy = [repeated(0, 0, beginning) for beginning in BEGINNINGS]
    drawn = [repeated(1.0, seed, beginning) for seed, beginning in zip(SEEDS, BEGINNINGS)]
    begins = [tokens_before_a_repeat(beginning) for beginning in BEGINNINGS]
    return Measurement(
        measured=f"in 400 tokens, {min(greedy):.0%} to {max(greedy):.0%} of the greedy stories repeat an earlier one, "
        f"and {max(drawn):.0%} of those sampled at T = 1",
        rows=(
            ("stories that repeat an earlier one", "greedy", "T = 1", "first greedy repeat after"),
            *(
                (f"{beginning} …", f"{one:.0%}", f"{other:.0%}", f"{after} tokens")
                for beginning, one, other, after in zip(BEGINNINGS, greedy, drawn, begins)
            ),
        ),
        values=greedy,
        figures={"greedy": greedy, "drawn": drawn},
        because="Without randomness the same context leads to the same next word. Our wording leaves out von Platen’s "
        "“quickly”: here the first repeat comes late, and the model sees only 96 tokens at a time.",
    )


# --------------------------------------------------------------------------------------------- filters and creativity
def let_through(
    seed: int, temperature: float, losses: Iterable[float] = (0.01,), **values: Iterable[float]
) -> list[float]:
    """Return for each limit in `losses` the least probability of impossible words that one kind of filter leaves.

    The filter may remove at most that much of the true probability of the possible words. Both are averaged over
    positions. values: top_k=[…], top_p=[…] or min_p=[…].
    """
    logits, truth = positions(seed)
    ((name, settings),) = values.items()
    found = []
    for setting in settings:
        chosen: dict[str, Any] = {name: setting}
        p = next_token_distribution(logits, temperature, **chosen)
        lost = (truth * (p == 0)).sum(dim=1).mean().item()
        found.append((lost, (p * (truth == 0)).sum(dim=1).mean().item()))
    return [min(left for lost, left in found if lost <= most) for most in losses]


TEMPERATURES = (0.7, 1.0, 1.5, 2.0)
MOST_LOST = (0.005, 0.01, 0.02)  # of the true probability of the possible words
FILTERS: dict[str, Any] = {"top_k": range(4, 140, 2), "top_p": [1 - 0.01 * i for i in range(40)]}


def constant_k_verdict(least_ratios: list[float]) -> str:
    """Compare the impossible words that top-k and top-p let through: the least ratio top-k / top-p over all seeds and
    loss limits, for each temperature.

    confirmed: top-k lets through at least a fifth more at every temperature
    depends: at some temperatures
    refuted: at none
    """
    worse = [ratio >= 1.2 for ratio in least_ratios]
    return "confirmed" if all(worse) else "depends" if any(worse) else "refuted"


@experiment(
    "sampling.top_p_better",
    claim="The use of a constant k is sub-optimal across varying contexts.",
    source=holtzman(
        "§ 3.2",
        "While top-k sampling leads to considerably higher quality text than either beam search or sampling from the "
        "full distribution, the use of a constant k is sub-optimal across varying contexts.",
    ),
    control="Top-p, which keeps a different number of tokens at each position. The logits and positions are the same, "
    "and each filter has its best setting among those that remove at most 0.5%, 1% or 2% of the true probability of "
    "the possible words.",
    verdict=constant_k_verdict,
    seeds=SEEDS,
)
def top_p_better() -> Measurement:
    """Measure the impossible words that top-k and top-p let through, at T = 0.7, 1, 1.5 and 2."""
    found = {
        T: {name: [let_through(seed, T, MOST_LOST, **{name: grid}) for seed in SEEDS] for name, grid in FILTERS.items()}
        for T in TEMPERATURES
    }
    least = [
        min(k / p for of_k, of_p in zip(each["top_k"], each["top_p"]) for k, p in zip(of_k, of_p))
        for each in found.values()
    ]
    middle = {
        T: [100 * statistics.fmean(row[1] for row in each[name]) for name in FILTERS] for T, each in found.items()
    }
    rows = [(f"T = {T:g}", *(f"{share:.1f}%" for share in shares)) for T, shares in middle.items()]
    (_, of_k, of_p) = rows[TEMPERATURES.index(1.5)]
    return Measurement(
        measured=f"at T = 1.5, {of_k} of the words sampled after top-k are impossible, and {of_p} after top-p",
        rows=(("impossible words, if at most 1% is lost", "top-k", "top-p"), *rows),
        values=[100 * row[1] for row in found[1.5]["top_p"]],
        figures={"least_ratios": least},
        because="It depends on the temperature. One k must serve positions with one possible word and with many, "
        "while p adapts. That matters where the tail is heavy; at T = 0.7 neither filter is ahead.",
    )


def sense_and_variety(temperature: float, seed: int, n_texts: int = 30, n_tokens: int = 25) -> tuple[float, int, int]:
    """Write texts from "once there was a". Return the fraction that Tinytown could have produced, the number of
    different words in them, and the number of different pairs of neighbouring words.
    """
    model, tokenizer = load_pretrained("tinytown")
    town = Tinytown()
    start = torch.tensor([tokenizer.encode("once there was a", end=False)] * n_texts)
    generator = torch.Generator().manual_seed(seed)
    ids = generate(model, start, n_tokens, temperature=temperature, stop=tokenizer.eos_id, generator=generator)
    sensible, words, pairs = 0, set(), set()
    for row in cast(Tensor, ids).tolist():
        text = row[: row.index(tokenizer.eos_id)] if tokenizer.eos_id in row else row
        words |= set(text)
        pairs |= set(pairwise(text))
        try:
            chances = town.next_word(tokenizer.decode(text))
            sensible += "<eos>" in chances or len(text) == len(row)
        except ValueError:  # no story begins like this
            pass
    return sensible / n_texts, len(words), len(pairs)


def creative_verdict(more_words: list[float], more_pairs: list[float], sense: list[float]) -> str:
    """Judge the growth in different words and in different pairs of words, from T = 0 to 1 and from 1 to 1.5, and the
    fraction of texts that make sense at T = 1 and at 1.5.

    confirmed: words and pairs grow by more than a tenth both times, and sense falls by less than a tenth from T = 1 to
        1.5
    depends: words or pairs grow by more than a tenth at least once, but not as above
    refuted: neither ever grows by more than a tenth
    """
    grown = [*more_words, *more_pairs]
    if min(grown) > 0.1 and sense[1] > sense[0] - 0.1:
        return "confirmed"
    return "depends" if max(grown) > 0.1 else "refuted"


@experiment(
    "sampling.creative",
    claim="Temperature is the creativity parameter of a language model: the higher, the more creative its texts.",
    source=Source(
        "Peeperkorn et al. 2024",
        "Is Temperature the Creativity Parameter of Large Language Models?",
        "https://arxiv.org/abs/2405.00492",
        place="abstract, which reports the claim and then doubts it",
        quote="The temperature parameter of an LLM regulates the amount of randomness, leading to more diverse "
        "outputs; therefore, it is often claimed to be the creativity parameter. … We find that temperature is weakly "
        "correlated with novelty, and unsurprisingly, moderately correlated with incoherence",
    ),
    control="The same model, beginning, seeds, number and length of texts. In addition to the different words, we "
    "count the texts that Tinytown could have produced.",
    verdict=creative_verdict,
    seeds=SEEDS,
)
def creative() -> Measurement:
    """Count the different words and pairs of words in 30 texts of 25 new tokens, and the fraction of texts that make
    sense, at T = 0, 1 and 1.5.
    """
    found = {T: [sense_and_variety(T, seed) for seed in SEEDS] for T in (0, 1.0, 1.5)}
    sense = [statistics.fmean(seed[0] for seed in seeds) for seeds in found.values()]
    words, pairs = ([statistics.fmean(seed[i] for seed in seeds) for seeds in found.values()] for i in (1, 2))
    more_words, more_pairs = ([later / before - 1 for before, later in pairwise(each)] for each in (words, pairs))
    return Measurement(
        measured=f"about {_ten(100 * sense[1])}% of the texts make sense at T = 1, and about {_ten(100 * sense[2])}% "
        "at T = 1.5",
        rows=(
            ("rounded to tens", *(f"T = {T:g}" for T in found)),
            ("different words", *map(_ten, words)),
            ("different pairs of words", *map(_ten, pairs)),
            ("texts that make sense", *(f"{_ten(100 * each)}%" for each in sense)),
        ),
        values=[seed[0] for seed in found[1.5]],
        figures={"more_words": more_words, "more_pairs": more_pairs, "sense": sense[1:]},
        because="It depends on where you start. From T = 0 to T = 1 variety grows, and most texts make sense. From T = "
        "1 to 1.5 variety hardly changes, and impossible words spoil half of the texts.",
    )


def _ten(number: float) -> str:
    return str(10 * round(number / 10))
