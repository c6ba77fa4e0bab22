import torch

from course_lib.grading.exercise import Case, generator, stage


def window_mask(T, S, window):
    """Boolean (T, S): each query sees itself and window − 1 keys before it.
    And how many keys are still needed."""
    query = torch.arange(S - T, S)[:, None]  # (T, 1): where the queries stand among the S positions
    back = query - torch.arange(S)  # (T, S): how far each key lies behind its query
    mask = (back >= 0) & (back < window)
    return mask, min(S, window - 1)


@stage
def whole_texts(seed):
    "A whole text, S = T: a band below the diagonal, as wide as the window."
    return [Case(3, 3, 2), Case(5, 5, 3), Case(4, 4, 1)]


@stage
def wide_windows(seed):
    "A window as long as the text or longer: nothing is forgotten, and the mask is the causal one."
    return [Case(4, 4, 4), Case(3, 3, 7)]


@stage
def one_new_token(seed):
    "One new token behind a cache: the query stands at the end."
    return [Case(1, 5, 3), Case(1, 4, 9), Case(1, 6, 1)]


@stage
def several_new_tokens(seed):
    "Several new tokens behind a cache, and other sizes."
    T, more, window = (int(torch.randint(3, 7, (1,), generator=generator(seed + n))) for n in range(3))
    return [Case(2, 5, 3), Case(3, 8, 2), Case(T, T + more, window), Case(5, 7, 6)]
