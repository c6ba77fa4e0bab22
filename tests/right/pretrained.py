"""Chapter 15: right answers in other styles."""

import copy
import math
import re

import numpy as np
import torch
from torch import nn

from course_lib.claims import interventions
from course_lib.gpt import evaluating
from course_lib.positions import apply_rotary
from course_lib.trace import trace


def map_block_by_block(theirs):
    ours = {"token_embedding.weight": theirs["wte.weight"], "positions.weight": theirs["wpe.weight"]}
    for kind in ("weight", "bias"):
        ours[f"final_norm.{kind}"] = theirs[f"ln_f.{kind}"]
        block = 0
        while f"h.{block}.ln_1.{kind}" in theirs:

            def take(part, kind=kind, block=block):
                tensor = theirs[f"h.{block}.{part}.{kind}"]
                return tensor.T.contiguous() if tensor.dim() == 2 else tensor

            q, k, v = take("attn.c_attn").split(len(take("attn.c_proj")), dim=0)
            made = {"attention.q_proj": q, "attention.k_proj": k, "attention.v_proj": v}
            made |= {"norm1": take("ln_1"), "norm2": take("ln_2"), "attention.out_proj": take("attn.c_proj")}
            made |= {"feed_forward.up_proj": take("mlp.c_fc"), "feed_forward.down_proj": take("mlp.c_proj")}
            ours |= {f"blocks.{block}.{part}.{kind}": tensor for part, tensor in made.items()}
            block += 1
    return ours


WORDS = [
    (r"^h\.(\d+)\.", r"blocks.\1."),
    (r"^wte\.", "token_embedding."),
    (r"^wpe\.", "positions."),
    (r"^ln_f\.", "final_norm."),
    (r"ln_(\d)", r"norm\1"),
    (r"attn\.c_proj", "attention.out_proj"),
    (r"mlp\.c_fc", "feed_forward.up_proj"),
    (r"mlp\.c_proj", "feed_forward.down_proj"),
]


def map_by_patterns(state_dict):
    renamed = {}
    for name, tensor in state_dict.items():
        for pattern, word in WORDS:
            name = re.sub(pattern, word, name)
        renamed[name] = tensor.clone()
    for name in [name for name in renamed if "c_attn" in name]:
        fused = renamed.pop(name)
        d = fused.shape[-1] // 3
        for i, letter in enumerate("qkv"):
            renamed[name.replace("attn.c_attn", f"attention.{letter}_proj")] = fused[..., i * d : (i + 1) * d]
    for name, tensor in renamed.items():
        if tensor.ndim == 2 and name.startswith("blocks"):
            renamed[name] = tensor.transpose(0, 1)
    return renamed | {"output.weight": renamed["token_embedding.weight"]}


def map_in_numpy(state_dict):
    arrays = {name: tensor.numpy() for name, tensor in map_block_by_block(state_dict).items()}
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def roles_by_loops(model, ids):
    layers = model.attention_weights(ids)
    (B, H, T, _), n = layers[0].shape, ids.shape[1] // 2
    scores = {role: torch.zeros(len(layers), H) for role in ("first", "previous", "induction")}
    for layer, weights in enumerate(layers):
        for h in range(H):
            for t in range(1, T):
                scores["previous"][layer, h] += weights[:, h, t, t - 1].sum() / (B * (T - 1))
                scores["first"][layer, h] += weights[:, h, t, 0].sum() / (B * (T - 1))
                if t >= n:
                    scores["induction"][layer, h] += weights[:, h, t, t - n + 1].sum() / (B * n)
    return scores


