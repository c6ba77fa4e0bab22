"""Answers with two mistakes of the page at once, chapter 13."""

import torch
import torch.nn.functional as F


def zero_divides_along_the_rows(logits, temperature):
    scaled = logits / temperature
    scaled = scaled - scaled.max(dim=0, keepdim=True).values
    e = scaled.exp()
    return e / e.sum(dim=0, keepdim=True)


def hotter_is_sharper_and_index(logits, temperature):
    if temperature == 0:
        return torch.argmax(logits, dim=-1)
    return F.softmax(logits * temperature, dim=-1)


def bare_exp_and_zero_as_one(logits, temperature):
    t = temperature or 1.0
    weights = torch.exp(logits / t)
    return weights / torch.sum(weights, -1, keepdim=True)


def zeros_below_one_threshold(logits, k):
    k = min(k, logits.size(-1))
    threshold = logits.flatten().sort(descending=True).values[k - 1]
    return torch.where(logits >= threshold, logits, torch.zeros_like(logits))


def strictly_larger_and_k_too_large(logits, k):
    values, _ = torch.topk(logits, k)
    out = logits.clone()
    out[out <= values[..., [-1]]] = float("-inf")
    return out


def very_negative_and_k_too_large(logits, k):
    top, where = torch.topk(logits, k, dim=-1)
    filtered = torch.full_like(logits, -1e10)
    filtered.scatter_(-1, where, top)
    return filtered


def dropped_to_zero(logits, p):
    sorted_logits, sorted_idx = torch.sort(logits, descending=True)
    cumulative = torch.cumsum(F.softmax(sorted_logits, dim=-1), dim=-1)
    remove = cumulative > p
    remove[..., 0] = False
    return logits.masked_fill(remove.scatter(-1, sorted_idx, remove), 0.0)


def ranks_masked_and_emptied(logits, p):
    probs = torch.softmax(logits, -1)
    ordered = probs.sort(dim=-1, descending=True).values
    too_much = ordered.cumsum(-1) > p
    out = logits.clone()
    out[too_much] = -float("inf")
    return out


def tail_kept_in_sorted_order(logits, p):
    probs, order = logits.softmax(-1).sort(-1)
    before = probs.cumsum(-1) - probs
    sorted_logits = torch.gather(logits, -1, order)
    return torch.where(before < p, sorted_logits, torch.tensor(-torch.inf, dtype=logits.dtype))


def filtered(logits, top_k, top_p):
    """Both filters right, top-k first."""
    if top_k is not None:
        kth = torch.sort(logits, dim=-1, descending=True).values[:, min(top_k, logits.shape[1]) - 1]
        logits = logits.masked_fill(logits < kth[:, None], -torch.inf)
    if top_p is not None:
        ranked, ids = logits.softmax(-1).sort(-1, descending=True)
        gone = ranked.cumsum(-1) - ranked >= top_p
        logits = logits.masked_fill(torch.zeros_like(gone).scatter_(-1, ids, gone), -torch.inf)
    return logits


