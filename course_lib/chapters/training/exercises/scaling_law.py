from functools import partial

import torch

from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge.compare import compare


def scaling_law(runs, E, N, D):
    """Fit the law E + A / N^a + B / D^b to runs (N, D, loss);
    return a, b and its loss for another N, D."""
    parameters, tokens, losses = torch.tensor(runs, dtype=torch.float64).T
    above = losses - E  # (runs,)
    tried = torch.arange(0.02, 1.5, 0.01, dtype=torch.float64)
    a, b = torch.cartesian_prod(tried, tried).T  # every pair of exponents
    terms = torch.stack([parameters ** -a[:, None], tokens ** -b[:, None]], dim=-1)  # (pairs, runs, 2)
    factors = torch.linalg.solve(terms.mT @ terms, (terms.mT @ above)[..., None])  # (pairs, 2, 1): the best A and B
    best = (terms @ factors - above[:, None]).square().sum(dim=(1, 2)).argmin()
    (A, B), a, b = factors[best, :, 0], a[best], b[best]
    return a.item(), b.item(), (E + A * N**-a + B * D**-b).item()


def law(seed):
    """Return a plausible law, E, A, a, B, b, with exponents that differ."""
    drawn = torch.rand(5, generator=generator(seed), dtype=torch.float64).tolist()
    a, b = 0.25 + 0.2 * drawn[0], 0.5 + 0.2 * drawn[1]
    if drawn[2] < 0.5:
        a, b = b, a
    return 0.5 + 1.2 * drawn[3], (0.8 + 0.4 * drawn[4]) * 1e4**a, a, 1e5**b, b


def case_of(seed, sizes, noise, N, D):
    E, A, a, B, b = law(seed)
    rng = generator(seed + 1)

    def loss(N, D):
        return E + A * N**-a + B * D**-b

    shaken = 1 + noise * torch.randn(len(sizes), generator=rng, dtype=torch.float64)
    runs = [(n, d, round(loss(n, d) * factor, 5)) for (n, d), factor in zip(sizes, shaken.tolist())]
    return Case([runs[i] for i in torch.randperm(len(runs), generator=rng).tolist()], E, N, D)


GRID = [(n, d) for n in (10_000, 40_000, 160_000) for d in (100_000, 400_000, 1_600_000)]
MORE = [(n, d) for n in (5_000, 20_000, 80_000, 320_000) for d in (50_000, 200_000, 800_000) if d <= 100 * n]
NOISE = 1e-3  # of each loss: it changes an exponent by 0.01 or less


@stage
def exact_runs(seed):
    "Nine runs whose losses follow a law without noise: three sizes, each with three numbers of tokens, in any order."
    return [case_of(seed, GRID, 0.0, 2_000_000, 20_000_000), case_of(seed + 1, GRID, 0.0, 1_000_000, 3_000_000)]


@stage
def lopsided_predictions(seed):
    "A large model that sees few tokens, and a small one that sees many: one of the two terms dominates."
    return [case_of(seed + 2, GRID, 0.0, 10_000_000, 60_000), case_of(seed + 3, GRID, 0.0, 6_000, 100_000_000)]


@stage
def noisy_runs(seed):
    "Other sizes, not in every pair, and losses that are off by a thousandth, as when a seed changes."
    return [case_of(seed + 4, MORE, NOISE, 3_000_000, 30_000_000)]


def near(case, expected, got, *, exponent, loss):
    """Compare exponents with the reference's within `exponent`, and the loss within the fraction `loss` of it."""
    problem = compare(expected[:2], got[:2], 0.0, exponent, ("a", "b")) if isinstance(got, (tuple, list)) else None
    if problem or not isinstance(got, (tuple, list)) or len(got) != 3:
        return problem or compare(expected, got, names=("a", "b", "loss"))
    return compare(expected[2:], got[2:], loss, 0.0, ("loss",))


judge = partial(near, exponent=0.03, loss=0.02)
