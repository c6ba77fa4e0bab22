"""The families beside GPT-2, LLaMA and BERT: random weights, the numbers of Hugging Face's own in every way of use."""

import json
import math
import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
    SmolLM3Config,
    SmolLM3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.models.t5.modeling_t5 import T5Attention

from course_lib.config import TransformerConfig
from course_lib.counting import count_parameters
from course_lib.encoder_decoder import EncoderDecoder, EncoderOnly
from course_lib.gpt import DecoderOnly
from course_lib.hub.names import BASIS, DIFFERS, config_from_hf
from course_lib.masks import padding_mask
from course_lib.positions import RelativeBias, slowed
from course_lib.pretrained import from_hf_state_dict, load_pretrained, save_pretrained
from course_lib.sampling import generate
from course_lib.tinytown import BytePairTokenizer

V, T_MAX = 67, 40
# No special tokens: otherwise generation would stop at them. "sdpa": transformers' other attention rounds to float32.
PLAIN = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "attn_implementation": "sdpa"}
SIZES = {"vocab_size": V, "max_position_embeddings": T_MAX, "hidden_size": 48, "num_hidden_layers": 3}
SIZES |= {"num_attention_heads": 6, "intermediate_size": 100} | PLAIN
GROUPED = SIZES | {"num_key_value_heads": 2}
LONGER = GROUPED | {"max_position_embeddings": 512}
GEMMA3 = {name: value for name, value in GROUPED.items() if name != "num_hidden_layers"}
GEMMA3 |= {"head_dim": 10, "query_pre_attn_scalar": 10, "sliding_window": 5, "sliding_window_pattern": 3}
FULL_FIRST = ["full_attention", "sliding_attention"]
MIXTURE = GROUPED | {"experts_implementation": "eager"}  # transformers' other implementation needs float32
EXPERTS = MIXTURE | {"num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 30}
BERTS = SIZES | {"max_position_embeddings": T_MAX + 2, "pad_token_id": 1}
# The numbers of Llama 3.1, for a text of 64 tokens: pairs of all three kinds occur.
STRETCHED = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0}
STRETCHED |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}
PARTIAL = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.25}
NEOX = SIZES | {"hidden_size": 96, "rope_parameters": PARTIAL}
TRANSLATORS = {"vocab_size": V, "d_model": 48, "decoder_start_token_id": 0, "eos_token_id": None}
TRANSLATORS |= {"pad_token_id": None, "attn_implementation": "eager"}
T5 = TRANSLATORS | {"d_ff": 100, "num_layers": 3, "num_heads": 6, "n_positions": 200}
MARIAN = TRANSLATORS | {"max_position_embeddings": T_MAX, "scale_embedding": True, "forced_eos_token_id": None}
for _stack in ("encoder", "decoder"):
    MARIAN |= {f"{_stack}_layers": 3, f"{_stack}_ffn_dim": 100, f"{_stack}_attention_heads": 6}
