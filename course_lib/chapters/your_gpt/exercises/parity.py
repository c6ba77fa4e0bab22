import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def first_difference(yours, theirs, tolerance):
    """Return (name, largest difference) of the first tensor that differs by more than
    tolerance, or (None, 0.0)."""
    for name in theirs:
        largest = (yours[name] - theirs[name]).abs().max().item()
        if largest != largest:  # NaN
            return name, math.inf
        if largest > tolerance:
            return name, largest
    return None, 0.0


NAMES = ("tokens", "positions", "blocks.0", "blocks.1", "attention", "logits")


def a_run(rng, shape, faults, tolerance=1e-3):
    """Return six tensors with faults (position: size) and rounding noise far below the tolerance."""
    theirs = {name: torch.randn(shape, generator=rng) for name in NAMES}
    yours = {name: tensor + 0.1 * tolerance * torch.rand(shape, generator=rng) for name, tensor in theirs.items()}
    for place, size in faults.items():
        yours[NAMES[place]].view(-1)[-1] += size
    return Case(yours, theirs, tolerance)


@stage
def one_tensor_differs(seed):
    "One tensor differs, in one entry."
    rng = generator(seed)
    return [a_run(rng, (2, 3), {1: 0.5}), a_run(rng, (4,), {4: 2.0})]


@stage
def none_differs(seed):
    "No tensor differs by more than the tolerance, although every entry differs a little."
    rng = generator(seed)
    whole = {name: torch.randint(-5, 6, (4, 3), generator=rng).double() for name in NAMES}
    half_more = {name: tensor + 0.5 for name, tensor in whole.items()}  # exactly the tolerance, which is not more
    return [a_run(rng, (3, 2), {}), a_run(rng, (20, 30), {}), Case(half_more, whole, 0.5)]


@stage
def several_differ(seed):
    "Several tensors differ, and the first of them counts. Your entries may also be too small."
    rng = generator(seed)
    return [
        a_run(rng, (2, 3), {2: -0.4, 3: 3.0, 4: 1.0, 5: 9.0}),
        a_run(rng, (5,), {1: 0.2, 4: -7.0}),
        a_run(rng, (2, 2), {1: 0.5, 2: 9.0, 5: 1.0}),
        a_run(rng, (40, 50), {3: -0.01}),
        a_run(rng, (30, 40), {3: 0.3, 5: 0.5}),
    ]


@stage
def large_entries(seed):
    "Some entries near 100,000 differ by more than the tolerance, which is the same for large and small entries."
    large = 100_000 + 50_000 * torch.rand(3, generator=generator(seed)).round(decimals=2)
    theirs = {"tokens": torch.tensor([100_000.0, 1.0]), "logits": large}
    small = {name: tensor + 1 / 16 for name, tensor in theirs.items()}
    return [Case(theirs | {"tokens": torch.tensor([100_000.5, 1.0])}, theirs, 0.1), Case(small, theirs, 0.1)]


@stage
def not_a_number(seed):
    "One of your tensors contains a NaN."
    rng = generator(seed)
    return [a_run(rng, (2, 2), {2: math.nan, 5: 1.0}), a_run(rng, (3,), {5: math.nan})]
