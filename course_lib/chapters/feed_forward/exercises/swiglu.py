import torch
import torch.nn.functional as F

from course_lib.chapters.feed_forward.exercises import _shared
from course_lib.grading.exercise import Case, generator, stage


def swiglu(x, W_gate, W_up, W_down):
    """Return (silu(x W_gate) ⊙ x W_up) W_down: x (..., d_model) -> the same shape."""
    gate = F.silu(x @ W_gate)  # (..., d_ff): how much passes?
    proposal = x @ W_up  # (..., d_ff): what is proposed?
    return (gate * proposal) @ W_down  # (..., d_model)


def gates(rng, *leading, d_model, d_ff, dtype=torch.float32):
    """Return random x, W_gate, W_up, W_down."""
    shapes = (*leading, d_model), (d_model, d_ff), (d_model, d_ff), (d_ff, d_model)
    return tuple(torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes)


@stage
def one_unit(seed):
    "One feature and one hidden unit: four numbers."
    drawn = generator(seed)
    return [
        Case(*(torch.tensor(part) for part in ([2.0], [[1.0]], [[3.0]], [[0.5]]))),
        Case(*gates(drawn, 1, d_model=1, d_ff=1)),
    ]


@stage
def token_with_units(seed):
    "One token with several features and hidden units."
    return [Case(*gates(generator(seed), 3, d_model=3, d_ff=5))]


@stage
def gated_sentences(seed):
    "A sentence or a batch of them: each token separately."
    rng = generator(seed)
    return [
        Case(*gates(rng, 4, d_model=3, d_ff=7)),
        Case(*gates(rng, 1, 5, d_model=6, d_ff=2)),
        Case(*gates(rng, 2, 3, d_model=5, d_ff=8)),
        Case(*gates(rng, 4, d_model=4, d_ff=4)),
    ]


@stage
def gated_views(seed):
    "Transposed views of other tensors."
    x, *weights = gates(generator(seed), 3, 2, d_model=4, d_ff=5)
    return [Case(x.transpose(0, 1), *(W.T.contiguous().T for W in weights))]


@stage
def far_open(seed):
    "Scores as large as ±200: the gate is the score itself if it is large, and 0 if it is very negative."
    x = torch.tensor([[10.0, -10.0], [10.0, 10.0]])
    W_gate = torch.tensor([[10.0, -20.0, 1.0], [-10.0, 0.0, 1.0]])
    W_up, W_down = (torch.randn(shape, generator=generator(seed)) for shape in ((2, 3), (3, 2)))
    return [Case(x, W_gate, W_up, W_down)]


@stage
def gated_double(seed):
    "float64 in, float64 out."
    return [Case(*gates(generator(seed), 2, 3, d_model=3, d_ff=5, dtype=torch.float64))]
