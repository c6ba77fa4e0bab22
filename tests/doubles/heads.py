"""Answers with two mistakes of the page at once, chapter 4."""

import math

import torch
import torch.nn.functional as F
from torch import nn

# --- split, merge, repeat ---------------------------------------------------------------------------------------------


def split_dealt_and_not_moved(x, n_heads):
    batch, seq, dim = x.size()
    per_head = dim // n_heads
    return x.reshape(batch, seq, per_head, n_heads).transpose(2, 3)


def split_wrong_count_at_once(x, n_heads):
    b, t, c = x.shape
    head_size = c // n_heads
    return x.reshape(b, head_size, t, n_heads)


def split_batch_of_heads_at_once(x, n_heads):
    bsz, length, width = x.shape
    return x.reshape(bsz * n_heads, length, width // n_heads)


def merge_rows_of_everything(x):
    width = x.size(1) * x.size(3)
    return x.reshape(-1, width)


def merge_interleaved_and_flat(x):
    sentences = []
    for sentence in x:
        sentences.append(torch.cat([token.T.reshape(-1) for token in sentence.unbind(1)]))
    return torch.stack(sentences)


def merge_unfinished_single(x):
    x = x.float()
    return x.permute(0, 2, 1, 3).contiguous()


def repeat_tokens_too_often(k, n_heads):
    return torch.repeat_interleave(k, n_heads, dim=2)


def tile_too_often(k, n_heads):
    return torch.cat([k for _ in range(n_heads)], dim=1)


def twice_and_tiled(k, n_heads):
    return torch.cat((k, k), dim=1)


# --- attention --------------------------------------------------------------------------------------------------------


def loop_unscaled_and_unprojected(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
    d = x.size(-1) // n_heads
    outputs = []
    for i in range(n_heads):
        a, b = i * d, (i + 1) * d
        query = torch.matmul(x, W_Q[:, a:b])
        key = torch.matmul(x, W_K[:, a:b])
        value = torch.matmul(x, W_V[:, a:b])
        att = torch.bmm(query, key.transpose(1, 2))
        if mask is not None:
            att = att.masked_fill(mask == 0, float("-inf"))
        outputs.append(torch.bmm(F.softmax(att, dim=-1), value))
    return torch.cat(outputs, dim=2)


def loop_root_of_d_model_and_inverted(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
    _B, _T, C = x.shape
    wide = C // n_heads
    heads = []
    for q_cols, k_cols, v_cols in zip(W_Q.split(wide, 1), W_K.split(wide, 1), W_V.split(wide, 1)):
        energy = torch.einsum("btd,bsd->bts", x @ q_cols, x @ k_cols) / C**0.5
        if mask is not None:
            energy = energy.masked_fill(mask, -math.inf)
        heads.append(torch.einsum("bts,bsd->btd", energy.softmax(-1), x @ v_cols))
    return torch.cat(heads, -1) @ W_O


def loop_as_if_linear(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
    hs = x.shape[-1] // n_heads
    result = []
    for head in range(n_heads):
        rows = slice(head * hs, head * hs + hs)
        q = F.linear(x, W_Q[rows])
        k = F.linear(x, W_K[rows])
        v = F.linear(x, W_V[rows])
        w = q @ k.mT * hs**-0.5
        if mask is not None:
            w = torch.where(mask, w, torch.tensor(float("-inf"), dtype=w.dtype))
        result.append(torch.softmax(w, -1) @ v)
    return F.linear(torch.cat(result, -1), W_O)


class _Layers(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = n_heads
        self.d_head = d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)


class UnscaledAndInverted(_Layers):
    def forward(self, x, mask=None):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.heads, self.d_head).permute(0, 2, 1, 3)
        k = self.k_proj(x).view(b, t, self.heads, self.d_head).permute(0, 2, 1, 3)
        v = self.v_proj(x).view(b, t, self.heads, self.d_head).permute(0, 2, 1, 3)
        att = torch.matmul(q, k.transpose(2, 3))
        if mask is not None:
            att = att.masked_fill(mask, float("-inf"))
        att = torch.nan_to_num(att.softmax(-1))
        out = torch.matmul(att, v).permute(0, 2, 1, 3).contiguous().view(b, t, -1)
        return self.out_proj(out)


class WideRootAndPlainMerge(_Layers):
    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = (
            proj(x).reshape(B, T, self.heads, self.d_head).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * C**-0.5
        if mask is not None:
            scores = scores.masked_fill(mask.logical_not(), -math.inf)
        probs = torch.nan_to_num(F.softmax(scores, dim=-1), 0.0)
        return self.out_proj(torch.einsum("bhqk,bhkd->bhqd", probs, v).reshape(B, T, C))


class NoOutputAndMinusABillion(_Layers):
    def forward(self, x, mask=None):
        outs = []
        qs, ks, vs = (p(x).chunk(self.heads, dim=-1) for p in (self.q_proj, self.k_proj, self.v_proj))
        for h, (q, k, v) in enumerate(zip(qs, ks, vs)):
            s = q @ k.transpose(-1, -2) / math.sqrt(self.d_head)
            if mask is not None:
                m = mask.expand(x.shape[0], self.heads, x.shape[1], x.shape[1])[:, h]
                s = s.masked_fill(m == 0, -1e9)
            outs.append(s.softmax(-1) @ v)
        return torch.cat(outs, dim=-1)


# --- how many ---------------------------------------------------------------------------------------------------------


def summed_with_dropout(make_model, heads, batches, held_out, lr, seeds):
    result = dict.fromkeys(heads, 0.0)
    for h in heads:
        for s in seeds:
            net = make_model(h, s)
            opt = torch.optim.AdamW(net.parameters(), lr)
            for x, y in batches:
                opt.zero_grad(set_to_none=True)
                _out, loss = net(x, y)
                loss.backward()
                opt.step()
            with torch.no_grad():
                _, test_loss = net(held_out[0], held_out[1])
            result[h] += float(test_loss)
    return result


def piled_up_and_measured_in_training(make_model, heads, batches, held_out, lr, seeds):
    means = {}
    for number in heads:
        last = []
        for seed in seeds:
            model = make_model(number, seed)
            adam = torch.optim.AdamW(model.parameters(), lr=lr)
            for batch in batches:
                loss = model(*batch)[1]
                loss.backward()
                adam.step()
            last.append(loss.detach())
        means[number] = torch.stack(last).mean().item()
    return means


def own_rate_one_seed(make_model, heads, batches, held_out, lr, seeds):
    def run(n):
        model = make_model(n, seeds[0])
        optim = torch.optim.AdamW(model.parameters())
        for ids, targets in batches:
            optim.zero_grad()
            model(ids, targets)[1].backward()
            optim.step()
        model.eval()
        with torch.inference_mode():
            return model(*held_out)[1].item()

    return {n: run(n) for n in heads}


DOUBLES = {
    "heads.split": [
        (split_dealt_and_not_moved, ("features dealt like cards", "heads left after the tokens")),
        (split_wrong_count_at_once, ("heads and features exchanged", "no transpose")),
        (split_batch_of_heads_at_once, ("heads counted as sentences", "no transpose")),
    ],
    "heads.merge": [
        (merge_rows_of_everything, ("no transpose", "the batch merged too")),
        (merge_interleaved_and_flat, ("every H-th feature", "everything flattened")),
        (merge_unfinished_single, ("still four axes", "always float32")),
    ],
    "heads.loop": [
        (loop_unscaled_and_unprojected, ("scaling missing", "W_O left out")),
        (loop_root_of_d_model_and_inverted, ("scaled by the root of d_model", "mask inverted")),
        (loop_as_if_linear, ("rows instead of columns", "W_O transposed")),
    ],
    "heads.module": [
        (UnscaledAndInverted, ("scaling missing", "mask inverted")),
        (WideRootAndPlainMerge, ("merged without a transpose", "scaled by the root of d_model")),
        (NoOutputAndMinusABillion, ("output projection missing", "a large negative number for −inf")),
    ],
    "heads.grouped": [
        (repeat_tokens_too_often, ("tokens repeated", "repeated n_heads times")),
        (tile_too_often, ("0 1 0 1 instead of 0 0 1 1", "repeated n_heads times")),
        (twice_and_tiled, ("always in pairs", "0 1 0 1 instead of 0 0 1 1")),
    ],
    "heads.how_many": [
        (summed_with_dropout, ("sum over the seeds", "dropout left on")),
        (piled_up_and_measured_in_training, ("gradients never cleared", "training loss")),
        (own_rate_one_seed, ("lr ignored", "the first seed only")),
    ],
}
