import torch

from course_lib.chapters.sampling.exercises._shared import INF, SEVEN_WORDS, kth_largest
from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge.compare import compare


def top_k_filter(logits, k):
    """Return the logits (..., V) with −inf outside the k largest of each row."""
    k = min(k, logits.shape[-1])
    kth_largest = logits.topk(k, dim=-1).values[..., -1:]  # (..., 1)
    drop = logits < kth_largest  # (..., V)
    return logits.masked_fill(drop, -torch.inf)


def all_but(logits, k):
    """Return the tokens to drop if exactly k are kept; topk chooses among equal logits."""
    return torch.ones_like(logits, dtype=torch.bool).scatter(-1, logits.topk(k, dim=-1).indices, False)


def judge(case, expected, got):
    """Compare as usual, but allow two results for equal logits at the threshold: all of them, or enough to make k."""
    logits, k = case.args
    alike = isinstance(got, torch.Tensor) and got.shape == expected.shape and got.dtype == expected.dtype
    if alike and not got.isnan().any():
        threshold, kept = kth_largest(logits, k), got > -INF
        unchanged = bool((got[kept] == logits[kept]).all())
        complete = bool((kept | (logits <= threshold)).all() and (~kept | (logits >= threshold)).all())
        if unchanged and complete and bool((kept.sum(-1) >= min(k, logits.shape[-1])).all()):
            return None
    return compare(expected, got)


@stage
def three_of_seven(seed):
    "The seven words of the chapter: the three largest logits stay as they are, the other four become −inf."
    return [Case(SEVEN_WORDS.clone(), 3)]


@stage
def in_any_order(seed):
    "The logits in another order: only their sizes matter, not their positions."
    rng = generator(seed)
    return [Case(SEVEN_WORDS[torch.randperm(7, generator=rng)], k) for k in (2, 4)]


@stage
def each_row_its_own(seed):
    "Several rows on different levels, which may be a transposed view: each keeps its own k."
    rng = generator(seed)
    levels = torch.tensor([[0.0], [20.0], [-20.0]])
    return [
        Case(torch.randn(3, 5, generator=rng) + levels, 2),
        Case(torch.randn(2, 3, 6, generator=rng, dtype=torch.float64) + levels, 3),
        Case(torch.randn(2, 6, 3, generator=rng).mT + levels, 4),
    ]


@stage
def one_and_all(seed):
    "k = 1 keeps one token. k = V keeps all of them, and so does every larger k."
    logits = torch.randn(2, 5, generator=generator(seed))
    return [Case(logits, k) for k in (1, 5, 50)]


@stage
def ties(seed):
    "Equal logits at the threshold: keep all of them, or only enough to make k."
    return [Case(torch.tensor([1.0, 3.0, 1.0, 2.0, 1.0]), 3), Case(torch.tensor([1.0, 1.0, 1.0, 0.0]), 2)]
