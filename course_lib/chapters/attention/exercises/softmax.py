import torch

from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge.compare import compare


def softmax(x, dim):
    """Return weights that sum to 1 along dim, in the shape and dtype of x."""
    largest = x.amax(dim, keepdim=True)  # of each slice, so that no exponent exceeds 0
    raised = (x - largest).exp()
    return raised / raised.sum(dim, keepdim=True)


INF = float("inf")


@stage
def one_row(seed):
    "One row: the softmax of [1, 2, 3]."
    return [Case(torch.tensor([1.0, 2.0, 3.0]), 0)]


@stage
def rows_and_columns(seed):
    "A table: `dim` says whether the rows or the columns sum to 1."
    rng = generator(seed)
    return [
        Case(torch.randn(2, 3, generator=rng), 1),
        Case(torch.randn(2, 3, generator=rng), 0),
        Case(torch.randn(3, 3, generator=rng), -1),
    ]


@stage
def more_axes(seed):
    "Three axes: any of them may be the one that sums to 1, and x may be a transposed view."
    rng = generator(seed)
    drawn = [Case(torch.randn(2, 3, 5, generator=rng), dim) for dim in (-1, 1, 0, -2)]
    return [*drawn, Case(torch.randn(2, 3, 5, generator=rng).transpose(0, 2), 1)]


@stage
def large_numbers(seed):
    "Scores near 10,000 or −10,000: their exps are inf or 0 in float32, but the softmax is made of ordinary numbers."
    steps = torch.randint(-3, 4, (2, 3), generator=generator(seed)).float()
    return [
        Case(torch.tensor([1e4, 1e4 + 1, 1e4 + 2]), -1),
        Case(torch.tensor([-1e4, -1e4 + 1, -1e4 + 2]), -1),
        Case(torch.tensor([0.0, 1e4, -1e4, 1e4]), -1),
        Case(torch.tensor([[1e4], [-1e4]]) + steps, -1),
    ]


@stage
def blocked_scores(seed):
    "A score of −inf: its softmax is exactly 0, and the other results sum to 1."
    x = torch.randn(3, 4, generator=generator(seed))
    low = torch.tensor([[-INF, -1e4, 1 - 1e4, -1e4], [-1e4, -1e4, -INF, 2 - 1e4]])
    return [Case(x.masked_fill(torch.eye(3, 4, dtype=torch.bool), -INF), -1), Case(low, -1)]


@stage
def double_precision(seed):
    "float64 in, float64 out."
    return [Case(torch.randn(4, 7, generator=generator(seed), dtype=torch.float64), -1)]


def judge(case, expected, got):
    """Allow for float32, whose steps near 10,000 are 0.001: x − logsumexp(x) is correct, and loses that much."""
    x = case.args[0]
    coarse = x.dtype == torch.float32 and x[x.isfinite()].abs().max() > 1000
    return compare(expected, got, rtol=2e-3 if coarse else None)
