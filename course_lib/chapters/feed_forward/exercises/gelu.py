import math

import torch
import torch.nn.functional as F

from course_lib.chapters.feed_forward.exercises import _shared
from course_lib.grading.exercise import stage


def gelu(x):
    """Return x · Φ(x), with the shape and dtype of x. x: any shape."""
    chance_below = 0.5 * (1 + torch.erf(x / math.sqrt(2)))  # Φ(x)
    return x * chance_below


landmarks = stage(_shared.landmarks)
from_minus_four_to_four = stage(_shared.from_minus_four_to_four)
any_shape = stage(_shared.any_shape)
far_out = stage(_shared.far_out)
double_scores = stage(_shared.double_scores)
judge = _shared.judge
