import torch
from torch import nn

from course_lib.chapters.normalization.fixtures import started_and_called as probe
from course_lib.grading.exercise import Case, generator, stage


class RMSNorm(nn.Module):
    """Compute x / √(mean(x²) + eps) · weight for each token."""

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        ### BEGIN SOLUTION
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)  # (..., 1)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight
        ### END SOLUTION


def rows(rng, *shape, dtype=torch.float32):
    return 2 * torch.randn(shape, generator=rng, dtype=dtype) + 1


@stage
def one_token(seed):
    "The token [2, 4, 4, 8], whose mean square is 25: it is divided by 5 and multiplied by the weight."
    return [Case(torch.tensor([2.0, 4.0, 4.0, 8.0]), init=(4,))]


@stage
def more_rows(seed):
    "Any leading axes: each token is divided by its own root mean square."
    rng = generator(seed)
    shapes = [(3, 5), (1, 4), (4, 4), (2, 3, 7), (3, 3, 3), (2, 2, 3, 6)]
    return [
        *(Case(rows(rng, *shape), init=(shape[-1],)) for shape in shapes),
        Case(rows(rng, 5, 4, 3).transpose(0, 1), init=(3,)),
    ]


@stage
def sizes_of_eps(seed):
    "Tokens and eps of all sizes. Where eps is not passed, it is 1e-6."
    x = rows(generator(seed), 6)
    return [Case(x * 1e-3, init=(6,)), Case(x * 0.1, init=(6, 1e-3)), Case(x, init=(6, 2.0)), Case(x * 2e4, init=(6,))]


@stage
def zero_token(seed):
    "Tokens of zeros stay zero: eps prevents 0 / 0."
    return [Case(torch.zeros(3), init=(3,)), Case(torch.zeros(2, 3), init=(3, 1e-5))]


@stage
def double_rows(seed):
    "float64 in, float64 out."
    return [Case(rows(generator(seed), 2, 3, 5, dtype=torch.float64), init=(5,))]
