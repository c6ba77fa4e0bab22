import torch

from course_lib.grading.exercise import Case, generator, stage


def padding_mask(lengths, S):
    """Return a boolean (B, 1, 1, S), True where row b has a token: s < lengths[b]."""
    real = torch.arange(S) < lengths[:, None]  # (S,) and (B, 1) -> (B, S)
    return real[:, None, None, :]  # for every head and every query


@stage
def one_row(seed):
    "One text of two tokens, in a row of three keys."
    return [Case(torch.tensor([2]), 3)]


@stage
def two_rows(seed):
    "Two texts of different lengths: each row of the batch has its own mask."
    return [Case(torch.tensor([1, 3]), 4), Case(torch.tensor([3, 1]), 4)]


@stage
def full_and_empty(seed):
    "A row without padding, or one that is all padding."
    return [Case(torch.tensor([4]), 4), Case(torch.tensor([0]), 3), Case(torch.tensor([3, 0, 2]), 3)]


@stage
def other_rows(seed):
    "Other sizes: S may be larger than the longest text, or equal to the number of texts."
    rng = generator(seed)
    return [
        Case(torch.tensor([2, 5, 1, 3, 4]), 5),
        Case(torch.randint(0, 7, (4,), generator=rng), 9),
        Case(torch.cat([torch.randint(1, 12, (6,), generator=rng), torch.tensor([12])]), 12),
    ]
