"""Answers with two mistakes of the page at once, chapter 6."""

import math

import torch
import torch.nn.functional as F

from course_lib.gpt import evaluating
from course_lib.trace import trace

# --- the network ------------------------------------------------------------------------------------------------------


def relu_and_no_second_bias(x, W1, b1, W2, b2, activation):
    h = torch.matmul(x, W1) + b1
    h = torch.clamp(h, min=0)
    return torch.matmul(h, W2)


def bent_twice_without_b1(x, W1, b1, W2, b2, activation):
    act = torch.relu if activation == "relu" else torch.nn.GELU()
    out = act(torch.einsum("...i,ij->...j", x, W1))
    out = torch.einsum("...j,jk->...k", out, W2)
    return act(out + b2)


def tanh_gelu_with_residual(x, W1, b1, W2, b2, activation):
    pre = x @ W1 + b1
    if activation == "gelu":
        hidden = 0.5 * pre * (1 + torch.tanh(math.sqrt(2 / math.pi) * (pre + 0.044715 * pre**3)))
    else:
        hidden = pre * (pre > 0)
    return x + hidden @ W2 + b2


# --- GELU -------------------------------------------------------------------------------------------------------------


def gelu_no_root_no_half(x):
    return x * (1 + torch.erf(x))


def gelu_upper_tail_of_two(x):
    cdf = 0.5 * (1.0 - torch.erf(x / 2.0))
    return x * cdf


def gelu_only_phi_unscaled(x):
    phi = (torch.special.erf(x) + 1) / 2
    return phi


def tanh_without_root_and_half(x):
    cubed = x * x * x
    return x * (1 + (x + 0.044715 * cubed).tanh())


def tanh_bracket_and_digit(x):
    k = math.sqrt(2.0 / math.pi)
    return 0.5 * x * (1.0 + torch.tanh(k * x + 0.0447 * torch.pow(x, 3)))


def tanh_two_over_pi_and_no_one(x):
    arg = 2 / math.pi * (x + 0.044715 * x.pow(3))
    return 0.5 * torch.tanh(arg) * x


# --- SwiGLU -----------------------------------------------------------------------------------------------------------


def swapped_geglu(x, W_gate, W_up, W_down):
    up = F.gelu(torch.matmul(x, W_up))
    gate = torch.matmul(x, W_gate)
    return torch.matmul(up * gate, W_down)


def sum_with_sigmoid(x, W_gate, W_up, W_down):
    g = 1 / (1 + torch.exp(-torch.einsum("...d,df->...f", x, W_gate)))
    h = torch.einsum("...d,df->...f", x, W_up)
    return torch.einsum("...f,fd->...d", g + h, W_down)


def own_silu_twice(x, W_gate, W_up, W_down):
    def swish(a):
        e = torch.exp(a)
        return a * e / (e + 1)

    return (swish(x @ W_gate) * swish(x @ W_up)) @ W_down


def down_to_256(d_model, multiple_of):
    hidden = int(8 * d_model / 3)
    return hidden // 256 * 256


def four_times_nearest(d_model, multiple_of):
    blocks = round(4 * d_model / multiple_of)
    return blocks * multiple_of


def without_the_four_and_one_more(d_model, multiple_of):
    width = d_model * 2 // 3
    return width + multiple_of - width % multiple_of


# --- the router -------------------------------------------------------------------------------------------------------


def router_without_sum_and_exchanged(x, W, k):
    probabilities = F.softmax(F.linear(x, W), dim=1)
    best = torch.topk(probabilities, k)
    return best.indices, best.values


def router_with_gates_from_the_smallest(x, W, k):
    gates = 1 / (1 + torch.exp(-torch.einsum("nd,ed->ne", x, W)))
    order = gates.argsort(dim=1)[:, :k]
    kept = gates.gather(1, order)
    return kept / kept.sum(1, keepdim=True), order


def router_scaled_and_softmax_again(x, W, k):
    attention = torch.matmul(x, W.t()) / math.sqrt(W.shape[1])
    probabilities = torch.softmax(attention, -1)
    values, experts = probabilities.sort(descending=True)
    return torch.softmax(values[:, :k], -1), experts[:, :k]


# --- measurements -----------------------------------------------------------------------------------------------------


def shares_noisy_with_padding(model, ids, pad_id):
    shares = []
    with torch.no_grad(), trace(model, "*.hidden") as seen:
        model(ids)
    for i in range(len(model.blocks)):
        h = seen[f"blocks.{i}.feed_forward.hidden"]
        shares.append((h > 0).double().mean().item())
    return shares


