import math

import torch

from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge.compare import compare


def causal_self_attention(x, W_Q, W_K, W_V, W_O, n_heads):
    """Return the causal multi-head self-attention of x: (B, T, d_model) both."""
    B, T, d_model = x.shape
    D = d_model // n_heads

    def heads(W):
        return (x @ W).view(B, T, n_heads, D).transpose(1, 2)  # (B, H, T, D)

    q, k, v = heads(W_Q), heads(W_K), heads(W_V)
    scores = q @ k.transpose(-2, -1) / math.sqrt(D)  # (B, H, T, T)
    later = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    weights = scores.masked_fill(later, -torch.inf).softmax(dim=-1)
    mixed = weights @ v  # (B, H, T, D)
    return mixed.transpose(1, 2).reshape(B, T, d_model) @ W_O


def split(x, n_heads):
    return x.reshape(*x.shape[:2], n_heads, -1).transpose(1, 2)


def scaled(q, k, x):
    return q @ k.mT / math.sqrt(q.shape[-1])


def drawn_weights(rng, B, T, d_model, n_heads, *, size=1.0, dtype=torch.float32, view=False):
    """Return a case with random x and matrices, of a size at which the scores differ clearly."""
    x = torch.randn(B, T, d_model, generator=rng, dtype=torch.float64)
    if view:  # the same shape, with another order in memory
        x = x.transpose(0, 1).contiguous().transpose(0, 1)
    W = [torch.randn(d_model, d_model, generator=rng, dtype=torch.float64) / d_model**0.5 for _ in range(4)]
    W[0] = W[0] * size
    return Case(*(tensor.to(dtype) for tensor in (x, *W)), n_heads)


@stage
def one_token_alone(seed):
    "One token: it looks at itself with weight 1, so that only W_V and W_O matter."
    rng = generator(seed)
    return [drawn_weights(rng, 1, 1, 2, 1), drawn_weights(rng, 2, 1, 6, 3)]


@stage
def running_mean(seed):
    "W_Q = 0: all scores are equal, and each token takes the mean of the values up to its own."
    cases = []
    for T in (2, 4):
        x, W_Q, *others = drawn_weights(generator(seed), 1, T, 3, 1).args
        cases.append(Case(x, torch.zeros_like(W_Q), *others))
    return cases


@stage
def single_head(seed):
    "One head."
    rng = generator(seed)
    return [drawn_weights(rng, 1, 2, 3, 1, size=2.0), drawn_weights(rng, 1, 4, 4, 1, size=2.0)]


@stage
def several_heads(seed):
    "Several heads: fewer than there are tokens, more, or the same number. x may be a transposed view."
    rng = generator(seed)
    return [
        drawn_weights(rng, 1, 3, 4, 2, size=2.0),
        drawn_weights(rng, 2, 2, 4, 2, size=2.0),
        drawn_weights(rng, 1, 5, 6, 3, size=2.0),
        drawn_weights(rng, 3, 4, 10, 2, size=2.0),
        drawn_weights(rng, 2, 7, 6, 6, size=2.0, view=True),
    ]


@stage
def double(seed):
    "float64 in, float64 out."
    return [drawn_weights(generator(seed), 2, 5, 9, 3, dtype=torch.float64)]


@stage
def large(seed):
    "Scores in the thousands, positive and negative, in float64."
    case = drawn_weights(generator(seed), 2, 6, 4, 2, size=5000.0, dtype=torch.float64)
    x, W_Q, *others = case.args
    return [case, Case(x, -W_Q, *others)]


def judge(case, expected, got):
    """Compare with a larger tolerance for large scores: a softmax in float32 is allowed, and loses digits there."""
    x, W_Q, W_K = case.args[:3]
    largest = float(torch.linalg.vector_norm(x @ W_Q, dim=-1).max() * torch.linalg.vector_norm(x @ W_K, dim=-1).max())
    return compare(expected, got, atol=1e-3 * expected.abs().max().item() if largest > 1000 else None)


@stage
def far_below_zero(seed):
    "All scores, visible and hidden, are between −20,000 and −60,000: a low number instead of −inf may be too high."
    rng = generator(seed)

    def near_one(*shape):
        return 1 + 0.1 * torch.rand(shape, generator=rng, dtype=torch.float64)

    x, (W_Q, W_K, W_O) = near_one(2, 5, 4), (near_one(4, 4) for _ in range(3))
    x = x * torch.linspace(1.6, 1, 5, dtype=torch.float64)[:, None]  # the hidden scores are higher
    smallest = scaled(*(split(x @ W, 2) for W in (W_Q, W_K)), x).min()
    return [Case(x, -20_000 / smallest * W_Q, W_K, torch.randn(4, 4, generator=rng, dtype=torch.float64), W_O, 2)]