REFERENCES = {
    "mistral": lambda: MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=5)),
    "mistral, no window, free d_head": lambda: MistralForCausalLM(
        MistralConfig(**GROUPED, sliding_window=None, head_dim=10, tie_word_embeddings=True)
    ),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**GROUPED)),
    "qwen2, tied": lambda: Qwen2ForCausalLM(Qwen2Config(**GROUPED, tie_word_embeddings=True)),
    "llama 3.1": lambda: LlamaForCausalLM(LlamaConfig(**LONGER, rope_parameters=STRETCHED)),
    "llama 3.2, tied": lambda: LlamaForCausalLM(
        LlamaConfig(**LONGER, rope_parameters=STRETCHED | {"factor": 32.0}, tie_word_embeddings=True)
    ),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**GROUPED, head_dim=10)),
    "qwen3, tied": lambda: Qwen3ForCausalLM(Qwen3Config(**GROUPED, head_dim=8, tie_word_embeddings=True)),
    "qwen3_moe": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**EXPERTS, head_dim=10, norm_topk_prob=True)),
    "qwen3_moe, tied, p not normalized": lambda: Qwen3MoeForCausalLM(
        Qwen3MoeConfig(**EXPERTS | {"num_experts_per_tok": 2}, tie_word_embeddings=True)
    ),
    "mixtral": lambda: MixtralForCausalLM(
        MixtralConfig(**MIXTURE, num_local_experts=5, num_experts_per_tok=2, sliding_window=None)
    ),
    "smollm3": lambda: SmolLM3ForCausalLM(SmolLM3Config(**GROUPED | {"num_hidden_layers": 5})),
    "smollm3, untied, RoPE in the middle": lambda: SmolLM3ForCausalLM(
        SmolLM3Config(**GROUPED, no_rope_layers=[0, 1, 0], tie_word_embeddings=False)
    ),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**GROUPED)),
    "olmo2, tied, one key head": lambda: Olmo2ForCausalLM(
        Olmo2Config(**SIZES, num_key_value_heads=1, tie_word_embeddings=True)
    ),
    "gemma": lambda: GemmaForCausalLM(GemmaConfig(**GROUPED, head_dim=10)),
    "gemma3_text": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA3, num_hidden_layers=5)),
    "gemma3_text, untied, global first": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**GEMMA3, num_hidden_layers=2, layer_types=FULL_FIRST, tie_word_embeddings=False)
    ),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**NEOX)),
    "gpt_neox, one branch after the other": lambda: GPTNeoXForCausalLM(
        GPTNeoXConfig(
            **NEOX | {"rope_parameters": PARTIAL | {"partial_rotary_factor": 1.0}}, use_parallel_residual=False
        )
    ),
    "roberta": lambda: RobertaModel(RobertaConfig(**BERTS, type_vocab_size=1, layer_norm_eps=1e-6)),
    "t5": lambda: T5ForConditionalGeneration(T5Config(**T5, d_kv=10)),
    "t5, its scores and outputs unscaled": lambda: T5ForConditionalGeneration(
        T5Config(**T5, d_kv=8, tie_word_embeddings=False)
    ),
    "marian": lambda: MarianMTModel(MarianConfig(**MARIAN, activation_function="swish")),
    "roberta with an output head": lambda: RobertaForMaskedLM(RobertaConfig(**BERTS, hidden_act="gelu_new")),
}
FIRST = [name for name in REFERENCES if "," not in name and " with " not in name]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def drawn(theirs):
    """The reference in evaluation mode with every number drawn: no gain is 1, no bias 0."""
    for name, parameter in theirs.named_parameters():
        gain = parameter.ndim == 1 and name.endswith("weight") and "gemma" not in theirs.config.model_type
        loud = getattr(theirs.config, "scale_decoder_outputs", False) and name == "shared.weight"  # by 1 / √d_model
        if parameter.requires_grad:  # Marian's sinusoids are a parameter too
            torch.nn.init.normal_(parameter, mean=1.0 if gain else 0.0, std=0.5 if loud else 0.15)
    if hasattr(theirs, "final_logits_bias"):
        torch.nn.init.normal_(theirs.final_logits_bias, std=0.15)
    return theirs.eval()


