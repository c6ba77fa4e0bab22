"""Right answers as strangers write them, chapter 6."""

import copy
import math
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.trace import trace

# --- the network ------------------------------------------------------------------------------------------------------


class _MLP(nn.Module):
    def __init__(self, n_embd, n_inner, act):
        super().__init__()
        self.c_fc = nn.Linear(n_embd, n_inner)
        self.c_proj = nn.Linear(n_inner, n_embd)
        self.act = {"relu": nn.ReLU(), "gelu": nn.GELU()}[act]

    def forward(self, x):
        return self.c_proj(self.act(self.c_fc(x)))


def ffn_by_linear_layers(x, W1, b1, W2, b2, activation):
    mlp = _MLP(W1.shape[0], W1.shape[1], activation)
    with torch.no_grad():
        mlp.c_fc.weight = nn.Parameter(W1.t())
        mlp.c_fc.bias = nn.Parameter(b1)
        mlp.c_proj.weight = nn.Parameter(W2.t())
        mlp.c_proj.bias = nn.Parameter(b2)
    return mlp(x)


ACT2FN = {"relu": lambda t: t.clamp(min=0), "gelu": lambda t: t * 0.5 * (1.0 + torch.erf(t / math.sqrt(2.0)))}


def ffn_as_conv1d(hidden_states: Tensor, W1, b1, W2, b2, activation: str) -> Tensor:
    def conv1d(x, weight, bias):
        size_out = (*x.size()[:-1], weight.shape[1])
        return torch.addmm(bias, x.reshape(-1, x.size(-1)), weight).view(size_out)

    hidden_states = conv1d(hidden_states, W1, b1)
    hidden_states = ACT2FN[activation](hidden_states)
    return conv1d(hidden_states, W2, b2)


def ffn_token_by_token(x, W1, b1, W2, b2, activation):
    """Python's own numbers: every unit of every token, one after the other."""
    rows = []
    for token in x.reshape(-1, x.shape[-1]).tolist():
        hidden = []
        for j in range(W1.shape[1]):
            score = sum(token[i] * W1[i, j].item() for i in range(len(token))) + b1[j].item()
            if activation == "relu":
                hidden.append(max(0.0, score))
            elif activation == "gelu":
                hidden.append(0.5 * score * (1 + math.erf(score / math.sqrt(2))))
        rows.append([sum(h * w for h, w in zip(hidden, column)) + b for column, b in zip(W2.T.tolist(), b2.tolist())])
    return torch.tensor(rows, dtype=x.dtype).reshape(x.shape)


def ffn_by_vmap(x, W1, b1, W2, b2, activation):
    act = F.relu if activation == "relu" else lambda z: F.gelu(z, approximate="none")

    def one(token):
        return W2.T @ act(W1.T @ token + b1) + b2

    return torch.vmap(one)(x.reshape(-1, x.size(-1))).reshape(x.shape)


def ffn_in_float_and_back(x, W1, b1, W2, b2, activation):
    dtype = x.dtype
    x, W1, b1, W2, b2 = (t.to(torch.float64) for t in (x, W1, b1, W2, b2))
    h = torch.tensordot(x, W1, dims=1) + b1
    match activation:
        case "relu":
            h = torch.maximum(h, torch.zeros_like(h))
        case "gelu":
            h = h * torch.distributions.Normal(0.0, 1.0).cdf(h)
    return (torch.tensordot(h, W2, dims=1) + b2).to(dtype)


# --- GELU -------------------------------------------------------------------------------------------------------------


def gelu_as_bert(x):
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def gelu_by_erfc(x):
    sqrt_half = np.sqrt(0.5).astype(np.float32)
    return 0.5 * x * torch.erfc(-x * float(sqrt_half))


def gelu_of_float(x: Tensor) -> Tensor:
    return (0.5 * x.float() * (1 + torch.erf(x.float() * 0.70710678))).type_as(x)


def gelu_by_recursion(x):
    if x.dim() == 0:
        v = x.item()
        return torch.tensor(v * (1.0 + math.erf(v / 2**0.5)) / 2.0, dtype=x.dtype)
    return torch.stack([gelu_by_recursion(part) for part in x])


