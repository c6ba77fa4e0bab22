"""Counts against built models, published totals, transformers, PyTorch's FLOP counter, and what real steps allocate."""

import dataclasses
import itertools
import re
from pathlib import Path

import pytest
import torch
import transformers
from counted import CHOICES, llama, small
from helpers import MODELS
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from course_lib.chapters import counting
from course_lib.config import FAMILIES, NORM_POSITIONS, NORMS, POSITIONS, PRESETS, TransformerConfig, preset
from course_lib.counting import (
    activation_memory,
    attention_matrix_bytes,
    count_parameters,
    forward_flops,
    inference_memory,
    kv_cache_bytes,
)
from course_lib.encoder_decoder import EncoderDecoder
from course_lib.feed_forward import ACTIVATIONS, GATED, MixtureOfExperts
from course_lib.gpt import DecoderOnly
from course_lib.grading import EXERCISES

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 108_891_648,  # without the pooler
    "llama-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "mixtral-8x7b": 46_702_792_704,
    "qwen3-30b-a3b": 30_532_122_624,
    "transformer-base": 63_082_496,  # the paper's table 3 says 65 million
}

# Words in the names of parameters, ours and transformers', first match first, and the item they belong to.
COMPONENT_OF = {
    "q_norm": "attention",
    "k_norm": "attention",
    "relative_bias": "position embedding",
    "norm": "norms",
    "Norm": "norms",
    "ln_": "norms",
    "attn": "attention",
    "attention": "attention",
    "position": "position embedding",
    "wpe": "position embedding",
    "segment_embedding": "segment embedding",
    "token_type_embeddings": "segment embedding",
    "token_embedding": "token embedding",
    "wte": "token embedding",
    "word_embeddings": "token embedding",
    "embed_tokens": "token embedding",
    "shared": "token embedding",
    "feed_forward": "feed-forward",
    "mlp": "feed-forward",
    "fc": "feed-forward",
    "intermediate": "feed-forward",
    "output.dense": "feed-forward",
    "lm_head": "output head",
    "output.weight": "output head",
    "output.bias": "output head",
}


def weighed(model):
    """The parameters of a built model, by component. Marian's sinusoids are parameters that are never trained."""
    count = dict.fromkeys(count_parameters(preset("gpt2")).by_component, 0)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            count[next(component for word, component in COMPONENT_OF.items() if word in name)] += parameter.numel()
    return count


def reference_model(name):
    """The model of a preset as transformers builds it from its own configuration, on the meta device: shapes without
    memory."""
    config, eager = preset(name), {"attn_implementation": "eager"}
    with torch.device("meta"):
        if name.startswith("gpt2"):
            sizes = {"n_embd": config.d_model, "n_layer": config.n_layers, "n_head": config.n_heads}
            return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **eager))
        if name == "bert-base":
            return transformers.BertModel(transformers.BertConfig(**eager), add_pooling_layer=False)
        if name == "transformer-base":
            sizes = {
                f"{stack}_{size}": value
                for stack in ("encoder", "decoder")
                for size, value in (("layers", 6), ("attention_heads", 8), ("ffn_dim", 2048))
            }
            return transformers.MarianMTModel(
                transformers.MarianConfig(
                    vocab_size=37000, d_model=512, activation_function="relu", pad_token_id=0, decoder_start_token_id=0,
                    max_position_embeddings=512, **sizes, **eager,
                )
            )  # fmt: skip
        if name == "mixtral-8x7b":
            return transformers.MixtralForCausalLM(transformers.MixtralConfig(**eager))
        if name == "qwen3-30b-a3b":
            sizes = {"num_hidden_layers": 48, "head_dim": 128, "num_experts": 128}
            return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**sizes, **eager))
        return llama(config)


