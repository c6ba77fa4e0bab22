import math

import torch

from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge.compare import compare


def sinusoidal_encoding(max_seq_len, d_model):
    """Return the sinusoids of Vaswani et al. 2017: (max_seq_len, d_model), float32."""
    position = torch.arange(max_seq_len)[:, None]  # (max_seq_len, 1)
    two_i = torch.arange(0, d_model, 2)  # (hands,)
    angle = position / 10000 ** (two_i / d_model)  # (max_seq_len, hands)
    table = torch.empty(max_seq_len, d_model)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]  # an odd d_model has one cosine less
    return table


def shift_matrix(k, d_model):
    """Return M (d_model, d_model), float32, with PE[p + k] = M @ PE[p] for every p."""
    M = torch.zeros(d_model, d_model)
    for j in range(0, d_model, 2):  # the hand in features j and j + 1
        angle = k / 10000 ** (j / d_model)  # radians in k tokens
        M[j, j] = M[j + 1, j + 1] = math.cos(angle)
        M[j, j + 1] = math.sin(angle)  # sin(a + b) = sin a cos b + cos a sin b
        M[j + 1, j] = -math.sin(angle)  # cos(a + b) = cos a cos b − sin a sin b
    return M


def judge(case, expected, got):
    """Allow for float32, which is correct but less exact: an angle of 2,000 radians is exact to 0.0001."""
    furthest = abs(case.args[0])
    return compare(expected, got, atol=1e-5 + 3e-7 * furthest)


@stage
def no_step(seed):
    "k = 0: the encoding does not change, so the matrix is the identity."
    return [Case(0, 2), Case(0, 6)]


@stage
def one_hand_moves(seed):
    "One hand, d_model = 2: one or two tokens forward."
    return [Case(1, 2), Case(2, 2)]


@stage
def several_hands(seed):
    "Several hands, each with its own angle."
    return [Case(1, 4), Case(5, 8)]


@stage
def back(seed):
    "A negative k goes back to earlier tokens."
    return [Case(-1, 2), Case(-3, 6)]


@stage
def other_steps(seed):
    "Other steps, forward or back, and other widths: k may equal d_model or be far larger."
    rng = generator(seed)
    k, half = (int(torch.randint(low, 20, (1,), generator=rng)) for low in (6, 5))
    return [Case(k, 2 * half), Case(-k, 2 * half + 2), Case(6, 6), Case(700, 16)]
