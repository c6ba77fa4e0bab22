"""What the tests of counts share: small configurations of every kind, and transformers' model of one."""

import transformers

from course_lib.config import TransformerConfig

CHOICES = [
    {"n_kv_heads": 6, "activation": "gelu", "positions": "learned"},
    {"n_kv_heads": 2, "activation": "swiglu", "positions": "rope", "norm": "rms", "bias": False, "tie_weights": False},
    {"n_kv_heads": 1, "activation": "relu", "positions": "alibi", "norm_position": "post"},
]


def llama(config):
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocab_size, hidden_size=config.d_model, intermediate_size=config.d_ff,
            num_hidden_layers=config.n_layers, num_attention_heads=config.n_heads,
            num_key_value_heads=config.n_kv_heads, tie_word_embeddings=config.tie_weights, attention_bias=config.bias,
            mlp_bias=config.bias, attn_implementation="eager",
        )
    )  # fmt: skip


def small(family, **choices):
    return TransformerConfig(
        vocab_size=53, d_model=24, n_heads=6, n_layers=3, d_ff=37, max_seq_len=32, family=family, **choices
    )
