import math

import torch

INF = float("inf")


def split(x, n_heads):
    return x.reshape(*x.shape[:2], n_heads, -1).transpose(1, 2)


def merge(heads):
    return heads.transpose(1, 2).flatten(2)


def scaled(q, k, x):
    return q @ k.mT / math.sqrt(q.shape[-1])


def hide(scores, later, fill=-INF):
    return scores.masked_fill(later, fill)


def softmax(scores, later):
    return scores.softmax(-1)


def wrong_attention(
    x,
    W_Q,
    W_K,
    W_V,
    W_O,
    n_heads,
    *,
    project=torch.matmul,
    split=split,
    merge=merge,
    score=scaled,
    diagonal=1,
    hide=hide,
    weigh=softmax,
    out=torch.matmul,
):
    """The attention whose steps can be replaced one by one."""
    q, k, v = (split(project(x, W), n_heads) for W in (W_Q, W_K, W_V))
    T = x.shape[1]
    later = torch.ones(T, T, dtype=torch.bool).triu(diagonal)
    weights = weigh(hide(score(q, k, x), later), later)
    return out(merge(weights @ v), W_O)


ROUNDING = 1e-5  # a change below this is no leak


def leaks_future(model, ids):
    before = model(ids)  # (B, T, V)
    V = before.shape[-1]
    for place in range(1, ids.shape[1]):
        changed = ids.clone()
        changed[:, place] = (changed[:, place] + 1) % V  # another token, in every row
        moved = (model(changed) - before)[:, :place].abs().max().item()
        if moved > ROUNDING:
            return True
    return False
