"""Names: what other libraries call the same parts, and the same settings.

Chapter 15. Hugging Face's families, and the GGUF files of llama.cpp. A model of theirs is a model of ours under other
names, if its settings ask for nothing that ours do not do.
"""

import re
from collections.abc import Mapping
from typing import Any

from course_lib.checks import require_hf_config, require_hf_settings, require_one_of
from course_lib.config import TransformerConfig
from course_lib.course.files import read_table


def _table(text: str) -> list[tuple[str, dict[str, str]]]:
    """The rows of a table: the first word, and the others by the name of their column. A lone "." is no word."""
    (_, *columns), *rows = (line.split() for line in text.strip().splitlines())
    return [(first, {column: word for column, word in zip(columns, words) if word != "."}) for first, *words in rows]


_NAMES = read_table("names")
NAMES: dict[str, dict[str, str]] = {}
for _ours, _theirs in (row for table in _NAMES["modules"].values() for row in _table(table)):
    NAMES.setdefault(_ours, {}).update(_theirs)
SETTINGS = [row for table in _NAMES["settings"].values() for row in _table(table)]
ACTIVATIONS, BASIS, ONLY, UNUSED, ABSENT, OLD, DIFFERS = (
    _NAMES[part] for part in ("activations", "basis", "only", "unused", "absent", "old", "differs")
)
PADDING_ROWS = 2  # of RoBERTa's position table: positions count from 2
LIKE: dict[str, str] = _NAMES["like"]
for _family, _other in LIKE.items():
    for _row in (*NAMES.values(), *(row for _, row in SETTINGS), ACTIVATIONS, UNUSED):
        if _other in _row:
            _row.setdefault(_family, _row[_other])
    BASIS[_family] = BASIS[_other] | BASIS[_family]


def require_known(family: str) -> None:
    """Raise ValueError unless the family is one of ours; with what sets it apart, where that is known."""
    if family not in BASIS:
        apart = f". What sets {family} apart: {DIFFERS[family]}" if family in DIFFERS else ""
        raise ValueError(f"{family=} is not known: choose one of {', '.join(map(repr, BASIS))}{apart}")


def their_name(name: str, library: str) -> str:
    """What a library calls our tensor: "blocks.3.norm1.weight" is "h.3.ln_1.weight" in "gpt2"."""
    stack, number, part, kind = re.findall(r"^((?:en|de)coder\.)?(?:blocks\.(\d+))?(.*)\.(\w+)$", name)[0]
    block = NAMES["blocks.N"][library].replace("N", number) if number else ""
    return f"{stack}{block}{NAMES[part][library]}.{kind}"


def config_from_hf(family: str, config: Mapping | Any) -> TransformerConfig:
    """Hugging Face's configuration, an object or its dictionary, in our words.

    Errors: ValueError that names the setting, if it asks for something that our models do not do, or a size is missing.
    """
    require_hf_config(config)
    given = ABSENT.get(family, {}) | (dict(config) if isinstance(config, Mapping) else config.to_dict())
    # The old name, which counts, and the new one.
    setting = "rope_scaling" if given.get("rope_scaling") else "rope_parameters"
    require_hf_settings(**{setting: given.get(setting) or {}}, quantization_config=given.get("quantization_config"))
    rope = given.get(setting) or {}
    given |= {"rope_type": rope.get("type", "default")} | rope
    if family == "t5":  # untied in the file, T5 1.1 says so; the scale of its outputs follows
        given.setdefault("scale_decoder_outputs", given.get("tie_word_embeddings", True))
        given["tie_word_embeddings"] = given["scale_decoder_outputs"]
    given = {OLD.get(family, {}).get(setting, setting): value for setting, value in given.items() if value is not None}
    for setting, answer in ({"model_type": family} | ONLY[family]).items():
        if given.get(setting, answer) != answer:
            raise ValueError(f"{setting}={given[setting]!r}: our {family} models know {setting}={answer!r} alone")

    fields: dict[str, Any] = {}
    for field, row in SETTINGS:
        value = given.get(row.get(family), BASIS[family].get(field)) if family in row else None
        if value is not None and fields.setdefault(field, value) != value:
            raise ValueError(f"{row[family]}={value!r}: our {family} models have {field}={fields[field]!r} everywhere")
    fields = BASIS[family] | fields | {"rope_scaling": _rope_scaling(given)}
    require_one_of(tuple(ACTIVATIONS[family]), activation=fields["activation"])
    fields["activation"] = ACTIVATIONS[family][fields["activation"]]
    if fields.get("head_dim", 0) * fields.get("n_heads", 0) == fields.get("d_model"):
        fields.pop("head_dim", None)  # what it is anyway
    if family == "roberta" and "max_seq_len" in fields:
        fields["max_seq_len"] -= PADDING_ROWS
    return TransformerConfig.from_dict(fields)


def _rope_scaling(given: dict) -> tuple | None:
    """Return the four numbers of Llama 3.1's RoPE, None where it is not scaled. ValueError for another way to do so."""
    if given["rope_type"] == "default":
        return None
    if given["rope_type"] != "llama3":
        raise ValueError(f"rope_type={given['rope_type']!r}: our RoPE knows 'default' and 'llama3' alone")
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    if missing := [name for name in names if name not in given]:
        raise ValueError(f"rope_type='llama3' needs {', '.join(missing)}, which the configuration lacks")
    return tuple(given[name] for name in names)
