"""The judge of the speedrun: it runs a file in a process of its own, and measures its model on fresh stories.

Why a file cannot cheat: the judge draws its stories after the training, and shows the model one token at a time, so
that nobody has seen them. The words have new numbers in each run, so that no knowledge of the grammar helps. And no
model can be below the entropy.
"""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.speedrun.rules import WITHIN, Entry, Refused
from course_lib.speedrun.runner import serve
from course_lib.speedrun.text import STORIES, renaming, stories
from course_lib.tinytown import Tinytown, WordTokenizer

SEEDS = (0, 1, 2)
JUDGED = 500  # stories
Moved = Callable[[int, int], None]


@dataclass(frozen=True)
class Run:
    """The result of one seed.

    Fields: seed; above, nats per token above the grammar's own loss on the same stories; arithmetic, the operations of
    all matrix products in training; seconds of training.
    """

    seed: int
    above: float
    arithmetic: float
    seconds: float

    @property
    def within(self) -> bool:
        """Return whether the model is within 1% of the entropy."""
        return self.above <= WITHIN * entropy()


def entropy() -> float:
    """Return Tinytown's entropy in nats per token."""
    return Tinytown().entropy()


class Failed(RuntimeError):
    """The file stopped with an error, or its process ended."""


class Runner:
    """A process that trains an entry's model and then answers for it. Use it in a `with` statement."""

    def __init__(self, entry: Entry, seed: int, ids: Tensor, vocab_size: int, most: int | None = None):
        context = get_context("spawn")
        self.line, theirs = context.Pipe()
        arguments = (theirs, str(entry.path), entry.source, ids, vocab_size, seed, most)
        self.process = context.Process(target=serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self.line.send_bytes(b"")
        self.process.join(timeout=2)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.line.close()

    def trained(self, moved: Moved) -> tuple[float, float]:
        """Wait for the end of training; return (arithmetic, seconds). moved: called with (steps done, all)."""
        while True:
            message = self._heard()
            if "error" in message:
                raise Failed(str(message["error"]))
            if "trained" in message:
                return float(message["arithmetic"]), float(message["seconds"])
            moved(int(message["step"]), int(message["total"]))

    def logits(self, prefixes: Tensor, vocab_size: int) -> Tensor:
        """Return the model's logits of the next token (N, V) after prefixes (N, t)."""
        self.line.send_bytes(json.dumps(list(prefixes.shape)).encode())
        self.line.send_bytes(prefixes.contiguous().numpy().tobytes())
        message = self._received()
        if message:
            raise Failed(str(json.loads(message).get("error", "it said something unexpected")))
        found = torch.frombuffer(bytearray(self._received()), dtype=torch.float32)
        if found.numel() != len(prefixes) * vocab_size or not found.isfinite().all():
            raise Failed("the model's logits are not finite, or too few")
        return found.view(len(prefixes), vocab_size)

    def _heard(self) -> dict:
        message = json.loads(self._received())
        if not isinstance(message, dict):
            raise Failed("its process said something unexpected")
        return message

    def _received(self) -> bytes:
        try:
            return self.line.recv_bytes()
        except EOFError:
            raise Failed("its process ended: was there enough memory?") from None


def run(
    entry: Entry,
    seed: int,
    moved: Moved = lambda done, total: None,
    secret: str = "",
    n_stories: int = STORIES,
    judged: int = JUDGED,
) -> Run:
    """Train an entry's model with one seed and measure it.

    secret: with the file's text and the seed, it chooses the words' numbers and the stories that measure. A teacher
    gives one that nobody else knows. n_stories: to train on. judged: stories that measure.
    Errors: Failed if the file stops with an error; Refused if a model is below the entropy, which none can be.
    """
    renamed = renaming(entry.number("words", seed, secret))  # (V,)
    with Runner(entry, seed, stories(2 * seed + 1, n_stories, renamed), len(renamed)) as runner:
        arithmetic, seconds = runner.trained(moved)
        above = measured(runner.logits, renamed, entry.number("stories", seed, secret), judged)
    return Run(seed, above, arithmetic, seconds)


def measured(logits: Callable[[Tensor, int], Tensor], renamed: Tensor, number: int, n: int = JUDGED) -> float:
    """Return the nats per token above the grammar's own loss, on n fresh stories that are shown token by token.

    logits: (prefixes (N, t), V) -> logits of the next token (N, V). number: chooses the stories.
    """
    town = Tinytown(number + 2**41)  # far from the seeds that train
    tokenizer, vocab_size = WordTokenizer(), len(renamed)
    fresh = town.sample(n)
    rows = sorted((renamed[torch.tensor(tokenizer.encode(story))] for story in fresh), key=len, reverse=True)
    best = -sum(town.log_prob(story) for story in fresh)
    nats, tokens = 0.0, sum(len(row) - 1 for row in rows)
    for t in range(1, len(rows[0])):
        going_on = [row for row in rows if len(row) > t]
        prefixes, targets = (torch.stack([row[part] for row in going_on]) for part in (slice(t), t))  # (N, t), (N,)
        nats += F.cross_entropy(logits(prefixes, vocab_size).double(), targets, reduction="sum").item()
    above = (nats - best) / tokens
    if above < -0.02:  # by chance, a model can be a little better than the grammar on a few hundred stories
        raise Refused(f"the model is {-above:.3f} nats below the entropy, which no honest predictor can be")
    return above


def seconds_per_step(entry: Entry, steps: int = 20) -> float:
    """Return the seconds of one training step of an entry on this machine now, without its first steps."""
    renamed, seen = renaming(0), list[tuple[int, float]]()
    with Runner(entry, 0, stories(1, 2000, renamed), len(renamed), most=steps) as runner:
        _, seconds = runner.trained(lambda done, total: seen.append((done, total)))
    return seconds / steps if math.isfinite(seconds) else math.inf
