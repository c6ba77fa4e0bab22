"""Right answers in the manner of others, chapter 11: transformers, fairseq, llama, the annotated Transformer, JAX."""

import math

import torch
import torch.nn.functional as F
from torch import nn

# --- attention from one text to another -------------------------------------------------------------------------------


def with_an_extended_mask(hidden_states, encoder_hidden_states, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    """transformers: an additive mask of the dtype's smallest number, a softmax in float32, dead rows cleared."""
    bsz, tgt_len, embed_dim = hidden_states.size()
    src_len = encoder_hidden_states.size(1)
    head_dim = embed_dim // n_heads
    scaling = head_dim**-0.5

    def _shape(tensor, seq_len):
        return tensor.view(bsz, seq_len, n_heads, head_dim).transpose(1, 2).contiguous()

    query_states = _shape(hidden_states @ W_Q, tgt_len) * scaling
    key_states = _shape(encoder_hidden_states @ W_K, src_len)
    value_states = _shape(encoder_hidden_states @ W_V, src_len)
    attn_weights = torch.matmul(query_states, key_states.transpose(2, 3))
    if encoder_lengths is not None:
        attention_mask = (torch.arange(src_len)[None, :] < encoder_lengths[:, None]).to(attn_weights.dtype)
        inverted = 1.0 - attention_mask[:, None, None, :]
        extended = inverted.masked_fill(inverted.to(torch.bool), torch.finfo(attn_weights.dtype).min)
        attn_weights = attn_weights + extended
        attn_weights = torch.max(attn_weights, torch.tensor(torch.finfo(attn_weights.dtype).min).to(attn_weights))
    attn_weights = F.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query_states.dtype)
    if encoder_lengths is not None:
        attn_weights = attn_weights * (encoder_lengths > 0).view(bsz, 1, 1, 1)
    attn_output = torch.matmul(attn_weights, value_states)
    attn_output = attn_output.transpose(1, 2).contiguous()
    return attn_output.reshape(bsz, tgt_len, embed_dim) @ W_O


def heads_in_the_batch(query, key, W_Q, W_K, W_V, W_O, num_heads, encoder_lengths=None):
    """fairseq: time first, heads folded into the batch, bmm, a key padding mask of bool."""
    query, key = query.transpose(0, 1), key.transpose(0, 1)
    tgt_len, bsz, embed_dim = query.shape
    src_len = key.shape[0]
    head_dim = embed_dim // num_heads
    q = (query @ W_Q) * head_dim**-0.5
    k, v = key @ W_K, key @ W_V
    q = q.contiguous().view(tgt_len, bsz * num_heads, head_dim).transpose(0, 1)
    k = k.contiguous().view(-1, bsz * num_heads, head_dim).transpose(0, 1)
    v = v.contiguous().view(-1, bsz * num_heads, head_dim).transpose(0, 1)
    attn_weights = torch.bmm(q, k.transpose(1, 2))
    assert list(attn_weights.shape) == [bsz * num_heads, tgt_len, src_len]
    empty = None
    if encoder_lengths is not None:
        key_padding_mask = torch.arange(src_len).unsqueeze(0) >= encoder_lengths.unsqueeze(1)
        attn_weights = attn_weights.view(bsz, num_heads, tgt_len, src_len)
        attn_weights.masked_fill_(key_padding_mask.unsqueeze(1).unsqueeze(2), float("-inf"))
        attn_weights = attn_weights.view(bsz * num_heads, tgt_len, src_len)
        empty = key_padding_mask.all(dim=1).repeat_interleave(num_heads)
    attn_probs = F.softmax(attn_weights, dim=-1)
    if empty is not None:
        attn_probs = attn_probs.masked_fill(empty[:, None, None], 0.0)
    attn = torch.bmm(attn_probs, v)
    attn = attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
    return (attn @ W_O).transpose(0, 1)


