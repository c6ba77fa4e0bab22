"""Fine-tuning of the Tinytown model on a second town, with all of its weights or with LoRA. Chapter 15."""

import statistics
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.checks import require_at_least_one, require_one_of
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import CAPITALS, Batches, Tinytown, WordTokenizer, encode_stories, join_words, split_words
from course_lib.training import story_losses, train

# The second town speaks a dialect, and each country there has the capital of the next country. Every word is replaced
# by exactly one other. So a story there is as probable as its original here, and both towns have the same entropy.
DIALECT = {"the": "a", "a": "the", "was": "is", "is": "was"}
MOVED = dict(zip(CAPITALS.values(), [*list(CAPITALS.values())[1:], next(iter(CAPITALS.values()))]))


def second_town(text: str) -> str:
    """Return a text of Tinytown in the dialect of the second town: "the cat was tired" -> "a cat is tired"."""
    return join_words((DIALECT | MOVED).get(word, word) for word in split_words(text))


class LoRALinear(nn.Module):
    """Keep a linear layer unchanged, and train the product of two thin matrices that is added to its matrix.

    y = x (W + (alpha / rank) · B A)ᵀ + b,   computed as x Wᵀ + b + ((alpha / rank) · x Aᵀ) Bᵀ

    Args:
        linear: the layer, d_in to d_out; none of its parameters is trained any more.
        rank: rows of A and columns of B, much smaller than d_in and d_out.
        alpha: B A is multiplied by alpha / rank, so that another rank needs no other learning rate.

    Parameters: `A` (rank, d_in), random, and `B` (d_out, rank), zeros, so a new layer computes the same as `linear`.
    Errors: ValueError if rank < 1.
    Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1.
    """

    def __init__(self, linear: nn.Linear, rank: int, alpha: float):
        super().__init__()
        require_at_least_one(rank=rank)
        self.linear = linear.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, linear.in_features) / linear.in_features**0.5)
        self.B = nn.Parameter(torch.zeros(linear.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        low = self.scale * (x @ self.A.T)  # (..., rank): scaled here, where there are few numbers
        return self.linear(x) + low @ self.B.T


def with_lora(model: DecoderOnly, rank: int, alpha: float) -> DecoderOnly:
    """Freeze a model and replace every linear layer of its blocks by a LoRALinear. Return the same model."""
    model.requires_grad_(False)
    for block in model.blocks:
        for name, module in list(block.named_modules()):
            if isinstance(module, nn.Linear):
                home, _, own = name.rpartition(".")
                setattr(block.get_submodule(home), own, LoRALinear(module, rank, alpha))
    return model


STEPS, BATCH, T = 60, 8, 64
RANK, ALPHA = 8, 16
RATES = {"all": (5e-4, 1e-3, 2e-3), "lora": (2.5e-3, 5e-3, 1e-2)}  # LoRA needs larger ones for the same steps
LOOK_EVERY = 10  # steps from one evaluation to the next
SAME = 0.85  # nats in the second town at which we compare runs: 0.2 above the entropy


@cache
def _their_ids() -> Tensor:
    return encode_stories(map(second_town, Tinytown(7).sample(2000)), WordTokenizer())


@cache
def _held_out(n_stories: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the same stories in the dialect of the second town and in Tinytown's words, as ids."""
    stories, tokenizer = Tinytown(HELD_OUT_SEED).sample(n_stories), WordTokenizer()
    return [tokenizer.encode(second_town(story)) for story in stories], list(map(tokenizer.encode, stories))


def both_losses(model: nn.Module, n_stories: int = 24) -> tuple[float, float]:
    """Return the losses on held-out stories, in nats per predicted token: in the second town, and in Tinytown."""
    both = (story_losses(model, stories) for stories in _held_out(n_stories))
    return cast(tuple[float, float], tuple((nats.sum() / tokens.sum()).item() for nats, tokens in both))


KINDS = {"the, a, was, is": frozenset(DIALECT), "capitals": frozenset(MOVED)}  # the words that differ between the towns
OTHERS = "all other words"


def losses_by_kind(model: nn.Module, n_stories: int = 200) -> dict[str, float]:
    """Return the mean loss on held-out stories of Tinytown, in nats per predicted token, for each of KINDS and for all
    other tokens."""
    tokenizer, found = WordTokenizer(), dict[str, list[float]]()
    stories = sorted(map(tokenizer.encode, Tinytown(HELD_OUT_SEED).sample(n_stories)), key=len)
    for some in (stories[i : i + 25] for i in range(0, n_stories, 25)):
        ids = nn.utils.rnn.pad_sequence([torch.tensor(story) for story in some], batch_first=True)  # (B, T + 1)
        with evaluating(model):
            logits = model(ids[:, :-1]).transpose(1, 2)  # (B, V, T)
        nats = nn.functional.cross_entropy(logits, ids[:, 1:], reduction="none")  # (B, T)
        for story, losses in zip(some, nats.tolist()):
            for i, loss in zip(story[1:], losses):
                word = tokenizer.tokens[i]
                kind = next((kind for kind, words in KINDS.items() if word in words), OTHERS)
                found.setdefault(kind, []).append(loss)
    return {kind: statistics.fmean(found[kind]) for kind in (*KINDS, OTHERS)}


class _Reached(Exception):
    """Stop training, because the loss in the second town is low enough."""


def fine_tuned(
    way: str, seed: int, rate: float | None = None, steps: int = STEPS, until: float = 0.0
) -> tuple[DecoderOnly, list[tuple[float, float]]]:
    """Return the Tinytown model after training on stories of the second town, and both losses: before the training, and
    after every LOOK_EVERY steps.

    Args:
        way: "all" trains every weight, "lora" only A and B.
        seed: for the batches, which are the same for both ways.
        rate: the learning rate, by default the largest of RATES.
        until: training ends as soon as the loss in the second town is this low.

    Errors: ValueError for another way.
    """
    require_one_of(tuple(RATES), way=way)
    model, tokenizer = load_pretrained("tinytown")
    if way == "lora":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            with_lora(model, RANK, ALPHA)
    seen: list[tuple[float, float]] = []

    def look(step: int, trained: nn.Module) -> None:
        if step % LOOK_EVERY == 0:
            seen.append(both_losses(trained))
            if seen[-1][0] <= until:
                raise _Reached

    batches = Batches(_their_ids(), BATCH, T, torch.Generator().manual_seed(seed), start_id=tokenizer.bos_id)
    with suppress(_Reached):
        train(model, batches, steps, rate or RATES[way][-1], 20, weight_decay=0.0, on_step=look, progress=False)
    return model.eval(), seen


def forgotten_at(seen: Sequence[tuple[float, float]], new: float) -> float:
    """Return the loss in Tinytown when the loss in the second town has fallen to `new`, interpolated between two
    evaluations.

    Errors: ValueError if the loss never falls so far.
    """
    for (new_before, old_before), (new_after, old_after) in pairwise(seen):
        if new_after <= new < new_before:
            share = (new_before - new) / (new_before - new_after)
            return old_before + share * (old_after - old_before)
    raise ValueError(f"the loss never falls to new={new} nats: the lowest is {min(each for each, _ in seen):.2f}")


def trained_parameters(model: nn.Module) -> int:
    """Return the number of trained parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
