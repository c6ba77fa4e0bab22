"""Methods of chapter 16: four ways to make Tinytown's model tell stories in which an animal speaks.

The base model is the one that ships with the course. A story earns 1 if it is possible in Tinytown and an animal says
something in it, and 0 otherwise. Each method is a loop that fits on a page; the chapter shows it.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from tqdm.auto import tqdm

from course_lib.assistant import best_policy, divergence, dpo_loss, log_probs_of
from course_lib.gpt import IGNORED, DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained
from course_lib.sampling import generate
from course_lib.tinytown import ANIMAL_SOUNDS, Tinytown, WordTokenizer, grammar

TOKENIZER = WordTokenizer()
SOUNDS = torch.tensor([TOKENIZER.id(sound) for sound in ANIMAL_SOUNDS.values()])
LONGEST = 80  # tokens: longer than any story of Tinytown
Reward = Callable[[Tensor], Tensor]  # ids (N, T) -> rewards (N,)


def tell(model: DecoderOnly, n: int, generator: Generator) -> Tensor:
    """Return n stories of a model as ids (N, T). After <eos>, a row repeats it."""
    start = torch.full((n, 1), TOKENIZER.bos_id)
    stories = generate(model, start, LONGEST, stop=TOKENIZER.eos_id, generator=generator)
    assert isinstance(stories, Tensor)  # not a stream
    return stories


def log_p(model: DecoderOnly, stories: Tensor) -> Tensor:
    """Return ln p of each story under a model, up to and including its <eos>: (N,)."""
    targets = stories[:, 1:].clone()  # (N, T − 1)
    ended = (stories[:, :-1] == TOKENIZER.eos_id).cumsum(dim=1) > 0
    return log_probs_of(model, stories[:, :-1], targets.masked_fill(ended, IGNORED))


def speaks(stories: Tensor) -> Tensor:
    """Return 1 for each story in which the sound of an animal occurs, whether or not the story is possible: (N,)."""
    return torch.isin(stories, SOUNDS.to(stories.device)).any(dim=1).float()


def possible(stories: Tensor) -> Tensor:
    """Return 1 for each story that Tinytown's grammar can produce: (N,)."""
    town = Tinytown()
    words = [[i for i in row.tolist() if i > TOKENIZER.eos_id] for row in stories]
    return torch.tensor([float(math.isfinite(town.log_prob(TOKENIZER.decode(row)))) for row in words]).to(
        stories.device
    )


def good(stories: Tensor) -> Tensor:
    """Return the true reward (N,): 1 if the story is possible and an animal speaks in it."""
    heard = speaks(stories)  # (N,)
    heard[heard > 0] = possible(stories[heard > 0])  # parsing is slow, and a story without a sound earns nothing anyway
    return heard


@dataclass(frozen=True)
class Result:
    """Hold the result of a method: its fraction of good stories, its divergence from the base in nats per story, and
    the mean of the reward that it was trained on."""

    good: float
    divergence: float
    earned: float


def measure(model: DecoderOnly, base: DecoderOnly, n: int = 512, seed: int = 99, reward: Reward = good) -> Result:
    """Measure a model on n stories that it tells. reward: what it was trained on."""
    with evaluating(model):
        stories = tell(model, n, torch.Generator().manual_seed(seed))
        apart = log_p(model, stories) - log_p(base, stories)  # (N,): its mean is the divergence
    share = good(stories).mean().item()
    return Result(share, apart.mean().item(), share if reward is good else reward(stories).mean().item())


def learner(base: DecoderOnly) -> DecoderOnly:
    """Return a copy of the base model whose weights can be trained."""
    return copy.deepcopy(base).requires_grad_(True)


def from_reward(
    base: DecoderOnly,
    reward: Reward,
    beta: float,
    steps: int = 60,
    rate: float = 3e-4,
    seed: int = 0,
    stories: int = 64,
    on_step: Callable[[int, DecoderOnly], None] | None = None,
    progress: bool = True,
    seen: list[Tensor] | None = None,
) -> DecoderOnly:
    """Policy gradient (Williams 1992): tell stories, and make those more probable that earn more than the average.

    on_step: called with (steps done, model) after each step. seen: a list that gets the stories (N, T) of each step.
    """
    model = learner(base)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed)
    for step in tqdm(range(steps), disable=not progress, desc="policy gradient", unit="step"):
        told = tell(model, stories, generator)  # (N, T)
        if seen is not None:
            seen.append(told)
        log_probs = log_p(model, told)  # (N,)
        with torch.no_grad():
            total = reward(told) - beta * (log_probs - log_p(base, told))  # (N,): the reward minus its price
            advantages = total - total.mean()
        loss = -(advantages * log_probs).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if on_step:
            on_step(step + 1, model)
    return model


