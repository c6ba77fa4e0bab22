"""Sampling: choose the next token from the model's logits, and repeat this to write text.

Chapter 13. The repetition penalty lowers the logits of tokens that already occur. Temperature makes the distribution
sharper or flatter. Top-k, top-p and min-p cut off its tail. The next token is then sampled from the remaining tokens.
`Draft` holds the unfinished texts and runs the model on them; with the cache, the model reads each token only once.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from numbers import Integral
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from tqdm.auto import tqdm

from course_lib import checks
from course_lib.gpt import DecoderOnly, evaluating

# The rounding error of a float32 sum of probabilities. A set whose sum is within this distance of p counts as having
# reached p; otherwise rounding would decide whether 0.5, 0.25, 0.125, 0.125 keeps two or three tokens at p = 0.75.
ROUNDING = 1e-6


def top_k_filter(logits: Float[Tensor, "*batch V"], k: int) -> Float[Tensor, "*batch V"]:
    """Keep the k largest logits and set the others to −inf.

    Tokens that tie with the k-th are also kept, so the result does not depend on their order. k > V keeps all.

    Errors: ValueError if k < 1 or the logits are unusable.
    Source: Fan et al. 2018.
    """
    _require_logits(logits)
    checks.require_at_least_one(top_k=k)
    kth_largest = logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]  # (..., 1)
    return logits.masked_fill(logits < kth_largest, -torch.inf)


def top_p_filter(logits: Float[Tensor, "*batch V"], p: float) -> Float[Tensor, "*batch V"]:
    """Keep the smallest set of most probable tokens whose probabilities sum to at least p; set the others to −inf.

    The token with which the sum reaches p is kept, so the set is never empty. p = 1 keeps all. If several tokens with
    the same probability compete for the last positions in the set, the smaller ids are kept.

    Errors: ValueError if p is outside (0, 1] or the logits are unusable.
    Source: Holtzman et al. 2020 ("nucleus sampling").
    """
    _require_logits(logits)
    checks.require_share(top_p=p)
    if p == 1:
        return logits
    probabilities, order = _wide(logits).softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    sum_before = probabilities.cumsum(dim=-1) - probabilities  # the sum of all tokens sorted before this one
    drop = sum_before > p - ROUNDING
    drop[..., 0] = False
    return logits.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -torch.inf)


def min_p_filter(logits: Float[Tensor, "*batch V"], p: float) -> Float[Tensor, "*batch V"]:
    """Keep the tokens with at least p times the probability of the most probable one; set the others to −inf.

    The set is small where the model is confident and large where it is not. In logits: keep l ≥ max(l) + ln p.

    Errors: ValueError if p is outside (0, 1] or the logits are unusable.
    Source: Nguyen et al. 2024, "Turning Up the Heat: Min-p Sampling".
    """
    _require_logits(logits)
    checks.require_share(min_p=p)
    threshold = _wide(logits).amax(dim=-1, keepdim=True) + math.log(p) - ROUNDING  # (..., 1)
    return logits.masked_fill(logits < threshold, -torch.inf)


def penalize_repetition(
    logits: Float[Tensor, "*batch V"], ids: Int[Tensor, "*batch T"], penalty: float
) -> Float[Tensor, "*batch V"]:
    """Lower the logits of the tokens in ids. A token that occurs several times is lowered only once.

    l → l / penalty where l > 0,   l · penalty where l < 0;   penalty > 1 lowers both, 1 changes nothing

    Pass raw logits, before temperature and filters. Adding a constant to all logits does not change their softmax, but
    it changes the result here, because the penalty depends on the sign of each logit.

    Errors: ValueError if penalty is not a positive number, ids do not match the logits, or the logits are unusable.
    Source: Keskar et al. 2019 (CTRL), section 4.1; for l < 0, Hugging Face's transformers.
    """
    _require_logits(logits)
    _require_penalty(penalty)
    checks.require_ids(ids, logits.shape[-1], like=logits)
    if ids.shape[:-1] != logits.shape[:-1]:
        raise ValueError(f"ids must be (…, T) and logits (…, V), got {tuple(ids.shape)} and {tuple(logits.shape)}")
    ids, logits = ids.long(), _wide(logits)
    occurring = logits.gather(-1, ids)  # (..., T)
    return logits.scatter(-1, ids, torch.where(occurring < 0, occurring * penalty, occurring / penalty))


def log_probabilities(logits: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch V"]:
    """Return ln p = logits − ln Σ exp(logits), in at least float32. Errors: ValueError for unusable logits."""
    _require_logits(logits)
    return _wide(logits).log_softmax(dim=-1)


def next_token_distribution(
    logits: Float[Tensor, "*batch V"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Float[Tensor, "*batch V"]:
    """Return the probabilities from which the next token is sampled.

    p = softmax(filter(logits / temperature))

    Args:
        logits: (…, V). −inf forbids a token.
        temperature: below 1 sharper, above 1 flatter. 0 is greedy: the largest logit gets all the probability (the
            first, if several tie).
        top_k, top_p, min_p: the filters, applied in this order. None: leave the filter out.
    Returns: probabilities (…, V), in float32, or in float64 if the logits are.
    Errors: ValueError for NaN or +inf, a row that is all −inf, temperature < 0, k < 1, p outside (0, 1].
    """
    _require_logits(logits)
    _require_temperature(temperature)
    logits = _wide(logits)
    largest = logits.amax(dim=-1, keepdim=True)  # (..., 1)
    # Subtracting the largest logit does not change the softmax. No logit is then above 0, so dividing by a tiny
    # temperature can overflow only to −inf, and softmax never computes inf − inf.
    logits = logits - largest
    if temperature > torch.finfo(logits.dtype).tiny:
        logits = logits / min(temperature, torch.finfo(logits.dtype).max)
    else:
        greedy = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, logits.argmax(dim=-1, keepdim=True), True)
        logits = logits.masked_fill(~greedy, -torch.inf)
    cuts: Any = ((top_k_filter, top_k), (top_p_filter, top_p), (min_p_filter, min_p))
    for cut, setting in cuts:
        logits = logits if setting is None else cut(logits, setting)
    return logits.softmax(dim=-1)


def _wide(logits: Tensor) -> Tensor:
    """Convert half precision to float32: it is too coarse to distinguish the probabilities of a large vocabulary."""
    return logits if logits.dtype == torch.float64 else logits.float()


def _require_logits(logits: Tensor) -> None:
    checks.require_tensors(logits=logits)
    if logits.ndim == 0 or logits.is_meta or logits.shape[-1] == 0 or not logits.is_floating_point():
        raise ValueError(f"logits must be numbers of shape (…, V), got shape {tuple(logits.shape)}, {logits.dtype}")
    largest = logits.amax(dim=-1)  # NaN if any logit in the row is NaN
    if not checks.occurs(~largest.isfinite()):
        return
    if largest.isnan().any():
        raise ValueError("logits contain NaN: the model that made them has diverged, or its input was NaN")
    if (largest == torch.inf).any():
        raise ValueError("logits contain +inf: their softmax is NaN. Logits must be finite, or −inf to forbid a token")
    raise ValueError("all logits of a row are −inf: every token is forbidden, so none can be sampled")


def sample_next_token(
    logits: Float[Tensor, "*batch V"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "*batch"]:
    """Sample one token per row from next_token_distribution.

    Each row takes one uniform random number u and chooses the first token at which the running sum of probabilities
    exceeds u. torch.multinomial instead uses one random number per token of the vocabulary, and its random numbers
    differ between devices. With a single u, a small change in the logits changes the token only if u is close to a
    boundary between two tokens. Sampling runs on the CPU in float64, so the same seed gives the same text on a GPU if
    the logits agree.

    Args:
        generator: a seeded torch.Generator, for reproducible text. None: PyTorch's global generator.
    Returns: ids (…).
    """
    checks.require_generator(generator)
    probabilities = next_token_distribution(logits, temperature, top_k, top_p, min_p)
    running_sum = probabilities.detach().cpu().double().cumsum(dim=-1)  # (..., V)
    device = "cpu" if generator is None else generator.device
    u = torch.rand(logits.shape[:-1], dtype=torch.float64, generator=generator, device=device).cpu()
    threshold = u[..., None] * running_sum[..., -1:]  # rounding can make the full sum differ slightly from 1
    return torch.searchsorted(running_sum, threshold, right=True).squeeze(-1).to(logits.device)


def generate_simple(
    model: Any,
    ids: Int[Tensor, "B T"],
    max_new_tokens: int,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "B T_new"]:
    """Continue each row of ids: predict the next token, sample it, append it, and repeat.

    Read this one first. `generate` writes the same text from the same seed; it is faster and has more settings.

    Args: as in `generate`. Returns: ids (B, T + max_new_tokens). Errors: ValueError as in `generate`.
    """
    _require_decoder_prompts(model, ids, max_new_tokens)
    with evaluating(model):
        for _ in range(max_new_tokens):
            logits = model(ids[:, -model.config.max_seq_len :])  # (B, T, V), T at most max_seq_len
            new = sample_next_token(logits[:, -1], temperature, generator=generator)  # (B,)
            ids = torch.cat([ids, new[:, None].to(ids.dtype)], dim=1)  # (B, T + 1)
    return ids


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
    *,
    repetition_penalty: float = 1.0,
    left_padding: Int[Tensor, "B"] | None = None,
    source_ids: Int[Tensor, "B S"] | None = None,
    source_mask: Bool[Tensor, "B 1 1 S"] | None = None,
    use_cache: bool | None = None,
    progress: bool = False,
) -> Int[Tensor, "B T_new"] | Iterator[Int[Tensor, "B"]]:
    """Continue each row of ids, one token at a time.

    logits → repetition penalty → temperature → top-k → top-p → min-p → softmax → sample

    The model sees at most the last max_seq_len tokens. It runs without dropout and gradients, and afterwards returns to
    its previous mode, training or evaluation. The cache makes generation faster and does not change the text.

    Args:
        model: a DecoderOnly, an EncoderDecoder, or another module with `.config` and model(ids) -> logits (B, T, V).
        ids: the prompts (B, T), T ≥ 1; for an EncoderDecoder the beginning of the target, such as <bos>.
        max_new_tokens: the maximum number of new tokens per row.
        temperature, top_k, top_p, min_p: as in next_token_distribution.
        stop: one or several ids that end a row. A row that has stopped repeats its stop id until all other rows have
            stopped. For any other condition, use stream=True and leave the loop.
        generator: a seeded torch.Generator. The random numbers of a row depend on its position in the batch.
        stream: return an iterator over the new ids (B,) of each step, instead of the complete ids at the end.
        repetition_penalty: as in penalize_repetition, applied to all tokens of the prompt and the new text, without
            padding.
        left_padding: (B,), for prompts of different lengths: `ids, left_padding = pad_left(prompts, pad_id)`.
        source_ids: (B, S), the text that an EncoderDecoder translates. source_mask: (B, 1, 1, S), from padding_mask.
        use_cache: keep the keys and values of earlier tokens; needs model.new_cache(). None: only if the model has it.
        progress: show a progress bar.
    Returns: ids (B, T + n), the prompt followed by n ≤ max_new_tokens new tokens; with stream=True, the iterator.
    Errors: ValueError for an empty prompt, ids or stop ids outside the vocabulary, or an invalid setting.
    """
    checks.require_count(max_new_tokens=max_new_tokens)
    checks.require_switches(stream=stream, progress=progress)
    settings: Any = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    # Check the settings now: a stream would otherwise report an invalid one only at its first step.
    next_token_distribution(torch.zeros(1), **settings)
    penalize_repetition(torch.zeros(1), torch.zeros(1, dtype=torch.int64), repetition_penalty)
    draft = Draft(model, ids, left_padding, source_ids, source_mask, use_cache)
    stops = stop_ids(stop, draft.model.config.vocab_size).to(ids.device)

    def steps() -> Iterator[Tensor]:
        stopped = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)  # (B,)
        for _ in tqdm(range(max_new_tokens), disable=not progress, desc="writing", unit="token"):
            if stop is not None and stopped.all():
                return
            logits = draft.next_logits()  # (B, V)
            if repetition_penalty != 1:
                logits = penalize_repetition(logits, draft.real_ids(), repetition_penalty)
            new = sample_next_token(logits, **settings, generator=generator).to(ids.dtype)
            # The last id of a stopped row is its stop id. Repeating it keeps the row stopped.
            draft.append(torch.where(stopped, draft.ids[:, -1], new))
            stopped = torch.isin(draft.ids[:, -1], stops)
            yield draft.ids[:, -1]

    if stream:
        return steps()
    for _ in steps():
        pass
    return draft.ids  # (B, T + n)


def pad_left(
    prompts: Sequence[Sequence[int] | Int[Tensor, "_"]], pad_id: int
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B"]]:
    """Return prompts of different lengths as one batch. Padding comes first, so every prompt ends at the last position.

    Args:
        prompts: the ids of each prompt; at least one prompt. pad_id: any id of the vocabulary; the model ignores it.
    Returns: ids (B, T), where T is the length of the longest prompt, and left_padding (B,), the number of padding
        tokens before each prompt. The text of row b is ids[b, left_padding[b] :].
    Errors: ValueError if there is no prompt, a prompt is empty, or pad_id is not a whole number.
    """
    rows = _require_prompt_rows(prompts, pad_id)
    T = max(len(row) for row in rows)
    ids = torch.stack([F.pad(row, (T - len(row), 0), value=pad_id) for row in rows])  # (B, T)
    return ids, torch.tensor([T - len(row) for row in rows], device=ids.device)


def stop_ids(stop: int | Collection[int] | None, vocab_size: int) -> Int[Tensor, "_"]:
    """Return the stop ids as a sorted tensor. Errors: ValueError if one is outside the vocabulary."""
    checks.require_at_least_one(vocab_size=vocab_size)
    stop = [stop] if isinstance(stop, Integral) else () if stop is None else stop
    ids = checks.require_whole(stop, "stop ids")
    stops = torch.tensor(sorted(set(ids))) if ids else torch.empty(0, dtype=torch.int64)
    checks.require_ids(stops, vocab_size, name="stop ids")
    return stops


class Draft:
    """Hold a batch of unfinished texts, `ids` (B, T), and the model that continues them.

    Args:
        model: a DecoderOnly, an EncoderDecoder, or another module with config.vocab_size, config.max_seq_len and
            model(ids) -> logits (B, T, V), which takes cache and left_padding if they are used.
        ids: the prompts (B, T), T ≥ 1.
        left_padding: (B,), from pad_left. source_ids: (B, S), the text that an EncoderDecoder translates; it is encoded
            only once. source_mask: (B, 1, 1, S), from padding_mask.
        use_cache: keep keys and values (model.new_cache()) and read only new tokens. None: only if the model has it.
    Errors: ValueError for an argument that does not match the others or the model.
    """

    def __init__(
        self,
        model: Any,
        ids: Int[Tensor, "B T"],
        left_padding: Int[Tensor, "B"] | None = None,
        source_ids: Int[Tensor, "B S"] | None = None,
        source_mask: Bool[Tensor, "B 1 1 S"] | None = None,
        use_cache: bool | None = None,
    ):
        checks.require_model(model=model)
        checks.require_prompts(getattr(model.config, "family", "decoder"), ids, left_padding, source_ids, source_mask)
        checks.require_ids(ids, model.config.vocab_size)
        _require_caching(model, use_cache)
        use_cache = hasattr(model, "new_cache") if use_cache is None else use_cache
        self.model, self.ids, self.left_padding, self.source_mask = model, ids, left_padding, source_mask
        self.parts = list(model.modules())
        self.cache, self.n_cached = (model.new_cache() if use_cache else None), 0
        self.encoded = None
        if source_ids is not None:
            with evaluating(model):
                self.encoded = model.encode(source_ids, source_mask)  # (B, S, d_model)

    def next_logits(self) -> Float[Tensor, "B V"]:
        """Return the logits for the next token of each text, (B, V), without dropout and gradients.

        The model sees the last max_seq_len tokens. Once a text is longer, each step moves all visible tokens by one
        position. Cached keys and values are then no longer valid, and each step reads the entire window.
        """
        T = self.ids.shape[1]
        outside = max(0, T - self.model.config.max_seq_len)
        if outside:
            self.cache, self.n_cached = None, 0
        unread = self.ids[:, max(outside, self.n_cached) :]
        extras: dict[str, Any] = {}
        if type(self.model).forward is DecoderOnly.forward:  # another model may not take it
            extras["last_only"] = True
        if self.cache is not None:
            extras["cache"], self.n_cached = self.cache, T
        if self.left_padding is not None:
            extras["left_padding"] = (self.left_padding - outside).clamp(min=0)
        with evaluating(self.parts):
            if self.encoded is None:
                return self.model(unread, **extras)[:, -1]
            return self.model.decode(unread, self.encoded, self.source_mask, **extras)[:, -1]

    def append(self, new: Int[Tensor, "B"]) -> None:
        """Add one token to each text."""
        self.ids = torch.cat([self.ids, new[:, None].to(self.ids.dtype)], dim=1)  # (B, T + 1)

    def select(self, rows: Int[Tensor, "B_new"]) -> None:
        """Keep these rows, in this order; a row may occur more than once."""
        for name in ("ids", "left_padding", "encoded", "source_mask"):
            if getattr(self, name) is not None:
                setattr(self, name, getattr(self, name)[rows])
        for caches in self.cache or ():
            for cache in caches:
                cache.select(rows)

    def real_ids(self) -> Int[Tensor, "B T"]:
        """Return ids with each row's padding replaced by its last token, which occurs in the text in any case."""
        if self.left_padding is None:
            return self.ids
        padding = torch.arange(self.ids.shape[1], device=self.ids.device) < self.left_padding[:, None]  # (B, T)
        return torch.where(padding, self.ids[:, -1:], self.ids)


