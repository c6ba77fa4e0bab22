from functools import partial

import torch

from course_lib.chapters.sampling.exercises._shared import CONFIDENT, INF, SEVEN_WORDS, shuffled
from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.given import drawn_many_times as probe
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


ROOM = 0.04  # so two honest samplers agree within this, and every mistake below is further off


ROOM_OF_A_ROW = 0.08  # for fewer draws, against the probability itself: some case shows each mistake by 0.17 or more


def greedy(logits):
    """All probability on the largest logit of each row."""
    return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)


def nucleus(logits, p, *, drop=lambda q, total, p: total - q >= p, first_stays=True, descending=True, fill=-INF):
    """Top-p whose parts can be replaced: q are the sorted probabilities, total their running sum, q itself included."""
    q, order = logits.softmax(-1).sort(dim=-1, descending=descending, stable=True)
    dropped = drop(q, q.cumsum(-1), p)
    if first_stays:
        dropped[..., 0] = False
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), fill)


def without_the_crossing_token(q, total, p):
    return total > p


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


def top_p_first(logits, temperature, top_k, top_p, generator):
    logits = temperature_softmax(logits, temperature).log()
    logits = logits if top_p is None else top_p_filter(logits, top_p)
    return draw_with(logits, 1.0, top_k, None, generator)


def temperature_last(logits, temperature, top_k, top_p, generator):
    logits = logits if top_k is None else top_k_filter(logits, top_k)
    logits = logits if top_p is None else top_p_filter(logits, top_p)
    return draw_with(logits, temperature, None, None, generator)


def seeded_inside(logits, temperature, top_k, top_p, generator):
    return draw_with(logits, temperature, top_k, top_p, torch.Generator().manual_seed(0))


def rank_instead_of_id(logits, temperature, top_k, top_p, generator):
    return draw_with(logits.sort(-1, descending=True).values, temperature, top_k, top_p, generator)


def as_often_as_probable(case, expected, got, room=ROOM):
    """Ids must be equal, frequencies near; a probe that could not count says why."""
    if isinstance(expected, tuple) and isinstance(got, str):
        return got
    return compare(
        expected, got, rtol=0.0, atol=room, names=DRAWN[: len(expected)] if isinstance(expected, tuple) else ()
    )


def judge(case, expected, got):
    """The frequencies are held against the probabilities themselves, not against other draws."""
    if not isinstance(expected, tuple):
        return as_often_as_probable(case, expected, got)
    probabilities = draw_with(*case.args, choose=lambda probabilities, generator: probabilities)  # (B, V)
    return as_often_as_probable(case, (probabilities, *expected[1:]), got, ROOM_OF_A_ROW)


DRAWN = ("frequency", "the same with the same seed", "new at the next call")


FIVE = torch.tensor([0.40, 0.25, 0.18, 0.11, 0.06]).log()


def cases_of_five(seed, *settings):
    """Two rows with the same five probabilities in different orders, for each (temperature, top_k, top_p)."""
    rng = generator(seed)
    return [Case(shuffled(FIVE, rng, 2), *setting, generator(seed + 1)) for setting in settings]


@stage
def the_largest(seed):
    "Temperature 0: the id of the largest logit of each row, shape (B,), whatever the generator says."
    rng = generator(seed)
    return [
        Case(shuffled(SEVEN_WORDS, rng, 1), 0, None, None, generator(seed)),
        Case(shuffled(CONFIDENT, rng, 4), 0.0, 3, 0.9, generator(seed)),
    ]


@stage
def plain_draws(seed):
    "Temperature 1 without filters: each token comes as often as its probability says (1,500 draws per row)."
    return cases_of_five(seed, (1.0, None, None))


@stage
def warm_draws(seed):
    "Other temperatures."
    return cases_of_five(seed, (0.5, None, None), (2.0, None, None))


@stage
def filtered_draws(seed):
    "Top-k or top-p: what is removed never comes, and the rest share its part. A k beyond V removes nothing."
    return cases_of_five(seed, (1.0, 2, None), (1.0, None, 0.75), (1.0, None, 0.3), (1.0, 50, None))


@stage
def everything_together(seed):
    "Temperature first, then top-k, then top-p on what top-k has left."
    return cases_of_five(seed, (2.0, None, 0.75), (1.0, 3, 0.7), (0.7, 4, 0.8))
