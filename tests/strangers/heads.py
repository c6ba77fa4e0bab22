"""Right answers as strangers write them, chapter 4."""

import copy
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# --- split ------------------------------------------------------------------------------------------------------------


def split_by_view(x, n_heads):
    B, T, C = x.size()
    return x.view(B, T, n_heads, C // n_heads).transpose(1, 2)


def split_for_scores(hidden_states: Tensor, num_attention_heads: int) -> Tensor:
    assert hidden_states.dim() == 3
    head_size = int(hidden_states.size(-1) / num_attention_heads)
    new_shape = (*hidden_states.size()[:-1], num_attention_heads, head_size)
    return hidden_states.view(*new_shape).permute(0, 2, 1, 3)


def split_time_first(x, n_heads):
    bsz, length, dim = x.shape
    seq_first = x.transpose(0, 1)  # (T, B, d_model)
    flat = seq_first.contiguous().view(length, bsz * n_heads, dim // n_heads).transpose(0, 1)  # (B · H, T, D)
    return flat.view(bsz, n_heads, length, dim // n_heads)


def split_by_list(x, n_heads):
    size = x.shape[-1] // n_heads
    heads = []
    for h in range(n_heads):
        heads.append(x[:, :, h * size : (h + 1) * size])
    return torch.stack(heads, 1)


def split_by_selection(x, n_heads):
    """One matrix product with ones and zeros: row c of head h is 1 where feature c is its own."""
    d = x.shape[-1]
    chosen = torch.eye(d, dtype=x.dtype).reshape(d, n_heads, d // n_heads)
    return torch.einsum("btc,chd->bhtd", x, chosen)


def split_by_gather(x, n_heads):
    B, T, d = x.shape
    wide = x[:, None].expand(B, n_heads, T, d)
    columns = torch.arange(d).view(1, n_heads, 1, d // n_heads).expand(B, n_heads, T, d // n_heads)
    return wide.gather(-1, columns)


# --- merge ------------------------------------------------------------------------------------------------------------


def merge_by_view(y):
    B, nh, T, hs = y.shape
    return y.transpose(1, 2).contiguous().view(B, T, nh * hs)


def merge_context_layer(context_layer: Tensor) -> Tensor:
    context_layer = context_layer.permute(0, 2, 1, 3).contiguous()
    all_head_size = context_layer.size()[-2] * context_layer.size()[-1]
    return context_layer.view((*context_layer.size()[:-2], all_head_size))


def merge_time_first(x):
    bsz, heads, length, head_dim = x.shape
    flat = x.reshape(bsz * heads, length, head_dim)
    return flat.transpose(0, 1).reshape(length, bsz, heads * head_dim).transpose(0, 1)


def merge_token_by_token(x):
    sentences = []
    for b in range(x.shape[0]):
        tokens = []
        for t in range(x.shape[2]):
            tokens.append(torch.cat([x[b, h, t] for h in range(x.shape[1])]))
        sentences.append(torch.stack(tokens))
    return torch.stack(sentences)


def merge_swapaxes(x):
    return torch.flatten(torch.swapaxes(x, -3, -2), start_dim=-2)


def merge_in_numpy(x):
    moved = np.moveaxis(x.numpy(), 1, 2)
    return torch.from_numpy(np.ascontiguousarray(moved).reshape(*moved.shape[:2], -1))


# --- one head after the other -----------------------------------------------------------------------------------------


class _Head:
    """One head of self-attention that holds its own three slices."""

    def __init__(self, W_query, W_key, W_value):
        self.W_query, self.W_key, self.W_value = W_query, W_key, W_value

    def __call__(self, x, mask):
        keys, queries, values = x @ self.W_key, x @ self.W_query, x @ self.W_value
        attn_scores = queries @ keys.transpose(1, 2)
        if mask is not None:
            attn_scores.masked_fill_(~mask, -torch.inf)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        return attn_weights @ values


def loop_over_head_objects(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
    d_out = W_Q.shape[1] // n_heads
    heads = [_Head(*(W[:, i : i + d_out] for W in (W_Q, W_K, W_V))) for i in range(0, W_Q.shape[1], d_out)]
    context = torch.cat([head(x, mask) for head in heads], dim=-1)
    return context @ W_O


def _attention(query, key, value, mask=None):
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    return torch.matmul(p_attn, value), p_attn


def loop_annotated(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
    d_k = x.size(-1) // n_heads
    results = []
    for h in range(n_heads):
        cols = torch.arange(h * d_k, (h + 1) * d_k)
        q, k, v = (torch.matmul(x, W.index_select(1, cols)) for W in (W_Q, W_K, W_V))
        results.append(_attention(q, k, v, mask)[0])
    return torch.matmul(torch.cat(results, -1), W_O)


def loop_by_vmap(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
    d_model = x.shape[-1]
    per_head = [W.reshape(d_model, n_heads, -1).permute(1, 0, 2) for W in (W_Q, W_K, W_V)]  # (H, d_model, D)
    bias = torch.zeros((), dtype=x.dtype)
    if mask is not None:
        bias = torch.zeros(mask.shape, dtype=x.dtype).masked_fill(~mask, torch.finfo(x.dtype).min)

    def one(wq, wk, wv):
        logits = torch.einsum("bqd,bkd->bqk", x @ wq, x @ wk) / np.sqrt(wq.shape[1])
        return torch.einsum("bqk,bkd->bqd", torch.softmax(logits + bias, -1), x @ wv)

    found = torch.vmap(one, out_dims=2)(*per_head)  # (B, T, H, D)
    return torch.einsum("bthd,hdc->btc", found, W_O.reshape(n_heads, -1, d_model))


def loop_with_a_float_softmax(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
    head_dim = x.shape[-1] // n_heads
    out = torch.zeros_like(x)
    for h in range(n_heads):
        s = slice(h * head_dim, (h + 1) * head_dim)
        xq, xk, xv = x @ W_Q[:, s], x @ W_K[:, s], x @ W_V[:, s]
        scores = torch.matmul(xq, xk.transpose(1, 2)) / torch.sqrt(torch.tensor(head_dim, dtype=torch.float32))
        if mask is not None:
            scores = scores + torch.zeros_like(scores).masked_fill(torch.logical_not(mask), float("-inf"))
        scores = F.softmax(scores.float(), dim=-1).type_as(xq)
        out[..., s] = torch.matmul(scores, xv)
    return out @ W_O


def loop_number_by_number(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
    """Every query by itself: its scores, their exponentials, and the mean of the values."""
    B, T, d_model = x.shape
    D = d_model // n_heads
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    joined = torch.zeros(B, T, d_model, dtype=x.dtype)
    for b in range(B):
        visible = [[True] * T for _ in range(T)]
        if mask is not None:
            visible = (mask[b] if mask.dim() == 3 else mask).tolist()
        for h in range(n_heads):
            lo, hi = h * D, (h + 1) * D
            for t in range(T):
                keys = [s for s in range(T) if visible[t][s]]
                scores = [float(q[b, t, lo:hi].dot(k[b, s, lo:hi])) / math.sqrt(D) for s in keys]
                top = max(scores)
                powers = [math.exp(score - top) for score in scores]
                for s, power in zip(keys, powers):
                    joined[b, t, lo:hi] += power / sum(powers) * v[b, s, lo:hi]
    return joined @ W_O


def loop_recursive(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
    if n_heads == 0:
        return torch.zeros_like(x)
    (q, restq), (k, restk), (v, restv) = ((W[:, : (D := W.shape[1] // n_heads)], W[:, D:]) for W in (W_Q, W_K, W_V))
    D = q.shape[1]
    block = None if mask is None else mask.logical_not()
    scores = torch.baddbmm(torch.zeros(1, dtype=x.dtype), x @ q, (x @ k).mT, beta=0, alpha=D**-0.5)
    if block is not None:
        scores[block.expand_as(scores)] = -torch.inf
    here = torch.softmax(scores, 2) @ (x @ v) @ W_O[:D]
    return here + loop_recursive(x, restq, restk, restv, W_O[D:], n_heads - 1, mask)


# --- the module -------------------------------------------------------------------------------------------------------


class _FourLayers(nn.Module):
    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        assert d_model % n_heads == 0
        self.embed_dim, self.num_heads, self.head_dim = d_model, n_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=True)
        self.k_proj = nn.Linear(d_model, d_model, bias=True)
        self.v_proj = nn.Linear(d_model, d_model, bias=True)
        self.out_proj = nn.Linear(d_model, d_model, bias=True)

    def shape(self, tensor, length):
        return tensor.view(-1, length, self.num_heads, self.head_dim).transpose(1, 2).contiguous()


class FusedProjections(_FourLayers):
    """One product for all three, cut afterwards."""

    def forward(self, x, mask=None):
        B, T, C = x.size()
        layers = (self.q_proj, self.k_proj, self.v_proj)
        qkv = F.linear(x, torch.cat([p.weight for p in layers]), torch.cat([p.bias for p in layers]))
        q, k, v = (t.view(B, T, self.num_heads, C // self.num_heads).transpose(1, 2) for t in qkv.split(C, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        if mask is not None:
            att = att.masked_fill(mask == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = torch.nan_to_num(att, nan=0.0)
        y = att @ v
        return self.out_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class AdditiveMask(_FourLayers):
    """The mask as numbers that are added to the scores; rows without a key are cleared afterwards."""

    def forward(self, hidden_states, attention_mask=None):
        length = hidden_states.size(1)
        query = self.shape(self.q_proj(hidden_states), length)
        key = self.shape(self.k_proj(hidden_states), length)
        value = self.shape(self.v_proj(hidden_states), length)
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.head_dim)
        alive = 1.0
        if attention_mask is not None:
            keep = attention_mask.to(dtype=scores.dtype)
            scores = torch.maximum(scores + (1.0 - keep) * torch.finfo(scores.dtype).min, torch.tensor(
                torch.finfo(scores.dtype).min, dtype=scores.dtype))  # fmt: skip
            alive = attention_mask.any(dim=-1, keepdim=True).to(scores.dtype)
        probs = nn.functional.softmax(scores, dim=-1) * alive
        context = torch.matmul(probs, value).permute(0, 2, 1, 3).contiguous()
        return self.out_proj(context.view(*context.shape[:2], self.embed_dim))


class BatchedMatrixProducts(_FourLayers):
    """Heads and sentences in one axis, the query scaled before the product."""

    def forward(self, x, mask=None):
        bsz, tgt_len, embed_dim = x.shape
        q = self.q_proj(x) * self.head_dim**-0.5
        k, v = self.k_proj(x), self.v_proj(x)
        q, k, v = (t.transpose(0, 1).reshape(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
                   for t in (q, k, v))  # fmt: skip
        weights = torch.bmm(q, k.transpose(1, 2))
        if mask is not None:
            allowed = mask.expand(bsz, self.num_heads, tgt_len, tgt_len).reshape(-1, tgt_len, tgt_len)
            weights = weights.masked_fill(~allowed, float("-inf"))
            probs = F.softmax(weights, dim=-1).masked_fill(~allowed, 0.0)
        else:
            probs = F.softmax(weights, dim=-1)
        attn = torch.bmm(probs, v).transpose(0, 1).reshape(tgt_len, bsz, embed_dim)
        return self.out_proj(attn).transpose(0, 1)


class ByEinsum(_FourLayers):
    def forward(self, x, mask=None):
        h = self.num_heads
        q, k, v = (t.unflatten(-1, (h, -1)) for t in (self.q_proj(x), self.k_proj(x), self.v_proj(x)))
        sim = torch.einsum("b i h d, b j h d -> b h i j", q, k) * q.shape[-1] ** -0.5
        if mask is not None:
            sim = sim.masked_fill(~mask, -torch.finfo(sim.dtype).max)
        sim = sim - sim.amax(dim=-1, keepdim=True).detach()
        attn = sim.exp()
        if mask is not None:
            attn = attn * mask
        attn = attn / attn.sum(-1, keepdim=True).clamp(min=1e-30)
        return self.out_proj(torch.einsum("b h i j, b j h d -> b i h d", attn, v).flatten(-2))


class SoftmaxInFloat(_FourLayers):
    """The softmax in float32, its result back in the dtype of the queries."""

    def forward(self, x, mask=None):
        bsz, seqlen, _ = x.shape
        xq, xk, xv = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        xq, xk, xv = (t.view(bsz, seqlen, self.num_heads, self.head_dim).transpose(1, 2) for t in (xq, xk, xv))
        scores = torch.matmul(xq, xk.transpose(2, 3)) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = torch.where(mask, scores, float("-inf"))
        scores = F.softmax(scores.float(), dim=-1).type_as(xq)
        scores = torch.where(torch.isnan(scores), torch.zeros_like(scores), scores)
        output = torch.matmul(scores, xv)
        output = output.transpose(1, 2).contiguous().view(bsz, seqlen, -1)
        return self.out_proj(output)


class QueryByQuery(_FourLayers):
    """Loops over sentences, heads and queries; a query that sees nothing keeps its zeros."""

    def forward(self, x, mask=None):
        B, T, C = x.shape
        Q, K, V = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        full = torch.ones(B, self.num_heads, T, T, dtype=torch.bool)
        if mask is not None:
            full = full & mask
        out = torch.zeros(B, T, C, dtype=x.dtype)
        for b in range(B):
            for h in range(self.num_heads):
                own = slice(h * self.head_dim, (h + 1) * self.head_dim)
                for t in range(T):
                    seen = full[b, h, t].nonzero()[:, 0]
                    if len(seen) == 0:
                        continue
                    scores = K[b, seen, own] @ Q[b, t, own] / self.head_dim**0.5
                    out[b, t, own] = scores.softmax(0) @ V[b, seen, own]
        return self.out_proj(out)


class QuarterRoots(_FourLayers):
    """Queries and keys each divided by the fourth root, the softmax from logarithms."""

    def forward(self, x, mask=None):
        q, k, v = (torch.stack(p(x).chunk(self.num_heads, -1), 1) for p in (self.q_proj, self.k_proj, self.v_proj))
        root = self.head_dim**0.25
        w = (q / root) @ (k / root).mT
        if mask is not None:
            w = w.where(mask, torch.tensor(-torch.inf, dtype=w.dtype))
        w = torch.exp(w - torch.logsumexp(w, -1, keepdim=True))
        w = w.nan_to_num(0)
        return self.out_proj(torch.cat((w @ v).unbind(1), -1))


class BufferedScale(_FourLayers):
    """The root of the head's width as a float32 buffer, dropout of 0, and −1e10 for what is hidden."""

    def __init__(self, hid_dim, n_heads):
        super().__init__(hid_dim, n_heads)
        self.dropout = nn.Dropout(0.0)
        self.register_buffer("scale", torch.sqrt(torch.FloatTensor([hid_dim // n_heads])))

    def forward(self, x, mask=None):
        batch_size, width = x.shape[0], x.shape[-1]
        Q, K, V = (
            fc(x).view(batch_size, -1, self.num_heads, self.head_dim).permute(0, 2, 1, 3)
            for fc in (self.q_proj, self.k_proj, self.v_proj)
        )
        energy = torch.matmul(Q, K.permute(0, 1, 3, 2)) / self.scale
        if mask is not None:
            energy = energy.masked_fill(mask == 0, -1e10)
        attention = torch.softmax(energy, dim=-1)
        if mask is not None:
            attention = attention * mask.any(dim=-1, keepdim=True)
        x = torch.matmul(self.dropout(attention), V)
        return self.out_proj(x.permute(0, 2, 1, 3).contiguous().view(batch_size, -1, width))


# --- repeat -----------------------------------------------------------------------------------------------------------


def repeat_as_llama(x, n_heads):
    bs, n_kv_heads, slen, head_dim = x.shape
    n_rep = n_heads // n_kv_heads
    if n_rep == 1:
        return x
    return x[:, :, None, :, :].expand(bs, n_kv_heads, n_rep, slen, head_dim).reshape(bs, n_heads, slen, head_dim)


def repeat_by_appending(k, n_heads):
    group_size = n_heads // k.shape[1]
    out = []
    for query_head in range(n_heads):
        out.append(k[:, query_head // group_size])
    return torch.stack(out, dim=1)


def repeat_by_stacking(k, n_heads):
    return torch.stack([k] * (n_heads // k.size(1)), dim=2).flatten(1, 2)


def repeat_by_einsum(k, n_heads):
    groups = torch.eye(k.shape[1], dtype=k.dtype).repeat_interleave(n_heads // k.shape[1], dim=0)  # (H, H_kv)
    return torch.einsum("hg,bgsd->bhsd", groups, k)


def repeat_with_an_output_size(k, n_heads):
    times = torch.full((k.shape[1],), n_heads // k.shape[1])
    return torch.repeat_interleave(k, times, dim=-3, output_size=n_heads)


def repeat_into_an_empty_tensor(k, n_heads):
    B, H_kv, S, D = k.shape
    out = torch.empty(B, n_heads, S, D, dtype=k.dtype)
    step = n_heads // H_kv
    for i in range(step):
        out[:, i::step] = k
    return out


# --- how many heads ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def _estimate_loss(model, held_out):
    was = model.training
    model.eval()
    X, Y = held_out
    _, loss = model(X, Y)
    model.train(was)
    return loss.item()


def heads_by_estimate(make_model, heads, batches, held_out, lr, seeds):
    losses = defaultdict(list)
    for n_head in heads:
        for seed in seeds:
            model = make_model(n_head, seed)
            model.train()
            optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.999), weight_decay=0.01)
            for X, Y in batches:
                logits, loss = model(X, Y)
                assert logits.shape[:2] == Y.shape
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            losses[n_head].append(_estimate_loss(model, held_out))
    return {n_head: statistics.mean(found) for n_head, found in losses.items()}


@dataclass
class _Run:
    make: object
    n_heads: int
    seed: int

    def train(self, batches, lr):
        self.model = self.make(self.n_heads, self.seed)
        optimizer = torch.optim.AdamW([{"params": list(self.model.parameters())}], lr=lr, foreach=False)
        for number in range(len(batches)):
            optimizer.zero_grad()
            loss = self.model(batches[number][0], batches[number][1])[1]
            loss.backward()
            optimizer.step()
        return self

    def measure(self, ids, targets):
        """Row by row, without a gradient, on a copy in evaluation mode."""
        still = copy.deepcopy(self.model).eval()
        with torch.inference_mode():
            return np.mean([still(ids[i : i + 1], targets[i : i + 1])[1].item() for i in range(len(ids))])


def heads_by_run_objects(make_model, heads, batches, held_out, lr, seeds):
    runs = [_Run(make_model, n, seed).train(batches, lr) for seed in seeds for n in heads]
    return {n: float(np.mean([run.measure(*held_out) for run in runs if run.n_heads == n])) for n in heads}


STRANGERS = {
    "heads.split": [
        split_by_view,
        split_for_scores,
        split_time_first,
        split_by_list,
        split_by_selection,
        split_by_gather,
    ],
    "heads.merge": [
        merge_by_view,
        merge_context_layer,
        merge_time_first,
        merge_token_by_token,
        merge_swapaxes,
        merge_in_numpy,
    ],
    "heads.loop": [
        loop_over_head_objects,
        loop_annotated,
        loop_by_vmap,
        loop_with_a_float_softmax,
        loop_number_by_number,
        loop_recursive,
    ],
    "heads.module": [
        FusedProjections,
        AdditiveMask,
        BatchedMatrixProducts,
        ByEinsum,
        SoftmaxInFloat,
        QueryByQuery,
        QuarterRoots,
        BufferedScale,
    ],
    "heads.grouped": [
        repeat_as_llama,
        repeat_by_appending,
        repeat_by_stacking,
        repeat_by_einsum,
        repeat_with_an_output_size,
        repeat_into_an_empty_tensor,
    ],
    "heads.how_many": [heads_by_estimate, heads_by_run_objects],
}
