import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def cross_attention(
    decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None
):  # fmt: skip
    """Return what each token of decoder_x reads from encoder_out: (B, T, d)."""
    B, T, d = decoder_x.shape
    S, D = encoder_out.shape[1], d // n_heads
    q = (decoder_x @ W_Q).view(B, T, n_heads, D).transpose(1, 2)  # (B, H, T, D): the target asks
    k = (encoder_out @ W_K).view(B, S, n_heads, D).transpose(1, 2)  # (B, H, S, D): the source answers
    v = (encoder_out @ W_V).view(B, S, n_heads, D).transpose(1, 2)  # (B, H, S, D)
    scores = q @ k.transpose(-2, -1) / math.sqrt(D)  # (B, H, T, S)
    if encoder_lengths is not None:
        real = torch.arange(S) < encoder_lengths[:, None]  # (B, S)
        scores = scores.masked_fill(~real[:, None, None], -torch.inf)  # the same for all heads and queries
    weights = scores.softmax(dim=-1).nan_to_num(0.0)  # a row of nothing but −inf is NaN: it looks at nothing
    return (weights @ v).transpose(1, 2).reshape(B, T, d) @ W_O  # (B, T, d)


def matrices(rng, d, dtype):
    return [torch.randn(d, d, generator=rng, dtype=dtype) / d**0.5 for _ in range(4)]


def two_texts(rng, B, T, S, n_heads, D, lengths=None, dtype=torch.float32, size=1.0):
    """Return a case whose padding contains numbers like the other tokens', and larger ones."""
    d = n_heads * D
    x = size * torch.randn(B, T, d, generator=rng, dtype=dtype)
    y = torch.randn(B, S, d, generator=rng, dtype=dtype)
    args = [x, y, *matrices(rng, d, dtype), n_heads]
    if lengths is not None:
        lengths = torch.tensor(lengths)
        y[torch.arange(S) >= lengths[:, None]] *= 3
        args.append(lengths)
    return Case(*args)


@stage
def one_source_token(seed):
    "A source of one token, one head: for every query the result is that token's value, multiplied by W_O."
    return [two_texts(generator(seed), 1, 2, 1, 1, 3)]


@stage
def one_head(seed):
    "One head; the target is shorter or longer than the source."
    rng = generator(seed)
    return [two_texts(rng, 1, 2, 4, 1, 3), two_texts(rng, 1, 5, 3, 1, 4)]


@stage
def several_heads(seed):
    "Several heads, each with its own slice of the features; one text, or several at once."
    rng = generator(seed)
    return [
        two_texts(rng, 1, 2, 3, 2, 4),
        two_texts(rng, 1, 5, 4, 3, 2),
        two_texts(rng, 2, 5, 7, 3, 4),
        two_texts(rng, 5, 4, 3, 2, 3),
    ]


@stage
def padded(seed):
    "Padding: positions after a source's end get no weight."
    rng = generator(seed)
    return [
        two_texts(rng, 1, 2, 4, 1, 3, lengths=[2]),
        two_texts(rng, 2, 4, 6, 3, 2, lengths=[6, 1]),
        two_texts(rng, 3, 5, 4, 2, 3, lengths=[1, 3, 2]),
        two_texts(rng, 3, 3, 3, 3, 3, lengths=[2, 3, 1]),  # all sizes equal: the shapes do not show which axis is which
    ]


@stage
def empty_source(seed):
    "The first source has length 0: there is nothing to attend to, and the result is 0, not NaN."
    return [two_texts(generator(seed), 2, 3, 4, 2, 3, lengths=[0, 3])]


@stage
def large_queries(seed):
    "Large queries: exp of such scores overflows, but the weights are ordinary numbers."
    rng = generator(seed)
    return [two_texts(rng, 2, 3, 5, 2, 3, size=300.0), two_texts(rng, 2, 2, 4, 1, 5, lengths=[2, 3], size=300.0)]


@stage
def double_precision(seed):
    "float64 in, float64 out."
    return [two_texts(generator(seed), 2, 4, 5, 2, 3, lengths=[3, 5], dtype=torch.float64)]
