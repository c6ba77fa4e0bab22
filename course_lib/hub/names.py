"""Names: what other libraries call the same parts, and the same settings.

Chapter 15. Hugging Face's GPT-2, LLaMA and BERT, and the GGUF files of llama.cpp. A model of theirs is a model of ours
under other names, if its settings ask for nothing that ours do not do.
"""

import re
from collections.abc import Mapping
from typing import Any

from course_lib.checks import require_one_of
from course_lib.config import TransformerConfig
from course_lib.files import read_table


def _table(text: str) -> list[tuple[str, dict[str, str]]]:
    """The rows of a table: the first word, and the others by the name of their column. A lone "." is no word."""
    (_, *columns), *rows = (line.split() for line in text.strip().splitlines())
    return [(first, {column: word for column, word in zip(columns, words) if word != "."}) for first, *words in rows]


_NAMES = read_table("names")
NAMES, SETTINGS = dict(_table(_NAMES["modules"])), _table(_NAMES["settings"])
ACTIVATIONS, BASIS, ONLY, UNUSED = (_NAMES[part] for part in ("activations", "basis", "only", "unused"))


def their_name(name: str, library: str) -> str:
    """What a library calls our tensor: "blocks.3.norm1.weight" is "h.3.ln_1.weight" in "gpt2"."""
    number, part, kind = re.findall(r"^(?:blocks\.(\d+))?(.*)\.(\w+)$", name)[0]
    block = NAMES["blocks.N"][library].replace("N", number) if number else ""
    return f"{block}{NAMES[part][library]}.{kind}"


def config_from_hf(family: str, config: Mapping | Any) -> TransformerConfig:
    """Hugging Face's configuration, an object or its dictionary, in our words.

    Errors: ValueError that names the setting, if it asks for something that our models do not do, or a size is missing.
    """
    given = dict(config) if isinstance(config, Mapping) else config.to_dict()
    rope = given.get("rope_parameters") or given.get("rope_scaling") or {}  # the new name and the old
    given |= {"rope_type": rope.get("type", "default")} | rope
    given = {setting: value for setting, value in given.items() if value is not None}
    for setting, answer in ({"model_type": family} | ONLY[family]).items():
        if given.get(setting, answer) != answer:
            raise ValueError(f"{setting}={given[setting]!r}: our {family} models know {setting}={answer!r} alone")

    fields: dict[str, object] = {}
    for field, row in SETTINGS:
        value = given.get(row.get(family), BASIS[family].get(field)) if family in row else None
        if value is not None and fields.setdefault(field, value) != value:
            raise ValueError(f"{row[family]}={value!r}: our {family} models have {field}={fields[field]!r} everywhere")
    fields = BASIS[family] | fields
    require_one_of(tuple(ACTIVATIONS[family]), activation=fields["activation"])
    fields["activation"] = ACTIVATIONS[family][fields["activation"]]
    ours = TransformerConfig.from_dict(fields)
    if given.get("head_dim", ours.d_head) != ours.d_head:
        raise ValueError(f"head_dim={given['head_dim']}: our heads have d_model / n_heads = {ours.d_head} features")
    return ours
