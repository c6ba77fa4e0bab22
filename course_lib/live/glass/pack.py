"""A model as bytes that a page reads: its weights in half precision or in 8 bits, its config and its tokenizer."""

import json
from copy import deepcopy
from dataclasses import asdict
from typing import Any, Literal

import torch
from safetensors.torch import save
from torch import Tensor

from course_lib.checks import require_one_of
from course_lib.efficiency import quantize_int8
from course_lib.gpt import DecoderOnly
from course_lib.positions import alibi_bias, rotary_angles
from course_lib.tinytown import SubwordTokenizer, WordTokenizer

# Switches that `engine.js` does not know, and the one value that it accepts for each.
UNKNOWN = {"head_dim": None, "rotary_share": 1.0, "rope_scaling": None, "window": None, "n_experts": None}
UNKNOWN |= {"experts_per_token": None, "d_expert": None, "norm_topk_prob": True}
UNKNOWN |= dict.fromkeys(("qkv_bias", "qk_norm", "parallel", "output_bias"), False)
MOST_IN_HALVES = 5_000_000  # weights: larger models are packed in 8 bits
MOST_WEIGHTS = 200_000_000  # beyond this a browser's memory is not enough
MOST_TOKENS, MOST_OF_A_LARGE_ONE = 128, 64  # the page keeps all its results for this many tokens


def pack(model: DecoderOnly, tokenizer: WordTokenizer | SubwordTokenizer, bits: Literal[8, 16] | None = None) -> bytes:
    """Return a model and its tokenizer as the bytes of a safetensors file, for `engine.js`.

    Args:
        model: a decoder with any norms, any positions but "relative", and any activation but "silu" and "geglu".
        tokenizer: the model's own, with tokens that are words, or subwords merged in pairs as in GPT-2 or
            SentencePiece.
        bits: per weight: 16 (half precision), or 8 with a scale for each row of a matrix (`quantize_int8`). The default
            is 16 for up to five million weights, and 8 for more.

    Errors: TypeError for another model or tokenizer. ValueError for a model of more than 200 million weights, with
        weights that half precision cannot represent, or with a switch that the page does not know. ValueError also for
        a tokenizer that does not fit the model, or merges subwords in another way.
    """
    if not isinstance(model, DecoderOnly):
        raise TypeError(f"model must be a DecoderOnly, got {type(model).__name__}: the page shows a decoder")
    config = _config(model)
    told = _words(tokenizer) if isinstance(tokenizer, WordTokenizer) else _pieces(tokenizer)
    if len(told["tokens"]) != model.config.vocab_size:
        raise ValueError(f"tokenizer has {len(told['tokens'])} tokens, but the model has {model.config.vocab_size}")
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    if model.config.tie_weights:
        del weights["output.weight"]  # the same matrix as the token embedding
    if (count := sum(weight.numel() for weight in weights.values())) > MOST_WEIGHTS:
        raise ValueError(f"model has {count:,} weights: the page shows up to {MOST_WEIGHTS:,}")
    if bits is None:
        bits = 16 if count <= MOST_IN_HALVES else 8
    require_one_of((8, 16), bits=bits)
    config["max_seq_len"] = min(config["max_seq_len"], MOST_TOKENS if count <= MOST_IN_HALVES else MOST_OF_A_LARGE_ONE)
    rows = torch.zeros(config["max_seq_len"], model.config.d_model, device="cpu")
    with torch.no_grad():  # on the CPU, because a GPU's sines differ in the last digit
        rows = rows if model.positions is None else deepcopy(model.positions).cpu()(rows)
    weights.pop("positions.weight", None)  # a learned table: like all positions, its rows are added below
    packed = {
        name: part for each, weight in weights.items() for name, part in _packed(each, weight.cpu(), bits).items()
    }
    about = {"config": json.dumps(config), "tokenizer": json.dumps(told, ensure_ascii=False)}
    return _in_order(save(packed | _packed("positions.weight", rows, 16), about))


def _in_order(file: bytes) -> bytes:
    """Return a safetensors file with its metadata sorted, because `save` writes it in any order.

    The same model then has the same bytes, and a browser does not fetch them again.
    """
    begin = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:begin])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    told = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    told += b" " * (-len(told) % 8)  # the numbers after it begin at a multiple of 8
    return len(told).to_bytes(8, "little") + told + file[begin:]


