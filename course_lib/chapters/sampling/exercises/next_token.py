import torch

from course_lib.chapters.sampling.exercises._shared import (
    CONFIDENT,
    INF,
    SEVEN_WORDS,
    as_often_as_probable,
    greedy,
    kth_largest,
    nucleus,
    shuffled,
)
from course_lib.chapters.sampling.fixtures import drawn_many_times as probe
from course_lib.grading.exercise import Case, generator, stage

ROOM_OF_A_ROW = 0.08  # tolerance for fewer samples; every mistake differs by 0.17 or more in some case


def temperature_softmax(logits, temperature):
    return greedy(logits) if temperature == 0 else (logits / temperature).softmax(-1)


def top_k_filter(logits, k):
    """Tokens that tie with the k-th are kept."""
    return logits.masked_fill(logits < kth_largest(logits, k), -INF)


def top_p_filter(logits, p):
    return nucleus(logits, p)


def sample_next_token(logits, temperature, top_k, top_p, generator):
    return draw_with(logits, temperature, top_k, top_p, generator)


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
    """Apply temperature, top-k and top-p, then sample. Each step can be replaced."""
    logits = heat(logits, temperature).log()
    if top_k is not None:
        logits = keep_k(logits, top_k)
    if top_p is not None:
        logits = keep_p(logits, top_p)
    return choose(logits.softmax(-1), generator)


def judge(case, expected, got):
    """Compare the frequencies with the probabilities themselves, not with other samples."""
    if not isinstance(expected, tuple):
        return as_often_as_probable(case, expected, got)
    probabilities = draw_with(*case.args, choose=lambda probabilities, generator: probabilities)  # (B, V)
    return as_often_as_probable(case, (probabilities, *expected[1:]), got, ROOM_OF_A_ROW)


FIVE = torch.tensor([0.40, 0.25, 0.18, 0.11, 0.06]).log()


def cases_of_five(seed, *settings):
    """Return two rows with the same five probabilities in different orders, for each (temperature, top_k, top_p)."""
    rng = generator(seed)
    return [Case(shuffled(FIVE, rng, 2), *setting, generator(seed + 1)) for setting in settings]


@stage
def the_largest(seed):
    "Temperature 0: the id of the largest logit of each row, shape (B,), even if it is only slightly larger."
    rng = generator(seed)
    close = torch.tensor([[2.0, 2.0005, 1.0], [1.0, 2.0005, 2.0]])
    return [
        Case(close, 0, None, None, generator(seed)),
        Case(shuffled(SEVEN_WORDS, rng, 1), 0, None, None, generator(seed)),
        Case(shuffled(CONFIDENT, rng, 4), 0.0, 3, 0.9, generator(seed)),
    ]


@stage
def plain_draws(seed):
    "Temperature 1 without filters: each token is sampled with its probability (1,500 samples per row)."
    return cases_of_five(seed, (1.0, None, None))


@stage
def warm_draws(seed):
    "Other temperatures."
    return cases_of_five(seed, (0.5, None, None), (2.0, None, None))


@stage
def filtered_draws(seed):
    "Top-k or top-p: removed tokens are never sampled, however low the other logits are. A k above V removes nothing."
    low = shuffled(FIVE, generator(seed), 2) - torch.tensor([[2e4], [-1e3]])
    some = cases_of_five(seed, (1.0, 2, None), (1.0, None, 0.75), (1.0, None, 0.3), (1.0, 50, None))
    return [*some, Case(low, 1.0, 2, None, generator(seed + 1))]


@stage
def everything_together(seed):
    "Temperature first, then top-k, then top-p on the remaining tokens."
    return cases_of_five(seed, (2.0, None, 0.75), (1.0, 3, 0.7), (0.7, 4, 0.8))
