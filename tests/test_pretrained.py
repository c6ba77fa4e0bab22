"""Weights from a folder and back: our own folders, Hugging Face's, and what happens when something does not fit."""

import json
from dataclasses import replace
from functools import partial

import huggingface_hub
import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Model,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from course_lib.config import TransformerConfig, preset
from course_lib.encoder_decoder import EncoderDecoder, EncoderOnly
from course_lib.gpt import DecoderOnly
from course_lib.pretrained import (
    ASSETS,
    MODEL_FILE,
    embeddings_by_step,
    from_hf_state_dict,
    load_pretrained,
    load_text,
    load_tokenizer,
    save_pretrained,
    shipped_figures,
)
from course_lib.tinytown import BytePairTokenizer, WordTokenizer

WORDS = ["the", "cat", "sat", "."]
SMALL = {"vocab_size": 300, "d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 32, "max_seq_len": 20}
SHAPES = {
    "gpt2-like": {},
    "llama-like": {"n_kv_heads": 2, "activation": "swiglu", "norm": "rms", "positions": "rope", "tie_weights": False},
    "bert-like": {"family": "encoder", "norm_position": "post", "n_segments": 2},
    "the original": {"family": "encoder-decoder", "norm_position": "post", "positions": "sinusoidal"},
    "the original, untied": {"family": "encoder-decoder", "positions": "sinusoidal", "tie_weights": False},
}  # fmt: skip
FAMILIES = {"decoder": DecoderOnly, "encoder": EncoderOnly, "encoder-decoder": EncoderDecoder}


@pytest.fixture(scope="module")
def subwords():
    return BytePairTokenizer.train("the cat sat on the mat, and the mat sat on the cat. " * 20, 300)


def drawn(model):
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def answer(model, ids):
    with torch.no_grad():
        return model(ids, ids.flip(1)) if isinstance(model, EncoderDecoder) else model(ids)


def saved(folder, **changes):
    config = replace(preset("tinytown"), vocab_size=7, d_model=16, d_ff=32, n_layers=2, **changes)
    model = DecoderOnly(config)
    save_pretrained(folder, model, WordTokenizer(WORDS))
    return model


# ---------------------------------------------------------------------------------------------------------- our folders
@pytest.mark.parametrize("shape", SHAPES)
def test_a_saved_model_of_any_family_comes_back_as_it_was(tmp_path, shape, subwords):
    config = TransformerConfig(**SMALL | SHAPES[shape])
    model = drawn(FAMILIES[config.family](config))
    save_pretrained(tmp_path, model, subwords)
    loaded, tokenizer = load_pretrained(tmp_path)
    ids = torch.tensor([subwords.encode("the cat sat")])
    assert type(loaded) is type(model)
    assert loaded.config == config
    assert torch.equal(answer(loaded, ids), answer(model, ids))
    assert not loaded.training
    assert sum(p.numel() for p in loaded.parameters()) == sum(p.numel() for p in model.parameters())  # tied as before
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert tokenizer.encode("cats on the mat") == subwords.encode("cats on the mat")
    assert not list(tmp_path.glob("*.part"))


def test_a_word_tokenizer_comes_back_and_replaces_one_of_pieces(tmp_path, subwords):
    model = saved(tmp_path).eval()
    loaded, tokenizer = load_pretrained(tmp_path)
    ids = torch.tensor([tokenizer.encode("the cat sat.")])
    assert torch.equal(loaded(ids), model(ids))
    assert tokenizer.tokens == load_tokenizer(tmp_path).tokens == WordTokenizer(WORDS).tokens
    save_pretrained(tmp_path, model, subwords)
    assert load_tokenizer(tmp_path).encode("the mat") == subwords.encode("the mat")
    saved(tmp_path)
    assert load_tokenizer(tmp_path).tokens == WordTokenizer(WORDS).tokens


def test_a_tied_table_is_still_one_tensor_after_loading_and_learns_as_one(tmp_path):
    saved(tmp_path)
    loaded, _ = load_pretrained(tmp_path)
    assert loaded.output.weight is loaded.token_embedding.weight
    loaded(torch.tensor([[1, 2]]), torch.tensor([[2, 3]]))[1].backward()
    assert loaded.output.weight.grad.abs().sum() > 0


def test_the_shipped_model_opens_offline_and_is_small():
    model, tokenizer = load_pretrained("tinytown")
    assert model.config == preset("tinytown")
    assert len(tokenizer) == model.config.vocab_size
    size = sum(file.stat().st_size for file in (ASSETS / "tinytown").iterdir())
    assert size < 8 * 2**20, f"{size:,} bytes ship with every copy of the course"


def test_early_steps_end_at_the_shipped_table():
    tables = embeddings_by_step()
    model, _ = load_pretrained("tinytown")
    steps = list(tables)
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] == shipped_figures()["recipe"]["steps"]
    torch.testing.assert_close(
        tables[steps[-1]], model.token_embedding.weight.detach(), atol=2e-3, rtol=2e-3
    )  # kept in half precision
    assert tables[0].std().item() == pytest.approx(0.02, rel=0.05)


