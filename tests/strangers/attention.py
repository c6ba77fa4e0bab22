"""Right answers in the manner of others: attention."""

import math
import random
import statistics

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# --- softmax and its first uses ---------------------------------------------------------------------------------------


def softmax_in_three_lines(x, axis):
    m = x - x.max(dim=axis, keepdim=True)[0].detach()
    e = m.exp()
    return e.div(e.sum(axis, keepdim=True))


def softmax_with_powers_of_two(x, dim):
    """As fused kernels do, for which 2 to a power is the fastest."""
    LOG2_E = 1.4426950408889634
    m = torch.amax(x, dim=dim, keepdim=True)
    p = torch.exp2((x - m) * LOG2_E)
    return p * torch.reciprocal(torch.sum(p, dim=dim, keepdim=True))


def softmax_online(x, dim):
    """One pass over the axis with a running maximum and a running sum."""
    parts = x.unbind(dim)
    m = torch.full_like(parts[0], torch.finfo(x.dtype).min)
    total = torch.zeros_like(parts[0])
    for part in parts:
        higher = torch.maximum(m, part)
        total = total * torch.exp(m - higher) + torch.exp(part - higher)
        m = higher
    return torch.stack([torch.exp(part - m) / total for part in parts], dim=dim)


def softmax_slice_by_slice(x, dim):
    dim = dim % x.ndim
    if x.ndim == 1:
        numbers = x.tolist()
        exps = [math.exp(number - max(numbers)) for number in numbers]
        return torch.tensor([e / sum(exps) for e in exps], dtype=x.dtype)
    across = 1 if dim == 0 else 0
    return torch.stack([softmax_slice_by_slice(part, max(0, dim - 1)) for part in x.unbind(across)], dim=across)


def softmax_upcast(x: Tensor, dim: int) -> Tensor:
    dtype = x.dtype
    x = x.to(torch.float64)
    unnormalized = torch.exp(x - x.max(dim, keepdim=True).values)
    return torch.true_divide(unnormalized, unnormalized.sum(dim).unsqueeze(dim)).to(dtype)


def example_query_by_query(Q, K):
    attn_weights = torch.empty(Q.shape[0], K.shape[0])
    for i, query in enumerate(Q):
        attn_scores = torch.empty(K.shape[0])
        for j, key in enumerate(K):
            attn_scores[j] = torch.dot(query, key)
        attn_weights[i] = torch.softmax(attn_scores / K.shape[-1] ** 0.5, dim=-1)
    return attn_weights


def example_in_numpy(Q, K):
    scores = Q.numpy() @ K.numpy().T / np.float32(np.sqrt(Q.shape[1]))
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def example_with_a_float32_root(Q, K):
    d_k = torch.tensor(Q.size(-1), dtype=torch.float32)
    return torch.exp(F.log_softmax(torch.einsum("td,sd->ts", Q, K) / torch.sqrt(d_k), dim=-1))


def example_in_lists(Q, K):
    rows = []
    for q in Q.tolist():
        scores = [sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(len(q)) for k in K.tolist()]
        top = max(scores)
        total = sum(math.exp(score - top) for score in scores)
        rows.append([math.exp(score - top) / total for score in scores])
    return torch.tensor(rows)


def attended_by_einsum(tokens, embeddings, query_token):
    q = embeddings[tokens.index(query_token)] * embeddings.size(-1) ** -0.5
    weights = torch.softmax(torch.einsum("d,sd->s", q, embeddings), dim=-1)
    return tokens[weights.argmax().item()], weights


def attended_in_numpy(tokens, embeddings, query_token):
    x = embeddings.numpy()
    scores = x @ x[tokens.index(query_token)] / math.sqrt(x.shape[1])
    weights = np.exp(scores) / np.exp(scores).sum()
    return tokens[np.argmax(weights)], weights


def attended_key_by_key(tokens, embeddings, query_token):
    for token, embedding in zip(tokens, embeddings, strict=True):
        if token == query_token:
            query = embedding
    scores = []
    for key in embeddings:
        scores.append((query * key).sum() / torch.sqrt(torch.tensor(len(key), dtype=torch.float32)))
    weights = F.softmax(torch.stack(scores), dim=0)
    best = 0
    for i in range(len(tokens)):
        if weights[i] > weights[best]:
            best = i
    return tokens[best], weights


