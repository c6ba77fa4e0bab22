"""Right answers of chapter 2 in other styles."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course_lib import attention as library


def softmax_by_log(x, dim):
    return (x - x.logsumexp(dim, keepdim=True)).exp()


def softmax_by_rows(x, dim):
    out = x.movedim(dim, -1).clone(memory_format=torch.contiguous_format)
    for row in out.view(-1, out.shape[-1]).split(1):
        row -= row.max()
        row.exp_()
        row /= row.sum()
    return out.movedim(-1, dim)


def softmax_in_numpy(x, dim):
    e = np.exp(x.numpy() - x.numpy().max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


def attention_by_einsum(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) * q.size(-1) ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, torch.tensor(-math.inf, dtype=q.dtype))
    weights = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("...ts,...sv->...tv", weights, v), weights


def attention_by_loops(q, k, v, mask=None):
    scores_shape = (*q.shape[:-1], k.shape[-2])
    allowed = torch.ones(scores_shape, dtype=torch.bool) if mask is None else mask.expand(scores_shape)
    weights = q.new_zeros(scores_shape)
    for place in np.ndindex(*q.shape[:-1]):
        keys = allowed[place].nonzero().flatten()
        if len(keys):
            scores = k[(*place[:-1], keys)] @ q[place] / math.sqrt(q.shape[-1])
            weights[(*place, keys)] = scores.softmax(0)
    return weights @ v, weights


def softmax_in_float32(x, dim):
    e = (x.float() - x.float().amax(dim, keepdim=True)).exp()
    return (e / e.sum(dim, keepdim=True)).type_as(x)


def attention_with_a_float32_root(q, k, v, mask=None):
    root = torch.sqrt(torch.tensor(q.size(-1), dtype=torch.float32))
    scores = torch.matmul(q, k.transpose(-2, -1)) / root
    if mask is None:
        weights = torch.softmax(scores, dim=-1)
    else:
        weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).masked_fill(~mask, 0.0)
    return torch.matmul(weights, v), weights


def attention_with_shares_in_float32(q, k, v, mask=None):
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -math.inf)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).nan_to_num().to(v.dtype)
    return weights @ v, weights


def attention_of_the_library(q, k, v, mask=None):
    return library.scaled_dot_product_attention(q, k, v, mask)


class _ThreeProjections(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_model, d_model) for _ in range(3))


class Fused(_ThreeProjections):
    def forward(self, x, mask=None):
        return F.scaled_dot_product_attention(self.q_proj(x), self.k_proj(x), self.v_proj(x), attn_mask=mask)


class OfTheLibrary(_ThreeProjections):
    def forward(self, x, mask=None):
        return library.scaled_dot_product_attention(self.q_proj(x), self.k_proj(x), self.v_proj(x), mask)[0]


class SentenceBySentence(_ThreeProjections):
    """A loop over sentences and queries; a query's scores are those of the keys that it may see."""

    def forward(self, tokens, may_attend=None):
        B, T, _ = tokens.shape
        allowed = torch.ones(B, T, T, dtype=torch.bool)
        if may_attend is not None:
            allowed = allowed & may_attend
        out = torch.zeros_like(tokens)
        for b in range(B):
            q, k, v = (layer(tokens[b]) for layer in (self.q_proj, self.k_proj, self.v_proj))
            for t in range(T):
                seen = allowed[b, t]
                if seen.any():
                    out[b, t] = ((k[seen] @ q[t]) * q.shape[-1] ** -0.5).softmax(0) @ v[seen]
        return out


class WithAFloat32Root(_ThreeProjections):
    def forward(self, x, mask=None):
        root = torch.sqrt(torch.tensor(x.shape[-1], dtype=torch.float32))
        scores = torch.bmm(self.q_proj(x), self.k_proj(x).permute(0, 2, 1)) / root
        if mask is not None:
            scores = torch.where(mask, scores, torch.tensor(-math.inf, dtype=x.dtype))
        return torch.bmm(scores.softmax(-1).nan_to_num(0.0), self.v_proj(x))


def example_by_attention(Q, K):
    return attention_by_einsum(Q, K, K)[1]


def example_by_linear(Q, K):
    return F.softmax(F.linear(Q, K) / len(Q[0]) ** 0.5, dim=1)


def variance_pair_by_pair(d_k, n_pairs):
    scores = np.array([np.random.randn(d_k) @ np.random.randn(d_k) for _ in range(n_pairs)])
    return scores.var(), (scores / d_k**0.5).var()


def entropy_by_log_softmax(scores, d_k, scaled):
    log_weights = (scores / d_k**0.5 if scaled else scores).log_softmax(-1)
    return -(log_weights.exp() * log_weights.clamp(min=torch.finfo(scores.dtype).min)).sum(-1)


def entropy_by_entr(scores, d_k, scaled):
    return torch.special.entr((scores / d_k ** (scaled / 2)).softmax(-1)).sum(-1)


def most_attended_by_matrix(tokens, embeddings, query_token):
    _, weights = attention_by_einsum(embeddings, embeddings, embeddings)
    row = weights[tokens.index(query_token)]
    return [max(zip(row.tolist(), tokens))[1], row]


def most_attended_by_loops(tokens, embeddings, query_token):
    vectors = dict(zip(tokens, embeddings))
    query = vectors[query_token] / len(embeddings[0]) ** 0.5
    raised = {token: math.exp(sum(map(float.__mul__, query.tolist(), vectors[token].tolist()))) for token in tokens}
    total = sum(raised.values())
    return max(raised, key=raised.get), torch.tensor([raised[token] / total for token in tokens])


RIGHT = {
    "attention.softmax": [softmax_by_log, softmax_by_rows, softmax_in_numpy, softmax_in_float32],
    "attention.scaled_dot_product": [
        attention_by_einsum,
        attention_by_loops,
        attention_with_a_float32_root,
        attention_with_shares_in_float32,
    ],
    "attention.self_attention": [Fused, OfTheLibrary, SentenceBySentence, WithAFloat32Root],
    "attention.worked_example": [example_by_attention, example_by_linear],
    "attention.score_variance": [variance_pair_by_pair],
    "attention.saturation": [entropy_by_log_softmax, entropy_by_entr],
    "attention.memory": [16_777_216.0, np.int64(16_777_216), torch.tensor(16_777_216), torch.zeros(2048, 2048).nbytes],
    "attention.who_is_it": [most_attended_by_matrix, most_attended_by_loops],
}
OF_THE_LIBRARY = {"attention.scaled_dot_product": [attention_of_the_library]}