def speeds_of(rope, d_turned):
    """RoPE's speeds in float64, (d_turned / 2,), with Llama 3.1's scaling told pair by pair, as its makers tell it."""
    speeds = []
    for pair in range(d_turned // 2):
        speed = rope["rope_theta"] ** (-2 * pair / d_turned)
        if rope["rope_type"] == "llama3":
            length, wave = rope["original_max_position_embeddings"], 2 * math.pi / speed
            slow, fast = length / rope["low_freq_factor"], length / rope["high_freq_factor"]
            if wave > slow:
                speed = speed / rope["factor"]
            elif wave >= fast:
                smooth = (length / wave - rope["low_freq_factor"]) / (
                    rope["high_freq_factor"] - rope["low_freq_factor"]
                )
                speed = (1 - smooth) * speed / rope["factor"] + smooth * speed
        speeds.append(speed)
    return torch.tensor(speeds, dtype=torch.float64)


def exact(theirs):
    """The same model in float64 throughout: transformers computes RMSNorms, RoPE's angles and the weights of experts
    in float32.

    Marian's sinusoids are rounded to float32 in both libraries, and stay as they are."""
    config = theirs.double().config

    def norm(x, own):
        return own.weight * x / (x.pow(2).mean(-1, keepdim=True) + own.variance_epsilon).sqrt()

    def norm_of_gemma(x, own):
        return (1 + own.weight) * x / (x.pow(2).mean(-1, keepdim=True) + own.eps).sqrt()

    def route(x, own):
        logits = x.reshape(-1, own.hidden_dim) @ own.weight.T
        p, chosen = logits.softmax(-1).topk(own.top_k, dim=-1)
        return logits, p / (p.sum(-1, keepdim=True) if getattr(own, "norm_topk_prob", True) else 1), chosen

    def cos_and_sin(x, position_ids, kind=None, d_turned=None):
        rope = config.rope_parameters if kind is None else config.rope_parameters[kind]
        angles = (position_ids[..., None] * speeds_of(rope, d_turned)).repeat(1, 1, 2)  # (B, T, d_turned)
        return angles.cos(), angles.sin()

    for module in theirs.modules():
        if hasattr(module, "variance_epsilon"):
            module.forward = partial(norm, own=module)
        elif type(module).__name__.startswith("Gemma") and hasattr(module, "eps"):
            module.forward = partial(norm_of_gemma, own=module)
        elif hasattr(module, "scalar_embed_scale"):
            module.embed_scale = torch.tensor(module.scalar_embed_scale, dtype=torch.float64)
        elif type(module).__name__.endswith("TopKRouter"):
            module.forward = partial(route, own=module)
        elif type(module).__name__.endswith("RotaryEmbedding"):
            speeds = module.full_attention_inv_freq if hasattr(module, "full_attention_inv_freq") else module.inv_freq
            module.forward = partial(cos_and_sin, d_turned=2 * len(speeds))
    return theirs


def pair_of(name, dtype=torch.float32):
    theirs = drawn(REFERENCES[name]().to(dtype))
    if dtype == torch.float64:
        exact(theirs)
    return from_hf_state_dict(theirs.config.model_type, theirs.state_dict(), theirs.config), theirs


def draw_ids(*shape):
    return torch.randint(2, V, shape)  # 1 is RoBERTa's padding, wherever it stands


def their_numbers(theirs, ids, **inputs):
    """Logits, or hidden states where ours has no head."""
    encoder = theirs if isinstance(theirs, RobertaModel) else getattr(theirs, "roberta", None)
    return theirs(ids, **inputs).logits if encoder is None else encoder(ids, **inputs).last_hidden_state


def largest(ours, theirs):
    assert ours.dtype == theirs.dtype
    assert theirs.std() > 0.4  # the agreement is not one of zeros
    return (ours - theirs).abs().max().item()


def whole(ours, theirs):
    ids = draw_ids(2, T_MAX)
    if isinstance(ours, EncoderDecoder):
        source = draw_ids(2, 23)
        return largest(ours(source, ids), theirs(source, decoder_input_ids=ids).logits)
    return largest(ours(ids), their_numbers(theirs, ids))


def padded(ours, theirs):
    """Rows of several lengths: padded on the left for a decoder, on the right where an encoder reads."""
    ids, padding = draw_ids(4, 20), torch.tensor([0, 3, 11, 19])
    if isinstance(ours, DecoderOnly):
        real = torch.arange(20) >= padding[:, None]  # (4, 20)
        positions = (real.cumsum(dim=1) - 1).clamp(min=0)
        expected = their_numbers(theirs, ids, attention_mask=real.long(), position_ids=positions)
        return largest(ours(ids, left_padding=padding)[real], expected[real])
    mask = padding_mask(20 - padding, 20)
    real = mask[:, 0, 0]
    ids = ids.where(real, 1)
    if isinstance(ours, EncoderDecoder):
        target = draw_ids(4, 9)
        expected = theirs(ids, attention_mask=real.long(), decoder_input_ids=target).logits
        return largest(ours(ids, target, mask), expected)
    return largest(ours(ids, mask)[real], their_numbers(theirs, ids, attention_mask=real.long())[real])


def cached(ours, theirs):
    """Read in pieces of 7, 1, 1, 6 … tokens with our cache, against the whole text at once without any."""
    ids, cache = draw_ids(2, T_MAX), ours.new_cache()
    pieces = ids.split([7, 1, 1, 6, 1, 1, T_MAX - 17], dim=1)
    if isinstance(ours, EncoderDecoder):
        source = draw_ids(2, 23)
        encoded = ours.encode(source)
        found = [ours.decode(piece, encoded, cache=cache) for piece in pieces]
        return largest(torch.cat(found, dim=1), theirs(source, decoder_input_ids=ids).logits)
    return largest(torch.cat([ours(piece, cache=cache) for piece in pieces], dim=1), their_numbers(theirs, ids))


def generated(ours, theirs):
    """How many of 48 tokens, written greedily with both libraries' caches, differ. A tied model of random weights
    writes one token over and over: the penalty, the same in both, lets it go on.
    """
    penalty = {"repetition_penalty": 4.0}
    ids = draw_ids(2, 8)
    text = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False, **penalty)
    if isinstance(ours, EncoderDecoder):
        own = generate(ours, torch.zeros(2, 1, dtype=torch.int64), 24, temperature=0, source_ids=ids, **penalty)
    else:
        own = generate(ours, ids, 24, temperature=0, **penalty)
    assert own.shape == text.shape
    assert len(set(text.flatten().tolist())) > 12
    return int((own != text).sum())


WAYS = {"whole": whole, "padded": padded, "cached": cached, "generated": generated}


def measured(name, dtype):
    """The largest difference in each way of use; an encoder neither caches nor writes."""
    ours, theirs = pair_of(name, dtype)
    with torch.no_grad():
        ways = {"whole": whole, "padded": padded} if isinstance(ours, EncoderOnly) else WAYS
        return {way: difference(ours, theirs) for way, difference in ways.items()}


