"""Counts against built models, published totals, transformers, PyTorch's FLOP counter and real optimizer states."""

import dataclasses
import itertools

import pytest
import torch
import transformers
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from course_lib.accounting import (
    attention_matrix_bytes,
    count_parameters,
    forward_flops,
    inference_memory,
    kv_cache_bytes,
    training_memory,
)
from course_lib.config import PRESETS, TransformerConfig, preset
from course_lib.models import DecoderOnly

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 108_891_648,  # without the pooler
    "llama-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_presets_have_the_published_totals(name):
    assert count_parameters(preset(name)).total == PUBLISHED[name]


def reference_model(name):
    """The model of that name as transformers builds it, on the meta device: shapes without memory."""
    config = preset(name)
    with torch.device("meta"):
        if name.startswith("gpt2"):
            sizes = {"n_embd": config.d_model, "n_layer": config.n_layers, "n_head": config.n_heads}
            return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
        if name == "bert-base":
            return transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False)
        return transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=config.vocab_size,
                hidden_size=config.d_model,
                intermediate_size=config.d_ff,
                num_hidden_layers=config.n_layers,
                num_attention_heads=config.n_heads,
                num_key_value_heads=config.n_kv_heads,
            )
        )


# Words in transformers' parameter names, first match first, and what a learner calls them.
COMPONENT_OF = {
    "LayerNorm": "norms",
    "layernorm": "norms",
    "ln_": "norms",
    "model.norm": "norms",
    "wte": "token embedding",
    "word_embeddings": "token embedding",
    "embed_tokens": "token embedding",
    "wpe": "position embedding",
    "position_embeddings": "position embedding",
    "token_type_embeddings": "segment embedding",
    "attn": "attention",
    "attention": "attention",
    "mlp": "feed-forward",
    "intermediate": "feed-forward",
    "output.dense": "feed-forward",
    "lm_head": "output head",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_component_weighs_what_it_weighs_in_transformers(name):
    expected = dict.fromkeys(count_parameters(preset(name)).by_component, 0)
    for parameter_name, parameter in reference_model(name).named_parameters():
        component = next(component for word, component in COMPONENT_OF.items() if word in parameter_name)
        expected[component] += parameter.numel()
    assert count_parameters(preset(name)).by_component == expected


def test_the_original_transformer_weighs_what_pytorchs_layers_weigh():
    config = preset("transformer-base")
    sizes = (config.d_model, config.n_heads, config.d_ff)
    with torch.device("meta"):
        layers = [nn.TransformerEncoderLayer(*sizes), nn.TransformerDecoderLayer(*sizes)]
    blocks = 6 * sum(p.numel() for layer in layers for p in layer.parameters())
    assert count_parameters(config).total == blocks + 37000 * 512
    assert count_parameters(config).total == pytest.approx(65e6, rel=0.04)  # the paper's table 3 rounds


GRID = [
    dict(zip(("activation", "positions", "tie_weights", "bias", "sizes", "max_seq_len"), values))
    for values in itertools.product(
        ("relu", "gelu", "gelu_tanh"),
        ("none", "sinusoidal", "learned"),
        (True, False),
        (True, False),
        # vocab_size, d_model, n_heads, n_layers, d_ff
        ((7, 1, 1, 1, 1), (50, 12, 3, 1, None), (33, 15, 5, 3, 7), (101, 32, 32, 2, 100)),
        (1, 37),
    )
]
COMPONENT_OF_OURS = {
    "norm": "norms",
    "token_embedding": "token embedding",
    "positions": "position embedding",
    "attention": "attention",
    "feed_forward": "feed-forward",
    "output": "output head",
}


def test_the_closed_form_equals_the_built_model_over_a_grid_of_configurations():
    assert len(GRID) >= 200
    for values in GRID:
        names = ("vocab_size", "d_model", "n_heads", "n_layers", "d_ff")
        rest = {name: value for name, value in values.items() if name != "sizes"}
        config = TransformerConfig(**dict(zip(names, values["sizes"])), **rest)
        with torch.device("meta"):
            model = DecoderOnly(config)
        count = count_parameters(config)
        built = dict.fromkeys(count.by_component, 0)
        for name, parameter in model.named_parameters():
            built[next(c for word, c in COMPONENT_OF_OURS.items() if word in name)] += parameter.numel()
        assert count.by_component == built, config
        assert count.total == sum(p.numel() for p in model.parameters()), config


@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("bias", [True, False])
def test_an_encoder_decoder_weighs_the_sum_of_its_parts(norm_position, norm, bias):
    config = TransformerConfig(
        vocab_size=11, d_model=8, n_heads=2, n_layers=3, max_seq_len=5, d_ff=20, norm=norm, norm_position=norm_position,
        bias=bias, family="encoder-decoder",
    )  # fmt: skip
    options = {"norm_first": norm_position == "pre", "bias": bias}
    with torch.device("meta"):
        layers = [nn.TransformerEncoderLayer(8, 2, 20, **options), nn.TransformerDecoderLayer(8, 2, 20, **options)]
        final = [nn.LayerNorm(8, bias=bias)] * (2 if norm_position == "pre" else 0)
    total = 3 * sum(p.numel() for layer in layers for p in layer.parameters())
    total += sum(p.numel() for layer in final for p in layer.parameters())
    if norm == "rms" and bias:  # an RMSNorm has no bias: 8 fewer for each of the norms
        total -= 8 * (3 * 5 + len(final))
    assert count_parameters(config).total == total + 11 * 8 + 2 * 5 * 8  # one token table, two position tables


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tie_weights", [True, False])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_grouped_heads_swiglu_and_biases_weigh_what_they_weigh_in_transformers(bias, tie_weights, n_kv_heads):
    config = dataclasses.replace(
        preset("llama-7b"), vocab_size=50, d_model=24, n_heads=4, n_kv_heads=n_kv_heads, n_layers=3, d_ff=37,
        bias=bias, tie_weights=tie_weights,
    )  # fmt: skip
    reference = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=50, hidden_size=24, num_attention_heads=4, num_key_value_heads=n_kv_heads, num_hidden_layers=3,
            intermediate_size=37, attention_bias=bias, mlp_bias=bias, tie_word_embeddings=tie_weights,
        )
    )  # fmt: skip
    assert count_parameters(config).total == sum(p.numel() for p in reference.parameters())


