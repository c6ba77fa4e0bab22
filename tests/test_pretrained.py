"""Weights to a folder and back, and what happens when a file is missing or damaged."""

import json
from dataclasses import replace

import pytest
import torch

from course_lib.config import preset
from course_lib.models import DecoderOnly
from course_lib.pretrained import (
    ASSETS,
    MODEL_FILE,
    embeddings_by_step,
    load_pretrained,
    save_pretrained,
    shipped_figures,
)
from course_lib.text import WordTokenizer

WORDS = ["the", "cat", "sat", "."]


def saved(folder, **changes):
    config = replace(preset("tinytown"), vocab_size=7, d_model=16, d_ff=32, n_layers=2, **changes)
    model = DecoderOnly(config)
    save_pretrained(folder, model, WordTokenizer(WORDS))
    return model


@pytest.mark.parametrize("tie_weights", [True, False])
def test_a_saved_model_comes_back_as_it_was(tmp_path, tie_weights):
    model = saved(tmp_path, tie_weights=tie_weights).eval()
    loaded, tokenizer = load_pretrained(tmp_path)
    ids = torch.tensor([tokenizer.encode("the cat sat.")])
    assert torch.equal(loaded(ids), model(ids))
    assert loaded.config == model.config
    assert not loaded.training
    assert (loaded.output.weight is loaded.token_embedding.weight) == tie_weights
    assert tokenizer.tokens == WordTokenizer(WORDS).tokens
    assert not list(tmp_path.glob("*.part"))


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
    with pytest.raises(ValueError, match=r"'gpt5'.*tinytown"):
        load_pretrained("gpt5")


@pytest.mark.parametrize("file", ["config.json", "vocabulary.json", MODEL_FILE])
def test_a_damaged_file_is_named_with_the_remedy(tmp_path, file, as_a_learner):
    saved(tmp_path)
    path = tmp_path / file
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ValueError, match=rf"{file} is missing or damaged.*again"):
        load_pretrained(tmp_path)


def test_weights_that_do_not_fit_their_config_are_refused(tmp_path, as_a_learner):
    saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"d_ff": 64}))
    with pytest.raises(ValueError, match="does not fit"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"n_layers": 3}))
    with pytest.raises(ValueError, match=r"lacks .*blocks\.2"):
        load_pretrained(tmp_path)
