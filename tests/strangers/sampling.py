"""Right answers in the manner of others, chapter 13: temperature and filters of nanoGPT, llama, transformers, loops."""

import bisect
import heapq
import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F

# --- softmax with a temperature ---------------------------------------------------------------------------------------


def warped_and_normalized(scores, temperature):
    """transformers: a warper divides, and the softmax is taken in float32."""
    if temperature == 0:
        return F.one_hot(scores.argmax(dim=-1), num_classes=scores.shape[-1]).type_as(scores)
    scores_processed = scores / temperature
    return F.softmax(scores_processed, dim=-1, dtype=torch.float32).to(scores.dtype)


def by_a_tensor_of_temperature(logits, temperature):
    """JAX-ish: no branch on a number, where on both ends of it."""
    t = torch.tensor(temperature, dtype=torch.float32)
    greedy = (torch.arange(logits.shape[-1]) == logits.argmax(-1, keepdim=True)).to(logits.dtype)
    warm = torch.softmax(logits / torch.where(t == 0, 1.0, t), dim=-1)
    return torch.where(t == 0, greedy, warm)


def in_place_on_a_copy(logits, temperature):
    probs = logits.clone()
    if temperature == 0:
        best = probs.max(dim=-1, keepdim=True).indices
        return probs.zero_().scatter_(-1, best, 1)
    probs /= temperature
    probs -= probs.max(dim=-1, keepdim=True)[0]
    probs.exp_()
    probs /= probs.sum(dim=-1, keepdim=True)
    return probs


def row_by_row_in_python(logits, temperature):
    """Python's floats, one row after another."""
    V, rows = logits.shape[-1], []
    for row in logits.reshape(-1, V).tolist():
        top = max(row)
        if temperature == 0:
            rows.append([1.0 if x == top else 0.0 for x in row])
            continue
        e = [math.exp((x - top) / temperature) for x in row]
        rows.append([x / sum(e) for x in e])
    return torch.tensor(rows, dtype=logits.dtype).reshape(logits.shape)


def by_powers(logits, temperature):
    """p^(1/T), shared out anew; the infinite power is the favourite's."""
    log_p = torch.log_softmax(logits, dim=-1)
    if not temperature:
        return torch.eye(logits.shape[-1], dtype=logits.dtype)[log_p.argmax(-1)]
    powers = log_p * (1 / temperature)
    return (powers - powers.logsumexp(-1, keepdim=True)).exp()


# --- top-k ------------------------------------------------------------------------------------------------------------


def below_the_last_of_topk(logits, top_k):
    """nanoGPT, on a copy and with any leading axes."""
    logits = logits.clone()
    v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
    logits[logits < v[..., [-1]]] = -float("Inf")
    return logits


def with_a_filter_value(scores, k, filter_value=-float("Inf")):
    """transformers."""
    top_k = min(max(k, 1), scores.size(-1))
    indices_to_remove = scores < torch.topk(scores, top_k)[0][..., -1, None]
    return scores.masked_fill(indices_to_remove, filter_value)


def by_the_kth_value(logits, k):
    """The k-th largest is the (V − k + 1)-th smallest."""
    V = logits.shape[-1]
    if k >= V:
        return logits
    threshold = logits.kthvalue(V - k + 1, dim=-1, keepdim=True).values
    return torch.where(logits >= threshold, logits, torch.full_like(logits, -torch.inf))


def in_a_heap(logits, k):
    """A loop over the rows, and a heap for each."""
    out = torch.full_like(logits, -math.inf).reshape(-1, logits.shape[-1])
    for source, kept in zip(logits.reshape(-1, logits.shape[-1]), out):
        for place in heapq.nlargest(k, range(len(source)), key=source.tolist().__getitem__):
            kept[place] = source[place]
    return out.reshape(logits.shape)


def by_numpys_partition(logits, k):
    x = logits.numpy().copy()
    k = min(k, x.shape[-1])
    smaller = np.argpartition(x, -k, axis=-1)[..., :-k]
    np.put_along_axis(x, smaller, -np.inf, axis=-1)
    return torch.from_numpy(x)


