"""Right answers in the manner of others, chapter 14: nanoGPT, llama, transformers, FlashAttention, JAX, loops."""

import functools
import math
import random
import statistics

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# --- attention with a cache -------------------------------------------------------------------------------------------


class DynamicCache:
    """transformers: grows with every update."""

    def __init__(self, past=None):
        self.key_cache, self.value_cache = past if past is not None else (None, None)

    def get_seq_length(self):
        return 0 if self.key_cache is None else self.key_cache.shape[-2]

    def update(self, key_states, value_states):
        if self.key_cache is not None:
            key_states = torch.cat([self.key_cache, key_states], dim=-2)
            value_states = torch.cat([self.value_cache, value_states], dim=-2)
        self.key_cache, self.value_cache = key_states, value_states
        return key_states, value_states


def with_a_dynamic_cache(query, key, value, past_key_value):
    cache = DynamicCache(past_key_value)
    past = cache.get_seq_length()
    key_states, value_states = cache.update(key, value)
    length = query.shape[-2]
    mask = torch.full((length, past + length), torch.finfo(query.dtype).min, dtype=query.dtype)
    mask = torch.triu(mask, diagonal=past + 1)[None, None]
    attn_weights = torch.matmul(query, key_states.transpose(2, 3)) * query.shape[-1] ** -0.5 + mask
    attn_weights = F.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(attn_weights, value_states), (cache.key_cache, cache.value_cache)


class CausalBuffer(nn.Module):
    """nanoGPT: a triangle of the largest size in a buffer, of which the right rows are cut out."""

    def __init__(self, block_size=64):
        super().__init__()
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))

    def forward(self, q, k, v, S):
        T = q.size(-2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, S : S + T, : S + T] == 0, float("-inf"))
        return F.softmax(att, dim=-1) @ v


def from_a_triangle_in_a_buffer(q, k, v, layer_past):
    S = 0
    if layer_past is not None:
        past_key, past_value = layer_past
        S = past_key.size(-2)
        k, v = torch.cat((past_key, k), dim=-2), torch.cat((past_value, v), dim=-2)
    return CausalBuffer()(q, k, v, S), (k, v)


def into_a_static_cache(xq, xk, xv, cache):
    """llama: room for all is made at once, the new tokens are written at start_pos; the mask is stacked and added."""
    bsz, heads, seqlen, head_dim = xq.shape
    start_pos = 0 if cache is None else cache[0].shape[2]
    cache_k = torch.zeros((bsz, heads, start_pos + seqlen, head_dim)).to(xk)
    cache_v = torch.zeros((bsz, heads, start_pos + seqlen, xv.shape[-1])).to(xv)
    if cache is not None:
        cache_k[:, :, :start_pos], cache_v[:, :, :start_pos] = cache
    cache_k[:, :, start_pos : start_pos + seqlen] = xk
    cache_v[:, :, start_pos : start_pos + seqlen] = xv
    mask = None
    if seqlen > 1:
        mask = torch.full((seqlen, seqlen), float("-inf"))
        mask = torch.triu(mask, diagonal=1)
        mask = torch.hstack([torch.zeros((seqlen, start_pos)), mask]).type_as(xq)
    scores = torch.matmul(xq, cache_k.transpose(2, 3)) / math.sqrt(head_dim)
    if mask is not None:
        scores = scores + mask
    scores = F.softmax(scores.float(), dim=-1).type_as(xq)
    return torch.matmul(scores, cache_v), (cache_k, cache_v)


def two_parts_of_one_softmax(q, k, v, cache):
    """Old and new keys are kept apart until one softmax goes over both."""
    T, scale = q.shape[-2], math.sqrt(q.shape[-1])
    t = torch.arange(T)
    new = torch.where(t[None, :] <= t[:, None], torch.einsum("bhtd,bhsd->bhts", q, k) / scale, -torch.inf)
    if cache is None:
        return torch.einsum("bhts,bhsv->bhtv", new.softmax(-1), v), (k, v)
    keys, values = cache
    old = torch.einsum("bhtd,bhsd->bhts", q, keys) / scale
    weights = torch.cat([old, new], -1).softmax(-1)
    from_old, from_new = weights.split([keys.shape[-2], T], dim=-1)
    return from_old @ values + from_new @ v, (torch.cat([keys, k], -2), torch.cat([values, v], -2))


