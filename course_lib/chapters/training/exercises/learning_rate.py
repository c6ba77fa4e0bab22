import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def learning_rate(step, peak, warmup, total, floor):
    """Return the learning rate of one step: up a line, down a cosine, then flat."""
    if step < warmup:
        return peak * step / warmup
    if step > total:
        return floor
    progress = (step - warmup) / (total - warmup)  # 0 at warmup, 1 at total
    share = 0.5 * (1 + math.cos(math.pi * progress))  # 1 at warmup, 0 at total
    return floor + (peak - floor) * share


@stage
def warming_up(seed):
    "Below `warmup`: a straight line from 0 towards the peak."
    return [
        Case(1, 8.0, 4, 12, 0.0),
        Case(0, 8.0, 4, 12, 2.0),
        Case(3, 0.5, 7, 20, 0.1),
        Case(6, 0.5, 7, 20, 0.1),
    ]


@stage
def at_the_peak(seed):
    "At step = warmup the rate is the peak. With a warm-up of 0, the schedule begins there."
    return [Case(4, 8.0, 4, 12, 0.0), Case(7, 0.5, 7, 20, 0.1), Case(0, 8.0, 0, 10, 0.0), Case(0, 0.3, 0, 5, 0.1)]


@stage
def on_the_way_down(seed):
    "On the way down: halfway, the rate is the mean of peak and floor; before that, it is higher."
    return [
        Case(8, 8.0, 4, 12, 0.0),
        Case(6, 8.0, 4, 12, 0.0),
        Case(8, 8.0, 4, 12, 2.0),
        Case(11, 8.0, 4, 12, 2.0),
        Case(5, 0.3, 0, 20, 0.1),
    ]


@stage
def to_the_end_and_after(seed):
    "At step = total the rate is the floor, and it stays there."
    return [
        Case(12, 8.0, 4, 12, 0.0),
        Case(12, 8.0, 4, 12, 2.0),
        Case(13, 8.0, 4, 12, 2.0),
        Case(20, 8.0, 4, 12, 0.0),
        Case(45, 0.3, 0, 20, 0.1),
        Case(9, 5.0, 4, 9, 5.0),
    ]


@stage
def drawn_schedules(seed):
    "A random schedule, at a step of its warm-up or of its way down."
    rng = generator(seed)
    cases = []
    for phase in range(10):
        peak, share = (0.1 + torch.rand(2, generator=rng)).tolist()
        warmup = int(torch.randint(3, 30, (), generator=rng))
        total = warmup + int(torch.randint(5, 60, (), generator=rng))
        low, high = (1, warmup) if phase % 2 else (warmup, total)
        step = int(torch.randint(low, high, (), generator=rng))
        cases.append(Case(step, peak, warmup, total, peak * share / 3))
    return cases
