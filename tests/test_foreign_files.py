"""Files that others wrote, or that are damaged: each loads, or a ValueError names it and says what to do."""

import json
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import gguf
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.hub.checkpoints import from_hf_state_dict
from course_lib.hub.names import their_name
from course_lib.pretrained import load_pretrained, load_tokenizer, save_pretrained
from course_lib.tinytown import BytePairTokenizer, WordTokenizer

pytestmark = pytest.mark.usefixtures("as_a_learner")

SIZES = {"vocab_size": 300, "max_position_embeddings": 20, "hidden_size": 16, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "intermediate_size": 24}
LLAMA = SIZES | {"num_key_value_heads": 2}
THEIRS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=300, n_positions=20, n_embd=16, n_layer=2, n_head=4)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
    "bert": lambda: BertModel(BertConfig(**SIZES), add_pooling_layer=False),
    "t5": lambda: T5ForConditionalGeneration(T5Config(vocab_size=300, d_model=16, d_kv=4, d_ff=24, num_heads=4)),
}


@cache
def subwords():
    return BytePairTokenizer.train("the cat sat on the mat, and the mat sat on the cat. " * 20, 300)


@cache
def theirs_config(family):
    return THEIRS[family]().config.to_dict()


def in_folder(folder, family="llama", **config):
    """A folder as transformers writes it, some settings of its config.json replaced."""
    THEIRS[family]().save_pretrained(folder)
    subwords().tokenizer.save(str(folder / "tokenizer.json"))
    rewrite(folder / "config.json", lambda settings: settings | config)
    return folder


