"""Right answers of chapter 6 in other styles."""

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F

from course_lib.feed_forward import FeedForward, MixtureOfExperts, SwiGLU, swiglu_width
from course_lib.gpt import evaluating
from course_lib.trace import trace
from tests.right import by_way_of


def ffn_by_einsum(x, W1, b1, W2, b2, activation):
    scores = torch.einsum("...i,ij->...j", x, W1) + b1
    hidden = scores.clamp(min=0) if activation == "relu" else scores * torch.special.ndtr(scores)
    return torch.einsum("...j,jk->...k", hidden, W2) + b2


def ffn_unit_by_unit(x, W1, b1, W2, b2, activation):
    out = b2.expand(x.shape).clone()
    for unit in range(len(b1)):
        score = (x * W1[:, unit]).sum(-1) + b1[unit]
        fires = torch.relu(score) if activation == "relu" else score / 2 * torch.erfc(-score / math.sqrt(2))
        out += fires[..., None] * W2[unit]
    return out


def ffn_in_float32(x, W1, b1, W2, b2, activation):
    h = x.float() @ W1.float() + b1.float()
    h = torch.clamp_min(h, 0) if activation == "relu" else F.gelu(h)
    return F.linear(h, W2.float().T, b2.float()).type_as(x)


def gelu_with_a_float32_root(x):
    return 0.5 * x * (1.0 + torch.erf(x / torch.sqrt(torch.tensor(2.0))))


def gelu_tanh_with_float32_constants(x):
    inner = torch.sqrt(torch.tensor(2.0) / torch.tensor(torch.pi)) * (x + 0.044715 * torch.pow(x, 3))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def swiglu_in_float32(x, W_gate, W_up, W_down):
    gate = x.float() @ W_gate.float()
    return (gate * gate.sigmoid() * (x.float() @ W_up.float()) @ W_down.float()).to(x.dtype)


def ffn_of_the_library(x, W1, b1, W2, b2, activation):
    module = FeedForward(*W1.shape, activation=activation).to(x.dtype)
    names = {"up_proj.weight": W1.T, "up_proj.bias": b1, "down_proj.weight": W2.T, "down_proj.bias": b2}
    module.load_state_dict(names)
    return module(x)


def ffn_in_place(x, W1, b1, W2, b2, activation):
    hidden = F.linear(x, W1.T, b1)
    if activation == "relu":
        hidden.relu_()
    else:
        hidden = F.gelu(hidden)
    return F.linear(hidden, W2.T, b2)


def gelu_by_the_distribution(x):
    return x * torch.distributions.Normal(torch.zeros_like(x), torch.ones_like(x)).cdf(x)


def gelu_number_by_number(x):
    out = x.clone()
    for place in np.ndindex(*x.shape):
        out[place] = 0.5 * x[place].item() * math.erfc(-x[place].item() / math.sqrt(2))
    return out


def gelu_tanh_in_numpy(x):
    x = x.numpy()
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def gelu_tanh_by_sigmoid(x):
    return x * torch.sigmoid(2 * (2 / math.pi) ** 0.5 * x * (1 + 0.044715 * x**2))


def gelu_tanh_fused(x):
    return F.gelu(x, approximate="tanh")


def swiglu_fused(x, W_gate, W_up, W_down):
    both = x @ torch.cat([W_gate, W_up], dim=1)
    gate, proposal = both.chunk(2, dim=-1)
    return F.silu(gate, inplace=True).mul_(proposal) @ W_down


def swiglu_unit_by_unit(x, W_gate, W_up, W_down):
    out = torch.zeros_like(x)
    for looks, proposes, value in zip(W_gate.T, W_up.T, W_down):
        gate = x @ looks
        out = out + (gate / (1 + torch.exp(-gate)) * (x @ proposes))[..., None] * value
    return out


def swiglu_of_the_library(x, W_gate, W_up, W_down):
    module = SwiGLU(*W_gate.shape).to(x.dtype)
    weights = {"gate_proj.weight": W_gate.T, "up_proj.weight": W_up.T, "down_proj.weight": W_down.T}
    module.load_state_dict(weights)
    return module(x)


