import math
import statistics
import time
from functools import partial

import torch

from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.given import pretend_attention, tiring_clock
from course_lib.grading.given import timed_alone as probe
from course_lib.grading.judge import compare


def time_exponent(attention, lengths, rounds, clock):
    """The exponent p of time ≈ c · T^p, measured with clock() over so many rounds and fitted over all lengths."""
    inputs = {T: torch.randn(1, T, 16) for T in lengths}
    seconds = {T: [] for T in lengths}
    for _ in range(rounds):  # the lengths take turns: a slow stretch hits all alike
        for T, x in inputs.items():
            start = clock()
            attention(x)
            seconds[T].append(clock() - start)
    x = torch.tensor([math.log(T) for T in lengths], dtype=torch.float64)
    y = torch.tensor([math.log(min(seconds[T])) for T in lengths], dtype=torch.float64)  # the shortest: undisturbed
    x, y = x - x.mean(), y - y.mean()
    return (x @ y / (x @ x)).item()


FEATURES = 8  # of what is timed: any number does


def in_turns(attention, lengths, rounds, clock):
    """Length -> the time of each call; every round calls all lengths once."""
    inputs, seconds = {T: torch.randn(1, T, FEATURES) for T in lengths}, {T: [] for T in lengths}
    for _ in range(rounds):
        for T, x in inputs.items():
            seconds[T].append(stopped(attention, x, clock))
    return seconds


def stopped(function, x, clock):
    start = clock()
    function(x)
    return clock() - start


def slope(x, y):
    """Of the straight line through these points, by least squares."""
    mean = sum(x) / len(x)
    x = [a - mean for a in x]  # they sum to 0, so the mean of y need not be subtracted
    return sum(a * b for a, b in zip(x, y)) / sum(a * a for a in x)


def length_by_length(attention, lengths, rounds, clock):
    inputs = {T: torch.randn(1, T, FEATURES) for T in lengths}
    return {T: [stopped(attention, x, clock) for _ in range(rounds)] for T, x in inputs.items()}


def exponent_with(
    attention, lengths, rounds, clock, *, take=in_turns, sum_up=min, fit=slope, see_x=math.log, see_y=math.log
):
    """The measurement, whose steps can be replaced one by one: most misconceptions below."""
    seconds = take(attention, lengths, rounds, clock)
    return fit([see_x(T) for T in lengths], [see_y(sum_up(seconds[T])) for T in lengths])


def long_reading(attention, lengths, rounds, clock):
    def total(x):
        start = clock()
        for _ in range(rounds):
            attention(x)
        return [clock() - start]

    return {T: total(torch.randn(1, T, FEATURES)) for T in lengths}


def through_the_origin(x, y):
    return sum(a * b for a, b in zip(x, y)) / sum(a * a for a in x)


def intercept(x, y):
    return sum(y) / len(y) - slope(x, y) * sum(x) / len(x)


def ends(x, y):
    return (y[-1] - y[0]) / (x[-1] - x[0])


def shortest_and_longest(x, y):
    return ends(*zip(*sorted(zip(x, y))))


def neighbours(x, y):
    return statistics.fmean((y[i + 1] - y[i]) / (x[i + 1] - x[i]) for i in range(len(x) - 1))


@stage
def known_power(seed):
    "An attention whose time is exactly c · T^p, p drawn between 1.5 and 2.4; and one with another p."
    rng = generator(seed)
    first = float(1.9 + 0.5 * torch.rand(1, generator=rng))
    second = float(1.5 + 0.3 * torch.rand(1, generator=rng))
    return [
        Case(*pretended(0.0, 1e-8, first, [64, 128, 256, 512, 1024], seed)),
        Case(*pretended(0.0, 3e-8, second, [1024, 64, 192, 320], seed + 1)),
    ]


@stage
def with_overhead(seed):
    "As on a real machine, each call costs something before it begins: the shortest lengths are bent upwards."
    rng = generator(seed)
    overhead = float(8e-4 + 8e-4 * torch.rand(1, generator=rng))
    return [Case(*pretended(overhead, 1e-8, 2.2, [256, 64, 1536, 128, 192, 2048], seed + 2))]


def pretended(overhead, cost, power, lengths, seed):
    attention = Given(pretend_attention, overhead, cost, power, says="a function of x (batch, T, features)")
    return attention, lengths, 20, Given(tiring_clock, seed, 0.003, says="a function: the time in seconds")


def measured(case, expected, got, *, rtol, atol=0.0):
    """As compare, and what keeps a figure from being a measurement is said as it is."""
    if isinstance(got, str) and not isinstance(expected, str):
        return f"This is not measured: {got}."
    return compare(expected, got, rtol, atol)


judge = partial(measured, rtol=0.0, atol=0.06)