def rewrite(path, change):
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def small_llama():
    torch.manual_seed(0)
    model = DecoderOnly(
        TransformerConfig(
            vocab_size=300,
            d_model=32,
            n_heads=4,
            n_kv_heads=2,
            n_layers=2,
            d_ff=32,
            max_seq_len=20,
            norm="rms",
            activation="swiglu",
            positions="rope",
            norm_eps=1e-6,
            bias=False,
            rope_interleaved=True,
            tie_weights=False,
        )
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@cache
def small_gguf():
    """The bytes of a GGUF file, as llama.cpp's own package writes it, with a part of its numbers in eight bits."""
    model, tokenizer = small_llama(), subwords().tokenizer
    merges = [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_vocab_size(300)
        writer.add_context_length(20)
        writer.add_embedding_length(32)
        writer.add_block_count(2)
        writer.add_head_count(4)
        writer.add_head_count_kv(2)
        writer.add_feed_forward_length(32)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_rope_freq_base(10000.0)
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list([tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())])
        writer.add_token_types([1] * tokenizer.get_vocab_size())
        writer.add_token_merges(merges)
        for name, part in model.state_dict().items():
            numbers = part.numpy()
            if "up_proj" in name:
                packed = gguf.quantize(numbers, gguf.GGMLQuantizationType.Q8_0)
                writer.add_tensor(their_name(name, "gguf"), packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
            else:
                writer.add_tensor(their_name(name, "gguf"), numbers)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def gguf_folder(folder, content):
    (folder / "config.json").write_text("{}")
    (folder / "model.gguf").write_bytes(content)
    return folder


def complaint(folder):
    """What is said of a folder that does not load, as a ValueError; nothing if it loads."""
    try:
        load_pretrained(folder)
    except ValueError as error:
        return str(error)
    return ""


def loads_or_names(folder, file):
    """Whether the folder loads; if it does not, the error names the file."""
    said = complaint(folder)
    assert not said or str(folder / file) in said
    return not said


# ----------------------------------------------------------------------------------------------------------------- GGUF
def test_a_gguf_file_is_the_model_that_was_written(tmp_path):
    ours, tokenizer = load_pretrained(gguf_folder(tmp_path, small_gguf()))
    ids = torch.randint(300, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), small_llama()(ids), atol=0.1, rtol=0)  # eight bits
        assert (ours(ids) - small_llama()(ids)).abs().max() > 0
    assert tokenizer.encode("the cat sat") == subwords().encode("the cat sat")


DAMAGED = {
    "empty": b"",
    "only the magic": b"GGUF",
    "another magic": b"GGML" + bytes(60),
    "version 99": b"GGUF" + (99).to_bytes(4, "little") + bytes(60),
    "nothing in it": b"GGUF" + (3).to_bytes(4, "little") + bytes(60),
    "a list without end": b"GGUF" + (3).to_bytes(4, "little") + (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
    + (1).to_bytes(8, "little") + b"k" + (9).to_bytes(4, "little") + (4).to_bytes(4, "little") + b"\xff" * 7 + b"\x00",
}  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_gguf_file_is_named_with_the_remedy(tmp_path, content):
    gguf_folder(tmp_path, content)
    for load in (load_pretrained, load_tokenizer):
        with pytest.raises(ValueError, match=r"model\.gguf is missing or damaged \(.+fetch the weights again"):
            load(tmp_path)


@given(data=st.data())
def test_a_gguf_file_that_was_cut_or_changed_anywhere_is_named_or_loads(data):
    content = bytearray(small_gguf())
    said = content.index(b"token_embd.weight")  # before it are the settings and the vocabulary
    if data.draw(st.booleans(), label="cut"):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.one_of(st.integers(0, said + 2000), st.integers(0, len(content) - 1)))
            content[place] ^= data.draw(st.integers(1, 255))
    with TemporaryDirectory() as folder:
        loads_or_names(gguf_folder(Path(folder), bytes(content)), "model.gguf")


def test_a_gguf_file_cut_short_never_loads():
    content = small_gguf()
    for end in (*range(0, 400, 37), *range(400, len(content), len(content) // 20)):
        with TemporaryDirectory() as folder:
            assert not loads_or_names(gguf_folder(Path(folder), content[:end]), "model.gguf"), end


# ------------------------------------------------------------------------------------------- config.json and the index
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats() | st.text(max_size=5)
    | st.sampled_from([0, -1, 1, 10**20, 1e308, "llama3", "default", "gelu", "none", "../x", "config.json", "\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
ROPE = ("rope_type", "type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A good folder of each kind, our own too."""
    made = {family: in_folder(tmp_path_factory.mktemp(family), family) for family in THEIRS}
    made["ours"] = tmp_path_factory.mktemp("ours")
    save_pretrained(made["ours"], small_llama(), subwords())
    return made


@pytest.mark.parametrize("kind", [*THEIRS, "ours"])
@given(data=st.data())
def test_any_value_in_a_configuration_is_refused_by_name_or_loads(folders, kind, data):
    folder = folders[kind]
    path = folder / "config.json"
    whole = path.read_text()
    settings = json.loads(whole)
    more = [] if kind == "ours" else ["rope_scaling", "rope_parameters", "quantization_config", "head_dim", "window"]
    name = data.draw(st.sampled_from([*settings, *more, None]))
    value = data.draw(json_values)
    if name in ("rope_scaling", "rope_parameters") and data.draw(st.booleans()):
        value = data.draw(st.dictionaries(st.sampled_from(ROPE), json_values, max_size=6)) | {"rope_type": "llama3"}
    try:
        path.write_text(json.dumps(value if name is None else settings | {name: value}))
        loads_or_names(folder, "")
    finally:
        path.write_text(whole)


@pytest.mark.parametrize("family", THEIRS)
@given(data=st.data())
def test_of_a_dictionary_too_any_value_is_refused_as_a_value(family, data):
    theirs = theirs_config(family)
    wrong = data.draw(st.dictionaries(st.sampled_from([*theirs, "rope_scaling"]), json_values, min_size=1, max_size=3))
    with pytest.raises(ValueError, match=f"the {family} "):  # at the latest, there are no tensors
        from_hf_state_dict(family, {}, theirs | wrong)


@pytest.mark.parametrize("setting", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("value", ["linear", ["llama3", 8.0], 3])
def test_a_rope_setting_that_is_no_dictionary_is_named(tmp_path, setting, value):
    in_folder(tmp_path, rope_scaling=None, rope_parameters=None)
    rewrite(tmp_path / "config.json", lambda settings: settings | {setting: value})
    with pytest.raises(ValueError, match=rf"{setting}={re.escape(repr(value))} must be a dictionary"):
        load_pretrained(tmp_path)


def test_weights_that_are_packed_in_few_bits_are_refused_by_their_configuration(tmp_path):
    in_folder(tmp_path, quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(ValueError, match=r"quantization_config.*'gptq'.*not supported.*float"):
        load_pretrained(tmp_path)


@pytest.mark.parametrize("index", [{}, [], {"weight_map": None}, {"weight_map": ["a"]}, {"weight_map": {"a": 3}}, 5])
def test_an_index_that_names_no_files_is_damaged(tmp_path, index):
    in_folder(tmp_path)
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    with pytest.raises(ValueError, match=rf"{path.name} is missing or damaged.*weight_map"):
        load_pretrained(tmp_path)


@given(value=json_values, inside=st.booleans())
def test_any_value_in_an_index_is_refused_by_name_or_loads(folders, value, inside):
    folder = folders["llama"]
    index = folder / "model.safetensors.index.json"
    try:
        index.write_text(json.dumps({"weight_map": {"norm.weight": value} if inside else value}))
        loads_or_names(folder, "")
    finally:
        index.unlink()


@pytest.mark.parametrize("words", [{}, {"the": 3}, "the cat", [], ["the", 3], [["the"]], None, 7])
def test_a_vocabulary_that_is_no_list_of_words_is_damaged(tmp_path, words):
    config = TransformerConfig(vocab_size=7, d_model=16, n_heads=4, n_layers=1, max_seq_len=9)
    save_pretrained(tmp_path, DecoderOnly(config), WordTokenizer(["the", "cat", "sat", "."]))
    (tmp_path / "vocabulary.json").write_text(json.dumps(words))
    with pytest.raises(ValueError, match=r"vocabulary\.json is missing or damaged.*a list of words"):
        load_pretrained(tmp_path)


def test_brackets_without_end_are_damage(tmp_path):
    in_folder(tmp_path)
    (tmp_path / "config.json").write_text("[" * 200_000)
    with pytest.raises(ValueError, match=r"config\.json is missing or damaged"):
        load_pretrained(tmp_path)


# -------------------------------------------------------------------------------------------------------------- weights
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool, torch.complex64])
def test_weights_of_another_kind_of_number_are_refused_by_name(tmp_path, dtype):
    in_folder(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.1.mlp.up_proj.weight"] = tensors["model.layers.1.mlp.up_proj.weight"].to(dtype)
    save_file(tensors, path)
    with pytest.raises(ValueError, match=rf"layers\.1\.mlp\.up_proj\.weight holds {dtype}.*bfloat16.*float32"):
        load_pretrained(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_of_every_width_load(tmp_path, dtype):
    in_folder(tmp_path)
    path = tmp_path / "model.safetensors"
    save_file({name: tensor.to(dtype) for name, tensor in load_file(path).items()}, path)
    assert load_pretrained(tmp_path)[0].output.weight.dtype == dtype


def test_more_blocks_than_tensors_are_refused_before_they_are_built():
    theirs = THEIRS["gpt2"]()
    with pytest.raises(ValueError, match=r"n_layers=1000000000000.*only \d+ tensors"):
        from_hf_state_dict("gpt2", theirs.state_dict(), theirs.config.to_dict() | {"n_layer": 10**12})


def test_pickled_weights_are_called_what_they_are_and_the_two_lines_convert_them(tmp_path):
    pickled = in_folder(tmp_path)
    whole = load_pretrained(pickled)[0]
    tensors = load_file(pickled / "model.safetensors")
    (pickled / "model.safetensors").unlink()
    first, second = dict(list(tensors.items())[:5]), dict(list(tensors.items())[5:])
    for files in (["pytorch_model.bin"], ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]):
        for file, part in zip(files, [first, second] if len(files) == 2 else [tensors]):
            torch.save(part, pickled / file)
        with pytest.raises(ValueError, match=r"pytorch_model.*\.bin is a pickle, which is not read") as refused:
            load_pretrained(pickled)
        assert "Reinstall" not in str(refused.value)
        _, *lines = str(refused.value).splitlines()
        assert len(lines) == 2
        exec("import torch, safetensors.torch\nfrom pathlib import Path\n" + "\n".join(map(str.strip, lines)), {})
        ids = torch.randint(300, (2, 9))
        assert torch.equal(load_pretrained(pickled)[0](ids), whole(ids))
        for file in (*files, "model.safetensors"):
            (pickled / file).unlink()


@pytest.mark.parametrize(("family", "apart"), [("gemma2", "tanh caps its scores"), ("gemma3", "gemma3_text")])
def test_the_other_gemmas_are_refused_with_what_sets_them_apart(family, apart):
    with pytest.raises(ValueError, match=f"is not known: .* sets {family} apart: .*{apart}"):
        from_hf_state_dict(family, {}, {})
