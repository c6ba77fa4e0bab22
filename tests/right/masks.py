"""Right answers of chapter 3 in other styles."""

import numpy as np
import torch
import torch.nn.functional as F

from course_lib import masks as library
from tests.right import by_way_of


def causal_by_loops(T, S=None):
    S = S or T
    return torch.tensor([[s <= t + S - T for s in range(S)] for t in range(T)])


def causal_by_tril(T, S=None):
    if S is None:
        S = T
    return torch.tril(torch.ones(T, S), diagonal=S - T) == 1


def causal_in_numpy(T, S=None):
    return np.tri(T, S or T, (S or T) - T, dtype=bool)


def causal_as_the_last_rows(T, S=None):
    return ~torch.triu(torch.ones(S or T, S or T, dtype=torch.bool), diagonal=1)[-T:]


def padding_by_loops(lengths, S):
    mask = torch.zeros(len(lengths), 1, 1, S, dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row, :, :, :length] = True
    return mask


def padding_in_numpy(lengths, S):
    return (np.arange(S) < lengths.numpy()[:, None, None, None]).astype(bool)


def padding_by_running_sum(lengths, S):
    """A one where each text ends, and zero before it."""
    ends = F.one_hot(lengths, S + 1)[:, :S]
    return (ends.cumsum(-1) == 0).view(-1, 1, 1, S)


def documents_by_loops(document_ids):
    rows = document_ids.tolist()
    return torch.tensor([[[[a == b and s <= t for s, b in enumerate(row)] for t, a in enumerate(row)]] for row in rows])


def documents_in_numpy(document_ids):
    ids = document_ids.numpy()
    return np.tri(ids.shape[1], dtype=bool) & (ids[:, None, :, None] == ids[:, None, None, :])


def documents_by_differences(document_ids):
    """Equal ids differ by nothing; the lower triangle of the comparison remains."""
    apart = document_ids.unsqueeze(2) - document_ids.unsqueeze(1)
    return torch.tril(apart == 0).unsqueeze(1)


def attention_by_pytorch(x, W_Q, W_K, W_V, W_O, n_heads):
    q, k, v = ((x @ W).unflatten(-1, (n_heads, -1)).transpose(1, 2) for W in (W_Q, W_K, W_V))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2) @ W_O


def attention_by_einsum(x, W_Q, W_K, W_V, W_O, n_heads):
    T, d = x.shape[1:]
    q, k, v = (torch.einsum("btc,chd->bthd", x, W.reshape(d, n_heads, -1)) for W in (W_Q, W_K, W_V))
    scores = torch.einsum("bthd,bshd->bhts", q, k) * (d / n_heads) ** -0.5
    scores += torch.full((T, T), -1e9, dtype=x.dtype).triu(1)
    mixed = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)
    return torch.einsum("bthd,hdc->btc", mixed, W_O.view(n_heads, -1, d))


def attention_by_loops(x, W_Q, W_K, W_V, W_O, n_heads):
    D = x.shape[2] // n_heads
    out = torch.zeros_like(x)
    for head in range(n_heads):
        part = slice(head * D, (head + 1) * D)
        for b in range(len(x)):
            for t in range(x.shape[1]):
                past = x[b, : t + 1]
                weights = ((past @ W_K[:, part]) @ (x[b, t] @ W_Q[:, part]) / D**0.5).softmax(0)
                out[b, t] += weights @ past @ W_V[:, part] @ W_O[part]
    return out


def attention_in_numpy(x, W_Q, W_K, W_V, W_O, n_heads):
    x, W_Q, W_K, W_V, W_O = (np.asarray(tensor) for tensor in (x, W_Q, W_K, W_V, W_O))
    heads = []
    for q, k, v in zip(*(np.split(x @ W, n_heads, axis=-1) for W in (W_Q, W_K, W_V))):
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]).astype(x.dtype)
        scores = np.where(np.tri(x.shape[1], dtype=bool), scores, -np.inf)
        raised = np.exp(scores - scores.max(-1, keepdims=True))
        heads.append(raised / raised.sum(-1, keepdims=True) @ v)
    return np.concatenate(heads, axis=-1) @ W_O


