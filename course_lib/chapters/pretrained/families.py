"""Families: by which switches a published model differs from its nearest relative. Chapter 15."""

from dataclasses import asdict

from course_lib.config import TransformerConfig

# Of Llama 3.1: its configuration's `rope_parameters`.
LLAMA_3_1 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA_3_1 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

# Fields that are a choice and no size, in the order in which they are told; what each does where it is switched on.
CHOICES = {
    "positions": "positions are told in another way",
    "rotary_share": "RoPE turns the first part of a head's features alone",
    "rope_scaling": "slow pairs turn slower still, for longer texts",
    "window": "a query sees itself and the keys just before it",
    "head_dim": "a head's size is free of d_model / n_heads",
    "qkv_bias": "queries, keys and values have a bias, nothing else",
    "qk_norm": "an RMSNorm over each query and key, before RoPE",
    "parallel": "attention and feed-forward read the same x",
    "norm": "another norm",
    "norm_position": "the norms stand elsewhere",
    "bias": "linear layers and norms: with or without a bias",
    "activation": "another nonlinearity",
    "tie_weights": "the output head: the embedding table again, or its own",
    "output_bias": "the output head has a bias",
}


def differences(config: TransformerConfig, relative: TransformerConfig) -> dict[str, str]:
    """Return the switches of a config that its relative has otherwise: "window=4096" -> what that does.

    Sizes, eps, theta and dropout are left out: every model has its own.
    """
    own, other = asdict(config), asdict(relative)
    return {f"{name}={own[name]!r}": what for name, what in CHOICES.items() if own[name] != other[name]}
