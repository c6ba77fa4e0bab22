"""Models in llama2.c's format: transformers' numbers from the same weights, and the pieces that SentencePiece makes."""

import struct
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from course_lib.hub import weights
from course_lib.hub.stories import _tokenizer, load_llama2c
from course_lib.pretrained import load_pretrained, load_tokenizer

D, D_FF, LAYERS, HEADS, KV_HEADS, ROOM = 16, 24, 2, 4, 2, 32
WORDS = [" a", "at", " c", " cat", "  ", "na", "ï", " ", "a", "c", "n", "t"]  # the earliest is joined first
VOCABULARY = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(bytes([i]) for i in range(256)), *(word.encode() for word in WORDS)]


def interleaved(weight, heads):
    """Rows of q or k as llama2.c has them, from those of transformers: what RoPE turns together, side by side."""
    return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


@pytest.fixture(scope="module")
def theirs():
    """A small LLaMA of transformers."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(VOCABULARY), hidden_size=D, intermediate_size=D_FF, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=ROOM, rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


@pytest.fixture
def file(theirs, tmp_path):
    """The same model as a file of llama2.c."""
    state, layers = theirs.state_dict(), range(LAYERS)

    def stack(name, change=lambda weight: weight):
        return [change(state[f"model.layers.{layer}.{name}.weight"]) for layer in layers]

    parts = [
        [state["model.embed_tokens.weight"]],
        stack("input_layernorm"),
        stack("self_attn.q_proj", lambda weight: interleaved(weight, HEADS)),
        stack("self_attn.k_proj", lambda weight: interleaved(weight, KV_HEADS)),
        stack("self_attn.v_proj"), stack("self_attn.o_proj"), stack("post_attention_layernorm"),
        stack("mlp.gate_proj"), stack("mlp.down_proj"), stack("mlp.up_proj"), [state["model.norm.weight"]],
        [torch.zeros(2, ROOM, D // HEADS // 2)],  # the cosines and sines, which are computed anew
    ]  # fmt: skip
    path = tmp_path / "llama2.data"
    tokens = b"".join(struct.pack("<fi", 0.0, len(token)) + token for token in VOCABULARY)
    path.write_bytes(
        struct.pack("<7i", D, D_FF, LAYERS, HEADS, KV_HEADS, len(VOCABULARY), ROOM)
        + b"".join(tensor.contiguous().numpy().tobytes() for part in parts for tensor in part)
        + struct.pack("<i", max(map(len, VOCABULARY)))
        + tokens
    )
    return path


def test_the_numbers_are_those_of_transformers(theirs, file):
    model, _ = load_llama2c(file)
    ids = torch.randint(len(VOCABULARY), (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(model(ids), theirs(ids).logits, rtol=1e-4, atol=1e-5)


def pieces(text, ids):
    """SentencePiece's rule in words: of all neighbours that make a token together, the earliest token's are joined."""
    parts = list(("▁" + text).replace(" ", "▁"))
    while pairs := [(ids[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ids]:
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return [
        ids[part] if part in ids else 3 + byte for part in parts for byte in ([0] if part in ids else part.encode())
    ]


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet="acnït €"))
def test_pieces_are_those_of_sentencepieces_rule(text):
    tokenizer = made_of(VOCABULARY)
    ids = {token.decode().replace(" ", "▁"): 259 + i for i, token in enumerate(VOCABULARY[259:])}
    if text:
        assert tokenizer.encode(text) == pieces(text, ids)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def made_of(vocabulary):
    """The tokenizer that the course reads from such a vocabulary."""
    content = b"".join(struct.pack("<fi", 0.0, len(token)) + token for token in vocabulary)
    return _tokenizer(struct.pack("<i", 9) + content, len(vocabulary))


@pytest.mark.parametrize(
    "harm", [lambda b: b[:20], lambda b: b[:400], lambda b: b[:-3], lambda b: b + b"\0", lambda b: bytes(28)]
)
def test_a_file_that_is_cut_or_holds_something_else_is_refused_by_name(file, harm):
    file.write_bytes(harm(file.read_bytes()))
    with pytest.raises(ValueError, match=r"llama2\.data"):
        load_llama2c(file)


def test_the_real_one_tells_a_story():
    if weights.state("stories15m") != "here":
        pytest.skip("python -m course_lib weights stories15m")
    model, tokenizer = load_pretrained("stories15m")
    assert load_tokenizer("stories15m").encode("Once upon a time") == [9038, 2501, 263, 931]  # LLaMA's own ids
    told = (
        "Once upon a time, there was a little girl named Lily. She loved to play with her toys. One day, she went out."
    )
    ids = torch.tensor([[1, *tokenizer.encode(told)]])
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(ids)[0, :-1], ids[0, 1:])
    assert loss < 1.2, "of 32,000 tokens: it knows such stories well"
