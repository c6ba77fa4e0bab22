import math

import torch

from course_lib.chapters.training.fixtures import clipped as probe
from course_lib.chapters.training.fixtures import with_gradients
from course_lib.grading.exercise import Case, Given, generator, stage


def clip_gradients(parameters, max_norm):
    """Scale all gradients by one factor to max_norm; return their norm before."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    squares = sum(float(g.double().square().sum()) for g in gradients)
    norm = math.sqrt(squares)
    if norm > max_norm:
        factor = max_norm / norm
        for gradient in gradients:
            gradient *= factor
    return norm


def length(gradients):
    return math.sqrt(sum(float((gradient.double() ** 2).sum()) for gradient in gradients))


def gradients_case(values, gradients, max_norm, once=False):
    shapes = ", ".join("none" if g is None else str(tuple(g.shape)) for g in gradients)
    shown = ", ".join("none" if g is None else str([round(x, 2) for x in g.flatten().tolist()]) for g in gradients)
    few = sum(0 if g is None else g.numel() for g in gradients) <= 6
    how = "a generator of parameters" if once else "parameters"
    says = f"{how} with gradients {shown}" if few else f"{how} with gradients of shapes {shapes}"
    return Case(Given(with_gradients, values, gradients, says=says), max_norm, once)


def drawn_gradients(rng, shapes, norm, dtype=torch.float32):
    """Return values and gradients of these shapes; all gradients together have this norm."""
    values = [torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes]
    gradients = [torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes]
    return values, [gradient * (norm / length(gradients)) for gradient in gradients]


@stage
def three_four_five(seed):
    "One parameter whose gradient has the norm 5, more than max_norm: it keeps its direction."
    values = [torch.tensor([10.0, -20.0])]
    return [
        gradients_case(values, [torch.tensor([3.0, 4.0])], 1.0),
        gradients_case(values, [torch.tensor([-3.0, 4.0])], 2.0),
    ]


@stage
def short_gradients(seed):
    "A gradient no longer than max_norm stays as it is, and so does a gradient of zeros."
    values = [torch.tensor([10.0, -20.0])]
    return [
        gradients_case(values, [torch.tensor([3.0, 4.0])], 20.0),
        gradients_case(values, [torch.tensor([0.3, -0.4])], 1.0),
        gradients_case(values, [torch.tensor([0.0, 0.0])], 1.0),
    ]


@stage
def several_parameters(seed):
    "Several parameters: one norm over all of them together, and one factor for all."
    rng = generator(seed)
    values = [torch.tensor([10.0]), torch.tensor([-20.0, 5.0])]
    return [
        gradients_case(values, [torch.tensor([12.0]), torch.tensor([3.0, 4.0])], 6.5),
        gradients_case(*drawn_gradients(rng, [(3, 2), (4,), ()], 7.0), 3.0),
        gradients_case(*drawn_gradients(rng, [(3, 3), (3,), (2, 3, 2)], 0.90345), 1.0),
        gradients_case(*drawn_gradients(rng, [(2, 5), (5,)], 40.0), 0.5),
    ]


@stage
def without_gradients(seed):
    "Some parameters have no gradient (`grad` is None): skip them."
    rng = generator(seed)
    values, gradients = drawn_gradients(rng, [(2, 3), (3,), (4,)], 5.0)
    return [
        gradients_case(values[:2], [gradients[0], None], 2.0),
        gradients_case(values, [None, *gradients[1:]], 0.5),
        gradients_case(values, [gradients[0], None, gradients[2]], 50.0),
    ]


@stage
def walked_once(seed):
    "`parameters` is a generator, like `model.parameters()`: you can go through it only once."
    rng = generator(seed)
    return [
        gradients_case([torch.tensor([10.0, -20.0])], [torch.tensor([3.0, 4.0])], 1.0, True),
        gradients_case(*drawn_gradients(rng, [(3, 2), (5,)], 6.0), 2.0, True),
    ]


@stage
def double_gradients(seed):
    "float64 gradients stay float64."
    return [gradients_case(*drawn_gradients(generator(seed), [(2, 3), (3,)], 9.0, torch.float64), 2.5)]
