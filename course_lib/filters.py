"""Filters: from the model's logits to the distribution from which the next token is drawn.

Chapter 13. A penalty lowers what has been said, temperature reshapes the rest; top-k, top-p and min-p cut its tail.
"""

import math
from numbers import Real

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.checks import at_least_one, positive, share, tensors
from course_lib.embeddings import check_ids

# A float32 sum of probabilities is right to about this much. A set whose sum is nearer to p than that has reached p;
# otherwise a distribution such as 0.5, 0.25, 0.125, 0.125 would keep two or three tokens at p = 0.75 by luck.
ROUNDING = 1e-6


def top_k_filter(logits: Float[Tensor, "*batch V"], k: int) -> Float[Tensor, "*batch V"]:
    """Keep the k largest logits, set the others to −inf.

    Tokens that tie with the k-th are kept too, so that the result does not depend on their order. k > V keeps all.

    Errors: ValueError if k < 1, or logits are unusable.
    Source: Fan et al. 2018.
    """
    _check_logits(logits)
    at_least_one(top_k=k)
    kth_largest = logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]  # (..., 1)
    return logits.masked_fill(logits < kth_largest, -torch.inf)


def top_p_filter(logits: Float[Tensor, "*batch V"], p: float) -> Float[Tensor, "*batch V"]:
    """Keep the smallest set of most probable tokens whose probabilities sum to at least p; set the others to −inf.

    The token whose probability crosses p stays, so that the set is never empty. p = 1 keeps all. Among equal
    probabilities at the edge the smaller ids stay.

    Errors: ValueError if p is outside (0, 1], or logits are unusable.
    Source: Holtzman et al. 2020 ("nucleus sampling").
    """
    _check_logits(logits)
    share(top_p=p)
    if p == 1:
        return logits
    probabilities, order = _wide(logits).softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    sum_before = probabilities.cumsum(dim=-1) - probabilities  # of all tokens more probable than this one
    drop = sum_before > p - ROUNDING
    drop[..., 0] = False
    return logits.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -torch.inf)


def min_p_filter(logits: Float[Tensor, "*batch V"], p: float) -> Float[Tensor, "*batch V"]:
    """Keep the tokens with at least p times the probability of the most probable one; set the others to −inf.

    The set is small where the model is sure and large where it is not. In logits: keep where l ≥ max(l) + ln p.

    Errors: ValueError if p is outside (0, 1], or logits are unusable.
    Source: Nguyen et al. 2024, "Turning Up the Heat: Min-p Sampling".
    """
    _check_logits(logits)
    share(min_p=p)
    threshold = _wide(logits).amax(dim=-1, keepdim=True) + math.log(p) - ROUNDING  # (..., 1)
    return logits.masked_fill(logits < threshold, -torch.inf)


def penalize_repetition(
    logits: Float[Tensor, "*batch V"], ids: Int[Tensor, "*batch T"], penalty: float
) -> Float[Tensor, "*batch V"]:
    """Lower the logits of the tokens that occur in ids, once each, however often they occur.

    l → l / penalty where l > 0,   l · penalty where l < 0;   penalty > 1 lowers both, 1 changes nothing

    The result depends on where the model puts its zero, which softmax does not notice: give raw logits, before
    temperature and the filters.

    Errors: ValueError if penalty is not a positive number, ids do not fit the logits, or logits are unusable.
    Source: Keskar et al. 2019 (CTRL), section 4.1; the case l < 0 as in Hugging Face's transformers.
    """
    _check_logits(logits)
    positive(repetition_penalty=penalty)
    check_ids(ids, logits.shape[-1])
    if ids.shape[:-1] != logits.shape[:-1]:
        raise ValueError(f"ids must be (…, T) beside logits (…, V), got {tuple(ids.shape)} and {tuple(logits.shape)}")
    ids, logits = ids.long(), _wide(logits)
    occurring = logits.gather(-1, ids)  # (..., T)
    return logits.scatter(-1, ids, torch.where(occurring < 0, occurring * penalty, occurring / penalty))


def log_probabilities(logits: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch V"]:
    """ln p = logits − ln Σ exp(logits), in float32 at least. Errors: ValueError for unusable logits."""
    _check_logits(logits)
    return _wide(logits).log_softmax(dim=-1)


def next_token_distribution(
    logits: Float[Tensor, "*batch V"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Float[Tensor, "*batch V"]:
    """The probabilities from which the next token is drawn.

    p = softmax(filter(logits / temperature)), filtered by top-k, then top-p, then min-p; None leaves a filter out.

    Args:
        logits: (…, V). −inf forbids a token.
        temperature: below 1 sharper, above 1 flatter; 0 is greedy: all probability on the largest logit (the first, if
            several tie).
    Returns: probabilities (…, V), in float32, or float64 if the logits are.
    Errors: ValueError for NaN or +inf, a row of −inf alone, temperature < 0, k < 1, p outside (0, 1].
    """
    _check_logits(logits)
    if not isinstance(temperature, Real) or not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be a finite number ≥ 0 (0 = greedy), got {temperature!r}")
    logits = _wide(logits)
    largest = logits.amax(dim=-1, keepdim=True)  # (..., 1)
    # Softmax does not notice the shift, and a tiny temperature can then only lead to −inf, never to inf − inf.
    logits = logits - largest
    if temperature > torch.finfo(logits.dtype).tiny:
        logits = logits / min(temperature, torch.finfo(logits.dtype).max)
    else:
        greedy = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, logits.argmax(dim=-1, keepdim=True), True)
        logits = logits.masked_fill(~greedy, -torch.inf)
    for cut, setting in ((top_k_filter, top_k), (top_p_filter, top_p), (min_p_filter, min_p)):
        logits = logits if setting is None else cut(logits, setting)
    return logits.softmax(dim=-1)


def _wide(logits: Tensor) -> Tensor:
    """At least float32: half precision cannot tell the probabilities of a large vocabulary apart."""
    return logits if logits.dtype == torch.float64 else logits.float()


def _check_logits(logits: Tensor) -> None:
    tensors(logits=logits)
    if logits.ndim == 0 or logits.shape[-1] == 0 or not logits.is_floating_point():
        raise ValueError(f"logits must be numbers of shape (…, V), got shape {tuple(logits.shape)}, {logits.dtype}")
    largest = logits.amax(dim=-1)  # NaN if one logit of the row is
    if largest.isfinite().all():
        return
    if largest.isnan().any():
        raise ValueError("logits contain NaN: the model that made them has diverged, or its input was NaN")
    if (largest == torch.inf).any():
        raise ValueError("logits contain +inf: their softmax is NaN. Logits must be finite, or −inf to forbid a token")
    raise ValueError("a row of logits is −inf throughout: every token is forbidden, so none can be drawn")
