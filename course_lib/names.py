"""Names: what other libraries call the same parts, and the same settings.

Chapter 15. Hugging Face's GPT-2, LLaMA and BERT, and the GGUF files of llama.cpp. A model of theirs is a model of ours
under other names, if its settings ask for nothing that ours do not do.
"""

import re
from collections.abc import Mapping

from course_lib.checks import one_of
from course_lib.config import TransformerConfig


def _table(text: str) -> list[tuple[str, dict[str, str]]]:
    """The rows of a table: the first word, and the others by the name of their column. A lone "." is no word."""
    (_, *columns), *rows = (line.split() for line in text.strip().splitlines())
    return [(first, {column: word for column, word in zip(columns, words) if word != "."}) for first, *words in rows]


# Our modules, and what each library calls them. N is the number of a block; a dot begins the name of a block's part.
_ROWS = _table("""
    ours                     gpt2            llama                      bert                             gguf
    token_embedding          wte             embed_tokens               embeddings.word_embeddings       token_embd
    positions                wpe             .                          embeddings.position_embeddings   .
    segment_embedding        .               .                          embeddings.token_type_embeddings .
    embedding_norm           .               .                          embeddings.LayerNorm             .
    blocks.N                 h.N             layers.N                   encoder.layer.N                  blk.N
    .norm1                   .ln_1           .input_layernorm           .attention.output.LayerNorm      .attn_norm
    .attention.q_proj        .attn.c_attn.q  .self_attn.q_proj          .attention.self.query            .attn_q
    .attention.k_proj        .attn.c_attn.k  .self_attn.k_proj          .attention.self.key              .attn_k
    .attention.v_proj        .attn.c_attn.v  .self_attn.v_proj          .attention.self.value            .attn_v
    .attention.out_proj      .attn.c_proj    .self_attn.o_proj          .attention.output.dense          .attn_output
    .norm2                   .ln_2           .post_attention_layernorm  .output.LayerNorm                .ffn_norm
    .feed_forward.gate_proj  .               .mlp.gate_proj             .                                .ffn_gate
    .feed_forward.up_proj    .mlp.c_fc       .mlp.up_proj               .intermediate.dense              .ffn_up
    .feed_forward.down_proj  .mlp.c_proj     .mlp.down_proj             .output.dense                    .ffn_down
    final_norm               ln_f            norm                       .                                output_norm
    output                   lm_head         lm_head                    .                                output
""")
NAMES = dict(_ROWS)
# Our fields, and the settings that they stand for. Where a field has several rows, they must agree.
SETTINGS = _table("""
    ours         gpt2                 llama                    bert                          gguf
    vocab_size   vocab_size           vocab_size               vocab_size                    vocab_size
    max_seq_len  n_positions          max_position_embeddings  max_position_embeddings       context_length
    d_model      n_embd               hidden_size              hidden_size                   embedding_length
    n_layers     n_layer              num_hidden_layers        num_hidden_layers             block_count
    n_heads      n_head               num_attention_heads      num_attention_heads           attention.head_count
    n_kv_heads   .                    num_key_value_heads      .                             attention.head_count_kv
    d_ff         n_inner              intermediate_size        intermediate_size             feed_forward_length
    activation   activation_function  hidden_act               hidden_act                    .
    norm_eps     layer_norm_epsilon   rms_norm_eps             layer_norm_eps      attention.layer_norm_rms_epsilon
    rope_theta   .                    rope_theta               .                             rope.freq_base
    n_segments   .                    .                        type_vocab_size               .
    tie_weights  tie_word_embeddings  tie_word_embeddings      .                             .
    bias         .                    attention_bias           .                             .
    bias         .                    mlp_bias                 .                             .
    dropout      resid_pdrop          .                        hidden_dropout_prob           .
    dropout      embd_pdrop           .                        attention_probs_dropout_prob  .
    dropout      attn_pdrop           .                        .                             .
""")
_PLAIN = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
ACTIVATIONS = {"gpt2": _PLAIN, "llama": {"silu": "swiglu"}, "bert": _PLAIN}
# What a model of the family is, and what its configuration means where it is silent.
BASIS = {
    "gpt2": {"activation": "gelu_new", "dropout": 0.1},
    "llama": {"activation": "silu", "norm": "rms", "positions": "rope", "norm_eps": 1e-6, "bias": False,
              "tie_weights": False},
    "bert": {"family": "encoder", "activation": "gelu", "norm_position": "post", "norm_eps": 1e-12, "n_segments": 2,
             "dropout": 0.1},
}  # fmt: skip
# Settings for which our models have one answer.
ONLY = {
    "gpt2": {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
    "llama": {"rope_type": "default", "partial_rotary_factor": 1.0, "sliding_window": None, "attention_dropout": 0.0},
    "bert": {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False},
}
# Tensors in their files that our models have no part for: masks and angles, which are computed; BERT's training heads.
UNUSED = {
    "gpt2": r"h\.\d+\.attn\.(masked_)?bias",
    "llama": r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    "bert": r"embeddings\.position_ids|pooler\..*|cls\..*",
}


def their_name(name: str, library: str) -> str:
    """What a library calls our tensor: "blocks.3.norm1.weight" is "h.3.ln_1.weight" in "gpt2"."""
    number, part, kind = re.fullmatch(r"(?:blocks\.(\d+))?(.*)\.(\w+)", name).groups()
    block = NAMES["blocks.N"][library].replace("N", number) if number else ""
    return f"{block}{NAMES[part][library]}.{kind}"


def config_from_hf(family: str, config: object) -> TransformerConfig:
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

    fields = {}
    for field, row in SETTINGS:
        value = given.get(row.get(family), BASIS[family].get(field)) if family in row else None
        if value is not None and fields.setdefault(field, value) != value:
            raise ValueError(f"{row[family]}={value!r}: our {family} models have {field}={fields[field]!r} everywhere")
    fields = BASIS[family] | fields
    one_of(tuple(ACTIVATIONS[family]), activation=fields["activation"])
    fields["activation"] = ACTIVATIONS[family][fields["activation"]]
    ours = TransformerConfig.from_dict(fields)
    if given.get("head_dim", ours.d_head) != ours.d_head:
        raise ValueError(f"head_dim={given['head_dim']}: our heads have d_model / n_heads = {ours.d_head} features")
    return ours
