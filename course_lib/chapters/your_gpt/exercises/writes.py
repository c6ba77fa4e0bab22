import math

import torch

from course_lib.chapters.your_gpt.fixtures import found_by_grammar as probe
from course_lib.grading.exercise import Case, generator, stage


def judged_by_grammar(stories, log_prob):
    """(share of stories that the grammar can tell, mean ln P of those)."""
    found = [log_prob(story) for story in stories]
    finite = [p for p in found if math.isfinite(p)]
    mean = sum(finite) / len(finite) if finite else None
    return len(finite) / len(stories), mean


def written(rng, n, tellable):
    stories = [f"story {i}" for i in range(n)]
    log_probs = (-10 - 30 * torch.rand(tellable, generator=rng)).tolist()
    return Case(stories, list(zip(stories[n - tellable :], log_probs)))


@stage
def all_tellable(seed):
    "Stories that the grammar can tell, all of them."
    rng = generator(seed)
    return [written(rng, 1, 1), written(rng, 4, 4)]


@stage
def some_tellable(seed):
    "Some of them it cannot tell: they count in the share alone."
    rng = generator(seed)
    return [written(rng, 3, 2), written(rng, 9, 3), written(rng, 5, 4)]


@stage
def written_twice(seed):
    "A story that was written twice."
    return [Case(["a", "b", "a", "c"], [("a", -12.0), ("c", -30.0)])]


@stage
def none_tellable(seed):
    "None that the grammar could tell."
    return [written(generator(seed), 3, 0)]