def every_query_alone(q_new, k_new, v_new, cache):
    """Loops over texts, heads and tokens; the keys that may be seen are a slice."""
    if cache is None:
        cache = k_new[:, :, :0], v_new[:, :, :0]
    k = torch.cat([cache[0], k_new], dim=2)
    v = torch.cat([cache[1], v_new], dim=2)
    B, H, T, D = q_new.shape
    S = k.shape[2] - T
    out = []
    for b in range(B):
        for h in range(H):
            for t in range(T):
                seen = slice(0, S + t + 1)
                scores = k[b, h, seen] @ q_new[b, h, t] / torch.sqrt(torch.tensor(D, dtype=torch.float32))
                e = (scores - scores.max()).exp()
                out.append(e @ v[b, h, seen] / e.sum())
    return torch.stack(out).reshape(B, H, T, -1), (k, v)


def with_a_large_negative_number(q, k, v, cache):
    """GPT-2's own manner: b marks what is seen, w * b - 1e10 * (1 - b)."""
    past = [] if cache is None else [cache]
    k = torch.cat([p[0] for p in past] + [k], dim=-2)
    v = torch.cat([p[1] for p in past] + [v], dim=-2)
    nd, ns = q.size(-2), k.size(-2)
    i, j = torch.arange(nd)[:, None], torch.arange(ns)
    b = (i >= j - ns + nd).to(q.dtype)
    w = q @ k.mT * torch.rsqrt(torch.tensor(q.size(-1), dtype=q.dtype))
    w = w * b - 1e10 * (1 - b)
    return torch.softmax(w, dim=-1) @ v, [k, v]


# --- block by block ---------------------------------------------------------------------------------------------------


def normalized_at_every_block(Q, K, V, block_size):
    """FlashAttention's first paper: the output is divided at once, and corrected by l_old / l_new."""
    scale = 1.0 / math.sqrt(Q.shape[-1])
    O = torch.zeros((*Q.shape[:-1], V.shape[-1]), dtype=Q.dtype)  # noqa: E741
    l = torch.zeros((*Q.shape[:-1], 1), dtype=Q.dtype)  # noqa: E741
    m = torch.full((*Q.shape[:-1], 1), -torch.inf, dtype=Q.dtype)
    for j in range(math.ceil(K.shape[-2] / block_size)):
        K_j = K[..., j * block_size : (j + 1) * block_size, :]
        V_j = V[..., j * block_size : (j + 1) * block_size, :]
        S_ij = scale * Q @ K_j.transpose(-2, -1)
        m_ij = S_ij.max(dim=-1, keepdim=True).values
        P_ij = torch.exp(S_ij - m_ij)
        l_ij = P_ij.sum(dim=-1, keepdim=True)
        m_new = torch.maximum(m, m_ij)
        l_new = torch.exp(m - m_new) * l + torch.exp(m_ij - m_new) * l_ij
        O = (l * torch.exp(m - m_new) * O + torch.exp(m_ij - m_new) * (P_ij @ V_j)) / l_new  # noqa: E741
        l, m = l_new, m_new  # noqa: E741
    return O


def tiles_of_queries_too(q, k, v, block_size):
    """FlashAttention's second paper: an outer loop over tiles of queries, one division at the end of each."""
    outputs = []
    for q_i in q.split(max(1, block_size), dim=-2):
        o_i, l_i = 0.0, torch.zeros(q_i.shape[:-1], dtype=q.dtype)
        m_i = torch.full(q_i.shape[:-1], torch.finfo(q.dtype).min, dtype=q.dtype)
        for k_j, v_j in zip(k.split(block_size, dim=-2), v.split(block_size, dim=-2)):
            s_ij = torch.einsum("...id,...jd->...ij", q_i, k_j) / math.sqrt(q.size(-1))
            m_new = torch.maximum(m_i, s_ij.amax(-1))
            alpha = torch.exp(m_i - m_new)
            p = torch.exp(s_ij - m_new.unsqueeze(-1))
            l_i = l_i * alpha + p.sum(-1)
            o_i = o_i * alpha.unsqueeze(-1) + p @ v_j
            m_i = m_new
        outputs.append(o_i / l_i.unsqueeze(-1))
    return torch.cat(outputs, dim=-2)


