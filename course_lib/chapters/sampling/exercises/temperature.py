import torch

from course_lib.chapters.sampling.exercises._shared import CONFIDENT, INF, SEVEN_WORDS, shuffled
from course_lib.grading.exercise import Case, generator, stage


def temperature_softmax(logits, temperature):
    """Return probabilities (..., V) for logits (..., V) at a temperature ≥ 0."""
    if temperature == 0:
        largest = logits.argmax(dim=-1, keepdim=True)  # (..., 1)
        return torch.zeros_like(logits).scatter(-1, largest, 1.0)
    scaled = logits / temperature
    return torch.softmax(scaled, dim=-1)


def bare_softmax(x, dim):
    """Return the softmax by its formula, without subtracting the largest."""
    return x.exp() / x.exp().sum(dim, keepdim=True)


@stage
def at_one(seed):
    "Temperature 1: the plain softmax of the seven words of the chapter."
    return [Case(SEVEN_WORDS.clone(), 1.0)]


@stage
def sharper_and_flatter(seed):
    "Below 1 the distribution gets sharper, above 1 flatter."
    return [Case(SEVEN_WORDS.clone(), temperature) for temperature in (0.5, 2.0, 0.1)]


@stage
def rows_of_logits(seed):
    "Several rows, which may be a transposed view: each row is a separate distribution."
    rng = generator(seed)
    shapes = (3, 3), (2, 3, 5), (4, 5, 2)
    square, batch, turned = (2 * torch.randn(shape, generator=rng) for shape in shapes)
    return [Case(square, 0.7), Case(batch, 1.5), Case(turned.mT, 0.8)]


@stage
def zero_temperature(seed):
    "Temperature 0 is greedy: probability 1 for the largest logit of each row, 0 for the others."
    rng = generator(seed)
    return [Case(SEVEN_WORDS[torch.randperm(7, generator=rng)], 0), Case(shuffled(CONFIDENT, rng, 3), 0.0)]


@stage
def large_logits(seed):
    "Logits in the thousands: exp overflows, but the probabilities are ordinary numbers."
    return [Case(torch.tensor([[1e3, 1e3 + 1, 1e3 - 1], [-1e3, -1e3 + 1, -1e3 - 1]]), 2.0)]


@stage
def forbidden_token(seed):
    "A logit of −inf: probability exactly 0 at every temperature."
    logits = torch.randn(2, 4, generator=generator(seed))
    logits[:, 1] = -INF
    low = torch.tensor([[-INF, -1e3, 1 - 1e3, -1e3]])
    return [Case(logits, 0.8), Case(low, 0.5), Case(low, 0)]


@stage
def double_logits(seed):
    "float64 in, float64 out."
    return [Case(torch.randn(2, 6, generator=generator(seed), dtype=torch.float64), 0.6)]
