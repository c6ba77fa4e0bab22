"""Answers with two mistakes of the page at once: attention."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def naive_over_everything(x, dim):
    e = torch.exp(x)
    return e / torch.sum(e)


def one_maximum_last_axis(x, dim):
    shifted = x - torch.max(x)
    numerator = torch.exp(shifted)
    return numerator / numerator.sum(-1, keepdim=True)


def centred_without_keepdim(x, dim):
    centred = x - x.mean(dim=dim, keepdim=True)
    e = centred.exp()
    return e / e.sum(dim=dim)


def columns_of_raw_scores(Q, K):
    scores = torch.einsum("td,sd->ts", Q, K)
    return torch.softmax(scores, dim=0)


def halved_keys_by_queries(Q, K):
    scores = torch.matmul(K, Q.transpose(0, 1)) / 2.0
    return F.softmax(scores, dim=1)


def by_d_and_shares_of_scores(Q, K):
    T, D = Q.shape
    weights = torch.zeros(T, K.shape[0])
    for i in range(T):
        row = torch.stack([Q[i].dot(key) for key in K]) / D
        weights[i] = row / row.sum()
    return weights


def unscaled_position(tokens, embeddings, query_token):
    i = tokens.index(query_token)
    scores = torch.tensor([embeddings[i] @ e for e in embeddings])
    weights = torch.softmax(scores, dim=0)
    return weights.argmax().item(), weights


def by_d_without_itself(tokens, embeddings, query_token):
    position = tokens.index(query_token)
    d = embeddings.shape[1]
    scores = torch.mv(embeddings, embeddings[position]) / d
    scores[position] = float("-inf")
    weights = F.softmax(scores, dim=-1)
    return tokens[torch.argmax(weights)], weights


def column_softmax_position(tokens, embeddings, query_token):
    d = embeddings.size(-1)
    attention = torch.softmax(embeddings @ embeddings.T / d**0.5, dim=0)
    mine = attention[tokens.index(query_token)]
    return int(torch.argmax(mine)), mine


def by_d_k_with_nan(scores, d_k, scaled):
    s = scores / d_k if scaled else scores
    probs = F.softmax(s, dim=-1)
    return -(probs * torch.log(probs)).sum(-1)


def inverted_in_bits(scores, d_k, scaled):
    factor = 1.0 if scaled else d_k**-0.5
    p = torch.softmax(scores * factor, dim=-1)
    logs = torch.where(p > 0, torch.log2(p), torch.zeros_like(p))
    return -torch.sum(p * logs, dim=-1)


def positive_mean(scores, d_k, scaled):
    if scaled:
        scores = scores / math.sqrt(d_k)
    p = torch.softmax(scores, dim=-1)
    plogp = torch.special.entr(p) * -1
    return plogp.sum(dim=-1).mean()


def unscaled_and_inverted(q, k, v, mask=None):
    attn = torch.matmul(q, k.transpose(-2, -1))
    if mask is not None:
        attn = attn.masked_fill(mask, float("-inf"))
    attn = torch.softmax(attn, dim=-1)
    attn = torch.nan_to_num(attn)
    return torch.matmul(attn, v), attn


def by_d_with_nan(q, k, v, mask=None):
    d = q.shape[-1]
    energy = torch.einsum("...td,...sd->...ts", q, k) / d
    if mask is not None:
        energy = torch.where(mask, energy, float("-inf"))
    alpha = F.softmax(energy, dim=-1)
    return torch.einsum("...ts,...se->...te", alpha, v), alpha


def columns_and_output_alone(q, k, v, mask=None):
    scores = (q @ k.mT) * (k.shape[-1] ** -0.5)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    p = F.softmax(scores, dim=-2)
    if mask is not None:
        p = p.masked_fill(mask == 0, 0.0)
        p = torch.nan_to_num(p)
    return p @ v


def uniform_and_unscaled(d_k, n_pairs):
    q = torch.rand(n_pairs, d_k)
    k = torch.rand(n_pairs, d_k)
    dots = torch.einsum("nd,nd->n", q, k)
    before = dots.var()
    after = dots.var()
    return before.item(), after.item()


def deviations_by_d_k(d_k, n_pairs):
    dots = []
    for _ in range(n_pairs):
        dots.append(torch.dot(torch.randn(d_k), torch.randn(d_k)))
    dots = torch.stack(dots)
    return float(torch.std(dots)), float(torch.std(dots / d_k))


def products_and_variance_by_root(d_k, n_pairs):
    products = torch.randn(n_pairs, d_k) * torch.randn(n_pairs, d_k)
    variance = torch.var(products)
    return variance, variance / d_k**0.5


class UnscaledWithKeysMixed(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        queries = self.q_proj(x)
        keys = self.k_proj(x)
        att = torch.bmm(queries, keys.transpose(1, 2))
        if mask is not None:
            att = att.masked_fill(~mask, float("-inf"))
        att = torch.nan_to_num(F.softmax(att, dim=-1))
        return torch.bmm(att, keys)


class ColumnsAndInverted(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.scale = d_model**-0.5
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        scores = torch.einsum("btd,bsd->bts", q, k) * self.scale
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        return torch.softmax(scores, dim=1) @ v


class ResidualWithNaN(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.d_model = d_model
        self.q_proj = nn.Linear(d_model, d_model, bias=True)
        self.k_proj = nn.Linear(d_model, d_model, bias=True)
        self.v_proj = nn.Linear(d_model, d_model, bias=True)

    def forward(self, x, mask=None):
        residual = x
        scores = self.q_proj(x) @ self.k_proj(x).mT
        scores = scores / math.sqrt(self.d_model)
        if mask is not None:
            scores = torch.where(mask, scores, torch.tensor(float("-inf"), dtype=x.dtype))
        context = scores.softmax(-1) @ self.v_proj(x)
        return residual + context


DOUBLES = {
    "attention.softmax": [
        (naive_over_everything, ("no maximum subtracted", "sum over everything")),
        (one_maximum_last_axis, ("maximum of the whole tensor", "ignores dim")),
        (centred_without_keepdim, ("mean subtracted", "sum without keepdim")),
    ],
    "attention.worked_example": [
        (columns_of_raw_scores, ("scaling missing", "softmax over the queries")),
        (halved_keys_by_queries, ("always divided by two", "queries and keys exchanged")),
        (by_d_and_shares_of_scores, ("scaled by D", "no exponential")),
    ],
    "attention.who_is_it": [
        (unscaled_position, ("scaling missing", "index instead of token")),
        (by_d_without_itself, ("scaled by D", "itself left out")),
        (column_softmax_position, ("softmax over the queries", "index instead of token")),
    ],
    "attention.saturation": [
        (by_d_k_with_nan, ("scaled by d_k", "NaN at weight 0")),
        (inverted_in_bits, ("flag inverted", "bits")),
        (positive_mean, ("minus sign missing", "mean over the rows")),
    ],
    "attention.scaled_dot_product": [
        (unscaled_and_inverted, ("scaling missing", "mask inverted")),
        (by_d_with_nan, ("scaled by D", "NaN where nothing may be seen")),
        (columns_and_output_alone, ("softmax over the queries", "weights not returned")),
    ],
    "attention.score_variance": [
        (uniform_and_unscaled, ("uniform draws", "not scaled")),
        (deviations_by_d_k, ("standard deviation", "scaled by d_k")),
        (products_and_variance_by_root, ("products not summed", "variance divided by the root")),
    ],
    "attention.self_attention": [
        (UnscaledWithKeysMixed, ("scaling missing", "keys used as values")),
        (ColumnsAndInverted, ("softmax over the queries", "mask inverted")),
        (ResidualWithNaN, ("x added", "NaN where nothing may be seen")),
    ],
}
