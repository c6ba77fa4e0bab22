import torch

from course_lib.chapters.sampling.exercises._shared import CONFIDENT, INF, SEVEN_WORDS, shuffled
from course_lib.grading.exercise import Case, generator, stage


def top_k_filter(logits, k):
    """Return the logits (..., V) with −inf outside the k largest of each row."""
    k = min(k, logits.shape[-1])
    kth_largest = logits.topk(k, dim=-1).values[..., -1:]  # (..., 1)
    return logits.masked_fill(logits < kth_largest, -torch.inf)


def top_p_filter(logits, p):
    """Return the logits (..., V) with −inf outside the smallest set that reaches p."""
    probabilities, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)  # both (..., V)
    sum_before = probabilities.cumsum(dim=-1) - probabilities  # of all tokens more probable than this one
    drop_by_rank = sum_before >= p  # the first is 0, so the favourite always stays
    drop = torch.zeros_like(drop_by_rank).scatter(-1, order, drop_by_rank)  # back to each token's own place
    return logits.masked_fill(drop, -torch.inf)


UNCERTAIN = torch.tensor([1.5, 1.4, 1.3, 1.2, 1.1, 1.0, 0.9, 0.8])


@stage
def the_crossing_token(seed):
    "The seven words at p = 0.9: four of them sum to 0.89, so the fifth, which takes the sum past 0.9, also stays."
    return [Case(SEVEN_WORDS.clone(), 0.9)]


@stage
def never_empty(seed):
    "If p is below the largest probability, the most probable token stays: the set is never empty."
    return [Case(CONFIDENT.clone(), 0.9), Case(SEVEN_WORDS.clone(), 0.2), Case(SEVEN_WORDS.clone(), 1e-6)]


@stage
def unsorted_logits(seed):
    "The logits in another order: each keeps its position."
    rng = generator(seed)
    first = torch.randint(2, 6, (), generator=rng)  # a permutation that is not its own inverse: gather is not scatter
    cycle = (torch.arange(7) * int(first) + 1) % 7
    return [Case(SEVEN_WORDS[cycle], 0.6), Case(SEVEN_WORDS[torch.randperm(7, generator=rng)], 0.77)]


@stage
def rows_of_their_own(seed):
    "Several rows, which may be a transposed view: a confident row keeps few tokens, an uncertain one many."
    rng = generator(seed)
    sure = shuffled(CONFIDENT, rng, 2)
    unsure = shuffled(UNCERTAIN, rng, 2)
    rows, batch = torch.stack([sure[0], unsure[0]]), torch.stack([sure, unsure])
    return [Case(rows, 0.9), Case(batch, 0.6), Case(rows.T.contiguous().T, 0.75)]


@stage
def large_logits(seed):
    "Logits near 1,000, near −1,000 and far below: exp overflows or gives 0, but the probabilities are ordinary."
    logits = shuffled(SEVEN_WORDS, generator(seed), 2)
    low = SEVEN_WORDS - 2e4
    low[2] = -INF
    return [Case(logits + torch.tensor([[1e3], [-1e3]]), 0.77), Case(low, 0.77)]


@stage
def close_to_p(seed):
    "Two tokens sum to 0.7, three to 0.9, and p is slightly above or below: half precision cannot tell these apart."
    logits = torch.tensor([0.4, 0.2, 0.3, 0.1], dtype=torch.float64).log()
    return [Case(logits, p) for p in (0.9005, 0.8995, 0.7005, 0.6995)]


@stage
def all_of_them(seed):
    "p = 1 keeps every token."
    return [Case(shuffled(SEVEN_WORDS[:4], generator(seed), 2), 1.0)]


@stage
def after_another_filter(seed):
    "Logits that another filter has set to −inf have probability 0 and stay −inf."
    logits = top_k_filter(SEVEN_WORDS[torch.randperm(7, generator=generator(seed))], 4)
    return [Case(logits, 0.77)]


@stage
def double_nucleus(seed):
    "float64 in, float64 out."
    return [Case(shuffled(SEVEN_WORDS, generator(seed), 2).double(), 0.7)]
