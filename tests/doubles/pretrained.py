"""Answers with two mistakes of the page at once, chapter 15."""

import math
import re

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.gpt import evaluating
from course_lib.positions import apply_rotary
from course_lib.trace import trace


def untransposed_without_the_last_norm(state_dict):
    renamed = {
        "token_embedding.weight": state_dict["wte.weight"],
        "positions.weight": state_dict["wpe.weight"],
    }
    n_blocks = 1 + max(int(key.split(".")[1]) for key in state_dict if key.startswith("h."))
    for i in range(n_blocks):
        for suffix in ("weight", "bias"):
            old, new = f"h.{i}.", f"blocks.{i}."
            renamed[f"{new}norm1.{suffix}"] = state_dict[f"{old}ln_1.{suffix}"]
            renamed[f"{new}norm2.{suffix}"] = state_dict[f"{old}ln_2.{suffix}"]
            q, k, v = state_dict[f"{old}attn.c_attn.{suffix}"].chunk(3, dim=-1)
            renamed[f"{new}attention.q_proj.{suffix}"] = q
            renamed[f"{new}attention.k_proj.{suffix}"] = k
            renamed[f"{new}attention.v_proj.{suffix}"] = v
            renamed[f"{new}attention.out_proj.{suffix}"] = state_dict[f"{old}attn.c_proj.{suffix}"]
            renamed[f"{new}feed_forward.up_proj.{suffix}"] = state_dict[f"{old}mlp.c_fc.{suffix}"]
            renamed[f"{new}feed_forward.down_proj.{suffix}"] = state_dict[f"{old}mlp.c_proj.{suffix}"]
    return renamed


PLAIN_NAMES = [
    ("ln_1", "norm1"),
    ("ln_2", "norm2"),
    ("attn.c_proj", "attention.out_proj"),
    ("mlp.c_fc", "feed_forward.up_proj"),
    ("mlp.c_proj", "feed_forward.down_proj"),
]


def all_turned_and_one_digit(state_dict):
    result = {}
    for key, value in state_dict.items():
        value = value.T if value.ndim == 2 else value
        match = re.match(r"h\.(\d)\d*\.(.*)\.(weight|bias)", key)
        if match is None:
            key = key.replace("wte", "token_embedding").replace("wpe", "positions").replace("ln_f", "final_norm")
            result[key] = value
            continue
        number, part, end = match.groups()
        if part == "attn.c_attn":
            width = value.shape[0] // 3
            for i, name in enumerate(["q_proj", "k_proj", "v_proj"]):
                result[f"blocks.{number}.attention.{name}.{end}"] = value[i * width : (i + 1) * width]
        else:
            result[f"blocks.{number}.{dict(PLAIN_NAMES)[part]}.{end}"] = value
    return result


def projections_left_and_norms_swapped(state_dict):
    out = {}
    for name, t in state_dict.items():
        new = name.replace("h.", "blocks.", 1) if name.startswith("h.") else name
        new = new.replace("wte.", "token_embedding.").replace("wpe.", "positions.").replace("ln_f.", "final_norm.")
        new = new.replace(".ln_2.", ".norm1.").replace(".ln_1.", ".norm2.")
        if "c_attn" in new:
            stem, kind = new.split("attn.c_attn.")
            d = t.shape[-1] // 3
            for letter, piece in zip("qkv", torch.split(t, d, dim=-1)):
                out[f"{stem}attention.{letter}_proj.{kind}"] = piece
            continue
        new = new.replace(".attn.c_proj.", ".attention.out_proj.").replace(".mlp.c_fc.", ".feed_forward.up_proj.")
        new = new.replace(".mlp.c_proj.", ".feed_forward.down_proj.")
        if name.endswith(("attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")):
            t = t.t().contiguous()
        out[new] = t
    return out


def columns_and_sums(model, ids):
    scores = {"previous": [], "first": [], "induction": []}
    n = ids.shape[1] // 2
    for block in model.attention_weights(ids):
        table = block.mean(0).transpose(-1, -2)  # (H, T, T)
        T = table.shape[-1]
        scores["previous"].append(sum(table[:, t, t - 1] for t in range(1, T)))
        scores["first"].append(sum(table[:, t, 0] for t in range(1, T)))
        scores["induction"].append(sum(table[:, t, t - n + 1] for t in range(n, T)))
    return {name: torch.stack(rows) for name, rows in scores.items()}


def own_place_and_own_word(model, ids):
    T = ids.size(1)
    n = T // 2
    W = torch.stack(model.attention_weights(ids)).mean(1)
    t = torch.arange(1, T)
    late = torch.arange(n, T)
    return {
        "previous": W[:, :, t, t].mean(-1),
        "first": W[:, :, t, 0].mean(-1),
        "induction": W[:, :, late, late - n].mean(-1),
    }


