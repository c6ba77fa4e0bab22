"""Pretrained models: load a folder of weights into our modules, and save a model to a folder.

Chapters 1, 13 and 15. `load_pretrained("tinytown")` loads the model that ships with the course, without a download.
`course_lib/hub` converts the weights of other libraries: `checkpoints` reads their files, `names` maps their names.
"""

from pathlib import Path
from typing import Any, Literal, overload

import torch
from tokenizers import Tokenizer
from torch import Tensor

from course_lib.checks import require_kind, require_model, require_one_of
from course_lib.config import TransformerConfig
from course_lib.course.files import (
    ASSETS,
    damaged,
    inside,
    read_json,
    read_tensors,
    reading,
    require_no_pickle,
    require_vocabulary,
    require_weight_map,
    save_json,
    save_tensors,
    write_whole,
)
from course_lib.encoder_decoder import EncoderDecoder
from course_lib.fast import fast
from course_lib.gpt import DecoderOnly
from course_lib.hub.checkpoints import Model, assemble, from_hf_state_dict, load_gguf, tied_names
from course_lib.hub.stories import load_llama2c
from course_lib.hub.weights import SOURCES, weights_folder
from course_lib.tinytown import BytePairTokenizer, SubwordTokenizer, WordTokenizer

MODEL_FILE, CONFIG_FILE, GGUF_FILE, LLAMA2C_FILE = "model.safetensors", "config.json", "model.gguf", "llama2.data"
VOCABULARY_FILE, TOKENIZER_FILE = "vocabulary.json", "tokenizer.json"
EARLY_STEPS_FILE = "embeddings_by_step.safetensors"
SHIPPED = tuple(sorted(path.parent.name for path in ASSETS.glob("*/config.json")))
ON_THE_HUB = {name: f"openai-community/{name}" for name in ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")}
NAMES = (*SHIPPED, "minilm", "smollm2-135m", "stories15m", *ON_THE_HUB)


@overload
def load_pretrained(name: Literal["tinytown"]) -> tuple[DecoderOnly, WordTokenizer]: ...
@overload
def load_pretrained(name: Literal["translator"]) -> tuple[EncoderDecoder, WordTokenizer]: ...
@overload
def load_pretrained(name: str | Path) -> tuple[Model, WordTokenizer | SubwordTokenizer]: ...
def load_pretrained(name: str | Path) -> tuple[Model, WordTokenizer | SubwordTokenizer]:
    """Return a trained model in evaluation mode, on PyTorch's default device, and its tokenizer.

    Args:
        name: "tinytown", or another model that ships with the course (SHIPPED lists them);
            "minilm", "smollm2-135m" or "stories15m", once `python -m course_lib weights` has fetched them;
            "gpt2", "gpt2-medium", "gpt2-large" or "gpt2-xl", downloaded by huggingface_hub the first time;
            or a folder: one written by `save_pretrained`, or one in Hugging Face's layout (config.json,
            model.safetensors, tokenizer.json) with a model of a family that `from_hf_state_dict` supports.

    Errors: ValueError if there is no such model, one of its files is missing or damaged, or our modules do not support
        it.
    """
    model, tokenizer = _read(_folder(name))
    return fast(model).to(torch.get_default_device()), tokenizer


def _read(folder: Path) -> tuple[Model, WordTokenizer | SubwordTokenizer]:
    if (folder / GGUF_FILE).is_file():
        return load_gguf(folder / GGUF_FILE)
    if (folder / LLAMA2C_FILE).is_file():
        return load_llama2c(folder / LLAMA2C_FILE)
    with reading(folder):
        settings, tensors = read_json(folder / CONFIG_FILE), _read_weights(folder)
        if "model_type" in settings:
            model = from_hf_state_dict(settings["model_type"], tensors, settings)
        else:
            model = assemble(TransformerConfig.from_dict(settings), tensors, folder / MODEL_FILE)
    return model, _read_tokenizer(folder)


def load_tokenizer(name: str | Path) -> WordTokenizer | SubwordTokenizer:
    """Return only a tokenizer: "gpt2-tokenizer" (once fetched), or a model's, with names as in `load_pretrained`."""
    folder = weights_folder("gpt2-tokenizer") if str(name) == "gpt2-tokenizer" else _folder(name)
    return _read_tokenizer(folder)


def load_text(name: str = "tinyshakespeare") -> str:
    """Return a text that `python -m course_lib weights` has fetched: "tinyshakespeare"."""
    require_one_of(("tinyshakespeare",), name=name)
    return (weights_folder(name) / "input.txt").read_text(encoding="utf-8")


def save_pretrained(folder: str | Path, model: Model, tokenizer: WordTokenizer | SubwordTokenizer) -> None:
    """Write a model of any family to `folder`: model.safetensors, config.json, and vocabulary.json or tokenizer.json.
    An interruption never leaves an incomplete file."""
    folder = _require_folder(folder)
    require_model(model=model)
    require_kind(WordTokenizer | SubwordTokenizer, tokenizer=tokenizer)
    tied = tied_names(model)
    state = {name: tensor.contiguous().cpu() for name, tensor in model.state_dict().items() if name not in tied}
    save_tensors(folder / MODEL_FILE, state)
    save_json(folder / CONFIG_FILE, model.config.to_dict())
    if isinstance(tokenizer, WordTokenizer):
        save_json(folder / VOCABULARY_FILE, tokenizer.tokens[3:])
    else:
        (folder / VOCABULARY_FILE).unlink(missing_ok=True)  # from an earlier model; it would take precedence
        write_whole(folder / TOKENIZER_FILE, lambda part: tokenizer.tokenizer.save(str(part)))


def embeddings_by_step(name: str | Path = "tinytown") -> dict[int, Tensor]:
    """Return the token embedding table (V, d_model) after selected training steps, as chapter 1 shows it."""
    tensors = read_tensors(_folder(name) / EARLY_STEPS_FILE)
    return {int(step): tensors[step].float().to(torch.get_default_device()) for step in sorted(tensors, key=int)}


def shipped_figures(name: str | Path = "tinytown") -> dict:
    """Return the results measured on this model when it was trained, and its recipe (`figures.json`)."""
    return read_json(_folder(name) / "figures.json")


def _folder(name: str | Path) -> Path:
    """Return the folder of a model's files. Only a name in ON_THE_HUB uses the network."""
    if not isinstance(name, str | Path):
        raise TypeError(f"name must be a string or a path, got {name!r:.80}")
    if name in SHIPPED:
        return ASSETS / name
    if name in SOURCES and name in NAMES:
        return weights_folder(name)
    if name in ON_THE_HUB:
        return _from_the_hub(name)
    folder = Path(name).expanduser()
    if not str(name) or not (folder / CONFIG_FILE).is_file():
        raise ValueError(
            f"there is no pretrained model {str(name)!r}: give one of {', '.join(map(repr, NAMES))}, or a folder that "
            f"holds {MODEL_FILE}, {CONFIG_FILE}, and {VOCABULARY_FILE} or {TOKENIZER_FILE}"
        )
    return folder


def _from_the_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    files = [CONFIG_FILE, "model*.safetensors", f"{MODEL_FILE}.index.json", TOKENIZER_FILE]
    try:
        return Path(snapshot_download(ON_THE_HUB[name], allow_patterns=files))
    except Exception as error:  # from the package, the network or the system
        raise ValueError(
            f"{name!r} is not in the cache of huggingface_hub, and could not be fetched ({type(error).__name__}): "
            "connect to a network and leave HF_HUB_OFFLINE unset, or give the folder of a copy"
        ) from error


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder, from one file or from several with an index."""
    require_no_pickle(folder, MODEL_FILE)
    index = folder / f"{MODEL_FILE}.index.json"
    files = require_weight_map(index, read_json(index)) if index.is_file() else [MODEL_FILE]
    for file in files:
        if inside(folder, file).parent != folder:
            raise ValueError(f"{index} names {file!r}: the files of a model must be in its own folder")
    return {name: tensor for file in files for name, tensor in read_tensors(folder / file).items()}


def _read_tokenizer(folder: Path) -> WordTokenizer | SubwordTokenizer:
    words, subwords, pieces = (folder / file for file in (VOCABULARY_FILE, TOKENIZER_FILE, "vocab.json"))
    if (folder / GGUF_FILE).is_file():
        return load_gguf(folder / GGUF_FILE)[1]
    if (folder / LLAMA2C_FILE).is_file():
        return load_llama2c(folder / LLAMA2C_FILE)[1]
    if words.is_file():
        return WordTokenizer(require_vocabulary(words, read_json(words)))
    if subwords.is_file():
        try:
            return SubwordTokenizer(Tokenizer.from_file(str(subwords)))
        except Exception as error:  # the package raises nothing narrower
            raise damaged(subwords, error) from error
    if pieces.is_file():
        return BytePairTokenizer.from_files(pieces, folder / "merges.txt")
    raise ValueError(f"{folder} holds no tokenizer: {VOCABULARY_FILE}, {TOKENIZER_FILE}, or vocab.json with merges.txt")


def _require_folder(folder: Any) -> Path:
    """Return the folder, created if necessary. Raise TypeError or ValueError if that is impossible."""
    if not isinstance(folder, str | Path):
        raise TypeError(f"folder must be a path, a string or a pathlib.Path, got {folder!r:.80}")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"folder={str(folder)!r} cannot be made: {error}") from error
    return Path(folder)
