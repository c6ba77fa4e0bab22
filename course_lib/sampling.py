"""Sampling: from logits to the next token, and on to text.

Chapter 13. Temperature reshapes the distribution; top-k, top-p and min-p cut its tail; a draw chooses.
"""

import math
from collections.abc import Collection, Iterator
from numbers import Integral, Real

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.checks import at_least_one
from course_lib.embeddings import check_ids
from course_lib.models import evaluating

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
    _check_share("top_p", p)
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
    _check_share("min_p", p)
    threshold = _wide(logits).amax(dim=-1, keepdim=True) + math.log(p) - ROUNDING  # (..., 1)
    return logits.masked_fill(logits < threshold, -torch.inf)


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
    if top_k is not None:
        logits = top_k_filter(logits, top_k)
    if top_p is not None:
        logits = top_p_filter(logits, top_p)
    if min_p is not None:
        logits = min_p_filter(logits, min_p)
    return logits.softmax(dim=-1)


def sample_next_token(
    logits: Float[Tensor, "*batch V"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "*batch"]:
    """Draw one token per row from next_token_distribution.

    One uniform number u per row, and the first token at which the running sum of probabilities exceeds u. Unlike
    torch.multinomial, which uses a random number per token of the vocabulary and other streams on other devices, this
    spends the generator evenly, and a small change of the logits changes the token only if u lies at its edge. The draw
    happens on the CPU in float64, so the same seed gives the same text on a GPU, as far as the logits agree.

    Args:
        generator: a seeded torch.Generator for text that can be repeated; torch's global one unless given.
    Returns: ids (…).
    """
    probabilities = next_token_distribution(logits, temperature, top_k, top_p, min_p)
    running_sum = probabilities.detach().cpu().double().cumsum(dim=-1)  # (..., V)
    device = "cpu" if generator is None else generator.device
    u = torch.rand(logits.shape[:-1], dtype=torch.float64, generator=generator, device=device).cpu()
    threshold = u[..., None] * running_sum[..., -1:]  # the sum is 1 up to rounding
    return torch.searchsorted(running_sum, threshold, right=True).squeeze(-1).to(logits.device)


def generate(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    stop: int | Collection[int] | None = None,
    generator: torch.Generator | None = None,
    stream: bool = False,
) -> Int[Tensor, "B T_new"] | Iterator[Int[Tensor, "B"]]:
    """Continue each row of ids, one token at a time.

    The model sees at most the last max_seq_len tokens. It runs without dropout and gradients, and is left in the mode
    in which it was.

    Args:
        model: a DecoderOnly, or another module with `.config` and model(ids) -> logits (B, T, V).
        ids: the prompts (B, T), T ≥ 1, all of the same length.
        max_new_tokens: longest continuation.
        temperature, top_k, top_p, min_p: as in next_token_distribution.
        stop: id, or several, that end a row. A row that has stopped is filled with the id that stopped it until the
            others have stopped too.
        generator: a seeded torch.Generator. The draws of a row depend on its place in the batch.
        stream: return an iterator over each step's new ids (B,) as they are made, instead of the whole.
    Returns: ids (B, T + n), the prompt and n ≤ max_new_tokens new tokens; with stream the iterator.
    Errors: ValueError for an empty prompt, ids or stop outside the vocabulary, or a bad setting.
    """
    if ids.ndim != 2 or ids.numel() == 0:
        raise ValueError(
            f"ids must be prompts of shape (B, T) with at least one token each, got shape {tuple(ids.shape)}: "
            "begin with the start token if there is nothing else"
        )
    vocab_size = model.config.vocab_size
    check_ids(ids, vocab_size)
    if not isinstance(max_new_tokens, Integral) or max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must be a whole number ≥ 0, got {max_new_tokens!r}")
    stops = [stop] if isinstance(stop, Integral) else list(stop or ())
    stops = torch.tensor(stops) if stops else torch.empty(0, dtype=torch.int64)
    check_ids(stops, vocab_size, name="stop ids")
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    # A bad setting is named here, not at the first step of a stream.
    next_token_distribution(torch.zeros(1), **settings)

    steps = _steps(model, ids, max_new_tokens, stops.to(ids.device), settings, generator)
    if stream:
        return steps
    return torch.cat([ids, *(new[:, None] for new in steps)], dim=1)  # (B, T + n)


def _steps(model, ids, max_new_tokens, stops, settings, generator) -> Iterator[Tensor]:
    stopped = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)  # (B,)
    for _ in range(max_new_tokens):
        if stopped.all():
            return
        with evaluating(model):
            logits = model(ids[:, -model.config.max_seq_len :])[:, -1]  # (B, V)
        new = sample_next_token(logits, **settings, generator=generator).to(ids.dtype)
        # A stopped row repeats its last id, the one that stopped it, and so stays stopped.
        new = torch.where(stopped, ids[:, -1], new)
        stopped = torch.isin(new, stops)
        ids = torch.cat([ids, new[:, None]], dim=1)
        yield new


def _wide(logits: Tensor) -> Tensor:
    """At least float32: half precision cannot tell the probabilities of a large vocabulary apart."""
    return logits if logits.dtype == torch.float64 else logits.float()


def _check_logits(logits: Tensor) -> None:
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


def _check_share(name: str, p: float) -> None:
    if not isinstance(p, Real) or not 0 < p <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {p!r}")