def test_an_unknown_model_is_named_with_what_there_is(as_a_learner):
    with pytest.raises(ValueError, match=r"'gpt5'.*tinytown.*minilm.*gpt2-xl.*or a folder"):
        load_pretrained("gpt5")


@pytest.mark.parametrize("name", ["minilm", "smollm2-135m"])
def test_a_model_that_is_not_fetched_yet_is_named_with_the_command(name, tmp_path, monkeypatch, as_a_learner):
    monkeypatch.setenv("COURSE_WEIGHTS", str(tmp_path))
    with pytest.raises(ValueError, match=f"not here.*python -m course_lib weights {name}"):
        load_pretrained(name)
    with pytest.raises(ValueError, match="python -m course_lib weights gpt2-tokenizer"):
        load_tokenizer("gpt2-tokenizer")
    with pytest.raises(ValueError, match="python -m course_lib weights tinyshakespeare"):
        load_text("tinyshakespeare")


@pytest.mark.parametrize("file", ["config.json", "vocabulary.json", MODEL_FILE])
def test_a_damaged_file_is_named_with_the_remedy(tmp_path, file, as_a_learner):
    saved(tmp_path)
    path = tmp_path / file
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ValueError, match=rf"{file} is missing or damaged.*again"):
        load_pretrained(tmp_path)


def test_a_damaged_or_missing_tokenizer_of_pieces_is_named(tmp_path, subwords, as_a_learner):
    save_pretrained(tmp_path, drawn(DecoderOnly(TransformerConfig(**SMALL))), subwords)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json is missing or damaged"):
        load_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"holds no tokenizer: vocabulary\.json, tokenizer\.json, or"):
        load_pretrained(tmp_path)


def test_weights_that_do_not_fit_their_config_are_refused(tmp_path, as_a_learner):
    saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"d_ff": 64}))
    with pytest.raises(ValueError, match=r"does not fit.*up_proj\.weight \(32, 16\) instead of \(64, 16\)"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"n_layers": 3}))
    with pytest.raises(ValueError, match=r"lacks .*blocks\.2.* and 4 more"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"n_layers": 1}))
    with pytest.raises(ValueError, match=r"has unknown .*blocks\.1"):
        load_pretrained(tmp_path)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_the_name_of_the_tensor(tmp_path, wrong, as_a_learner):
    model = saved(tmp_path)
    with torch.no_grad():
        model.blocks[1].feed_forward.up_proj.weight[3, 2] = wrong
    save_pretrained(tmp_path, model, WordTokenizer(WORDS))
    with pytest.raises(ValueError, match=r"model\.safetensors: blocks\.1\.feed_forward\.up_proj\.weight holds NaN or"):
        load_pretrained(tmp_path)
    theirs = drawn(GPT2LMHeadModel(GPT2))
    with torch.no_grad():
        theirs.transformer.h[1].ln_2.bias[5] = wrong
    with pytest.raises(ValueError, match=r"the gpt2 state_dict: h\.1\.ln_2\.bias holds NaN or infinite numbers"):
        from_hf_state_dict("gpt2", theirs.state_dict(), GPT2)


# ----------------------------------------------------------------------------------------------- Hugging Face's folders
HF_SIZES = {"vocab_size": 300, "max_position_embeddings": 20, "hidden_size": 16, "num_hidden_layers": 2}
HF_SIZES |= {"num_attention_heads": 4, "intermediate_size": 24}
GPT2 = GPT2Config(vocab_size=300, n_positions=20, n_embd=16, n_layer=2, n_head=4)
LLAMA = LlamaConfig(**HF_SIZES, num_key_value_heads=2)
BERT = BertConfig(**HF_SIZES)
REFERENCES = {"gpt2": (GPT2LMHeadModel, GPT2), "llama": (LlamaForCausalLM, LLAMA), "bert": (BertForMaskedLM, BERT)}


