import math

import torch

from course_lib.grading.exercise import Case, generator, stage


def cached_attention(q_new, k_new, v_new, cache):
    """Return (output (B, H, T, D_v), new cache): T new tokens attend to S cached tokens
    and, causally, to themselves."""
    k, v = k_new, v_new
    if cache is not None:
        k, v = torch.cat([cache[0], k], dim=-2), torch.cat([cache[1], v], dim=-2)  # (B, H, S + T, D or D_v)
    T, S_and_T = q_new.shape[-2], k.shape[-2]
    scores = q_new @ k.mT / math.sqrt(q_new.shape[-1])  # (B, H, T, S + T)
    seen = torch.ones(T, S_and_T, dtype=torch.bool).tril(S_and_T - T)  # the triangle ends at the last key
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    return weights @ v, (k, v)


def new_tokens(rng, *leading, T, S, D, D_v, dtype=torch.float32):
    """Return q_new, k_new, v_new of T tokens, and a cache of S tokens; None for S = 0."""
    shapes = ((T, D), (T, D), (T, D_v), (S, D), (S, D_v))
    q, k, v, k_old, v_old = (torch.randn(*leading, *shape, generator=rng, dtype=dtype) for shape in shapes)
    return q, k, v, (k_old, v_old) if S else None


@stage
def first_token(seed):
    "The first token, with None as the cache. It can attend only to itself, so the output is its own value."
    return [Case(*new_tokens(generator(seed), 1, 1, T=1, S=0, D=3, D_v=2))]


@stage
def one_more(seed):
    "One new token with a cache: it attends to all cached tokens and to itself."
    rng = generator(seed)
    return [Case(*new_tokens(rng, 1, 1, T=1, S=1, D=2, D_v=3)), Case(*new_tokens(rng, 1, 1, T=1, S=3, D=4, D_v=2))]


@stage
def a_prompt(seed):
    "A prompt: several tokens at once, without a cache. No token may see a later one."
    rng = generator(seed)
    return [Case(*new_tokens(rng, 1, 1, T=2, S=0, D=3, D_v=4)), Case(*new_tokens(rng, 1, 1, T=4, S=0, D=3, D_v=2))]


@stage
def several_more(seed):
    "Several new tokens with a cache: each sees all cached tokens, and the new tokens up to itself."
    rng = generator(seed)
    return [
        Case(*new_tokens(rng, 1, 1, T=2, S=3, D=4, D_v=5)),
        Case(*new_tokens(rng, 1, 1, T=4, S=1, D=3, D_v=2)),
        Case(*new_tokens(rng, 1, 1, T=3, S=3, D=3, D_v=3)),
    ]


@stage
def batch_and_heads(seed):
    "A batch and several heads."
    rng = generator(seed)
    return [
        Case(*new_tokens(rng, 2, 3, T=2, S=4, D=5, D_v=6)),
        Case(*new_tokens(rng, 3, 2, T=4, S=0, D=2, D_v=3)),
        Case(*new_tokens(rng, 2, 3, T=1, S=6, D=4, D_v=4)),
        Case(*new_tokens(rng, 2, 2, T=3, S=5, D=4, D_v=3)),
    ]


@stage
def large_scores(seed):
    "Large scores, then scores far below 0: the largest allowed score gets all the weight, and nothing overflows."
    q, k, v, (k_old, v_old) = new_tokens(generator(seed), 1, 2, T=2, S=3, D=4, D_v=2)
    q, k, k_old = ((x * 64).round() for x in (q, k, k_old))
    low = (4 * x.abs() + 200 for x in (k, k_old))
    return [Case(q, k, v, (k_old, v_old)), Case(-4 * q.abs() - 200, next(low), v, (next(low), v_old))]


@stage
def double_precision(seed):
    "float64 in, float64 out."
    return [Case(*new_tokens(generator(seed), 2, 1, T=2, S=4, D=5, D_v=3, dtype=torch.float64))]
