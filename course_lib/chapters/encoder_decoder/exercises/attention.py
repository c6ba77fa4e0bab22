import math
from functools import partial

import torch

from course_lib.grading.exercise import Case, generator, stage


def cross_attention(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    """What each token of decoder_x (B, T, d) reads in encoder_out (B, S, d): (B, T, d)."""
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


INF = float("inf")


def split(x, n_heads):
    return x.reshape(*x.shape[:2], n_heads, -1).transpose(1, 2)


def merge(heads):
    return heads.transpose(1, 2).flatten(2)


def weigh(scores, real, dim=-1, fill=-INF, empty=True):
    """Softmax over what is real. empty: a row without anything real gets zeros."""
    if real is None:
        return scores.softmax(dim)
    weights = scores.masked_fill(~real, fill).softmax(dim)
    return weights.masked_fill(~real.any(-1, keepdim=True), 0.0) if empty else weights


def split_as(T, x, n_heads):
    """As `split`, by a learner who writes out how many tokens there should be."""
    return x.reshape(len(x), T, n_heads, x.shape[-1] // n_heads).transpose(1, 2)


def cross_with(
    decoder_x,
    encoder_out,
    W_Q,
    W_K,
    W_V,
    W_O,
    n_heads,
    encoder_lengths=None,
    *,
    take=lambda x, y: (x, y, y),
    project=lambda x, W: x @ W,
    cut=split,
    written_out=False,
    scale=lambda scores, d, n_heads: scores / math.sqrt(d // n_heads),
    reach=lambda T, S, S_keys: S_keys,
    real_at=lambda places, lengths: places < lengths[:, None],
    axes=lambda real: real[:, None, None],
    weights=weigh,
    join=merge,
):
    """Cross-attention whose steps can be replaced one by one: most misconceptions below."""
    asks, answers, says = take(decoder_x, encoder_out)
    q, k, v = (project(x, W) for x, W in ((asks, W_Q), (answers, W_K), (says, W_V)))
    if written_out:
        T, S = decoder_x.shape[1], encoder_out.shape[1]
        q, k, v = split_as(T, q, n_heads), split_as(S, k, n_heads), split_as(S, v, n_heads)
    else:
        q, k, v = (cut(part, n_heads) for part in (q, k, v))
    scores = scale(q @ k.mT, decoder_x.shape[-1], n_heads)  # (B, H, T, S)
    real = None
    if encoder_lengths is not None:
        places = torch.arange(reach(decoder_x.shape[1], encoder_out.shape[1], k.shape[2]))
        real = axes(real_at(places, encoder_lengths))
    return project(join(weights(scores, real) @ v), W_O)


def unprepared(*args):
    """The plain formula, NaN where the source is empty."""
    return cross_with(*args, weights=partial(weigh, empty=False))


def masked_after_softmax(scores, real, **_):
    weights = scores.softmax(-1)
    return weights if real is None else weights * real


def scores_set_to_zero(scores, real, **_):
    return scores.softmax(-1) if real is None else (scores * real).softmax(-1)


def causal_too(scores, real, **how):
    T, S = scores.shape[-2:]
    past = torch.ones(T, S, dtype=torch.bool).tril()
    return weigh(scores, past if real is None else real & past, **how)


def exp_by_hand(scores, real, empty=True, fill=-INF):
    if real is not None:
        scores = scores.masked_fill(~real, fill)
    powers = scores.exp()
    weights = powers / powers.sum(-1, keepdim=True)
    return weights if real is None or not empty else weights.masked_fill(~real.any(-1, keepdim=True), 0.0)


def hard_choice(scores, real, empty=True, fill=-INF):
    weights = weigh(scores, real, empty=True)
    return torch.nn.functional.one_hot(weights.argmax(-1), weights.shape[-1]).to(weights)


def both_texts(x, y):
    joined = torch.cat([y, x], dim=1)
    return x, joined, joined


def with_residual(answer):
    return lambda decoder_x, *rest: decoder_x + answer(decoder_x, *rest)


def without_output(answer):
    return lambda x, y, W_Q, W_K, W_V, W_O, *rest: answer(x, y, W_Q, W_K, W_V, torch.eye(len(W_O)).to(W_O), *rest)


def matrices(rng, d, dtype):
    return [torch.randn(d, d, generator=rng, dtype=dtype) / d**0.5 for _ in range(4)]


def two_texts(rng, B, T, S, n_heads, D, lengths=None, dtype=torch.float32, size=1.0):
    """A call; padding holds numbers like any other token, and larger."""
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
    "A source of one token, one head: whatever is asked, the answer is that token's value, through W_O."
    return [two_texts(generator(seed), 1, 2, 1, 1, 3)]


@stage
def one_head(seed):
    "One head; more source tokens than target tokens, and fewer."
    rng = generator(seed)
    return [two_texts(rng, 1, 2, 4, 1, 3), two_texts(rng, 1, 5, 3, 1, 4)]


@stage
def several_heads(seed):
    "Several heads, each with its own slice of the features."
    rng = generator(seed)
    return [two_texts(rng, 1, 2, 3, 2, 4), two_texts(rng, 1, 5, 4, 3, 2)]


@stage
def batches(seed):
    "Several texts at once; and inputs that are transposed views."
    rng = generator(seed)
    case = two_texts(rng, 5, 4, 3, 2, 3)
    x, y, *rest = case.args
    views = [t.transpose(0, 1).contiguous().transpose(0, 1) for t in (x, y)]
    return [two_texts(rng, 2, 5, 7, 3, 4), Case(*views, *[W.T.contiguous().T for W in rest[:4]], 2)]


@stage
def padded(seed):
    "Sources of different length: what stands behind a source's end is padding, and gets no weight."
    rng = generator(seed)
    return [
        two_texts(rng, 1, 2, 4, 1, 3, lengths=[2]),
        two_texts(rng, 2, 4, 6, 3, 2, lengths=[6, 1]),
        two_texts(rng, 3, 5, 4, 2, 3, lengths=[1, 3, 2]),
    ]


@stage
def all_sizes_equal(seed):
    "As many texts as target tokens, source tokens, heads and features per head, with padding."
    return [two_texts(generator(seed), 3, 3, 3, 3, 3, lengths=[2, 3, 1])]


@stage
def large_queries(seed):
    "Large queries: exp of such scores overflows, and the weights are ordinary numbers."
    rng = generator(seed)
    return [two_texts(rng, 2, 3, 5, 2, 3, size=300.0), two_texts(rng, 2, 2, 4, 1, 5, lengths=[2, 3], size=300.0)]


@stage
def double_precision(seed):
    "float64 in, float64 out."
    return [two_texts(generator(seed), 2, 4, 5, 2, 3, lengths=[3, 5], dtype=torch.float64)]


@stage
def empty_source(seed):
    "A source of length 0: there is nothing to look at, and the result is 0, not NaN."
    return [two_texts(generator(seed), 2, 3, 4, 2, 3, lengths=[0, 3])]
