"""Sampling: from logits to the next token, and on to text.

Chapter 13. `filters` make the distribution; here a draw chooses, again and again.
"""

from collections.abc import Collection, Iterator
from numbers import Integral

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from tqdm.auto import tqdm

from course_lib.beam import beam_search  # noqa: F401
from course_lib.decoding import Draft, pad_left, stop_ids  # noqa: F401
from course_lib.filters import min_p_filter, next_token_distribution, penalize_repetition, top_k_filter, top_p_filter  # noqa: F401


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
    *,
    repetition_penalty: float = 1.0,
    left_padding: Int[Tensor, "B"] | None = None,
    source_ids: Int[Tensor, "B S"] | None = None,
    source_mask: Bool[Tensor, "B 1 1 S"] | None = None,
    use_cache: bool | None = None,
    progress: bool = False,
) -> Int[Tensor, "B T_new"] | Iterator[Int[Tensor, "B"]]:
    """Continue each row of ids, one token at a time.

    logits → repetition penalty → temperature → top-k → top-p → min-p → softmax → draw

    The model sees at most the last max_seq_len tokens. It runs without dropout and gradients, and is left in the mode
    in which it was. With the cache the text is the same as without; it comes sooner.

    Args:
        model: a DecoderOnly, an EncoderDecoder, or another module with `.config` and model(ids) -> logits (B, T, V).
        ids: the prompts (B, T), T ≥ 1; for an EncoderDecoder the beginning of the target, such as <bos>.
        max_new_tokens: longest continuation.
        temperature, top_k, top_p, min_p: as in next_token_distribution.
        stop: id, or several, that end a row. A row that has stopped is filled with the id that stopped it until the
            others have stopped too. For any other condition, read the stream and leave the loop.
        generator: a seeded torch.Generator. The draws of a row depend on its place in the batch.
        stream: return an iterator over each step's new ids (B,) as they are made, instead of the whole.
        repetition_penalty: as in penalize_repetition, for the tokens of prompt and text so far, without padding.
        left_padding: (B,), for prompts of different lengths: `ids, left_padding = pad_left(prompts, pad_id)`.
        source_ids: (B, S), what an EncoderDecoder translates. source_mask: (B, 1, 1, S), as padding_mask makes it.
        use_cache: keep the keys and values of earlier tokens; needs model.new_cache(). None: if the model has that.
        progress: show a progress bar.
    Returns: ids (B, T + n), the prompt and n ≤ max_new_tokens new tokens; with stream the iterator.
    Errors: ValueError for an empty prompt, ids or stop outside the vocabulary, or a bad setting.
    """
    if not isinstance(max_new_tokens, Integral) or max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must be a whole number ≥ 0, got {max_new_tokens!r}")
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    # A bad setting is named here, not at the first step of a stream.
    next_token_distribution(torch.zeros(1), **settings)
    penalize_repetition(torch.zeros(1), torch.zeros(1, dtype=torch.int64), repetition_penalty)
    draft = Draft(model, ids, left_padding, source_ids, source_mask, use_cache)
    stops = stop_ids(stop, model.config.vocab_size).to(ids.device)

    def steps() -> Iterator[Tensor]:
        stopped = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)  # (B,)
        for _ in tqdm(range(max_new_tokens), disable=not progress, desc="writing", unit="token"):
            if stopped.all():
                return
            logits = draft.next_logits()  # (B, V)
            if repetition_penalty != 1:
                logits = penalize_repetition(logits, draft.real_ids(), repetition_penalty)
            new = sample_next_token(logits, **settings, generator=generator).to(ids.dtype)
            # A stopped row repeats its last id, the one that stopped it, and so stays stopped.
            draft.append(torch.where(stopped, draft.ids[:, -1], new))
            stopped = torch.isin(draft.ids[:, -1], stops)
            yield draft.ids[:, -1]

    if stream:
        return steps()
    for _ in steps():
        pass
    return draft.ids  # (B, T + n)
