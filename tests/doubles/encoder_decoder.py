"""Answers with two mistakes of the page at once, chapter 11."""

import math

import torch
import torch.nn.functional as F


def wide_scale_and_nan(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    batch, tgt_len, d_model = decoder_x.shape
    src_len = encoder_out.size(1)
    head_dim = d_model // n_heads

    query = torch.matmul(decoder_x, W_Q).reshape(batch, tgt_len, n_heads, head_dim).permute(0, 2, 1, 3)
    key = torch.matmul(encoder_out, W_K).reshape(batch, src_len, n_heads, head_dim).permute(0, 2, 1, 3)
    value = torch.matmul(encoder_out, W_V).reshape(batch, src_len, n_heads, head_dim).permute(0, 2, 1, 3)

    scores = torch.einsum("bhtd,bhsd->bhts", query, key) * d_model**-0.5
    if encoder_lengths is not None:
        positions = torch.arange(src_len).unsqueeze(0)
        is_padding = positions >= encoder_lengths.unsqueeze(1)
        scores = scores.masked_fill(is_padding.unsqueeze(1).unsqueeze(2), float("-inf"))
    attn = F.softmax(scores, dim=-1)
    out = torch.einsum("bhts,bhsd->bthd", attn, value).flatten(2)
    return out @ W_O


def linear_layers_unscaled(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    B, T, C = decoder_x.shape
    S = encoder_out.shape[1]
    q = F.linear(decoder_x, W_Q).view(B, T, n_heads, -1).transpose(1, 2)
    k = F.linear(encoder_out, W_K).view(B, S, n_heads, -1).transpose(1, 2)
    v = F.linear(encoder_out, W_V).view(B, S, n_heads, -1).transpose(1, 2)
    att = q @ k.transpose(2, 3)
    if encoder_lengths is not None:
        mask = torch.arange(S)[None, :] < encoder_lengths[:, None]
        att = att.masked_fill(mask[:, None, None, :] == 0, float("-inf"))
    att = torch.nan_to_num(torch.softmax(att, dim=-1))
    y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
    return F.linear(y, W_O)


def hidden_words_and_scrambled_heads(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    B, T, d = decoder_x.shape
    S = encoder_out.shape[1]
    dk = d // n_heads

    def heads(x, W):
        return torch.stack((x @ W).split(dk, dim=-1), dim=1)

    Q, K, V = heads(decoder_x, W_Q), heads(encoder_out, W_K), heads(encoder_out, W_V)
    A = Q @ K.mT / math.sqrt(dk)
    if encoder_lengths is not None:
        mask = torch.arange(S).expand(B, S) < encoder_lengths[:, None]
        A = A.masked_fill(mask[:, None, None], -math.inf)
    A = torch.nan_to_num(A.softmax(-1), nan=0.0)
    return (A @ V).reshape(B, T, d) @ W_O


def nothing_masked(x, encoded, parts, source_mask=None):
    normed = parts.norm1(x)
    x = x + parts.attention(normed, normed, None)
    x = x + parts.cross_attention(parts.cross_norm(x), encoded, None)
    x = x + parts.feed_forward(parts.norm2(x))
    return x


def future_seen_and_last_residual_lost(x, encoded, parts, source_mask=None):
    n = x.size(1)
    look_ahead = torch.triu(torch.ones((n, n)), diagonal=0).bool()  # positions that follow
    residual = x
    out = parts.norm1(x)
    out = residual + parts.attention(out, out, look_ahead)
    residual = out
    out = residual + parts.cross_attention(parts.cross_norm(out), encoded, source_mask)
    return parts.feed_forward(parts.norm2(out))


def memory_normed_without_triangle(x, encoded, parts, source_mask=None):
    def self_attend(h):
        return parts.attention(h, h, None)

    def cross_attend(h):
        return parts.cross_attention(h, parts.cross_norm(encoded), source_mask)

    branches = [(parts.norm1, self_attend), (parts.cross_norm, cross_attend), (parts.norm2, parts.feed_forward)]
    for norm, branch in branches:
        x = x + branch(norm(x))
    return x


DOUBLES = {
    "encoder_decoder.attention": [
        (wide_scale_and_nan, ("scaled by √d_model", "NaN for an empty source")),
        (linear_layers_unscaled, ("matrices transposed", "not scaled")),
        (hidden_words_and_scrambled_heads, ("mask inverted", "merged without exchanging the axes")),
    ],
    "encoder_decoder.decoder_block": [
        (nothing_masked, ("no causal mask", "padding ignored")),
        (future_seen_and_last_residual_lost, ("causal mask transposed", "no residual stream around the feed-forward")),
        (memory_normed_without_triangle, ("source normalized", "no causal mask")),
    ],
}
