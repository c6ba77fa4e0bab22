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


@stage
def first_position(seed):
    "Position 0: every angle is 0, so every sine is 0 and every cosine 1."
    return [Case(1, 2), Case(1, 6)]


@stage
def one_hand(seed):
    "One hand, d_model = 2: it rotates by one radian per token."
    return [Case(2, 2), Case(4, 2)]


@stage
def the_chapters_table(seed):
    "Four hands, d_model = 8: rows of the chapter's table."
    return [Case(2, 8), Case(11, 8)]


@stage
def other_tables(seed):
    "Other sizes: more features than positions, more positions than features, or equally many."
    rng = generator(seed)
    drawn = [2 * int(torch.randint(3, 17, (1,), generator=rng)) for _ in range(2)]
    return [Case(6, 6), Case(3, 64), Case(19, drawn[0]), Case(2 * drawn[1], drawn[1])]


@stage
def far_tables(seed):
    "A long table: 2,000 positions."
    return [Case(2000, 4)]


@stage
def odd_tables(seed):
    "An odd d_model: the slowest hand has a sine but no cosine."
    return [Case(4, 1), Case(3, 5), Case(7, 7), Case(2000, 9)]


def judge(case, expected, got):
    """Allow for float32, which is correct but less exact: an angle of 2,000 radians is exact to 0.0001."""
    furthest = abs(case.args[0])
    return compare(expected, got, atol=1e-5 + 3e-7 * furthest)