def width_as_llama_has_it(d_model, multiple_of):
    hidden = int(2 * (4 * d_model) / 3)
    return multiple_of * ((hidden + multiple_of - 1) // multiple_of)


def width_by_steps(d_model, multiple_of):
    width = 0
    while 3 * width < 8 * d_model:
        width += multiple_of
    return width


def route_by_the_best_scores(x, W, k):
    """Softmax over the k largest scores, as the paper on Mixtral has it."""
    best, experts = F.linear(x, W).topk(k)
    return F.softmax(best, dim=-1), experts


def route_token_by_token(x, W, k):
    weights, experts = [], []
    for token in x:
        scores = (W * token).sum(dim=1)
        order = sorted(range(len(W)), key=lambda e: -scores[e].item())[:k]
        e = torch.exp(scores[order] - scores[order[0]])
        weights.append(e / e.sum())
        experts.append(order)
    return torch.stack(weights), experts


def route_by_minus_infinity(x, W, k):
    """The scores of the other experts are −inf, and a softmax over all of them follows."""
    scores = torch.einsum("nd,ed->ne", x, W)
    rank = scores.argsort(dim=1, descending=True).argsort(dim=1)
    p = scores.masked_fill(rank >= k, -torch.inf).softmax(1)
    weights, experts = torch.sort(p, dim=1, descending=True)
    return weights[:, :k], experts[:, :k]


def route_by_logarithms(x, W, k):
    log_p = (x @ W.mT).log_softmax(-1)
    best, experts = log_p.topk(k, dim=1)
    return torch.exp(best - best.logsumexp(dim=1, keepdim=True)), experts.int()


def route_of_the_library(x, W, k):
    layer = MixtureOfExperts(W.shape[1], 1, len(W), k).to(x.dtype)
    layer.router.weight = torch.nn.Parameter(W) if not W.requires_grad else layer.router.weight
    return layer.route(x)


def shares_by_trace(model, ids, pad_id):
    with evaluating(model), trace(model, "*.hidden") as seen:
        model(ids)
    real = (ids != pad_id).unsqueeze(-1)
    return torch.stack(
        [(hidden > 0).logical_and(real).sum() / (real.sum() * hidden.shape[-1]) for hidden in seen.values()]
    )


def shares_text_by_text(model, ids, pad_id):
    """No padding at all: each text alone, token counts added up."""
    model.eval()
    fired, n = [0] * len(model.blocks), 0
    for text in ids:
        text = text[text != pad_id]
        n += len(text)
        with trace(model) as seen:
            model(text[None])
        for i in range(len(fired)):
            fired[i] += int((seen[f"blocks.{i}.feed_forward.up_proj"] > 0).sum())
    return [count / n / model.config.d_ff for count in fired]


def units_by_column(model, ids, answer, candidates, k):
    def log_chance():
        with evaluating(model):
            return model(ids)[0, -1].log_softmax(-1)[answer].item()

    after = []
    for layer, unit in candidates:
        column = model.blocks[layer].feed_forward.down_proj.weight.data[:, unit]
        kept = column.clone()
        column.zero_()
        after.append(log_chance())
        column.copy_(kept)
    return [candidates[i] for i in np.argsort(after)[:k]]


def units_in_one_batch(model, ids, answer, candidates, k):
    """Row i of a batch is the text without candidate i."""
    model.eval()
    for layer, block in enumerate(model.blocks):
        rows = [i for i, candidate in enumerate(candidates) if candidate[0] == layer]
        units = [candidates[i][1] for i in rows]
        keep = torch.ones(len(candidates), 1, model.config.d_ff, dtype=torch.bool)
        keep[rows, 0, units] = False
        block.feed_forward.down_proj.register_forward_pre_hook(lambda _, inputs, keep=keep: (inputs[0] * keep,))
    with torch.inference_mode():
        chances = model(ids.expand(len(candidates), -1))[:, -1].softmax(-1)[:, answer]
    return torch.tensor(candidates)[chances.argsort()[:k]]


def units_on_copies(model, ids, answer, candidates, k):
    """A unit that never fires: its row and bias of up_proj are 0, and both bends give 0 at 0."""
    lost = {}
    for layer, unit in candidates:
        cut = copy.deepcopy(model).eval()
        up = cut.blocks[layer].feed_forward.up_proj
        with torch.no_grad():
            up.weight[unit] = up.bias[unit] = 0
            lost[layer, unit] = -cut(ids)[0, -1].softmax(-1)[answer].item()
    return sorted(lost, key=lost.get, reverse=True)[:k]


RIGHT = {
    "feed_forward.forward": [ffn_by_einsum, ffn_unit_by_unit, ffn_in_float32, ffn_in_place],
    "feed_forward.gelu": [
        gelu_by_the_distribution,
        gelu_number_by_number,
        gelu_with_a_float32_root,
        F.gelu,
        lambda x: x * torch.special.ndtr(x),
    ],
    "feed_forward.gelu_tanh": [
        gelu_tanh_in_numpy,
        gelu_tanh_by_sigmoid,
        gelu_tanh_with_float32_constants,
        gelu_tanh_fused,
    ],
    "feed_forward.swiglu": [swiglu_fused, swiglu_unit_by_unit, swiglu_in_float32],
    "feed_forward.swiglu_width": [width_as_llama_has_it, width_by_steps],
    "feed_forward.parameters": [
        {"ffn": 2_099_712, "ratio": 135_266_304 / 134_238_208},
        (2_099_712.0, np.float64(135_266_304) / 134_238_208),
        {"ffn": sum(p.numel() for p in FeedForward(512).parameters()), "ratio": 3 * 11008 / (8 * 4096 + 5)},
    ],
    "feed_forward.router": [
        route_by_the_best_scores,
        route_token_by_token,
        route_by_minus_infinity,
        route_by_logarithms,
    ],
    "feed_forward.sparsity": [shares_by_trace, shares_text_by_text],
    "feed_forward.ablate_fact": [units_by_column, units_in_one_batch, units_on_copies],
}
OF_THE_LIBRARY = {
    "feed_forward.forward": [ffn_of_the_library],
    "feed_forward.swiglu": [swiglu_of_the_library],
    "feed_forward.swiglu_width": [by_way_of(swiglu_width)],
    "feed_forward.router": [route_of_the_library],
}
