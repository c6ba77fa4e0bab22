"""Right answers of chapter 4 in other styles."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course_lib import heads as library
from course_lib.training import train


def split_by_chunks(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


def split_by_loops(x, n_heads):
    B, T, d_model = x.shape
    D = d_model // n_heads
    heads = x.new_empty(B, n_heads, T, D)
    for feature in range(d_model):
        heads[:, feature // D, :, feature % D] = x[:, :, feature]
    return heads


def split_in_numpy(x, n_heads):
    return np.stack(np.split(x.numpy(), n_heads, axis=2), axis=1)


def merge_by_cat(x):
    return torch.cat(list(x.unbind(dim=1)), dim=-1)


def merge_by_loops(x):
    B, H, T, D = x.shape
    out = x.new_zeros(B, T, H * D)
    for h in range(H):
        out[..., h * D : (h + 1) * D] = x[:, h]
    return out


def merge_by_einsum(x):
    return torch.einsum("bhtd->bthd", x).contiguous().view(len(x), x.shape[2], -1)


class _Projections(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.H = n_heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(d_model, d_model))


class Fused(_Projections):
    def forward(self, tokens, may_attend=None):
        q, k, v = (split_by_chunks(layer(tokens), self.H) for layer in (self.q_proj, self.k_proj, self.v_proj))
        if may_attend is not None:
            may_attend = may_attend.expand(len(tokens), self.H, tokens.shape[1], tokens.shape[1])
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=may_attend)
        return self.out_proj(merge_by_cat(heads))


class HeadByHead(_Projections):
    """Each head with its own columns of the three matrices and its own rows of W_O, whose results are added."""

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        allowed = torch.ones(B, self.H, T, T, dtype=torch.bool)
        if mask is not None:
            allowed = allowed & mask
        out = self.out_proj.bias.expand(B, T, d_model).clone()
        for h, own in enumerate(torch.arange(d_model).chunk(self.H)):
            q, k, v = (F.linear(x, p.weight[own], p.bias[own]) for p in (self.q_proj, self.k_proj, self.v_proj))
            scores = torch.einsum("btd,bsd->bts", q, k) * len(own) ** -0.5
            scores[~allowed[:, h]] = -math.inf
            out += scores.softmax(-1).nan_to_num(0.0) @ v @ self.out_proj.weight[:, own].T
        return out


class OfTheLibrary(library.MultiHeadAttention):
    def forward(self, x, mask=None):
        return super().forward(x, mask=mask, need_weights=True)[0]


class OfPyTorch(_Projections):
    """Tokens first, and True = may not attend."""

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        allowed = torch.ones(B, self.H, T, T, dtype=torch.bool) if mask is None else mask.expand(B, self.H, T, T)
        empty = ~allowed.any(-1)  # (B, H, T)
        hidden = (~allowed).masked_fill(empty[..., None], False)
        heads, _ = F.multi_head_attention_forward(
            x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1), d_model, self.H, None,
            torch.cat([self.q_proj.bias, self.k_proj.bias, self.v_proj.bias]), None, None, False, 0.0,
            torch.eye(d_model).to(x), None, attn_mask=hidden.reshape(B * self.H, T, T), need_weights=False,
            use_separate_proj_weight=True, q_proj_weight=self.q_proj.weight, k_proj_weight=self.k_proj.weight,
            v_proj_weight=self.v_proj.weight,
        )  # fmt: skip
        heads = split_by_chunks(heads.transpose(0, 1), self.H).masked_fill(empty[..., None], 0.0)
        return self.out_proj(merge_by_cat(heads))


class WithAFloat32Root(_Projections):
    def forward(self, x, mask=None):
        q, k, v = (split_by_chunks(layer(x), self.H) for layer in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.transpose(-2, -1) / torch.sqrt(torch.tensor(q.shape[-1], dtype=torch.float32))
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return self.out_proj(merge_by_cat(scores.softmax(-1).nan_to_num(0.0) @ v))


class WithSharesInFloat32(_Projections):
    """As models in half precision have it: only the softmax is taken in float32."""

    def forward(self, x, mask=None):
        q, k, v = (split_by_chunks(layer(x), self.H) for layer in (self.q_proj, self.k_proj, self.v_proj))
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).float()
        weights = scores.softmax(-1) if mask is None else torch.where(mask, scores, -torch.inf).softmax(-1)
        return self.out_proj(merge_by_cat(weights.nan_to_num().type_as(x) @ v))


def grouped_by_index(k, n_heads):
    return k[:, torch.arange(n_heads) // (n_heads // k.size(1))]


def grouped_by_expand(k, n_heads):
    B, H_kv, S, D = k.shape
    return k[:, :, None].expand(B, H_kv, n_heads // H_kv, S, D).reshape(B, n_heads, S, D)


def grouped_in_numpy(keys, n_heads):
    return np.repeat(keys.numpy(), n_heads // keys.shape[1], axis=1)


def compared_with_adam_by_hand(make_model, heads, batches, held_out, lr, seeds):
    """All models first; cross-entropy written out; Adam; the loss on held_out row by row, with gradients on."""
    models = {(seed, n_heads): make_model(n_heads, seed) for seed in seeds for n_heads in heads}
    totals = {}
    for (_, n_heads), model in models.items():
        optimizer = torch.optim.Adam(model.parameters(), lr)
        for ids, targets in batches:
            model.zero_grad()
            F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()
            optimizer.step()
        model.eval()
        rows = [
            -model(ids[None]).log_softmax(-1)[0, range(len(ids)), targets].mean() for ids, targets in zip(*held_out)
        ]
        totals.setdefault(n_heads, []).append(torch.stack(rows).mean())
    return {n_heads: torch.stack(losses).mean() for n_heads, losses in totals.items()}


def compared_with_the_library(make_model, heads, batches, held_out, lr, seeds):
    table = np.zeros((len(heads), len(seeds)))
    for i, n_heads in enumerate(heads):
        for j, seed in enumerate(seeds):
            torch.manual_seed(seed)
            model = make_model(n_heads, seed)
            train(model, iter(batches), len(batches), peak=lr, warmup=0, floor=lr, max_norm=math.inf, progress=False)
            with torch.inference_mode():
                table[i, j] = model.eval()(*held_out)[1]
    return dict(zip(heads, table.mean(axis=1)))


def loop_as_reshapes(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
    B, T, d_model = x.shape
    q, k, v = ((x @ W).unflatten(-1, (n_heads, -1)).transpose(1, 2) for W in (W_Q, W_K, W_V))
    if mask is not None and mask.ndim == 3:
        mask = mask[:, None]
    heads = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return heads.transpose(1, 2).reshape(B, T, d_model) @ W_O


def loop_that_adds_each_head(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
    y = torch.zeros_like(x)
    for q, k, v, out in zip(*(W.chunk(n_heads, dim=1) for W in (W_Q, W_K, W_V)), W_O.chunk(n_heads)):
        scores = torch.einsum("btd,bsd->bts", x @ q, x @ k) * q.shape[1] ** -0.5
        if mask is not None:
            scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
        y = y + torch.softmax(scores, -1) @ (x @ v) @ out
    return y


RIGHT = {
    "heads.loop": [loop_as_reshapes, loop_that_adds_each_head],
    "heads.split": [split_by_chunks, split_by_loops, split_in_numpy],
    "heads.merge": [merge_by_cat, merge_by_loops, merge_by_einsum],
    "heads.module": [Fused, HeadByHead, WithAFloat32Root, WithSharesInFloat32, OfPyTorch],
    "heads.grouped": [grouped_by_index, grouped_by_expand, grouped_in_numpy],
    "heads.parameters": [1_050_624.0, sum(p.numel() for p in library.MultiHeadAttention(512, 8).parameters())],
    "heads.how_many": [compared_with_adam_by_hand],
}
OF_THE_LIBRARY = {"heads.module": [OfTheLibrary], "heads.how_many": [compared_with_the_library]}
