"""Right answers of chapter 14 in other styles."""

import math
import statistics

import numpy as np
import torch
import torch.nn.functional as F


def cached_fused(q_new, k_new, v_new, cache):
    if cache is not None:
        k_new, v_new = (torch.cat(pair, 2) for pair in zip(cache, (k_new, v_new)))
    T, S = q_new.shape[2], k_new.shape[2]
    mask = torch.arange(S - T, S)[:, None] >= torch.arange(S)
    return F.scaled_dot_product_attention(q_new, k_new, v_new, attn_mask=mask), [k_new, v_new]


def cached_token_by_token(queries, keys, values, past):
    """Each token attends with a cache of its own, which then holds it: no mask is needed."""
    B, H, T, D = queries.shape
    if past is None:
        past = keys.new_empty(B, H, 0, D), values.new_empty(B, H, 0, values.shape[-1])
    outputs = []
    for t in range(T):
        past = tuple(torch.cat([old, new[:, :, t : t + 1]], dim=2) for old, new in zip(past, (keys, values)))
        scores = torch.einsum("bhd,bhsd->bhs", queries[:, :, t], past[0]) * D**-0.5
        outputs.append(torch.einsum("bhs,bhsd->bhd", F.softmax(scores, dim=-1), past[1]))
    return torch.stack(outputs, dim=2), past


def cached_by_the_whole_text(q_new, k_new, v_new, cache):
    """The full pass, with queries of zeros in the place of those that are gone, of which the last T rows are kept."""
    k, v = (k_new, v_new) if cache is None else (torch.cat([a, b], -2) for a, b in zip(cache, (k_new, v_new)))
    S, T = k.shape[-2], q_new.shape[-2]
    q = torch.cat([torch.zeros_like(k[..., : S - T, :]), q_new], dim=-2)
    scores = (q @ k.transpose(-1, -2)).div_(math.sqrt(q.shape[-1]))
    scores[..., torch.ones(S, S).triu_(1).bool()] = float("-inf")
    return (scores.softmax(-1) @ v)[..., S - T :, :], (k, v)