def test_every_family_of_the_table_is_compared_with_transformers():
    elsewhere = {"gpt2", "llama", "bert"}  # test_models_against_transformers
    compared = {re.split(r"[ ,]", name)[0] for name in REFERENCES} | elsewhere
    missing = ", ".join(BASIS.keys() - compared)
    assert not missing, f"names.toml describes {missing}: add a model of transformers to REFERENCES"


@pytest.mark.parametrize("name", FIRST)
def test_a_family_gives_the_same_numbers_whole_padded_cached_and_generated(name):
    found = measured(name, torch.float64)
    assert found.pop("generated", 0) == 0
    assert max(found.values()) < 1e-10, found


@pytest.mark.parametrize("name", [name for name in FIRST if BASIS[re.split(r"[ ,]", name)[0]].get("family") is None])
def test_the_loss_of_a_decoder_is_that_of_transformers(name):
    ours, theirs = pair_of(name, torch.float64)
    ids = draw_ids(3, T_MAX)
    with torch.no_grad():
        own, expected = ours(ids[:, :-1], ids[:, 1:])[1], theirs(ids, labels=ids).loss  # theirs shifts the targets
    assert own.item() == pytest.approx(expected.item(), abs=1e-5)  # theirs is computed in float32


@pytest.fixture(scope="module")
def parities():
    return {}


@pytest.mark.proof
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", REFERENCES)
def test_every_variant_gives_the_same_numbers_in_both_widths(name, dtype, parities):
    found = parities[name, dtype] = measured(name, dtype)
    assert found.get("generated", 0) == 0
    assert max(found[way] for way in found if way != "generated") < TOLERANCE[dtype], found


@pytest.mark.proof
@pytest.mark.parametrize("name", REFERENCES)
def test_the_exact_reference_is_transformers_own_but_for_rounding(name):
    own, ids = drawn(REFERENCES[name]()).double(), draw_ids(2, T_MAX)
    given = {"decoder_input_ids": draw_ids(2, T_MAX)} if own.config.is_encoder_decoder else {}
    with torch.no_grad():
        before = their_numbers(own, ids, **given)
        torch.testing.assert_close(before, their_numbers(exact(own), ids, **given), atol=1e-5, rtol=0)


@pytest.mark.proof
def test_the_parity_table_is_printed(parities, capsys):
    with capsys.disabled():
        print(f"\n{'family':40}{'dtype':9}" + "".join(f"{way:>11}" for way in WAYS))
        for (name, dtype), found in parities.items():
            cells = (
                f"{found[way]:.1e}" if way in found and way != "generated" else f"{found.get(way, '-')}" for way in WAYS
            )
            print(f"{name:40}{str(dtype)[6:]:9}" + "".join(f"{cell:>11}" for cell in cells))


# ------------------------------------------------------------------------------------------- what makes each what it is
SWITCHES = [  # the family without its switch is another model
    ("mistral", {"window": None}),
    ("llama 3.1", {"rope_scaling": None}),
    ("qwen3_moe", {"experts_per_token": 2}),
    ("qwen3_moe", {"norm_topk_prob": False}),
    ("smollm3", {"rope_theta": 2e6}),
    ("olmo2", {"norm_position": "pre"}),
    ("gemma", {"activation": "swiglu"}),
    ("gemma3_text", {"norm_position": "output"}),
    ("gemma3_text", {"window": 5}),
    ("gemma3_text", {"rope_theta": 1e4}),
    ("gpt_neox", {"parallel": False}),
    ("gpt_neox", {"rotary_share": 1.0}),
    ("t5", {"norm_eps": 1.0}),
    ("marian", {"norm_position": "pre"}),
]


@pytest.mark.parametrize(("name", "without"), SWITCHES)
def test_the_family_without_its_switch_gives_other_numbers(name, without):
    theirs = drawn(REFERENCES[name]())
    ours = from_hf_state_dict(theirs.config.model_type, theirs.state_dict(), theirs.config)
    other = type(ours)(replace(ours.config, **without)).eval()
    other.load_state_dict(ours.state_dict(), strict=False)
    ids = draw_ids(2, T_MAX)
    args = (ids, ids) if isinstance(ours, EncoderDecoder) else (ids,)
    with torch.no_grad():
        assert (ours(*args) - other(*args)).abs().max() > 0.05


