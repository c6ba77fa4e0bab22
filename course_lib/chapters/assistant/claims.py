"""Claims of chapter 16: what fine-tuning, rewards and preferences do to Tinytown's model."""

import math
import random
import statistics
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from course_lib.assistant import add_tokens, answer_targets, group_advantages, log_probs_of
from course_lib.chapters.assistant.dialogues import (
    HELD_OUT,
    Dialogue,
    animal,
    as_batch,
    capital,
    chat_tokenizer,
    dialogues,
    lists,
    sound,
    write,
)
from course_lib.chapters.assistant.methods import (
    Pairs,
    Result,
    Reward,
    base_model,
    best_of,
    compared,
    from_pairs,
    from_reward,
    frontier,
    good,
    learned_reward,
    learner,
    log_p,
    measure,
    tell,
    two_valued,
)
from course_lib.claims.rates import Best, at_best_rate
from course_lib.claims.registry import Measurement, Size, Source, experiment
from course_lib.gpt import IGNORED, DecoderOnly, evaluating
from course_lib.sampling import generate
from course_lib.tinytown import ANIMAL_SOUNDS, CAPITALS, WordTokenizer

SEEDS = (0, 1, 2)


def gao(place: str, quote: str) -> Source:
    return Source(
        "Gao et al. 2023",
        "Scaling Laws for Reward Model Overoptimization",
        "https://arxiv.org/abs/2210.10760",
        place=place,
        quote=quote,
    )


CHAT = chat_tokenizer()
Make = Callable[[int, int], list[Dialogue]]  # (how many, seed) -> dialogues


# ----------------------------------------------------------------------------------------------------------- dialogues
def tuned(
    start: DecoderOnly, steps: int, rate: float, seed: int, batch: int = 32, make: Make = dialogues
) -> DecoderOnly:
    """Return a copy of the model after fine-tuning on dialogues about all facts that are not held out."""
    model, chance = learner(start), random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    for step in range(steps):
        ids, roles = as_batch(make(batch, chance.randrange(2**31)), CHAT)
        targets = answer_targets(ids, roles)  # (B, T)
        loss = -log_probs_of(model, ids, targets).sum() / (targets != IGNORED).sum()
        _update(model, optimizer, loss, rate * (1 - step / steps))
    return model.eval()


