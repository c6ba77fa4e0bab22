"""Right answers in the manner of others, chapter 18: registries, state dicts held side by side, averages, judges."""

import collections
import itertools
import math
import statistics

import numpy as np
import torch

from course_lib.chapters.your_gpt.fixtures import opened
from tests.your_gpt_faults import FILLED, written_otherwise

OTHERWISE = (
    "one layer for q, k and v",
    "torch's fused kernel",
    "the mask in a buffer",
    "no output layer, but the table itself",
    "dropout that evaluation switches off",
    "a training step by hand",
    "a list of columns",
    "multinomial",
)

# --- parts, yours or lent ---------------------------------------------------------------------------------------------


def from_a_registry(mine, exercises, library):
    """A registry with a fallback, as plug-ins are looked up."""

    def lookup(name):
        try:
            return mine(exercises[name]), True
        except ValueError:
            return library[name], False

    found = {name: lookup(name) for name in exercises}
    parts = {name: part for name, (part, _) in found.items()}
    return parts, [name for name, (_, own) in found.items() if not own]


def on_top_of_the_library(mine, exercises, library):
    """A copy of the defaults, overridden by what there is: the way of configuration files."""
    parts, missing = {name: library[name] for name in exercises}, []
    for name in exercises:
        try:
            parts.update({name: mine(exercises[name])})
        except ValueError:
            missing += [name]
            continue
    return parts, missing


def by_a_chain_of_maps(mine, exercises, library):
    own, lent = {}, []
    for name, id in exercises.items():
        try:
            part = mine(id)
        except ValueError:
            lent.append(name)
        else:
            own[name] = part
    chain = collections.ChainMap(own, library)
    return {name: chain[name] for name in exercises}, lent


def errors_as_values(mine, exercises, library):
    """Each call's error is kept and looked at afterwards; what is no ValueError is raised again."""
    outcomes = []
    for name, id in exercises.items():
        try:
            outcomes.append((name, mine(id), None))
        except Exception as error:
            outcomes.append((name, None, error))
    for _, _, error in outcomes:
        if error is not None and not isinstance(error, ValueError):
            raise error
    lent = [name for name, _, error in outcomes if error is not None]
    return {name: library[name] if name in lent else part for name, part, _ in outcomes}, lent


# --- the first tensor that differs ------------------------------------------------------------------------------------


def by_allclose(yours, theirs, tolerance):
    """As checkpoints are compared in scripts of conversion: torch.allclose, then the maximum for the message."""
    for k in theirs.keys():  # noqa: SIM118
        a, b = yours[k], theirs[k]
        if not torch.allclose(a, b, rtol=0.0, atol=tolerance):
            gap = (a - b).abs()
            return k, float("inf") if torch.isnan(gap).any() else gap.max().item()
    return None, 0.0


def by_assert_close(yours, theirs, tolerance):
    """torch.testing decides; the figure is taken from the tensors."""
    for (name, own), right in zip(yours.items(), theirs.values()):
        try:
            torch.testing.assert_close(own, right, rtol=0, atol=tolerance)
        except AssertionError:
            apart = torch.abs(own - right).flatten().tolist()
            return name, math.inf if any(x != x for x in apart) else max(apart)
    return (None, 0.0)


def with_nan_as_infinity(yours, theirs, tolerance):
    """NaN is made an infinite difference first, so that one comparison serves both."""
    gaps = {k: torch.nan_to_num(yours[k] - v, nan=math.inf).abs().amax().item() for k, v in theirs.items()}
    beyond = [(k, gap) for k, gap in gaps.items() if gap > tolerance]
    return beyond[0] if beyond else (None, 0.0)


def entry_by_entry(yours, theirs, tolerance):
    """Python's floats, one after another; `not within` lets no NaN pass."""
    for name in theirs:
        largest, wrong = 0.0, False
        for a, b in zip(yours[name].flatten().tolist(), theirs[name].flatten().tolist()):
            if math.isnan(a):
                return name, math.inf
            wrong |= not abs(a - b) <= tolerance
            largest = max(largest, abs(a - b))
        if wrong:
            return name, largest
    return None, 0.0


# --- nats above the grammar -------------------------------------------------------------------------------------------


def as_evaluation_harnesses_do(story_nats, story_tokens, grammar_log_probs):
    """Sums of negative log-likelihoods over sums of tokens, one for each, and their difference."""
    n = story_tokens.sum().double()
    model = story_nats.double().sum() / n
    grammar = -grammar_log_probs.double().sum() / n
    return (model - grammar).item()


def weighted_average(story_nats, story_tokens, grammar_log_probs):
    """NumPy's average of each story's excess per token, weighted by its tokens."""
    tokens = story_tokens.numpy().astype(np.float64)
    excess = (story_nats.numpy().astype(np.float64) + grammar_log_probs.numpy()) / tokens
    return float(np.average(excess, weights=tokens))


def running_meter(story_nats, story_tokens, grammar_log_probs):
    """An average meter that is updated story by story, as training scripts keep one."""
    total, count = 0.0, 0
    for nats, tokens, log_prob in zip(story_nats.tolist(), story_tokens.tolist(), grammar_log_probs.tolist()):
        total += nats - (-log_prob)
        count += tokens
    return total / count


def by_dot_products(story_nats, story_tokens, grammar_log_probs):
    ones = torch.ones(len(story_nats), dtype=torch.float64)
    paid = torch.stack([story_nats, grammar_log_probs]).double() @ ones  # (2,)
    return float(paid.sum() / (story_tokens.double() @ ones))


# --- stories judged by the grammar ------------------------------------------------------------------------------------


def with_statistics(stories, log_prob):
    found = [log_prob(story) for story in stories]
    told = [p for p in found if p > -math.inf]
    return len(told) / len(found), statistics.fmean(told) if told else None


def masked_in_numpy(stories, log_prob):
    """An array and its mask."""
    p = np.array([log_prob(story) for story in stories], dtype=float)
    told = np.isfinite(p)
    return float(told.mean()), float(p[told].mean()) if told.any() else None


def as_tensors(stories, log_prob):
    """A tensor of doubles; what is infinite is masked away."""
    p = torch.tensor([log_prob(text) for text in stories], dtype=torch.float64)
    keep = torch.isfinite(p)
    mean = p.masked_select(keep).mean().item() if keep.any() else None
    return keep.double().mean().item(), mean


def counted_once_and_weighed(stories, log_prob):
    """Each different story is judged once, and counts as often as it was written."""
    times = collections.Counter(stories)
    judged = {story: log_prob(story) for story in times}
    told = [(p, times[story]) for story, p in judged.items() if not math.isinf(p)]
    n = sum(count for _, count in told)
    mean = sum(itertools.starmap(lambda p, count: p * count, told)) / n if n else None
    return n / len(stories), mean


STRANGERS = {
    "your_gpt.parts": [from_a_registry, on_top_of_the_library, by_a_chain_of_maps, errors_as_values],
    "your_gpt.parity": [by_allclose, by_assert_close, with_nan_as_infinity, entry_by_entry],
    "your_gpt.loss": [as_evaluation_harnesses_do, weighted_average, running_meter, by_dot_products],
    "your_gpt.writes": [with_statistics, masked_in_numpy, as_tensors, counted_once_and_weighed],
    "your_gpt.file": [opened(written_otherwise(FILLED, name))["MyGPT"] for name in OTHERWISE],
}
