"""Configurations: what they check, what they fill in, and the presets."""

import dataclasses
import json

import pytest

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


def test_the_default_width_of_swiglu_is_llamas():
    llama = preset("llama-7b")
    sizes = {**SMALL, "d_model": llama.d_model, "activation": "swiglu"}
    assert TransformerConfig(**sizes).d_ff == llama.d_ff == 11008


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