def by_an_added_mask(logits, k):
    """x-transformers: k places become 0 in a mask of −inf, and the mask is added."""
    _, ind = torch.topk(logits, min(k, logits.shape[-1]))
    mask = torch.full_like(logits, float("-inf"))
    mask.scatter_(-1, ind, 0.0)
    return logits + mask


# --- top-p ------------------------------------------------------------------------------------------------------------


def from_the_small_end(scores, top_p, min_tokens_to_keep=1):
    """transformers: ascending, and what stays below 1 − p goes."""
    sorted_logits, sorted_indices = torch.sort(scores, descending=False)
    cumulative_probs = sorted_logits.softmax(dim=-1).cumsum(dim=-1)
    sorted_indices_to_remove = cumulative_probs <= (1 - top_p)
    sorted_indices_to_remove[..., -min_tokens_to_keep:] = 0
    indices_to_remove = sorted_indices_to_remove.scatter(-1, sorted_indices, sorted_indices_to_remove)
    return scores.masked_fill(indices_to_remove, -float("Inf"))


def by_probabilities_before(logits, p):
    """llama: the sum before each, on sorted probabilities; the logits are gathered back by the inverse."""
    probs_sort, probs_idx = torch.sort(torch.softmax(logits, dim=-1), dim=-1, descending=True)
    probs_sum = torch.cumsum(probs_sort, dim=-1)
    mask = probs_sum - probs_sort > p
    sorted_logits = torch.gather(logits, -1, probs_idx)
    sorted_logits[mask] = -torch.inf
    return torch.gather(sorted_logits, -1, torch.argsort(probs_idx, dim=-1))


def with_a_padded_mask(logits, thres):
    """x-transformers: the mask is moved one rank on by a pad."""
    sorted_logits, sorted_indices = torch.sort(logits, descending=True)
    cum_probs = torch.cumsum(F.softmax(sorted_logits, dim=-1), dim=-1)
    sorted_indices_to_remove = F.pad(cum_probs > thres, (1, -1), value=False)
    sorted_logits[sorted_indices_to_remove] = float("-inf")
    return sorted_logits.scatter(-1, sorted_indices, sorted_logits)


def row_by_row_bisected(logits, p):
    """NumPy and a bisection, one row after another."""
    flat = logits.reshape(-1, logits.shape[-1]).numpy()
    out = np.full_like(flat, -np.inf)
    for row, kept in zip(flat, out):
        e = np.exp(row - row.max())
        probs = e / e.sum()
        order = np.argsort(-probs, kind="stable")
        sums = list(itertools.accumulate(probs[order].tolist()))
        enough = bisect.bisect_left(sums, p) + 1
        kept[order[:enough]] = row[order[:enough]]
    return torch.from_numpy(out).reshape(logits.shape)


def by_the_probability_of_the_last(logits, p):
    """The smallest probability that is still needed is a threshold."""
    q = logits.softmax(-1)
    ranked = q.sort(-1, descending=True).values
    needed = ((ranked.cumsum(-1) - ranked) < p).sum(-1, keepdim=True).clamp(min=1)
    return torch.where(q >= ranked.gather(-1, needed - 1), logits, -torch.inf)


def by_pairs_of_tokens(logits, p):
    """Each token asks how much is more probable than itself."""
    q = torch.softmax(logits, dim=-1)
    more_probable = q.unsqueeze(-2) > q.unsqueeze(-1)  # (..., token, other)
    before = torch.einsum("...ij,...j->...i", more_probable.to(q.dtype), q)
    return logits.masked_fill(~(before < p), -torch.inf)


STRANGERS = {
    "sampling.temperature": [
        warped_and_normalized,
        by_a_tensor_of_temperature,
        in_place_on_a_copy,
        row_by_row_in_python,
        by_powers,
    ],
    "sampling.top_k": [
        below_the_last_of_topk,
        with_a_filter_value,
        by_the_kth_value,
        in_a_heap,
        by_numpys_partition,
        by_an_added_mask,
    ],
    "sampling.top_p": [
        from_the_small_end,
        by_probabilities_before,
        with_a_padded_mask,
        row_by_row_bisected,
        by_the_probability_of_the_last,
        by_pairs_of_tokens,
    ],
}
