"""Configurations: what they check, what they fill in, and the presets, held against transformers' own."""

import dataclasses
import json

import pytest
import transformers

from course_lib.config import PRESETS, TransformerConfig, preset

SMALL = {"vocab_size": 50, "d_model": 24, "n_heads": 4, "n_layers": 2, "max_seq_len": 16}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_the_way_through_json(name):
    config = preset(name)
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_what_is_left_open_is_filled_in():
    config = TransformerConfig(**SMALL)
    assert (config.d_ff, config.n_kv_heads, config.d_head) == (96, 4, 6)
    assert TransformerConfig(**SMALL, d_ff=7, n_kv_heads=2).d_ff == 7


# The published widths of LLaMA-7B, 13B, 33B and 65B; then two thirds of 4 · 384, which is 4 · 256 without rounding, and
# one unit more than fits.
@pytest.mark.parametrize(
    ("d_model", "d_ff"), [(4096, 11008), (5120, 13824), (6656, 17920), (8192, 22016), (384, 1024), (388, 1280)]
)
def test_the_default_width_of_swiglu_is_llamas(d_model, d_ff):
    sizes = {**SMALL, "d_model": d_model, "activation": "swiglu"}
    assert TransformerConfig(**sizes).d_ff == d_ff
    assert TransformerConfig(**sizes, d_ff=7).d_ff == 7


@pytest.mark.parametrize(("name", "d_ff"), [("gpt2-xl", 6400), ("llama-7b", 11008)])
def test_a_changed_copy_keeps_its_width_unless_told_to_settle_it_again(name, d_ff):
    assert dataclasses.replace(preset(name), d_model=2 * preset(name).d_model).d_ff == d_ff
    assert dataclasses.replace(preset(name), d_ff=None).d_ff == d_ff


def test_half_split_is_the_pairing_of_rope_unless_interleaved_is_asked_for():
    assert TransformerConfig(**SMALL).rope_interleaved is False
    assert TransformerConfig.from_dict({**SMALL, "rope_interleaved": True}).rope_interleaved is True
    assert {config.rope_interleaved for config in PRESETS.values()} == {False}  # as in Hugging Face's files


# Our names and theirs. What transformers' configurations say by default is the published small model.
BERT = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "max_seq_len": "max_position_embeddings",
    "d_ff": "intermediate_size",
    "tie_weights": "tie_word_embeddings",
}
THEIRS = {
    "gpt2": {
        "vocab_size": "vocab_size", "d_model": "n_embd", "n_heads": "n_head", "n_layers": "n_layer",
        "max_seq_len": "n_positions", "norm_eps": "layer_norm_epsilon", "tie_weights": "tie_word_embeddings",
    },
    "bert-base": {
        **BERT, "norm_eps": "layer_norm_eps", "n_segments": "type_vocab_size", "dropout": "hidden_dropout_prob",
    },
    "llama-7b": {
        **BERT, "norm_eps": "rms_norm_eps", "bias": "attention_bias", "n_kv_heads": "num_key_value_heads",
        "d_head": "head_dim",
    },
}  # fmt: skip
ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "swiglu": "silu"}


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("gpt2", transformers.GPT2Config),
        ("bert-base", transformers.BertConfig),
        ("llama-7b", transformers.LlamaConfig),
    ],
)
def test_the_presets_say_what_transformers_says(name, reference):
    config, theirs = preset(name), reference().to_dict()
    for ours, other in THEIRS[name].items():
        assert getattr(config, ours) == theirs[other], ours
    assert ACTIVATIONS[config.activation] == theirs.get("hidden_act", theirs.get("activation_function"))
    if config.positions == "rope":
        assert config.rope_theta == theirs["rope_parameters"]["rope_theta"]


def test_a_config_cannot_change_once_it_is_checked():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TransformerConfig(**SMALL).n_heads = 5


