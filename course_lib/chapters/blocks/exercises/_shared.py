"""What several exercises of this chapter use to make their cases and mistakes."""

import math
from functools import partial

import torch

from course_lib.chapters.blocks.fixtures import feed_forward, own_layer_norm
from course_lib.grading.exercise import Case, Given
from course_lib.grading.fixtures import self_attention


def normed_branches(x, attention, ffn, norm1, norm2):
    x = x + norm1(attention(x))
    return x + norm2(ffn(x))


def same(x):
    return x


def in_two_steps(first, second):
    """A block of two branches, each joined to the stream by a function (x, branch, norm)."""
    return lambda x, attention, ffn, norm1, norm2: second(first(x, attention, norm1), ffn, norm2)


def parts(rng, B, T, d_model, scale=1.0, dtype=torch.float64):
    draw = partial(torch.randn, generator=rng, dtype=torch.float64)
    attention = [(draw(d_model, d_model) / math.sqrt(d_model)).to(dtype) for _ in range(3)]
    ffn = [(draw(*shape) / math.sqrt(d_model)).to(dtype) for shape in ((d_model, 3 * d_model), (3 * d_model, d_model))]
    norms = [((0.5 + draw(d_model).abs()).to(dtype), draw(d_model).to(dtype)) for _ in range(2)]
    return Case(
        (scale * draw(B, T, d_model)).to(dtype),
        Given(self_attention, *attention, None, False, says="an attention, (B, T, d_model) to the same"),
        Given(feed_forward, *ffn, says="a feed-forward network, (..., d_model) to the same"),
        Given(own_layer_norm, *norms[0], says="a LayerNorm with γ and β of its own"),
        Given(own_layer_norm, *norms[1], says="a LayerNorm with another γ and β"),
    )
