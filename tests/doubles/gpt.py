"""Answers with two mistakes of the page at once, chapter 9."""

import torch
import torch.nn.functional as F
from torch import nn


def unmasked_and_unnormed(parts, ids):
    seq_len = ids.size(1)
    n_pos = parts.position_table.size(0)
    if seq_len > n_pos:
        raise ValueError(f"sequence of {seq_len} tokens, but only {n_pos} positions")
    h = F.embedding(ids, parts.token_table) + parts.position_table[torch.arange(seq_len)]
    for layer in parts.blocks:
        h = layer(h, None)
    return F.linear(h, parts.output_table)


def counted_from_one_with_the_token_table(parts, ids):
    _B, T = ids.shape
    if parts.position_table.shape[0] < T:
        raise ValueError("too many tokens")
    tok = parts.token_table[ids]
    pos = parts.position_table[1 : T + 1]
    causal = torch.tril(torch.ones(T, T)).bool()
    h = tok + pos
    for b in parts.blocks:
        h = b(h, causal)
    return torch.einsum("btd,vd->btv", parts.final_norm(h), parts.token_table)


def blocked_where_true_and_unchecked(parts, ids):
    length = ids.shape[-1]
    blocked = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
    stream = parts.token_table[ids]
    stream = stream + parts.position_table[:length]
    for i in range(len(parts.blocks)):
        stream = parts.blocks[i](stream, blocked)
    stream = parts.final_norm(stream)
    return torch.matmul(stream, parts.output_table.t())


def tied_from_the_output_and_frozen(model):
    shared = model.output.weight
    shared.requires_grad = False
    model.token_embedding.weight = shared


def tied_by_a_frozen_copy(model):
    copy = model.token_embedding.weight.detach().clone()
    model.output.weight = nn.Parameter(copy, requires_grad=False)


def tied_backwards_and_scaled(model):
    model.token_embedding.weight = model.output.weight
    with torch.no_grad():
        model.output.weight.mul_(model.output.weight.size(-1) ** -0.5)


DOUBLES = {
    "gpt.forward": [
        (unmasked_and_unnormed, ("no mask", "no final norm")),
        (counted_from_one_with_the_token_table, ("positions from 1", "token table for output table")),
        (blocked_where_true_and_unchecked, ("mask inverted", "too long a text fails inside")),
    ],
    "gpt.tie_weights": [
        (tied_from_the_output_and_frozen, ("the wrong way round", "no longer trained")),
        # A copy that is frozen at once, or afterwards: the two are one thing.
        (tied_by_a_frozen_copy, ("values copied", "output frozen", "no longer trained")),
        (tied_backwards_and_scaled, ("the wrong way round", "scaled")),
    ],
}
