from functools import partial

import torch

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


def race(recurrent, attention, lengths, batch, rounds, clock, sum_up):
    """Seconds per sequence for each length, of both layers."""
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


def seconds_with(
    step,
    attention,
    lengths,
    batch,
    rounds,
    clock,
    *,
    recurrent=walk,
    sum_up=min,
    share=lambda rnn, attention, batch, T: (rnn, attention),
    cross=first_slower,
):
    """The measurement, whose steps can be replaced one by one: most misconceptions below."""
    times = race(partial(recurrent, step), attention, lengths, batch, rounds, clock, sum_up)
    shared = [share(*pair, batch, T) for *pair, T in zip(*times.values(), lengths)]
    times = dict(zip(times, map(list, zip(*shared))))
    return times | {"crossing": cross(lengths, times)}