def all_queries_of_summed_texts(model, ids):
    previous, first, induction = [], [], []
    n = ids.shape[1] // 2
    for w in model.attention_weights(ids):  # (B, H, T, T)
        w = w.sum(dim=0)
        previous.append(torch.diagonal(w, -1, 1, 2).mean(-1))
        first.append(w[:, :, 0].mean(-1))
        induction.append(torch.diagonal(w[:, n:, 1:], 0, 1, 2).mean(-1))
    return {"previous": torch.stack(previous), "first": torch.stack(first), "induction": torch.stack(induction)}


def undivided_with_the_last_position(model, clean, corrupted, control, position, answer, other):
    """The last position is replaced, and the change of the lead is not divided."""
    model.eval()
    rows = torch.arange(len(clean))

    @torch.no_grad()
    def diff(ids):
        logits = model(ids)
        return (logits[rows, -1, answer] - logits[rows, -1, other]).mean()

    base = diff(corrupted)
    out = {}
    for name, tokens in [("effect", clean), ("control", control)]:
        effects = []
        for block in model.blocks:
            kept = {}
            h = block.register_forward_hook(lambda m, i, o, kept=kept: kept.update(out=o))
            diff(tokens)
            h.remove()

            def put(m, i, o, kept=kept):
                o = o.clone()
                o[:, -1] = kept["out"][:, -1]
                return o

            h = block.register_forward_hook(put)
            effects.append(diff(corrupted) - base)
            h.remove()
        out[name] = torch.stack(effects)
    return out


def probabilities_of_the_whole_run(model, clean, corrupted, control, position, answer, other):
    """Probabilities in place of logits, and the stream at all positions."""

    def p(ids):
        probs = model(ids)[:, -1].softmax(-1)
        return (probs.gather(1, answer.unsqueeze(1)) - probs.gather(1, other.unsqueeze(1))).mean().item()

    with evaluating(model):
        low, high = p(corrupted), p(clean)
        result = {"effect": [], "control": []}
        for key, source in (("effect", clean), ("control", control)):
            for i, block in enumerate(model.blocks):
                with trace(model, f"blocks.{i}") as seen:
                    model(source)
                hook = block.register_forward_hook(lambda *_, new=seen[f"blocks.{i}"]: new)
                result[key].append((p(corrupted) - low) / (high - low))
                hook.remove()
    return result


def first_text_with_hooks_left(model, clean, corrupted, control, position, answer, other):
    """The hooks are not removed, and only the first text is measured."""
    model.eval()

    def logit_diff(ids):
        logits = model(ids)[0, -1]
        return logits[answer[0]] - logits[other[0]]

    with torch.no_grad():
        start = logit_diff(corrupted)
        total = logit_diff(clean) - start
        table = {}
        for key, ids in {"effect": clean, "control": control}.items():
            table[key] = []
            for layer in model.blocks:
                store = []
                hook = layer.register_forward_hook(lambda m, i, o, store=store: store.append(o))
                model(ids)
                hook.remove()

                def swap_in(m, i, o, store=store):
                    o = o.clone()
                    o[:, position] = store[0][:, position]
                    return o

                layer.register_forward_hook(swap_in)
                table[key].append(((logit_diff(corrupted) - start) / total).item())
    return table


def radians_that_grow(T, d_head, theta, factor, low, high, original):
    """2π forgotten, and the exponent without its minus."""
    inv_freq = theta ** (torch.arange(0, d_head, 2).float() / d_head)
    turns = original * inv_freq
    smooth = torch.clamp((turns - low) / (high - low), 0.0, 1.0)
    scaled = smooth * inv_freq + (1 - smooth) * inv_freq / factor
    return torch.outer(torch.arange(T).float(), scaled)


def step_for_each_feature(T, d_head, theta, factor, low, high, original):
    """No mix between low and high, and an angle for each feature."""
    freqs = 1.0 / theta ** (torch.arange(0, d_head, 2) / d_head)
    turns = original * freqs / (2 * math.pi)
    freqs = torch.where(turns >= high, freqs, freqs / factor)
    angles = torch.arange(T).unsqueeze(1) * freqs
    return torch.cat([angles, angles], dim=-1)


