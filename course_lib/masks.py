"""Masks: which tokens each token may attend to.

Chapter 3. A mask is boolean, True = may attend, and broadcasts to (B, H, T, S): batch, heads, queries, keys.
"""

from collections.abc import Sequence
from numbers import Integral

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from course_lib.checks import (
    WHOLE,
    occurs,
    require_at_least_one,
    require_boolean,
    require_device,
    require_device_of,
    require_sizes,
    require_switches,
    require_tensors,
)


def causal_mask(T: int, S: int | None = None, device: torch.device | str | None = None) -> Bool[Tensor, "T S"]:
    """Return a mask that lets each token attend to itself and to earlier tokens: a lower triangle.

    mask[t, s] = s ≤ t + (S − T)

    With S > T the queries are the last T of S positions, after a cached prefix of S − T keys.

    Args:
        T: number of queries. S: number of keys; T unless given. device: where to create the mask.
    Errors: ValueError if S < T, because the first queries would have no key.
    """
    S = T if S is None else S
    require_sizes(T=T, S=S)
    require_device(device)
    if S < T:
        raise ValueError(f"S={S} keys are fewer than T={T} queries: the first queries would see nothing. Give S ≥ T")
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(diagonal=S - T)


def padding_mask(lengths: Int[Tensor, "B"] | Sequence[int], S: int, left: bool = False) -> Bool[Tensor, "B 1 1 S"]:
    """Return a mask that hides the padding at the end of each row; with left=True, the padding at the front.

    mask[b, 0, 0, s] = s < lengths[b]   (left: s ≥ S − lengths[b])

    The two dimensions of size 1 broadcast over all heads and queries.

    Errors: ValueError if a length is not in 0 … S.
    """
    require_switches(left=left)
    lengths = _require_lengths(lengths, S)
    position = torch.arange(S, device=lengths.device)
    mask = position >= S - lengths[:, None] if left else position < lengths[:, None]  # (B, S)
    return mask[:, None, None, :]  # (B, 1, 1, S)


def window_mask(
    T: int, S: int | None = None, window: int = 1, device: torch.device | str | None = None
) -> Bool[Tensor, "T S"]:
    """Return a causal mask that lets each token attend only to itself and the window − 1 tokens before it.

    mask[t, s] = 0 ≤ t + (S − T) − s < window

    Information from earlier tokens still arrives through the layers: each carries it window − 1 positions further.

    Args: T, S, device: as in causal_mask. window: number of keys that a query sees, at least 1.
    Errors: ValueError if S < T or window < 1.
    Source: Child et al. 2019, "Sparse Transformers"; Jiang et al. 2023 (Mistral 7B), section 2.
    """
    require_at_least_one(window=window)
    mask = causal_mask(T, S, device)
    return mask & ~mask.tril(diagonal=mask.shape[1] - T - window)


def prefix_mask(prefix_len: int, T: int, device: torch.device | str | None = None) -> Bool[Tensor, "T T"]:
    """Return a causal mask in which the first prefix_len tokens also see each other in both directions.

    mask[t, s] = s < prefix_len or s ≤ t

    Errors: ValueError if prefix_len is not in 0 … T.
    Source: the "prefix LM" of Raffel et al. 2020 (T5).
    """
    mask = causal_mask(T, device=device)
    if not isinstance(prefix_len, Integral) or isinstance(prefix_len, bool) or not 0 <= prefix_len <= T:
        raise ValueError(f"prefix_len must be a whole number from 0 to T={T}, got {prefix_len!r}")
    mask[:, :prefix_len] = True
    return mask


def document_mask(document_ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B 1 T T"]:
    """Return a causal mask for rows that are packed from several documents: no token sees another document.

    mask[b, 0, t, s] = s ≤ t and document_ids[b, s] = document_ids[b, t]

    Two tokens of a row belong to the same document if their ids are equal, even if other documents are between them.
    Padding is like another document if it has a separate id, such as −1: every query sees a key, at least its own.

    Args: document_ids: (B, T), whole numbers in any order; they are only compared within a row.
    Errors: ValueError unless document_ids is a table of whole numbers.
    Source: Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination".
    """
    require_tensors(document_ids=document_ids)
    if document_ids.ndim != 2 or document_ids.dtype not in WHOLE:
        kind = f"shape {tuple(document_ids.shape)}, {document_ids.dtype}"
        raise ValueError(f"document_ids must be whole numbers of shape (B, T), got {kind}")
    same = document_ids[:, :, None] == document_ids[:, None, :]  # (B, T, T)
    return same.tril()[:, None]  # (B, 1, T, T), without the keys after the query


def combine(*masks: Bool[Tensor, "..."] | None) -> Bool[Tensor, "..."]:
    """Return a mask that is True where every mask is True (logical and, with broadcasting). None allows everything.

    Errors: ValueError if all masks are None, one is not boolean, or the shapes do not broadcast.
    """
    given = [mask for mask in masks if mask is not None]
    if not given:
        raise ValueError("combine needs at least one mask that is not None")
    for mask in given:
        require_boolean(mask)
        require_device_of(given[0], mask=mask)
    try:
        torch.broadcast_shapes(*(mask.shape for mask in given))
    except RuntimeError:
        shapes = " and ".join(str(tuple(mask.shape)) for mask in given)
        raise ValueError(f"masks of shapes {shapes} do not fit together: each must broadcast to (B, H, T, S)") from None
    result = given[0]
    for mask in given[1:]:
        result = result & mask
    return result


def _require_lengths(lengths: object, S: int) -> Tensor:
    """Return the lengths as a tensor. Raise ValueError unless they are one whole number per row, in 0 … S."""
    try:
        given = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"lengths must be one whole number per row, got {lengths!r:.80}") from None
    if given.ndim != 1 or given.is_floating_point() or given.is_complex() or given.dtype == torch.bool or given.is_meta:
        kind = f"shape {tuple(given.shape)}, {given.dtype} on {given.device}"
        raise ValueError(f"lengths must be one whole number per row, got {kind}")
    require_sizes(S=S, rows=max(1, len(given)))
    wrong = (given < 0) | (given > S)
    if occurs(wrong):
        raise ValueError(f"lengths contain {given[wrong][0].item()}, but a row of S={S} keys has a length of 0 to {S}")
    return given
