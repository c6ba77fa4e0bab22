"""A small decoder that reads Tinytown letter by letter. It must learn to spell, so every part of a block has an effect
after a few seconds of training.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.tinytown import Batches, Tinytown
from course_lib.training import train

STEPS = 300
T = 64  # letters in a row


@cache
def letters(n_stories: int, seed: int) -> tuple[Int[Tensor, "N"], int]:
    """Return (letters of Tinytown stories as ids, number of different letters)."""
    alphabet = {letter: i for i, letter in enumerate(sorted({*"".join(Tinytown().vocabulary), " "}))}
    return torch.tensor([alphabet[letter] for letter in " ".join(Tinytown(seed).sample(n_stories))]), len(alphabet)


def train_on_letters(
    seed: int,
    steps: int | None = None,
    nonlinearity: bool = True,
    d_model: int = 32,
    peak: float = 1e-2,
    prepare: Callable[[DecoderOnly], None] | None = None,
    on_step: Callable[[int, nn.Module], None] | None = None,
    rows: int = 16,
    **config,
) -> tuple[DecoderOnly, float]:
    """Train a small decoder on letters; return it and its loss on held-out letters, in nats per letter.

    Args:
        steps: updates; STEPS unless given. nonlinearity: False leaves the activation out. peak, on_step: as in
            `train`. prepare: called with the model before training. rows: the batch size. config: further fields of
            TransformerConfig.
    """
    torch.manual_seed(seed)
    ids, vocab_size = letters(1000, seed=0)
    sizes: dict[str, Any] = {"n_heads": 4, "n_layers": 1, "max_seq_len": T, "positions": "rope"} | config
    model = DecoderOnly(TransformerConfig(vocab_size, d_model, **sizes))
    if not nonlinearity:
        for block in model.blocks:
            both = nn.Sequential(block.feed_forward.up_proj, block.feed_forward.down_proj)
            block.add_module("feed_forward", both)
    if prepare:
        prepare(model)
    batches = Batches(ids, rows, T, torch.Generator().manual_seed(seed))
    train(model, batches, steps or STEPS, peak=peak, warmup=20, on_step=on_step, progress=False)
    inputs, targets = held_out_letters()
    with evaluating(model):
        _, loss = model(inputs, targets)
    return model, loss.item()


def held_out_letters() -> tuple[Int[Tensor, "N T"], Int[Tensor, "N T"]]:
    """Return letters on which no model here trains, and the letter after each."""
    ids, _ = letters(150, seed=20_000)
    rows = ids[: len(ids) // (T + 1) * (T + 1)].view(-1, T + 1)
    return rows[:, :-1], rows[:, 1:]
