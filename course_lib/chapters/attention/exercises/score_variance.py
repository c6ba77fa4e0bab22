import math

import torch

from course_lib.chapters.attention.fixtures import measured_or_scattered as probe
from course_lib.grading.exercise import Case, stage
from course_lib.grading.judge.compare import as_number, compare


def score_variance(d_k, n_pairs):
    """Return the variances of q·k and of q·k / √d_k over n_pairs random pairs."""
    q, k = torch.randn(n_pairs, d_k), torch.randn(n_pairs, d_k)
    scores = (q * k).sum(dim=-1)  # (n_pairs,)
    return scores.var(), (scores / math.sqrt(d_k)).var()


def theory(d_k, n_pairs):
    """q·k is a sum of d_k products of variance 1; dividing by √d_k divides the variance by d_k."""
    return float(d_k), 1.0


def judge(case, expected, got):
    """Require 10% around the theory, but not equality: with 10,000 pairs, a measured variance is off by about 1.5%.

    With six to 23 pairs it is typically off by a third. If the values do not vary, they were not measured.
    """
    if case.args[1] < 100:
        if got == STILL:
            return "With few pairs, measured variances differ a lot between runs, but yours do not. Do you measure?"
        return None if got == expected else "With few pairs your results are not two variances near the theory."
    truth = theory(*case.args)
    problem = compare(truth, got, rtol=0.1, names=["variance before scaling", "variance after scaling"])
    if problem is None and tuple(float(part) for part in got) == truth:
        return "Your figures equal the theory to the last digit; measured ones would not. Draw q and k, and measure."
    return problem


@stage
def several_sizes(seed):
    "10,000 pairs of q and k, at d_k = 4, 16, 64 or 256."
    return [Case(d_k, 10_000) for d_k in (4, 16, 64, 256)]


STILL = "variances that keep still"


@stage
def few_pairs(seed):
    "Six pairs, seven, and so on up to 23, at d_k = 4: with so few pairs a measured variance changes a lot."
    return [Case(4, 6)]


def summary(case, brought):
    """Return the values themselves for many pairs. For few pairs, return whether the variances differ by more than a
    tenth.

    In 20,000 trials, measured variances differed by 0.15 or more, and none was ten times the theoretical value.
    """
    d_k, n_pairs = case.args
    if n_pairs >= 100:
        return brought
    figures = [[as_number(part) for part in pair] for pair in brought]
    right_form = len(figures) == 3 * n_pairs and all(len(pair) == 2 for pair in figures)
    if not right_form or not all(part is not None and 0 < part < 20 * d_k for pair in figures for part in pair):
        return "no variances"
    before, after = torch.tensor(figures).unbind(1)
    still = any(part.std() < 0.1 * part.mean() for part in (before, after))
    return STILL if still else "variances that jump about"
