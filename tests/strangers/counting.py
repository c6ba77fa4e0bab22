"""Right answers in the manner of others, chapter 10: a closed formula, a bill by part, modules of one's own, NumPy."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


def in_one_formula(cfg):
    """As scaling-law papers write it: N = 12 · L · d² and its corrections, no branch but in the switches."""
    d, L, V = cfg.d_model, cfg.n_layers, cfg.vocab_size
    kv, b, g = cfg.n_kv_heads * (d // cfg.n_heads), int(cfg.bias), 1 + (cfg.activation == "swiglu")
    per_norm = d * (1 + (b and cfg.norm == "layer"))
    attention = 2 * d * (d + kv) + 2 * b * (d + kv)
    mlp = (g + 1) * d * cfg.d_ff + b * (g * cfg.d_ff + d)
    tables = V * d * (2 - cfg.tie_weights) + cfg.max_seq_len * d * (cfg.positions == "learned")
    return int(tables + L * (attention + mlp + 2 * per_norm) + per_norm)


def as_a_bill(config):
    """A dictionary by part, as a notebook prints it before it adds up."""
    bill: dict[str, int] = {"wte": config.vocab_size * config.d_model}
    match config.positions:
        case "learned":
            bill["wpe"] = config.max_seq_len * config.d_model
        case _:
            bill["wpe"] = 0
    bill["lm_head"] = 0 if config.tie_weights else bill["wte"]
    norm_vectors = {("layer", True): 2, ("layer", False): 1, ("rms", True): 1, ("rms", False): 1}
    bill["ln_f"] = config.d_model * norm_vectors[config.norm, config.bias]
    for layer in range(config.n_layers):
        widths = [config.d_model] + [config.n_kv_heads * config.d_head] * 2 + [config.d_model]
        bill[f"h.{layer}.attn"] = sum(config.d_model * w for w in widths) + config.bias * sum(widths)
        ups = ["gate", "up"] if config.activation == "swiglu" else ["up"]
        bill[f"h.{layer}.mlp"] = (len(ups) + 1) * config.d_model * config.d_ff
        if config.bias:
            bill[f"h.{layer}.mlp"] += len(ups) * config.d_ff + config.d_model
        bill[f"h.{layer}.norms"] = 2 * bill["ln_f"]
    return sum(bill.values())


class OwnBlock(nn.Module):
    """A block of torch's modules, which is never run."""

    def __init__(self, c):
        super().__init__()
        self.ln_1, self.ln_2 = own_norm(c), own_norm(c)
        self.q, self.o = (nn.Linear(c.d_model, c.d_model, bias=c.bias) for _ in range(2))
        self.kv = nn.Linear(c.d_model, 2 * c.n_kv_heads * c.d_head, bias=c.bias)
        self.up = nn.ModuleList(nn.Linear(c.d_model, c.d_ff, c.bias) for _ in range(1 + (c.activation == "swiglu")))
        self.down = nn.Linear(c.d_ff, c.d_model, c.bias)


def own_norm(c):
    return nn.LayerNorm(c.d_model, bias=c.bias) if c.norm == "layer" else nn.RMSNorm(c.d_model)


def built_of_torch(config):
    """nanoGPT's get_num_params: build it, then sum numel."""
    with torch.device("meta"):
        model = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.d_model),
                "h": nn.ModuleList([OwnBlock(config) for _ in range(config.n_layers)]),
                "ln_f": own_norm(config),
                "lm_head": nn.Linear(config.d_model, config.vocab_size, bias=False),
            }
        )
        if config.positions == "learned":
            model["wpe"] = nn.Embedding(config.max_seq_len, config.d_model)
    if config.tie_weights:
        model["lm_head"].weight = model["wte"].weight
    return sum(p.numel() for p in model.parameters())


def in_numpy_products(config):
    """Rows of (times, in, out) and a product; what has a bias is marked by its own column."""
    d, kv, f, L = config.d_model, config.n_kv_heads * config.d_head, config.d_ff, config.n_layers
    ups = 2 if config.activation == "swiglu" else 1
    linear = np.array([[2 * L, d, d], [2 * L, d, kv], [ups * L, d, f], [L, f, d]], dtype=np.int64)
    total = np.prod(linear, axis=1).sum()
    if config.bias:
        total += (linear[:, 0] * linear[:, 2]).sum()
    total += (2 * L + 1) * d * (2 if config.bias and config.norm == "layer" else 1)
    total += config.vocab_size * d * (1 if config.tie_weights else 2)
    if config.positions == "learned":
        total += config.max_seq_len * d
    return total


