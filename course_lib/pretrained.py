"""Pretrained models: weights from a folder into our modules, and back.

Chapters 1, 13 and 15. `load_pretrained("tinytown")` opens the model that ships with the course; nothing is downloaded.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from course_lib.config import TransformerConfig
from course_lib.models import DecoderOnly
from course_lib.text import WordTokenizer

ASSETS = Path(__file__).parent / "assets"
SHIPPED = ("tinytown",)
MODEL_FILE, CONFIG_FILE, VOCABULARY_FILE = "model.safetensors", "config.json", "vocabulary.json"
EARLY_STEPS_FILE = "embeddings_by_step.safetensors"


def load_pretrained(name: str | Path) -> tuple[DecoderOnly, WordTokenizer]:
    """A trained model, in evaluation mode on the CPU, and its tokenizer.

    Args:
        name: "tinytown", the model that ships with the course, or a folder written by `save_pretrained`.

    Errors: ValueError if there is no such model, or a file of it is missing or damaged.
    """
    folder = _folder(name)
    tokenizer = WordTokenizer(_read_json(folder / VOCABULARY_FILE))
    model = DecoderOnly(TransformerConfig.from_dict(_read_json(folder / CONFIG_FILE)))
    tensors = _read_tensors(folder / MODEL_FILE)
    try:
        missing, unexpected = model.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise ValueError(f"{folder / MODEL_FILE} does not fit {CONFIG_FILE} beside it: {error}") from error
    missing = set(missing) - _tied_names(model)
    if missing or unexpected:
        raise ValueError(f"{folder / MODEL_FILE} lacks {sorted(missing)} and has unknown {sorted(unexpected)}")
    return model.eval(), tokenizer


def save_pretrained(folder: str | Path, model: DecoderOnly, tokenizer: WordTokenizer) -> None:
    """Write model.safetensors, config.json and vocabulary.json to `folder`, each whole or not at all."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tied = _tied_names(model)
    state = {name: tensor.contiguous().cpu() for name, tensor in model.state_dict().items() if name not in tied}
    save_tensors(folder / MODEL_FILE, state)
    save_json(folder / CONFIG_FILE, model.config.to_dict())
    save_json(folder / VOCABULARY_FILE, tokenizer.tokens[3:])


def embeddings_by_step(name: str | Path = "tinytown") -> dict[int, Tensor]:
    """The token embedding table (V, d_model) after chosen training steps, in order: what chapter 1 watches grow."""
    tensors = _read_tensors(_folder(name) / EARLY_STEPS_FILE)
    return {int(step): tensors[step].float() for step in sorted(tensors, key=int)}


def shipped_figures(name: str | Path = "tinytown") -> dict:
    """What was measured on this model when it was trained (`figures.json`), with the recipe that made it."""
    return _read_json(_folder(name) / "figures.json")


def save_json(path: Path, content: object) -> None:
    write_whole(
        path, lambda part: part.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    )


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    write_whole(path, lambda part: save_file(tensors, part))


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all: `write` fills a file beside it, which then takes its name."""
    part = path.with_name(path.name + ".part")
    write(part)
    os.replace(part, path)


def _tied_names(model: DecoderOnly) -> set[str]:
    """The output matrix is the embedding table when weights are tied: stored once."""
    return {"output.weight"} if model.config.tie_weights else set()


def _folder(name: str | Path) -> Path:
    if str(name) in SHIPPED:
        return ASSETS / str(name)
    folder = Path(name).expanduser()
    if not (folder / MODEL_FILE).is_file():
        raise ValueError(
            f"there is no pretrained model {str(name)!r}: give {' or '.join(map(repr, SHIPPED))}, or a folder that "
            f"holds {MODEL_FILE}, {CONFIG_FILE} and {VOCABULARY_FILE}"
        )
    return folder


def _read_json(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path} is missing or damaged ({type(error).__name__}). Reinstall the course, or train again."
        ) from error


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"{path} is missing or damaged ({type(error).__name__}). Reinstall the course, or train again."
        ) from error
