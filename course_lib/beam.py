"""Beam search: keep several promising beginnings of a text instead of one.

Chapter 13. Greedy decoding cannot revise a token. A beam that starts less probable may end more probable.
"""

import math
from collections.abc import Collection

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.checks import is_number, require_at_least_one, require_count
from course_lib.sampling import Draft, log_probabilities, stop_ids


def beam_search(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    max_new_tokens: int,
    n_beams: int = 4,
    stop: int | Collection[int] | None = None,
    length_penalty: float = 1.0,
    *,
    left_padding: Int[Tensor, "B"] | None = None,
    source_ids: Int[Tensor, "B S"] | None = None,
    source_mask: Bool[Tensor, "B 1 1 S"] | None = None,
    use_cache: bool | None = None,
) -> tuple[Int[Tensor, "B T_new"], Float[Tensor, "B"]]:
    """Return the continuation of each prompt with the best score that a search with n_beams beams finds.

    score = Σ ln p(token | previous tokens) / n^length_penalty,   n = number of new tokens, including the stop id

    Each step extends every beam by every token and keeps the best n_beams. If one of these ends in a stop id, it is
    complete: its score is recorded, and the next best candidate replaces it. At max_new_tokens all beams are complete.
    The search ends earlier if no open beam can still beat the best complete score. One beam is greedy decoding;
    V^max_new_tokens beams are an exhaustive search.

    Args:
        length_penalty: 0 compares sums, which favours short texts; 1 compares means; larger values favour longer texts.
        The others: as in generate.
    Returns: ids (B, T + n), the best text of each row, where shorter texts repeat their last id up to the full length;
        and the scores (B,).
    Errors: ValueError for an invalid setting, and as in generate.
    Source: Wu et al. 2016 (GNMT), section 7, with n^length_penalty as the length normalization; Hugging Face's
        transformers, early_stopping="never".
    """
    require_at_least_one(max_new_tokens=max_new_tokens, n_beams=n_beams)
    require_count(max_new_tokens=max_new_tokens)
    require_length_penalty(length_penalty, max_new_tokens)
    max_new_tokens = int(max_new_tokens)
    length_penalty = float(length_penalty)  # the integer n ** 40 could be too large for a tensor
    draft = Draft(model, ids, left_padding, source_ids, source_mask, use_cache)
    stops = stop_ids(stop, draft.model.config.vocab_size).to(ids.device)
    # Each beam has at most one continuation per stop id, so this many candidates always leave n_beams open. Greedy
    # decoding (one beam) ends at the stop id, so it needs no extra candidates.
    n_candidates = n_beams * (1 + len(stops)) if n_beams > 1 else 1

    best = list(ids)
    best_score = torch.full((len(ids),), -torch.inf, device=ids.device)  # (B,)
    sums = torch.zeros(len(ids), 1, device=ids.device)  # (B, k): Σ ln p of k open beams; at first k = 1, the prompt
    for n in range(1, max_new_tokens + 1):
        log_p = log_probabilities(draft.next_logits()).unflatten(0, sums.shape)  # (B, k, V)
        B, k, V = log_p.shape
        sums = (sums[..., None] + log_p).flatten(1)  # (B, k * V)
        sums, index = sums.topk(min(n_candidates, k * V))  # (B, c) each, best first
        rows, new = index // V + k * torch.arange(B, device=ids.device)[:, None], index % V  # (B, c): beam, token

        ended = torch.isin(new, stops) | (n == max_new_tokens)
        scores = (sums / n**length_penalty).masked_fill(~ended, -torch.inf)
        score, place = scores[:, :n_beams].max(dim=1)  # (B,)
        for b in (score > best_score).nonzero().flatten().tolist():
            best[b] = torch.cat([draft.ids[rows[b, place[b]]], new[b, place[b], None].to(ids.dtype)])
        best_score = torch.maximum(best_score, score)

        sums, place = sums.masked_fill(ended, -torch.inf).topk(min(n_beams, sums.shape[1]))  # (B, k): the open beams
        # A sum can only decrease. Dividing it by the largest possible length gives an upper bound on the final score.
        longest = max_new_tokens if length_penalty > 0 else n + 1
        if (best_score >= sums[:, 0] / longest**length_penalty).all():
            break
        draft.select(rows.gather(1, place).flatten())
        draft.append(new.gather(1, place).flatten())
    T = max(len(row) for row in best)
    return torch.stack([F.pad(row, (0, T - len(row)), value=int(row[-1])) for row in best]), best_score


def require_length_penalty(length_penalty: object, max_new_tokens: int) -> None:
    """Raise ValueError unless n^length_penalty is within 1e±30, so that a sum divided by it still fits a float32."""
    largest = int(30 / math.log10(max_new_tokens + 1))
    if not is_number(length_penalty) or not abs(length_penalty) <= largest:
        raise ValueError(
            f"length_penalty must be a finite number from -{largest} to {largest} for max_new_tokens={max_new_tokens} "
            f"(0 compares sums, 1 compares means), got {length_penalty!r}"
        )