# ----------------------------------------------------------------------------------------------------------- parameters
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_presets_have_the_published_totals(name):
    assert count_parameters(preset(name)).total == PUBLISHED[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_component_weighs_what_it_weighs_in_transformers(name):
    assert count_parameters(preset(name)).by_component == weighed(reference_model(name))


@pytest.mark.parametrize("name", PRESETS)
def test_our_own_models_of_the_presets_weigh_the_same(name):
    config = preset(name)
    with torch.device("meta"):
        model = MODELS[config.family](config)
    assert weighed(model) == count_parameters(config).by_component


# Sizes without a common measure, so that no two errors can cancel. d_head is even, as RoPE needs it.
SIZES = {"vocab_size": 101, "d_model": 30, "n_heads": 3, "n_layers": 2, "d_ff": 37, "max_seq_len": 13}
GROUPED = {"vocab_size": 53, "d_model": 24, "n_heads": 6, "n_kv_heads": 2, "n_layers": 3, "max_seq_len": 19}
TWO_BRANCHES = ("output", "both")  # no cross-attention
GRID = [
    dict(zip(("family", "activation", "positions", "norm", "norm_position", "tie_weights", "bias"), values))
    for values in itertools.product(
        FAMILIES, (*ACTIVATIONS, *GATED), POSITIONS, NORMS, NORM_POSITIONS, (True, False), (True, False)
    )
    if not (values[0] == "encoder-decoder" and values[4] in TWO_BRANCHES)
]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_closed_form_equals_the_built_model_over_a_grid_of_configurations(family):
    assert len(GRID) == 2880  # 1152 in each family, but 576 encoder-decoders
    for i, choices in enumerate(GRID):
        if choices["family"] == family:
            config = TransformerConfig(
                **(SIZES if i % 3 else GROUPED), **choices, n_segments=i % 5 if family == "encoder" else 0
            )
            assert count_parameters(config).by_component == weighed(MODELS[family](config)), config


@st.composite
def experts(draw):
    """The fields of a mixture of experts, or in half of the cases none."""
    if draw(st.booleans()):
        return {"activation": draw(st.sampled_from((*ACTIVATIONS, *GATED)))}
    n_experts = draw(st.integers(1, 5))
    sizes = {"experts_per_token": draw(st.integers(1, n_experts)), "d_expert": draw(st.none() | st.integers(1, 9))}
    return {"activation": "swiglu", "n_experts": n_experts, **sizes}


@st.composite
def configs(draw):
    """Any configuration of small sizes."""
    few = st.integers(1, 3)
    n_kv_heads, d_head, family = draw(few), 2 * draw(st.integers(1, 5)), draw(st.sampled_from(FAMILIES))
    n_heads = n_kv_heads * draw(few)
    return TransformerConfig(
        vocab_size=draw(st.integers(1, 99)),
        d_model=n_heads * d_head,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        n_layers=draw(few),
        d_ff=draw(st.none() | st.integers(1, 50)),
        max_seq_len=draw(st.integers(1, 40)),
        norm=draw(st.sampled_from(NORMS)),
        norm_position=draw(st.sampled_from(NORM_POSITIONS[:2] if family == "encoder-decoder" else NORM_POSITIONS)),
        positions=draw(st.sampled_from(POSITIONS)),
        tie_weights=draw(st.booleans()),
        bias=draw(st.booleans()),
        family=family,
        n_segments=draw(st.integers(0, 4)) if family == "encoder" else 0,
        head_dim=draw(st.none() | st.sampled_from((2, 6))),
        qkv_bias=draw(st.booleans()),
        qk_norm=draw(st.sampled_from((False, True, "all"))),
        output_bias=family != "encoder" and draw(st.booleans()),
        **draw(experts()),
    )


@given(config=configs())
@settings(max_examples=100)
def test_the_closed_form_equals_the_built_model_whatever_the_sizes(config):
    assert count_parameters(config).by_component == weighed(MODELS[config.family](config))


@pytest.mark.parametrize(
    ("name", "billions"),  # Jiang et al. 2024, section 1; Yang et al. 2025, table 2
    [("mixtral-8x7b", (46.7, 12.9)), ("qwen3-30b-a3b", (30.5, 3.3))],
)
def test_of_a_mixture_of_experts_a_token_uses_the_published_part(name, billions):
    counts = [count_parameters(preset(name), active=active) for active in (False, True)]
    assert tuple(count.total / 1e9 for count in counts) == pytest.approx(billions, abs=0.06)
    same = [{item: n for item, n in count.by_component.items() if item != "feed-forward"} for count in counts]
    assert same[0] == same[1]


def test_the_exercise_on_active_parameters_counts_the_matrices_of_mixtral():
    answer = EXERCISES["counting.active"].reference
    model, block = transformers.MixtralConfig(vocab_size=32_000), {}
    with torch.device("meta"):
        theirs = transformers.MixtralForCausalLM(model)
    for name, tensor in theirs.model.layers[0].named_parameters():
        part = next(each for each in ("attn", "experts", "gate", "norm") if each in name)
        block[part] = block.get(part, 0) + tensor.numel()
    assert block["attn"] == answer["attention"]
    assert block["experts"] == 8 * answer["expert"]
    assert block["gate"] == answer["router"]
    assert sum(p.numel() for p in theirs.parameters()) == answer["total"] == PUBLISHED["mixtral-8x7b"]
    assert answer["active"] == count_parameters(preset("mixtral-8x7b"), active=True).total


def test_all_rows_but_one_of_the_exercise_on_an_error_weigh_what_they_weigh_in_qwen():
    folder = Path(counting.__file__).with_name("exercises")
    page = (folder / "find_the_error.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| .* \| ([\d,]+) \|$", page, re.MULTILINE)
    printed = [int(count.replace(",", "")) for _, count in rows]
    sizes = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "tie_word_embeddings": True}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
    with torch.device("meta"):
        theirs = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(vocab_size=151_936, **sizes, **heads))
    parts = ("embed_tokens", "q_proj", "k_proj", "v_proj", "o_proj", r"[qk]_norm", "mlp", "norm", "lm_head")
    counts = dict.fromkeys(parts, 0)
    for name, tensor in theirs.named_parameters():
        counts[next(part for part in parts if re.search(part, name))] += tensor.numel()
    answer = EXERCISES["counting.find_the_error"].reference
    wrong = [row for row, count in enumerate(counts.values(), 1) if count != printed[row - 1]]
    assert wrong == [answer["row"]]
    assert list(counts.values())[answer["row"] - 1] == answer["right"]
    ours = TransformerConfig(
        vocab_size=151_936, d_model=1024, n_heads=16, n_kv_heads=8, head_dim=128, n_layers=28, d_ff=3072,
        max_seq_len=40_960, activation="swiglu", norm="rms", positions="rope", bias=False, qk_norm=True,
        tie_weights=True,
    )  # fmt: skip
    assert count_parameters(ours).total == sum(counts.values()) == 596_049_920


