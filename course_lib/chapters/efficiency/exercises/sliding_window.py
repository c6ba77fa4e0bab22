import torch

from course_lib.grading.exercise import Case, generator, stage


def window_mask(T, S, window):
    """Return a boolean mask (T, S) in which each query sees itself and window − 1 keys
    before it, and the number of keys that the next query needs."""
    query = torch.arange(S - T, S)[:, None]  # (T, 1): the positions of the queries
    back = query - torch.arange(S)  # (T, S): how far each key is before its query
    mask = (back >= 0) & (back < window)
    return mask, min(S, window - 1)


@stage
def whole_texts(seed):
    "A full text, S = T: a band along and below the diagonal, as wide as the window."
    return [Case(3, 3, 2), Case(5, 5, 3), Case(4, 4, 1)]


@stage
def wide_windows(seed):
    "A window that is at least as long as the text: the mask is the causal mask."
    return [Case(4, 4, 4), Case(3, 3, 7)]


@stage
def one_new_token(seed):
    "One new token after a cache: the query is at the last position."
    return [Case(1, 5, 3), Case(1, 4, 9), Case(1, 6, 1)]


@stage
def several_new_tokens(seed):
    "Several new tokens after a cache, with different sizes."
    T, more, window = (int(torch.randint(3, 7, (1,), generator=generator(seed + n))) for n in range(3))
    return [Case(2, 5, 3), Case(3, 8, 2), Case(T, T + more, window), Case(5, 7, 6)]
