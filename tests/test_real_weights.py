"""Real weights, once they are fetched: the same numbers, ids and text as transformers from the same files."""

from copy import deepcopy
from functools import cache
from pathlib import Path

import nbformat
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, GPT2Tokenizer

from course_lib import pretrained
from course_lib.chapters.sampling import smollm2 as chapter_13
from course_lib.course.files import ASSETS, read_json
from course_lib.embeddings import analogy
from course_lib.hub import weights
from course_lib.masks import padding_mask
from course_lib.pretrained import load_pretrained, load_text, load_tokenizer
from course_lib.sampling import generate

TRICKY = [
    "",
    " ",
    "Hello, world!",
    "  two  spaces\tand\ttabs \n\n lines\r\n",
    "It's 12:45 on 2024-02-29; £3.50, isn't it?",
    "naïve café, Ελλάδα, 東京, नमस्ते, 👩‍👩‍👧 and \u0301combining",
    "def f(x):\n    return x**2  # CamelCase snake_case",
    "<|endoftext|> [CLS] <|im_start|>user\nhi<|im_end|>",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
]


def fetched(*names):
    """Skip the test unless these are here: they are too large to fetch without being asked."""
    if missing := [name for name in names if weights.state(name) != "here"]:
        pytest.skip(f"python -m course_lib weights {' '.join(missing)}")
    return weights.weights_folder(names[0])


# --------------------------------------------------------------------------------------------------------------- MiniLM
@pytest.fixture(scope="module")
def minilm():
    fetched("minilm")
    return load_pretrained("minilm")


