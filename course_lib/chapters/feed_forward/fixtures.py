"""How the tests of chapter 6 build arguments that are not plain data, and use an answer: see `grading/fixtures.py`."""

import copy
from functools import cache

import torch
from torch import nn

from course_lib import gpt
from course_lib.config import TransformerConfig
from course_lib.pretrained import load_pretrained


def lively_decoder(config: dict, seed: int, mute: int = 0) -> gpt.DecoderOnly:
    """Return a decoder in float64 with random values in every parameter, including biases and gains; in training mode.

    The first `mute` hidden units of every block are cut: their input weights and their bias are 0.
    """
    model = gpt.DecoderOnly(TransformerConfig(**config)).double()
    rng = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6, generator=rng)
    for block in model.blocks:
        for parameter in block.feed_forward.up_proj.parameters():
            parameter.data[:mute] = 0
    return model


def tinytown(dtype: str = "float32") -> gpt.DecoderOnly:
    """Return the trained Tinytown model."""
    return copy.deepcopy(_tinytown()).to(getattr(torch, dtype))


@cache
def _tinytown() -> gpt.DecoderOnly:
    return load_pretrained("tinytown")[0]


def as_row(answer, *args):
    """Return the answer's result as a row of numbers, whether it is a list, a tuple or a tensor."""
    result = answer(*args)
    try:
        return torch.as_tensor(result, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        return result
