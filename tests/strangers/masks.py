"""Right answers in the manner of others: masks."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# --- masks ------------------------------------------------------------------------------------------------------------


def causal_with_cached_columns(T, S=None):
    """A square for what is new, and a block of ones to its left for what is cached."""
    S = T if S is None else S
    new = torch.full((T, T), float("-inf")).triu(diagonal=1)
    return torch.hstack([torch.zeros(T, S - T), new]) == 0


def causal_by_indices(T, S=None):
    cached = 0 if S is None else S - T
    mask = torch.zeros(T, T + cached, dtype=torch.bool)
    row, column = torch.tril_indices(T, T + cached, offset=cached)
    mask[row, column] = True
    return mask


def causal_padded(T: int, S: int | None = None) -> Tensor:
    if S is None:
        S = T
    assert S >= T
    square = torch.ones((T, T), dtype=torch.int64).tril().bool()
    return F.pad(square, (S - T, 0), value=True)


def causal_row_by_row(T, S=None):
    total = S or T
    rows = []
    for t in range(T):
        visible = total - T + t + 1
        rows.append(torch.cat([torch.ones(visible), torch.zeros(total - visible)]))
    return torch.stack(rows).to(torch.bool)


def causal_by_running_sum(T, S=None):
    """Ones from each query's own key on, counted up: nothing counted before it, and one there."""
    S = T if S is None else S
    own = F.one_hot(torch.arange(S - T, S), S)
    return own.flip(-1).cumsum(-1).flip(-1).gt(0)


def padding_by_lookup(lengths, S):
    """Every possible row once, then a look-up."""
    rows = torch.tril(torch.ones(S + 1, S), diagonal=-1).bool()
    return rows[lengths].unsqueeze(1).unsqueeze(2)


def padding_by_sequences(lengths, S):
    ones = [torch.ones(int(n)) for n in lengths]
    padded = nn.utils.rnn.pad_sequence(ones, batch_first=True)
    padded = F.pad(padded, (0, S - padded.size(1)))
    return (padded != 0)[:, None, None]


def padding_from_attention_mask(lengths, S):
    """First the zeros and ones that tokenizers give, then two axes, then True and False."""
    attention_mask = torch.zeros(lengths.size(0), S, dtype=torch.long)
    for i, n in enumerate(lengths):
        attention_mask[i, :n] = 1
    extended_attention_mask = attention_mask[:, None, None, :]
    return extended_attention_mask.bool()


def padding_in_lists(lengths, S):
    return torch.tensor([[[[s < n for s in range(S)]]] for n in lengths.tolist()])


def padding_expanded(lengths, max_len):
    """A sequence mask, negated twice."""
    steps = torch.arange(max_len, dtype=lengths.dtype).expand(len(lengths), max_len)
    is_pad = steps.ge(lengths.unsqueeze(1))
    return is_pad.logical_not().view(len(lengths), 1, 1, max_len)