def cached_in_numpy(q_new, k_new, v_new, cache):
    q, k, v = q_new.numpy(), k_new.numpy(), v_new.numpy()
    if cache is not None:
        k, v = np.concatenate([cache[0].numpy(), k], axis=2), np.concatenate([cache[1].numpy(), v], axis=2)
    T, S = q.shape[2], k.shape[2]
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]).astype(q.dtype)
    scores = np.where(np.tri(T, S, S - T, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).astype(q.dtype), (k, v)


def cached_with_a_float32_root(q_new, k_new, v_new, cache):
    k, v = k_new, v_new
    if cache:
        k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
    T, S = q_new.size(2), k.size(2)
    scores = q_new @ k.transpose(2, 3) / torch.sqrt(torch.tensor(k.size(3), dtype=torch.float32))
    scores = scores + torch.full((T, S), float("-inf")).triu(S - T + 1)
    return scores.float().softmax(dim=3).type_as(v) @ v, (k, v)


def blocks_in_float32(q, k, v, block_size):
    """Largest score, sum and mix are kept in float32, whatever comes in."""
    root = torch.sqrt(torch.tensor(q.shape[-1], dtype=torch.float32))
    largest = torch.full(q.shape[:-1], -torch.inf)[..., None]
    total, mixed = torch.zeros_like(largest), torch.zeros(*q.shape[:-1], v.shape[-1])
    for start in range(0, k.shape[-2], block_size):
        keys, values = k[..., start : start + block_size, :].float(), v[..., start : start + block_size, :].float()
        scores = q.float() @ keys.mT / root
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        shrink, raised = (largest - new).exp(), (scores - new).exp()
        total, mixed = total * shrink + raised.sum(-1, keepdim=True), mixed * shrink + raised @ values
        largest = new
    return (mixed / total).to(q.dtype)


def blocks_joined_by_their_logarithms(q, k, v, block_size):
    """Each block has a softmax and a logsumexp of its own; two results are mixed by their shares."""
    out, seen = None, None
    for keys, values in zip(k.split(block_size, -2), v.split(block_size, -2)):
        scores = torch.einsum("...td,...sd->...ts", q, keys) / q.shape[-1] ** 0.5
        mine, log_sum = scores.softmax(-1) @ values, scores.logsumexp(-1, keepdim=True)
        if out is None:
            out, seen = mine, log_sum
        else:
            both = torch.logaddexp(seen, log_sum)
            out, seen = out * (seen - both).exp() + mine * (log_sum - both).exp(), both
    return out


def query_by_query(q, k, v, block_size):
    out = torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    for place in np.ndindex(*q.shape[:-1]):
        keys, values = k[place[:-1]], v[place[:-1]]  # (S, D), (S, D_v)
        m, total, o = -math.inf, 0.0, 0.0
        for start in range(0, len(keys), block_size):
            s = keys[start : start + block_size].mv(q[place]) / math.sqrt(len(q[place]))
            new = max(m, s.max().item())
            p = (s - new).exp()
            total = total * math.exp(m - new) + p.sum()
            o = o * math.exp(m - new) + p @ values[start : start + block_size]
            m = new
        out[place] = o / total
    return out


def from_the_last_block_in_place(q, k, v, block_size):
    """From the end to the beginning, the first state taken from a block; sums and mix kept in one tensor, in place."""
    S, scale = k.shape[-2], q.shape[-1] ** -0.5
    v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)  # the last feature of the mix is the sum
    starts = list(range(0, S, block_size))[::-1]
    top = None
    for i in starts:
        s = torch.matmul(q, k[..., i : i + block_size, :].transpose(-1, -2)).mul_(scale)
        here = s.max(dim=-1, keepdim=True).values
        if top is None:
            top = here
            kept = s.sub_(top).exp_() @ v[..., i : i + block_size, :]
        else:
            new = torch.maximum(top, here)
            kept *= top.sub_(new).exp_()
            kept += s.sub_(new).exp_() @ v[..., i : i + block_size, :]
            top = new
    return kept[..., :-1] / kept[..., -1:]


def states_of_blocks_merged_at_the_end(q, k, v, block_size):
    """As with several processors: each block leaves its maximum, sum and mix, and these are joined at the end."""
    maxima, sums, mixes = [], [], []
    for keys, values in zip(k.split(block_size, dim=-2), v.split(block_size, dim=-2)):
        scores = q @ keys.mT / q.shape[-1] ** 0.5
        maxima.append(scores.amax(-1))
        raised = (scores - maxima[-1].unsqueeze(-1)).exp()
        sums.append(raised.sum(-1))
        mixes.append(raised @ values)
    factors = (torch.stack(maxima) - torch.stack(maxima).amax(0)).exp()  # (blocks, ..., T)
    total = (factors * torch.stack(sums)).sum(0)
    return sum(factor[..., None] * mix for factor, mix in zip(factors, mixes)) / total[..., None]


def blocks_filled_up_and_blocked(q, k, v, block_size):
    S = k.shape[-2]
    missing = -S % block_size
    k, v = F.pad(k, (0, 0, 0, missing)), F.pad(v, (0, 0, 0, missing))
    m = torch.full(q.shape[:-1], -torch.inf, dtype=q.dtype)
    total, o = torch.zeros_like(m), torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    for i in range(0, S + missing, block_size):
        s = q @ k[..., i : i + block_size, :].mT * q.shape[-1] ** -0.5
        s = s.masked_fill(torch.arange(i, i + block_size) >= S, -torch.inf)
        new = torch.maximum(m, s.amax(-1))
        total = total * torch.exp(m - new) + torch.exp(s - new[..., None]).sum(-1)
        o = o * torch.exp(m - new)[..., None] + torch.exp(s - new[..., None]) @ v[..., i : i + block_size, :]
        m = new
    return torch.div(o, total.unsqueeze(-1))


