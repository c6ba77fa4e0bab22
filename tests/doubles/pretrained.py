"""Answers with two mistakes of the page at once, chapter 15."""

import re

import torch


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
}
