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


def adds(stream, branch, start):
    return stream + branch


def replaces(stream, branch, start):
    return branch


def the_gradient(loss, start, streams, weights):
    return torch.autograd.grad(loss, start)[0]


def wrong_gradients(
    weights,
    biases,
    x,
    *,
    linear=lambda x, weight, bias: x @ weight.T + bias,
    bend=torch.tanh,
    join=adds,
    finish=lambda stream, start, skip: stream,
    loss=torch.sum,
    differentiate=the_gradient,
    size=torch.norm,
    hand_in=lambda without, with_skip: (without, with_skip),
):
    norms = []
    for skip in (False, True):
        start = x.detach().clone().requires_grad_()
        own = [weight.detach().clone().requires_grad_() for weight in weights]
        streams = [start]
        for weight, bias in zip(own, biases):
            branch = bend(linear(streams[-1], weight, bias))
            streams.append((join if skip else replaces)(streams[-1], branch, start))
        end = finish(streams[-1], start, skip)
        norms.append(size(differentiate(loss(end), start, streams, own)))
    return hand_in(*norms)


def gradients_added_up(weights, biases, x):
    x = x.detach().clone().requires_grad_()
    norms = []
    for skip in (False, True):
        stream = x
        for weight, bias in zip(weights, biases):
            branch = torch.tanh(stream @ weight.T + bias)
            stream = stream + branch if skip else branch
        stream.sum().backward()
        norms.append(x.grad.norm())
    return tuple(norms)


def tanh_layers(rng, depth, B, D, dtype=torch.float32):
    """Weights and biases as `nn.Linear` starts them, and inputs."""
    bound = 1 / math.sqrt(D)
    weights = (2 * torch.rand(depth, D, D, generator=rng, dtype=torch.float64) - 1) * bound
    biases = (2 * torch.rand(depth, D, generator=rng, dtype=torch.float64) - 1) * bound
    x = torch.randn(B, D, generator=rng, dtype=torch.float64)
    return Case(weights.to(dtype), biases.to(dtype), x.to(dtype))


@stage
def one_layer(seed):
    "One layer with two features: small enough for paper."
    return [tanh_layers(generator(seed), 1, 1, 2)]


@stage
def a_few_layers(seed):
    "Two to five layers of odd sizes, and several rows of inputs."
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
