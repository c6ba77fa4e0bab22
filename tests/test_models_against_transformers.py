"""Our models against Hugging Face's: same weights, same logits, same text. Three families, every weight drawn."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

from course_lib.gpt import DecoderOnly
from course_lib.masks import padding_mask
from course_lib.pretrained import from_hf_state_dict
from course_lib.sampling import generate

V, T_MAX = 101, 80
# No special tokens: otherwise generation would stop at them. "eager", to have the attention weights.
PLAIN = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "attn_implementation": "eager"}
GPT2 = {"vocab_size": V, "n_positions": T_MAX, "n_embd": 48, "n_head": 4, **PLAIN}
LLAMA = {"vocab_size": V, "max_position_embeddings": T_MAX, "hidden_size": 48, "num_hidden_layers": 3, **PLAIN}
LLAMA |= {"num_attention_heads": 6, "intermediate_size": 100}
BERT = {"vocab_size": V, "max_position_embeddings": T_MAX, "hidden_size": 48, "num_hidden_layers": 3, **PLAIN}
BERT |= {"num_attention_heads": 4, "intermediate_size": 100, "layer_norm_eps": 1e-6}
STRETCHED = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
REFERENCES = {
    "gpt2 with 2 layers": lambda: GPT2LMHeadModel(GPT2Config(**GPT2, n_layer=2)),
    "gpt2, other width and activation": lambda: GPT2LMHeadModel(
        GPT2Config(**GPT2, n_layer=3, n_inner=100, activation_function="gelu")
    ),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
    "llama with grouped heads, tied": lambda: LlamaForCausalLM(
        LlamaConfig(**LLAMA, num_key_value_heads=2, tie_word_embeddings=True, **STRETCHED)
    ),
    "llama with one kv head and biases": lambda: LlamaForCausalLM(
        LlamaConfig(**LLAMA, num_key_value_heads=1, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5)
    ),
    "bert": lambda: BertModel(BertConfig(**BERT)),
    "bert with an output head": lambda: BertForMaskedLM(BertConfig(**BERT, hidden_act="gelu_new", type_vocab_size=3)),
}
GPT2S, LLAMAS, BERTS = (
    [name for name in REFERENCES if name.startswith(family)] for family in ("gpt2", "llama", "bert")
)
both_dtypes = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])


def drawn(theirs):
    """The reference in evaluation mode with every number drawn: no gain is 1, no bias 0."""
    for name, parameter in theirs.named_parameters():
        gain = parameter.ndim == 1 and name.endswith("weight")
        # Loud positions keep greedy text from falling into a loop, which would compare one token 64 times.
        torch.nn.init.normal_(parameter, mean=1.0 if gain else 0.0, std=1.0 if "wpe" in name else 0.15)
    return theirs.eval()


def exact(llama):
    """The same model, in float64 throughout.

    transformers casts a Llama's norms, angles and, in "eager" attention, softmax to float32, whatever its dtype: good
    to 1e-7 and no better. These parts of this one model are replaced by their formulas without the casts.
    """
    llama.double().set_attn_implementation("sdpa")

    def norm(x, own):
        return own.weight * x / (x.pow(2).mean(-1, keepdim=True) + own.variance_epsilon).sqrt()

    def cos_and_sin(x, position_ids):
        pairs = torch.arange(x.shape[-1] // llama.config.num_attention_heads // 2).double()  # (D / 2,)
        speeds = llama.config.rope_parameters["rope_theta"] ** (-pairs / len(pairs))
        angles = (position_ids[..., None] * speeds).repeat(1, 1, 2)  # (B, T, D): half-split
        return angles.cos(), angles.sin()

    for module in llama.modules():
        if isinstance(module, LlamaRMSNorm):
            module.forward = partial(norm, own=module)
        elif isinstance(module, LlamaRotaryEmbedding):
            module.forward = cos_and_sin
    return llama


def pair_of(name, dtype=torch.float32):
    theirs = drawn(REFERENCES[name]().to(dtype))
    if name in LLAMAS and dtype == torch.float64:
        exact(theirs)
    return from_hf_state_dict(theirs.config.model_type, theirs.state_dict(), theirs.config), theirs


@pytest.fixture(params=REFERENCES)
def pair(request):
    return pair_of(request.param)


@pytest.fixture(params=GPT2S + LLAMAS)
def decoders(request):
    return pair_of(request.param)


def outputs(ours, theirs, ids, **inputs):
    """Logits of both, or hidden states of both where ours has no head."""
    with torch.no_grad():
        if isinstance(ours, DecoderOnly):
            return ours(ids), theirs(ids, **inputs).logits
        return ours(ids), getattr(theirs, "bert", theirs)(ids, **inputs).last_hidden_state


@both_dtypes
@pytest.mark.parametrize(("B", "T"), [(1, 1), (3, 17), (2, T_MAX)])
@pytest.mark.parametrize("name", REFERENCES)
def test_outputs_agree(name, B, T, dtype, tolerance):
    ours, theirs = pair_of(name, dtype)
    out, expected = outputs(ours, theirs, torch.randint(V, (B, T)))
    assert out.dtype == expected.dtype == dtype
    assert expected.std() > 0.5  # the agreement is not one of zeros
    torch.testing.assert_close(out, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", LLAMAS)
def test_the_exact_llama_is_transformers_own_but_for_rounding(name):
    own, ids = drawn(REFERENCES[name]()).double(), torch.randint(V, (2, T_MAX))
    with torch.no_grad():
        torch.testing.assert_close(own(ids).logits, exact(own)(ids).logits, atol=1e-5, rtol=0)


@both_dtypes
@pytest.mark.parametrize("name", GPT2S + LLAMAS)
def test_a_ragged_batch_padded_on_the_left_gives_what_transformers_gives(name, dtype, tolerance):
    ours, theirs = pair_of(name, dtype)
    ids, padding = torch.randint(V, (4, 20)), torch.tensor([0, 3, 11, 19])
    real = torch.arange(20) >= padding[:, None]  # (4, 20)
    positions = (real.cumsum(dim=1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = ours(ids, left_padding=padding)
        expected = theirs(ids, attention_mask=real.long(), position_ids=positions).logits
    torch.testing.assert_close(logits[real], expected[real], atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", BERTS)
def test_padding_and_segments_of_an_encoder_give_what_transformers_gives(name):
    ours, theirs = pair_of(name)
    ids, lengths = torch.randint(V, (4, 20)), torch.tensor([20, 1, 7, 19])
    segments = torch.randint(theirs.config.type_vocab_size, (4, 20))
    real = torch.arange(20) < lengths[:, None]  # (4, 20)
    with torch.no_grad():
        hidden = ours(ids, padding_mask(lengths, 20), segments)
        expected = getattr(theirs, "bert", theirs)(ids, attention_mask=real.long(), token_type_ids=segments)
    torch.testing.assert_close(hidden[real], expected.last_hidden_state[real], atol=1e-5, rtol=0)


@both_dtypes
@pytest.mark.parametrize("name", LLAMAS)
def test_interleaved_pairs_with_reordered_rows_are_the_same_llama(name, dtype, tolerance):
    half_split, theirs = pair_of(name, dtype)
    config = replace(half_split.config, rope_interleaved=True)
    state = half_split.state_dict()
    D = config.d_head
    order = torch.arange(D).view(2, D // 2).T.flatten()  # 0, D/2, 1, D/2 + 1, …: the partners side by side
    for key, tensor in state.items():
        if "q_proj" in key or "k_proj" in key:
            state[key] = tensor.unflatten(0, (-1, D))[:, order].flatten(0, 1)
    interleaved = DecoderOnly(config).to(dtype).eval()
    interleaved.load_state_dict(state)
    ids = torch.randint(V, (2, 40))
    logits, expected = outputs(interleaved, theirs, ids)
    torch.testing.assert_close(logits, expected, atol=tolerance, rtol=0)
    wrong = DecoderOnly(replace(config, rope_interleaved=False)).to(dtype).eval()
    wrong.load_state_dict(state)
    assert (wrong(ids) - expected).abs().max() > 0.1


def test_greedy_text_is_equal_for_64_tokens(decoders):
    ours, theirs = decoders
    prompts = torch.randint(V, (3, 5))
    text = generate(ours, prompts, 64, temperature=0)
    expected = theirs.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=64, do_sample=False)
    assert text.tolist() == expected.tolist()
    assert text.shape == (3, 69)
    assert text[:, 5:].unique().numel() > 10  # not one token over and over


@pytest.mark.parametrize("name", GPT2S)
def test_losses_and_gradients_agree(name):
    ours, theirs = pair_of(name)
    ids = torch.randint(V, (2, 20))
    targets = ids.roll(-1, dims=1).index_fill(1, torch.tensor([19]), -100)  # transformers shifts by itself
    _, loss = ours(ids, targets)
    expected = theirs(ids, labels=ids).loss
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=0)
    loss.backward()
    expected.backward()
    # Gradients have the names and layouts of their weights: the same renaming carries them over.
    gradients = from_hf_state_dict("gpt2", {name: p.grad for name, p in theirs.named_parameters()}, theirs.config)
    for (name, parameter), gradient in zip(ours.named_parameters(), gradients.parameters(), strict=True):
        torch.testing.assert_close(
            parameter.grad, gradient.data, atol=2e-5, rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_attention_weights_agree(decoders):
    ours, theirs = decoders
    ids = torch.randint(V, (2, 11))
    with torch.no_grad():
        expected = theirs(ids, output_attentions=True).attentions
    for weights, reference in zip(ours.attention_weights(ids), expected, strict=True):
        torch.testing.assert_close(weights, reference, atol=1e-6, rtol=1e-4)


def test_a_model_follows_the_dtype_of_its_weights_and_owns_them(pair):
    ours, theirs = pair
    half = from_hf_state_dict(theirs.config.model_type, theirs.to(torch.bfloat16).state_dict(), theirs.config)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    ids = torch.randint(V, (2, 9))
    before = half(ids)
    assert before.isfinite().all()
    for parameter in theirs.parameters():
        parameter.data.zero_()
    assert torch.equal(half(ids), before)
    assert ours(ids).dtype == torch.float32
