import copy

import torch
from torch import nn

from course_lib.chapters.pretrained.fixtures import adapted as probe
from course_lib.chapters.pretrained.fixtures import drawn_linear
from course_lib.grading.exercise import Case, Given, generator, stage


class LoRALinear(nn.Module):
    """A frozen linear layer plus the trained product of two thin matrices."""

    def __init__(self, linear, rank, alpha):
        super().__init__()
        ### BEGIN SOLUTION
        d_out, d_in = linear.weight.shape
        self.linear = linear.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, d_in))
        self.B = nn.Parameter(torch.zeros(d_out, rank))
        self.scale = alpha / rank
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        return self.linear(x) + self.scale * (x @ self.A.T @ self.B.T)  # (..., d_in) -> (..., rank) -> (..., d_out)
        ### END SOLUTION

    def merge(self):
        """Return one new linear layer that gives the same outputs."""
        ### BEGIN SOLUTION
        merged = copy.deepcopy(self.linear)
        product = (self.B @ self.A).detach()  # (d_out, d_in)
        merged.weight = nn.Parameter(self.linear.weight + self.scale * product)
        return merged
        ### END SOLUTION


def layer(rng, *shape, d_out, rank, alpha, bias=True, dtype="float32"):
    """Return one call: x of this shape, and a layer from its last axis to d_out."""
    x = torch.randn(shape, generator=rng, dtype=getattr(torch, dtype))
    seed = int(torch.randint(2**31, (), generator=rng))
    dtypes = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    says = f"nn.Linear({shape[-1]}, {d_out}{'' if bias else ', bias=False'}{dtypes})"
    linear = Given(drawn_linear, shape[-1], d_out, seed, bias, dtype, says=says)
    return Case(x, init=(linear, rank, alpha))


@stage
def as_many_as_rank(seed):
    "alpha = rank, so the scale is 1: the output, the output of a new layer, the gradients and the merged layer."
    rng = generator(seed)
    return [layer(rng, 3, 2, d_out=4, rank=1, alpha=1), layer(rng, 2, 5, d_out=3, rank=2, alpha=2)]


@stage
def other_scales(seed):
    "Other scales: B A is multiplied by alpha / rank."
    rng = generator(seed)
    return [
        layer(rng, 2, 4, d_out=6, rank=2, alpha=8),
        layer(rng, 5, 6, d_out=3, rank=3, alpha=1),
        layer(rng, 2, 7, d_out=5, rank=4, alpha=6.0),
    ]


@stage
def square_layers(seed):
    "Square layers: no shape shows whether a matrix is transposed. In one of them the rank is equally large."
    rng = generator(seed)
    return [layer(rng, 3, 4, d_out=4, rank=2, alpha=4), layer(rng, 3, 3, d_out=3, rank=3, alpha=6)]


@stage
def without_bias(seed):
    "A layer without a bias."
    rng = generator(seed)
    return [layer(rng, 2, 3, d_out=5, rank=2, alpha=5, bias=False)]


@stage
def whole_batches(seed):
    "Several texts of several tokens, (B, T, d_in)."
    rng = generator(seed)
    return [layer(rng, 2, 3, 4, d_out=5, rank=2, alpha=8), layer(rng, 3, 3, 3, d_out=3, rank=1, alpha=2)]


@stage
def in_float64(seed):
    "float64 in, float64 out."
    return [layer(generator(seed), 2, 3, 6, d_out=5, rank=2, alpha=16, dtype="float64")]
