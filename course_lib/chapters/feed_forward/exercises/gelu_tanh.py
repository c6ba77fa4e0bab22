import math

import torch

from course_lib.chapters.feed_forward.exercises import _shared
from course_lib.chapters.feed_forward.exercises._shared import in_float32
from course_lib.chapters.feed_forward.exercises.gelu import gelu
from course_lib.grading.exercise import stage


def gelu_tanh(x):
    """GELU with a tanh for Φ: any shape; same shape and dtype back."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))


landmarks = stage(_shared.landmarks)
from_minus_four_to_four = stage(_shared.from_minus_four_to_four)
far_out = stage(_shared.far_out)
any_shape = stage(_shared.any_shape)
double_scores = stage(_shared.double_scores)
judge = _shared.judge


ROOT = math.sqrt(2 / math.pi)


def half_of_one_plus_tanh(u):
    return 0.5 * (1 + u.tanh())


def wrong_tanh(inner, step=half_of_one_plus_tanh):
    """x · step(inner(x)): the inside of the tanh, or what is made of it, can be replaced."""
    return lambda x: x * step(inner(x))


def inner_line(x):
    return ROOT * (x + 0.044715 * x**3)


def tanh_by_exponentials(u):
    return 0.5 * (1 + ((2 * u).exp() - 1) / ((2 * u).exp() + 1))
