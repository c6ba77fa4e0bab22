"""Common parts of short training runs on Tinytown: the text, the batch size, and the final loss."""

import statistics
from collections.abc import Sequence
from functools import cache

from torch import Tensor

from course_lib.tinytown import Tinytown, WordTokenizer, encode_stories

BATCH, T = 8, 32  # rows of a batch, tokens of a row


@cache
def tinytown_ids() -> Tensor:
    """Return 1,500 Tinytown stories as one row of ids."""
    return encode_stories(Tinytown(0).sample(1500), WordTokenizer())


def final(losses: Sequence[float]) -> float:
    """Return the mean loss of the last ten steps."""
    return statistics.fmean(losses[-10:])
