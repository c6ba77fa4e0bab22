"""Batches: join stories into one long row of ids, and cut rows from it for training."""

from collections.abc import Iterable, Iterator

import torch
from torch import Generator, Tensor

from course_lib.checks import (
    require_generator,
    require_kind,
    require_sizes,
    require_tensors,
    require_texts,
    require_whole,
)
from course_lib.tinytown.tokenizers import WordTokenizer


class Batches:
    """Yield (inputs, targets) without end from one long row of token ids. The targets are the inputs one step later.

    Args:
        ids: (N,) the entire text as ids.
        batch_size: rows per batch.
        T: tokens per row.
        generator: chooses where the rows begin; the same generator state gives the same batches.
        start_id: if given, every row begins at a token with this id (such as `<bos>`), so that no row begins in the
            middle of a story.

    Each batch: inputs (B, T), targets (B, T), both on the device of `ids`.
    Errors: ValueError if there are not T + 1 tokens, or no row of T + 1 tokens begins with start_id.
    """

    def __init__(
        self, ids: Tensor, batch_size: int, T: int, generator: Generator | None = None, start_id: int | None = None
    ):
        require_row(ids)
        require_sizes(batch_size=batch_size, T=T)
        require_generator(generator)
        if start_id is not None:
            require_whole([start_id], "start_id")
        if len(ids) < T + 1:
            raise ValueError(f"T={T} needs at least {T + 1} ids (a target for the last input), got {len(ids)}")
        self.ids, self.batch_size, self.T, self.generator = ids, batch_size, T, generator
        last = len(ids) - T  # one more than the last position at which T + 1 tokens can begin
        every = torch.arange(last, device=ids.device)
        self.starts = every if start_id is None else every[ids[:last] == start_id]
        if len(self.starts) == 0:
            raise ValueError(f"no row of {T + 1} ids begins with start_id={start_id}")

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        device = self.ids.device
        chosen = torch.randint(len(self.starts), (self.batch_size,), generator=self.generator).to(device)
        rows = self.ids[self.starts[chosen, None] + torch.arange(self.T + 1, device=device)]  # (B, T + 1)
        return rows[:, :-1], rows[:, 1:]


def encode_stories(stories: Iterable[str], tokenizer: WordTokenizer) -> Tensor:
    """Return all stories, joined into one row of ids (N,). Each story is encoded from `<bos>` to `<eos>`."""
    require_texts(stories=stories)
    require_kind(WordTokenizer, tokenizer=tokenizer)
    return torch.tensor([i for story in stories for i in tokenizer.encode(story)], dtype=torch.int64)


def require_row(ids: Tensor) -> None:
    """Raise ValueError unless ids are one row of whole numbers; TypeError if ids is not a tensor."""
    require_tensors(ids=ids)
    if ids.ndim != 1:
        raise ValueError(f"ids must be one row of token ids, shape (N,), got shape {tuple(ids.shape)}")
    if ids.is_meta or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise ValueError(f"ids must be whole numbers, got {ids.dtype} on {ids.device}")