def _config(model: DecoderOnly) -> dict[str, Any]:
    """Return the config as the page reads it, or raise an error for a setting that the page does not know."""
    config = asdict(model.config) | {"embedding_factor": model.token_embedding.factor}
    for field, value in UNKNOWN.items():
        if config.pop(field) != value:
            raise ValueError(
                f"model has {field}={getattr(model.config, field)!r}: the page shows only {field}={value!r}"
            )
    if config["norm_position"] not in ("pre", "post"):
        given = f"norm_position={config['norm_position']!r}"
        raise ValueError(f"model has {given}: the page shows only 'pre' and 'post'")
    if isinstance(model.config.rope_theta, tuple):
        raise ValueError(f"model has rope_theta={model.config.rope_theta}: the page shows only one for all blocks")
    if config["positions"] == "relative" or config["activation"] in ("silu", "geglu"):
        given = f"positions={config['positions']!r} and activation={config['activation']!r}"
        raise ValueError(f"model has {given}: the page does not support 'relative', 'silu' and 'geglu'")
    if model.config.positions == "rope":  # the angle by which each pair is rotated per position
        angles = rotary_angles(torch.arange(2, device="cpu"), model.config.d_head, model.config.rope_theta)
        config["rope_frequencies"] = angles[1].tolist()
    elif model.config.positions == "alibi":
        config["alibi_slopes"] = (-alibi_bias(model.config.n_heads, T=2, device="cpu")[:, 1, 0]).tolist()
    return config


def _packed(name: str, weight: Tensor, bits: int) -> dict[str, Tensor]:
    """Return the tensors of a weight in the file: the weight in half precision, or whole numbers and scales."""
    if bits == 8 and weight.dim() == 2 and weight.isfinite().all():
        whole, scale = quantize_int8(weight.float())
        return {name: whole.contiguous(), f"{name.removesuffix('weight')}scale": scale}
    small = weight.half().contiguous()
    if not small.isfinite().all():
        raise ValueError(f"{name} of model holds NaN or a number beyond 65,504, the largest of half precision")
    return {name: small}


def _words(tokenizer: WordTokenizer) -> dict[str, Any]:
    return {"kind": "words", "tokens": tokenizer.tokens, "bos": tokenizer.bos_id, "eos": tokenizer.eos_id}


SPLITS = ("ByteLevel", "Digits")  # how text.js splits a text before it merges bytes


def _pieces(tokenizer: SubwordTokenizer) -> dict[str, Any]:
    """Return vocabulary, merges and special tokens of a tokenizer like GPT-2's or SentencePiece's; refuse any other."""
    if not isinstance(tokenizer, SubwordTokenizer):
        raise TypeError(f"tokenizer must be a WordTokenizer or a SubwordTokenizer, got {type(tokenizer).__name__}")
    told = json.loads(tokenizer.tokenizer.to_str())
    steps = _steps(told, "pre_tokenizer", "pretokenizers")
    kinds = [step["type"] for step in steps]
    merges: list[str] | None = [
        pair if isinstance(pair, str) else " ".join(pair) for pair in told["model"].get("merges", ())
    ]
    added = {token["content"]: token["id"] for token in told["added_tokens"]}
    ids = told["model"]["vocab"] | added
    plain = all(not step.get("add_prefix_space") and step.get("use_regex", True) for step in steps)
    if (
        told["model"]["type"] == "BPE"
        and told["model"]["byte_fallback"]
        and _joins_the_earliest(told, ids, merges or [])
    ):
        merges = None
    elif told["model"]["type"] != "BPE" or told["normalizer"] or kinds[-1:] != ["ByteLevel"] or not plain:
        raise ValueError(
            f"tokenizer is of the kind {told['model']['type']!r} after {kinds}: the page supports byte-pair encoding "
            "as in GPT-2 or in SentencePiece"
        )
    elif unknown := [kind for kind in kinds if kind not in SPLITS]:
        raise ValueError(f"tokenizer splits texts with {unknown[0]!r}: the page supports {' and '.join(SPLITS)}")
    names = {i: token for token, i in ids.items()}
    return {
        "kind": "pieces",
        "tokens": [names.get(i, "") for i in range(max(names) + 1)],
        "merges": merges,
        "special": sorted(added.values()),
        "digits": "Digits" in kinds,
        "begin": tokenizer.encode("", special=True),
    }


def _steps(told: dict[str, Any], part: str, within: str) -> list[dict[str, Any]]:
    step = told[part] or {"type": None}
    return step[within] if step["type"] == "Sequence" else [step]


def _joins_the_earliest(told: dict[str, Any], ids: dict[str, int], merges: list[str]) -> bool:
    """Return whether a tokenizer does the same as text.js without merges.

    That is: it has SentencePiece's spaces, and of all pairs that form a token, it merges the pair with the smallest id.
    """
    spaces = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    made = [ids[pair.replace(" ", "")] for pair in merges]
    apart = not any("▁" in token.lstrip("▁") for token in ids)  # then a text may be split before its spaces
    return (
        _steps(told, "normalizer", "normalizers") == spaces
        and not told["pre_tokenizer"]
        and made == sorted(made)
        and apart
    )
