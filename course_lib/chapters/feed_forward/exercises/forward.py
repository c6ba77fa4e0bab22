from functools import partial

import torch
import torch.nn.functional as F

from course_lib.chapters.feed_forward.exercises._shared import NONLINEARITIES
from course_lib.grading.exercise import Case, generator, stage


def ffn(x, W1, b1, W2, b2, activation):
    """Return activation(x W1 + b1) W2 + b2: x (..., d_model) -> the same shape."""
    nonlinearity = {"relu": F.relu, "gelu": F.gelu}[activation]
    hidden = nonlinearity(x @ W1 + b1)  # (..., d_ff)
    return hidden @ W2 + b2  # (..., d_model)


def layers(rng, *leading, d_model, d_ff, dtype=torch.float32, size=1.0):
    """Return random x, W1, b1, W2, b2."""
    shapes = (*leading, d_model), (d_model, d_ff), (d_ff,), (d_ff, d_model), (d_model,)
    x, *weights = (torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes)
    return size * x, *weights


@stage
def one_token(seed):
    "One token: matrix, bias, nonlinearity, matrix, bias."
    rng = generator(seed)
    by_hand = [[1.0, -1.0], [[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]], [0.0, 0.5, 0.0], [[1.0, 0.0], [5.0, 5.0], [0.0, 2.0]]]
    by_hand = [torch.tensor(part) for part in (*by_hand, [0.5, 0.0])]
    return [
        Case(*args, activation)
        for args in (by_hand, layers(rng, 4, d_model=4, d_ff=7))
        for activation in NONLINEARITIES
    ]


@stage
def a_sentence(seed):
    "A sentence or a batch of them: each token separately, all with the same weights."
    rng = generator(seed)
    return [
        Case(*layers(rng, 5, d_model=3, d_ff=8), "relu"),
        Case(*layers(rng, 5, d_model=3, d_ff=8), "gelu"),
        Case(*layers(rng, 1, 4, d_model=5, d_ff=2), "relu"),
        Case(*layers(rng, 2, 3, d_model=6, d_ff=9), "gelu"),
    ]


@stage
def a_token_of_zeros(seed):
    "A token of zeros: only the biases count."
    x, *weights = layers(generator(seed), 3, d_model=3, d_ff=5)
    return [Case(torch.zeros_like(x), *weights, activation) for activation in NONLINEARITIES]


@stage
def all_sizes_equal(seed):
    "Equal numbers of tokens, features and hidden units: the shapes do not show which axis is which."
    rng = generator(seed)
    return [Case(*layers(rng, 4, d_model=4, d_ff=4), activation) for activation in NONLINEARITIES]


@stage
def views(seed):
    "Transposed views of other tensors, and several leading axes."
    rng = generator(seed)
    x, W1, b1, W2, b2 = layers(rng, 3, 2, 4, d_model=3, d_ff=5)
    x, W1, W2 = x.transpose(0, 2), W1.T.contiguous().T, W2.T.contiguous().T
    return [Case(x, W1, b1, W2, b2, activation) for activation in NONLINEARITIES]


@stage
def double_layers(seed):
    "float64 in, float64 out."
    rng = generator(seed)
    double = partial(layers, rng, 2, 3, d_model=5, d_ff=7, dtype=torch.float64)
    return [Case(*double(), "gelu"), Case(*double(), "relu"), Case(*double(size=1000.0), "gelu")]