def gelu_by_vectorize(x):
    phi = np.vectorize(lambda v: 0.5 * (1.0 + math.erf(v / math.sqrt(2.0))), otypes=[np.float64])
    return (x.double() * torch.from_numpy(phi(x.numpy()))).to(x.dtype)


def gelu_by_the_logarithm(x):
    return x * torch.exp(torch.special.log_ndtr(x))


def gelu_of_a_standard_normal(x):
    return torch.distributions.Normal(0, 1).cdf(x).mul(x)


class _GELU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.special.erfc(-x / math.sqrt(2.0)) / 2


def new_gelu(input):
    return 0.5 * input * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (input + 0.044715 * torch.pow(input, 3.0))))


def gelu_accurate(x):
    if not hasattr(gelu_accurate, "_a"):
        gelu_accurate._a = math.sqrt(2 / math.pi)
    return (0.5 * x * (1 + torch.tanh(gelu_accurate._a * (x + 0.044715 * torch.pow(x, 3))))).to(x.dtype)


def gelu_of_a_class(x):
    class GELU(nn.Module):
        def forward(self, x):
            return 0.5 * x * (1 + torch.tanh(torch.sqrt(torch.tensor(2.0 / torch.pi)) * (x + 0.044715 * x**3)))

    return GELU()(x)


def gelu_minimal(x):
    return 0.5 * x * (1 + (x * 0.7978845608028654 * (1 + 0.044715 * x * x)).tanh())


def gelu_tanh_number_by_number(x):
    flat = [0.5 * v * (1 + math.tanh((2 / math.pi) ** 0.5 * (v + 0.044715 * v**3))) for v in x.flatten().tolist()]
    return torch.tensor(flat, dtype=x.dtype).reshape(x.shape)


def gelu_tanh_of_float(x):
    y = x.float()
    c = torch.tensor(math.sqrt(2.0 / math.pi), dtype=torch.float32)
    cdf = 0.5 * (1.0 + torch.tanh(c * (y + 0.044715 * y.pow(3))))
    return (y * cdf).to(x.dtype)


# --- SwiGLU -----------------------------------------------------------------------------------------------------------


class _LlamaMLP(nn.Module):
    def __init__(self, hidden_size, intermediate_size):
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def swiglu_by_layers(x, W_gate, W_up, W_down):
    mlp = _LlamaMLP(*W_gate.shape).to(x.dtype)
    with torch.no_grad():
        mlp.gate_proj.weight.copy_(W_gate.T)
        mlp.up_proj.weight.copy_(W_up.T)
        mlp.down_proj.weight.copy_(W_down.T)
        return mlp(x)


def swiglu_by_einsum(x, W_gate, W_up, W_down):
    gate, up = torch.einsum("...d,kdf->k...f", x, torch.stack((W_gate, W_up)))
    return torch.einsum("...f,fd->...d", gate * torch.sigmoid(gate) * up, W_down)


def swiglu_token_by_token(x, W_gate, W_up, W_down):
    def silu(z):
        return z / (1 + math.exp(-z)) if z > -700 else 0.0

    tokens = []
    for token in x.reshape(-1, x.shape[-1]):
        units = []
        for j in range(W_gate.shape[1]):
            gate = sum(float(a) * float(w) for a, w in zip(token, W_gate[:, j]))
            up = sum(float(a) * float(w) for a, w in zip(token, W_up[:, j]))
            units.append(silu(gate) * up)
        tokens.append([sum(u * float(w) for u, w in zip(units, W_down[:, i])) for i in range(W_down.shape[1])])
    return torch.tensor(tokens, dtype=x.dtype).view(*x.shape)


def swiglu_in_numpy(x, W_gate, W_up, W_down):
    x, W_gate, W_up, W_down = (each.numpy() for each in (x, W_gate, W_up, W_down))
    g = x @ W_gate
    with np.errstate(over="ignore"):
        silu = g / (1 + np.exp(-g))
    return torch.from_numpy((silu * (x @ W_up)) @ W_down)


