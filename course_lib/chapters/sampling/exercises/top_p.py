import torch

from course_lib.chapters.sampling.exercises._shared import CONFIDENT, INF, SEVEN_WORDS, shuffled
from course_lib.grading.exercise import Case, generator, stage


def top_k_filter(logits, k):
    """The logits (..., V) with −inf outside the k largest of each row."""
    k = min(k, logits.shape[-1])
    kth_largest = logits.topk(k, dim=-1).values[..., -1:]  # (..., 1)
    return logits.masked_fill(logits < kth_largest, -torch.inf)


def top_p_filter(logits, p):
    """The logits (..., V) with −inf outside the smallest set that reaches p."""
    probabilities, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)  # both (..., V)
    sum_before = probabilities.cumsum(dim=-1) - probabilities  # of all tokens more probable than this one
    drop_by_rank = sum_before >= p  # the first is 0, so the favourite always stays
    drop = torch.zeros_like(drop_by_rank).scatter(-1, order, drop_by_rank)  # back to each token's own place
    return logits.masked_fill(drop, -torch.inf)


UNCERTAIN = torch.tensor([1.5, 1.4, 1.3, 1.2, 1.1, 1.0, 0.9, 0.8])


def nucleus(logits, p, *, drop=lambda q, total, p: total - q >= p, first_stays=True, descending=True, fill=-INF):
    """Top-p whose parts can be replaced: q are the sorted probabilities, total their running sum, q itself included."""
    q, order = logits.softmax(-1).sort(dim=-1, descending=descending, stable=True)
    dropped = drop(q, q.cumsum(-1), p)
    if first_stays:
        dropped[..., 0] = False
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), fill)


def without_the_crossing_token(q, total, p):
    return total > p


def not_put_back(logits, p):
    """The sorted logits: right values, wrong places."""
    return top_p_filter(logits, p).sort(-1, descending=True).values


def sorted_mask_on_unsorted(logits, p):
    q = logits.softmax(-1).sort(-1, descending=True).values
    return logits.masked_fill(q.cumsum(-1) - q >= p, -INF)


def gathered(logits, p):
    q, order = logits.softmax(-1).sort(-1, descending=True)
    return logits.masked_fill((q.cumsum(-1) - q >= p).gather(-1, order), -INF)


def over_everything(logits, p):
    return top_p_filter(logits.flatten(), p).view_as(logits)


def sum_of_logits(logits, p):
    q, order = logits.sort(-1, descending=True)
    return logits.masked_fill(
        torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, q.cumsum(-1) - q >= p), -INF
    )


def share_of_the_tokens(logits, p):
    return top_k_filter(logits, max(1, round(p * logits.shape[-1])))


@stage
def the_crossing_token(seed):
    "The seven words at p = 0.9: four of them reach 0.89, so the fifth, which crosses 0.9, stays as well."
    return [Case(SEVEN_WORDS.clone(), 0.9)]


@stage
def never_empty(seed):
    "A p below the probability of the favourite keeps the favourite: the set is never empty."
    return [Case(CONFIDENT.clone(), 0.9), Case(SEVEN_WORDS.clone(), 0.2), Case(SEVEN_WORDS.clone(), 1e-6)]


@stage
def unsorted_logits(seed):
    "The logits in another order: each keeps its place."
    rng = generator(seed)
    first = torch.randint(2, 6, (), generator=rng)  # a permutation that is not its own inverse: gather is not scatter
    cycle = (torch.arange(7) * int(first) + 1) % 7
    return [Case(SEVEN_WORDS[cycle], 0.6), Case(SEVEN_WORDS[torch.randperm(7, generator=rng)], 0.77)]


@stage
def rows_of_their_own(seed):
    "Several rows: a sure one keeps few tokens, an unsure one many."
    rng = generator(seed)
    sure = shuffled(CONFIDENT, rng, 2)
    unsure = shuffled(UNCERTAIN, rng, 2)
    return [Case(torch.stack([sure[0], unsure[0]]), 0.9), Case(torch.stack([sure, unsure]), 0.6)]


@stage
def all_of_them(seed):
    "p = 1 keeps every token."
    return [Case(shuffled(SEVEN_WORDS[:4], generator(seed), 2), 1.0)]


@stage
def after_another_filter(seed):
    "Logits that another filter has set to −inf have no probability, and stay −inf."
    logits = top_k_filter(SEVEN_WORDS[torch.randperm(7, generator=generator(seed))], 4)
    return [Case(logits, 0.77)]


@stage
def double_nucleus(seed):
    "float64 in, float64 out."
    return [Case(shuffled(SEVEN_WORDS, generator(seed), 2).double(), 0.7)]
