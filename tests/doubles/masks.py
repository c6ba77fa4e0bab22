"""Answers with two mistakes of the page at once: masks."""

import math

import torch
import torch.nn.functional as F


def ones_above_the_diagonal(T, S=None):
    S = S or T
    return torch.triu(torch.ones(T, S), diagonal=S - T + 1)


def next_token_from_the_corner(T, S=None):
    if S is None:
        S = T
    mask = torch.zeros(T, S, dtype=torch.bool)
    for i in range(T):
        mask[i, : i + 2] = True
    return mask


def hidden_square(T, S=None):
    return torch.triu(torch.ones(T, T), diagonal=1).bool()


def too_many_without_axes(lengths, S):
    positions = torch.arange(S).unsqueeze(0)
    return positions <= lengths.unsqueeze(1)


def padding_true_as_wide_as_the_longest(lengths, S):
    longest = int(lengths.max())
    rows = [[t >= n for t in range(longest)] for n in lengths.tolist()]
    return torch.tensor(rows, dtype=torch.bool).view(len(lengths), 1, 1, longest)


def ones_with_full_rows_hidden(lengths, S):
    mask = torch.ones(len(lengths), 1, 1, S)
    for b, n in enumerate(lengths):
        pad = S - int(n)
        mask[b, 0, 0, -pad:] = 0
    return mask


def same_documents_hidden_in_numbers(document_ids):
    T = document_ids.shape[1]
    ids = document_ids.unsqueeze(1)
    seen = (ids.unsqueeze(-1) == ids.unsqueeze(-2)) & torch.tril(torch.ones(T, T)).bool()
    return 1 - seen.long()


def next_token_without_heads(document_ids):
    B, T = document_ids.shape
    mask = torch.zeros(B, T, T, dtype=torch.bool)
    for b in range(B):
        for t in range(T):
            for s in range(min(t + 2, T)):
                mask[b, t, s] = document_ids[b, t] == document_ids[b, s]
    return mask


def both_ways_without_padding(document_ids):
    q, k = document_ids[:, None, :, None], document_ids[:, None, None, :]
    return (q == k) & (k >= 0)


def first_text_by_favourite(model, ids):
    T = ids.shape[1]
    original = model(ids)
    vocab = original.shape[-1]
    for pos in range(1, T):
        other = ids.clone()
        other[0, pos] = (ids[0, pos] + 1) % vocab
        new = model(other)
        if not torch.equal(new[0, :pos].argmax(-1), original[0, :pos].argmax(-1)):
            return True
    return False


def past_the_vocabulary_and_not_the_last(model, ids):
    _B, T = ids.shape
    base = model(ids)
    leak = False
    for t in range(1, T - 1):
        ids2 = ids.clone()
        ids2[:, t] += 1
        diff = torch.abs(model(ids2)[:, :t, :] - base[:, :t, :])
        if torch.max(diff) > 1e-5:
            leak = True
    return leak


def signed_on_the_last_token(model, ids):
    if ids.shape[1] < 2:
        return False
    logits = model(ids)
    perturbed = ids.clone()
    perturbed[:, -1] = (perturbed[:, -1] + 1) % logits.size(-1)
    change = model(perturbed)[:, :-1] - logits[:, :-1]
    return bool((change > 1e-5).any())


def wide_root_and_no_projection(x, W_Q, W_K, W_V, W_O, n_heads):
    B, T, C = x.shape
    hs = C // n_heads
    q = (x @ W_Q).view(B, T, n_heads, hs).transpose(1, 2)
    k = (x @ W_K).view(B, T, n_heads, hs).transpose(1, 2)
    v = (x @ W_V).view(B, T, n_heads, hs).transpose(1, 2)
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(C))
    tril = torch.tril(torch.ones(T, T))
    att = att.masked_fill(tril == 0, float("-inf"))
    att = F.softmax(att, dim=-1)
    return (att @ v).transpose(1, 2).contiguous().view(B, T, C)


def unscaled_and_zeroed_late(x, W_Q, W_K, W_V, W_O, n_heads):
    _B, T, d_model = x.shape
    d = d_model // n_heads
    outs = []
    visible = torch.tril(torch.ones(T, T, dtype=x.dtype))
    for h in range(n_heads):
        part = slice(h * d, (h + 1) * d)
        q, k, v = x @ W_Q[:, part], x @ W_K[:, part], x @ W_V[:, part]
        weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)), dim=-1)
        weights = weights * visible
        outs.append(weights @ v)
    return torch.cat(outs, dim=-1) @ W_O


def next_token_and_heads_laid_across(x, W_Q, W_K, W_V, W_O, n_heads):
    batch, length, width = x.shape
    dim = width // n_heads
    q, k, v = (torch.matmul(x, w).reshape(batch, length, n_heads, dim).permute(0, 2, 1, 3) for w in (W_Q, W_K, W_V))
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / dim**0.5
    hidden = torch.triu(torch.ones(length, length), diagonal=2).bool()
    scores = scores.masked_fill(hidden, float("-inf"))
    out = torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), v)
    return out.reshape(batch, length, width) @ W_O


DOUBLES = {
    "masks.causal": [
        (ones_above_the_diagonal, ("inverted", "numbers instead of True and False")),
        (next_token_from_the_corner, ("sees the next token", "diagonal not moved")),
        (hidden_square, ("inverted", "S ignored")),
    ],
    "masks.padding": [
        (too_many_without_axes, ("one token too many", "(B, S)")),
        (padding_true_as_wide_as_the_longest, ("inverted", "S ignored")),
        (ones_with_full_rows_hidden, ("full row hidden", "numbers instead of True and False")),
    ],
    "masks.documents": [
        (same_documents_hidden_in_numbers, ("inverted", "numbers instead of True and False")),
        (next_token_without_heads, ("sees the next token", "(B, T, T)")),
        (both_ways_without_padding, ("both directions", "padding without a key")),
    ],
    "masks.leak_test": [
        (first_text_by_favourite, ("only one text looked at", "most probable tokens compared")),
        (past_the_vocabulary_and_not_the_last, ("beyond the vocabulary", "last token never changed")),
        (signed_on_the_last_token, ("sign kept", "only the last token changed")),
    ],
    "masks.masked_attention": [
        (wide_root_and_no_projection, ("scaled by the whole width", "no output projection")),
        (unscaled_and_zeroed_late, ("scaling missing", "zeroed after the softmax")),
        (next_token_and_heads_laid_across, ("sees the next token", "heads laid together across tokens")),
    ],
}
