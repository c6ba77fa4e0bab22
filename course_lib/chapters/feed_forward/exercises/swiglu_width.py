import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def swiglu_hidden(d_model, multiple_of):
    """Return 8/3 · d_model, rounded up to a multiple of multiple_of."""
    pieces = math.ceil(8 * d_model / (3 * multiple_of))
    return pieces * multiple_of


@stage
def small_widths(seed):
    "Small numbers that you can check on paper."
    return [Case(3, 8), Case(6, 8), Case(4, 8), Case(8, 16), Case(40, 32)]


@stage
def known_widths(seed):
    "Widths of models, rounded up to a multiple of 256."
    return [Case(d_model, 256) for d_model in (64, 96, 512, 768, 4096, 5120)]


@stage
def drawn_widths(seed):
    "Other widths, rounded up to a multiple of 8, 24, 64, 128 or 1,024."
    drawn = torch.randint(10, 9000, (5,), generator=generator(seed)).tolist()
    return [Case(8194, 8)] + [Case(d_model, multiple_of) for d_model, multiple_of in zip(drawn, (8, 24, 64, 128, 1024))]
