"""Our DecoderOnly against Hugging Face's GPT-2: same weights, same logits, same text."""

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from course_lib.config import TransformerConfig
from course_lib.models import DecoderOnly
from course_lib.sampling import generate

V, T_MAX = 101, 80


@pytest.fixture(scope="module", params=[2, 3], ids=lambda n: f"{n} layers")
def pair(request):
    """GPT-2 built from a configuration, every weight and bias drawn at random, and our model with the same weights."""
    sizes = {"vocab_size": V, "n_positions": T_MAX, "n_embd": 48, "n_layer": request.param, "n_head": 4}
    # No special tokens: otherwise generation would stop at them. "eager" so that it returns its attention weights.
    tokens = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    theirs = GPT2LMHeadModel(GPT2Config(**sizes, **tokens, attn_implementation="eager")).eval()
    torch.manual_seed(request.param)
    for name, parameter in theirs.named_parameters():
        gain_of_a_norm = name.split(".")[-2] in ("ln_1", "ln_2", "ln_f") and name.endswith("weight")
        # Loud positions keep greedy text from falling into a loop, which would compare one token 64 times.
        nn.init.normal_(parameter, mean=1.0 if gain_of_a_norm else 0.0, std=1.0 if "wpe" in name else 0.2)
    ours = DecoderOnly(
        TransformerConfig(
            vocab_size=V, d_model=48, n_heads=4, n_layers=request.param, max_seq_len=T_MAX, activation="gelu_tanh"
        )
    ).eval()
    ours.load_state_dict(renamed(theirs.state_dict(), request.param))
    return ours, theirs


def renamed(theirs: dict, n_layers: int) -> dict:
    """GPT-2's names to ours. Its linear layers are stored (in, out), ours (out, in); its q, k and v are one matrix."""
    state = {
        "token_embedding.weight": theirs["transformer.wte.weight"],
        "output.weight": theirs["transformer.wte.weight"],
        "positions.weight": theirs["transformer.wpe.weight"],
    }
    for kind in ("weight", "bias"):
        state[f"final_norm.{kind}"] = theirs[f"transformer.ln_f.{kind}"]
        for i in range(n_layers):
            gpt, block = f"transformer.h.{i}", f"blocks.{i}"
            state[f"{block}.norm1.{kind}"] = theirs[f"{gpt}.ln_1.{kind}"]
            state[f"{block}.norm2.{kind}"] = theirs[f"{gpt}.ln_2.{kind}"]
            qkv = theirs[f"{gpt}.attn.c_attn.{kind}"].chunk(3, dim=-1)
            for name, matrix in zip(("q_proj", "k_proj", "v_proj"), qkv):
                state[f"{block}.attention.{name}.{kind}"] = matrix.T if kind == "weight" else matrix
            linears = {
                "attention.out_proj": "attn.c_proj",
                "feed_forward.up_proj": "mlp.c_fc",
                "feed_forward.down_proj": "mlp.c_proj",
            }
            for ours, gpt_name in linears.items():
                values = theirs[f"{gpt}.{gpt_name}.{kind}"]
                state[f"{block}.{ours}.{kind}"] = values.T if kind == "weight" else values
    return state


@pytest.mark.parametrize(("B", "T"), [(1, 1), (3, 17), (2, T_MAX)])
def test_logits_agree_to_1e5(pair, B, T):
    ours, theirs = pair
    ids = torch.randint(V, (B, T))
    with torch.no_grad():
        logits, expected = ours(ids), theirs(ids).logits
    assert expected.std() > 0.5  # the agreement is not one of zeros
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_losses_and_gradients_agree(pair):
    ours, theirs = pair
    ids = torch.randint(V, (2, 20))
    targets = ids.roll(-1, dims=1).index_fill(1, torch.tensor([19]), -100)  # transformers shifts by itself
    _, loss = ours(ids, targets)
    expected = theirs(ids, labels=ids).loss
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=0)
    ours.zero_grad()
    theirs.zero_grad()
    loss.backward()
    expected.backward()
    gradients = renamed({name: p.grad for name, p in theirs.named_parameters()}, len(ours.blocks))
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(
            parameter.grad, gradients[name], atol=2e-5, rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_attention_weights_agree(pair):
    ours, theirs = pair
    ids = torch.randint(V, (2, 11))
    with torch.no_grad():
        expected = theirs(ids, output_attentions=True).attentions
    for weights, reference in zip(ours.attention_weights(ids), expected, strict=True):
        torch.testing.assert_close(weights, reference, atol=1e-6, rtol=1e-4)


def test_greedy_text_is_equal_for_64_tokens(pair):
    ours, theirs = pair
    prompts = torch.randint(V, (3, 5))
    text = generate(ours, prompts, 64, temperature=0)
    expected = theirs.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=64, do_sample=False)
    assert text.tolist() == expected.tolist()
    assert text.shape == (3, 69)
    assert text[:, 5:].unique().numel() > 10  # not one token over and over
