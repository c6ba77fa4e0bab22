"""Names: the names that other libraries give to our parts and settings.

Chapter 15. This module covers Hugging Face's families and the GGUF files of llama.cpp. Their model is one of ours with
other names, provided that our models support all its settings.
"""

import re
from collections.abc import Mapping
from typing import Any

from course_lib.checks import require_one_of
from course_lib.config import TransformerConfig
from course_lib.course.files import read_table

_TABLE = read_table("names")
DIFFERS: dict[str, str] = _TABLE["differs"]


def _libraries() -> dict[str, dict[str, Any]]:
    """Return each family, and "gguf" -> its parts, including those that it inherits from a similar family."""
    parts = ("basis", "modules", "settings", "absent", "activations", "old", "only")
    libraries: dict[str, dict[str, Any]] = {}
    for name, own in _TABLE["family"].items():  # in the file, a family comes after the family from which it inherits
        shared = libraries.get(own.get("like", ""), {})
        libraries[name] = {"unused": own.get("unused", shared.get("unused", ""))}
        for part in parts:  # "only" and "absent" are not inherited
            inherited = {} if part in ("absent", "old", "only") else shared.get(part, {})
            libraries[name][part] = inherited | own.get(part, {})
    return libraries


LIBRARIES = _libraries()
BASIS: dict[str, dict[str, Any]] = {name: each["basis"] for name, each in LIBRARIES.items() if name != "gguf"}
PADDING_ROWS = 2  # in RoBERTa's position table, where positions count from 2


def settings_of(library: str) -> list[tuple[str, str]]:
    """Return (our field, their setting) for all settings of a family, or of GGUF files."""
    given = LIBRARIES[library]["settings"].items()
    return [(field, name) for field, names in given for name in ([names] if isinstance(names, str) else names)]


def require_known(family: str) -> None:
    """Raise ValueError unless we support the family; the message says how the family differs, if that is known."""
    if not isinstance(family, str) or family not in BASIS:
        apart = f". What sets {family} apart: {DIFFERS[family]}" if str(family) in DIFFERS else ""
        raise ValueError(f"{family=} is not known: choose one of {', '.join(map(repr, BASIS))}{apart}")


def their_name(name: str, library: str) -> str:
    """Return a library's name for our tensor: "blocks.3.norm1.weight" is "h.3.ln_1.weight" in "gpt2"."""
    stack, number, part, kind = re.findall(r"^((?:en|de)coder\.)?(?:blocks\.(\d+))?(.*)\.(\w+)$", name)[0]
    names = LIBRARIES[library]["modules"]
    block = names["blocks.N"].replace("N", number) if number else ""
    expert = "".join(re.findall(r"\.experts\.(\d+)\.", part))  # of a mixture of experts
    theirs = names[re.sub(r"\.experts\.\d+\.", ".experts.E.", part)].replace(".E.", f".{expert}.")
    return f"{stack}{block}{theirs}.{kind}"


def config_from_hf(family: str, config: Mapping | Any) -> TransformerConfig:
    """Convert Hugging Face's configuration, an object or its dictionary, to ours.

    Errors: ValueError that names the setting, if our models do not support its value or a size is missing.
    """
    _require_hf_config(config)
    given = LIBRARIES[family]["absent"] | (dict(config) if isinstance(config, Mapping) else config.to_dict())
    if family == "gemma3_text" and isinstance(given.get("rope_parameters"), Mapping):
        given |= _gemma3_rope(given["rope_parameters"])
    # Older versions of transformers say "rope_scaling"; if both are given, that one counts.
    setting = "rope_scaling" if given.get("rope_scaling") else "rope_parameters"
    _require_hf_settings(**{setting: given.get(setting) or {}}, quantization_config=given.get("quantization_config"))
    rope = given.get(setting) or {}
    given |= {"rope_type": rope.get("type", "default")} | rope
    if family == "t5":  # T5 1.1 unties its embeddings, and then does not scale its outputs
        given.setdefault("scale_decoder_outputs", given.get("tie_word_embeddings", True))
        given["tie_word_embeddings"] = given["scale_decoder_outputs"]
    given = {
        LIBRARIES[family]["old"].get(setting, setting): value for setting, value in given.items() if value is not None
    }
    for setting, answer in ({"model_type": family} | LIBRARIES[family]["only"]).items():
        if given.get(setting, answer) != answer:
            raise ValueError(f"{setting}={given[setting]!r}: our {family} models support only {setting}={answer!r}")

    fields: dict[str, Any] = {}
    for field, name in settings_of(family):
        value = given.get(name, BASIS[family].get(field))
        if value is not None and fields.setdefault(field, value) != value:
            raise ValueError(f"{name}={value!r}: our {family} models always have {field}={fields[field]!r}")
    fields = BASIS[family] | fields | {"rope_scaling": _rope_scaling(given)}
    if family in KINDS_OF_BLOCKS:
        fields |= KINDS_OF_BLOCKS[family](given, fields["rope_theta"])
    activations = LIBRARIES[family]["activations"]
    require_one_of(tuple(activations), activation=fields["activation"])
    fields["activation"] = activations[fields["activation"]]
    if fields.get("head_dim", 0) * fields.get("n_heads", 0) == fields.get("d_model"):
        fields.pop("head_dim", None)  # this is the default
    if family == "roberta" and "max_seq_len" in fields:
        fields["max_seq_len"] -= PADDING_ROWS
    return TransformerConfig.from_dict(fields)


