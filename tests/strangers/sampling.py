"""Right answers in the manner of others, chapter 13: nanoGPT, llama, transformers, x-transformers, vLLM, JAX, loops."""

import bisect
import heapq
import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F

# --- softmax with a temperature ---------------------------------------------------------------------------------------


def warped_and_normalised(scores, temperature):
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


# --- the next token ---------------------------------------------------------------------------------------------------


def nanos_next(logits, temperature, top_k, top_p, generator):
    """nanoGPT with a nucleus."""
    if temperature == 0:
        return torch.topk(logits, k=1, dim=-1)[1].squeeze(-1)
    logits = logits / temperature
    if top_k is not None:
        v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
        logits[logits < v[:, [-1]]] = -float("Inf")
    if top_p is not None:
        logits = from_the_small_end(logits, top_p)
    probs = F.softmax(logits, dim=-1)
    idx_next = torch.multinomial(probs, num_samples=1, generator=generator)
    return idx_next.view(-1)


class Warper:
    """transformers: what is to be done with scores, one thing after another."""

    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, scores):
        for step in self.steps:
            scores = step(scores)
        return scores


def by_a_list_of_warpers(scores, temperature, top_k, top_p, generator):
    if temperature == 0:
        return scores.argmax(-1)
    warpers = [lambda s: s.div(temperature)]
    if top_k is not None:
        warpers.append(lambda s: with_a_filter_value(s, top_k))
    if top_p is not None:
        warpers.append(lambda s: from_the_small_end(s, top_p))
    probs = Warper(*warpers)(scores).softmax(dim=-1)
    return torch.multinomial(probs, num_samples=1, generator=generator).squeeze(1)


def on_sorted_probabilities(logits, temperature, top_k, top_p, generator):
    """llama: everything on sorted probabilities, and the draw is a rank that is looked up."""
    if temperature > 0:
        probs, idx = torch.softmax(logits / temperature, dim=-1).sort(dim=-1, descending=True)
        if top_k is not None:
            probs[:, top_k:] = 0.0
            probs.div_(probs.sum(dim=-1, keepdim=True))
        if top_p is not None:
            mask = probs.cumsum(dim=-1) - probs > top_p
            probs[mask] = 0.0
            probs.div_(probs.sum(dim=-1, keepdim=True))
        next_token = torch.multinomial(probs, num_samples=1, generator=generator)
        next_token = torch.gather(idx, -1, next_token)
    else:
        next_token = torch.argmax(logits, dim=-1)
    return next_token.reshape(-1)


def by_gumbel_noise(logits, temperature, top_k, top_p, generator):
    """JAX: categorical is the argmax of logits and Gumbel noise."""
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits / temperature
    logits = logits if top_k is None else by_the_kth_value(logits, top_k)
    logits = logits if top_p is None else by_the_probability_of_the_last(logits, top_p)
    u = torch.rand(logits.shape, generator=generator).clamp(min=1e-20)
    return (logits - torch.log(-torch.log(u))).argmax(-1)


def wheel_of_every_row(logits, temperature, top_k, top_p, generator):
    """A beginner's wheel of fortune: rows in a loop, Python's lists, one random number for each."""
    ids = []
    for row in logits.tolist():
        candidates = sorted(((x, i) for i, x in enumerate(row)), reverse=True)
        if temperature == 0:
            ids.append(candidates[0][1])
            continue
        candidates = candidates[: top_k or len(row)]
        top = candidates[0][0]
        weights = [math.exp((x - top) / temperature) for x, _ in candidates]
        if top_p is not None:
            total, so_far, kept = sum(weights), 0.0, 0
            while so_far < top_p * total and kept < len(weights):
                so_far += weights[kept]
                kept += 1
            weights = weights[:kept]
        spot = torch.rand((), generator=generator, dtype=torch.float64).item() * sum(weights)
        chosen = 0
        while chosen < len(weights) - 1 and spot >= weights[chosen]:
            spot -= weights[chosen]
            chosen += 1
        ids.append(candidates[chosen][1])
    return torch.tensor(ids)


# --- text -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def nanos_generate(model, idx, max_new_tokens, block_size, temperature, generator):
    """nanoGPT."""
    for _ in range(max_new_tokens):
        idx_cond = idx if idx.size(1) <= block_size else idx[:, -block_size:]
        logits = model(idx_cond)
        logits = logits[:, -1, :]
        if temperature == 0.0:
            idx_next = logits.argmax(dim=-1, keepdim=True)
        else:
            probs = F.softmax(logits / temperature, dim=-1)
            idx_next = torch.multinomial(probs, num_samples=1, generator=generator)
        idx = torch.cat((idx, idx_next), dim=1)
    return idx


