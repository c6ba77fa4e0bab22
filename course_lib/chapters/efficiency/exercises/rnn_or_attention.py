import statistics
import time
from functools import partial

import torch

from course_lib.chapters.efficiency.fixtures import pretend_attention, pretend_step, tiring_clock
from course_lib.chapters.efficiency.fixtures import timed_beside as probe
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.judge.compare import compare

FEATURES = 8  # of the timed layers; any number works


def stopped(function, x, clock):
    start = clock()
    function(x)
    return clock() - start


def measured(case, expected, got, *, rtol, atol=0.0):
    """Compare, and report why an answer did not measure if it returned no measurement."""
    if isinstance(got, str) and not isinstance(expected, str):
        return f"Your answer is not a measurement: {got}."
    return compare(expected, got, rtol, atol)


def sequence_seconds(step, attention, lengths, batch, rounds, clock):
    times = race(partial(walk, step), attention, lengths, batch, rounds, clock, min)
    return times | {"crossing": first_slower(lengths, times)}


def race(recurrent, attention, lengths, batch, rounds, clock, sum_up):
    """Return the seconds per sequence of both layers, for each length."""
    times = {"rnn": [], "attention": []}
    for T in lengths:
        x = torch.randn(batch, T, FEATURES)
        both = [], []
        for _ in range(rounds):
            for layer, taken in zip((recurrent, attention), both):
                taken.append(stopped(layer, x, clock))
        for name, taken in zip(times, both):
            times[name].append(sum_up(taken) / batch)
    return times


def walk(step, x):
    state = torch.zeros(len(x), FEATURES)
    for t in range(x.shape[1]):
        state = step(x[:, t], state)


def first_slower(lengths, times):
    slower = [T for T, one, other in zip(lengths, times["rnn"], times["attention"]) if other > one]
    return min(slower, default=None)


def step_by_step(step, attention, lengths, batch, rounds, clock):
    """Read the clock around every step, and return the time of the shortest one."""

    def seconds(T):
        x = torch.randn(batch, T, FEATURES)
        steps, whole = [], []
        for _ in range(rounds):
            state = torch.zeros(batch, FEATURES)
            for t in range(T):
                start = clock()
                state = step(x[:, t], state)
                steps.append(clock() - start)
            whole.append(stopped(attention, x, clock))
        return min(steps) / batch, min(whole) / batch

    times = dict(zip(("rnn", "attention"), map(list, zip(*map(seconds, lengths)))))
    return times | {"crossing": first_slower(lengths, times)}


def two_layers(seed, crossing, lengths, batch):
    """Return costs for which attention takes T / crossing times as long as the recurrent layer."""
    rng = generator(seed)
    per_token = float(2 + 2 * torch.rand(1, generator=rng)) * 1e-6  # of a step, for each text
    overhead = per_token * 0.5 * batch
    pairs = (overhead + per_token * batch) / batch / crossing
    return Case(
        Given(pretend_step, overhead, per_token, says="a function of (token, state): the new state"),
        Given(pretend_attention, 0.0, pairs, 2.0, says="a function of x (batch, T, features)"),
        lengths,
        batch,
        9,
        Given(tiring_clock, seed, 0.0002, says="a function: the time in seconds"),
    )


@stage
def one_text(seed):
    "One text at a time: attention is faster for short texts, the recurrent layer for long ones."
    return [two_layers(seed, 32, [4, 16, 64, 128], 1)]


@stage
def several_texts(seed):
    "A batch of several texts, and lengths in any order: return seconds per sequence, not per batch."
    return [two_layers(seed + 1, 8, [4, 16, 64], 5), two_layers(seed + 2, 50, [100, 6, 200, 25], 3)]


@stage
def one_sided(seed):
    "Two layers, one of which is faster at every length."
    return [two_layers(seed + 3, 500, [8, 32, 128], 2), two_layers(seed + 4, 3, [64, 6, 24], 2)]


def judge(case, expected, got):
    """Judge as `measured` does. A crossing of None was returned, so do not ask for a `return`."""
    problem = measured(case, expected, got, rtol=0.08)
    if problem and isinstance(got, dict) and got.get("crossing", 0) is None and expected["crossing"] is not None:
        others = measured(case, expected | {"crossing": None}, got, rtol=0.08)
        return others or "Your `crossing` is None, but there is a length at which attention takes longer."
    return problem
