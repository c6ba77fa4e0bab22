import math

import torch

from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge.compare import OfAnotherType, compare
from course_lib.grading.judge.show import number

INF = float("inf")


def cross_entropy(logits, targets, ignore_index=-100):
    counts = targets != ignore_index
    logits, targets = logits[counts], targets[counts]  # (N, V), (N,)
    shifted = logits - logits.amax(-1, keepdim=True)
    surprise = shifted.exp().sum(-1).log() - shifted[torch.arange(len(targets)), targets]  # (N,)
    return surprise.mean()


def drawn_logits(rng, *leading, V, dtype=torch.float32):
    return 2 * torch.randn(*leading, V, generator=rng, dtype=dtype), torch.randint(V, leading, generator=rng)


def partly_ignored(rng, *leading, V, ignore_index):
    """Return logits and targets, with a different number of ignored positions in each row."""
    logits, targets = drawn_logits(rng, *leading, V=V)
    targets[targets == ignore_index] = 0
    targets[0, leading[1] // 2 :] = ignore_index
    targets[-1, 0] = ignore_index
    return Case(logits, targets, ignore_index)


@stage
def one_token(seed):
    "One position and three tokens: the target has p = ½, so the loss is ln 2 = 0.693."
    return [Case(torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.tensor([0]))]


@stage
def several_tokens(seed):
    "Several positions: logits (N, V), targets (N,). Adding a number to all logits of a row changes nothing."
    rng = generator(seed)
    logits, targets = drawn_logits(rng, 5, V=4)
    return [Case(logits, targets), Case(logits + torch.tensor([[3.0], [-5.0], [1.0], [0.0], [7.0]]), targets)]


@stage
def batch_of_rows(seed):
    "A batch: logits (B, T, V), targets (B, T). The result is still one number."
    rng = generator(seed)
    sizes = (2, 3, 5), (3, 3, 3), (1, 4, 2), (2, 7, 3)
    return [Case(*drawn_logits(rng, B, T, V=V)) for B, T, V in sizes]


@stage
def ignored(seed):
    "Targets equal to ignore_index, −100 by default, are left out of the sum and of the count."
    rng = generator(seed)
    case = partly_ignored(rng, 2, 4, V=5, ignore_index=-100)
    return [Case(*case.args[:2]), case, partly_ignored(rng, 3, 5, V=4, ignore_index=-1)]


@stage
def ignored_id(seed):
    "ignore_index may be an id of the vocabulary, such as padding: its positions are left out, only in this call."
    rng = generator(seed)
    logits, targets = drawn_logits(rng, 5, 6, V=7)
    targets[0] = 6
    return [
        partly_ignored(rng, 2, 5, V=4, ignore_index=0),
        partly_ignored(rng, 3, 6, V=7, ignore_index=6),
        Case(*drawn_logits(rng, 6, V=5), 2),
        Case(logits, targets),  # the larger one: here nothing is left out
    ]


@stage
def large_logits(seed):
    "Logits of hundreds, of 10,000 or of −inf: exp overflows or gives 0, but the loss is a finite number."
    logits = torch.tensor([[0.0, 1e4, 9998.0], [-1e4, 0.0, 1e4], [-1e4, -1e4, -9999.0]])
    steps = torch.randint(-3, 4, (2, 3), generator=generator(seed)).float()
    return [
        Case(torch.tensor([[0.0, 200.0]]), torch.tensor([0])),
        Case(logits, torch.tensor([2, 0, 1])),
        Case(torch.tensor([[1e4], [-1e4]]) + steps, torch.tensor([1, 2])),
        Case(torch.tensor([[0.5, -INF, 1.5], [-INF, 2.0, -INF], [-1e4, -INF, 1 - 1e4]]), torch.tensor([0, 1, 0])),
    ]


@stage
def double_loss(seed):
    "float64 in, float64 out."
    return [Case(*drawn_logits(generator(seed), 2, 3, V=6, dtype=torch.float64))]


def judge(case, expected, got):
    """Allow for float32, whose steps near 10,000 are 0.001: logsumexp(x) − x is correct, and loses that much. A plain
    number is not enough, because it has no gradient."""
    if isinstance(got, (int, float)):
        return OfAnotherType(
            f"Your result is the number {number(got)}. Return a tensor of shape (): a number has no gradient."
        )
    x = case.args[0]
    coarse = x.dtype == torch.float32 and x[x.isfinite()].abs().max() > 1000
    return compare(expected, got, rtol=1e-3 if coarse else None, atol=2e-3 if coarse else None)