def shares_nonzero_by_text(model, ids, pad_id):
    with evaluating(model), trace(model, "*.hidden") as seen:
        model(ids)
    out = []
    for hidden in seen.values():
        per_text = []
        for b in range(ids.shape[0]):
            keep = [t for t in range(ids.shape[1]) if ids[b, t] != pad_id]
            per_text.append(torch.count_nonzero(hidden[b, keep]) / hidden[b, keep].numel())
        out.append(sum(per_text) / len(per_text))
    return out


def percent_with_zeros(model, ids, pad_id):
    model.eval()
    with trace(model, "*.hidden") as seen, torch.no_grad():
        model(ids)
    valid = (ids != pad_id).flatten()
    return [100 * (h.flatten(0, 1)[valid] >= 0).float().mean() for h in seen.values()]


def _silenced(model, layer, unit):
    def hook(module, inputs):
        changed = inputs[0].clone()
        changed[..., unit] = 0
        return (changed,)

    return model.blocks[layer].feed_forward.down_proj.register_forward_pre_hook(hook)


def helpful_units_everywhere(model, ids, answer, candidates, k):
    model.eval()

    def p():
        with torch.no_grad():
            return model(ids)[0].softmax(-1)[:, answer].mean().item()

    base, effect = p(), {}
    for layer, unit in candidates:
        handle = _silenced(model, layer, unit)
        effect[(layer, unit)] = p() - base
        handle.remove()
    ranked = sorted(effect.items(), key=lambda item: item[1], reverse=True)
    return [pair for pair, _ in ranked[:k]]


def logits_with_units_left_out(model, ids, answer, candidates, k):
    falls = []
    with evaluating(model):
        start = model(ids)[0, -1, answer]
        for layer, unit in candidates:
            _silenced(model, layer, unit)
            falls.append(start - model(ids)[0, -1, answer])
    best = torch.stack(falls).argsort(descending=True)[:k]
    return [candidates[i] for i in best]


def largest_changes_by_index(model, ids, answer, candidates, k):
    model.eval()
    with torch.no_grad():
        full = torch.softmax(model(ids)[0, -1], dim=0)[answer]
        changes = torch.zeros(len(candidates), dtype=torch.float64)
        for i, (layer, unit) in enumerate(candidates):
            column = model.blocks[layer].feed_forward.down_proj.weight[:, unit]
            saved = column.clone()
            column.fill_(0)
            changes[i] = (full - torch.softmax(model(ids)[0, -1], dim=0)[answer]).abs()
            column.copy_(saved)
    return changes.topk(k).indices


DOUBLES = {
    "feed_forward.forward": [
        (relu_and_no_second_bias, ("always ReLU", "outer bias forgotten")),
        (bent_twice_without_b1, ("nonlinearity twice", "inner bias forgotten")),
        (tanh_gelu_with_residual, ("the other GELU", "residual added")),
    ],
    "feed_forward.gelu": [
        (gelu_no_root_no_half, ("√2 forgotten", "not halved")),
        (gelu_upper_tail_of_two, ("1 − erf", "divided by 2 inside")),
        (gelu_only_phi_unscaled, ("the chance alone", "√2 forgotten")),
    ],
    "feed_forward.gelu_tanh": [
        (tanh_without_root_and_half, ("√(2/π) forgotten", "not halved")),
        (tanh_bracket_and_digit, ("cube outside the bracket", "another constant")),
        (tanh_two_over_pi_and_no_one, ("no root", "the 1 forgotten")),
    ],
    "feed_forward.swiglu": [
        (swapped_geglu, ("gate and proposal exchanged", "GELU gate")),
        (sum_with_sigmoid, ("added", "sigmoid gate")),
        (own_silu_twice, ("SiLU on both", "sigmoid overflows")),
    ],
    "feed_forward.swiglu_width": [
        (down_to_256, ("always 256", "rounded down")),
        (four_times_nearest, ("the two thirds forgotten", "rounded to the nearest")),
        (without_the_four_and_one_more, ("the four forgotten", "one multiple too many")),
    ],
    "feed_forward.router": [
        (router_without_sum_and_exchanged, ("results exchanged", "not divided by the sum")),
        (router_with_gates_from_the_smallest, ("sigmoid", "smallest probabilities")),
        (router_scaled_and_softmax_again, ("divided by √d_model", "softmax a second time")),
    ],
    "feed_forward.sparsity": [
        (shares_noisy_with_padding, ("padding counted", "dropout left on")),
        (shares_nonzero_by_text, ("whatever is not 0", "texts weighted alike")),
        (percent_with_zeros, ("percentages", "zero counted")),
    ],
    "feed_forward.ablate_fact": [
        (helpful_units_everywhere, ("sign reversed", "all positions")),
        (logits_with_units_left_out, ("logit", "not put back")),
        (largest_changes_by_index, ("size of the change", "positions in the list")),
    ],
}
