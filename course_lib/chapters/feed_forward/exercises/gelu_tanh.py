import math

import torch

from course_lib.chapters.feed_forward.exercises import _shared
from course_lib.grading.exercise import stage


def gelu_tanh(x):
    """Return GELU with a tanh for Φ, with the shape and dtype of x. x: any shape."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))


landmarks = stage(_shared.landmarks)
from_minus_four_to_four = stage(_shared.from_minus_four_to_four)
any_shape = stage(_shared.any_shape)
far_out = stage(_shared.far_out)
double_scores = stage(_shared.double_scores)
judge = _shared.judge
