"""Cache: store keys and values, so that generation does not compute them twice.

Chapter 14. A token's keys and values do not change when more tokens follow, so we can reuse them.
"""

from collections.abc import Callable, Sequence
from numbers import Integral

from jaxtyping import Float, Int
from torch import Tensor

from course_lib.checks import require_ids, require_tensors

SMALLEST = 64  # tokens that a new cache has room for


class KVCache:
    """Store the keys and values of all tokens so far, so that each generation step computes only the new ones.

    Each attention has its own cache; `model.new_cache()` makes all of them. `key` and `value` are (B, H_kv, S, D), or
    None while the cache is empty; len(cache) is S. Both are views of a larger tensor whose capacity doubles when it is
    full, so most steps write only their own tokens and do not copy earlier ones.
    """

    def __init__(self):
        self._length = 0
        self._room: list[Tensor] = []  # keys and values, (B, H_kv, room, D) each, with room ≥ S

    def __len__(self) -> int:
        return self._length

    @property
    def key(self) -> Tensor | None:
        """Return the keys so far, (B, H_kv, S, D)."""
        return self._room[0][..., : len(self), :] if self._room else None

    @property
    def value(self) -> Tensor | None:
        """Return the values so far, (B, H_kv, S, D)."""
        return self._room[1][..., : len(self), :] if self._room else None

    def append(
        self, key: Float[Tensor, "B H_kv T D"], value: Float[Tensor, "B H_kv T D"]
    ) -> tuple[Float[Tensor, "B H_kv S D"], Float[Tensor, "B H_kv S D"]]:
        """Append T new tokens, (B, H_kv, T, D) each, and return all of them: (B, H_kv, S + T, D) each."""
        S, end = len(self), len(self) + key.shape[-2]
        if self._room and len(key) != len(self._room[0]):
            raise ValueError(
                f"the cache holds {len(self._room[0])} rows, but {len(key)} were given: a cache belongs to one "
                "batch, so make a new cache for another batch"
            )
        # The backward pass needs the tensors of earlier steps unchanged: with gradients, we never overwrite them.
        learning = any(tensor.requires_grad for tensor in (key, value, *self._room))
        if learning or not self._room or end > self._room[0].shape[-2]:
            size = end if learning else max(2 * end, SMALLEST)
            old, self._room = self._room, [new.new_empty(*new.shape[:-2], size, new.shape[-1]) for new in (key, value)]
            for room, kept in zip(self._room, old):
                room[..., :S, :] = kept[..., :S, :]
        for room, new in zip(self._room, (key, value)):
            room[..., S:end, :] = new
        self._length = end
        return self._room[0][..., :end, :], self._room[1][..., :end, :]

    def once(self, compute: Callable[[Tensor], tuple[Tensor, Tensor]], context: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of a context that does not change: computed in the first step, then reused."""
        if not self._room:
            self._room = list(compute(context))
            self._length = self._room[0].shape[-2]
        return self._room[0], self._room[1]

    def select(self, rows: Int[Tensor, "B_new"]) -> None:
        """Keep these rows of the batch, in this order; a row may occur more than once (beam search)."""
        _require_rows_kept(rows, self.key)
        self._room = [room[rows] for room in self._room]

    def keep(self, length: int) -> None:
        """Keep only the first `length` tokens and discard the rest (rejected guesses in speculative decoding).

        Errors: ValueError if the cache has fewer tokens."""
        _require_kept(length, len(self))
        self._length = length


def cached_tokens(cache: Sequence[tuple[KVCache, KVCache]] | None, n_blocks: int) -> int:
    """Return the number of tokens in a model's cache, 0 if there is none. ValueError for another model's cache."""
    if cache is None:
        return 0
    if not isinstance(cache, Sequence) or (cache and not isinstance(cache[0], tuple)):
        raise TypeError(f"cache must be a list of pairs of KVCache, got {cache!r:.60}: make it with new_cache()")
    if len(cache) != n_blocks:
        raise ValueError(
            f"the cache has {len(cache)} blocks, but the model has {n_blocks}: make it with model.new_cache()"
        )
    return len(cache[0][0])


def _require_kept(length: object, held: int) -> None:
    """Raise ValueError unless length is a whole number from 0 to the number of cached tokens."""
    if not isinstance(length, Integral) or isinstance(length, bool) or not 0 <= int(length) <= held:
        raise ValueError(f"length must be from 0 to {held}, the number of tokens in the cache, got {length!r:.60}")


def _require_rows_kept(rows: Tensor, key: Tensor | None) -> None:
    """Raise ValueError unless rows are indices into the batch of a cache; TypeError for a non-tensor."""
    require_tensors(rows=rows)
    if rows.ndim != 1:
        raise ValueError(f"rows must be a one-dimensional tensor of batch indices, got shape {tuple(rows.shape)}")
    if key is not None:
        require_ids(rows, len(key), name="rows", size="B", like=key)
