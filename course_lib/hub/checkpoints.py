"""Checkpoints: build one of our models from tensors that were trained elsewhere.

Chapter 15. Loading a checkpoint mostly renames tensors, and sometimes transposes a matrix. A part must never silently
keep its random initialization. The loaders therefore check that they use every tensor and fill every part.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from tqdm.auto import tqdm

from course_lib.checks import require_finite, require_mapping, require_one_of, require_tensors
from course_lib.config import TransformerConfig
from course_lib.course.files import damaged, reading
from course_lib.encoder_decoder import EncoderDecoder, EncoderOnly
from course_lib.gpt import DecoderOnly
from course_lib.hub.layouts import as_ours
from course_lib.hub.names import BASIS, LIBRARIES, config_from_hf, require_known, settings_of, their_name
from course_lib.tinytown import SubwordTokenizer

Model = DecoderOnly | EncoderOnly | EncoderDecoder
FAMILIES: dict[str, type[Model]] = {"decoder": DecoderOnly, "encoder": EncoderOnly, "encoder-decoder": EncoderDecoder}


def assemble(
    config: TransformerConfig,
    tensors: dict[str, Tensor],
    source: object,
    theirs: Callable[[str], str] = lambda name: name,
) -> Model:
    """Build a model from these tensors, in evaluation mode, on their device and in their dtype.

    If the dtypes differ, the model gets the widest.

    Args:
        tensors: the weights, under their original names. source: where they are from, for the error.
        theirs: maps our name of a tensor to its original name; by default the two are equal.
    Errors: ValueError if a tensor is missing, unknown, of a wrong shape, or differs from its tied partner. Also if a
        tensor contains NaN or infinite numbers, or has a dtype that our models do not support.
    """
    for field in ("n_layers", "n_experts"):  # a damaged config may ask for so many that building takes forever
        if (getattr(config, field) or 0) > len(tensors):
            given = f"{field}={getattr(config, field)} in its config"
            raise ValueError(f"{source} has {given}, but only {len(tensors)} tensors")
    # "meta" allocates no numbers, because `tensors` has them. Sinusoids are computed, so they need a real device.
    with torch.device("cpu" if config.positions == "sinusoidal" else "meta"):
        model = FAMILIES[config.family](config)
    parts, tied = model.state_dict(keep_vars=True), tied_names(model)
    wanted = {theirs(name): part for name, part in parts.items() if name not in tied}
    for name, first in tied.items():  # a file may store a tied tensor twice if both are equal
        again = tensors.pop(theirs(name), None)
        if again is not None and not torch.equal(again, tensors.get(theirs(first), again)):
            raise ValueError(f"{source}: {theirs(name)} is tied to {theirs(first)}, but holds different numbers")
    shapes = {name: tuple(tensors[name].shape) for name in wanted.keys() & tensors.keys()}
    problems = {
        "lacks": wanted.keys() - tensors.keys(),
        "has unknown": tensors.keys() - wanted.keys(),
        "has wrong shapes:": {
            f"{name} {shape} instead of {tuple(wanted[name].shape)}"
            for name, shape in shapes.items()
            if shape != wanted[name].shape
        },
    }
    if any(problems.values()):
        found = [f"{what} {_listed(sorted(names))}" for what, names in problems.items() if names]
        raise ValueError(f"{source} does not fit its config: it {'; '.join(found)}")
    _require_float(tensors, f"{source}: ")
    require_finite(tensors, f"{source}: ")
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors.values()))
    ours = {name: tensors[theirs(tied.get(name, name))].to(dtype) for name in parts}
    model.load_state_dict(ours, assign=True)
    for name, first in tied.items():
        module, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(module), leaf, model.get_parameter(first))
    return model.eval()


def _listed(names: list[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def tied_names(model: Model) -> dict[str, str]:
    """Return the second name of each tensor that has two uses -> the name under which the tensor is stored."""
    first_name: dict[int, str] = {}
    parts = model.state_dict(keep_vars=True).items()
    return {name: first for name, part in parts if (first := first_name.setdefault(id(part), name)) != name}


def from_hf_state_dict(family: str, state_dict: Mapping[str, Tensor], config: object) -> Model:
    """Build our model from weights with Hugging Face's names, in evaluation mode: the same ids give the same numbers.

    Args:
        family: "gpt2", "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "smollm3", "olmo2",
            "gemma", "gemma3_text", "gpt_neox", "bert", "roberta", "t5" or "marian".
        state_dict: from the bare model, or from a model with a head, such as GPT2LMHeadModel. The tensors are copied;
            the model has their device and dtype (Gemma in float32 if they have 16 bits).
        config: the reference's configuration, or its dictionary (config.json).
    Errors: ValueError if the configuration asks for something that our models do not do, or a tensor is missing,
        unknown or of a wrong shape. Only the tensors under `unused` in names.toml are ignored.
    """
    require_known(family)
    require_mapping(state_dict=state_dict)
    require_tensors(**{f"state_dict[{name!r}]": tensor for name, tensor in state_dict.items()})
    with reading(f"the {family} configuration"):
        config = config_from_hf(family, config)
    if "shared.weight" in state_dict:  # newer versions of transformers store the head only if it is not tied
        state_dict = {"lm_head.weight": state_dict["shared.weight"]} | dict(state_dict)
    tensors: dict[str, Tensor] = {}
    for name, tensor in state_dict.items():
        name = re.sub(r"^(transformer|model|bert|roberta|gpt_neox)\.", "", name)
        if not re.fullmatch(LIBRARIES[family]["unused"], name):
            for ours, part in as_ours(family, name, tensor, config).items():
                if (first := tensors.setdefault(ours, part)) is not part and not torch.equal(first, part):
                    raise ValueError(f"the {family} state_dict holds {ours} under two names, with different numbers")
    tensors = {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    return assemble(config, tensors, f"the {family} state_dict", partial(their_name, library=family))


def load_gguf(path: Path) -> tuple[Model, SubwordTokenizer]:
    """Load a LLaMA-type model and its tokenizer from a GGUF file, the format of llama.cpp; weights become float32.

    These files reorder the rows of q and k so that the features of one RoPE pair are neighbours. The model therefore
    uses rope_interleaved=True, and the weights stay in the file's order.

    Errors: ValueError for a damaged file, another architecture, another kind of tokenizer, or scaled RoPE.
    Source: the `gguf` package, by the makers of the format.
    """
    try:
        said, tensors = _gguf_parts(path)
    except Exception as error:  # the package checks little, so a damaged file can raise anything
        raise damaged(path, error) from error
    with reading(path):
        return _gguf_model(path, said, tensors), _gguf_tokenizer(said)


def _gguf_parts(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the file's metadata and its tensors."""
    from gguf import GGUFReader, dequantize

    class Reader(GGUFReader):
        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            # Without this check, a damaged count makes the reader loop past the end.
            if len(found := super()._get(offset, dtype, count, override_order)) != count:
                raise ValueError("it ends too early")
            return found

    reader = Reader(path)
    tensors = {
        tensor.name: torch.tensor(dequantize(tensor.data, tensor.tensor_type))  # a copy: nothing may write to the file
        for tensor in tqdm(reader.tensors, desc=path.name, unit="tensor", leave=False)
    }
    return {name: field.contents() for name, field in reader.fields.items()}, tensors


