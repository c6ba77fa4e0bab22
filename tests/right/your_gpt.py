"""Chapter 18: right answers in other styles."""

import contextlib
import math

import numpy as np

from course_lib.chapters.your_gpt.fixtures import opened
from tests.your_gpt_faults import FILLED, written_otherwise


def gather_in_two_passes(mine, exercises, library):
    own = {}
    for name, exercise in exercises.items():
        with contextlib.suppress(ValueError):
            own[name] = mine(exercise)
    return {name: own.get(name, library[name]) for name in exercises}, [name for name in exercises if name not in own]


def gather_by_flag(mine, exercises, library):
    lent = []

    def one(name):
        try:
            return mine(exercises[name])
        except ValueError as error:
            if not isinstance(error, ValueError):
                raise
            lent.append(name)
            return library[name]

    return {name: one(name) for name in exercises}, lent


def difference_in_numpy(yours, theirs, tolerance):
    for name, right in theirs.items():
        apart = np.abs(yours[name].numpy() - right.numpy())
        if not (apart <= tolerance).all():
            return name, math.inf if np.isnan(apart).any() else float(apart.max())
    return None, 0.0


def difference_by_next(yours, theirs, tolerance):
    found = {name: float((yours[name] - theirs[name]).abs().max()) for name in theirs}
    first = next((name for name, largest in found.items() if not largest <= tolerance), None)
    return first, 0.0 if first is None else math.inf if math.isnan(found[first]) else found[first]


def above_by_loop(story_nats, story_tokens, grammar_log_probs):
    paid = sum(nats - -log_p for nats, log_p in zip(story_nats.tolist(), grammar_log_probs.tolist()))
    return paid / sum(story_tokens.tolist())


def above_by_two_means(story_nats, story_tokens, grammar_log_probs):
    tokens = story_tokens.sum()
    return float(story_nats.sum() / tokens - (-grammar_log_probs).sum() / tokens)


def judged_in_numpy(stories, log_prob):
    found = np.array([log_prob(story) for story in stories])
    can = np.isfinite(found)
    return float(can.mean()), float(found[can].mean()) if can.any() else None


def judged_by_loop(stories, log_prob):
    count, total = 0, 0.0
    for story in stories:
        p = log_prob(story)
        if p != -math.inf:
            count, total = count + 1, total + p
    return count / len(stories), total / count if count else None


RIGHT = {
    "your_gpt.parts": [gather_in_two_passes, gather_by_flag],
    "your_gpt.parity": [difference_in_numpy, difference_by_next],
    "your_gpt.loss": [above_by_loop, above_by_two_means],
    "your_gpt.writes": [judged_in_numpy, judged_by_loop],
    "your_gpt.file": [opened(FILLED)["MyGPT"], opened(written_otherwise(FILLED, "einsum"))["MyGPT"]],
}
