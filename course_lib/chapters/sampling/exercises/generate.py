import torch

from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.given import chain, sum_of_all
from course_lib.grading.given import followed as probe
from course_lib.grading.judge import compare


def temperature_softmax(logits, temperature):
    """Probabilities (..., V) of logits (..., V) at a temperature ≥ 0."""
    if temperature == 0:
        largest = logits.argmax(dim=-1, keepdim=True)  # (..., 1)
        return torch.zeros_like(logits).scatter(-1, largest, 1.0)
    return torch.softmax(logits / temperature, dim=-1)


def top_k_filter(logits, k):
    """The logits (..., V) with −inf outside the k largest of each row."""
    k = min(k, logits.shape[-1])
    kth_largest = logits.topk(k, dim=-1).values[..., -1:]  # (..., 1)
    return logits.masked_fill(logits < kth_largest, -torch.inf)


def top_p_filter(logits, p):
    """The logits (..., V) with −inf outside the smallest set that reaches p."""
    probabilities, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)  # both (..., V)
    sum_before = probabilities.cumsum(dim=-1) - probabilities  # of all tokens more probable than this one
    drop_by_rank = sum_before >= p  # the first is 0, so the favourite always stays
    drop = torch.zeros_like(drop_by_rank).scatter(-1, order, drop_by_rank)  # back to each token's own place
    return logits.masked_fill(drop, -torch.inf)


def sample_next_token(logits, temperature, top_k, top_p, generator):
    """One id per row (B,), drawn from the filtered distribution of logits (B, V)."""
    if temperature == 0:
        return logits.argmax(dim=-1)  # (B,)
    logits = logits / temperature
    if top_k is not None:
        logits = top_k_filter(logits, top_k)
    if top_p is not None:
        logits = top_p_filter(logits, top_p)
    running_sum = logits.double().softmax(dim=-1).cumsum(dim=-1)  # (B, V)
    u = torch.rand(len(logits), 1, generator=generator, dtype=torch.float64)  # one number per row
    return torch.searchsorted(running_sum, u * running_sum[:, -1:], right=True).squeeze(-1)  # (B,)


def generate(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    """Continue each row of ids (B, T) by max_new_tokens tokens: (B, T + max_new_tokens)."""
    for _ in range(max_new_tokens):
        logits = model(ids[:, -max_seq_len:])[:, -1]  # (B, V), from the last position
        new = sample_next_token(logits, temperature, None, None, generator)  # (B,)
        ids = torch.cat([ids, new[:, None]], dim=1)
    return ids


ROOM = 0.04  # so two honest samplers agree within this, and every mistake below is further off


def draw_with(
    logits,
    temperature,
    top_k,
    top_p,
    generator,
    *,
    heat=temperature_softmax,
    keep_k=top_k_filter,
    keep_p=top_p_filter,
    choose=lambda probabilities, generator: torch.multinomial(probabilities, 1, generator=generator).squeeze(-1),
):
    """Temperature, top-k, top-p, draw: each step can be replaced."""
    logits = heat(logits, temperature).log()
    if top_k is not None:
        logits = keep_k(logits, top_k)
    if top_p is not None:
        logits = keep_p(logits, top_p)
    return choose(logits.softmax(-1), generator)


def judge(case, expected, got, room=ROOM):
    """Ids must be equal, frequencies near; a probe that could not count says why."""
    if isinstance(expected, tuple) and isinstance(got, str):
        return got
    return compare(
        expected, got, rtol=0.0, atol=room, names=DRAWN[: len(expected)] if isinstance(expected, tuple) else ()
    )


DRAWN = ("frequency", "the same with the same seed", "new at the next call")


def draw(logits, temperature, generator):
    """(B, V) -> (B,)"""
    return draw_with(logits, temperature, None, None, generator)


def generate_with(
    model,
    ids,
    max_new_tokens,
    max_seq_len,
    temperature,
    generator,
    *,
    see=lambda ids, limit: ids[:, -limit:],
    pick=lambda logits: logits[:, -1],
    draw=draw,
    extend=lambda ids, new, limit: torch.cat([ids, new[:, None]], 1),
):
    for _ in range(max_new_tokens):
        new = draw(pick(model(see(ids, max_seq_len))), temperature, generator)
        ids = extend(ids, new, max_seq_len)
    return ids


def all_from_one_pass(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    logits = model(ids[:, -max_seq_len:])[:, -1]
    new = [draw(logits, temperature, generator) for _ in range(max_new_tokens)]
    return torch.cat([ids, *(token[:, None] for token in new)], 1)


def never_extended(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    for _ in range(max_new_tokens):
        new = draw(model(ids[:, -max_seq_len:])[:, -1], temperature, generator)
    return torch.cat([ids, new[:, None]], 1) if max_new_tokens else ids


def some_ids(rng, B, T, vocab_size=11):
    return torch.randint(vocab_size, (B, T), generator=rng)


@stage
def one_more_token(seed):
    "One new token, at temperature 0: the favourite after the last token of the prompt."
    rng = generator(seed)
    return [
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 1, 3), 1, 16, 0, generator(seed)),
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 3, 4), 1, 16, 0, generator(seed)),
    ]


@stage
def several_tokens(seed):
    "Several new tokens: each depends on all before it, the new ones included. For 0 new tokens the prompt comes back."
    rng = generator(seed)
    return [
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 1, 2), 4, 16, 0, generator(seed)),
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 3, 5), 6, 16, 0, generator(seed)),
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 2, 3), 0, 16, 0, generator(seed)),
    ]


@stage
def beyond_the_window(seed):
    "A text longer than max_seq_len: the model sees the last max_seq_len tokens, and the whole text comes back."
    rng = generator(seed)
    return [
        Case(Given(sum_of_all, 11, 4), some_ids(rng, 2, 3), 5, 4, 0, generator(seed)),
        Case(Given(sum_of_all, 11, 4), some_ids(rng, 2, 7), 3, 4, 0, generator(seed)),
    ]


THREE_WORDS = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6]]).log()


@stage
def drawn_tokens(seed):
    "Above temperature 0 tokens are drawn: how often each pair of two new tokens comes in 10,000 texts."
    prompt = torch.randint(3, (1, 2), generator=generator(seed))
    return [
        Case(Given(chain, THREE_WORDS), prompt, 2, 8, temperature, generator(seed)) for temperature in (1.0, 0.5, 2.0)
    ]
