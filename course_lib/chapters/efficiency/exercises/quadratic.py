import math
import time
from functools import partial

import torch

from course_lib.chapters.efficiency.fixtures import pretend_attention, tiring_clock
from course_lib.chapters.efficiency.fixtures import timed_alone as probe
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.judge.compare import compare


def time_exponent(attention, lengths, rounds, clock):
    """Return the exponent p of time ≈ c · T^p, measured with clock() in each round and
    fitted over all lengths."""
    inputs = {T: torch.randn(1, T, 16) for T in lengths}
    seconds = {T: [] for T in lengths}
    for _ in range(rounds):  # they take turns: a slow period affects all lengths
        for T, x in inputs.items():
            start = clock()
            attention(x)
            seconds[T].append(clock() - start)
    x = torch.tensor([math.log(T) for T in lengths], dtype=torch.float64)
    y = torch.tensor([math.log(min(seconds[T])) for T in lengths], dtype=torch.float64)  # the shortest: no interruption
    x, y = x - x.mean(), y - y.mean()
    return (x @ y / (x @ x)).item()


@stage
def known_power(seed):
    "An attention that takes c · T^p seconds, with a random p between 1.5 and 2.4."
    rng = generator(seed)
    first = float(1.9 + 0.5 * torch.rand(1, generator=rng))
    second = float(1.5 + 0.3 * torch.rand(1, generator=rng))
    return [
        Case(*pretended(0.0, 1e-8, first, [64, 128, 256, 512, 1024], seed)),
        Case(*pretended(0.0, 3e-8, second, [1024, 64, 192, 320], seed + 1)),
    ]


@stage
def with_overhead(seed):
    "As on a real machine, each call has a fixed overhead, which raises the times of the shortest lengths most."
    rng = generator(seed)
    overhead = float(8e-4 + 8e-4 * torch.rand(1, generator=rng))
    return [Case(*pretended(overhead, 1e-8, 2.2, [256, 64, 1536, 128, 192, 2048], seed + 2))]


def pretended(overhead, cost, power, lengths, seed):
    attention = Given(pretend_attention, overhead, cost, power, says="a function of x (batch, T, features)")
    return attention, lengths, 20, Given(tiring_clock, seed, 0.003, says="a function: the time in seconds")


def measured(case, expected, got, *, rtol, atol=0.0):
    """Compare, and report why an answer did not measure if it returned no measurement."""
    if isinstance(got, str) and not isinstance(expected, str):
        return f"Your answer is not a measurement: {got}."
    return compare(expected, got, rtol, atol)


judge = partial(measured, rtol=0.0, atol=0.06)