def into_a_board_of_pads(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    """llama: the whole text is laid out beforehand, with −1 where nothing has been written."""
    bsz, prompt_len = ids.shape
    total_len = prompt_len + max_new_tokens
    tokens = torch.full((bsz, total_len), -1, dtype=torch.long)
    tokens[:, :prompt_len] = ids
    with torch.inference_mode():
        for cur_pos in range(prompt_len, total_len):
            logits = model(tokens[:, max(cur_pos - max_seq_len, 0) : cur_pos])
            if temperature > 0:
                probs = torch.softmax(logits[:, -1] / temperature, dim=-1)
                next_token = torch.multinomial(probs, num_samples=1, generator=generator)
            else:
                next_token = torch.argmax(logits[:, -1], dim=-1)
            tokens[:, cur_pos] = next_token.reshape(-1)
    return tokens


def by_recursion(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    if max_new_tokens == 0:
        return ids
    scores = model(ids[..., -max_seq_len:])[..., -1, :]
    if temperature == 0:
        chosen = scores.max(dim=-1).indices
    else:
        noise = -torch.log(torch.empty_like(scores).exponential_(generator=generator))
        chosen = (scores / temperature + noise).argmax(dim=-1)
    longer = torch.hstack([ids, chosen[:, None]])
    return by_recursion(model, longer, max_new_tokens - 1, max_seq_len, temperature, generator)


def text_after_text(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    """A loop over the texts, and in each over its tokens, in lists."""
    texts = []
    for prompt in ids.tolist():
        text = list(prompt)
        for _ in range(max_new_tokens):
            logits = model(torch.tensor([text[-max_seq_len:]]))[0, -1]
            if temperature == 0:
                text.append(int(logits.argmax()))
            else:
                p = torch.softmax(logits / temperature, dim=0)
                text.append(int(torch.multinomial(p, 1, generator=generator)))
        texts.append(text)
    return torch.tensor(texts)


def with_a_column_of_draws(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    """NumPy-minded: one uniform number for each row and token, drawn beforehand, and a running sum."""
    u = torch.rand(len(ids), max_new_tokens, generator=generator, dtype=torch.float64)
    text = [*ids.unbind(1)]
    for step in range(max_new_tokens):
        logits = model(torch.stack(text[-max_seq_len:], dim=1))[:, -1].double()
        if temperature == 0:
            text.append(logits.argmax(1))
        else:
            edges = torch.softmax(logits / temperature, 1).cumsum(1)
            text.append((u[:, step, None] > edges[:, :-1]).sum(1))
    return torch.stack(text, dim=1)


# --- likelihood and diversity -----------------------------------------------------------------------------------------


def compared_while_drawing(model, ids, n_tokens, temperatures, generator):
    """The likelihood is noted at once, when the token is drawn."""
    block_size = model.config.max_seq_len
    distinct, likelihood = [], []
    for temperature in temperatures:
        idx, logprobs = ids, []
        for _ in range(n_tokens):
            logits = model(idx[:, -block_size:])[:, -1, :]
            if temperature == 0:
                idx_next = logits.argmax(dim=-1, keepdim=True)
            else:
                idx_next = torch.multinomial(F.softmax(logits / temperature, dim=-1), 1, generator=generator)
            logprobs.append(F.log_softmax(logits, dim=-1).gather(1, idx_next))
            idx = torch.cat((idx, idx_next), dim=1)
        distinct.append(idx[:, ids.size(1) :].unique().numel())
        likelihood.append(torch.cat(logprobs, dim=1).mean())
    return distinct, likelihood


def compared_by_losses(model, ids, n_tokens, temperatures, generator):
    """Generate, then the mean cross-entropy of each new token, with its sign turned."""
    window, start = model.config.max_seq_len, ids.shape[1]
    rows = {"distinct": [], "likelihood": []}
    for temperature in temperatures:
        text = into_a_board_of_pads(model, ids, n_tokens, window, temperature, generator)
        losses = [
            F.cross_entropy(model(text[:, max(0, end - window) : end])[:, -1], text[:, end])
            for end in range(start, start + n_tokens)
        ]
        rows["distinct"].append(len({token for row in text[:, start:].tolist() for token in row}))
        rows["likelihood"].append(-float(torch.stack(losses).mean()))
    return tuple(rows.values())


def compared_text_by_text(model, ids, n_tokens, temperatures, generator):
    """A loop over temperatures, texts and tokens, which draws and judges one token at a time."""
    window = model.config.max_seq_len
    distinct, likelihood = [], []
    for temperature in temperatures:
        different, total = set(), 0.0
        for prompt in ids.tolist():
            text = list(prompt)
            for _ in range(n_tokens):
                logits = model(torch.tensor([text[-window:]]))[0, -1]
                if temperature == 0:
                    token = int(logits.argmax())
                else:
                    token = int(torch.multinomial(torch.softmax(logits / temperature, 0), 1, generator=generator))
                total += float(F.log_softmax(logits, dim=0)[token])
                text.append(token)
            different.update(text[len(prompt) :])
        distinct.append(len(different))
        likelihood.append(total / (len(ids) * n_tokens))
    return distinct, likelihood


STRANGERS = {
    "sampling.temperature": [
        warped_and_normalised,
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
    "sampling.next_token": [
        nanos_next,
        by_a_list_of_warpers,
        on_sorted_probabilities,
        by_gumbel_noise,
        wheel_of_every_row,
    ],
    "sampling.generate": [
        nanos_generate,
        into_a_board_of_pads,
        by_recursion,
        text_after_text,
        with_a_column_of_draws,
    ],
    "sampling.compare": [compared_while_drawing, compared_by_losses, compared_text_by_text],
}