def slower_from_one(T, d_head, theta, factor, low, high, original):
    """Multiplied by the factor, and positions that begin with 1."""
    speeds = torch.pow(theta, -2 * torch.arange(d_head // 2) / d_head)
    kept = ((original * speeds / math.tau - low) / (high - low)).clip(0, 1)
    mixed = kept * speeds + (1 - kept) * speeds * factor
    return torch.stack([(t + 1) * mixed for t in range(T)])


def layer_norms_without_a_root_of_d(q, k, v, q_gain, k_gain, angles, eps):
    """The mean is subtracted, and the scores are not scaled."""
    D = q.shape[-1]
    q = apply_rotary(F.layer_norm(q, (D,), q_gain, eps=eps), angles)
    k = apply_rotary(F.layer_norm(k, (D,), k_gain, eps=eps), angles)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    scores = torch.einsum("bhtd,bhsd->bhts", q, k)
    T = scores.shape[-1]
    scores = scores.masked_fill(torch.triu(torch.ones(T, T), 1).bool(), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def rope_first_and_all_seen(q, k, v, q_gain, k_gain, angles, eps):
    """RoPE before the norms, and no mask."""

    def norm(x, weight):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight

    q, k = norm(apply_rotary(q, angles), q_gain), norm(apply_rotary(k, angles), k_gain)
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def unit_queries_and_heads_in_a_row(q, k, v, q_gain, k_gain, angles, eps):
    """Divided by the length, and the heads of keys repeated as a whole row."""
    n_rep = q.size(1) // k.size(1)
    q = q / torch.sqrt(q.square().sum(-1, keepdim=True) + eps) * q_gain
    k = k / torch.sqrt(k.square().sum(-1, keepdim=True) + eps) * k_gain
    q, k = apply_rotary(q, angles), apply_rotary(k, angles)
    k, v = torch.cat([k] * n_rep, dim=1), torch.cat([v] * n_rep, dim=1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class UnscaledAndUnfrozen(nn.Module):
    """Alpha is forgotten, and the given layer is trained as well."""

    def __init__(self, linear, rank, alpha):
        super().__init__()
        self.linear = linear
        self.A = nn.Parameter(torch.randn(rank, linear.in_features) * 0.02)
        self.B = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x):
        return self.linear(x) + x @ self.A.T @ self.B.T

    def merge(self):
        merged = nn.Linear(self.linear.in_features, self.linear.out_features, bias=self.linear.bias is not None)
        merged.weight = nn.Parameter(self.linear.weight.detach() + self.B.detach() @ self.A.detach())
        merged.bias = self.linear.bias
        return merged


class DeadAndUnmerged(nn.Module):
    """Both thin matrices start at 0, and merging forgets them."""

    def __init__(self, linear, rank, alpha):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.A = nn.Parameter(torch.zeros(rank, linear.in_features))
        self.B = nn.Parameter(torch.zeros(linear.out_features, rank))
        self.factor = alpha / rank

    def forward(self, x):
        return self.linear(x) + F.linear(F.linear(x, self.A), self.B) * self.factor

    def merge(self):
        merged = nn.Linear(self.linear.in_features, self.linear.out_features, self.linear.bias is not None)
        merged.load_state_dict(self.linear.state_dict())
        return merged.to(self.linear.weight.dtype)


class UpsideDownAndInPlace(nn.Module):
    """rank / alpha, and the product is written into the given layer."""

    def __init__(self, linear, rank, alpha):
        super().__init__()
        self.linear = linear
        for p in linear.parameters():
            p.requires_grad = False
        self.A = nn.Parameter(torch.randn(rank, linear.in_features))
        self.B = nn.Parameter(torch.zeros(linear.out_features, rank))
        self.s = rank / alpha

    def forward(self, x):
        return self.linear(x) + self.s * (x @ (self.B @ self.A).T)

    def merge(self):
        with torch.no_grad():
            self.linear.weight += self.s * (self.B @ self.A)
        return self.linear


DOUBLES = {
    "pretrained.map_gpt2": [
        (untransposed_without_the_last_norm, ("nothing transposed", "final norm forgotten")),
        (all_turned_and_one_digit, ("tables transposed", "one digit of the block")),
        (projections_left_and_norms_swapped, ("c_attn not transposed", "norms exchanged")),
    ],
    "pretrained.head_roles": [
        (columns_and_sums, ("rows for columns", "sum over the positions")),
        (own_place_and_own_word, ("itself for the position before", "the same word")),
        (all_queries_of_summed_texts, ("first position counted", "sum over the texts")),
    ],
    "pretrained.patch": [
        (undivided_with_the_last_position, ("last position", "not divided")),
        (probabilities_of_the_whole_run, ("probabilities", "all positions")),
        (first_text_with_hooks_left, ("one text", "hooks left")),
    ],
    "pretrained.rope_scaling": [
        (radians_that_grow, ("2π forgotten", "speeds that grow")),
        (step_for_each_feature, ("a step at high", "a number for each feature")),
        (slower_from_one, ("multiplied by the factor", "positions from one")),
    ],
    "pretrained.qk_norm": [
        (layer_norms_without_a_root_of_d, ("mean subtracted", "scores not scaled")),
        (rope_first_and_all_seen, ("norm after RoPE", "not causal")),
        (unit_queries_and_heads_in_a_row, ("divided by the length", "heads repeated in a row")),
    ],
    "pretrained.lora": [
        (UnscaledAndUnfrozen, ("not scaled", "nothing frozen")),
        (DeadAndUnmerged, ("both zero", "nothing merged")),
        (UpsideDownAndInPlace, ("rank over alpha", "merged in place")),
    ],
}