def attended_with_a_batch(tokens, embeddings, query_token):
    q = embeddings[None, [tokens.index(query_token)]]  # (1, 1, D)
    weights = torch.baddbmm(torch.zeros(1), q, embeddings[None].mT, beta=0, alpha=q.shape[-1] ** -0.5).softmax(-1)
    winner = dict(enumerate(tokens))[weights.flatten().topk(1).indices.item()]
    return winner, weights.squeeze()


def entropy_with_a_small_number(scores, d_k, scaled):
    p = F.softmax(scores / (d_k**0.5 if scaled else 1.0), dim=-1)
    return -torch.sum(p * torch.log(p + 1e-12), dim=-1)


def entropy_by_distributions(scores, d_k, scaled):
    logits = scores / math.sqrt(d_k) if scaled else scores
    return torch.distributions.Categorical(logits=logits).entropy()


def entropy_with_nan_to_num(scores, d_k, scaled):
    if scaled is True:
        scores = scores * (1.0 / torch.sqrt(torch.tensor(float(d_k))))
    attn = torch.softmax(scores, dim=-1)
    plogp = torch.nan_to_num(attn * attn.log(), nan=0.0)
    return plogp.sum(-1).neg()


def entropy_row_by_row(scores, d_k, scaled):
    factor = 1 / math.sqrt(d_k) if scaled else 1
    out = torch.zeros(scores.shape[:-1], dtype=scores.dtype)
    for place in np.ndindex(*scores.shape[:-1]):
        for p in torch.softmax(scores[place] * factor, -1).tolist():
            if p > 0:
                out[place] -= p * math.log(p)
    return out


def entropy_from_the_normalizer(scores, d_k, scaled):
    """ln of the sum of exps, less the mean score."""
    s = scores / math.sqrt(d_k) if scaled else scores
    p = s.softmax(-1)
    return s.logsumexp(-1) - (p * torch.where(p > 0, s, 0.0)).sum(-1)


def variance_with_a_generator(d_k, n_pairs):
    rng = np.random.default_rng()
    q, k = rng.standard_normal((n_pairs, d_k)), rng.standard_normal((n_pairs, d_k))
    s = np.einsum("nd,nd->n", q, k)
    return float(np.var(s, ddof=1)), float(np.var(s / np.sqrt(d_k), ddof=1))


def variance_as_mean_square(d_k, n_pairs):
    q = torch.normal(0.0, 1.0, size=(n_pairs, 1, d_k))
    k = torch.normal(0.0, 1.0, size=(n_pairs, d_k, 1))
    s = torch.bmm(q, k).squeeze()
    scaled = s / torch.sqrt(torch.tensor(d_k, dtype=torch.float32))
    return torch.mean((s - s.mean()) ** 2).item(), torch.mean((scaled - scaled.mean()) ** 2).item()


def variance_in_python(d_k, n_pairs):
    """No tensor at all: one number after the other."""
    scores = [sum(random.gauss(0, 1) * random.gauss(0, 1) for _ in range(d_k)) for _ in range(n_pairs)]
    return statistics.variance(scores), statistics.variance(score / math.sqrt(d_k) for score in scores)


# --- attention --------------------------------------------------------------------------------------------------------


def attention_annotated(query, key, value, mask=None):
    """A very low number for what is hidden; what is hidden is then set to 0 once more, for rows that see nothing."""
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if mask is not None:
        p_attn = p_attn.masked_fill(mask == 0, 0.0)
    return torch.matmul(p_attn, value), p_attn


