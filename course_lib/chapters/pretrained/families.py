"""Families: the settings in which a published model differs from its closest relative. Chapter 15."""

from dataclasses import asdict

from course_lib.config import TransformerConfig

# Of Llama 3.1: its configuration's `rope_parameters`.
LLAMA_3_1 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA_3_1 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

# Fields that are a design choice rather than a size, in the order in which they are printed, and what each one does.
CHOICES = {
    "positions": "positions are encoded differently",
    "rotary_share": "RoPE rotates only the first part of each head",
    "rope_scaling": "slow pairs rotate even more slowly, for longer texts",
    "window": "a query sees itself and the keys just before it",
    "head_dim": "head size is independent of d_model / n_heads",
    "qkv_bias": "only queries, keys and values have a bias",
    "qk_norm": "an RMSNorm over each query and key, before RoPE",
    "parallel": "attention and feed-forward network read the same x",
    "norm": "a different norm",
    "norm_position": "norms in a different place",
    "bias": "linear layers and norms: with or without a bias",
    "activation": "a different nonlinearity",
    "tie_weights": "output head tied to the embedding table, or separate",
    "output_bias": "the output head has a bias",
}


def differences(config: TransformerConfig, relative: TransformerConfig) -> dict[str, str]:
    """Return the settings of a config that differ from its relative's: "window=4096" -> what that does.

    Sizes, eps, theta and dropout are left out: every model has its own.
    """
    own, other = asdict(config), asdict(relative)
    return {f"{name}={own[name]!r}": what for name, what in CHOICES.items() if own[name] != other[name]}