def test_an_encoder_has_no_output_head_to_tie():
    untied = dataclasses.replace(preset("bert-base"), tie_weights=False)
    assert count_parameters(untied).total == PUBLISHED["bert-base"]


def test_a_bill_prints_every_item_and_its_share():
    lines = str(count_parameters(preset("gpt2"))).splitlines()
    assert lines[0].split() == ["token", "embedding", "38,597,376", "31.0%"]
    assert lines[-1].split() == ["total", "124,439,808", "100.0%"]
    assert all(len(line) == len(lines[0]) for line in lines)


@pytest.mark.parametrize("name", PRESETS)
def test_all_bills_have_the_same_items_and_add_up(name):
    count = count_parameters(preset(name))
    assert list(count.by_component) == list(count_parameters(preset("gpt2")).by_component)
    assert count.total == sum(count.by_component.values())


@pytest.mark.parametrize("tie_weights", [True, False])
@pytest.mark.parametrize(("B", "T"), [(1, 1), (2, 9)])
def test_flops_are_those_that_pytorch_counts(tie_weights, B, T):
    config = TransformerConfig(
        vocab_size=50, d_model=24, n_heads=4, n_layers=3, d_ff=40, max_seq_len=16, tie_weights=tie_weights
    )
    model = DecoderOnly(config)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(torch.randint(50, (B, T)))
    assert forward_flops(config, T, batch=B) == counter.get_total_flops()


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_flops_of_a_llama_are_those_that_pytorch_counts(n_kv_heads):
    config = dataclasses.replace(
        preset("llama-7b"), vocab_size=50, d_model=24, n_heads=4, n_kv_heads=n_kv_heads, n_layers=2, d_ff=40
    )
    reference = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=50, hidden_size=24, num_attention_heads=4, num_key_value_heads=n_kv_heads, num_hidden_layers=2,
            intermediate_size=40, attn_implementation="eager",
        )
    )  # fmt: skip
    with FlopCounterMode(display=False) as counter:
        reference(torch.randint(50, (2, 7)))
    assert forward_flops(config, 7, batch=2) == counter.get_total_flops()


def test_the_scores_are_half_of_the_flops_of_a_block_where_t_is_six_times_d_model():
    config = TransformerConfig(vocab_size=1, d_model=512, n_heads=8, n_layers=1, max_seq_len=4096)

    def share(T):
        linear = T * (forward_flops(config, 1) - 4 * 512 - 2 * 512)  # per token, without the scores and the head
        return 1 - linear / (forward_flops(config, T) - T * 2 * 512)

    assert share(6 * 512) == pytest.approx(1 / 2)
    assert share(512) == pytest.approx(1 / 7)  # T / (6 d + T)