class CrossAttention(nn.Module):
    """LLMs-from-scratch: linear layers without bias, a mask of its own in a buffer."""

    def __init__(self, matrices, num_heads, src_len):
        super().__init__()
        d = len(matrices[0])
        self.num_heads, self.head_dim = num_heads, d // num_heads
        self.W_query, self.W_key, self.W_value, self.out_proj = (nn.Linear(d, d, bias=False) for _ in range(4))
        for layer, W in zip((self.W_query, self.W_key, self.W_value, self.out_proj), matrices):
            layer.weight = nn.Parameter(W.t().clone(), requires_grad=False)
        self.register_buffer("places", torch.arange(src_len))

    def forward(self, x, memory, lengths):
        b, t, d = x.shape
        queries = self.W_query(x).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        keys = self.W_key(memory).view(b, -1, self.num_heads, self.head_dim).transpose(1, 2)
        values = self.W_value(memory).view(b, -1, self.num_heads, self.head_dim).transpose(1, 2)
        attn_scores = queries @ keys.transpose(2, 3)
        attn_weights = attn_scores / keys.shape[-1] ** 0.5
        if lengths is not None:
            mask_bool = self.places >= lengths[:, None, None, None]
            attn_weights.masked_fill_(mask_bool, -torch.inf)
        attn_weights = torch.softmax(attn_weights, dim=-1)
        attn_weights = torch.where(torch.isnan(attn_weights), torch.zeros_like(attn_weights), attn_weights)
        context_vec = (attn_weights @ values).transpose(1, 2)
        return self.out_proj(context_vec.contiguous().view(b, t, d))