def as_a_scan(q, k, v, block_size):
    """JAX: a step from carry to carry, folded over the blocks."""

    def step(carry, block):
        (m, denominator, numerator), (keys, values) = carry, block
        logits = torch.einsum("...qd,...kd->...qk", q, keys) / torch.sqrt(torch.tensor(float(q.shape[-1])))
        m_next = torch.maximum(m, logits.max(-1, keepdim=True)[0])
        old, new = torch.exp(m - m_next), torch.exp(logits - m_next)
        return m_next, denominator * old + new.sum(-1, keepdim=True), numerator * old + new @ values

    start = torch.full_like(q[..., :1], -torch.inf), torch.zeros_like(q[..., :1]), q.new_zeros(1)
    blocks = zip(torch.split(k, block_size, -2), torch.split(v, block_size, -2))
    _, denominator, numerator = functools.reduce(step, blocks, start)
    return numerator / denominator


def halves_joined(q, k, v, block_size):
    """Recursion: what is longer than a block is halved, and the two halves are joined."""

    def partial(keys, values):
        blocks = -(-keys.shape[-2] // block_size)
        if blocks <= 1:
            s = q @ keys.mT / q.shape[-1] ** 0.5
            m = s.amax(-1, keepdim=True)
            p = (s - m).exp()
            return m, p.sum(-1, keepdim=True), p @ values
        cut = blocks // 2 * block_size
        left = partial(keys[..., :cut, :], values[..., :cut, :])
        right = partial(keys[..., cut:, :], values[..., cut:, :])
        m = torch.maximum(left[0], right[0])
        a, b = (left[0] - m).exp(), (right[0] - m).exp()
        return m, a * left[1] + b * right[1], a * left[2] + b * right[2]

    _, total, mixed = partial(k, v)
    return mixed / total


def in_float64_value_by_value(q, k, v, block_size):
    """All state in float64; the scores of a block at once, its values in a loop."""
    x = q.double() / math.sqrt(q.shape[-1])
    top = torch.full(x.shape[:-1], -math.inf, dtype=torch.float64)
    total, mixed = torch.zeros_like(top), torch.zeros(*x.shape[:-1], v.shape[-1], dtype=torch.float64)
    for start in range(0, k.shape[-2], block_size):
        end = min(start + block_size, k.shape[-2])
        scores = torch.einsum("...td,...sd->...ts", x, k[..., start:end, :].double())
        higher = torch.maximum(top, scores.amax(-1))
        shrink = torch.exp(top - higher)
        total, mixed = total * shrink, mixed * shrink[..., None]
        for s in range(start, end):
            part = torch.exp(scores[..., s - start] - higher)
            total = total + part
            mixed = mixed + part[..., None] * v[..., s : s + 1, :]
        top = higher
    return (mixed / total[..., None]).type_as(q)


# --- measured ---------------------------------------------------------------------------------------------------------


def slope_of_shuffled_rounds(attention, lengths, rounds, clock):
    """Each round in an order of its own; medians, and Python's own regression."""
    rng = random.Random(0)
    seconds = {T: [] for T in lengths}
    for _ in range(rounds):
        for T in rng.sample(list(lengths), len(lengths)):
            x = torch.randn(1, T, 8)
            t0 = clock()
            attention(x)
            seconds[T].append(clock() - t0)
    xs = [math.log10(T) for T in lengths]
    ys = [math.log10(statistics.median(seconds[T])) for T in lengths]
    return statistics.linear_regression(xs, ys).slope


def slope_by_normal_equations(attention, lengths, rounds, clock):
    """A table of times, its smallest of each column, and the normal equations."""
    table = np.full((rounds, len(lengths)), np.inf)
    for r in range(rounds):
        for i, T in enumerate(lengths):
            x = torch.zeros(1, T, 2)
            start = clock()
            attention(x)
            table[r, i] = clock() - start
    design = np.stack([np.log(lengths), np.ones(len(lengths))], axis=1)
    solution = np.linalg.solve(design.T @ design, design.T @ np.log(table.min(axis=0)))
    return solution[0]


class Timer:
    """A context that notes how long its body took."""

    def __init__(self, clock, notes):
        self.clock, self.notes = clock, notes

    def __enter__(self):
        self.start = self.clock()

    def __exit__(self, *exception):
        self.notes.append(self.clock() - self.start)


def with_timers(step, attention, lengths, batch, rounds, clock):
    rnn, att = [], []
    for T in lengths:
        x, slow, quick = torch.randn(batch, T, 3), [], []
        for _ in range(rounds):
            with Timer(clock, slow):
                h = x.new_zeros(batch, 3)
                for t in range(T):
                    h = step(x[:, t], h)
            with Timer(clock, quick):
                attention(x)
        rnn.append(min(slow) / batch)
        att.append(min(quick) / batch)
    later = sorted(T for T, r, a in zip(lengths, rnn, att) if a > r)
    return {"rnn": rnn, "attention": att, "crossing": later[0] if later else None}


def with_a_fold(step, attention, lengths, batch, rounds, clock):
    """A fold over the tokens; all of one layer first, then all of the other, as medians in NumPy."""

    def median_seconds(layer, T):
        x = torch.ones(batch, T, 7)
        taken = np.zeros(rounds)
        for r in range(rounds):
            before = clock()
            layer(x)
            taken[r] = clock() - before
        return np.median(taken) / batch

    def recurrent(x):
        return functools.reduce(lambda state, token: step(token, state), x.unbind(1), torch.zeros(batch, 7))

    rnn = np.array([median_seconds(recurrent, T) for T in lengths])
    att = np.array([median_seconds(attention, T) for T in lengths])
    slower = np.asarray(lengths)[att > rnn]
    return {"rnn": rnn.tolist(), "attention": att.tolist(), "crossing": int(slower.min()) if slower.size else None}


# --- a window that slides ---------------------------------------------------------------------------------------------


def window_as_in_mistral(T, S, window):
    """A full table, cut twice by triangles, as numbers at first."""
    table = torch.full((T, S), fill_value=1)
    table = torch.tril(table, diagonal=S - T)
    table = torch.triu(table, diagonal=S - T - window + 1)
    return table.to(torch.bool), min(window - 1, S)


def window_of_overlays(T, S, window):
    """Two conditions on one pair of indices, joined by a function."""

    def causal(q, k):
        return k <= q

    def near(q, k):
        return k > q - window

    q, k = torch.meshgrid(torch.arange(T) + S - T, torch.arange(S), indexing="ij")
    return torch.logical_and(causal(q, k), near(q, k)), torch.tensor(min(S, window - 1))


def window_in_numpy(T, S, window):
    position = np.arange(S - T, S).reshape(T, 1)
    mask = np.logical_and(np.arange(S) <= position, np.arange(S) > position - window)
    return torch.from_numpy(mask), int(np.clip(window - 1, 0, S))


def window_of_a_rolling_buffer(T, S, window):
    """Which key lies where in a buffer that is written in turns; the next token writes over the oldest."""
    mask = torch.zeros(T, S, dtype=torch.bool)
    buffer = [None] * window
    for s in range(S):
        buffer[s % window] = s
        if s >= S - T:
            mask[s - (S - T), [key for key in buffer if key is not None]] = True
    buffer[S % window] = None
    return mask, sum(key is not None for key in buffer)


# --- int8 -------------------------------------------------------------------------------------------------------------


def absmax_as_in_bitsandbytes(W):
    """127 / absmax is multiplied with, and absmax / 127 kept."""
    absmax = torch.max(torch.abs(W), dim=-1)[0]
    stats = torch.where(absmax == 0, torch.ones_like(absmax), absmax)
    q = torch.round(W * (127.0 / stats).unsqueeze(-1)).clamp(-127, 127)
    return q.to(dtype=torch.int8), stats / 127.0


def absmax_as_in_gpt_fast(W, bits=8):
    """Ranges on both sides of zero, an epsilon that no row but one of zeros is below, and a clamp."""
    quant_max = 2 ** (bits - 1) - 1
    min_val, max_val = torch.aminmax(W, dim=1)
    max_val_pos = torch.max(-min_val.clamp(max=0.0), max_val.clamp(min=0.0))
    scales = torch.clamp(max_val_pos / quant_max, min=torch.finfo(W.dtype).tiny)
    quant = torch.clamp(torch.round(W / scales.unsqueeze(-1)), -quant_max, quant_max)
    return quant.to(torch.int8), scales.to(W.dtype)


class AbsmaxObserver:
    """Sees rows one after the other."""

    def __init__(self):
        self.q, self.scales = [], []

    def observe(self, row):
        peak = row.abs().max()
        scale = (peak / 127) if peak.item() else torch.ones((), dtype=row.dtype)
        self.q.append((row / scale).round().type(torch.int8))
        self.scales.append(scale)


def absmax_with_an_observer(W):
    observer = AbsmaxObserver()
    for row in W.unbind():
        observer.observe(row)
    return torch.stack(observer.q), torch.stack(observer.scales)


def absmax_of_a_copy(W):
    """Divides in place; rows of zeros are left out."""
    out = W.clone()
    scale = torch.full((W.size(0),), 0.5, dtype=W.dtype)
    alive = torch.any(W != 0, dim=1)
    scale[alive] = out[alive].norm(p=float("inf"), dim=1).div_(127)
    out[alive] /= scale[alive, None]
    return out.round_().to(torch.int8), scale


def weight_only_as_in_gpt_fast(x, q, scale):
    return F.linear(x, q.to(dtype=x.dtype)) * scale.to(dtype=x.dtype)


def flattened_and_back(x, q, scale):
    batch = x.shape[:-1]
    rows = x.contiguous().view(-1, x.size(-1))
    y = torch.mm(rows, q.t().type_as(rows)).mul_(scale.type_as(rows).unsqueeze(0))
    return y.view(*batch, q.size(0))


def in_float64_and_back(x, q, scale):
    dequantized = scale.double().diag() @ q.double()
    return torch.matmul(x.double(), dequantized.transpose(0, 1)).to(x.dtype)


def bytes_in_numpy_back_to_torch(x, q, scale):
    y = np.einsum("...i,oi->...o", x.numpy().astype(np.float64), q.numpy().astype(np.float64)) * scale.numpy()
    return torch.from_numpy(np.asarray(y)).to(x.dtype)


# --- speculation ------------------------------------------------------------------------------------------------------


def speculated_as_in_transformers(target, draft, ids, k, generator):
    """All ratios at once; the number kept is where the first refusal stands."""
    candidate, candidate_logits = ids, []
    for _ in range(k):
        new_logits = draft(candidate)[:, -1, :]
        candidate_logits.append(new_logits)
        token = torch.multinomial(F.softmax(new_logits, dim=-1), num_samples=1, generator=generator)
        candidate = torch.cat((candidate, token), dim=-1)
    candidate_logits = torch.stack(candidate_logits, dim=1)
    new_logits = target(candidate)[:, -k - 1 :]
    new_candidate = candidate[:, -k:]

    q = candidate_logits.softmax(dim=-1)
    q_i = q[:, torch.arange(k), new_candidate].squeeze(0, 1)
    p = new_logits.softmax(dim=-1)
    p_i = p[:, torch.arange(k), new_candidate].squeeze(0, 1)
    probability_ratio = p_i / q_i
    r_i = torch.rand(probability_ratio.shape, generator=generator)
    is_accepted = r_i <= probability_ratio
    n_matches = ((~is_accepted).cumsum(dim=-1) < 1).sum()

    p_n_plus_1 = p[:, n_matches, :]
    if n_matches < k:
        p_prime = torch.clamp((p_n_plus_1 - q[:, n_matches, :]), min=0)
        p_prime.div_(p_prime.sum())
    else:
        p_prime = p_n_plus_1
    t = torch.multinomial(p_prime, num_samples=1, generator=generator)
    return torch.cat((ids, new_candidate[:, :n_matches], t), dim=-1)


def speculated_as_in_gpt_fast(model, draft_model, cur_token, speculate_k, generator):
    """Exponential numbers draw; the log of the kept ones is looked for with nonzero."""

    def multinomial_sample_one(probs_sort):
        q = torch.empty_like(probs_sort).exponential_(1, generator=generator)
        return torch.argmax(probs_sort / q, dim=-1, keepdim=True).to(dtype=torch.int)

    text, draft_probs, draft_tokens = cur_token, [], []
    for _ in range(speculate_k):
        probs = torch.nn.functional.softmax(draft_model(text)[0, -1], dim=-1)
        draft_probs.append(probs)
        draft_tokens.append(multinomial_sample_one(probs))
        text = torch.cat([text, draft_tokens[-1].view(1, 1)], dim=1)
    draft_tokens, draft_probs = torch.cat(draft_tokens), torch.stack(draft_probs)
    target_probs = model(text)[0, cur_token.shape[1] - 1 :].softmax(-1)

    p = draft_probs[torch.arange(0, speculate_k), draft_tokens]
    q = target_probs[torch.arange(0, speculate_k), draft_tokens]
    accept_draft_prob = torch.minimum(torch.ones(()), q[:speculate_k] / p)
    rejected_locations = (torch.rand(speculate_k, generator=generator) > accept_draft_prob).nonzero()
    if rejected_locations.shape[0] == 0:
        last_token = multinomial_sample_one(target_probs[-1])
        return torch.cat([text, last_token.view(1, 1)], dim=1)
    accept_length = rejected_locations[0].item()
    new = target_probs[accept_length] - draft_probs[accept_length]
    new = torch.where(new > 0, new, 0.0)
    next_token = multinomial_sample_one(new / new.sum())
    return torch.cat([cur_token, draft_tokens[None, :accept_length], next_token.view(1, 1)], dim=1)


def speculated_by_recursion(target, draft, ids, k, generator):
    """Guesses on the way down, answers on the way up: at the bottom the target reads."""
    start = ids.shape[1]

    def below(text, qs):
        if len(qs) == k:
            return target(text)[0, start - 1 :].softmax(-1)
        q = draft(text)[0, -1].softmax(-1)
        guess = torch.multinomial(q, 1, generator=generator)
        return below(torch.hstack((text, guess.view(1, 1))), qs.append((q, guess)) or qs)

    qs = []
    ps = below(ids, qs)
    for (q, guess), p in zip(qs, ps):
        if torch.bernoulli((p[guess] / q[guess]).clamp(max=1), generator=generator).item():
            ids = torch.hstack((ids, guess.view(1, 1)))
        else:
            left = torch.relu(p - q)
            return torch.hstack((ids, torch.multinomial(left, 1, generator=generator).view(1, 1)))
    return torch.hstack((ids, torch.multinomial(ps[-1], 1, generator=generator).view(1, 1)))


def speculated_into_a_buffer(target, draft, ids, k, generator):
    """A buffer of full length, float64, and searchsorted; the draft is asked once more at the end for all its q."""
    B, T = ids.shape
    buffer = ids.new_zeros(B, T + k + 1)
    buffer[:, :T] = ids

    def pick(weights):
        edges = weights.double().cumsum(0)
        u = torch.rand((), generator=generator, dtype=torch.float64) * edges[-1]
        return torch.searchsorted(edges, u, right=True)

    with torch.no_grad():
        for place in range(T, T + k):
            buffer[0, place] = pick(draft(buffer[:, :place])[0, place - 1].softmax(0))
        q = draft(buffer[:, : T + k])[0].double().softmax(-1)
        p = target(buffer[:, : T + k])[0].double().softmax(-1)
    place = T
    while place < T + k:
        token = buffer[0, place]
        if torch.rand((), generator=generator) * q[place - 1, token] >= p[place - 1, token]:
            break
        place += 1
    missing = p[place - 1] - q[place - 1] if place < T + k else p[place - 1]
    buffer[0, place] = pick(missing.clamp_min(0))
    return buffer[:, : place + 1].clone()


STRANGERS = {
    "efficiency.kv_cache": [
        with_a_dynamic_cache,
        from_a_triangle_in_a_buffer,
        into_a_static_cache,
        two_parts_of_one_softmax,
        every_query_alone,
        with_a_large_negative_number,
    ],
    "efficiency.online_softmax": [
        normalized_at_every_block,
        tiles_of_queries_too,
        as_a_scan,
        halves_joined,
        in_float64_value_by_value,
    ],
    "efficiency.quadratic": [slope_of_shuffled_rounds, slope_by_normal_equations],
    "efficiency.rnn_or_attention": [with_timers, with_a_fold],
    "efficiency.sliding_window": [
        window_as_in_mistral,
        window_of_overlays,
        window_in_numpy,
        window_of_a_rolling_buffer,
    ],
    "efficiency.quantize": [
        absmax_as_in_bitsandbytes,
        absmax_as_in_gpt_fast,
        absmax_with_an_observer,
        absmax_of_a_copy,
    ],
    "efficiency.int8_linear": [
        weight_only_as_in_gpt_fast,
        flattened_and_back,
        in_float64_and_back,
        bytes_in_numpy_back_to_torch,
    ],
    "efficiency.speculative": [
        speculated_as_in_transformers,
        speculated_as_in_gpt_fast,
        speculated_by_recursion,
        speculated_into_a_buffer,
    ],
}
