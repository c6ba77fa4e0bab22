"""Layouts: convert tensors of other libraries that hold the same numbers in another arrangement.

Chapter 15. Some libraries transpose a matrix, store three matrices as one, or add unused rows to a table. Each function
takes a tensor with its original name and returns our tensors, under names of the same style. If a family orders
features differently, the function reorders its weights.
"""

import re

import torch
from torch import Tensor

from course_lib.config import TransformerConfig
from course_lib.hub.names import PADDING_ROWS


def as_ours(family: str, name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """Return a tensor of that family in our layout: as one tensor under its own name, or split into several."""
    return LAYOUTS[family](name, tensor, config) if family in LAYOUTS else {name: tensor}


def _gpt2(name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """Transpose GPT-2's linear layers to our (out, in), and split its single matrix for q, k and v."""
    if re.fullmatch(r"h\.\d+\.(attn|mlp)\.c_\w+\.weight", name):
        tensor = tensor.T
    if ".c_attn." in name:
        return {name.replace("c_attn", f"c_attn.{part}"): third for part, third in zip("qkv", tensor.chunk(3))}
    return {name: tensor}


def _gpt_neox(name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """Split GPT-NeoX's matrix for q, k and v, which it stores head by head, and reorder the rows of q and k.

    RoPE pairs feature i with i + D / 2 in our heads, and with i + d_rotary / 2 in theirs. Scores do not depend on the
    order of features if queries and keys share it, so we can use our own order. The output head is embed_out in files
    and lm_head in newer versions of transformers.
    """
    name = name.replace("embed_out", "lm_head")
    if ".query_key_value." not in name or tensor.shape[0] != 3 * config.n_heads * config.d_head:
        return {name: tensor}  # the shape is wrong, and the loader will report it
    parts = tensor.unflatten(0, (config.n_heads, 3, config.d_head)).unbind(dim=1)  # (H, D) or (H, D, d_model) each
    turned, still = torch.arange(config.d_head).split([config.d_rotary, config.d_head - config.d_rotary])
    order = (
        torch.cat([half for pair in zip(turned.chunk(2), still.chunk(2)) for half in pair]) if len(still) else turned
    )
    ours = {"q": parts[0][:, order], "k": parts[1][:, order], "v": parts[2]}
    return {name.replace("query_key_value", part): rows.flatten(0, 1) for part, rows in ours.items()}


def _roberta(name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """Drop the first two rows of RoBERTa's position table: they are for padding, and positions count from 2."""
    return {name: tensor[PADDING_ROWS:] if name == "embeddings.position_embeddings.weight" else tensor}


def _marian(name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """Reorder Marian's features, because it puts all sines before all cosines; ours alternate.

    The residual stream's features have no fixed order, so we reorder every weight that reads or writes them. Marian
    also adds a bias to the logits.
    """
    name = name.replace("shared.", "encoder.embed_tokens.")
    if name == "final_logits_bias":
        return {"lm_head.bias": tensor.flatten()}
    order = torch.empty(config.d_model, dtype=torch.int64)
    order[0::2], order[1::2] = torch.arange(config.d_model).split([(config.d_model + 1) // 2, config.d_model // 2])
    reads = re.search(r"(embed_tokens|lm_head|[qkv]_proj|fc1)\.weight$", name)
    writes = re.search(r"(out_proj|fc2|norm)\.(weight|bias)$", name)
    dim = -1 if reads else 0
    fits = (reads or writes) and tensor.shape[dim] == config.d_model
    return {name: tensor.index_select(dim, order.to(tensor.device)) if fits else tensor}


def _t5(name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """Rescale T5's W_Q and embeddings: T5 does not divide scores by √D or multiply embeddings by √d_model.

    With tied weights, T5 divides the states before the output head by √d_model; the smaller table has the same effect.
    """
    name = name.replace("shared.", "encoder.embed_tokens.")
    name = re.sub(r"^(encoder\.block\.\d+\.layer)\.1\.", r"\1.2.", name)  # renamed as in a decoder block
    if name.endswith("Attention.q.weight"):
        tensor = tensor * config.d_head**0.5
    if "embed_tokens" in name or (name == "lm_head.weight" and config.tie_weights):
        tensor = tensor / config.d_model**0.5
    return {name: tensor}


def _experts(name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """Split the matrices of all experts, which newer versions of transformers store as one tensor.

    Files have a tensor for each expert. Mixtral's have names of their own: w1 is the gate, w2 goes down and w3 up.
    """
    name = name.replace("block_sparse_moe", "mlp")
    for theirs, ours in {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}.items():
        name = name.replace(f".{theirs}.", f".{ours}.")
    layer, _, kind = name.rpartition(".")
    if kind not in ("gate_up_proj", "down_proj") or tensor.ndim != 3:
        return {name: tensor}
    gates_and_ups = kind == "gate_up_proj"
    parts = dict(zip(("gate_proj", "up_proj"), tensor.chunk(2, dim=1))) if gates_and_ups else {kind: tensor}
    return {f"{layer}.{e}.{part}.weight": each for part, every in parts.items() for e, each in enumerate(every)}


def _gemma(name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """Convert Gemma's norms, which multiply by 1 + weight, and its embeddings, which it multiplies by √d_model.

    A tied table that is larger by √d_model would also make the logits larger, so the last norm is divided by √d_model.
    In 16 bits 1 + weight would lose digits of the weight, so the tensors become float32, and with them the model.
    """
    factor = config.d_model**0.5
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    if name == "embed_tokens.weight" or (name == "lm_head.weight" and config.tie_weights):
        return {name: wide * factor}
    if name == "norm.weight" and config.tie_weights:
        return {name: (1 + wide) / factor}
    return {name: 1 + wide if name.endswith("norm.weight") else tensor}


LAYOUTS = {
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "roberta": _roberta,
    "marian": _marian,
    "t5": _t5,
    "qwen3_moe": _experts,
    "mixtral": _experts,
    "gemma": _gemma,
    "gemma3_text": _gemma,
}