@given(config=configs())
@settings(max_examples=50)
def test_the_active_parameters_are_those_that_one_token_reaches(config):
    with torch.device("cpu"):
        model = MODELS[config.family](config)
    idle = 0
    for module in model.modules():
        if isinstance(module, MixtureOfExperts):
            idle += sum(p.numel() for expert in module.experts[module.experts_per_token :] for p in expert.parameters())
    assert count_parameters(config, active=True).total == sum(weighed(model).values()) - idle


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tie_weights", [True, False])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_grouped_heads_swiglu_and_biases_weigh_what_they_weigh_in_transformers(bias, tie_weights, n_kv_heads):
    config = dataclasses.replace(
        preset("llama-7b"), vocab_size=50, d_model=24, n_heads=4, n_kv_heads=n_kv_heads, n_layers=3, d_ff=37,
        bias=bias, tie_weights=tie_weights,
    )  # fmt: skip
    assert count_parameters(config).by_component == weighed(llama(config))


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


# ---------------------------------------------------------------------------------------------------------------- FLOPs
def counted(run):
    """FLOPs of a call as PyTorch's counter sees them: 2 m k n per matrix product, nothing for the rest.

    The counter knows no formula for the CPU's fused attention and would count it as nothing, so attention runs as
    plain products here. There a causal flag hides scores that have been computed, and grouped keys have been copied to
    all heads: both are counted in full, as in the closed form.
    """
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize("choices", CHOICES)
@pytest.mark.parametrize(("B", "T"), [(1, 1), (2, 9), (3, 32)])
@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_flops_are_those_that_pytorch_counts(family, choices, B, T):
    config = small(family, **choices)
    model, ids = MODELS[family](config), torch.randint(53, (B, T))
    assert forward_flops(config, T, batch=B) == counted(lambda: model(ids))


@pytest.mark.parametrize("choices", CHOICES)
@pytest.mark.parametrize(("B", "S", "T"), [(1, 1, 1), (2, 9, 9), (2, 5, 14), (3, 31, 2)])
def test_flops_of_an_encoder_decoder_are_those_that_pytorch_counts(choices, B, S, T):
    config = small("encoder-decoder", **choices)
    model, source, target = EncoderDecoder(config), torch.randint(53, (B, S)), torch.randint(53, (B, T))
    expected = counted(lambda: model(source, target))
    assert forward_flops(config, T, batch=B, S=S) == expected
    if S == T:  # as long as the target, unless given
        assert forward_flops(config, T, batch=B) == expected


@pytest.mark.parametrize("name", ["gpt2", "bert-base", "llama-3-8b"])
@pytest.mark.parametrize("T", [1, 512])
def test_flops_of_the_presets_are_those_of_transformers(name, T):
    reference, ids = reference_model(name), torch.zeros((2, T), dtype=torch.long, device="meta")
    assert forward_flops(preset(name), T, batch=2) == counted(lambda: reference(ids))


@pytest.mark.parametrize(("S", "T"), [(40, 40), (7, 30), (30, 7)])
def test_flops_of_the_original_transformer_are_those_of_transformers(S, T):
    reference = reference_model("transformer-base")
    source, target = (torch.zeros((2, length), dtype=torch.long, device="meta") for length in (S, T))
    expected = counted(lambda: reference(source, decoder_input_ids=target))
    assert forward_flops(preset("transformer-base"), T, batch=2, S=S) == expected