def counted_block_by_block(config):
    """A recursion over the blocks."""

    def rest(layers):
        norm = config.d_model + (config.d_model if config.norm == "layer" and config.bias else 0)
        if layers == 0:
            head = 0 if config.tie_weights else config.vocab_size * config.d_model
            return norm + head
        lin = lambda i, o: i * o + (o if config.bias else 0)  # noqa: E731
        attn = lin(config.d_model, config.d_model) * 2 + lin(config.d_model, config.n_kv_heads * config.d_head) * 2
        mlp = lin(config.d_model, config.d_ff) + lin(config.d_ff, config.d_model)
        if config.activation == "swiglu":
            mlp += lin(config.d_model, config.d_ff)
        return norm + attn + norm + mlp + rest(layers - 1)

    embeddings = config.vocab_size * config.d_model
    if config.positions == "learned":
        embeddings += config.max_seq_len * config.d_model
    return embeddings + rest(config.n_layers)


def flops_by_rule_of_thumb(N: int, D: int) -> float:
    """6ND, and a third more for the second forward pass."""
    return 6 * N * D * 4 / 3


def flops_pass_by_pass(n_params, n_tokens):
    passes = {"forward": 1, "recomputed": 1, "gradient of the input": 1, "gradient of the weights": 1}
    total = 0
    for times in passes.values():
        multiplications = additions = times * n_params * n_tokens
        total += multiplications + additions
    return total


def flops_in_float64(n_params, n_tokens):
    params, tokens = np.float64(n_params), np.float64(n_tokens)
    return np.dot([2.0, 2.0, 4.0], np.full(3, params * tokens))


def flops_in_torch(n_params, n_tokens):
    fwd = torch.tensor([2 * n_params * n_tokens], dtype=torch.float64)
    bwd = 2 * fwd
    return (fwd + fwd + bwd).item()


@dataclass
class Precision:
    """Bits of what is kept for each parameter."""

    weight: int
    gradient: int
    moment: int = 8
    master: int = 0

    def bytes(self, n):
        bits = self.weight + self.gradient + 2 * self.moment + self.master
        return n * bits / 8


def bytes_of_a_precision(n_params, mixed_precision=False):
    return (Precision(16, 16, master=32) if mixed_precision else Precision(32, 32)).bytes(n_params)


def bytes_by_dtype(n_params: int, mixed_precision: bool = False) -> int:
    dtypes = [torch.float16] * 2 + [torch.float32] if mixed_precision else [torch.float32] * 2
    dtypes += [torch.uint8] * 2
    return sum(torch.empty((), dtype=dtype).element_size() for dtype in dtypes) * n_params


def bytes_by_finfo(n_params, mixed_precision=False):
    half, single, byte = torch.finfo(torch.bfloat16).bits, torch.finfo(torch.float32).bits, torch.iinfo(torch.int8).bits
    weights = grads = half if mixed_precision else single
    states = 2 * byte
    master = mixed_precision * single
    return math.ceil(n_params * (weights + grads + states + master) / byte)


def bytes_in_numpy(n_params, mixed_precision=False):
    kinds = ["f2", "f2", "i1", "i1", "f4"] if mixed_precision else ["f4", "f4", "i1", "i1"]
    return np.sum([np.dtype(kind).itemsize for kind in kinds]) * n_params


def bytes_of_a_table(n_params, mixed_precision=False):
    total = 0
    for name, full, mixed in [
        ("weights", 4, 2),
        ("gradients", 4, 2),
        ("exp_avg", 1, 1),
        ("exp_avg_sq", 1, 1),
        ("master", 0, 4),
    ]:
        total += (mixed if mixed_precision else full) * n_params
        assert total >= 0, name
    return total


STRANGERS = {
    "counting.function": [
        in_one_formula,
        as_a_bill,
        built_of_torch,
        in_numpy_products,
        counted_block_by_block,
    ],
    "counting.flops": [flops_by_rule_of_thumb, flops_pass_by_pass, flops_in_float64, flops_in_torch],
    "counting.memory": [
        bytes_of_a_precision,
        bytes_by_dtype,
        bytes_by_finfo,
        bytes_in_numpy,
        bytes_of_a_table,
    ],
}