def _require_decoder_prompts(model: Any, ids: Tensor, max_new_tokens: int) -> None:
    """Raise ValueError or TypeError unless the model is a decoder that can continue these prompts."""
    checks.require_model(model=model)
    checks.require_count(max_new_tokens=max_new_tokens)
    checks.require_prompts(getattr(model.config, "family", "decoder"), ids, None, None, None)
    checks.require_ids(ids, model.config.vocab_size)


def _require_caching(model: Any, use_cache: object) -> None:
    """Raise TypeError unless use_cache is a switch or None; ValueError if the model has no cache to use."""
    if use_cache is not None:
        checks.require_switches(use_cache=use_cache)
    if use_cache and not hasattr(model, "new_cache"):
        raise ValueError(f"use_cache=True needs model.new_cache(), which {type(model).__name__} does not have")


def _require_penalty(penalty: object) -> None:
    """Raise ValueError unless a repetition penalty is a positive number that keeps usual logits finite."""
    checks.require_positive(repetition_penalty=penalty)
    if penalty is True or not 1e-9 <= penalty <= 1e9:  # type: ignore[operator]
        raise ValueError(f"repetition_penalty must be from 1e-9 to 1e9 (1 changes nothing), got {penalty!r}")


def _require_temperature(temperature: object) -> None:
    """Raise ValueError unless temperature is a finite number of at least 0."""
    if not checks.is_number(temperature) or temperature is True or not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be a finite number ≥ 0 (0 = greedy), got {temperature!r}")


def _require_prompt_rows(prompts: Any, pad_id: object) -> list[Tensor]:
    """Return each prompt as a tensor. Raise ValueError unless each is a non-empty row of ids and pad_id is an id."""
    try:
        rows = [torch.as_tensor(prompt) for prompt in prompts]
    except (TypeError, ValueError, RuntimeError):
        rows = []
    if not rows or any(row.ndim != 1 or len(row) == 0 or row.dtype not in (torch.int64, torch.int32) for row in rows):
        raise ValueError(
            f"prompts must be lists of ids, at least one id in each, got {prompts!r:.200}: "
            "if a prompt is empty, give the start token"
        )
    if not isinstance(pad_id, Integral) or isinstance(pad_id, bool) or abs(int(pad_id)) > checks.LARGEST:
        raise ValueError(f"pad_id must be a whole number, got {pad_id!r:.80}")
    return rows