def swiglu_by_tanh(x, W_gate, W_up, W_down):
    """σ(z) = ½ (1 + tanh(z / 2)): nothing can overflow."""
    g = torch.matmul(x, W_gate)
    g = g * (0.5 + 0.5 * torch.tanh(g / 2))
    g *= torch.matmul(x, W_up)
    return torch.matmul(g, W_down)


def width_by_minus_minus(d_model, multiple_of):
    return -(-8 * d_model // (3 * multiple_of)) * multiple_of


def width_by_fractions(d_model: int, multiple_of: int) -> int:
    return math.ceil(Fraction(8 * d_model, 3) / multiple_of) * multiple_of


def width_by_divmod(d_model, multiple_of):
    pieces, rest = divmod(8 * d_model, 3 * multiple_of)
    return (pieces + bool(rest)) * multiple_of


def width_by_counting(d_model, multiple_of):
    for width in range(multiple_of, 100_000, multiple_of):
        if width >= 8 / 3 * d_model:
            return width
    raise ValueError("no such width")


def width_by_ceil(dim, multiple_of):
    return int(np.ceil(8 * dim / 3 / multiple_of)) * multiple_of


def width_by_recursion(d_model, multiple_of):
    """Halve the range in which the number of pieces lies."""

    def enough(width):
        return 3 * width >= 8 * d_model

    def search(low, high):  # low pieces are too few, high are enough
        if high - low == 1:
            return high
        middle = (low + high) // 2
        return search(low, middle) if enough(middle * multiple_of) else search(middle, high)

    return search(0, 8 * d_model) * multiple_of


# --- the router -------------------------------------------------------------------------------------------------------


def router_of_mixtral(x, W, k):
    router_logits = F.linear(x, W)
    routing_weights = F.softmax(router_logits, dim=1, dtype=torch.float)
    routing_weights, selected_experts = torch.topk(routing_weights, k, dim=-1)
    routing_weights = routing_weights / routing_weights.sum(dim=-1, keepdim=True)
    return routing_weights.to(x.dtype), selected_experts


class _Gate(nn.Module):
    def __init__(self, dim, n_routed_experts, n_activated):
        super().__init__()
        self.topk = n_activated
        self.weight = nn.Parameter(torch.empty(n_routed_experts, dim))

    def forward(self, x):
        scores = nn.functional.linear(x, self.weight).softmax(dim=-1, dtype=torch.float32)
        indices = torch.topk(scores, self.topk, dim=-1)[1]
        weights = scores.gather(1, indices)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights.type_as(x), indices


def router_of_a_module(x, W, k):
    gate = _Gate(W.size(1), W.size(0), k)
    del gate._parameters["weight"]
    gate.weight = W
    return gate(x)


def router_by_rounds(x, W, k):
    """Take the best expert, cross it out, and take the next."""
    left = x.matmul(W.t())
    chosen, values = [], []
    for _ in range(k):
        best = left.max(dim=1)
        values.append(best.values)
        chosen.append(best.indices)
        left = left.scatter(1, best.indices.unsqueeze(1), float("-inf"))
    values = torch.stack(values, dim=1)
    values = (values - values[:, :1]).exp()
    return values / torch.sum(values, 1, keepdim=True), torch.stack(chosen, 1)


def router_by_vmap(x, W, k):
    def one(token):
        s = W @ token
        e = torch.exp(s - s.max())
        best, experts = (e / e.sum()).topk(k)
        return best / best.sum(), experts

    return torch.vmap(one)(x)


def router_by_counting(x, W, k):
    """The place of an expert is the number of better ones."""
    s = torch.stack([torch.stack([torch.dot(token, row) for row in W]) for token in x])
    place = (s[:, None, :] > s[:, :, None]).sum(-1)
    experts = torch.empty(len(x), k, dtype=torch.long)
    for n in range(len(x)):
        for e in range(len(W)):
            if place[n, e] < k:
                experts[n, place[n, e]] = e
    return torch.softmax(torch.gather(s, 1, experts), -1), experts


# --- measurements -----------------------------------------------------------------------------------------------------


def shares_by_hooks(model, ids, pad_id):
    """A hook on every up_proj: the score is above 0 exactly where the unit fires."""
    model.eval()
    fired = {}
    keep = ids.ne(pad_id)

    def make_hook(i):
        def hook(module, inputs, output):
            fired[i] = (output[keep] > 0).double().mean().item()

        return hook

    handles = [b.feed_forward.up_proj.register_forward_hook(make_hook(i)) for i, b in enumerate(model.blocks)]
    with torch.no_grad():
        model(ids)
    for handle in handles:
        handle.remove()
    return [fired[i] for i in range(len(model.blocks))]


def shares_by_counting(model, ids, pad_id):
    was = model.training
    model.eval()
    with torch.inference_mode(), trace(model, "*.hidden") as seen:
        model(ids)
    model.train(was)
    shares = np.zeros(len(model.blocks))
    for layer in range(len(model.blocks)):
        hidden = seen[f"blocks.{layer}.feed_forward.hidden"].numpy()
        active = total = 0
        for b, text in enumerate(ids.tolist()):
            for t, token in enumerate(text):
                if token == pad_id:
                    continue
                active += int((hidden[b, t] > 0).sum())
                total += hidden.shape[-1]
        shares[layer] = active / total
    return shares


@contextmanager
def _without(model, block, unit):
    def ablate(module, args):
        hidden = args[0].clone()
        hidden[:, :, unit] = 0.0
        return (hidden,)

    handle = model.blocks[block].feed_forward.down_proj.register_forward_pre_hook(ablate)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def units_by_hook(model, ids, answer, candidates, k):
    model.eval()
    clean = model(ids).softmax(dim=-1)[0, -1, answer]
    drops = []
    for block, unit in candidates:
        with _without(model, block, unit):
            drops.append(clean - model(ids).softmax(dim=-1)[0, -1, answer])
    order = torch.topk(torch.stack(drops), k).indices
    return torch.tensor([candidates[int(i)] for i in order])


def units_by_copying(model, ids, answer, candidates, k):
    table = []
    for candidate in candidates:
        block, unit = candidate
        other = copy.deepcopy(model).eval()
        state = other.state_dict()
        state[f"blocks.{block}.feed_forward.down_proj.weight"][:, unit] = 0
        with torch.no_grad():
            logits = other(ids)[0][-1]
        probability = (logits - logits.logsumexp(0)).exp()[answer]
        table.append((float(probability), candidate))
    table.sort(key=lambda row: row[0])
    return [list(candidate) for _, candidate in table][:k]


STRANGERS = {
    "feed_forward.forward": [
        ffn_by_linear_layers,
        ffn_as_conv1d,
        ffn_token_by_token,
        ffn_by_vmap,
        ffn_in_float_and_back,
    ],
    "feed_forward.gelu": [
        gelu_as_bert,
        gelu_by_erfc,
        gelu_of_float,
        gelu_by_recursion,
        gelu_by_vectorize,
        gelu_by_the_logarithm,
        gelu_of_a_standard_normal,
        _GELU(),
    ],
    "feed_forward.gelu_tanh": [
        new_gelu,
        gelu_accurate,
        gelu_of_a_class,
        gelu_minimal,
        gelu_tanh_number_by_number,
        gelu_tanh_of_float,
    ],
    "feed_forward.swiglu": [
        swiglu_by_layers,
        swiglu_by_einsum,
        swiglu_token_by_token,
        swiglu_in_numpy,
        swiglu_by_tanh,
    ],
    "feed_forward.swiglu_width": [
        width_by_minus_minus,
        width_by_fractions,
        width_by_divmod,
        width_by_counting,
        width_by_ceil,
        width_by_recursion,
    ],
    "feed_forward.router": [
        router_of_mixtral,
        router_of_a_module,
        router_by_rounds,
        router_by_vmap,
        router_by_counting,
    ],
    "feed_forward.sparsity": [shares_by_hooks, shares_by_counting],
    "feed_forward.ablate_fact": [units_by_hook, units_by_copying],
}