def attention_with_a_bias(q, k, v, mask=None):
    """The mask as an additive bias of the lowest number there is; rows that are hidden whole are multiplied by 0."""
    weights = torch.matmul(q, k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    if mask is not None:
        bias = (1.0 - mask.to(weights.dtype)) * torch.finfo(weights.dtype).min
        weights = weights + bias
    weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    if mask is not None:
        weights = weights * mask.any(dim=-1, keepdim=True)
    return torch.matmul(weights, v), weights


def attention_with_entirely_masked_rows(q, k, v, mask=None):
    scale, dtype = q.shape[-1] ** -0.5, q.dtype
    sim = torch.einsum("...id,...jd->...ij", q, k) * scale
    if mask is not None:
        sim = sim.masked_fill(~mask, -torch.finfo(sim.dtype).max)
    attn = F.softmax(sim, dim=-1, dtype=torch.float32).type(dtype)
    if mask is not None:
        row_is_entirely_masked = (~mask).all(dim=-1, keepdim=True)
        attn = attn.masked_fill(row_is_entirely_masked, 0.0)
    return torch.einsum("...ij,...jd->...id", attn, v), attn


def attention_in_one_batch(q, k, v, mask=None):
    """All leading axes laid into one, bmm, and laid apart again."""
    *lead, T, D = q.shape
    S = k.size(-2)
    q, k, v_ = q.reshape(-1, T, D), k.reshape(-1, S, D), v.reshape(-1, S, v.size(-1))
    attn = torch.bmm(q * D**-0.5, k.transpose(1, 2))
    if mask is not None:
        hidden = ~mask.expand(*lead, T, S).reshape(-1, T, S)
        attn = attn.masked_fill(hidden, float("-inf"))
    probs = F.softmax(attn.float(), dim=-1).type_as(attn)
    probs = torch.where(torch.isnan(probs), torch.zeros_like(probs), probs)
    return torch.bmm(probs, v_).view(*lead, T, -1), probs.view(*lead, T, S)


def attention_by_hand(q, k, v, mask=None):
    """The softmax written out, over what may be seen."""
    s = (q[..., :, None, :] * k[..., None, :, :]).sum(-1) / np.sqrt(q.shape[-1]).item()
    seen = torch.ones_like(s, dtype=torch.bool) if mask is None else mask.broadcast_to(s.shape)
    m = torch.where(seen, s, s.min()).amax(-1, keepdim=True)
    e = torch.where(seen, s - m, 0.0).exp() * seen
    w = e / e.sum(-1, keepdim=True).clamp(min=torch.finfo(e.dtype).tiny)
    return (w.unsqueeze(-1) * v.unsqueeze(-3)).sum(-2), w


def attention_axis_by_axis(q, k, v, mask=None):
    """One level of recursion for each leading axis."""
    if q.dim() > 2:
        n = len(q)
        masks = [mask] * n if mask is None or mask.dim() < q.dim() else list(mask.expand(n, *mask.shape[1:]))
        pairs = [attention_axis_by_axis(*each) for each in zip(q, k, v, masks, strict=True)]
        return tuple(torch.stack(part) for part in zip(*pairs, strict=True))
    scores = q.mm(k.t()).div(math.sqrt(q.size(1)))
    if mask is None:
        return scores.softmax(1).mm(v), scores.softmax(1)
    while mask.dim() > 2:
        mask = mask.squeeze(0)
    weights = torch.zeros_like(scores)
    for row, (score, allowed) in enumerate(zip(scores, mask.expand_as(scores), strict=True)):
        if allowed.any():
            weights[row, allowed] = score[allowed].softmax(0)
    return weights.mm(v), weights


def attention_in_float32(q, k, v, mask=None):
    """The whole in float32, and only the results back in the dtype of q."""
    output, weights = attention_annotated(q.float(), k.float(), v.float(), mask)
    return output.type_as(q), weights.type_as(q)


class _Projections(nn.Module):
    def __init__(self, d_model: int):
        super().__init__()
        self.d_model = d_model
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)


class AnnotatedSelfAttention(_Projections):
    """A function beside the class; dropout that does nothing; the last weights are kept to be looked at."""

    def __init__(self, d_model):
        super().__init__(d_model)
        self.attn = None
        self.dropout = nn.Dropout(p=0.0)

    def forward(self, x, mask=None):
        query, key, value = [lin(x) for lin in (self.q_proj, self.k_proj, self.v_proj)]
        mixed, self.attn = attention_annotated(query, key, value, mask)
        return self.dropout(mixed)


