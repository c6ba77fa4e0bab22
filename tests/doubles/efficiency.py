"""Answers with two mistakes of the page at once, chapter 14."""

import math
import statistics

import numpy as np
import torch
import torch.nn.functional as F


def left_triangle_unscaled(q_new, k_new, v_new, cache):
    if cache is not None:
        past_k, past_v = cache
        k_new = torch.cat((past_k, k_new), dim=2)
        v_new = torch.cat((past_v, v_new), dim=2)
    n_q, n_k = q_new.size(2), k_new.size(2)
    mask = torch.tril(torch.ones(n_q, n_k)) == 0
    att = torch.einsum("bhqd,bhkd->bhqk", q_new, k_new)
    att = F.softmax(att.masked_fill(mask, float("-inf")), dim=-1)
    return torch.einsum("bhqk,bhkd->bhqd", att, v_new), (k_new, v_new)


def open_and_not_grown(q_new, k_new, v_new, cache):
    keys, values = k_new, v_new
    if cache is not None:
        keys = torch.cat([cache[0], keys], -2)
        values = torch.cat([cache[1], values], -2)
    out = F.scaled_dot_product_attention(q_new, keys, values)
    return out, cache


def one_ahead_and_swapped(q_new, k_new, v_new, cache):
    T, D = q_new.shape[2:]
    if cache is None:
        K, V, past = k_new, v_new, 0
    else:
        past = cache[0].shape[2]
        K, V = (torch.cat(pair, dim=2) for pair in zip(cache, (k_new, v_new)))
    rows = past + torch.arange(T).unsqueeze(1)
    cols = torch.arange(past + T).unsqueeze(0)
    allowed = cols <= rows + 1
    scores = torch.where(allowed, q_new @ K.transpose(-1, -2) * D**-0.5, -torch.inf)
    return torch.softmax(scores, -1) @ V, (V, K)


def old_mix_kept_unscaled(q, k, v, block_size):
    S = k.shape[-2]
    m = torch.full(q.shape[:-1], float("-inf"), dtype=q.dtype)
    denom = torch.zeros(q.shape[:-1], dtype=q.dtype)
    acc = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    for start in range(0, S, block_size):
        kb, vb = k[..., start : start + block_size, :], v[..., start : start + block_size, :]
        s = torch.matmul(q, kb.transpose(-1, -2))
        m_new = torch.maximum(m, s.max(dim=-1).values)
        p = torch.exp(s - m_new.unsqueeze(-1))
        denom = torch.exp(m - m_new) * denom + p.sum(-1)
        acc = acc + p @ vb
        m = m_new
    return acc / denom.unsqueeze(-1)