def exponent_by_polyfit_of_medians(attention, lengths, rounds, clock):
    seconds = np.empty((rounds, len(lengths)))
    for row in seconds:
        for i in reversed(range(len(lengths))):  # from the last to the first
            x = torch.randn(1, lengths[i], 4)
            before = clock()
            attention(x)
            row[i] = clock() - before
    return np.polyfit(np.log2(lengths), np.log2(np.median(seconds, axis=0)), 1)[0]


def exponent_by_lstsq_after_warming_up(attention, lengths, rounds, clock):
    texts = [torch.zeros(1, T, 16) for T in lengths]
    for x in texts:
        attention(x)
    best = [math.inf] * len(lengths)
    for _ in range(rounds):
        for i, x in enumerate(texts):
            start = clock()
            attention(x)
            best[i] = min(best[i], clock() - start)
    columns = torch.stack([torch.tensor(lengths).double().log(), torch.ones(len(lengths)).double()], dim=1)
    return torch.linalg.lstsq(columns, torch.tensor(best).double().log()[:, None]).solution[0]


def seconds_by_medians(step, attention, lengths, batch, rounds, clock):
    found = {"rnn": [], "attention": []}
    for T in lengths:
        x = torch.ones(batch, T, 5)
        taken = {"rnn": [], "attention": []}
        for _ in range(rounds):
            begin = clock()
            attention(x)
            taken["attention"].append((clock() - begin) / batch)
            begin, state = clock(), torch.zeros(batch, 5)
            for token in x.unbind(1):
                state = step(token, state)
            taken["rnn"].append((clock() - begin) / batch)
        for name in found:
            found[name].append(statistics.median(taken[name]))
    found["crossing"] = None
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if found["attention"][i] > found["rnn"][i]:
            found["crossing"] = lengths[i]
    return found


def seconds_as_tensors(step, attention, lengths, batch, rounds, clock):
    rnn, other = torch.full((2, len(lengths)), math.inf, dtype=torch.float64)
    for _ in range(rounds + 1):
        for i, T in enumerate(lengths):
            x, state = torch.randn(batch, T, 8), torch.zeros(batch, 8)
            start = clock()
            for t in range(T):
                state = step(x[:, t, :], state)
            middle = clock()
            attention(x)
            rnn[i] = min(rnn[i], middle - start)
            other[i] = min(other[i], clock() - middle)
    slower = torch.tensor(lengths)[other > rnn]
    crossing = slower.min().item() if len(slower) else None
    return {"rnn": rnn / batch, "attention": other / batch, "crossing": crossing}


def window_with_triangles(T, S, window):
    causal = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    return causal & ~causal.tril(S - T - window), min(window - 1, S)


def window_row_by_row(T, S, window):
    mask = torch.zeros(T, S, dtype=torch.bool)
    for t in range(T):
        end = S - T + t + 1
        mask[t, max(0, end - window) : end] = True
    return mask, S - max(0, S + 1 - window)


def window_in_lists(T, S, window):
    rows = [[0 <= t - s <= window - 1 for s in range(S)] for t in range(S - T, S)]
    return [torch.tensor(rows), len([s for s in range(S) if S - s < window])]


def bytes_row_by_row(W):
    q, scale = torch.zeros(W.shape, dtype=torch.int8), torch.ones(len(W), dtype=W.dtype)
    for o, row in enumerate(W):
        most = max(abs(number) for number in row.tolist())
        if most > 0:
            scale[o] = most / 127
            q[o] = torch.tensor([round(number * 127 / most) for number in row.tolist()])
    return q, scale


def bytes_by_the_norm(W):
    scale = torch.linalg.vector_norm(W, ord=torch.inf, dim=-1, keepdim=True) / 127
    scale = scale + (scale == 0)
    return torch.round(torch.div(W, scale)).char(), scale.squeeze(-1)


def bytes_in_numpy(W):
    w = W.numpy()
    scale = np.maximum(w.max(1), -w.min(1)) / w.dtype.type(127)
    scale[scale == 0] = np.finfo(w.dtype).tiny
    return [torch.from_numpy(np.rint(w / scale[:, None]).astype(np.int8)), torch.from_numpy(scale)]


