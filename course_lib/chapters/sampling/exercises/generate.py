import torch

from course_lib.chapters.sampling.exercises._shared import INF, greedy, kth_largest, nucleus
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.given import chain, sum_of_all
from course_lib.grading.given import followed as probe
from course_lib.grading.judge import compare

ROOM = 0.04  # so two honest samplers agree within this, and every mistake below is further off


def temperature_softmax(logits, temperature):
    return greedy(logits) if temperature == 0 else (logits / temperature).softmax(-1)


def top_k_filter(logits, k):
    """Tokens that tie with the k-th are kept."""
    return logits.masked_fill(logits < kth_largest(logits, k), -INF)


def top_p_filter(logits, p):
    return nucleus(logits, p)


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


def generate(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    for _ in range(max_new_tokens):
        logits = model(ids[:, -max_seq_len:])[:, -1]  # (B, V)
        ids = torch.cat([ids, draw(logits, temperature, generator)[:, None]], 1)  # (B, T + 1)
    return ids


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