@pytest.mark.parametrize("choices", CHOICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_forward_and_backward_together_cost_three_forward_passes(family, choices):
    config = small(family, **choices)
    model, ids = MODELS[family](config), torch.randint(53, (2, 9))
    inputs = (ids[:, :5], ids) if family == "encoder-decoder" else (ids,)
    forward = forward_flops(config, 9, batch=2, S=5 if family == "encoder-decoder" else None)
    assert counted(lambda: model(*inputs).sum().backward()) == 3 * forward


@pytest.mark.parametrize("choices", CHOICES)
@pytest.mark.parametrize("pieces", [[4, 1, 1], [1, 1, 1], [5, 7, 3]])
def test_flops_with_a_cache_are_those_that_pytorch_counts(choices, pieces):
    config = small("decoder", **choices)
    model = DecoderOnly(config)
    cache, seen = model.new_cache(), 0
    for T in pieces:
        ids = torch.randint(53, (2, T))
        assert forward_flops(config, T, batch=2, cached=seen) == counted(lambda ids=ids: model(ids, cache=cache))
        seen += T


@pytest.mark.parametrize("choices", CHOICES)
def test_an_encoder_decoder_encodes_once_and_then_pays_for_its_new_tokens(choices):
    config = small("encoder-decoder", **choices)
    model = EncoderDecoder(config)
    source, target, cache = torch.randint(53, (2, 11)), torch.randint(53, (2, 6)), model.new_cache()
    encoded = model.encode(source)
    first = counted(lambda: model.decode(target[:, :4], model.encode(source), cache=cache))
    step = counted(lambda: model.decode(target[:, 4:5], encoded, cache=cache))
    assert forward_flops(config, 4, batch=2, S=11) == first
    assert forward_flops(config, 1, batch=2, S=11, cached=4) == step
    assert forward_flops(config, 1, cached=10) == forward_flops(config, 1, S=11, cached=10)  # as long as the target


@given(config=configs().filter(lambda config: config.family == "decoder"), T=st.integers(1, 50))
def test_token_by_token_only_the_scores_of_later_keys_are_saved(config, T):
    steps = sum(forward_flops(config, 1, cached=seen) for seen in range(T))
    hidden_pairs = T * (T - 1) // 2
    assert forward_flops(config, T) - steps == config.n_layers * hidden_pairs * 4 * config.n_heads * config.d_head


def test_the_scores_are_half_of_the_flops_of_a_block_where_t_is_six_times_d_model():
    config = TransformerConfig(vocab_size=1, d_model=512, n_heads=8, n_layers=1, max_seq_len=4096)

    def share(T):
        linear = T * (forward_flops(config, 1) - 4 * 512 - 2 * 512)  # per token, without the scores and the head
        return 1 - linear / (forward_flops(config, T) - T * 2 * 512)

    assert share(6 * 512) == pytest.approx(1 / 2)
    assert share(512) == pytest.approx(1 / 7)  # T / (6 d + T)


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize(
        "count", [forward_flops, attention_matrix_bytes, kv_cache_bytes, inference_memory, activation_memory]
    )
    @pytest.mark.parametrize("T", [0, -1, 2.5])
    def test_lengths_must_be_whole_numbers_of_at_least_one(self, count, T):
        with pytest.raises(ValueError, match="T must be a whole number"):
            count(preset("gpt2"), T)

    def test_an_encoder_has_no_cache(self):
        with pytest.raises(ValueError, match="does not generate"):
            kv_cache_bytes(preset("bert-base"), 5)
        with pytest.raises(ValueError, match="does not generate"):
            forward_flops(preset("bert-base"), 1, cached=4)

    @pytest.mark.parametrize("cached", [-1, 2.5])
    def test_cached_tokens_are_counted_in_whole_numbers(self, cached):
        with pytest.raises(ValueError, match="cached must be a whole number"):
            forward_flops(preset("gpt2"), 1, cached=cached)

    @pytest.mark.parametrize("count", [forward_flops, kv_cache_bytes])
    def test_only_an_encoder_decoder_has_a_source(self, count):
        with pytest.raises(ValueError, match="S=7 is the length of a source, but family='decoder' has none"):
            count(preset("gpt2"), 5, S=7)
        with pytest.raises(ValueError, match="S must be a whole number of at least 1, got 0"):
            count(preset("transformer-base"), 5, S=0)

    @pytest.mark.parametrize("name", ["bert-base", "transformer-base"])
    def test_activations_are_those_of_a_decoder(self, name):
        with pytest.raises(ValueError, match="the formula is for family='decoder'"):
            activation_memory(preset(name), 5)
