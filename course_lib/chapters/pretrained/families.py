"""The settings in which a published model differs from its closest relative. Chapter 15."""

from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from course_lib.config import TransformerConfig
from course_lib.hub import weights
from course_lib.hub.names import config_from_hf
from course_lib.pretrained import load_pretrained

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The values of Llama 3.1: `rope_parameters` in its configuration.
LLAMA_3_1 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA_3_1 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

# The fields that are a design choice rather than a size, in the order in which we print them, and their meaning.
CHOICES = {
    "positions": "how positions are encoded",
    "rotary_share": "the part of each head that RoPE rotates",
    "rope_scaling": "slow-down of slow pairs; turns of a slow (at most) and a fast one (at least), in this many tokens",
    "window": "how many keys a query sees, including its own (sliding window)",
    "head_dim": "the size of a head, here not d_model / n_heads",
    "qkv_bias": "whether only queries, keys and values have a bias",
    "qk_norm": "whether each query and key gets an RMSNorm, before RoPE",
    "parallel": "whether attention and feed-forward network read the same x (parallel residual)",
    "norm": "the kind of norm",
    "norm_position": "whether norms come before or after each branch",
    "bias": "whether linear layers and norms have a bias",
    "activation": "the nonlinearity of the feed-forward network",
    "tie_weights": "whether the output head is tied to the embedding table",
    "output_bias": "whether the output head has a bias",
}


def differences(config: TransformerConfig, relative: TransformerConfig) -> dict[str, str]:
    """Return the settings of a config that differ from its relative's: "window=4096" -> the meaning of the setting.

    Sizes, eps, theta and dropout do not count, because every model has its own.
    """
    own, other = asdict(config), asdict(relative)
    return {f"{name}={own[name]!r}": what for name, what in CHOICES.items() if own[name] != other[name]}


def small_random_models() -> "dict[str, PreTrainedModel]":
    """Return a small GPT-2, LLaMA and BERT of `transformers`, in evaluation mode. Every parameter is random, including
    biases and gains, so that no two are equal."""
    from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {"vocab_size": 50, "max_position_embeddings": 32, "hidden_size": 24, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "intermediate_size": 40}
    gpt2: dict[str, Any] = {"vocab_size": 50, "n_positions": 32, "n_embd": 24, "n_layer": 2, "n_head": 4}
    models: dict[str, Any] = {
        "gpt2": GPT2LMHeadModel(GPT2Config(**gpt2, bos_token_id=1, eos_token_id=2)),
        "llama": LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2)),
        "bert": BertModel(BertConfig(**sizes), add_pooling_layer=False),
    }
    for model in models.values():
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return {family: model.eval() for family, model in models.items()}


def newer_families() -> dict[str, tuple[str, dict[str, str]]]:
    """Return later families: name -> (the family that it resembles most, the `differences` from that family)."""
    from transformers import GPT2Config, GPTNeoXConfig, LlamaConfig, MistralConfig, Qwen3Config

    relatives = {"LLaMA": config_from_hf("llama", LlamaConfig()), "GPT-2": config_from_hf("gpt2", GPT2Config())}
    newer: dict[str, tuple[str, Any]] = {
        "Llama 3.1": ("LLaMA", LlamaConfig(max_position_embeddings=131072, rope_parameters=LLAMA_3_1)),
        "Mistral": ("LLaMA", MistralConfig()),
        "Qwen3": ("LLaMA", Qwen3Config(hidden_size=1024, num_attention_heads=16, num_key_value_heads=8)),
        "GPT-NeoX": ("GPT-2", GPTNeoXConfig()),
    }
    return {
        name: (relative, differences(config_from_hf(config.model_type, config), relatives[relative]))
        for name, (relative, config) in newer.items()
    }


def parity_with_transformers(text: str) -> list[tuple[str, str, str, str]]:
    """Run MiniLM and SmolLM2 on a text, in our modules and in `transformers`, from the same files.

    Returns for each model: its name, the compared quantity, its largest absolute value, and its largest error. SmolLM2
    is left out if `accelerate` is missing, because `transformers` needs it to open a GGUF file.
    """
    from transformers import AutoModel, AutoModelForCausalLM

    file: dict[str, Any] = {"gguf_file": "model.gguf", "dtype": torch.float32}
    models: dict[str, tuple[str, str, Any, dict[str, Any]]] = {
        "minilm": ("MiniLM", "vectors", AutoModel, {"add_pooling_layer": False}),
        "smollm2-135m": ("SmolLM2", "logits", AutoModelForCausalLM, file),
    }
    if find_spec("accelerate") is None:
        del models["smollm2-135m"]
    rows = []
    for name, (title, compared, kind, options) in models.items():
        model, tokenizer = load_pretrained(name)
        reference = kind.from_pretrained(weights.weights_folder(name), **options).eval()
        ids = torch.tensor([tokenizer.encode(text)])  # (1, T)
        with torch.no_grad():
            ours, theirs = model(ids), reference(ids)[0]  # (1, T, d_model) or (1, T, V)
        rows.append((title, compared, f"{theirs.abs().max():.1f}", f"{(ours - theirs).abs().max():.6f}"))
    return rows
