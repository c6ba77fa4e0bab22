import torch

from course_lib.grading.exercise import Case, generator, stage


def causal_mask(T, S=None):
    """Return a boolean (T, S), True = may attend: to itself and all earlier keys."""
    S = T if S is None else S
    query = torch.arange(S - T, S)[:, None]  # (T, 1): the queries' positions among the S positions
    key = torch.arange(S)  # (S,)
    return key <= query  # (T, S)


@stage
def one_token(seed):
    "One token: it sees itself."
    return [Case(1)]


@stage
def small_triangles(seed):
    "Two or three tokens: each sees itself and the tokens before it."
    return [Case(2), Case(3)]


@stage
def with_a_cache(seed):
    "S > T: S − T keys come before the first query. The queries are the last T of the S positions."
    return [Case(1, 4), Case(2, 3), Case(2, 6)]


@stage
def other_triangles(seed):
    "Other sizes: no cache, an S that is equal to T, or a cache that is longer or shorter than the new text."
    T, more = (int(torch.randint(4, 9, (1,), generator=generator(seed + n))) for n in (0, 1))
    return [Case(T), Case(5, 5), Case(T, T + more), Case(7, 8), Case(3, 20)]
