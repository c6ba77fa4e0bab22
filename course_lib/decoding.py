"""Decoding: texts that grow token by token, and a model that reads every token once.

Chapters 13 and 14. What generate and beam_search have in common.
"""

from collections.abc import Collection, Sequence
from numbers import Integral

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.checks import prompts
from course_lib.embeddings import check_ids
from course_lib.models import evaluating


def pad_left(
    prompts: Sequence[Sequence[int] | Int[Tensor, "_"]], pad_id: int
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B"]]:
    """Prompts of different lengths as one batch: padding in front, so that all end together and grow together.

    Args:
        prompts: ids of each, at least one. pad_id: any id of the vocabulary; the model does not see it.
    Returns: ids (B, T), T the longest prompt's length, and left_padding (B,), how much padding stands before each.
        The text of row b is ids[b, left_padding[b] :].
    Errors: ValueError if there is no prompt, one is empty, or pad_id is not a whole number.
    """
    rows = [torch.as_tensor(prompt) for prompt in prompts]
    if not rows or any(row.ndim != 1 or len(row) == 0 or row.is_floating_point() for row in rows):
        raise ValueError(
            f"prompts must be lists of ids, at least one id in each, got {prompts!r}: "
            "begin with the start token if there is nothing else"
        )
    if not isinstance(pad_id, Integral):
        raise ValueError(f"pad_id must be a whole number, got {pad_id!r}")
    T = max(len(row) for row in rows)
    ids = torch.stack([F.pad(row, (T - len(row), 0), value=pad_id) for row in rows])  # (B, T)
    return ids, torch.tensor([T - len(row) for row in rows], device=ids.device)


def stop_ids(stop: int | Collection[int] | None, vocab_size: int) -> Int[Tensor, "_"]:
    """The ids that end a text, as a tensor. Errors: ValueError if one is outside the vocabulary."""
    stops = [stop] if isinstance(stop, Integral) else sorted(set(stop or ()))
    stops = torch.tensor(stops) if stops else torch.empty(0, dtype=torch.int64)
    check_ids(stops, vocab_size, name="stop ids")
    return stops


class Draft:
    """A batch of texts in the making, `ids` (B, T), and the model that continues them.

    Args:
        model: a DecoderOnly, an EncoderDecoder, or another module with config.vocab_size, config.max_seq_len and
            model(ids) -> logits (B, T, V), which takes cache and left_padding if they are used.
        ids: the prompts (B, T), T ≥ 1.
        left_padding: (B,), as pad_left makes it. source_ids: (B, S), what an EncoderDecoder translates; it is encoded
            once. source_mask: (B, 1, 1, S), as padding_mask makes it.
        use_cache: keep keys and values (model.new_cache()) and read new tokens only. None: if the model can.
    Errors: ValueError for an argument that does not fit the others or the model.
    """

    def __init__(
        self,
        model: nn.Module,
        ids: Int[Tensor, "B T"],
        left_padding: Int[Tensor, "B"] | None = None,
        source_ids: Int[Tensor, "B S"] | None = None,
        source_mask: Bool[Tensor, "B 1 1 S"] | None = None,
        use_cache: bool | None = None,
    ):
        prompts(getattr(model.config, "family", "decoder"), ids, left_padding, source_ids, source_mask)
        check_ids(ids, model.config.vocab_size)
        if use_cache and not hasattr(model, "new_cache"):
            raise ValueError(f"use_cache=True needs model.new_cache(), which {type(model).__name__} does not have")
        use_cache = hasattr(model, "new_cache") if use_cache is None else use_cache
        self.model, self.ids, self.left_padding, self.source_mask = model, ids, left_padding, source_mask
        self.cache, self.n_cached = (model.new_cache() if use_cache else None), 0
        self.encoded = None
        if source_ids is not None:
            with evaluating(model):
                self.encoded = model.encode(source_ids, source_mask)  # (B, S, d_model)

    def next_logits(self) -> Float[Tensor, "B V"]:
        """Logits of the token after each text, (B, V), without dropout and gradients.

        The model sees the last max_seq_len tokens. Once a text is longer, every step moves every token to another
        position: cached keys and values are then of no use, and each step reads the whole window.
        """
        T = self.ids.shape[1]
        outside = max(0, T - self.model.config.max_seq_len)
        if outside:
            self.cache, self.n_cached = None, 0
        unread = self.ids[:, max(outside, self.n_cached) :]
        extras = {}
        if self.cache is not None:
            extras["cache"], self.n_cached = self.cache, T
        if self.left_padding is not None:
            extras["left_padding"] = (self.left_padding - outside).clamp(min=0)
        with evaluating(self.model):
            if self.encoded is None:
                return self.model(unread, **extras)[:, -1]
            return self.model.decode(unread, self.encoded, self.source_mask, **extras)[:, -1]

    def append(self, new: Int[Tensor, "B"]) -> None:
        """Add one token to each text."""
        self.ids = torch.cat([self.ids, new[:, None].to(self.ids.dtype)], dim=1)  # (B, T + 1)

    def select(self, rows: Int[Tensor, "B_new"]) -> None:
        """Go on with these rows, in this order; a row may come twice."""
        for name in ("ids", "left_padding", "encoded", "source_mask"):
            if getattr(self, name) is not None:
                setattr(self, name, getattr(self, name)[rows])
        for caches in self.cache or ():
            for cache in caches:
                cache.select(rows)

    def real_ids(self) -> Int[Tensor, "B T"]:
        """ids in which a row's last token, which occurs anyway, stands in the place of padding."""
        if self.left_padding is None:
            return self.ids
        padding = torch.arange(self.ids.shape[1], device=self.ids.device) < self.left_padding[:, None]  # (B, T)
        return torch.where(padding, self.ids[:, -1:], self.ids)