@pytest.fixture(params=REFERENCES)
def theirs(request):
    build, config = REFERENCES[request.param]
    return drawn(build(config))


def their_answer(theirs, ids):
    with torch.no_grad():
        return theirs.bert(ids).last_hidden_state if hasattr(theirs, "bert") else theirs(ids).logits


@pytest.mark.parametrize("shards", [{}, {"max_shard_size": "10KB"}], ids=["one file", "several files"])
def test_a_folder_that_transformers_saved_is_the_same_model(tmp_path, theirs, subwords, shards):
    theirs.save_pretrained(tmp_path, **shards)
    PreTrainedTokenizerFast(tokenizer_object=subwords.tokenizer).save_pretrained(tmp_path)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == bool(shards)
    ours, tokenizer = load_pretrained(tmp_path)
    ids = torch.tensor([tokenizer.encode("the mat sat on the cat")])
    assert ids.tolist() == [subwords.encode("the mat sat on the cat")]
    torch.testing.assert_close(answer(ours, ids), their_answer(theirs, ids), atol=1e-5, rtol=0)


def test_vocabulary_and_merges_in_two_files_are_a_tokenizer_too(tmp_path, subwords):
    drawn(GPT2LMHeadModel(GPT2)).save_pretrained(tmp_path)
    subwords.tokenizer.model.save(str(tmp_path))
    assert load_pretrained(tmp_path)[1].encode("the mat sat") == subwords.encode("the mat sat")


def test_a_model_of_another_kind_is_refused(tmp_path, as_a_learner):
    drawn(GPT2LMHeadModel(GPT2)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    with pytest.raises(ValueError, match=r"'mamba' is not known: choose one of 'gpt2', 'llama', 'mistral'"):
        load_pretrained(tmp_path)


def test_gpt2_comes_from_the_hub_because_its_name_was_given(tmp_path, monkeypatch, subwords):
    theirs = drawn(GPT2LMHeadModel(GPT2))
    theirs.save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=subwords.tokenizer).save_pretrained(tmp_path)
    asked = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **_: asked.append(name) or str(tmp_path))
    ours, _ = load_pretrained("gpt2-medium")
    ids = torch.randint(300, (2, 9))
    torch.testing.assert_close(ours(ids), their_answer(theirs, ids), atol=1e-5, rtol=0)
    assert asked == ["openai-community/gpt2-medium"]


def test_gpt2_without_a_network_is_a_clear_error(tmp_path, monkeypatch, as_a_learner):
    empty = partial(huggingface_hub.snapshot_download, cache_dir=tmp_path)  # HF_HUB_OFFLINE is set in conftest.py
    monkeypatch.setattr(huggingface_hub, "snapshot_download", empty)
    with pytest.raises(
        ValueError, match=r"'gpt2' is not in the cache.*connect to a network.*HF_HUB_OFFLINE.*or give the folder"
    ):
        load_pretrained("gpt2")


# -------------------------------------------------------------------------------------------- from_hf_state_dict: names
def test_the_bare_model_and_a_dictionary_serve_as_well():
    theirs = drawn(GPT2Model(GPT2))
    ours = from_hf_state_dict("gpt2", theirs.state_dict(), GPT2.to_dict())
    ids = torch.randint(300, (2, 9))
    with torch.no_grad():
        expected = theirs(ids).last_hidden_state @ theirs.wte.weight.T
    torch.testing.assert_close(answer(ours, ids), expected, atol=1e-5, rtol=0)


BESIDES = {
    "gpt2": ["transformer.h.0.attn.bias", "h.1.attn.masked_bias"],
    "llama": ["model.layers.1.self_attn.rotary_emb.inv_freq"],
    "bert": ["bert.embeddings.position_ids", "bert.pooler.dense.weight", "cls.seq_relationship.weight"],
}


def test_what_files_hold_besides_the_weights_is_known_and_left_out(theirs):
    family = theirs.config.model_type
    besides = {name: torch.ones(3) for name in BESIDES[family]}
    ours = from_hf_state_dict(family, theirs.state_dict() | besides, theirs.config)
    ids = torch.randint(300, (2, 9))
    torch.testing.assert_close(answer(ours, ids), their_answer(theirs, ids), atol=1e-5, rtol=0)


