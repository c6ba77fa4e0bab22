import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def nats_above(story_nats, story_tokens, grammar_log_probs):
    """Return the loss above the grammar's, in nats per token of all stories."""
    return ((story_nats.sum() + grammar_log_probs.sum()) / story_tokens.sum()).item()


def told(rng, n):
    tokens = torch.randint(5, 80, (n,), generator=rng)
    grammar = -tokens * (0.4 + torch.rand(n, generator=rng))
    above = tokens * (0.1 + 0.5 * torch.rand(n, generator=rng))  # far from 0, so that rounding does not decide
    return Case(-grammar + above, tokens, grammar)


@stage
def one_story(seed):
    "One story."
    return [Case(torch.tensor([6.0]), torch.tensor([4]), torch.tensor([-4.0])), told(generator(seed), 1)]


@stage
def several_stories(seed):
    "Several stories of different lengths, in which every token counts the same."
    rng = generator(seed)
    by_hand = Case(torch.tensor([4.0, 6.0]), torch.tensor([2, 8]), torch.tensor([-2.0, -5.0]))
    return [by_hand, told(rng, 3), told(rng, 20)]


@stage
def below_the_grammar(seed):
    "A few stories on which the model was lucky: its loss is below the grammar's, so the result is negative."
    return [Case(torch.tensor([3.0, 5.0]), torch.tensor([4, 9]), torch.tensor([-4.0, -6.0]))]
