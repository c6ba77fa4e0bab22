"""Right answers of chapter 11 in other styles."""

import math
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.blocks import TransformerBlock
from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderDecoder
from course_lib.heads import MultiHeadAttention
from course_lib.masks import padding_mask
from course_lib.trace import trace


def attention_by_loops(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    """Text by text, head by head, word by word; padding is cut off before anything is computed."""
    B, T, d = decoder_x.shape
    out, D = torch.zeros_like(decoder_x), d // n_heads
    for b in range(B):
        source = encoder_out[b] if encoder_lengths is None else encoder_out[b, : encoder_lengths[b]]
        for h in range(n_heads if len(source) else 0):
            part = slice(h * D, (h + 1) * D)
            k, v = source @ W_K[:, part], source @ W_V[:, part]
            for t in range(T):
                scores = k @ (decoder_x[b, t] @ W_Q[:, part]) / D**0.5
                out[b, t, part] = F.softmax(scores, 0) @ v
    return out @ W_O


def attention_by_the_fused_kernel(x, memory, wq, wk, wv, wo, heads, lengths=None):
    q, k, v = (
        torch.stack((y @ w).chunk(heads, dim=-1), dim=1) for y, w in ((x, wq), (memory, wk), (memory, wv))
    )  # (B, H, …, D)
    mask = None if lengths is None else padding_mask(lengths.tolist(), memory.shape[1])
    y = torch.cat(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).unbind(1), dim=-1)
    if lengths is not None:
        y = torch.where(lengths[:, None, None] > 0, y, torch.zeros_like(y))
    return y @ wo


def attention_in_numpy(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    x, y, *W = (tensor.numpy() for tensor in (decoder_x, encoder_out, W_Q, W_K, W_V, W_O))
    split = lambda z, w: np.moveaxis((z @ w).reshape(*z.shape[:2], n_heads, -1), 2, 1)  # noqa: E731
    q, k, v = split(x, W[0]), split(y, W[1]), split(y, W[2])
    scores = np.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(q.shape[-1])
    scores -= scores.max(-1, keepdims=True)
    if encoder_lengths is not None:
        real = np.arange(y.shape[1]) < encoder_lengths.numpy()[:, None, None, None]
        scores = np.where(real, scores, -np.inf)
        scores -= np.maximum(scores.max(-1, keepdims=True), np.finfo(x.dtype).min)
    raised = np.exp(scores)
    weights = raised / np.maximum(raised.sum(-1, keepdims=True), np.finfo(x.dtype).tiny)
    return np.einsum("bhts,bhsd->bthd", weights, v).reshape(x.shape) @ W[3]


def attention_with_a_float32_root(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    """The scores' root as a float32 tensor, and their softmax in float32."""
    split = partial(torch.Tensor.unflatten, dim=-1, sizes=(n_heads, -1))  # (B, L, H, D)
    q, k, v = split(decoder_x @ W_Q), split(encoder_out @ W_K), split(encoder_out @ W_V)
    scores = torch.einsum("bthd,bshd->bhts", q, k) / torch.sqrt(torch.tensor(q.shape[-1], dtype=torch.float32))
    if encoder_lengths is not None:
        beyond = torch.arange(k.shape[1]) >= encoder_lengths.view(-1, 1, 1, 1)
        scores = scores.masked_fill(beyond, float("-inf"))
    weights = scores.float().softmax(-1).nan_to_num().to(decoder_x.dtype)
    return torch.einsum("bhts,bshd->bthd", weights, v).flatten(2) @ W_O


def attention_of_the_library(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    module = MultiHeadAttention(len(W_Q), n_heads, bias=False).to(decoder_x.dtype)
    for layer, W in zip((module.q_proj, module.k_proj, module.v_proj, module.out_proj), (W_Q, W_K, W_V, W_O)):
        layer.weight = nn.Parameter(W.T)
    mask = None if encoder_lengths is None else padding_mask(encoder_lengths, encoder_out.shape[1])
    return module(decoder_x, encoder_out, mask)


def attention_of_pytorch(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    mask = None
    if encoder_lengths is not None:
        mask = torch.arange(encoder_out.shape[1]) >= encoder_lengths.view(-1, 1)  # here True hides
    y, _ = F.multi_head_attention_forward(
        *(z.transpose(0, 1) for z in (decoder_x, encoder_out, encoder_out)), len(W_Q), n_heads,
        torch.cat([W_Q, W_K, W_V], dim=1).T, None, None, None, False, 0.0, W_O.T, None, key_padding_mask=mask,
    )  # fmt: skip
    return y.transpose(0, 1).nan_to_num()


def block_of_the_library(x, encoded, parts, source_mask=None):
    """The library's own block, with these parts in their places."""
    own = parts.attention
    config = TransformerConfig(1, own.d_model, own.n_heads, 1, 1, family="encoder-decoder")
    block = TransformerBlock(config, cross_attention=True)
    for name, part in parts.named_children():
        setattr(block, name, part)
    return block(x, None, encoded, source_mask)


def block_word_by_word(x, encoded, parts, source_mask=None):
    """The text grows; only the last word of each step is kept, so no mask is needed."""
    rows = []
    for t in range(1, x.size(1) + 1):
        stream, so_far = x[:, t - 1 : t], parts.norm1(x[:, :t])
        stream = stream + parts.attention(so_far[:, -1:], so_far)
        stream = torch.add(stream, parts.cross_attention(parts.cross_norm(stream), context=encoded, mask=source_mask))
        rows.append(stream + parts.feed_forward(parts.norm2(stream)))
    return torch.cat(rows, dim=1)


def block_by_the_flag(x, memory, p, mask=None):
    """The library's attention knows a flag for the triangle; a mask of all True where none is given."""
    B, S, _ = memory.shape
    mask = torch.ones(B, 1, 1, S, dtype=torch.bool) if mask is None else mask
    out = x.clone()
    out += p.attention(p.norm1(x), is_causal=True)
    out += p.cross_attention(p.cross_norm(out), memory, mask.expand(B, p.attention.n_heads, x.shape[1], S))
    out += p.feed_forward(p.norm2(out))
    return out


def shapes_by_running():
    """Every tensor as the library's model makes it."""
    config = TransformerConfig(90, 40, 5, 1, 16, family="encoder-decoder", positions="none")
    model = EncoderDecoder(config)
    source, target = torch.zeros(3, 9, dtype=torch.int64), torch.zeros(3, 6, dtype=torch.int64)
    mask = padding_mask([9, 4, 2], 9)
    with trace(model) as seen:
        logits = model(source, target, mask)
    block = "decoder.blocks.0"
    names = [f"{block}.attention.weights", *(f"{block}.cross_attention.{part}" for part in ("query", "key", "weights"))]
    shapes = [seen["encoder"], *(seen[name] for name in names), mask]
    shapes += [seen[f"{block}.cross_attention.heads"], seen[f"{block}.cross_attention"], logits]
    return [tuple(tensor.shape) for tensor in shapes]


RIGHT = {
    "encoder_decoder.attention": [
        attention_by_loops,
        attention_by_the_fused_kernel,
        attention_in_numpy,
        attention_with_a_float32_root,
        attention_of_pytorch,
    ],
    "encoder_decoder.decoder_block": [block_word_by_word, block_by_the_flag],
    "encoder_decoder.shape_trace": [shapes_by_running()],
}
OF_THE_LIBRARY = {
    "encoder_decoder.attention": [attention_of_the_library],
    "encoder_decoder.decoder_block": [block_of_the_library],
}