def full_blocks_from_zero(q, k, v, block_size):
    D = q.shape[-1]
    biggest = torch.zeros_like(q[..., :1])
    numerator = torch.zeros_like(q[..., :1] * v[..., :1, :])
    denominator = torch.zeros_like(biggest)
    for i in range(k.shape[-2] // block_size):
        block = slice(i * block_size, (i + 1) * block_size)
        logits = q @ k[..., block, :].mT / D**0.5
        new_biggest = torch.max(biggest, logits.amax(dim=-1, keepdim=True))
        correction = torch.exp(biggest - new_biggest)
        w = torch.exp(logits - new_biggest)
        denominator = correction * denominator + w.sum(dim=-1, keepdim=True)
        numerator = correction * numerator + w @ v[..., block, :]
        biggest = new_biggest
    return numerator / denominator


def mix_over_d_not_normalized(q, k, v, block_size):
    top = q.new_full(q.shape[:-1], -math.inf)
    output = None
    for keys, values in zip(torch.split(k, block_size, -2), torch.split(v, block_size, -2)):
        scores = torch.einsum("...td,...sd->...ts", q, keys) / q.size(-1)
        higher = torch.maximum(top, scores.amax(-1))
        part = torch.exp(scores - higher[..., None]) @ values
        output = part if output is None else output * torch.exp(top - higher)[..., None] + part
        top = higher
    return output


def means_one_length_at_a_time(attention, lengths, rounds, clock):
    times = []
    for T in lengths:
        x = torch.randn(1, T, 32)
        total = 0.0
        for _ in range(rounds):
            begin = clock()
            attention(x)
            total += clock() - begin
        times.append(total / rounds)
    slope, _ = np.polyfit(np.log(lengths), np.log(times), 1)
    return float(slope)


def ends_of_the_first_round(attention, lengths, rounds, clock):
    measured = {T: [] for T in lengths}
    for _ in range(rounds):
        for T in lengths:
            x = torch.zeros(1, T, 4)
            t0 = clock()
            attention(x)
            measured[T].append(clock() - t0)
    short, long = lengths[0], lengths[-1]
    return math.log(measured[long][0] / measured[short][0]) / math.log(long / short)


def flipped_axes_of_means(attention, lengths, rounds, clock):
    samples = np.zeros((rounds, len(lengths)))
    for r in range(rounds):
        for i, T in enumerate(lengths):
            x = torch.ones(1, T, 8)
            before = clock()
            attention(x)
            after = clock()
            samples[r, i] = after - before
    log_time, log_length = np.log(samples.mean(0)), np.log(np.array(lengths, dtype=float))
    return float(np.cov(log_time, log_length)[0, 1] / np.var(log_time, ddof=1))


def mean_seconds_of_a_batch(step, attention, lengths, batch, rounds, clock):
    rnn, att = [], []
    for T in lengths:
        x = torch.randn(batch, T, 16)
        rnn_times, att_times = [], []
        for _ in range(rounds):
            t0 = clock()
            h = torch.zeros(batch, 16)
            for t in range(T):
                h = step(x[:, t], h)
            t1 = clock()
            attention(x)
            t2 = clock()
            rnn_times.append(t1 - t0)
            att_times.append(t2 - t1)
        rnn.append(statistics.mean(rnn_times))
        att.append(statistics.mean(att_times))
    crossing = None
    for T, r, a in sorted(zip(lengths, rnn, att)):
        if a > r:
            crossing = T
            break
    return {"rnn": rnn, "attention": att, "crossing": crossing}


def forgetful_and_faster(step, attention, lengths, batch, rounds, clock):
    result = {"rnn": [], "attention": [], "crossing": None}
    for T in lengths:
        x = torch.rand(batch, T, 4)
        state = torch.zeros(batch, 4)
        best_rnn = best_attention = float("inf")
        for _ in range(rounds):
            start = clock()
            for token in x.transpose(0, 1):
                step(token, state)
            best_rnn = min(best_rnn, clock() - start)
            start = clock()
            attention(x)
            best_attention = min(best_attention, clock() - start)
        result["rnn"].append(best_rnn / batch)
        result["attention"].append(best_attention / batch)
    faster = [T for T, r, a in zip(lengths, result["rnn"], result["attention"]) if a < r]
    if faster:
        result["crossing"] = min(faster)
    return result


def per_token_and_first_listed(step, attention, lengths, batch, rounds, clock):
    def time_of(run):
        t = clock()
        run()
        return clock() - t

    def read_all(x):
        state = torch.zeros(batch, x.shape[-1])
        for i in range(x.shape[1]):
            state = step(x[:, i, :], state)
        return state

    recurrent, parallel, crossing = [], [], None
    for T in lengths:
        x = torch.randn(batch, T, 6)
        one = statistics.median(time_of(lambda x=x: read_all(x)) for _ in range(rounds))
        two = statistics.median(time_of(lambda x=x: attention(x)) for _ in range(rounds))
        recurrent.append(one / (batch * T))
        parallel.append(two / (batch * T))
        if two > one and crossing is None:
            crossing = T
    return {"rnn": recurrent, "attention": parallel, "crossing": crossing}


def wide_open_and_kept_whole(T, S, window):
    rows = torch.arange(S - T, S).reshape(-1, 1)
    cols = torch.arange(S).reshape(1, -1)
    visible = torch.logical_and(cols <= rows, cols >= rows - window)
    return visible, S


def both_sides_and_whole_window(T, S, window):
    i = torch.arange(T) + (S - T)
    distance = torch.abs(i.unsqueeze(1) - torch.arange(S))
    return distance < window, min(window, S)


def at_the_front_and_only_new(T, S, window):
    mask = torch.zeros(T, S, dtype=torch.bool)
    for t in range(T):
        for s in range(max(0, t - window + 1), t + 1):
            mask[t, s] = True
    return mask, min(T, window - 1)


def whole_matrix_cut_off(W):
    scale = W.abs().max() / 127
    if scale == 0:
        scale = torch.ones_like(scale)
    q = (W / scale).to(torch.int8)
    return q, torch.full((W.shape[0],), scale.item(), dtype=W.dtype)


def signed_peak_as_a_column(W):
    peak = torch.max(W, dim=1, keepdim=True).values
    scale = torch.where(peak != 0, peak / 127, torch.ones_like(peak))
    return torch.round(W / scale).to(torch.int8), scale


def steps_per_unit_in_long(W):
    top, _ = torch.max(torch.abs(W), 1)
    top[top == 0] = 127
    factor = 127 / top
    return torch.round(W * factor.view(-1, 1)).long(), factor


def averaged_and_unsigned(x, q, scale):
    weights = q.to(torch.uint8).to(x.dtype)
    return torch.matmul(x, weights.transpose(0, 1)) * scale.mean().to(x.dtype)


def over_the_scale_and_rounded(x, q, scale):
    sums = torch.nn.functional.linear(x, q.to(x.dtype))
    return torch.round(sums / scale.to(x.dtype))


def whole_inputs_unscaled(x, q, scale):
    whole = x.round()
    out = torch.einsum("...i,oi->...o", whole, q.to(whole.dtype))
    return out


def kept_by_p_and_drawn_from_p(target, draft, ids, k, generator):
    T = ids.size(1)
    text = ids
    for _ in range(k):
        probs = F.softmax(draft(text)[:, -1], dim=-1)
        text = torch.cat([text, torch.multinomial(probs, 1, generator=generator)], dim=1)
    p = F.softmax(target(text)[0], dim=-1)
    for i in range(k):
        token = text[0, T + i].item()
        if torch.rand(1, generator=generator).item() >= p[T + i - 1, token].item():
            new = torch.multinomial(p[T + i - 1], 1, generator=generator)
            return torch.cat([text[:, : T + i], new.view(1, 1)], dim=1)
    new = torch.multinomial(p[-1], 1, generator=generator)
    return torch.cat([text, new.view(1, 1)], dim=1)


def favourites_of_the_draft_and_no_last_word(target, draft, ids, k, generator):
    T, text, qs = ids.shape[1], ids.clone(), []
    for _ in range(k):
        q = draft(text)[0, -1].softmax(-1)
        qs.append(q)
        text = torch.cat([text, q.argmax().view(1, 1)], dim=1)
    ps = target(text)[0, T - 1 :].softmax(-1)
    for i, q in enumerate(qs):
        g = text[0, T + i]
        ratio = min(1.0, float(ps[i, g] / q[g]))
        if float(torch.rand(1, generator=generator)) > ratio:
            rest = torch.clamp(ps[i] - q, min=0)
            new = torch.multinomial(rest, 1, generator=generator)
            return torch.cat([text[:, : T + i], new[None]], dim=1)
    return text


def one_number_and_absolute(target, draft, ids, k, generator):
    n_before = ids.shape[1]
    u = torch.rand(1, generator=generator).item()
    x, q_list = ids, []
    for _ in range(k):
        q = torch.softmax(draft(x)[0, -1, :], 0)
        q_list.append(q)
        x = torch.cat([x, torch.multinomial(q, 1, generator=generator).unsqueeze(0)], 1)
    p = torch.softmax(target(x)[0, n_before - 1 :], 1)
    kept = 0
    while kept < k:
        tok = x[0, n_before + kept]
        if u < p[kept, tok] / q_list[kept][tok]:
            kept += 1
        else:
            break
    weights = p[kept] if kept == k else torch.abs(p[kept] - q_list[kept])
    last = torch.multinomial(weights, 1, generator=generator)
    return torch.cat([x[:, : n_before + kept], last.unsqueeze(0)], 1)


DOUBLES = {
    "efficiency.kv_cache": [
        (left_triangle_unscaled, ("mask begins at the left", "scaling missing")),
        (open_and_not_grown, ("no mask", "cache not extended")),
        (one_ahead_and_swapped, ("sees one token too many", "keys and values exchanged")),
    ],
    "efficiency.online_softmax": [
        (old_mix_kept_unscaled, ("only the sum rescaled", "scaling missing")),
        (full_blocks_from_zero, ("short last block left out", "maximum begins at 0")),
        (mix_over_d_not_normalized, ("scaled by D", "not divided by the sum")),
    ],
    "efficiency.quadratic": [
        (means_one_length_at_a_time, ("mean time", "length after length")),
        (ends_of_the_first_round, ("first and last only", "first call")),
        (flipped_axes_of_means, ("axes exchanged", "mean time")),
    ],
    "efficiency.rnn_or_attention": [
        (mean_seconds_of_a_batch, ("mean time", "seconds per batch")),
        (forgetful_and_faster, ("state not handed on", "where attention is faster")),
        (per_token_and_first_listed, ("seconds per token", "first in the list")),
    ],
    "efficiency.sliding_window": [
        (wide_open_and_kept_whole, ("one key too many", "keeps everything")),
        (both_sides_and_whole_window, ("a window on both sides", "keeps the whole window")),
        (at_the_front_and_only_new, ("queries at the front", "of the new tokens alone")),
    ],
    "efficiency.quantize": [
        (whole_matrix_cut_off, ("one scale for all", "cut off")),
        (signed_peak_as_a_column, ("sign forgotten", "scale as a column")),
        (steps_per_unit_in_long, ("scale upside down", "whole numbers of more bytes")),
    ],
    "efficiency.int8_linear": [
        (averaged_and_unsigned, ("one scale for all", "bytes without a sign")),
        (over_the_scale_and_rounded, ("divided by the scale", "outputs rounded")),
        (whole_inputs_unscaled, ("inputs made whole", "no scale")),
    ],
    "efficiency.speculative": [
        (kept_by_p_and_drawn_from_p, ("kept with probability p", "drawn from p")),
        (favourites_of_the_draft_and_no_last_word, ("the likeliest guessed", "no final token")),
        (one_number_and_absolute, ("one number for all guesses", "absolute difference")),
    ],
}