def learned_reward(stories: Tensor, rewards: Tensor, steps: int = 200, rate: float = 0.05) -> Reward:
    """Learn from stories (N, T) and their rewards (N,) how probable it is that a story is good, from its words only.

    This is a logistic regression: a number for each word of the vocabulary, and the sum over the words that occur.
    """
    vocab_size = len(TOKENIZER.tokens)

    def occurs(ids: Tensor) -> Tensor:
        """Return 1 for each word of the vocabulary that occurs in a story: (N, V)."""
        return torch.zeros(len(ids), vocab_size, device=ids.device).scatter_(1, ids, 1.0)

    numbers = torch.zeros(vocab_size, device=stories.device, requires_grad=True)  # (V,)
    at_first = torch.zeros((), device=stories.device, requires_grad=True)
    optimizer = torch.optim.AdamW([numbers, at_first], lr=rate, weight_decay=0.0)
    words = occurs(stories)  # (N, V)
    for _ in range(steps):
        loss = F.binary_cross_entropy_with_logits(words @ numbers + at_first, rewards)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def reward(told: Tensor) -> Tensor:
        with torch.no_grad():
            return (occurs(told) @ numbers + at_first).sigmoid()  # (N,)

    return reward


@dataclass(frozen=True)
class Pairs:
    """Hold compared pairs of stories: the chosen and the rejected ones (N, T), with ln p of each under the base model
    (N,)."""

    chosen: Tensor
    rejected: Tensor
    ref_chosen: Tensor
    ref_rejected: Tensor


def compared(
    base: DecoderOnly, stories: Tensor, rewards: Tensor, n: int, generator: Generator, strength: float = math.inf
) -> Pairs:
    """Return n pairs of the stories (N, T). One story of each pair is good, the other is not.

    A judge after Bradley and Terry (1952) chooses the good one with probability σ(strength): 0.88 for 2, and always by
    default.
    rewards: (N,), 1 for each good story and 0 for the others.
    """
    with torch.no_grad():
        ref = torch.cat([log_p(base, part) for part in stories.split(512)])  # (N,)
    better, worse = (where.nonzero().flatten() for where in (rewards == 1, rewards == 0))
    first = better[torch.randint(len(better), (n,), generator=generator)]
    second = worse[torch.randint(len(worse), (n,), generator=generator)]
    wrong = torch.rand(n, generator=generator) > torch.tensor(strength).sigmoid()
    chosen, rejected = torch.where(wrong, second, first), torch.where(wrong, first, second)
    return Pairs(stories[chosen], stories[rejected], ref[chosen], ref[rejected])


def from_pairs(
    base: DecoderOnly, pairs: Pairs, beta: float, rate: float = 3e-4, batch: int = 32, progress: bool = True
) -> DecoderOnly:
    """Direct preference optimization (Rafailov et al. 2023): one pass over the pairs, without a reward."""
    model = learner(base)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    steps = len(pairs.chosen) // batch
    for step in tqdm(range(steps), disable=not progress, desc="preferences", unit="step"):
        rows = slice(step * batch, (step + 1) * batch)
        chosen, rejected = log_p(model, pairs.chosen[rows]), log_p(model, pairs.rejected[rows])  # (B,) each
        loss, _ = dpo_loss(chosen, rejected, pairs.ref_chosen[rows], pairs.ref_rejected[rows], beta)
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)  # linear to zero
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


def best_of(stories: Tensor, rewards: Tensor, n: int) -> Tensor:
    """Return the best of every n stories, the first one if several are equal: (N / n, T)."""
    best = rewards.view(-1, n).argmax(dim=1)  # (N / n,)
    return stories.view(-1, n, stories.shape[1])[torch.arange(len(best)), best]


def two_valued(rate: float, share: float) -> float:
    """Return the least divergence, in nats, at which a fraction of good stories is reached, if the base has `rate`."""
    return divergence(*(torch.tensor([1 - p, p], dtype=torch.float64) for p in (share, rate))).item()


def frontier(rate: float, beta: float) -> tuple[float, float]:
    """Return (fraction of good stories, divergence) of the best possible model at a price of β per nat."""
    base, reward = torch.tensor([[1 - rate, rate], [0, 1]], dtype=torch.float64)
    best = best_policy(base, reward, beta)  # (2,)
    return best[1].item(), divergence(best, base).item()


def expected_product(factor: Callable[[grammar.Line], float], plan: grammar.Plan = grammar.START) -> float:
    """Return E[Π factor(line)] over all stories of Tinytown, exactly: a sum over every way in which a story can go on.

    With factor = e^(reward of the line / β) this is Z of the best policy. With a factor of 0 for some lines, it is the
    probability that none of them occurs."""

    @cache
    def rest(plan: grammar.Plan) -> float:
        following = grammar.next_lines(plan)
        if not following:
            return 1.0  # the closing has been told
        return sum(chance * factor(line) * rest(later) for (line, later), chance in following.items())

    return rest(plan)


def says(line: grammar.Line) -> bool:
    """Return whether an animal says something in this line of the grammar."""
    return any(word.relation == "sound" for word in line.words)


@cache
def base_model() -> DecoderOnly:
    """Return the model that ships with the course, with frozen weights."""
    return load_pretrained("tinytown")[0].requires_grad_(False)