def test_a_changed_copy_is_checked_again():
    with pytest.raises(ValueError, match="n_heads=5"):
        dataclasses.replace(TransformerConfig(**SMALL), n_heads=5)


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"vocab_size": 0}, "vocab_size must be a whole number of at least 1, got 0"),
            ({"n_layers": 1.5}, "n_layers must be"),
            ({"max_seq_len": -1}, "max_seq_len must be"),
            ({"d_ff": 0}, "d_ff must be"),
            ({"d_model": "24"}, "d_model must be .* got '24'"),
            ({"n_heads": 5}, "d_model=24 cannot be shared among n_heads=5 .* 1, 2, 3, 4, 6, 8, 12, 24"),
            ({"n_kv_heads": 3}, "n_kv_heads=3 must divide n_heads=4"),
            ({"n_kv_heads": 8}, "n_kv_heads=8 must divide n_heads=4"),
            ({"n_kv_heads": 0}, "n_kv_heads must be"),
            ({"activation": "swish"}, "activation='swish' is not known: .*'swiglu'"),
            ({"norm": "batch"}, "norm='batch' .* 'layer', 'rms'"),
            ({"norm_position": "middle"}, "norm_position='middle' .* 'pre', 'post'"),
            ({"positions": "rotary"}, "positions='rotary' .* 'rope', 'alibi'"),
            ({"family": "gpt"}, "family='gpt' .* 'decoder', 'encoder', 'encoder-decoder'"),
            ({"bias": "no"}, "bias='no'"),
            ({"tie_weights": None}, "tie_weights=None"),
            ({"rope_interleaved": "half-split"}, "rope_interleaved='half-split' is not known: .* True, False"),
            ({"positions": "rope", "rope_theta": 0.0}, "rope_theta must be a positive number, got 0.0"),
            ({"head_dim": 0}, "head_dim must be a whole number of at least 1, got 0"),
            ({"head_dim": 3, "positions": "rope"}, "d_head=3 is odd"),
            ({"positions": "rope", "rotary_share": 1.5}, r"rotary_share must be in \(0, 1\], got 1.5"),
            ({"positions": "rope", "head_dim": 8, "rotary_share": 0.4}, "rotary_share=0.4 of d_head=8 features is 3"),
            ({"positions": "rope", "head_dim": 8, "rotary_share": 0.1}, "is 0, but RoPE rotates pairs"),
            ({"rotary_share": 0.5}, "rotary_share=0.5 needs positions='rope', got 'learned'"),
            ({"rope_scaling": (8, 1, 4, 64)}, "needs positions='rope', got 'learned'"),
            (
                {"positions": "rope", "rope_scaling": (8, 1, 4)},
                r"four numbers, \(factor, low, high, original\)",
            ),
            ({"positions": "rope", "rope_scaling": "llama3"}, "must be four numbers"),
            ({"positions": "rope", "rope_scaling": (8, 4, 4, 64)}, "needs factor ≥ 1, 0 < low < high"),
            ({"window": 0}, "window must be a whole number of at least 1, got 0"),
            ({"window": 4, "family": "encoder"}, "window=4 needs family='decoder', got 'encoder'"),
            ({"parallel": 1.5}, "parallel=1.5 is not known: choose one of True, False"),
            ({"parallel": True, "norm_position": "post"}, "parallel=True needs norm_position='pre', got 'post'"),
            ({"parallel": True, "family": "encoder-decoder"}, "does not support cross-attention"),
            ({"n_experts": 4, "activation": "swiglu"}, "experts_per_token must be a whole .* got None"),
            ({"n_experts": 4, "experts_per_token": 2}, "n_experts=4 needs activation='swiglu', got 'gelu'"),
            (
                {"n_experts": 4, "experts_per_token": 5, "activation": "swiglu"},
                "experts_per_token=5 must be at most n_experts=4",
            ),
            ({"experts_per_token": 2}, "experts_per_token=2 needs n_experts"),
            ({"d_expert": 2}, "d_expert=2 needs n_experts"),
            ({"norm_topk_prob": None}, "norm_topk_prob=None is not known: choose one of True, False"),
            ({"window": (4, 0)}, "window must be a whole number of at least 1, got 0"),
            ({"window": ()}, r"window=\(\) is empty: give one number for all blocks"),
            ({"positions": "rope", "rope_theta": None}, "rope_theta must be a positive number, got None"),
            ({"positions": "rope", "rope_theta": (1e4, -1.0)}, "rope_theta must be a positive number, got -1.0"),
            ({"rope_theta": (1e4, None)}, r"rope_theta=\(10000.0, None\) needs positions='rope', got 'learned'"),
            ({"norm_position": "both", "family": "encoder-decoder"}, "'both' does not support cross-attention: choose"),
            ({"qk_norm": "each"}, "qk_norm='each' is not known: choose one of False, True, 'all'"),
            ({"output_bias": True, "family": "encoder"}, "needs an output head, which family='encoder' lacks"),
            ({"positions": "rope", "rope_interleaved": True, "n_heads": 24}, "d_head=1 is odd"),
            ({"activation": "swiglu", "d_model": 0}, "d_model must be a whole number of at least 1, got 0"),
            ({"activation": "swiglu", "d_ff": 2.5}, "d_ff must be a whole number of at least 1, got 2.5"),
            ({"dropout": 1.0}, r"dropout must be a number in \[0, 1\)"),
            ({"norm_eps": 0.0}, "norm_eps must be a positive number"),
            ({"rope_theta": float("nan")}, "rope_theta must be a positive number"),
            ({"positions": "rope", "n_heads": 8}, "d_head=3 is odd"),
            ({"n_segments": 2}, "n_segments=2 needs family='encoder'"),
            ({"n_segments": -1, "family": "encoder"}, "n_segments must be"),
        ],
    )
    def test_a_wrong_field_is_named_with_what_is_allowed(self, change, message):
        with pytest.raises(ValueError, match=message):
            TransformerConfig(**{**SMALL, **change})

    def test_an_unknown_or_missing_field_of_a_dictionary_is_named(self):
        with pytest.raises(
            ValueError, match="unknown field 'n_head': a TransformerConfig has vocab_size, d_model, n_heads"
        ):
            TransformerConfig.from_dict({**SMALL, "n_head": 4})
        with pytest.raises(ValueError, match="'vocab_size'"):
            TransformerConfig.from_dict({name: SMALL[name] for name in SMALL if name != "vocab_size"})

    @pytest.mark.parametrize(
        ("name", "near"), [("gtp2", "gpt2"), ("llama-3", "llama-3-8b"), ("BERT-base", "bert-base")]
    )
    def test_an_unknown_preset_lists_the_nearest(self, name, near):
        with pytest.raises(ValueError, match=f"unknown preset {name!r}. Nearest: .*{near}.* All: gpt2, "):
            preset(name)

    def test_a_preset_that_is_like_none_lists_all(self):
        with pytest.raises(ValueError, match="tinytown"):
            preset("???")
