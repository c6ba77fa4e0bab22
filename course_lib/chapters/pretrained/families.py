"""Small random models of public families, and the settings that set them apart. Chapter 15."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from course_lib.hub import weights
from course_lib.hub.names import config_from_hf
from course_lib.pretrained import load_pretrained

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The values of Llama 3.1: `rope_parameters` in its configuration.
LLAMA_3_1 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA_3_1 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

# Name -> (prefix of the classes in `transformers`, settings of a small model, a field that sets the family apart, its
# meaning).
NEWER: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "Llama 3.1": (
        "Llama",
        {"rope_parameters": LLAMA_3_1 | {"original_max_position_embeddings": 32}},
        "rope_scaling",
        "the slow pairs of RoPE rotate more slowly",
    ),
    "Mistral": ("Mistral", {"sliding_window": 4}, "window", "how many keys a query sees, with its own"),
    "GPT-NeoX": ("GPTNeoX", {}, "parallel", "attention and feed-forward network read the same x"),
    "Qwen3": ("Qwen3", {"head_dim": 8}, "qk_norm", "an RMSNorm for each query and key, before RoPE"),
    "OLMo 2": ("Olmo2", {}, "norm_position", "norms after each branch, before the sum"),
    "Qwen3-MoE": (
        "Qwen3Moe",
        {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "experts_implementation": "eager"},
        "n_experts",
        "feed-forward networks in a block; a token uses eight",
    ),
    "SmolLM3": ("SmolLM3", {}, "rope_theta", "RoPE's base: no RoPE in every fourth block"),
    "Gemma 3": (
        "Gemma3Text",
        {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4},
        "window",
        "no window in every sixth block",
    ),
}


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
    return {family: _with_random_weights(model) for family, model in models.items()}


def _with_random_weights(model: Any) -> Any:
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def newer_families() -> "dict[str, tuple[str, str, PreTrainedModel]]":
    """Return later families: name -> (a setting that sets it apart, what this setting means, a small random model).

    Each setting has the value of the default configuration in `transformers`. Each model has six blocks, because some
    families alternate between two kinds of blocks. All its parameters are random.
    """
    import transformers

    sizes: dict[str, Any] = {"vocab_size": 50, "max_position_embeddings": 64, "hidden_size": 64, "num_hidden_layers": 6}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40}
    sizes |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    found = {}
    for name, (theirs, smaller, field, meaning) in NEWER.items():
        config = getattr(transformers, f"{theirs}Config")
        longer = {"rope_parameters": LLAMA_3_1, "max_position_embeddings": 131072}
        published = config(**longer if name == "Llama 3.1" else {})
        setting = getattr(config_from_hf(published.model_type, published), field)
        model = getattr(transformers, f"{theirs.removesuffix('Text')}ForCausalLM")(config(**sizes | smaller))
        found[name] = (f"{field}={setting!r}", meaning, _with_random_weights(model))
    return found


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
