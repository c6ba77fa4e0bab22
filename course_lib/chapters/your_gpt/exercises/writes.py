import math

import torch

from course_lib.chapters.your_gpt.fixtures import found_by_grammar as probe
from course_lib.grading.exercise import Case, generator, stage


def judged_by_grammar(stories, log_prob):
    """Return (share of the stories that the grammar can generate, their mean ln P)."""
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
    "Only stories that the grammar can generate."
    rng = generator(seed)
    return [written(rng, 1, 1), written(rng, 4, 4)]


@stage
def some_tellable(seed):
    "Some stories that the grammar cannot generate: they count only in the share."
    rng = generator(seed)
    return [written(rng, 3, 2), written(rng, 9, 3), written(rng, 5, 4)]


@stage
def written_twice(seed):
    "A story that was written twice."
    return [Case(["a", "b", "a", "c"], [("a", -12.0), ("c", -30.0)])]


@stage
def none_tellable(seed):
    "No story that the grammar can generate."
    return [written(generator(seed), 3, 0)]
