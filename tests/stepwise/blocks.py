import torch


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