def column_of_unseeded_ids(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    probs = F.softmax(filtered(logits / temperature, top_k, top_p), dim=-1)
    return torch.multinomial(probs, num_samples=1)


def nucleus_first_and_no_zero(logits, temperature, top_k, top_p, generator):
    logits = logits / temperature
    logits = filtered(logits, None, top_p)
    logits = filtered(logits, top_k, None)
    probs = torch.softmax(logits, dim=-1)
    return torch.multinomial(probs, 1, generator=generator)[:, 0]


def warmed_after_a_small_nucleus(logits, temperature, top_k, top_p, generator):
    if temperature == 0:
        return logits.argmax(-1)
    logits = filtered(logits, top_k, None)
    if top_p is not None:
        probs, ids = logits.softmax(-1).sort(-1, descending=True)
        keep = probs.cumsum(-1) <= top_p
        keep[:, 0] = True
        mask = torch.zeros_like(keep)
        mask.scatter_(1, ids, keep)
        logits = logits.masked_fill(~mask, float("-inf"))
    p = (logits / temperature).softmax(-1)
    return torch.multinomial(p, 1, generator=generator).squeeze(1)


def everything_shown_and_no_zero(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    for _ in range(max_new_tokens):
        logits = model(ids)[:, -1, :] / temperature
        next_id = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1, generator=generator)
        ids = torch.cat((ids, next_id), dim=1)
    return ids


def greedy_continuation(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    context, new = ids, []
    while len(new) < max_new_tokens:
        best = model(context[:, -max_seq_len:])[:, -1].argmax(-1, keepdim=True)
        new.append(best)
        context = torch.hstack([context, best])
    return torch.hstack(new) if new else ids[:, :0]


def beginning_shown_and_unseeded(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    out = ids.clone()
    for _ in range(max_new_tokens):
        last = model(out[:, :max_seq_len])[:, -1]
        if temperature == 0:
            token = last.argmax(dim=-1)
        else:
            token = torch.distributions.Categorical(logits=last / temperature).sample()
        out = torch.cat([out, token.unsqueeze(1)], dim=1)
    return out


def continued(model, ids, n_tokens, temperature, generator, window):
    for _ in range(n_tokens):
        last = model(ids[:, -window:])[:, -1]
        if temperature == 0:
            new = last.argmax(-1, keepdim=True)
        else:
            new = torch.multinomial((last / temperature).softmax(-1), 1, generator=generator)
        ids = torch.cat([ids, new], 1)
    return ids


def own_yardstick_summed(model, ids, n_tokens, temperatures, generator):
    T, window = ids.shape[1], model.config.max_seq_len
    distinct, likelihood = [], []
    for t in temperatures:
        text = continued(model, ids, n_tokens, t, generator, window)
        sums = torch.zeros(len(text))
        for i in range(T, T + n_tokens):
            logits = model(text[:, max(0, i - window) : i])[:, -1] / max(t, 1e-5)
            sums += F.log_softmax(logits, -1)[torch.arange(len(text)), text[:, i]]
        distinct.append(len(set(text[:, T:].flatten().tolist())))
        likelihood.append(sums.mean().item())
    return distinct, likelihood


def whole_text_counted(model, ids, n_tokens, temperatures, generator):
    window = model.config.max_seq_len
    counts, means = [], []
    for temperature in temperatures:
        text = continued(model, ids, n_tokens, temperature, generator, window)
        steps = []
        for i in range(1, text.shape[1]):
            logp = model(text[:, :i][:, -window:])[:, -1].log_softmax(-1)
            steps.append(logp.gather(1, text[:, i : i + 1]))
        counts.append(text.unique().numel())
        means.append(torch.cat(steps, 1).mean().item())
    return counts, means


def surprise_before_count(model, ids, n_tokens, temperatures, generator):
    prompt, window = ids.shape[1], model.config.max_seq_len
    results = []
    for temperature in temperatures:
        text = continued(model, ids, n_tokens, temperature, generator, window)
        nll = [
            F.cross_entropy(model(text[:, max(0, t - window) : t])[:, -1], text[:, t]).item()
            for t in range(prompt, text.shape[1])
        ]
        results.append((sum(nll) / len(nll), text[:, prompt:].unique().shape[0]))
    surprises, different = zip(*results)
    return list(surprises), list(different)


DOUBLES = {
    "sampling.temperature": [
        (zero_divides_along_the_rows, ("division by zero", "softmax over the rows")),
        (hotter_is_sharper_and_index, ("multiplied by the temperature", "index instead of probabilities")),
        (bare_exp_and_zero_as_one, ("exp overflows", "zero taken for one")),
    ],
    "sampling.top_k": [
        (zeros_below_one_threshold, ("zeros for −inf", "one threshold for all rows")),
        (strictly_larger_and_k_too_large, ("one too few", "k larger than V")),
        (very_negative_and_k_too_large, ("a large negative number for −inf", "k larger than V")),
    ],
    "sampling.top_p": [
        (dropped_to_zero, ("crossing token dropped", "zeros for −inf")),
        (ranks_masked_and_emptied, ("mask of the sorted order", "empty set")),
        (tail_kept_in_sorted_order, ("from the least probable", "not put back")),
    ],
    "sampling.next_token": [
        (column_of_unseeded_ids, ("axis not removed", "generator ignored")),
        (nucleus_first_and_no_zero, ("top-p before top-k", "division by zero")),
        (warmed_after_a_small_nucleus, ("temperature last", "crossing token dropped")),
    ],
    "sampling.generate": [
        (everything_shown_and_no_zero, ("context not cropped", "division by zero")),
        (greedy_continuation, ("only the new tokens", "always greedy")),
        (beginning_shown_and_unseeded, ("the first tokens kept", "generator ignored")),
    ],
    "sampling.compare": [
        (own_yardstick_summed, ("each temperature judges itself", "sum instead of mean")),
        (whole_text_counted, ("prompt counted in the likelihood", "prompt counted among the tokens")),
        (surprise_before_count, ("surprise", "results swapped")),
    ],
}