def _smollm3_blocks(given: dict, theta: float) -> dict[str, Any]:
    """Return rope_theta of SmolLM3: None for the blocks without RoPE, by default every fourth."""
    every = given.get("no_rope_layer_interval", 4)
    rotates = given.get("no_rope_layers") or [(i + 1) % every for i in range(given.get("num_hidden_layers", 1))]
    return {"rope_theta": _in_turn([theta if each else None for each in rotates])}


def _gemma3_rope(rope: Mapping) -> dict[str, Any]:
    """Return Gemma 3's settings of RoPE under older names; newer versions have a dictionary for each kind of block."""
    both = {kind: dict(rope.get(f"{kind}_attention") or {}) for kind in ("full", "sliding")}
    given = {"rope_local_base_freq": both["sliding"].get("rope_theta"), "rope_parameters": both["full"]}
    given["local_rope_type"] = both["sliding"].get("rope_type")
    return {name: value for name, value in given.items() if value}


def _gemma3_blocks(given: dict, theta: float) -> dict[str, Any]:
    """Return window and rope_theta of Gemma 3: local blocks have a window and another base, every sixth has neither."""
    every, kinds = given.get("sliding_window_pattern", 6), ("sliding_attention", "full_attention")
    types = given.get("layer_types")
    types = types or [kinds[(i + 1) % every == 0] for i in range(given.get("num_hidden_layers", 1))]
    for each in types:
        require_one_of(kinds, layer_types=each)
    window, base = given.get("sliding_window"), given.get("rope_local_base_freq", 10_000.0)
    return {
        "window": _in_turn([window if each == kinds[0] else None for each in types]),
        "rope_theta": _in_turn([base if each == kinds[0] else theta for each in types]),
    }


KINDS_OF_BLOCKS = {"smollm3": _smollm3_blocks, "gemma3_text": _gemma3_blocks}


def _in_turn(values: list) -> Any:
    """Return the shortest tuple that gives these values if it is repeated; a single number if all are this number."""
    n = next(n for n in range(1, len(values) + 1) if all(value == values[i % n] for i, value in enumerate(values)))
    return values[0] if n == 1 and values[0] is not None else tuple(values[:n])


def _rope_scaling(given: dict) -> tuple | None:
    """Return the four numbers of Llama 3.1's RoPE, or None without scaling.

    Errors: ValueError for another kind of scaling, or if a number is missing.
    """
    if given["rope_type"] == "default":
        return None
    if given["rope_type"] != "llama3":
        raise ValueError(f"rope_type={given['rope_type']!r}: our RoPE supports only 'default' and 'llama3'")
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    if missing := [name for name in names if name not in given]:
        raise ValueError(f"rope_type='llama3' needs {', '.join(missing)}, which the configuration lacks")
    return tuple(given[name] for name in names)


def _require_hf_config(config: object) -> None:
    """Raise TypeError unless config is a dictionary, or a transformers configuration with to_dict()."""
    if not isinstance(config, Mapping) and (not hasattr(config, "to_dict") or isinstance(config, type)):
        raise TypeError(f"config must be the reference's configuration or its dictionary, got {config!r:.80}")


def _require_hf_settings(quantization_config: object, **rope: object) -> None:
    """Raise ValueError unless RoPE's setting is a dictionary and the weights are not quantized."""
    for name, value in rope.items():
        if not isinstance(value, Mapping):
            raise ValueError(f"{name}={value!r:.80} must be a dictionary, such as {{'rope_type': 'default'}}")
    if quantization_config:
        raise ValueError(
            f"quantization_config={quantization_config!r:.80}: packed weights are not supported. Give the original "
            "model, in float16, bfloat16 or float32"
        )
