"""Cache: what generating need not compute twice.

Chapter 14. A token's keys and values do not change when more tokens follow, so they are kept.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor


class KVCache:
    """Keep the keys and values of the tokens seen so far, so that each step of generating computes only the new ones.

    One cache serves one attention; `model.new_cache()` makes one for each. `key` and `value` are (B, H_kv, S, D), or
    None as long as the cache is empty; len(cache) is S.
    """

    def __init__(self):
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.key is None else self.key.shape[-2]

    def append(
        self, key: Float[Tensor, "B H_kv T D"], value: Float[Tensor, "B H_kv T D"]
    ) -> tuple[Float[Tensor, "B H_kv S D"], Float[Tensor, "B H_kv S D"]]:
        """Add T new tokens, (B, H_kv, T, D) each, and return all: (B, H_kv, S + T, D) each."""
        if self.key is not None and self.value is not None:
            if len(key) != len(self.key):
                raise ValueError(
                    f"the cache holds {len(self.key)} rows, but {len(key)} were given: a cache serves one batch; "
                    "make a new one for another"
                )
            key, value = torch.cat([self.key, key], dim=-2), torch.cat([self.value, value], dim=-2)
        self.key, self.value = key, value
        return key, value

    def once(self, compute: Callable[[Tensor], tuple[Tensor, Tensor]], context: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of a context that stays the same: computed at the first step, kept for others."""
        if self.key is None or self.value is None:
            self.key, self.value = compute(context)
        return self.key, self.value

    def select(self, rows: Int[Tensor, "B_new"]) -> None:
        """Keep these rows of the batch, in this order; a row may come twice (beam search)."""
        if self.key is not None and self.value is not None:
            self.key, self.value = self.key[rows], self.value[rows]


def cached_tokens(cache: Sequence[tuple[KVCache, KVCache]] | None, n_blocks: int) -> int:
    """Return how many tokens a model's cache holds, 0 if there is none. ValueError for that of another model."""
    if cache is None:
        return 0
    if len(cache) != n_blocks:
        raise ValueError(f"the cache is for {len(cache)} blocks, not {n_blocks}: make it with new_cache()")
    return len(cache[0][0])
