"""Cases and mistakes that several exercises of this chapter share."""

import torch
import torch.nn.functional as F

from course_lib.chapters.feed_forward.fixtures import lively_decoder
from course_lib.grading.exercise import Case, Given, generator
from course_lib.grading.judge.compare import compare
from course_lib.grading.judge.show import plural

NONLINEARITIES = {"relu": F.relu, "gelu": F.gelu}


# --- both GELUs


def landmarks(seed):
    "The scores 0, 1 and −1."
    return [Case(torch.tensor([0.0, 1.0, -1.0]))]


def from_minus_four_to_four(seed):
    "Scores from −4 to 4, where the approximations differ."
    return [Case(torch.linspace(-4, 4, 33)), Case(4 * torch.rand(3, 7, generator=generator(seed)) - 2)]


def far_out(seed):
    "Extreme scores: a large one passes unchanged, a very negative one becomes 0."
    return [Case(torch.tensor([-1e4, -100.0, -10.0, -6.0, 6.0, 10.0, 100.0, 1e4]))]


def any_shape(seed):
    "Any shape: a single number without an axis, one row, or a transposed view."
    rng = generator(seed)
    return [
        Case(torch.tensor(0.5)),
        Case(torch.randn(1, 5, generator=rng)),
        Case(torch.randn(2, 3, 4, generator=rng).transpose(0, 2)),
    ]


def double_scores(seed):
    "float64 in, float64 out."
    return [Case(2 * torch.randn(4, 5, generator=generator(seed), dtype=torch.float64))]


def judge(case, expected, got):
    """Use a smaller tolerance: the two GELUs differ by at most 0.0005, so float32's usual 1e-4 would be too coarse."""
    return compare(expected, got, 1e-6, 1e-6)


# --- small models


TINY = {"vocab_size": 23, "d_model": 6, "n_heads": 2, "n_layers": 2, "d_ff": 11, "max_seq_len": 12}


def small_model(seed, dropout=0.0, activation="relu", mute=0, **config):
    config = TINY | {"activation": activation, "dropout": dropout} | config
    says = f"a small decoder with {plural(config['n_layers'], 'block')} of {config['d_ff']} units ({activation})"
    return Given(lively_decoder, config, seed, mute, says=says)


def drawn_ids(rng, *lengths):
    """Return ids (B, T), in which 0 pads the end of the shorter texts."""
    ids = torch.randint(1, TINY["vocab_size"], (len(lengths), max(lengths)), generator=rng)
    return ids.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], 0)