def documents_as_flex_attention_has_them(document_ids):
    """A function of four indices, mapped over all of them."""

    def document_causal(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (document_ids[b, q_idx] == document_ids[b, kv_idx])

    B, T = document_ids.shape
    return document_causal(*torch.meshgrid(*map(torch.arange, (B, 1, T, T)), indexing="ij"))


def documents_block_by_block(input_ids):
    """Each document's own triangle, written into a mask that hides everything."""
    bsz, seq_len = input_ids.shape
    attn_mask = torch.zeros(bsz, 1, seq_len, seq_len, dtype=torch.bool)
    for b in range(bsz):
        for doc in input_ids[b].unique():
            (index,) = torch.where(input_ids[b] == doc)
            attn_mask[b, 0, index[:, None], index] = torch.ones(len(index), len(index)).tril().bool()
    return attn_mask


def documents_hidden_by_infinity(seq_ids):
    """First a mask that is added, and then True where it adds nothing."""
    T = seq_ids.size(-1)
    bias = torch.triu(torch.full((T, T), float("-inf")), diagonal=1).expand(seq_ids.size(0), 1, T, T)
    bias = bias.masked_fill(seq_ids[:, None, :, None].ne(seq_ids[:, None, None, :]), float("-inf"))
    return bias == 0


def documents_by_one_hot_products(document_ids):
    """Tokens of one document have the same one-hot vector; the product of two vectors is 1 or 0."""
    numbers = torch.unique(document_ids, return_inverse=True)[1]
    hot = F.one_hot(numbers).float()
    together = torch.einsum("btd,bsd->bts", hot, hot).bool()
    order = torch.arange(document_ids.shape[1])
    return torch.logical_and(together, order.view(-1, 1) >= order).view(len(hot), 1, len(order), -1)


# --- attention --------------------------------------------------------------------------------------------------------


def attention_nano(x, W_Q, W_K, W_V, W_O, n_head):
    B, T, C = x.size()
    q, k, v = (x @ torch.cat([W_Q, W_K, W_V], dim=1)).split(C, dim=2)
    k = k.view(B, T, n_head, C // n_head).transpose(1, 2)  # (B, nh, T, hs)
    q = q.view(B, T, n_head, C // n_head).transpose(1, 2)
    v = v.view(B, T, n_head, C // n_head).transpose(1, 2)
    bias = torch.tril(torch.ones(T, T)).view(1, 1, T, T)
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(bias[:, :, :T, :T] == 0, float("-inf"))
    att = F.softmax(att, dim=-1)
    y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
    return y @ W_O


def attention_llama(x, wq, wk, wv, wo, n_heads):
    """Heads beside tokens until the last moment, a mask of −inf that is added, shares in float32."""
    bsz, seqlen, dim = x.shape
    head_dim = dim // n_heads
    mask = torch.full((1, 1, seqlen, seqlen), float("-inf"))
    mask = torch.triu(mask, diagonal=1).type_as(x)
    xq = (x @ wq).view(bsz, seqlen, n_heads, head_dim).transpose(1, 2)
    keys = (x @ wk).view(bsz, seqlen, n_heads, head_dim).transpose(1, 2)
    values = (x @ wv).view(bsz, seqlen, n_heads, head_dim).transpose(1, 2)
    scores = torch.matmul(xq, keys.transpose(2, 3)) / math.sqrt(head_dim)
    scores = F.softmax((scores + mask).float(), dim=-1).type_as(xq)
    return torch.matmul(torch.matmul(scores, values).transpose(1, 2).contiguous().view(bsz, seqlen, -1), wo)


def attention_gpt2_like(hidden, W_Q, W_K, W_V, W_O, num_heads):
    """torch.where with the lowest number that the dtype holds."""

    def split_heads(tensor):
        return tensor.view(*tensor.size()[:-1], num_heads, -1).permute(0, 2, 1, 3)

    query, key, value = split_heads(hidden @ W_Q), split_heads(hidden @ W_K), split_heads(hidden @ W_V)
    attn_weights = torch.matmul(query, key.transpose(-1, -2))
    attn_weights = attn_weights / torch.full([], value.size(-1) ** 0.5, dtype=attn_weights.dtype)
    T = hidden.size(1)
    causal_mask = torch.tril(torch.ones((T, T), dtype=torch.bool)).view(1, 1, T, T)
    mask_value = torch.full([], torch.finfo(attn_weights.dtype).min, dtype=attn_weights.dtype)
    attn_weights = torch.where(causal_mask, attn_weights, mask_value)
    attn_output = torch.matmul(nn.functional.softmax(attn_weights, dim=-1), value)
    return attn_output.permute(0, 2, 1, 3).reshape(hidden.shape) @ W_O


class Head(nn.Module):
    """One head with a triangle in a buffer; the heads' results are laid side by side."""

    def __init__(self, query, key, value, context_length):
        super().__init__()
        self.query, self.key, self.value = query, key, value
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

    def forward(self, x):
        keys, queries, values = x @ self.key, x @ self.query, x @ self.value
        attn_scores = queries @ keys.transpose(1, 2)
        attn_scores.masked_fill_(self.mask.bool()[: x.size(1), : x.size(1)], -torch.inf)
        return torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1) @ values


def attention_of_heads(x, W_Q, W_K, W_V, W_O, n_heads):
    d = W_Q.size(1) // n_heads
    heads = [Head(*parts, context_length=64) for parts in zip(*(W.split(d, dim=1) for W in (W_Q, W_K, W_V)))]
    return torch.cat([head(x) for head in heads], dim=-1) @ W_O


def attention_with_einsums(x, W_Q, W_K, W_V, W_O, n_heads):
    T, d = x.shape[1:]
    per_head = [W.reshape(d, n_heads, d // n_heads) for W in (W_Q, W_K, W_V)]
    q, k, v = (torch.einsum("btm,mhd->bhtd", x, W) for W in per_head)
    logits = torch.einsum("bhtd,bhsd->bhts", q, k) * np.sqrt(n_heads / d).item()
    visible = torch.arange(T)[:, None] >= torch.arange(T)
    logits = torch.where(visible, logits, -1e30)
    unnormalized = torch.exp(logits - logits.amax(-1, keepdim=True))
    probs = unnormalized / unnormalized.sum(-1, keepdim=True)
    return torch.einsum("bhts,bhsd,hdm->btm", probs, v, W_O.reshape(n_heads, -1, d))


def attention_token_by_token(x, W_Q, W_K, W_V, W_O, n_heads):
    """As in generation: each token adds its keys and values to a cache, and asks the whole cache."""
    B, T, d_model = x.shape
    outputs, cached_k, cached_v = [], None, None
    for t in range(T):
        token = x[:, t : t + 1]
        q, k, v = ((token @ W).reshape(B, 1, n_heads, -1).transpose(1, 2) for W in (W_Q, W_K, W_V))
        cached_k = k if cached_k is None else torch.cat([cached_k, k], dim=2)
        cached_v = v if cached_v is None else torch.cat([cached_v, v], dim=2)
        weights = F.softmax(q @ cached_k.mT / math.sqrt(d_model // n_heads), dim=-1)
        outputs.append((weights @ cached_v).transpose(1, 2).reshape(B, 1, d_model))
    return torch.cat(outputs, dim=1) @ W_O


def attention_in_one_batch_of_heads(x, W_Q, W_K, W_V, W_O, n_heads):
    """Batch and heads in one axis, time first on the way there, baddbmm."""
    bsz, tgt_len, embed_dim = x.shape
    head_dim = embed_dim // n_heads
    x = x.transpose(0, 1)  # (T, B, C)

    def shape(tensor):
        return tensor.contiguous().view(tgt_len, bsz * n_heads, head_dim).transpose(0, 1)

    q, k, v = shape((x @ W_Q) * head_dim**-0.5), shape(x @ W_K), shape(x @ W_V)
    future = torch.triu(torch.zeros(tgt_len, tgt_len, dtype=q.dtype).fill_(float("-inf")), 1)
    probs = F.softmax(torch.baddbmm(future.expand(len(q), -1, -1), q, k.transpose(1, 2)), dim=-1)
    attn = torch.bmm(probs, v).transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
    return (attn @ W_O).transpose(0, 1)


def attention_by_a_finished_module(x, W_Q, W_K, W_V, W_O, n_heads):
    """PyTorch's layer, given the matrices; its boolean mask is True where nobody may look."""
    layer = nn.MultiheadAttention(x.size(2), n_heads, bias=False, batch_first=True, dtype=x.dtype)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([W_Q.T, W_K.T, W_V.T]))
        layer.out_proj.weight.copy_(W_O.T)
    later = torch.ones(x.size(1), x.size(1)).triu(diagonal=1).bool()
    return layer(x, x, x, attn_mask=later, need_weights=False)[0]


def attention_in_float32(x, W_Q, W_K, W_V, W_O, n_heads):
    """The whole in float32, and only the result back in the dtype of x."""
    h, weights = x.float(), [W.float() for W in (W_Q, W_K, W_V, W_O)]
    return attention_nano(h, *weights, n_heads).type_as(x)


# --- leaks ------------------------------------------------------------------------------------------------------------


def leaks_text_by_text(model, ids):
    """Every text alone, every later token, every output before it."""
    for text in ids:
        text = text.unsqueeze(0)
        logits = model(text)
        for later in range(1, text.size(1)):
            other = text.clone()
            other[0, later] = 0 if text[0, later] > 0 else 1
            moved = model(other)
            for t in range(later):
                if (moved[0, t] - logits[0, t]).abs().max().item() > 1e-5:
                    return True
    return False


def leaks_with_a_drawn_future(model, ids):
    """The future is drawn anew, from all tokens but the one that stood there."""
    logits = model(ids)
    B, T, V = logits.shape
    for t in range(T - 1):
        for _ in range(5):
            step = torch.randint(1, V, (B, T - t - 1))
            future = (ids[:, t + 1 :] + step) % V
            out = model(torch.cat((ids[:, : t + 1], future), dim=-1))
            if not torch.allclose(out[:, : t + 1], logits[:, : t + 1], rtol=0, atol=1e-5):
                return True
    return False


def leaks_if_an_assertion_fails(model, ids):
    T = ids.shape[1]
    full = model(ids)
    try:
        for t in range(1, T):
            torch.testing.assert_close(model(ids[:, :t]), full[:, :t], rtol=0, atol=1e-5)
    except AssertionError:
        return True
    return False


def leaks_in_a_table_of_influence(model, ids):
    """Which output moves when which token changes: nothing may stand above the diagonal."""
    with torch.no_grad():
        T, before = ids.shape[1], model(ids)
        influence = np.zeros((T, T))
        for source in range(T):
            changed = ids.numpy().copy()
            changed[:, source] = (changed[:, source] + 1) % before.shape[-1]
            after = model(torch.from_numpy(changed))
            influence[:, source] = (after - before).abs().amax(dim=(0, 2)).numpy()
    return bool(np.any(np.triu(influence, k=1) > 1e-5))


def leaks_recursively(model, ids):
    """The last token must not matter to those before it; then the same without the last token."""
    if ids.shape[1] < 2:
        return False
    V = model(ids).shape[-1]
    for step in range(1, V):
        other = torch.where(torch.arange(ids.shape[1]) == ids.shape[1] - 1, (ids + step) % V, ids)
        if torch.linalg.vector_norm((model(other) - model(ids))[:, :-1], ord=torch.inf) > 1e-5:
            return True
    return leaks_recursively(model, ids[:, :-1])


STRANGERS = {
    "masks.causal": [
        causal_with_cached_columns,
        causal_by_indices,
        causal_padded,
        causal_row_by_row,
        causal_by_running_sum,
    ],
    "masks.padding": [
        padding_by_lookup,
        padding_by_sequences,
        padding_from_attention_mask,
        padding_in_lists,
        padding_expanded,
    ],
    "masks.documents": [
        documents_as_flex_attention_has_them,
        documents_block_by_block,
        documents_hidden_by_infinity,
        documents_by_one_hot_products,
    ],
    "masks.masked_attention": [
        attention_nano,
        attention_llama,
        attention_gpt2_like,
        attention_of_heads,
        attention_with_einsums,
        attention_token_by_token,
        attention_in_one_batch_of_heads,
        attention_by_a_finished_module,
        attention_in_float32,
    ],
    "masks.leak_test": [
        leaks_text_by_text,
        leaks_with_a_drawn_future,
        leaks_if_an_assertion_fails,
        leaks_in_a_table_of_influence,
        leaks_recursively,
    ],
}