def test_every_single_tensor_is_needed_and_no_other_is_taken(theirs):
    family = theirs.config.model_type
    state = {name: tensor for name, tensor in theirs.state_dict().items() if not name.startswith("cls.")}
    if theirs.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    for name in state:
        with pytest.raises(ValueError, match="does not fit its config: it lacks"):
            from_hf_state_dict(family, {n: tensor for n, tensor in state.items() if n != name}, theirs.config)
    with pytest.raises(ValueError, match=r"does not fit its config: it has unknown adapter\.weight"):
        from_hf_state_dict(family, state | {"adapter.weight": torch.ones(3)}, theirs.config)
    table = next(name for name, tensor in state.items() if tensor.shape == (300, 16))
    with pytest.raises(ValueError, match=r"has wrong shapes: .* \(300, 15\) instead of \(300, 16\)"):
        from_hf_state_dict(family, state | {table: torch.ones(300, 15)}, theirs.config)


def test_a_head_that_should_be_tied_and_is_not_is_refused():
    theirs = drawn(GPT2LMHeadModel(GPT2))
    state = theirs.state_dict() | {"lm_head.weight": torch.ones(300, 16)}
    with pytest.raises(ValueError, match=r"lm_head\.weight is tied to wte\.weight, but holds different numbers"):
        from_hf_state_dict("gpt2", state, GPT2)


# ----------------------------------------------------------------------------------- from_hf_state_dict: configurations
REFUSED = [
    ("gpt2", {"activation_function": "silu"}, r"activation='silu' is not known: choose one of 'gelu_new'"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
    ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights=False"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention=True"),
    ("gpt2", {"attn_pdrop": 0.0}, r"attn_pdrop=0\.0: our gpt2 models always have dropout=0\.1"),
    ("gpt2", {"model_type": "gptj"}, "model_type='gptj'"),
    ("gpt2", {"n_head": 3}, "n_heads=3"),
    ("gpt2", {"n_embd": None}, "does not describe a complete TransformerConfig.*d_model"),
    ("llama", {"hidden_act": "gelu"}, "activation='gelu' is not known: choose one of 'silu'"),
    ("llama", {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5}}, "rope_type='llama3' needs factor, low_"),
    ("llama", {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type='linear'"),
    ("llama", {"mlp_bias": True}, "mlp_bias=True: our llama models always have bias=False"),
    ("llama", {"sliding_window": 4096}, "sliding_window=4096"),
    ("llama", {"head_dim": 8}, r"has wrong shapes: .*k_proj\.weight \(8, 16\) instead of \(16, 16\)"),
    ("llama", {"attention_dropout": 0.1}, "attention_dropout=0.1"),
    ("bert", {"hidden_act": "silu"}, "activation='silu'"),
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
    ("bert", {"is_decoder": True}, "is_decoder=True"),
    ("bert", {"attention_probs_dropout_prob": 0.2}, "attention_probs_dropout_prob=0.2: our bert models always have"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "changes", "complaint"), REFUSED)
def test_a_configuration_that_our_models_do_not_do_is_refused_by_name(family, changes, complaint):
    build, config = REFERENCES[family]
    with pytest.raises(ValueError, match=complaint):
        from_hf_state_dict(family, build(config).state_dict(), config.to_dict() | changes)


def test_an_unknown_family_is_refused():
    with pytest.raises(ValueError, match="family='opt' is not known: choose one of 'gpt2', 'llama', 'mistral'"):
        from_hf_state_dict("opt", {}, {})


def test_an_old_and_terse_configuration_means_what_the_reference_means_by_it():
    """The first LLaMA's config.json knew neither key-value heads nor rope_theta; transformers fills them in alike."""
    terse = {"vocab_size": 300, "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2}
    terse |= {"intermediate_size": 24, "max_position_embeddings": 20, "rms_norm_eps": 1e-3}
    theirs = drawn(LlamaForCausalLM(LlamaConfig(**terse)))
    ids = torch.randint(300, (2, 9))
    ours = from_hf_state_dict("llama", theirs.state_dict(), terse)
    torch.testing.assert_close(answer(ours, ids), their_answer(theirs, ids), atol=1e-5, rtol=0)
    with_theta = terse | {"rope_theta": 123.0}  # where it stood before it moved into rope_parameters
    assert from_hf_state_dict("llama", theirs.state_dict(), with_theta).config.rope_theta == 123.0