def _update(model: DecoderOnly, optimizer: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
    optimizer.param_groups[0]["lr"] = rate
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def answers(
    model: DecoderOnly, asked: Sequence[Dialogue], n: int, generator: Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Return n answers to each question, with the template, as ids (G · n, T), and whether each is right (G, n).

    The questions must be of one kind: then all have the same number of tokens. Without a generator, the answers are
    greedy.
    """
    prompts = torch.tensor([[CHAT.id(word) for word in write(each, with_answer=False)[0]] for each in asked])  # (G, P)
    whole = torch.tensor([[CHAT.id(word) for word in write(each)[0]] for each in asked])  # (G, T)
    temperature = 1.0 if generator else 0.0
    given = generate(
        model,
        prompts.repeat_interleave(n, dim=0),
        whole.shape[1] - prompts.shape[1],
        temperature=temperature,
        stop=CHAT.eos_id,
        generator=generator,
    )
    assert isinstance(given, Tensor)  # not a stream
    given = F.pad(given, (0, whole.shape[1] - given.shape[1]), value=CHAT.eos_id)
    return given, (given == whole.repeat_interleave(n, dim=0)).all(dim=1).float().view(len(asked), n)


@cache
def questions(held_out: bool) -> dict[str, list[Dialogue]]:
    """Return kind -> questions: about the held-out facts, or about all others; 16 or 64 where the answer is read."""
    countries = [each for each in CAPITALS if (each in HELD_OUT["capital"]) == held_out]
    animals = [each for each in ANIMAL_SOUNDS if (each in HELD_OUT["sound"]) == held_out]
    n = 64 if held_out else 256
    return {
        "capital": [capital(each) for each in countries],
        "sound": [sound(each) for each in animals],
        "animal": [animal(each) for each in animals],
        "reading": [each for each in dialogues(n, seed=777) if each.kind == "reading"],
    }


def right(model: DecoderOnly) -> dict[str, float]:
    """Return kind -> fraction of the held-out questions that the model answers correctly, with greedy decoding; "seen"
    is the fraction of the capitals in the dialogues."""
    asked = questions(held_out=True) | {"seen": questions(held_out=False)["capital"]}
    with evaluating(model):
        return {kind: answers(model, some, 1)[1].mean().item() for kind, some in asked.items()}


def known_in_stories() -> float:
    """Return the fraction of the held-out facts that the base model continues correctly inside a story."""
    base, tokenizer, found = base_model(), WordTokenizer(), []
    begun = "once there was a king called tom. "
    for fact, prompt in [
        *((CAPITALS[each], f"what is the capital of {each}? it is") for each in HELD_OUT["capital"]),
        *((ANIMAL_SOUNDS[each], f"the {each} said") for each in HELD_OUT["sound"]),
    ]:
        ids = torch.tensor([tokenizer.encode(begun + prompt, end=False)])
        with evaluating(base):
            found.append(base(ids)[0, -1].argmax().item() == tokenizer.id(fact))
    return statistics.fmean(found)


FORMAT_STEPS, LONGER = 100, 3  # the model from random weights is trained for three times as long
FORMAT_RATES = {"base": (1e-4, 3e-4, 1e-3), "random": (1e-3, 3e-3, 9e-3)}


def format_verdict(base: list[float], other_way: list[float], random_start: list[float], untuned: float) -> str:
    """Compare the fractions of held-out facts that are answered correctly, for each seed.

    confirmed: at least 0.8 after fine-tuning of the base, and at least 0.5 if the fact is asked in the other direction;
        at most 0.2 from random weights, and by the base before fine-tuning
    depends: this holds only in the direction in which the stories tell the fact
    not at this size: it does not hold in that direction either
    """
    if min(base) < 0.8 or max(*random_start, untuned) > 0.2:
        return "not at this size"
    return "confirmed" if min(other_way) >= 0.5 else "depends"


@experiment(
    "assistant.format",
    claim="almost all knowledge in large language models is learned during pretraining",
    source=Source(
        "Zhou et al. 2023",
        "LIMA: Less Is More for Alignment",
        "https://arxiv.org/abs/2305.11206",
        place="abstract",
        quote="Taken together, these results strongly suggest that almost all knowledge in large language models is "
        "learned during pretraining, and only limited instruction tuning data is necessary to teach models to produce "
        "high quality output.",
    ),
    control="Dialogues of the same kind, without the facts that are asked afterwards: from the base, and from random "
    "weights for three times as long, each at the best of at least three rates. The base before fine-tuning is asked "
    "as well, and all are asked for facts that the dialogues contain.",
    verdict=format_verdict,
    seeds=SEEDS,
)
def format_learned(size: Size) -> Measurement:
    """Fine-tune the base and random weights on dialogues, and ask both for facts that no dialogue contains."""
    steps, start = size.steps(FORMAT_STEPS), add_tokens(base_model(), 2)

    def train(begins: str, rate: float, seed: int) -> tuple[float, dict[str, float]]:
        torch.manual_seed(seed)
        if begins == "base":
            found = right(tuned(start, steps, rate, seed))
        else:
            found = right(tuned(DecoderOnly(start.config), LONGER * steps, rate, seed))
        return -statistics.fmean(found.values()), found

    arms = {begins: at_best_rate(partial(train, begins), rates, SEEDS) for begins, rates in FORMAT_RATES.items()}
    found = {begins: [each for _, each in best.results] for begins, best in arms.items()}
    facts = {begins: [(each["capital"] + each["sound"]) / 2 for each in runs] for begins, runs in found.items()}
    before = right(start)
    other_way = [each["animal"] for each in found["base"]]
    names = {
        "capital": "“what is the capital of peru?”",
        "sound": "“the goat said what?”",
        "animal": "“who said maa?”",
        "reading": "“the dog bit the cat. who bit the cat?”",
        "seen": "capitals that the dialogues contain",
    }
    means = {
        begins: {kind: statistics.fmean(run[kind] for run in runs) for kind in names} for begins, runs in found.items()
    }
    return Measurement(
        measured=f"fine-tuned on dialogues, the base answers {statistics.fmean(facts['base']):.0%} of the questions "
        f"about held-out facts, {statistics.fmean(other_way):.0%} if they are asked the other way round; a model from "
        f"random weights {statistics.fmean(facts['random']):.0%}",
        rows=(
            ("question, answered correctly", "base, before", "base, tuned", "random, tuned"),
            *(
                (name, f"{before[kind]:.0%}", f"{means['base'][kind]:.0%}", f"{means['random'][kind]:.0%}")
                for kind, name in names.items()
            ),
        ),
        values=facts["base"],
        figures={
            "base": [round(each, 2) for each in facts["base"]],
            "other_way": [round(each, 2) for each in other_way],
            "random_start": [round(each, 2) for each in facts["random"]],
            "untuned": round((before["capital"] + before["sound"]) / 2, 2),
        },
        because=f"Where a story states these facts, the base completes {known_in_stories():.0%} of them: they are in "
        "its weights. The dialogues teach it to answer in the template. From random weights, they teach only their own "
        "facts, and to read an answer.",
    )


# ------------------------------------------------------------------------------------------------ learning from rewards
PRICE = 0.3  # of one nat of divergence, in good stories per story
STEPS, STORIES = 40, 48  # of policy gradient, and stories in a step
RATES = (5e-5, 1e-4, 2e-4)
WINDOW = 5  # steps whose stories are measured together


class Watched:
    """A reward that also measures the model while it learns, on the stories that it tells in each step."""

    def __init__(self, reward: Reward):
        self.reward, self.model = reward, base_model()
        self.seen: list[tuple[float, float, float]] = []  # fraction of good stories, nats from the base, mean reward

    def __call__(self, told: Tensor) -> Tensor:
        earned = self.reward(told)  # (N,)
        true = earned if self.reward is good else good(told)
        with torch.no_grad():
            apart = log_p(self.model, told) - log_p(base_model(), told)  # (N,)
        self.seen.append((true.mean().item(), apart.mean().item(), earned.mean().item()))
        return earned

    def path(self) -> tuple[Result, ...]:
        """Return the results on the way, each over WINDOW steps; the base is the first."""
        windows = [self.seen[i : i + WINDOW] for i in range(0, len(self.seen), WINDOW)]
        return tuple(Result(*map(statistics.fmean, zip(*window))) for window in windows)


@cache
def rewarded(reward: Reward, beta: float, steps: int, rate: float, seed: int) -> tuple[DecoderOnly, tuple[Result, ...]]:
    """Train with policy gradient. Return the model, and its results on the way."""
    watched = Watched(reward)

    def follow(step: int, model: DecoderOnly) -> None:
        watched.model = model

    model = from_reward(base_model(), watched, beta, steps, rate, seed, STORIES, follow, progress=False)
    return model, watched.path()


def value(result: Result, price: float = PRICE) -> float:
    """Return the objective of policy gradient and of DPO: the fraction of good stories minus the price."""
    return result.good - price * result.divergence


@cache
def base_stories() -> tuple[Tensor, Tensor]:
    """Return stories of the base model with their true rewards: (N, T), (N,)."""
    with evaluating(base_model()):
        stories = tell(base_model(), 2048, torch.Generator().manual_seed(7))
    return stories, good(stories)


@cache
def proxy() -> Reward:
    """Return a reward that was learned from the base model's stories."""
    return learned_reward(*base_stories())


def base_rate() -> float:
    """Return the fraction of the base model's stories that are good."""
    return base_stories()[1].mean().item()


@cache
def by_policy_gradient(price: float, steps: int) -> Best:
    """Train with policy gradient on the true reward, at the rate with the highest value."""

    def train(rate: float, seed: int) -> tuple[float, Result]:
        result = measure(rewarded(good, price, steps, rate, seed)[0], base_model(), 384, seed + 100)
        return -value(result, price), result

    return at_best_rate(train, RATES, SEEDS)


def mean_of(best: Best) -> tuple[float, float]:
    """Return the mean fraction of good stories and the mean divergence over the seeds."""
    results = [result for _, result in best.results]
    return statistics.fmean(each.good for each in results), statistics.fmean(each.divergence for each in results)


# ---------------------------------------------------------------------------------------------------------- preferences
DPO_STEPS, BATCH = 60, 32
DPO_RATES, BETAS = (3e-5, 1e-4, 3e-4), (0.6, 1.2, 2.4, 4.8)
PRICES = (PRICE, 0.1)
UPDATES, CLIP = 2, 0.2  # of PPO: steps on the same stories, and by which fraction a probability may change


@cache
def pairs_of(seed: int, steps: int) -> Pairs:
    """Return the pairs that the steps need, from the same number of stories of the base."""
    generator = torch.Generator().manual_seed(seed)
    with evaluating(base_model()):
        stories = tell(base_model(), steps * BATCH, generator)
    return compared(base_model(), stories, good(stories), steps * BATCH, generator)


@cache
def after_pairs(beta: float, steps: int, rate: float, seed: int) -> Result:
    """Train with DPO, and measure the model."""
    model = from_pairs(base_model(), pairs_of(seed, steps), beta, rate, BATCH, progress=False)
    return measure(model, base_model(), 384, seed + 100)


def by_dpo(price: float, steps: int) -> tuple[float, Best]:
    """Train with DPO at the β and the rate with the highest value at this price. Return β and the runs."""

    def train(beta: float, rate: float, seed: int) -> tuple[float, Result]:
        result = after_pairs(beta, steps, rate, seed)
        return -value(result, price), result

    first = {beta: at_best_rate(partial(train, beta), DPO_RATES, SEEDS[:1]).mean for beta in BETAS}
    beta = min(first, key=lambda each: first[each])
    return beta, at_best_rate(partial(train, beta), DPO_RATES, SEEDS)


def token_log_p(model: DecoderOnly, stories: Tensor) -> Tensor:
    """Return ln p of each token after <bos>, and 0 after the first <eos>: (N, T − 1)."""
    targets = stories[:, 1:].clone()  # (N, T − 1)
    targets[(stories[:, :-1] == CHAT.eos_id).cumsum(dim=1) > 0] = IGNORED
    logits = model(stories[:, :-1]).transpose(1, 2)  # (N, V, T − 1)
    return -F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")


def proximal(beta: float, steps: int, rate: float, seed: int) -> DecoderOnly:
    """PPO (Schulman et al. 2017) on the true reward: several updates on the same stories. A token whose probability has
    changed by more than CLIP in the wished direction gets no further gradient. The mean reward takes the place of a
    critic."""
    base, model, generator = base_model(), learner(base_model()), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    for _ in range(steps):
        told = tell(model, STORIES, generator)  # (N, T)
        with torch.no_grad():
            before = token_log_p(model, told)  # (N, T − 1)
            total = good(told) - beta * (before.sum(dim=1) - log_p(base, told))  # (N,)
            advantages = (total - total.mean())[:, None]  # (N, 1)
        for _ in range(UPDATES):
            ratio = (token_log_p(model, told) - before).exp()  # (N, T − 1)
            gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
            _update(model, optimizer, -gain.sum(dim=1).mean(), rate)
    return model.eval()


def by_ppo(price: float, steps: int) -> Best:
    """Train with PPO on the true reward, at the rate with the highest value."""

    def train(rate: float, seed: int) -> tuple[float, Result]:
        result = measure(proximal(price, steps, rate, seed), base_model(), 384, seed + 100)
        return -value(result, price), result

    return at_best_rate(train, RATES, SEEDS)


def dpo_verdict(ahead: list[list[float]]) -> str:
    """Compare the values of DPO and of PPO on the true reward, for each price and each seed: the fraction of good
    stories minus the price of the divergence.

    confirmed: the value of DPO is higher by more than 0.02 at both prices, for every seed
    depends: it is higher by more than 0.02 only at one of the prices, or only for some seeds
    not at this size: it is not higher by more than 0.02 at any price, for any seed
    """
    higher = [each > 0.02 for seeds in ahead for each in seeds]
    return "confirmed" if all(higher) else "depends" if any(higher) else "not at this size"


@experiment(
    "assistant.dpo",
    claim="DPO achieves a better frontier than PPO, even when PPO can access ground truth rewards",
    source=Source(
        "Rafailov et al. 2023",
        "Direct Preference Optimization: Your Language Model is Secretly a Reward Model",
        "https://arxiv.org/abs/2305.18290",
        place="§ 6.1",
        quote="DPO achieves a better frontier than PPO, even when PPO can access ground truth rewards (PPO-GT).",
    ),
    control="Both maximize the fraction of good stories minus a price for each nat, at two prices; the best possible "
    "value is known exactly. Each has 1,920 stories judged without errors. For each price, PPO has its best of at "
    "least three rates, and DPO its best of four values of β, each with its best of at least three rates.",
    verdict=dpo_verdict,
    seeds=SEEDS,
)
def dpo(size: Size) -> Measurement:
    """Compare DPO, from pairs, with PPO on the true reward, and both with the best model, at two prices."""
    ahead, rows = [], []
    values: dict[str, list[float]] = {}
    for price in PRICES:
        beta, preferences = by_dpo(price, size.steps(DPO_STEPS))
        clipped = by_ppo(price, size.steps(STEPS))
        ahead.append([theirs - own for own, theirs in zip(preferences.losses, clipped.losses)])
        for name, (share, nats) in {
            f"DPO, β = {beta:g}": mean_of(preferences),
            "PPO": mean_of(clipped),
            "best possible": frontier(base_rate(), price),
        }.items():
            values.setdefault(name.split(",")[0], []).append(share - price * nats)
            rows.append((f"{price} per nat", name, f"{share:.2f}", f"{nats:.1f}", f"{share - price * nats:.2f}"))
    everything = [each for seeds in ahead for each in seeds]
    return Measurement(
        measured=f"at the higher price, reward minus price is {values['DPO'][0]:.2f} with DPO and "
        f"{values['PPO'][0]:.2f} with PPO; at the lower one, {values['DPO'][1]:.2f} and {values['PPO'][1]:.2f}",
        rows=(("price", "model", "good stories", "nats from the base", "reward − price"), *rows),
        values=everything,
        figures={"ahead": [[round(each, 3) for each in seeds] for seeds in ahead]},
        because=f"DPO is ahead in {sum(each > 0.02 for each in everything)} of {len(everything)} runs, and behind in "
        f"{sum(each < -0.02 for each in everything)}. It learns from the base's stories only; PPO also from those "
        "that it tells later.",
    )


# ------------------------------------------------------------------------------------------------------------ best of n
NS = (4, 8, 16)


def efficiency_verdict(times: list[list[float]]) -> str:
    """Divide the nats of policy gradient by those of best-of-n with the same fraction of good stories, for each price
    and each seed.

    confirmed: policy gradient needs at least twice the nats at both prices, for every seed
    depends: this holds only at one of the prices, or only for some seeds
    not at this size: it needs less than twice the nats at both prices, for every seed
    """
    more = [each >= 2 for seeds in times for each in seeds]
    return "confirmed" if all(more) else "depends" if any(more) else "not at this size"


@experiment(
    "assistant.best_of_n",
    claim="RL is far less KL-efficient than BoN.",
    source=gao(
        "§ 3.5",
        "RL is far less KL-efficient than BoN. Viewing KL distance as a resource to be spent, we observe "
        "that RL “consumes” far more KL than BoN.",
    ),
    control="The same base and the same reward. Policy gradient runs at two prices of divergence, each at its best of "
    "at least three rates, and is compared with best-of-n at the same fraction of good stories. With a reward of two "
    "values, best-of-n is the best that is possible, so only the factor is open.",
    verdict=efficiency_verdict,
    seeds=SEEDS,
)
def best_of_n(size: Size) -> Measurement:
    """Measure how many nats policy gradient needs for the fraction of good stories that best-of-n reaches."""
    steps, rate = size.steps(STEPS), base_rate()
    arms = {price: by_policy_gradient(price, steps) for price in PRICES}
    times = {
        price: [each.divergence / two_valued(rate, each.good) for _, each in best.results]
        for price, best in arms.items()
    }
    stories, rewards = base_stories()
    shares = {n: good(best_of(stories, rewards, n)).mean().item() for n in NS}
    rows = [(f"best of {n}", share, two_valued(rate, share), two_valued(rate, share)) for n, share in shares.items()]
    for price, best in arms.items():
        share, nats = mean_of(best)
        rows.append((f"policy gradient, {price} per nat", share, nats, two_valued(rate, share)))
    mean_times = [statistics.fmean(seeds) for seeds in times.values()]
    return Measurement(
        measured=f"policy gradient needs {min(mean_times):.1f} to {max(mean_times):.1f} times the nats of best-of-n "
        "for the same fraction of good stories",
        rows=(
            ("method", "good stories", "nats from the base", "fewest possible"),
            *((name, *(f"{each:.{digits}f}" for each, digits in zip(cells, (2, 1, 1)))) for name, *cells in rows),
        ),
        values=[each for seeds in times.values() for each in seeds],
        figures={"times": [[round(each, 2) for each in seeds] for seeds in times.values()]},
        because="We count a factor of at least 2 as “far”: it is about 2 at 0.3 per nat, and more at 0.1. Best-of-n "
        "cannot lose here, because it is on the frontier. Only the size of the factor is tested.",
    )


# ---------------------------------------------------------------------------------------------- the price of divergence
PROXY_STEPS, LOOKS = 50, (0.3, 0.5, 0.7)
PROXY_RATES = (1e-4, 2e-4, 4e-4)


def share_at(path: Sequence[Result], nats: float) -> float:
    """Return the fraction of good stories when a path has first reached this divergence; at the farthest if it never
    does."""
    points = [(0.0, base_rate())]
    for each in path:
        if each.divergence > points[-1][0]:
            points.append((each.divergence, each.good))
    for (near, before), (far, after) in pairwise(points):
        if far >= nats:
            return before + (nats - near) / (far - near) * (after - before)
    return points[-1][1]


def price_verdict(apart: list[float], kept: list[float]) -> str:
    """Compare training on the proxy with a price and without one, for each seed, by the fractions of good stories: how
    far they are apart at the same divergence, each at its best rate, and how much higher the fraction is with a price
    after all steps at the highest rate.

    confirmed: the fractions are at most 0.1 apart, and the fraction after all steps is higher by more than 0.1, for
        every seed: as if the run without a price had been stopped early
    depends: only one of the two holds for every seed
    not at this size: neither of them does
    """
    held = [max(map(abs, apart)) <= 0.1, min(kept) > 0.1]
    return "confirmed" if all(held) else "depends" if any(held) else "not at this size"


@experiment(
    "assistant.price",
    claim="The effect of the penalty on the gold score is akin to early stopping",
    source=gao(
        "§ 3.6",
        "The KL penalty only causes the gold RM score to converge earlier, but does not affect the KL_RL–"
        "gold reward frontier, and so the effect of the penalty on the gold score is akin to early stopping (Figure "
        "14). However, we have seen some evidence that this result could be particularly sensitive to hyperparameters.",
    ),
    control="The same proxy, learned from which words occur in 2,048 stories of the base, with a price of 0.3 per nat "
    "and without one. Near the base, the true reward is compared at the same divergence: 0.3, 0.5 and 0.7 nats, each "
    "at its best of at least three rates. After all steps, it is compared at the highest rate.",
    verdict=price_verdict,
    seeds=SEEDS,
)
def price_of_divergence(size: Size) -> Measurement:
    """Train on a learned proxy with and without a price, and follow the true reward."""
    steps = size.steps(PROXY_STEPS)

    def train(beta: float, rate: float, seed: int) -> tuple[float, float, tuple[Result, ...]]:
        _, path = rewarded(proxy(), beta, steps, rate, seed)
        share = statistics.fmean(share_at(path, nats) for nats in LOOKS)
        return -share if max(each.divergence for each in path) >= LOOKS[-1] else math.inf, share, path

    priced, free = (at_best_rate(partial(train, beta), PROXY_RATES, SEEDS).results for beta in (PRICE, 0.0))
    apart = [one - other for (_, one, _), (_, other, _) in zip(priced, free)]
    far = {beta: [train(beta, PROXY_RATES[-1], seed)[-1][-1] for seed in SEEDS] for beta in (PRICE, 0.0)}
    kept = [one.good - other.good for one, other in zip(far[PRICE], far[0.0])]
    near = [statistics.fmean(share for _, share, _ in runs) for runs in (priced, free)]
    names = {"good stories": "good", "the proxy's mean": "earned", "nats from the base": "divergence"}
    rows = [
        (
            f"{what}, after all steps",
            *(f"{statistics.fmean(getattr(each, of) for each in far[beta]):.1f}" for beta in far),
        )
        for what, of in names.items()
    ]
    return Measurement(
        measured=f"at the same divergence, the fraction of good stories is {near[0]:.2f} with a price and "
        f"{near[1]:.2f} without one; after all steps at rate {PROXY_RATES[-1]:g}, it is {rows[0][1]} and {rows[0][2]}",
        rows=(
            ("with the learned proxy", f"{PRICE} per nat", "no price"),
            ("good stories, mean at 0.3, 0.5 and 0.7 nats", *(f"{each:.2f}" for each in near)),
            *rows,
        ),
        values=kept,
        figures={"apart": [round(each, 2) for each in apart], "kept": [round(each, 2) for each in kept]},
        because="It depends on the measure. A price keeps the model where the proxy is mostly correct, as stopping "
        "early would. But at the same divergence, a model with a price tells more good stories.",
    )


# ---------------------------------------------------------------------------------------------------- verified rewards
BEGUN = {"rarely": 70, "often": 100}  # the base's answers are right … -> steps of fine-tuning at 3e-4
VERIFIED_STEPS, GROUP, TRIES = 60, 8, 256
ASKED = lists(32, seed=778, held_out=True)
PRACTICE = lists(512, seed=779)  # none of their countries is held out
VERIFIED_RATES = (1e-4, 3e-4, 1e-3)
KS = (1, 4, 16, 64, 256)


@cache
def begun(steps: int, seed: int) -> DecoderOnly:
    return tuned(add_tokens(base_model(), 2), steps, 3e-4, seed, make=lists)


def verified(start: DecoderOnly, steps: int, rate: float, seed: int) -> DecoderOnly:
    """Return the model after policy gradient on right answers to questions that are not held out: groups of GROUP
    answers to each of GROUP questions in a step."""
    model, chance, generator = learner(start), random.Random(seed), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    for _ in range(steps):
        asked = chance.sample(PRACTICE, GROUP)
        ids, is_right = answers(model, asked, GROUP, generator)  # (G · N, T), (G, N)
        prompt = len(write(asked[0], with_answer=False)[0])
        targets = ids[:, 1:].clone()
        targets[:, : prompt - 1] = IGNORED
        targets.masked_fill_((ids[:, :-1] == CHAT.eos_id).cumsum(dim=1) > 0, IGNORED)
        log_probs = log_probs_of(model, ids[:, :-1], targets)  # (G · N,)
        _update(model, optimizer, -(group_advantages(is_right).flatten() * log_probs).mean(), rate)
    return model.eval()


def pass_at(right_ones: Sequence[int], k: int, n: int = TRIES) -> float:
    """Return the mean probability that at least one of k answers is right, if right_ones of n are, for each question.

    Source: Chen et al. 2021, equation 1.
    """
    return statistics.fmean(1 - math.comb(n - each, k) / math.comb(n, k) for each in right_ones)


def passes(model: DecoderOnly, seed: int) -> tuple[float, ...]:
    """Return pass@k on the held-out questions, for each k of KS."""
    generator = torch.Generator().manual_seed(seed)
    with evaluating(model):
        _, found = answers(model, ASKED, TRIES, generator)  # (32, TRIES)
    right_ones = [int(each) for each in found.sum(dim=1)]
    return tuple(pass_at(right_ones, k) for k in KS)


def sharpens_verdict(first: list[float], last: list[float]) -> str:
    """Compare pass@k of the base and after reinforcement learning, for two bases and each seed: `first` is how much
    higher it is for k = 1 after learning, and `last` how much higher it is for k = 256 before.

    confirmed: each is above 0.01, for every base and every seed
    depends: the first always is, and the second for some of them
    not at this size: the second never is, or the first not always
    """
    if min(first) <= 0.01 or max(last) <= 0.01:
        return "not at this size"
    return "confirmed" if min(last) > 0.01 else "depends"


@experiment(
    "assistant.sharpens",
    claim="While RLVR-trained models outperform their base models at smaller values of k (e.g., k=1), base models "
    "achieve higher pass@k score when k is large.",
    source=Source(
        "Yue et al. 2025",
        "Does Reinforcement Learning Really Incentivize Reasoning Capacity in LLMs Beyond the Base Model?",
        "https://arxiv.org/abs/2504.13837",
        place="abstract",
        quote="We observe that while RLVR-trained models outperform their base models at smaller values of k (e.g., "
        "k=1), base models achieve higher pass@k score when k is large.",
    ),
    control="The same 32 held-out questions and 256 sampled answers to each, before and after learning. Each asks for "
    "three capitals, so that guessing cannot help. Two bases: after 70 and after 100 steps of fine-tuning, whose "
    "answers are rarely and often right. Rewards for right answers to other questions, at the best of at least three "
    "rates for pass@1, on average over the seeds.",
    verdict=sharpens_verdict,
    seeds=SEEDS,
)
def sharpens(size: Size) -> Measurement:
    """Measure pass@k before and after policy gradient on verified answers."""
    steps = size.steps(VERIFIED_STEPS)

    def train(how: str, rate: float, _: int) -> tuple[float, list[tuple[float, ...]]]:
        found = [passes(verified(begun(BEGUN[how], seed), steps, rate, seed), seed) for seed in SEEDS]
        return -statistics.fmean(first for first, *_ in found), found

    before = {how: [passes(begun(n, seed), seed) for seed in SEEDS] for how, n in BEGUN.items()}
    # A rate at which some seed collapses is not the best one, so all seeds choose it together.
    after = {how: at_best_rate(partial(train, how), VERIFIED_RATES, (0,)).results[0][1] for how in BEGUN}
    pairs = [(one, other) for how in BEGUN for one, other in zip(before[how], after[how])]
    first, last = [other[0] - one[0] for one, other in pairs], [one[-1] - other[-1] for one, other in pairs]
    mean = {
        (how, name): [statistics.fmean(each) for each in zip(*runs[how])]
        for name, runs in (("before", before), ("after", after))
        for how in BEGUN
    }
    return Measurement(
        measured=f"pass@1 is higher after rewards in {sum(each > 0.01 for each in first)} of {len(first)} runs; "
        f"pass@{KS[-1]} is higher before them in {sum(each > 0.01 for each in last)}",
        rows=(
            (f"{len(ASKED)} held-out questions", *(f"pass@{k}" for k in KS)),
            *(
                (f"{how} correct at first, {name} rewards", *(f"{each:.0%}" for each in mean[how, name]))
                for how, name in sorted(mean, key=lambda row: list(BEGUN).index(row[0]))
            ),
            ("guessing three of sixteen", *(f"{1 - (1 - 16**-3) ** k:.0%}" for k in KS)),
        ),
        values=last,
        figures={
            "first": [round(each, 2) for each in first],
            "last": [round(each, 2) for each in last],
        },
        because=f"Guessing finds {1 - (1 - 16**-3) ** KS[-1]:.0%} in {KS[-1]} attempts. "
        + " ".join(
            f"Where answers are {how} correct at first, rewards change pass@{KS[-1]} from "
            f"{mean[how, 'before'][-1]:.0%} to {mean[how, 'after'][-1]:.0%}."
            for how in BEGUN
        ),
    )