def encoded(tokenizer, sentences):
    """Ids of a ragged batch (B, T), filled up with 0, and the lengths (B,)."""
    rows = [torch.tensor(tokenizer.encode(sentence, special=True)) for sentence in sentences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


def sentence_vectors(model, tokenizer, sentences):
    """The mean of the hidden states of each sentence's own tokens, at length 1: (B, d_model)."""
    ids, lengths = encoded(tokenizer, sentences)
    mask = padding_mask(lengths, ids.shape[1])
    with torch.no_grad():
        hidden = model(ids, mask)  # (B, T, d_model)
    real = mask.reshape(*ids.shape, 1)  # (B, T, 1)
    return F.normalize((hidden * real).sum(dim=1) / lengths[:, None], dim=-1)


def test_minilm_gives_what_transformers_gives_to_1e5(minilm):
    model, tokenizer = minilm
    theirs = AutoModel.from_pretrained(fetched("minilm"), add_pooling_layer=False).eval()
    ids, lengths = encoded(tokenizer, ["A cat sat on the mat.", "Attention is all you need, they said. " * 12, "No."])
    real = torch.arange(ids.shape[1]) < lengths[:, None]
    with torch.no_grad():
        hidden = model(ids, padding_mask(lengths, ids.shape[1]))
        expected = theirs(ids, attention_mask=real.long()).last_hidden_state
    assert ids.shape[1] > 100
    torch.testing.assert_close(hidden[real], expected[real], atol=1e-5, rtol=0)


def test_minilms_tokenizer_gives_the_ids_of_transformers(minilm):
    theirs = AutoTokenizer.from_pretrained(fetched("minilm"))
    for text in TRICKY:
        assert minilm[1].encode(text, special=True) == theirs.encode(text), text


def test_minilm_brings_sentences_of_one_meaning_together(minilm):
    vectors = sentence_vectors(*minilm, ["How do I bake bread?", "A recipe for a loaf", "The stock market fell today"])
    similarity = vectors @ vectors.T
    assert similarity[0, 1] > 0.5
    assert similarity[0, 2] < 0.2


def test_king_minus_man_plus_woman_is_queen_in_the_input_table(minilm):
    model, tokenizer = minilm
    king, man, woman, queen = (tokenizer.id(word) for word in ("king", "man", "woman", "queen"))
    indices, _ = analogy(model.token_embedding.weight.detach(), king, man, woman, 3)
    assert indices[0] == queen


def test_minilm_runs_in_bfloat16(minilm):
    model, tokenizer = minilm
    vectors = sentence_vectors(model, tokenizer, ["A cat sat on the mat."])
    coarse = sentence_vectors(deepcopy(model).to(torch.bfloat16), tokenizer, ["A cat sat on the mat."])
    assert (vectors * coarse).sum() > 0.99


# -------------------------------------------------------------------------------------------------------------- SmolLM2
@pytest.fixture(scope="module")
def smollm2():
    fetched("smollm2-135m")
    return load_pretrained("smollm2-135m")


@pytest.fixture(scope="module")
def their_smollm2():
    file = {"gguf_file": "model.gguf"}
    folder = fetched("smollm2-135m")
    model = AutoModelForCausalLM.from_pretrained(folder, **file, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(folder, **file)


@pytest.mark.proof
def test_smollm2_gives_what_transformers_gives_to_1e3(smollm2, their_smollm2):
    ids = torch.tensor([smollm2[1].encode("The Transformer is a network that reads all words at once. " * 6)])
    with torch.no_grad():
        logits, expected = smollm2[0](ids), their_smollm2[0](ids).logits
    assert expected.std() > 1
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=0)


@pytest.mark.proof
def test_smollm2_writes_the_same_64_tokens_as_transformers(smollm2, their_smollm2):
    model, tokenizer = smollm2
    ids = torch.tensor([tokenizer.encode("Once upon a time, a fox")])
    text = generate(model, ids, 64, temperature=0)
    settings = {"max_new_tokens": 64, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = their_smollm2[0].generate(ids, attention_mask=torch.ones_like(ids), **settings)
    assert text.tolist() == expected.tolist()
    assert text[0].unique().numel() > 30


@pytest.mark.proof
def test_smollm2_knows_the_capital_of_france(smollm2):
    model, tokenizer = smollm2
    ids = torch.tensor([tokenizer.encode("The capital of France is")])
    assert tokenizer.decode(generate(model, ids, 8, temperature=0)[0]).startswith("The capital of France is Paris")


@pytest.mark.proof
def test_smollm2s_tokenizer_gives_the_ids_of_transformers(smollm2, their_smollm2):
    tokenizer, theirs = smollm2[1], their_smollm2[1]
    for text in TRICKY:
        ids = tokenizer.encode(text)
        assert ids == theirs.encode(text, add_special_tokens=False), text
        assert tokenizer.decode(ids, special=True) == text


@pytest.mark.proof
def test_smollm2s_tokenizer_takes_digits_one_by_one_before_it_looks_at_spaces(smollm2):
    """As the file says ("smollm"), and as llama.cpp does; transformers, which does not read it, splits the spaces."""
    tokenizer = smollm2[1]
    spaces, number = tokenizer.encode("  "), tokenizer.encode("1") + tokenizer.encode("2")
    assert len(spaces) == 1
    assert tokenizer.encode("x  12") == tokenizer.encode("x") + spaces + number


@pytest.mark.proof
def test_smollm2_runs_in_bfloat16(smollm2):
    model, tokenizer = smollm2
    ids = torch.tensor([tokenizer.encode("The capital of France is")])
    with torch.no_grad():
        logits = deepcopy(model).to(torch.bfloat16)(ids)
    assert logits.dtype == torch.bfloat16
    assert tokenizer.decode([logits[0, -1].argmax()]) == " Paris"


# ------------------------------------------------------------------------------------------------ GPT-2's words; a text
def test_gpt2s_tokenizer_gives_the_ids_of_transformers():
    folder = fetched("gpt2-tokenizer")
    theirs = GPT2Tokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    ours = load_tokenizer("gpt2-tokenizer")
    assert len(ours) == 50_257
    for text in TRICKY:
        ids = ours.encode(text)
        assert ids == theirs.encode(text), text
        assert ours.decode(ids, special=True) == text


def test_tinyshakespeare_is_a_million_letters_of_65_kinds():
    fetched("tinyshakespeare")
    text = load_text("tinyshakespeare")
    assert len(text) == 1_115_394
    assert len(set(text)) == 65
    assert text.startswith("First Citizen:")


@pytest.mark.proof
def test_chapter_15_shows_what_the_real_models_gave(monkeypatch):
    """Its cells run once more with the real weights; what they show without them is the record."""
    fetched("minilm", "smollm2-135m")
    load, opened = pretrained.load_pretrained, cache(pretrained.load_pretrained)  # the larger one is opened once
    monkeypatch.setattr(pretrained, "load_pretrained", lambda name: (opened if "smollm2" in name else load)(name))
    notebook = nbformat.read(Path(__file__).parent.parent / "notebooks" / "15_pretrained.ipynb", as_version=4)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert "REAL = False" in sources[0]
    shown: dict = {}
    for source in sources:
        own = source.replace("REAL = False", "REAL = True").replace('read_json(ASSETS / "real_models.json")', "{}")
        exec(own, shown)
    record = read_json(ASSETS / "real_models.json")
    assert shown["real"].keys() == record.keys() - {"chat", "next_token"}, "chapters 16 and 13 keep these two"
    for own, kept in zip(shown["real"]["parity"], record["parity"]):
        assert list(own[:3]) == kept[:3]
        assert max(float(own[3]), float(kept[3])) < 1e-3
    for name in ("written", "next", "sinks"):
        assert shown["real"][name] == record[name]
    for name, (tokens, its_map) in record["maps"].items():
        assert shown["real"]["maps"][name][0] == tokens
        torch.testing.assert_close(
            torch.tensor(shown["real"]["maps"][name][1]), torch.tensor(its_map), atol=1e-3, rtol=0
        )
    for name in ("similarity", "it"):
        torch.testing.assert_close(torch.tensor(shown["real"][name]), torch.tensor(record[name]), atol=1e-3, rtol=0)


@pytest.mark.proof
def test_chapter_16_shows_what_smollm2_wrote():
    """The cell that asks it runs once more with the real weights; what it shows without them is the record."""
    fetched("smollm2-135m")
    notebook = nbformat.read(Path(__file__).parent.parent / "notebooks" / "16_assistant.ipynb", as_version=4)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    (asks,) = [source for source in sources if 'real["chat"] =' in source]
    assert "REAL = False" in sources[0]
    shown: dict = {}
    for source in (sources[0].replace("REAL = False", "REAL = True"), asks):
        exec(source, shown)
    assert shown["real"]["chat"] == read_json(ASSETS / "real_models.json")["chat"]


@pytest.mark.proof
def test_chapter_13_shows_the_distribution_that_smollm2_has():
    """What its sliders move is the record. A processor that rounds differently may move a token to the next step."""
    fetched("smollm2-135m")
    measured, record = chapter_13.measure_next_token(), read_json(ASSETS / "real_models.json")["next_token"]
    for one, other in ((measured, record), (record, measured)):
        likely = [each for each in zip(one["tokens"], one["log_p"]) if each[1] > -6.5]
        known = list(zip(other["tokens"], other["log_p"]))
        assert len(likely) > 50
        for token, log_p in likely:
            assert min(abs(log_p - its) for name, its in known if name == token) < 0.02, token
    tails = [torch.tensor(each["tail"]).float() for each in (measured, record)]
    assert tails[0].sum() == tails[1].sum() == 49_152 - chapter_13.NAMED
    cumulative = [F.pad(tail, (0, 150 - len(tail))).cumsum(dim=0) for tail in tails]
    torch.testing.assert_close(*cumulative, atol=100, rtol=0)