def attention_with_a_float32_root(x, W_Q, W_K, W_V, W_O, n_heads):
    B, T, d_model = x.shape
    q, k, v = ((x @ W).view(B, T, n_heads, d_model // n_heads).transpose(1, 2) for W in (W_Q, W_K, W_V))
    scores = q @ k.transpose(2, 3) / torch.sqrt(torch.tensor(q.size(-1), dtype=torch.float32))
    scores = scores.masked_fill(torch.ones(T, T).triu(1) == 1, -torch.inf)
    return (torch.softmax(scores, dim=3) @ v).transpose(1, 2).reshape(B, T, d_model) @ W_O


def attention_with_shares_in_float32(x, W_Q, W_K, W_V, W_O, n_heads):
    """The mask is added and the softmax taken in float32, then brought back."""
    T = x.shape[1]
    q, k, v = (torch.stack((x @ W).chunk(n_heads, -1), 1) for W in (W_Q, W_K, W_V))
    hidden = torch.full((T, T), float("-inf")).triu(diagonal=1)
    scores = (q @ k.mT / q.shape[-1] ** 0.5).float() + hidden
    return torch.cat((scores.softmax(-1).type_as(x) @ v).unbind(1), -1) @ W_O


def leaks_by_prefixes(model, ids):
    """A causal model says the same about a beginning, whether or not the text goes on."""
    whole = model(ids)
    return any(not torch.allclose(model(ids[:, :t]), whole[:, :t], atol=1e-5) for t in range(1, ids.shape[1]))


def leaks_with_another_future(model, ids):
    """All later tokens at once; every token of the vocabulary in turn."""
    V, before = model(ids).shape[-1], model(ids)
    for t in range(ids.shape[1] - 1):
        for step in range(1, V):
            other = torch.cat([ids[:, : t + 1], (ids[:, t + 1 :] + step) % V], dim=1)
            if not np.allclose(model(other)[:, t], before[:, t], atol=1e-5):
                return True
    return False


def leaks_by_prefixes_to_the_given_limit(model, ids):
    whole = model(ids)
    for length in range(ids.shape[1]):
        moved = (model(ids[:, :length]) - whole[:, :length]).abs()
        if bool((moved > 0.00001).any()):
            return True
    return False


def leaks_with_other_tails(model, ids):
    """Everything after a place at once, each token replaced by one above it or below it."""
    before = model(ids)
    V = before.shape[-1]
    for first in range(1, ids.shape[1]):
        for step in (1, V - 1):
            tail = torch.remainder(ids[:, first:] + step, V)
            after = model(torch.hstack([ids[:, :first], tail]))[:, :first]
            if torch.max(torch.abs(after - before[:, :first])) > 1e-5:
                return True
    return False


def leaks_in_one_batch(model, ids):
    """All single changes of all texts, each as a row of one batch."""
    (B, T), before = ids.shape, model(ids)
    changed = (ids[:, None] + torch.eye(T, dtype=torch.long)) % before.shape[-1]  # (B, T, T): row t has another token t
    after = model(changed.view(B * T, T)).view(B, T, T, -1)
    moved = (after - before[:, None]).abs().amax(-1)  # (B, T, T): text, changed place, output
    return moved.tril(-1).max() > 1e-5


RIGHT = {
    "masks.causal": [
        causal_by_loops,
        causal_by_tril,
        causal_in_numpy,
        causal_as_the_last_rows,
    ],
    "masks.documents": [documents_by_loops, documents_in_numpy, documents_by_differences],
    "masks.padding": [padding_by_loops, padding_in_numpy, padding_by_running_sum],
    "masks.masked_attention": [
        attention_by_pytorch,
        attention_by_einsum,
        attention_by_loops,
        attention_in_numpy,
        attention_with_a_float32_root,
        attention_with_shares_in_float32,
    ],
    "masks.leak_test": [
        leaks_by_prefixes,
        leaks_by_prefixes_to_the_given_limit,
        leaks_with_another_future,
        leaks_with_other_tails,
        leaks_in_one_batch,
    ],
    "masks.patterns": [["b", "d", "i"]],
}
OF_THE_LIBRARY = {
    "masks.causal": [by_way_of(library.causal_mask)],
    "masks.padding": [by_way_of(library.padding_mask)],
    "masks.documents": [by_way_of(library.document_mask)],
}
