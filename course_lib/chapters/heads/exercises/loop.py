import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def heads_one_by_one(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
    """(B, T, d_model) -> (B, T, d_model): one attention after another,
    each with its own columns of W_Q, W_K, W_V."""
    ### BEGIN SOLUTION
    D = W_Q.shape[1] // n_heads
    found = []
    for h in range(n_heads):
        own = slice(h * D, (h + 1) * D)  # the columns of head h
        q, k, v = x @ W_Q[:, own], x @ W_K[:, own], x @ W_V[:, own]  # (B, T, D) each
        scores = q @ k.transpose(-2, -1) / math.sqrt(D)  # (B, T, T)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        found.append(scores.softmax(dim=-1) @ v)  # (B, T, D)
    return torch.cat(found, dim=-1) @ W_O  # (B, T, d_model)
    ### END SOLUTION


def drawn(rng, B, T, d_model, dtype=torch.float32):
    """Return x (B, T, d_model) and four matrices whose products keep the size of the features."""
    x = torch.randn(B, T, d_model, generator=rng, dtype=dtype)
    return x, *(torch.randn(4, d_model, d_model, generator=rng, dtype=dtype) / d_model**0.5)


def drawn_mask(rng, *shape):
    """Return a mask in which every query may attend to at least one key, but not to all of them."""
    order = torch.rand(shape, generator=rng).argsort(-1)
    return order < torch.randint(1, shape[-1], (*shape[:-1], 1), generator=rng)


@stage
def one_token(seed):
    "A single token: every weight is 1, and the result is x W_V W_O for any number of heads."
    rng = generator(seed)
    return [Case(*drawn(rng, 1, 1, 4), 1), Case(*drawn(rng, 2, 1, 6), 3)]


@stage
def one_head(seed):
    "One head: plain attention between the projections."
    rng = generator(seed)
    return [Case(*drawn(rng, 1, 3, 4), 1), Case(*drawn(rng, 2, 5, 3), 1)]


@stage
def several_heads(seed):
    "Several heads, no mask."
    rng = generator(seed)
    return [
        Case(*drawn(rng, 1, 3, 4), 2),
        Case(*drawn(rng, 2, 5, 12), 3),
        Case(*drawn(rng, 3, 4, 10), 5),
        Case(*drawn(rng, 2, 3, 5), 5),
    ]


@stage
def equal_sizes(seed):
    "Equal numbers of sentences, tokens, heads and features per head."
    rng = generator(seed)
    return [Case(*drawn(rng, 2, 2, 4), 2), Case(*drawn(rng, 3, 3, 9), 3)]


@stage
def masked_heads(seed):
    "One mask for all sentences, (T, T), or one for each sentence, (B, T, T): True = may attend."
    rng = generator(seed)
    return [
        Case(*drawn(rng, 1, 4, 6), 2, torch.ones(4, 4, dtype=torch.bool).tril()),
        Case(*drawn(rng, 2, 5, 6), 3, drawn_mask(rng, 5, 5)),
        Case(*drawn(rng, 3, 4, 8), 2, drawn_mask(rng, 3, 4, 4)),
    ]


@stage
def large_scores(seed):
    "Scores in the hundred thousands, of either sign. Each token may attend to one token, which gets all the weight."
    x, *matrices = drawn(generator(seed), 2, 6, 6)
    return [Case(1000 * x, *matrices, heads, torch.eye(6, dtype=torch.bool).roll(1, 1)) for heads in (2, 3)]


@stage
def double_loop(seed):
    "float64 in, float64 out."
    rng = generator(seed)
    return [
        Case(*drawn(rng, 2, 4, 6, torch.float64), 2),
        Case(*drawn(rng, 1, 5, 8, torch.float64), 4, drawn_mask(rng, 5, 5)),
    ]