def test_an_encoder_computes_no_logits_and_an_encoder_decoder_attends_three_times():
    decoder = TransformerConfig(vocab_size=100, d_model=16, n_heads=2, n_layers=3, max_seq_len=8)
    encoder = dataclasses.replace(decoder, family="encoder")
    both = dataclasses.replace(decoder, family="encoder-decoder")
    head, attention = 5 * 2 * 100 * 16, 5 * 3 * (2 * 4 * 16 * 16 + 4 * 5 * 16)
    assert forward_flops(decoder, 5) - forward_flops(encoder, 5) == head
    assert forward_flops(both, 5) == 2 * forward_flops(encoder, 5) + attention + head


@pytest.mark.parametrize("n_kv_heads", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_cache_weighs_what_transformers_keeps(n_kv_heads, dtype):
    config = dataclasses.replace(
        preset("llama-7b"), vocab_size=50, d_model=24, n_heads=4, n_kv_heads=n_kv_heads, n_layers=3, d_ff=40
    )
    reference = transformers.LlamaModel(
        transformers.LlamaConfig(
            vocab_size=50, hidden_size=24, num_attention_heads=4, num_key_value_heads=n_kv_heads, num_hidden_layers=3,
            intermediate_size=40,
        )
    ).to(dtype)  # fmt: skip
    cache = reference(torch.randint(50, (2, 7)), use_cache=True).past_key_values
    kept = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
    assert kv_cache_bytes(config, 7, batch=2, bytes_per_element=dtype.itemsize) == kept


def test_llama7b_keeps_two_gibibytes_for_4096_tokens_in_float16_and_llama3_a_quarter():
    assert kv_cache_bytes(preset("llama-7b"), 4096) == 2 * 2**30
    assert kv_cache_bytes(preset("llama-3-8b"), 4096) == 2**29


def test_an_encoder_decoder_keeps_the_keys_of_its_source_too():
    both = preset("transformer-base")
    assert kv_cache_bytes(both, 10) == 2 * kv_cache_bytes(dataclasses.replace(both, family="decoder"), 10)


def test_the_attention_matrix_weighs_what_the_model_stores_for_one_layer():
    config = TransformerConfig(vocab_size=9, d_model=12, n_heads=3, n_layers=2, max_seq_len=8)
    weights = DecoderOnly(config).attention_weights(torch.randint(9, (2, 7)))
    assert attention_matrix_bytes(config, 7, batch=2) == weights[0].nbytes
    one_head = TransformerConfig(vocab_size=9, d_model=768, n_heads=1, n_layers=1, max_seq_len=2048)
    assert attention_matrix_bytes(one_head, 2048) == 16_777_216


def test_training_holds_what_adamw_holds():
    config = TransformerConfig(vocab_size=30, d_model=8, n_heads=2, n_layers=2, max_seq_len=8)
    model = DecoderOnly(config)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(30, (2, 8))
    model(ids, ids)[1].backward()
    optimizer.step()
    moments = sum(
        tensor.nbytes for state in optimizer.state.values() for name, tensor in state.items() if name != "step"
    )
    assert training_memory(config).by_component == {
        "weights": sum(p.nbytes for p in model.parameters()),
        "gradients": sum(p.grad.nbytes for p in model.parameters()),
        "AdamW moments": moments,
        "float32 master copy": 0,
    }


def test_mixed_precision_training_also_takes_16_bytes_per_parameter():
    config = preset("gpt2")
    n = count_parameters(config).total
    mixed = training_memory(config, mixed_precision=True)
    assert list(mixed.by_component.values()) == [2 * n, 2 * n, 8 * n, 4 * n]
    assert mixed.total == training_memory(config).total == 16 * n


def test_inference_holds_the_weights_and_the_cache():
    memory = inference_memory(preset("llama-7b"), 4096)
    assert memory.by_component == {"weights": 2 * 6_738_415_616, "key-value cache": 2 * 2**30}
    assert inference_memory(preset("bert-base"), 512, bytes_per_element=4).total == 4 * 108_891_648


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize("count", [forward_flops, attention_matrix_bytes, kv_cache_bytes, inference_memory])
    @pytest.mark.parametrize("T", [0, -1, 2.5])
    def test_lengths_must_be_whole_numbers_of_at_least_one(self, count, T):
        with pytest.raises(ValueError, match="T must be a whole number"):
            count(preset("gpt2"), T)

    def test_an_encoder_has_no_cache(self):
        with pytest.raises(ValueError, match="does not generate"):
            kv_cache_bytes(preset("bert-base"), 5)