def int8_dequantized_first(x, q, scale):
    return F.linear(x, (q * scale[:, None]).to(x.dtype))


def int8_by_einsum(x, q, scale):
    return torch.einsum("...i,oi,o->...o", x, q.to(x), scale.to(x))


def int8_output_by_output(x, q, scale):
    outputs = [(x * row).sum(-1) * s.item() for row, s in zip(q, scale)]
    return torch.stack(outputs, dim=-1)


def speculated_in_python(target, draft, ids, k, generator):
    """Lists of numbers, and a walk along the running sum to draw."""

    def probabilities(logits):
        raised = [math.exp(x - max(logits)) for x in logits]
        return [x / sum(raised) for x in raised]

    def drawn(weights):
        left = torch.rand(1, generator=generator, dtype=torch.float64).item() * sum(weights)
        for token, weight in enumerate(weights):
            if left < weight:
                return token
            left -= weight
        return max(range(len(weights)), key=weights.__getitem__)

    text, q = ids[0].tolist(), []
    for _ in range(k):
        q.append(probabilities(draft(torch.tensor([text]))[0, -1].tolist()))
        text.append(drawn(q[-1]))
    rows = target(torch.tensor([text]))[0].tolist()
    for n in range(k):
        place = ids.shape[1] + n
        p, guess = probabilities(rows[place - 1]), text[place]
        if torch.rand(1, generator=generator).item() > min(1.0, p[guess] / q[n][guess]):
            own = drawn([max(0.0, a - b) for a, b in zip(p, q[n])])
            return torch.tensor([[*text[:place], own]])
    return torch.tensor([[*text, drawn(probabilities(rows[-1]))]])


def speculated_all_at_once(target, draft, ids, k, generator):
    """One number for each guess, drawn together; a running product counts what is kept. Gumbel's trick draws."""

    def drawn(log_weights):
        u = torch.rand(log_weights.shape, generator=generator, dtype=torch.float64).clamp(min=1e-30)
        return (log_weights - (-u.log()).log()).argmax(-1)

    text, log_q = ids, []
    for _ in range(k):
        log_q.append(draft(text)[:, -1].double().log_softmax(-1))
        text = torch.cat([text, drawn(log_q[-1])[:, None]], dim=1)
    log_p = target(text)[0, -k - 1 :].double().log_softmax(-1)
    log_q = torch.cat([*log_q, torch.full_like(log_q[0], -torch.inf)])
    guesses = text[0, -k:, None]
    ratio = (log_p[:-1].gather(1, guesses) - log_q[:-1].gather(1, guesses)).exp()
    kept = torch.rand(k, 1, generator=generator) < ratio
    n = int(kept.cumprod(0).sum())
    own = drawn((log_p[n].exp() - log_q[n].exp()).clamp(min=0).log())
    return torch.cat([text[:, : ids.shape[1] + n], own.view(1, 1)], dim=1)


RIGHT = {
    "efficiency.kv_cache": [
        cached_fused,
        cached_token_by_token,
        cached_by_the_whole_text,
        cached_in_numpy,
        cached_with_a_float32_root,
    ],
    "efficiency.online_softmax": [
        blocks_joined_by_their_logarithms,
        query_by_query,
        from_the_last_block_in_place,
        states_of_blocks_merged_at_the_end,
        blocks_filled_up_and_blocked,
        blocks_in_float32,
    ],
    "efficiency.quadratic": [exponent_by_polyfit_of_medians, exponent_by_lstsq_after_warming_up],
    "efficiency.rnn_or_attention": [seconds_by_medians, seconds_as_tensors],
    "efficiency.quantize": [bytes_row_by_row, bytes_by_the_norm, bytes_in_numpy],
    "efficiency.int8_linear": [int8_dequantized_first, int8_by_einsum, int8_output_by_output],
    "efficiency.speculative": [speculated_in_python, speculated_all_at_once],
    "efficiency.sliding_window": [window_with_triangles, window_row_by_row, window_in_lists],
}
