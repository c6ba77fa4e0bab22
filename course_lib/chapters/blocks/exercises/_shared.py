"""The cases of both blocks, pre-norm and post-norm."""

import math
from functools import partial

import torch

from course_lib.chapters.blocks.fixtures import affine, feed_forward, own_layer_norm
from course_lib.grading.exercise import Case, Given, generator
from course_lib.grading.fixtures import self_attention


def paper(x, attention, ffn, norm1, norm2):
    """Return a case of functions x · scale + shift, which you can follow on paper."""
    names = ("attention", "ffn", "norm1", "norm2")
    functions = [
        Given(affine, scale, shift, says=f"{name}(x) = {on_paper(scale, shift)}")
        for name, (scale, shift) in zip(names, (attention, ffn, norm1, norm2))
    ]
    return Case(torch.tensor([[[float(x)]]]), *functions)


def on_paper(scale, shift):
    """Return x · scale + shift as text, as you would write it: 2 · x, x + 1, or 0."""
    factor = {0: "", 1: "x", -1: "−x"}.get(scale, f"{scale:g} · x".replace("-", "−"))
    if not factor or not shift:
        return factor or f"{shift:g}".replace("-", "−")
    return f"{factor} {'+' if shift > 0 else '−'} {abs(shift):g}"


def by_hand(seed):
    "One token with one feature, and functions that you can follow on paper."
    return [
        paper(1, (2, 0), (1, 1), (1, 0), (1, 0)),
        paper(1, (2, 0), (1, 1), (3, 0), (1, 10)),
        paper(2, (-1, 4), (0.5, 0), (0.5, 1), (-2, 3)),
    ]


def silent_branches(seed):
    "One or both branches return 0: only the residual path remains there."
    return [
        paper(5, (0, 0), (0, 0), (3, 1), (7, -2)),
        paper(5, (2, 1), (0, 0), (3, 1), (7, -2)),
        paper(5, (0, 0), (2, 1), (3, 1), (7, -2)),
    ]


def parts(rng, B, T, d_model, scale=1.0, dtype=torch.float64):
    draw = partial(torch.randn, generator=rng, dtype=torch.float64)
    attention = [(draw(d_model, d_model) / math.sqrt(d_model)).to(dtype) for _ in range(3)]
    ffn = [(draw(*shape) / math.sqrt(d_model)).to(dtype) for shape in ((d_model, 3 * d_model), (3 * d_model, d_model))]
    norms = [((0.5 + draw(d_model).abs()).to(dtype), draw(d_model).to(dtype)) for _ in range(2)]
    return Case(
        (scale * draw(B, T, d_model)).to(dtype),
        Given(self_attention, *attention, None, False, says="an attention, (B, T, d_model) to the same"),
        Given(feed_forward, *ffn, says="a feed-forward network, (..., d_model) to the same"),
        Given(own_layer_norm, *norms[0], says="a LayerNorm with its own γ and β"),
        Given(own_layer_norm, *norms[1], says="a LayerNorm with another γ and β"),
    )


def real_parts(seed):
    "Attention, a feed-forward network and two LayerNorms with random weights."
    rng = generator(seed)
    sizes = [(1, 1, 3), (1, 4, 2), (3, 3, 3), (2, 5, 4)]
    cases = [parts(rng, *size, dtype=torch.float32) for size in sizes]
    cases += [parts(rng, 2, 3, 4, scale, torch.float32) for scale in (1e-2, 1e3)]
    turned = parts(rng, 2, 3, 5, dtype=torch.float32)
    return [*cases, Case(turned.args[0].transpose(0, 1), *turned.args[1:])]


def double_parts(seed):
    "float64 in, float64 out."
    return [parts(generator(seed), 2, 3, 4)]