def through_a_module(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    module = CrossAttention((W_Q, W_K, W_V, W_O), n_heads, encoder_out.shape[1])
    return module(decoder_x, encoder_out, encoder_lengths)


def annotated_attention(query, key, value, mask=None):
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if mask is not None:
        p_attn = p_attn * mask  # a source of nothing but padding
    return torch.matmul(p_attn, value), p_attn


def annotated(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, h, encoder_lengths=None):
    """The annotated Transformer: -1e9, one unsqueeze, a comprehension over the projections."""
    nbatches, d_k = decoder_x.size(0), decoder_x.size(-1) // h
    mask = None
    if encoder_lengths is not None:
        mask = torch.stack([torch.arange(encoder_out.size(1)) < n for n in encoder_lengths]).unsqueeze(-2).unsqueeze(1)
    query, key, value = [
        (x @ W).view(nbatches, -1, h, d_k).transpose(1, 2)
        for W, x in zip((W_Q, W_K, W_V), (decoder_x, encoder_out, encoder_out))
    ]
    x, _ = annotated_attention(query, key, value, mask=mask)
    x = x.transpose(1, 2).contiguous().view(nbatches, -1, h * d_k)
    return x @ W_O


def with_matrices_of_heads(x, memory, W_Q, W_K, W_V, W_O, n_heads, lengths=None):
    """JAX-ish: the matrices get an axis of heads, and one einsum per step is all that moves an axis."""
    d = x.shape[-1]
    wq, wk, wv = (W.reshape(d, n_heads, d // n_heads) for W in (W_Q, W_K, W_V))
    wo = W_O.reshape(n_heads, d // n_heads, d)
    q = torch.einsum("btm,mhk->bthk", x, wq)
    k = torch.einsum("bsm,mhk->bshk", memory, wk)
    v = torch.einsum("bsm,mhk->bshk", memory, wv)
    logits = torch.einsum("bthk,bshk->bhts", q, k) * torch.rsqrt(torch.tensor(float(d // n_heads)))
    where = torch.ones_like(logits, dtype=torch.bool)
    if lengths is not None:
        where = where & (torch.arange(memory.shape[1]) < lengths[:, None])[:, None, None, :]
    top = torch.where(where, logits, -torch.inf).amax(-1, keepdim=True).clamp(min=torch.finfo(logits.dtype).min)
    unnormalized = torch.where(where, torch.exp(torch.where(where, logits - top, 0.0)), 0.0)
    total = unnormalized.sum(-1, keepdim=True)
    weights = unnormalized / torch.where(total == 0, 1.0, total)
    return torch.einsum("bhts,bshk,hkd->btd", weights, v, wo)


def head_after_head(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    """A beginner's loops over texts and heads, with lists and cat."""
    texts = []
    for b in range(len(decoder_x)):
        heads = []
        n = encoder_out.shape[1] if encoder_lengths is None else int(encoder_lengths[b])
        for wq, wk, wv in zip(W_Q.chunk(n_heads, 1), W_K.chunk(n_heads, 1), W_V.chunk(n_heads, 1)):
            query, key, value = decoder_x[b] @ wq, encoder_out[b, :n] @ wk, encoder_out[b, :n] @ wv
            if n == 0:
                heads.append(torch.zeros_like(query))
                continue
            rows = []
            for one in query:
                scores = torch.stack([one.dot(other) for other in key]) / math.sqrt(len(one))
                e = torch.exp(scores - scores.max())
                rows.append((e / e.sum()) @ value)
            heads.append(torch.stack(rows))
        texts.append(torch.cat(heads, dim=1))
    return torch.stack(texts) @ W_O


# --- the decoder block ------------------------------------------------------------------------------------------------


def with_residuals(hidden_states, encoder_hidden_states, parts, encoder_attention_mask=None):
    """transformers: residual = hidden_states, three times; the mask with all its axes."""
    batch, length, _ = hidden_states.size()
    causal_mask = torch.full((length, length), True).tril()[None, None].expand(batch, 1, length, length)

    residual = hidden_states
    hidden_states = parts.norm1(hidden_states)
    hidden_states = parts.attention(hidden_states, hidden_states, causal_mask)
    hidden_states = residual + hidden_states

    residual = hidden_states
    hidden_states = parts.cross_norm(hidden_states)
    hidden_states = parts.cross_attention(hidden_states, encoder_hidden_states, encoder_attention_mask)
    hidden_states = residual + hidden_states

    residual = hidden_states
    hidden_states = parts.norm2(hidden_states)
    hidden_states = parts.feed_forward(hidden_states)
    return residual + hidden_states


class SublayerConnection(nn.Module):
    """The annotated Transformer: x + sublayer(norm(x)), as a module."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x, sublayer):
        return x + sublayer(self.norm(x))


def subsequent_mask(size):
    return torch.triu(torch.ones(1, size, size), diagonal=1).type(torch.uint8) == 0


def with_sublayers(x, memory, parts, src_mask=None):
    tgt_mask = subsequent_mask(x.size(-2))
    sublayer = nn.ModuleList([SublayerConnection(norm) for norm in (parts.norm1, parts.cross_norm, parts.norm2)])
    x = sublayer[0](x, lambda x: parts.attention(x, x, tgt_mask))
    x = sublayer[1](x, lambda x: parts.cross_attention(x, memory, src_mask))
    return sublayer[2](x, parts.feed_forward)


class OwnDecoderLayer(nn.Module):
    """nanoGPT: the triangle lies in a buffer of a largest size and is cut to what is needed."""

    def __init__(self, parts, block_size=64):
        super().__init__()
        self.parts = parts
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))

    def forward(self, x, encoded, mask):
        T = x.size(1)
        h = self.parts.norm1(x)
        x = x + self.parts.attention(h, h, self.bias[:, :, :T, :T] == 1)
        x = x + self.parts.cross_attention(self.parts.cross_norm(x), encoded, mask)
        x = x + self.parts.feed_forward(self.parts.norm2(x))
        return x


def from_a_buffer(x, encoded, parts, source_mask=None):
    return OwnDecoderLayer(parts)(x, encoded, source_mask)


def text_by_text(x, encoded, parts, source_mask=None):
    """A loop over the batch: the padding of each source is cut off, so that no mask of it is left."""
    out = []
    for b in range(x.shape[0]):
        y, memory = x[b : b + 1], encoded[b : b + 1]
        if source_mask is not None:
            memory = memory[:, source_mask[b, 0, 0]]
        steps = torch.arange(y.shape[1])
        normed = parts.norm1(y)
        y = y + parts.attention(normed, normed, steps[:, None] >= steps[None, :])
        y = y + parts.cross_attention(parts.cross_norm(y), memory, None)
        out.append(y + parts.feed_forward(parts.norm2(y)))
    return torch.cat(out)


def grown_in_place(x, encoded, parts, source_mask=None):
    """llama's names; the stream is a copy that grows in place."""
    h = x.clone()
    normed = parts.norm1(h)
    position = torch.arange(h.size(1)).unsqueeze(1)
    h += parts.attention(normed, normed, torch.le(position.T, position))
    h += parts.cross_attention(parts.cross_norm(h), encoded, source_mask)
    h += parts.feed_forward(parts.norm2(h))
    return h


STRANGERS = {
    "encoder_decoder.attention": [
        with_an_extended_mask,
        heads_in_the_batch,
        through_a_module,
        annotated,
        with_matrices_of_heads,
        head_after_head,
    ],
    "encoder_decoder.decoder_block": [
        with_residuals,
        with_sublayers,
        from_a_buffer,
        text_by_text,
        grown_in_place,
    ],
}
