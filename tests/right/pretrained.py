"""Chapter 15: right answers in other styles."""

import math
import re

import numpy as np
import torch


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


RIGHT = {
    "pretrained.map_gpt2": [map_block_by_block, map_by_patterns, map_in_numpy],
    "pretrained.head_roles": [roles_by_loops, roles_by_targets, roles_in_numpy],
    "pretrained.rope_scaling": [angles_as_published, angles_by_lerp, angles_in_numpy],
}
