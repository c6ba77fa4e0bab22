import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def gradient_norms(weights, biases, x):
    norms = []
    for skip in (False, True):
        start = x.detach().requires_grad_()  # (B, D)
        stream = start
        for weight, bias in zip(weights, biases):
            branch = torch.tanh(stream @ weight.T + bias)  # (B, D)
            stream = stream + branch if skip else branch
        (gradient,) = torch.autograd.grad(stream.sum(), start)
        norms.append(gradient.norm())
    return tuple(norms)


def tanh_layers(rng, depth, B, D, dtype=torch.float32):
    """Return weights and biases initialized as in `nn.Linear`, and inputs."""
    bound = 1 / math.sqrt(D)
    weights = (2 * torch.rand(depth, D, D, generator=rng, dtype=torch.float64) - 1) * bound
    biases = (2 * torch.rand(depth, D, generator=rng, dtype=torch.float64) - 1) * bound
    x = torch.randn(B, D, generator=rng, dtype=torch.float64)
    return Case(weights.to(dtype), biases.to(dtype), x.to(dtype))


@stage
def one_layer(seed):
    "One layer with two features, small enough to compute by hand."
    return [tanh_layers(generator(seed), 1, 1, 2)]


@stage
def a_few_layers(seed):
    "Two to five layers."
    rng = generator(seed)
    return [
        tanh_layers(rng, 2, 1, 3),
        tanh_layers(rng, 3, 4, 5),
        tanh_layers(rng, 4, 4, 4),
        tanh_layers(rng, 5, 2, 7, torch.float64),
    ]


@stage
def fifty_layers(seed):
    "Fifty layers with 64 features, as in the chapter."
    return [tanh_layers(generator(seed), 50, 1, 64)]
