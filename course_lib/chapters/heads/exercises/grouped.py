import torch

from course_lib.grading.exercise import Case, generator, stage


def split_heads(x, n_heads):
    """Divide each token's features among the heads: (B, T, d_model) -> (B, H, T, D)."""
    B, T, d_model = x.shape
    return x.reshape(B, T, n_heads, d_model // n_heads).transpose(1, 2)  # (B, T, H, D) -> (B, H, T, D)


def repeat_kv(k, n_heads):
    """Repeat each key head for the query heads that share it: (B, H_kv, S, D) ->
    (B, n_heads, S, D)."""
    return k.repeat_interleave(n_heads // k.shape[1], dim=1)


@stage
def heads_by_number(seed):
    "Each of two key heads holds its own number; four query heads need 0 0 1 1."
    return [Case(torch.tensor([0.0, 1.0]).reshape(1, 2, 1, 1), 4)]


@stage
def drawn_groups(seed):
    "Random numbers: each key head serves a group of two, three or four query heads."
    rng = generator(seed)
    sizes = [((2, 3, 5, 4), 6), ((3, 2, 4, 5), 8), ((1, 3, 2, 7), 9)]
    return [Case(torch.randn(shape, generator=rng), n_heads) for shape, n_heads in sizes]


@stage
def one_for_each_or_for_all(seed):
    "One key head for every query head, which stay as they are, or a single key head for all of them."
    rng = generator(seed)
    return [Case(torch.randn(2, 3, 4, 5, generator=rng), 3), Case(torch.randn(2, 1, 3, 4, generator=rng), 5)]


@stage
def equal_groups(seed):
    "Equal numbers of sentences, key heads, tokens and features."
    rng = generator(seed)
    return [Case(torch.randn(2, 2, 2, 2, generator=rng), 4), Case(torch.randn(3, 3, 3, 3, generator=rng), 9)]


@stage
def views_of_keys(seed):
    "k is a view: the result of a split, or part of a larger cache."
    rng = generator(seed)
    return [
        Case(split_heads(torch.randn(2, 5, 6, generator=rng), 2), 6),
        Case(torch.randn(2, 3, 8, 4, generator=rng)[:, :, :5], 6),
    ]


@stage
def double_keys(seed):
    "float64 in, float64 out, digit for digit."
    return [Case(torch.randn(2, 2, 3, 4, generator=generator(seed), dtype=torch.float64), 4)]
