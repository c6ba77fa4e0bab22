"""Counts of memory: the cache, the scores, training and activations, against what real steps allocate."""

import dataclasses
import itertools

import pytest
import torch
from counted import CHOICES, llama, small
from helpers import MODELS

from course_lib.config import FAMILIES, NORMS, TransformerConfig, preset
from course_lib.counting import (
    activation_memory,
    attention_matrix_bytes,
    count_parameters,
    inference_memory,
    kv_cache_bytes,
    training_memory,
)
from course_lib.encoder_decoder import EncoderDecoder
from course_lib.feed_forward import ACTIVATIONS, GATED
from course_lib.gpt import DecoderOnly
from course_lib.heads import MultiHeadAttention
from course_lib.positions import rotary_angles


def held(tensors):
    """Bytes of the memory behind these tensors; what several of them share counts once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("choices", CHOICES)
def test_the_cache_weighs_what_a_decoder_keeps(choices, dtype):
    config = small("decoder", **choices)
    model = DecoderOnly(config).to(dtype)
    cache, seen = model.new_cache(), 0
    for T in (5, 1, 2):
        model(torch.randint(53, (2, T)), cache=cache)
        seen += T
        kept = held(tensor for own, _ in cache for tensor in (own.key, own.value))
        assert kv_cache_bytes(config, seen, batch=2, bytes_per_element=dtype.itemsize) == kept


@pytest.mark.parametrize("choices", CHOICES)
@pytest.mark.parametrize(("S", "T"), [(3, 3), (9, 4)])
def test_an_encoder_decoder_keeps_the_keys_of_its_source_too(choices, S, T):
    config = small("encoder-decoder", **choices)
    model = EncoderDecoder(config)
    cache, encoded = model.new_cache(), model.encode(torch.randint(53, (2, S)))
    for token in torch.randint(53, (2, T)).split(1, dim=1):
        model.decode(token, encoded, cache=cache)
    kept = held(tensor for caches in cache for part in caches for tensor in (part.key, part.value))
    assert kv_cache_bytes(config, T, batch=2, bytes_per_element=4, S=S) == kept
    if S == T:  # as long as the target, unless given
        assert kv_cache_bytes(config, T, batch=2, bytes_per_element=4) == kept
        memory = inference_memory(config, T, batch=2, bytes_per_element=4)
        assert memory.by_component == {"weights": held(model.parameters()), "key-value cache": kept}


@pytest.mark.parametrize("n_kv_heads", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_cache_weighs_what_transformers_keeps(n_kv_heads, dtype):
    config = dataclasses.replace(
        preset("llama-7b"), vocab_size=50, d_model=24, n_heads=4, n_kv_heads=n_kv_heads, n_layers=3, d_ff=40
    )
    cache = llama(config).to(dtype)(torch.randint(50, (2, 7)), use_cache=True).past_key_values
    kept = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
    assert kv_cache_bytes(config, 7, batch=2, bytes_per_element=dtype.itemsize) == kept


def test_llama7b_keeps_two_gibibytes_for_4096_tokens_in_float16_and_llama3_a_quarter():
    assert kv_cache_bytes(preset("llama-7b"), 4096) == 2 * 2**30
    assert kv_cache_bytes(preset("llama-3-8b"), 4096) == 2**29


@pytest.mark.parametrize("n_kv_heads", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_attention_matrix_weighs_what_one_layer_returns(n_kv_heads, dtype):
    config = TransformerConfig(vocab_size=9, d_model=12, n_heads=3, n_kv_heads=n_kv_heads, n_layers=2, max_seq_len=8)
    attention = MultiHeadAttention(12, 3, n_kv_heads).to(dtype)
    _, weights = attention(torch.randn(2, 7, 12, dtype=dtype), is_causal=True, need_weights=True)
    assert attention_matrix_bytes(config, 7, batch=2, bytes_per_element=dtype.itemsize) == weights.nbytes


def test_one_head_over_2048_tokens_has_a_matrix_of_16_mebibytes():
    one_head = TransformerConfig(vocab_size=9, d_model=768, n_heads=1, n_layers=1, max_seq_len=2048)
    assert attention_matrix_bytes(one_head, 2048) == 16 * 2**20


def moments(optimizer):
    """What AdamW keeps, without its step counters of 4 bytes each."""
    return held(tensor for state in optimizer.state.values() for name, tensor in state.items() if name != "step")


@pytest.mark.parametrize("choices", CHOICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_training_holds_what_a_step_of_adamw_leaves(family, choices):
    config = small(family, **choices, **({"n_segments": 2} if family == "encoder" else {}))
    model, ids = MODELS[family](config), torch.randint(53, (2, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    model(*((ids, ids) if family == "encoder-decoder" else (ids,))).square().mean().backward()
    optimizer.step()
    assert training_memory(config).by_component == {
        "weights": held(model.parameters()),
        "gradients": held(p.grad for p in model.parameters()),
        "AdamW moments": moments(optimizer),
        "float32 master copy": 0,
    }


def test_mixed_precision_training_also_takes_16_bytes_per_parameter():
    config = small("decoder")
    model, ids = DecoderOnly(config).bfloat16(), torch.randint(53, (2, 8))
    master = [p.detach().float() for p in model.parameters()]
    optimizer = torch.optim.AdamW(master)
    model(ids, ids)[1].backward()
    for copy, p in zip(master, model.parameters()):
        copy.grad = p.grad.float()
    optimizer.step()
    mixed = training_memory(config, mixed_precision=True)
    assert mixed.by_component == {
        "weights": held(model.parameters()),
        "gradients": held(p.grad for p in model.parameters()),
        "AdamW moments": moments(optimizer),
        "float32 master copy": held(master),
    }
    assert mixed.total == training_memory(config).total == 16 * count_parameters(config).total


def test_autocast_leaves_what_float32_leaves_and_holds_its_casts_during_the_step():
    """Bytes kept for the backward pass grow with the batch by equal steps; what is left at no text are the casts."""
    config = small("decoder")
    model = DecoderOnly(config)
    n, own = count_parameters(config).total, {p.untyped_storage().data_ptr() for p in model.parameters()}

    def kept(batch, autocast):
        seen = {}

        def look(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        ids = torch.randint(53, (batch, 8))
        hooks = torch.autograd.graph.saved_tensors_hooks(look, lambda tensor: tensor)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast), hooks:
            _, loss = model(ids, ids)
        loss.backward()
        return sum(seen.values())

    casts, none = (2 * kept(8, autocast) - kept(16, autocast) for autocast in (True, False))
    assert 1.5 * n < casts <= 2 * n
    assert none < 0.1 * n
    assert held(model.parameters()) + held(p.grad for p in model.parameters()) == 8 * n


def test_inference_holds_the_weights_and_the_cache():
    memory = inference_memory(preset("llama-7b"), 4096)
    assert memory.by_component == {"weights": 2 * 6_738_415_616, "key-value cache": 2 * 2**30}
    assert inference_memory(preset("bert-base"), 512, bytes_per_element=4).total == 4 * 108_891_648


def kept_for_backward(model, run):
    """Bytes of what autograd saves during a call; the parameters, which it also refers to, are left out."""
    parameters, saved = {p.untyped_storage().data_ptr() for p in model.parameters()}, []

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in parameters:
            saved.append(tensor)  # held here, so that no other tensor takes its place in memory
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run()
    return held(saved)


# d_model, d_ff and V have no common factor but 1.
WIDE = {"vocab_size": 101, "d_model": 96, "n_heads": 4, "n_layers": 3, "d_ff": 67, "max_seq_len": 32}


SMALL_CHANGE = 0.02  # what activation_memory leaves out, at most, for heads of 24 features


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("activation", [*ACTIVATIONS, *GATED])
@pytest.mark.parametrize("positions", ["none", "sinusoidal", "learned", "rope"])
def test_activations_are_what_autograd_keeps(norm, activation, positions):
    for norm_position, (n_kv_heads, rope_interleaved, dtype) in itertools.product(
        ("pre", "post"), [(1, True, torch.float64), (4, False, torch.float32)]
    ):
        config = TransformerConfig(
            **WIDE, norm=norm, activation=activation, positions=positions, norm_position=norm_position,
            n_kv_heads=n_kv_heads, rope_interleaved=rope_interleaved, tie_weights=n_kv_heads == 1,
        )  # fmt: skip
        model, ids = DecoderOnly(config).to(dtype), torch.randint(101, (5, 24))
        kept = kept_for_backward(model, lambda model=model, ids=ids: model(ids, ids))
        expected = activation_memory(config, 24, batch=5, bytes_per_element=dtype.itemsize).total
        assert expected <= kept <= (1 + SMALL_CHANGE) * expected, config


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("activation", [*ACTIVATIONS, *GATED])
@pytest.mark.parametrize("positions", ["learned", "rope"])
def test_each_part_keeps_its_share_of_the_activations(norm, activation, positions):
    config = TransformerConfig(**WIDE, norm=norm, activation=activation, positions=positions)
    model = DecoderOnly(config)
    block, x = model.blocks[0], torch.randn(5, 24, 96, requires_grad=True)
    rotary = rotary_angles(torch.arange(24), config.d_head) if positions == "rope" else None
    attention = kept_for_backward(model, lambda: block.attention(x, is_causal=True, rotary=rotary))
    head = kept_for_backward(model, lambda: model.output(x).log_softmax(dim=-1))
    bill = activation_memory(config, 24, batch=5).by_component
    assert 3 * kept_for_backward(model, lambda: block.feed_forward(x)) == bill["feed-forward"]
    assert 3 * attention == pytest.approx(bill["attention"], rel=2 * SMALL_CHANGE)
    assert 7 * kept_for_backward(model, lambda: block.norm1(x)) == pytest.approx(bill["norms"], rel=2 * SMALL_CHANGE)
    assert head == bill["output head"]


def test_a_block_of_gpt_keeps_in_16_bits_what_the_literature_says():
    one, two = (dataclasses.replace(preset("gpt2"), n_layers=n_layers) for n_layers in (1, 2))
    kept = activation_memory(two, 1024, bytes_per_element=2).total - activation_memory(one, 1024, 1, 2).total
    masks_of_dropout = 2 * 1024 * 768  # one byte per feature after the attention and after the feed-forward
    assert kept + masks_of_dropout == 34 * 1024 * 768  # Korthikanti et al. 2022, eq. 2, without the attention matrices