class BertLikeSelfAttention(_Projections):
    def forward(self, hidden_states, attention_mask=None):
        scores = torch.matmul(self.q_proj(hidden_states), self.k_proj(hidden_states).transpose(-1, -2))
        scores = scores / math.sqrt(self.d_model)
        if attention_mask is not None:
            scores = scores + (~attention_mask).to(scores.dtype) * torch.finfo(scores.dtype).min
        probs = nn.Softmax(dim=-1)(scores)
        if attention_mask is not None:
            probs = probs * attention_mask.any(-1, keepdim=True).to(probs.dtype)
        return torch.matmul(probs, self.v_proj(hidden_states))


class OneProductForAllThree(_Projections):
    def forward(self, x, mask=None):
        weight = torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight])
        bias = torch.cat([self.q_proj.bias, self.k_proj.bias, self.v_proj.bias])
        q, k, v = F.linear(x, weight, bias).chunk(3, dim=-1)
        sim = torch.einsum("b i d, b j d -> b i j", q, k) * self.d_model**-0.5
        if mask is not None:
            sim.masked_fill_(~mask, float("-inf"))
        attn = torch.nan_to_num(sim.float().softmax(dim=-1)).type_as(x)
        return torch.einsum("b i j, b j d -> b i d", attn, v)


class WithABuffer(_Projections):
    """The root as a buffer in float32."""

    def __init__(self, d_model):
        super().__init__(d_model)
        self.register_buffer("scale", torch.sqrt(torch.tensor(d_model, dtype=torch.float32)))

    def forward(self, x, mask=None):
        scores = self.q_proj(x).matmul(self.k_proj(x).permute(0, 2, 1)).div(self.scale)
        if mask is None:
            return scores.softmax(-1).matmul(self.v_proj(x))
        weights = torch.where(mask, scores, torch.full_like(scores, -torch.inf)).softmax(-1)
        weights = torch.where(mask, weights, torch.zeros_like(weights))
        return weights.matmul(self.v_proj(x))


class TokenByToken(_Projections):
    """Each token's result is put together from the tokens that it may see."""

    def forward(self, x, mask=None):
        texts = []
        for b, text in enumerate(x):
            q, k, v = self.q_proj(text), self.k_proj(text), self.v_proj(text)
            allowed = None if mask is None else (mask[b % len(mask)] if mask.dim() == 3 else mask)
            context = []
            for t in range(len(text)):
                row = None if allowed is None else allowed[t % len(allowed)]
                keys, values = (k, v) if row is None else (k[row], v[row])
                weights = (keys @ q[t] / self.d_model**0.5).softmax(-1)
                context.append((weights[:, None] * values).sum(dim=0))
            texts.append(torch.stack(context))
        return torch.stack(texts)


STRANGERS = {
    "attention.softmax": [
        softmax_in_three_lines,
        softmax_with_powers_of_two,
        softmax_online,
        softmax_slice_by_slice,
        softmax_upcast,
    ],
    "attention.worked_example": [
        example_query_by_query,
        example_in_numpy,
        example_with_a_float32_root,
        example_in_lists,
    ],
    "attention.who_is_it": [attended_by_einsum, attended_in_numpy, attended_key_by_key, attended_with_a_batch],
    "attention.saturation": [
        entropy_with_a_small_number,
        entropy_by_distributions,
        entropy_with_nan_to_num,
        entropy_row_by_row,
        entropy_from_the_normalizer,
    ],
    "attention.score_variance": [variance_with_a_generator, variance_as_mean_square, variance_in_python],
    "attention.scaled_dot_product": [
        attention_annotated,
        attention_with_a_bias,
        attention_with_entirely_masked_rows,
        attention_in_one_batch,
        attention_by_hand,
        attention_axis_by_axis,
        attention_in_float32,
    ],
    "attention.self_attention": [
        AnnotatedSelfAttention,
        BertLikeSelfAttention,
        OneProductForAllThree,
        WithABuffer,
        TokenByToken,
    ],
}