def roles_by_targets(model, ids):
    """One target place per query; places without one do not count."""
    T = ids.size(1)
    t = torch.arange(T)
    targets = {
        "previous": t - 1,
        "first": torch.where(t > 0, 0, -1),
        "induction": torch.where(t >= T // 2, t - T // 2 + 1, -1),
    }
    found = {role: [] for role in targets}
    for weights in model.attention_weights(ids):
        for role, target in targets.items():
            hot = torch.nn.functional.one_hot(target.clamp(min=0), T) * (target >= 0)[:, None]
            found[role].append(torch.einsum("bhts,ts->h", weights, hot.to(weights)) / (len(ids) * (target >= 0).sum()))
    return {role: torch.stack(rows) for role, rows in found.items()}


def roles_in_numpy(model, ids):
    weights = np.stack([layer.numpy() for layer in model.attention_weights(ids)]).mean(axis=1)  # (L, H, T, T)
    n = weights.shape[-1] // 2
    late = weights[:, :, n:, :]
    return {
        "previous": np.trace(weights, offset=-1, axis1=2, axis2=3) / (2 * n - 1),
        "first": weights[:, :, 1:, 0].mean(axis=-1),
        "induction": np.trace(late, offset=1, axis1=2, axis2=3) / n,
    }


def effects_text_by_text(model, clean, corrupted, control, position, answer, other):
    """One text at a time, each block wrapped in turn in a copy of the model; the leads are added up in Python."""
    B, L = len(clean), len(model.blocks)

    class Wrapped(nn.Module):
        def __init__(self, block, vector):
            super().__init__()
            self.block, self.vector = block, vector

        def forward(self, x, **options):
            x = self.block(x, **options)
            return torch.cat([x[:, :position], self.vector[None, None], x[:, position + 1 :]], dim=1)

    def lead(network, b, ids):
        logits = network(ids)[0, -1]
        return float(logits[answer[b]] - logits[other[b]])

    sums = {"effect": [0.0] * L, "control": [0.0] * L}
    whole = start = 0.0
    with torch.inference_mode():
        network = copy.deepcopy(model).eval()
        for b in range(B):
            start += lead(network, b, corrupted[b : b + 1])
            whole += lead(network, b, clean[b : b + 1])
            for name, ids in (("effect", clean), ("control", control)):
                with trace(network, "blocks.?") as seen:
                    network(ids[b : b + 1])
                for layer in range(L):
                    block = network.blocks[layer]
                    network.blocks[layer] = Wrapped(block, seen[f"blocks.{layer}"][0, position])
                    sums[name][layer] += lead(network, b, corrupted[b : b + 1])
                    network.blocks[layer] = block
    return {name: [(each - start) / (whole - start) for each in row] for name, row in sums.items()}


def effects_in_one_batch(model, clean, corrupted, control, position, answer, other):
    """All three texts in one batch: in a single run, the corrupted rows take their part from the others."""
    B = len(clean)
    was = model.training
    model.eval()

    def leads(ids):
        logits = model(ids)[:, -1].log_softmax(dim=-1)
        rows = torch.arange(len(ids))
        n = len(ids) // B
        return (logits[rows, answer.repeat(n)] - logits[rows, other.repeat(n)]).view(n, B).mean(dim=1)

    def exchange(module, inputs, output):
        output[: 2 * B, position] = output[2 * B :, position]

    found = []
    with torch.no_grad():
        best, worst = leads(torch.cat([clean, corrupted]))
        for block in model.blocks:
            hook = block.register_forward_hook(exchange)
            try:
                found.append(leads(torch.cat([corrupted, corrupted, clean, control]))[:2])
            finally:
                hook.remove()
    model.train(was)
    effect, other_effect = (torch.stack(found, dim=1) - worst) / (best - worst)
    return {"control": other_effect, "effect": effect}


def effects_of_the_library(model, clean, corrupted, control, position, answer, other):
    def lead(logits):
        return (logits[:, -1].gather(1, answer[:, None]) - logits[:, -1].gather(1, other[:, None])).mean()

    with evaluating(model):
        whole = lead(model(clean) - model(corrupted))
    return {
        name: torch.stack(
            [
                lead(interventions.patch(model, corrupted, source, f"blocks.{i}", [position])) / whole
                for i in range(len(model.blocks))
            ]
        )
        for name, source in (("effect", clean), ("control", control))
    }


def angles_as_published(T, d_head, theta, factor, low, high, original):
    """By wavelengths and three cases, as in Llama's own code."""
    speeds = 1.0 / (theta ** (torch.arange(0, d_head, 2).float() / d_head))
    scaled = []
    for speed in speeds:
        wavelength = 2 * math.pi / speed
        if wavelength < original / high:
            scaled.append(speed)
        elif wavelength > original / low:
            scaled.append(speed / factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            scaled.append((1 - smooth) * speed / factor + smooth * speed)
    return torch.outer(torch.arange(T).float(), torch.stack(scaled))


def angles_by_lerp(T, d_head, theta, factor, low, high, original):
    speed = torch.exp(-math.log(theta) * torch.linspace(0, d_head - 2, d_head // 2) / d_head)
    kept = torch.clip((original * speed / math.tau - low) / (high - low), 0, 1)
    return torch.einsum("t,i->ti", torch.arange(T, dtype=torch.float32), torch.lerp(speed / factor, speed, kept))


def angles_in_numpy(T, d_head, theta, factor, low, high, original):
    speed = theta ** (-np.arange(0, d_head, 2, dtype=np.float32) / d_head)
    kept = np.interp(original * speed / (2 * np.pi), [low, high], [0, 1])
    return (np.arange(T)[:, None] * (speed * (kept + (1 - kept) / factor))).astype(np.float32)


def qk_norm_head_by_head(q, k, v, q_gain, k_gain, angles, eps):
    """A loop over batches, heads and queries, with the pairs rotated by hand."""
    B, H, T, D = q.shape

    def ready(row, gain, angle):
        row = row / (row.square().mean() + eps).sqrt() * gain
        a, b = row[: D // 2], row[D // 2 :]
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin]).to(q.dtype)

    out = torch.empty_like(q)
    for b in range(B):
        for h in range(H):
            shared = h * k.shape[1] // H
            keys = torch.stack([ready(k[b, shared, s], k_gain, angles[s]) for s in range(T)])
            for t in range(T):
                scores = keys[: t + 1] @ ready(q[b, h, t], q_gain, angles[t]) * D**-0.5
                out[b, h, t] = scores.softmax(0) @ v[b, shared, : t + 1]
    return out


def qk_norm_with_a_group_axis(q, k, v, q_gain, k_gain, angles, eps):
    """Nothing is repeated: queries get an axis for their group."""
    norm = torch.nn.functional.rms_norm
    q = apply_rotary(norm(q, q.shape[-1:], q_gain, eps), angles).unflatten(1, (k.shape[1], -1))  # (B, Hkv, G, T, D)
    k = apply_rotary(norm(k, k.shape[-1:], k_gain, eps), angles)
    scores = torch.einsum("bhgtd,bhsd->bhgts", q, k) / math.sqrt(q.shape[-1])
    T = scores.shape[-1]
    scores = scores + torch.full((T, T), -torch.inf, dtype=scores.dtype).triu(1)
    return torch.einsum("bhgts,bhsd->bhgtd", scores.softmax(-1), v).flatten(1, 2)


def qk_norm_in_numpy(q, k, v, q_gain, k_gain, angles, eps):
    q, k, v, q_gain, k_gain, angles = (x.numpy() for x in (q, k, v, q_gain, k_gain, angles))

    def ready(x, gain):
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + np.asarray(eps, x.dtype)) * gain
        turned = np.concatenate([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1)
        return x * np.tile(np.cos(angles), 2).astype(x.dtype) + turned * np.tile(np.sin(angles), 2).astype(x.dtype)

    group, T = q.shape[1] // k.shape[1], q.shape[2]
    scores = (
        ready(q, q_gain) @ np.repeat(ready(k, k_gain), group, 1).swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    )
    scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ np.repeat(v, group, 1)


class LoRAByFunctional(nn.Module):
    """The matrix is put together at every call. A starts at zeros and B does not."""

    def __init__(self, linear, rank, alpha):
        super().__init__()
        self.linear, self.rank, self.alpha = linear, rank, alpha
        for parameter in linear.parameters():
            parameter.requires_grad = False
        self.A = nn.Parameter(torch.zeros(rank, linear.in_features))
        self.B = nn.Parameter(torch.empty(linear.out_features, rank).uniform_(-0.1, 0.1))

    def weight(self):
        return self.linear.weight + self.B @ self.A * (self.alpha / self.rank)

    def forward(self, x):
        return nn.functional.linear(x, self.weight(), self.linear.bias)

    def merge(self):
        layer = nn.Linear(self.linear.in_features, self.linear.out_features, self.linear.bias is not None)
        layer.weight = nn.Parameter(self.weight().detach())
        if self.linear.bias is not None:
            layer.bias = nn.Parameter(self.linear.bias.detach().clone())
        return layer


class LoRAInScaledParts(nn.Module):
    """The scale goes into one of the thin matrices, and merging copies the whole layer."""

    def __init__(self, linear, rank, alpha):
        super().__init__()
        linear.weight.requires_grad = False
        if linear.bias is not None:
            linear.bias.requires_grad = False
        self.linear = linear
        self.scale = alpha / rank
        self.A = nn.Parameter(torch.empty(rank, linear.in_features))
        self.B = nn.Parameter(torch.empty(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))
        nn.init.zeros_(self.B)

    def forward(self, x):
        low = torch.einsum("...i,ri->...r", x, self.A) * self.scale
        return torch.einsum("...r,or->...o", low, self.B) + self.linear(x)

    def merge(self):
        layer = copy.deepcopy(self.linear)
        layer.weight.data.addmm_(self.B.data, self.A.data, alpha=self.scale)
        return layer


RIGHT = {
    "pretrained.map_gpt2": [map_block_by_block, map_by_patterns, map_in_numpy],
    "pretrained.head_roles": [roles_by_loops, roles_by_targets, roles_in_numpy],
    "pretrained.patch": [effects_text_by_text, effects_in_one_batch],
    "pretrained.rope_scaling": [angles_as_published, angles_by_lerp, angles_in_numpy],
    "pretrained.qk_norm": [qk_norm_head_by_head, qk_norm_with_a_group_axis, qk_norm_in_numpy],
    "pretrained.lora": [LoRAByFunctional, LoRAInScaledParts],
}
OF_THE_LIBRARY = {"pretrained.patch": [effects_of_the_library]}
