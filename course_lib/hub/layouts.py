"""Layouts: where other libraries keep the same numbers, but not as the same tensors.

Chapter 15. A matrix lies on its side, three lie in one, a table has rows that nobody reads. Each function takes a
tensor under its own name and returns what becomes of it, under names of the same style. Where a family computes the
same in another order, its weights are put into ours, once.
"""

import re

import torch
from torch import Tensor

from course_lib.config import TransformerConfig
from course_lib.hub.names import PADDING_ROWS


def as_ours(family: str, name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """Return a tensor of that family in our layout: under its own name, or cut into several."""
    return LAYOUTS[family](name, tensor, config) if family in LAYOUTS else {name: tensor}


def _gpt2(name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """GPT-2 stores its linear layers as (in, out), ours are (out, in); and its q, k and v are one matrix."""
    if re.fullmatch(r"h\.\d+\.(attn|mlp)\.c_\w+\.weight", name):
        tensor = tensor.T
    if ".c_attn." in name:
        return {name.replace("c_attn", f"c_attn.{part}"): third for part, third in zip("qkv", tensor.chunk(3))}
    return {name: tensor}


def _gpt_neox(name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """GPT-NeoX keeps q, k and v of a head together, head after head, and turns the first features of each head.

    RoPE turns feature i together with i + D / 2 in our heads, with i + d_rotary / 2 in theirs. Scores do not notice an
    order of features that queries and keys share, so the rows of q and k are put into ours. Files call the output head
    embed_out, newer versions of transformers lm_head.
    """
    name = name.replace("embed_out", "lm_head")
    if ".query_key_value." not in name or tensor.shape[0] != 3 * config.n_heads * config.d_head:
        return {name: tensor}  # of a wrong shape: the loader will say so
    parts = tensor.unflatten(0, (config.n_heads, 3, config.d_head)).unbind(dim=1)  # (H, D) or (H, D, d_model) each
    turned, still = torch.arange(config.d_head).split([config.d_rotary, config.d_head - config.d_rotary])
    order = (
        torch.cat([half for pair in zip(turned.chunk(2), still.chunk(2)) for half in pair]) if len(still) else turned
    )
    ours = {"q": parts[0][:, order], "k": parts[1][:, order], "v": parts[2]}
    return {name.replace("query_key_value", part): rows.flatten(0, 1) for part, rows in ours.items()}


def _roberta(name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """RoBERTa counts positions from 2: the first rows of its table belong to the padding."""
    return {name: tensor[PADDING_ROWS:] if name == "embeddings.position_embeddings.weight" else tensor}


def _marian(name: str, tensor: Tensor, config: TransformerConfig) -> dict[str, Tensor]:
    """Marian has all sines before all cosines, where ours alternate; and it adds a bias to the logits.

    The features of the residual stream have no order of their own, so all that reads or writes them is put into ours.
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
    """T5 divides no score by √D and multiplies no embedding by √d_model: W_Q and the table make up for it.

    Tied, it divides the states before the output head by √d_model instead; the smaller table does that too.
    """
    name = name.replace("shared.", "encoder.embed_tokens.")
    name = re.sub(r"^(encoder\.block\.\d+\.layer)\.1\.", r"\1.2.", name)  # a decoder's second branch is a third one
    if name.endswith("Attention.q.weight"):
        tensor = tensor * config.d_head**0.5
    if "embed_tokens" in name or (name == "lm_head.weight" and config.tie_weights):
        tensor = tensor / config.d_model**0.5
    return {name: tensor}


LAYOUTS = {"gpt2": _gpt2, "gpt_neox": _gpt_neox, "roberta": _roberta, "marian": _marian, "t5": _t5}