CONFIGS = {
    "mistral": {"window": 5, "n_kv_heads": 2},
    "mistral, no window, free d_head": {"window": None, "head_dim": 10, "tie_weights": True},
    "qwen2": {"qkv_bias": True, "bias": False},
    "llama 3.1": {"rope_scaling": (8.0, 1.0, 4.0, 64), "rope_theta": 500.0},
    "qwen3": {"qk_norm": True, "head_dim": 10},
    "qwen3, tied": {"qk_norm": True, "head_dim": None},
    "qwen3_moe": {"n_experts": 7, "experts_per_token": 3, "d_expert": 30, "norm_topk_prob": True, "qk_norm": True},
    "qwen3_moe, tied, p not normalized": {"norm_topk_prob": False, "experts_per_token": 2},
    "mixtral": {"n_experts": 5, "experts_per_token": 2, "d_expert": 100, "norm_topk_prob": True},
    "smollm3": {"rope_theta": (2e6, 2e6, 2e6, None), "tie_weights": True, "n_kv_heads": 2},
    "smollm3, untied, RoPE in the middle": {"rope_theta": (None, 2e6), "tie_weights": False},
    "olmo2": {"norm_position": "output", "qk_norm": "all", "n_kv_heads": 2},
    "gemma": {"activation": "geglu", "tie_weights": True, "head_dim": 10},
    "gemma3_text": {"window": (5, 5, None), "rope_theta": (1e4, 1e4, 1e6), "norm_position": "both", "qk_norm": True},
    "gemma3_text, untied, global first": {"window": (None, 5), "rope_theta": (1e6, 1e4), "tie_weights": False},
    "gpt_neox": {"parallel": True, "rotary_share": 0.25, "rope_theta": 100.0},
    "gpt_neox, one branch after the other": {"parallel": False, "rotary_share": 1.0},
    "roberta": {"family": "encoder", "n_segments": 1, "max_seq_len": T_MAX},
    "t5": {"positions": "relative", "norm": "rms", "head_dim": 10, "tie_weights": True, "bias": False},
    "t5, its scores and outputs unscaled": {"tie_weights": False, "head_dim": None},
    "marian": {"positions": "sinusoidal", "norm_position": "post", "activation": "silu", "output_bias": True},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_family_is_a_config_of_ours_and_goes_through_json(name):
    with torch.device("meta"):
        theirs = REFERENCES[name]()
    config = config_from_hf(theirs.config.model_type, theirs.config)
    assert {field: getattr(config, field) for field in CONFIGS[name]} == CONFIGS[name]
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


# What stands in config.json, as published, and how many parameters the model has. RoBERTa: without its pooler and the
# two rows of its position table that nobody reads.
LLAMAS = {"vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32}
LLAMAS |= {"num_key_value_heads": 8, "intermediate_size": 8192, "max_position_embeddings": 131072, "head_dim": 64}
LLAMAS |= {"rope_theta": 5e5, "tie_word_embeddings": True, "rms_norm_eps": 1e-5, "attention_bias": False}
LLAMAS |= {"rope_scaling": {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_type": "llama3",
                            "original_max_position_embeddings": 8192}}  # fmt: skip
MISTRALS = {"vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
MISTRALS |= {"num_key_value_heads": 8, "intermediate_size": 14336, "max_position_embeddings": 32768}
QWENS = {"vocab_size": 151936, "tie_word_embeddings": True, "rope_theta": 1e6, "use_sliding_window": False}
QWENS |= {"sliding_window": None, "max_window_layers": 21, "rope_scaling": None}
QWEN2S = QWENS | {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2}
QWEN2S |= {"intermediate_size": 4864, "max_position_embeddings": 32768, "sliding_window": 32768}
QWEN3S = QWENS | {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8}
QWEN3S |= {"intermediate_size": 3072, "max_position_embeddings": 40960, "head_dim": 128, "attention_bias": False}
QWEN3_MOES = {"vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32}
QWEN3_MOES |= {"num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768}
QWEN3_MOES |= {"num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True, "max_position_embeddings": 40960}
MIXTRALS = MISTRALS | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}
SMOLLM3S = {"vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16}
SMOLLM3S |= {"num_key_value_heads": 4, "intermediate_size": 11008, "max_position_embeddings": 65536}
SMOLLM3S |= {"rope_theta": 5e6, "no_rope_layers": [1, 1, 1, 0] * 9, "use_sliding_window": False}
OLMO2S = {"vocab_size": 100352, "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16}
OLMO2S |= {"num_key_value_heads": 16, "intermediate_size": 8192, "max_position_embeddings": 4096, "rope_theta": 5e5}
GEMMA3S = {"vocab_size": 262144, "hidden_size": 640, "num_hidden_layers": 18, "num_attention_heads": 4}
GEMMA3S |= {"num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 2048, "max_position_embeddings": 32768}
GEMMA3S |= {"query_pre_attn_scalar": 256, "sliding_window": 512, "rope_theta": 1e6, "rope_local_base_freq": 1e4}
GEMMAS = {"vocab_size": 256000, "hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 8}
GEMMAS |= {"num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 16384, "max_position_embeddings": 8192}
GEMMAS |= {"hidden_act": "gelu", "hidden_activation": None}
PYTHIA = {"vocab_size": 50304, "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8}
PYTHIA |= {"intermediate_size": 2048, "max_position_embeddings": 2048, "rotary_pct": 0.25, "rotary_emb_base": 10000}
ROBERTA = {"vocab_size": 50265, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
ROBERTA |= {"intermediate_size": 3072, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
T5_SMALL = {"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
# The totals are those that the index of each model's weights states on the Hugging Face hub.
PUBLISHED = [
    ("llama", LLAMAS, 1_235_814_400),
    ("mistral", MISTRALS, 7_241_732_096),
    ("qwen2", QWEN2S, 494_032_768),
    ("qwen3", QWEN3S, 596_049_920),
    ("qwen3_moe", QWEN3_MOES, 30_532_122_624),
    ("mixtral", MIXTRALS, 46_702_792_704),
    ("smollm3", SMOLLM3S, 3_075_098_624),
    ("olmo2", OLMO2S, 1_484_916_736),
    ("gemma", GEMMAS, 2_506_172_416),
    ("gemma3_text", GEMMA3S, 268_098_176),
    ("gpt_neox", PYTHIA, 70_426_624),
    ("roberta", ROBERTA, 124_645_632 - (768 * 768 + 768) - 2 * 768),
    ("t5", T5_SMALL, 60_506_624),
]


@pytest.mark.parametrize(("family", "config", "total"), PUBLISHED, ids=[family for family, *_ in PUBLISHED])
def test_a_published_configuration_weighs_what_was_published(family, config, total):
    assert count_parameters(config_from_hf(family, config | {"model_type": family})).total == total


@pytest.mark.proof
@pytest.mark.parametrize("name", REFERENCES)
def test_a_folder_of_theirs_opens_and_one_of_ours_opens_again(tmp_path, name):
    subwords = BytePairTokenizer.train("the cat sat on the mat, and the mat sat on the cat. " * 20, 300)
    theirs = drawn(REFERENCES[name]())
    theirs.save_pretrained(tmp_path / "theirs")
    PreTrainedTokenizerFast(tokenizer_object=subwords.tokenizer).save_pretrained(tmp_path / "theirs")
    opened, tokenizer = load_pretrained(tmp_path / "theirs")
    save_pretrained(tmp_path / "ours", opened, tokenizer)
    again, _ = load_pretrained(tmp_path / "ours")
    ours = from_hf_state_dict(theirs.config.model_type, theirs.state_dict(), theirs.config)
    assert opened.config == again.config == ours.config
    expected = ours.state_dict()
    for model in (opened, again):
        for part, tensor in model.state_dict().items():
            torch.testing.assert_close(tensor, expected[part], rtol=0, atol=0)


def test_llama_3_1_leaves_fast_pairs_alone_and_slows_slow_ones_by_the_factor():
    speeds = 500.0 ** (-torch.arange(4) / 4)
    ratio = slowed(speeds, 8.0, 1.0, 4.0, 64) / speeds
    assert ratio[0] == 1
    assert 1 / 8 < ratio[1] < 1
    assert ratio[2:].tolist() == [1 / 8, 1 / 8]


@pytest.mark.usefixtures("as_a_learner")
def test_bad_numbers_of_the_new_parts_are_refused_by_name():
    with pytest.raises(ValueError, match="rope_scaling needs factor ≥ 1, 0 < low < high and original > 0"):
        slowed(torch.ones(2), 8.0, 4.0, 1.0, 64)
    with pytest.raises(TypeError, match="speeds"):
        slowed([1.0], 8.0, 1.0, 4.0, 64)
    with pytest.raises(ValueError, match="S=2 keys are fewer than T=3 queries"):
        RelativeBias(2, True)(3, 2)
    with pytest.raises(ValueError, match="n_heads must be a whole number of at least 1, got 0"):
        RelativeBias(0, True)


@pytest.mark.parametrize("both_ways", [True, False])
def test_relative_positions_share_bins_as_in_t5(both_ways):
    T, S = 150, 400
    bias = RelativeBias(3, both_ways)
    away = torch.arange(S) - torch.arange(S - T, S)[:, None]
    bins = T5Attention._relative_position_bucket(away, bidirectional=both_ways)  # (T, S)
    assert len(bins.unique()) == (31 if both_ways else 32)  # no later key is 0 away
    assert torch.equal(bias(T, S), bias.weight[bins].permute(2, 0, 1))


# ------------------------------------------------------------------------------------------------------ what is refused
REFUSED = [
    (
        "mistral",
        {"rope_scaling": {"type": "yarn", "factor": 4.0}},
        "rope_type='yarn': our RoPE supports only 'default'",
    ),
    ("mistral", {"hidden_act": "gelu"}, "activation='gelu' is not known: choose one of 'silu'"),
    (
        "qwen2",
        {"use_sliding_window": True},
        "use_sliding_window=True: our qwen2 models support only use_sliding_window=False",
    ),
    ("qwen3", {"attention_bias": True}, "attention_bias=True: our qwen3 models support only attention_bias=False"),
    ("qwen3_moe", {"mlp_only_layers": [1]}, r"mlp_only_layers=\[1\]: our qwen3_moe models support only"),
    ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step=2: our qwen3_moe models support only"),
    ("qwen3_moe", {"num_experts_per_tok": 8}, "experts_per_token=8 must be at most n_experts=7"),
    ("smollm3", {"use_sliding_window": True}, "use_sliding_window=True: our smollm3 models support only"),
    ("olmo2", {"attention_bias": True}, "attention_bias=True: our olmo2 models support only attention_bias=False"),
    ("gemma3_text", {"final_logit_softcapping": 30.0}, "final_logit_softcapping=30.0: our gemma3_text models support"),
    ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
    ("gemma3_text", {"query_pre_attn_scalar": 16}, "query_pre_attn_scalar=16: our gemma3_text models always have"),
    ("gemma3_text", {"layer_types": ["chunked_attention"]}, "layer_types='chunked_attention' is not known: choose one"),
    ("gemma3_text", {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "rope_type='linear': our gemma3_text"),
    ("gpt_neox", {"attention_bias": False}, "attention_bias=False"),
    ("gpt_neox", {"rope_parameters": {"partial_rotary_factor": 0.1}}, r"rotary_share=0\.1 of d_head=16 .* but RoPE"),
    ("roberta", {"pad_token_id": 0}, "pad_token_id=0: our roberta models support only pad_token_id=1"),
    ("roberta", {"is_decoder": True}, "is_decoder=True"),
    ("t5", {"feed_forward_proj": "gated-gelu"}, "activation='gated-gelu' is not known: choose one of 'relu'"),
    ("t5", {"relative_attention_num_buckets": 16}, "relative_attention_num_buckets=16"),
    ("t5", {"num_decoder_layers": 2}, "num_decoder_layers=2: our t5 models always have n_layers=3"),
    (
        "marian",
        {"scale_embedding": False},
        "scale_embedding=False: our marian models support only scale_embedding=True",
    ),
    ("marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings=False"),
    ("marian", {"decoder_layers": 2}, "decoder_layers=2: our marian models always have n_layers=3"),
]


@pytest.mark.parametrize(("name", "changes", "complaint"), REFUSED)
def test_what_our_models_do_not_do_is_refused_with_the_one_thing_that_differs(name, changes, complaint):
    with torch.device("meta"):
        config = REFERENCES[name]().config
    with pytest.raises(ValueError, match=complaint):
        config_from_hf(name, config.to_dict() | changes)


@pytest.mark.parametrize("family", DIFFERS)
def test_a_family_that_is_not_ours_is_refused_with_what_sets_it_apart(family):
    apart = re.escape(f"What sets {family} apart: {DIFFERS[family]}")
    with pytest.raises(ValueError, match=f"family='{family}' is not known: .*{apart}"):
        from_hf_state_dict(family, {}, {})


@pytest.mark.parametrize(
    ("family", "silent", "means"),
    [
        ("mistral", {}, {"window": 4096, "n_kv_heads": 8}),
        ("mistral", {"sliding_window": None, "num_key_value_heads": None}, {"window": None, "n_kv_heads": 32}),
        ("qwen3", {"hidden_size": 2048}, {"head_dim": 128, "n_kv_heads": 32}),
        ("qwen3_moe", {}, {"n_experts": 128, "experts_per_token": 8, "d_expert": 768, "norm_topk_prob": False}),
        ("smollm3", {}, {"rope_theta": 2e6, "n_kv_heads": 4, "tie_weights": True}),  # two blocks, no fourth
        ("smollm3", {"no_rope_layer_interval": 2}, {"rope_theta": (2e6, None)}),
        ("smollm3", {"no_rope_layers": [0, 0]}, {"rope_theta": (None,)}),
        ("gemma3_text", {}, {"window": 4096, "rope_theta": 1e4, "head_dim": 256, "tie_weights": True}),
        (
            "gemma3_text",
            {"sliding_window_pattern": 2, "sliding_window": 9, "rope_theta": 7.0, "rope_local_base_freq": 5.0},
            {"window": (9, None), "rope_theta": (5.0, 7.0)},
        ),
        ("gpt_neox", {"rotary_pct": 0.5, "rotary_emb_base": 77}, {"rotary_share": 0.5, "rope_theta": 77}),
        ("gpt_neox", {}, {"rotary_share": 0.25, "rope_theta": 10000.0, "parallel": True}),
    ],
)
def test_a_terse_or_an_old_configuration_means_what_the_reference_means_by_it(family, silent, means):
    sizes = {"vocab_size": V, "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32}
    sizes |= {"intermediate_size": 100, "max_position_embeddings": T_MAX}
    config = config_from_hf(family, sizes | silent)
    assert {field: getattr(config, field) for field in means} == means


BESIDES = {
    "gpt_neox": ["gpt_neox.layers.0.attention.bias", "gpt_neox.layers.1.attention.rotary_emb.inv_freq"],
    "mistral": ["model.layers.1.self_attn.rotary_emb.inv_freq"],
    "roberta": ["roberta.pooler.dense.weight", "lm_head.dense.bias", "roberta.embeddings.position_ids"],
    "marian": ["model.encoder.embed_positions.weight"],
    "t5": ["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"],
}


@pytest.mark.parametrize("family", BESIDES)
def test_what_files_hold_besides_the_weights_is_left_out_and_nothing_else(family):
    theirs = drawn(REFERENCES[family]())
    state, expected = theirs.state_dict(), from_hf_state_dict(family, theirs.state_dict(), theirs.config).state_dict()
    found = from_hf_state_dict(family, state | {name: torch.ones(3) for name in BESIDES[family]}, theirs.config)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.state_dict().items())
    with pytest.raises(ValueError, match=r"has unknown .*mystery\.weight"):
        from_hf_state_dict(family, state | {"mystery.weight": torch.ones(3)}, theirs.config)


@pytest.mark.parametrize("family", ["gemma", "gemma3_text"])
def test_gemma_in_16_bits_becomes_float32_so_that_one_plus_its_gains_is_not_rounded(family):
    theirs = drawn(REFERENCES[family]())
    half = {name: tensor.bfloat16() for name, tensor in theirs.state_dict().items()}
    theirs.load_state_dict(half)  # the rounded numbers, in float32
    ours = from_hf_state_dict(family, half, theirs.config)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    with torch.no_grad():
        assert whole(ours, theirs) < 1e-5


@pytest.mark.parametrize(
    ("family", "mixture", "names"),
    [("qwen3_moe", "mlp", ("gate_proj", "up_proj", "down_proj")), ("mixtral", "block_sparse_moe", ("w1", "w3", "w2"))],
)
def test_experts_load_from_a_file_with_a_tensor_for_each_matrix_of_each_expert(family, mixture, names):
    """The published files name them so; transformers 5 puts the experts of a block together when it opens a file."""
    theirs = drawn(REFERENCES[family]())
    state, filed = theirs.state_dict(), {}
    for name, tensor in state.items():
        layer, _, kind = name.replace(".mlp.", f".{mixture}.").rpartition(".")
        if kind == "gate_up_proj":
            for e, (gate, up) in enumerate(zip(*tensor.chunk(2, dim=1))):
                filed |= {f"{layer}.{e}.{names[0]}.weight": gate, f"{layer}.{e}.{names[1]}.weight": up}
        elif kind == "down_proj":
            filed |= {f"{layer}.{e}.{names[2]}.weight": down for e, down in enumerate(tensor)}
        else:
            filed[f"{layer}.{kind}"] = tensor
    assert len(filed) > len(state)
    expected = from_hf_state_dict(family, state, theirs.config).state_dict()
    found = from_hf_state_dict(family, filed, theirs.config).state_dict()
    assert list(found) == list(expected)
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_a_config_with_more_experts_than_tensors_is_refused_before_they_are_built():
    theirs = REFERENCES["mixtral"]()
    with pytest.raises(ValueError, match="n_experts=1000000 in its config, but only"):
        from_hf_state_dict("mixtral", theirs.state_dict(), theirs.config.to_dict() | {"num_local_experts": 10**6})


def test_one_tensor_under_two_names_is_refused_if_the_numbers_differ():
    theirs = drawn(REFERENCES["t5"]())
    state = theirs.state_dict()
    assert "encoder.embed_tokens.weight" in state
    state["encoder.embed_tokens.weight"] = state["shared.weight"] + 1
    with pytest.raises(ValueError, match=r"encoder\.embed_tokens\.weight under two names, with different numbers"):
        from_hf_state_dict("t5", state, theirs.config)