def _gguf_model(path: Path, said: dict[str, Any], tensors: dict[str, Tensor]) -> Model:
    require_one_of(("llama",), **{"general.architecture": said["general.architecture"]})
    require_one_of(("smollm",), **{"tokenizer.ggml.pre": said["tokenizer.ggml.pre"]})
    if stretched := [name for name in said if "rope.scaling" in name]:
        raise ValueError(f"{path} has {stretched}: GGUF files are read only with plain RoPE")
    fields = {field: said[f"llama.{name}"] for field, name in settings_of("gguf")}
    fields |= {"activation": "swiglu", "rope_interleaved": True, "tie_weights": "output.weight" not in tensors}
    config = TransformerConfig(**BASIS["llama"] | fields)
    return assemble(config, tensors, path, partial(their_name, library="gguf"))


def _gguf_tokenizer(said: dict) -> SubwordTokenizer:
    """Build byte-pair encoding with the file's vocabulary and merges; SmolLM first splits numbers into digits."""
    tokens, kinds = said["tokenizer.ggml.tokens"], said["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in said["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    control = 3  # such as <|im_start|>: always a single token
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token, kind in zip(tokens, kinds) if kind == control]
    )
    return SubwordTokenizer(tokenizer)


def _require_float(weights: Mapping[str, Tensor], source: str = "") -> None:
    """Raise ValueError if our models do not support the dtype of a tensor; name the first such tensor."""
    allowed = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    for name, tensor in weights.items():
        if tensor.dtype not in allowed:
            raise ValueError(
                f"{source}{name} holds {tensor.dtype}, but weights must be {', '.join(map(str, allowed))}: packed ones "
                "are not supported; give the original model"
            )
