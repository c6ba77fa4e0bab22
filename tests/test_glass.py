"""The engine of the glass model, in node: it gives the library's numbers, and computes nothing twice."""

import json
import re
import shutil
import subprocess
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load
from tokenizers import Tokenizer, models, pre_tokenizers

from course_lib.__main__ import main
from course_lib.config import preset
from course_lib.efficiency import quantize_int8
from course_lib.gpt import DecoderOnly
from course_lib.hub import weights
from course_lib.live.glass import IN_ENGLISH, MODULES, OF_A_MODEL, glass, html, most_missed, parts, tour
from course_lib.live.glass.pack import pack
from course_lib.pretrained import load_pretrained
from course_lib.sampling import next_token_distribution
from course_lib.tinytown import BytePairTokenizer, SubwordTokenizer, Tinytown, WordTokenizer, split_words
from course_lib.trace import evaluating, trace

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="the engine of the page is tested with node")
ROOT = Path(__file__).parent.parent


class Page:
    """Node with the engine and a model in it."""

    def __init__(self, folder: Path, model: DecoderOnly, tokenizer: WordTokenizer | SubwordTokenizer, **how):
        path = folder / "model.safetensors"
        path.write_bytes(pack(model, tokenizer, **how))
        self.process = subprocess.Popen(
            ["node", "tests/glass.mjs", str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, job: str, **given):
        """What a job of glass.mjs gives."""
        print(json.dumps({"job": job} | given), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()

    def logits(self, ids, **given) -> torch.Tensor:
        return torch.tensor(self("run", ids=ids, **given)["logits"])


def halved(model: DecoderOnly) -> DecoderOnly:
    """The model that the page has: each weight as half precision keeps it."""
    model.load_state_dict({name: weight.half().float() for name, weight in model.state_dict().items()})
    return model.eval()


@pytest.fixture(scope="module")
def tinytown():
    model, tokenizer = load_pretrained("tinytown")
    return halved(model), tokenizer


@pytest.fixture(scope="module")
def page(tinytown, tmp_path_factory):
    page = Page(tmp_path_factory.mktemp("glass"), *tinytown)
    yield page
    page.close()


@pytest.fixture(scope="module")
def stories(tinytown):
    return [tinytown[1].encode(story, end=False)[:64] for story in Tinytown(3).sample(200)]


@pytest.mark.parametrize("part", ["some", pytest.param("all", marks=pytest.mark.proof)])
def test_logits_are_the_librarys(tinytown, page, stories, part):
    with torch.no_grad():
        for ids in stories[:8] if part == "some" else stories:
            expected = tinytown[0](torch.tensor([ids]))[0]
            first = 0 if part == "some" else len(ids) - 3
            torch.testing.assert_close(page.logits(ids, first=first), expected[first:], rtol=0, atol=1e-3)


def test_weights_and_lens_are_those_of_a_trace(tinytown, page, stories):
    model, ids = tinytown[0], stories[0]
    with evaluating(model), trace(model) as seen:
        model(torch.tensor([ids]))
        lens = model.output(model.final_norm(seen["blocks.1"]))[0, -1]
    page.logits(ids)
    found = torch.tensor(page("weights", layer=2, head=3))
    torch.testing.assert_close(found, seen["blocks.2.attention.weights"][0, 3], rtol=0, atol=1e-4)
    torch.testing.assert_close(torch.tensor(page("lens", layer=1, position=len(ids) - 1)), lens, rtol=0, atol=1e-3)


def without(model, part):
    """A hook that removes a part of a model, as the page names it."""
    where, *rest = part.split(".")
    block = model.blocks[int(where)]
    if not rest:
        return block.register_forward_hook(lambda _, inputs, output: inputs[0])
    if rest[0] == "head":
        columns = slice(int(rest[1]) * 32, int(rest[1]) * 32 + 32)

        def blank(_, inputs):
            heads = inputs[0].clone()
            heads[..., columns] = 0
            return (heads,)

        return block.attention.out_proj.register_forward_pre_hook(blank)
    if rest[0] == "unit":

        def off(_, inputs):
            hidden = inputs[0].clone()
            hidden[..., int(rest[1])] = 0
            return (hidden,)

        return block.feed_forward.down_proj.register_forward_pre_hook(off)
    return getattr(block, rest[0]).register_forward_hook(lambda _, inputs, output: torch.zeros_like(output))


@pytest.mark.parametrize(
    "removed", [["1.head.2"], ["0.unit.37"], ["2.attention"], ["3.feed_forward"], ["1"], ["0.head.0", "3"]]
)
def test_what_is_removed_says_nothing_and_comes_back(tinytown, page, stories, removed):
    model, ids = tinytown[0], stories[1]
    plain = page.logits(ids)
    hooks = [without(model, part) for part in removed]
    with torch.no_grad():
        expected = model(torch.tensor([ids]))[0]
    for hook in hooks:
        hook.remove()
    found = page.logits(ids, removed=removed)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)
    assert not torch.allclose(found, plain, atol=1e-2)
    assert torch.equal(page.logits(ids), plain)


def test_only_what_changed_is_computed_anew(page, stories):
    ids, layers = stories[2], 4
    page("run", ids=ids, fresh=True)
    assert page("run", ids=ids)["rows"] == 0
    assert page("run", ids=[*ids, ids[3]])["rows"] == layers
    swapped = [*ids[:5], ids[6], *ids[6:]]
    assert page("run", ids=swapped)["rows"] == layers * (len(ids) - 5)
    assert page("run", ids=swapped, removed=["2.head.1"])["rows"] == 2 * len(ids)
    mixed = page.logits(swapped, removed=["2.head.1"])
    assert torch.equal(mixed, page.logits(swapped, removed=["2.head.1"], fresh=True))


@pytest.mark.parametrize(
    "how",
    [{}, {"temperature": 0.4}, {"temperature": 0}, {"temperature": 2, "top_k": 7}, {"top_p": 0.75}, {"min_p": 0.1},
     {"temperature": 1.5, "top_k": 20, "top_p": 0.9, "min_p": 0.02}, {"top_k": 1000, "top_p": 1.0}],
)  # fmt: skip
def test_probabilities_are_those_of_the_librarys_filters(page, how):
    generator = torch.Generator().manual_seed(0)
    given = {{"top_k": "topK", "top_p": "topP", "min_p": "minP"}.get(name, name): value for name, value in how.items()}
    for logits in (
        3 * torch.randn(343, generator=generator),
        torch.tensor([2.0, 2.0, 1.0, -torch.inf]),
        torch.zeros(4),
    ):
        numbers = [None if x == -torch.inf else x for x in logits.tolist()]  # JSON knows no infinity
        found = torch.tensor(page("next", logits=numbers, how=given), dtype=torch.float32)
        torch.testing.assert_close(found, next_token_distribution(logits, **how), rtol=0, atol=1e-6)


def test_draws_follow_the_probabilities_and_the_seed(page):
    p, n = [0.5, 0.0, 0.3, 0.2], 20_000
    drawn = page("draws", p=p, n=n, seed=1)
    assert drawn == page("draws", p=p, n=n, seed=1) != page("draws", p=p, n=n, seed=2)
    counts = torch.bincount(torch.tensor(drawn), minlength=4)
    assert counts[1] == 0
    there = torch.tensor(p) > 0
    expected = n * torch.tensor(p)[there]
    assert ((counts[there] - expected) ** 2 / expected).sum() < 13.8  # 2 degrees of freedom: once in a thousand seeds


def test_words_are_split_as_the_tokenizer_splits_them(tinytown, page):
    tokenizer = tinytown[1]
    for story in Tinytown(5).sample(20):
        assert page("encode", text=story) == {"ids": tokenizer.encode(story, end=False), "unknown": []}
    for text in ("The dragon, Ruby; barked!", "à'b n'est  l'été", "_x' <eos> 3'4"):
        found = page("encode", text=text)
        words = [word for word in split_words(text.lower()) if word in tokenizer.ids]
        assert found["ids"] == [tokenizer.bos_id, *map(tokenizer.id, words)]
        assert found["unknown"] == [word for word in split_words(text.lower()) if word not in tokenizer.ids]


def wild(changes) -> DecoderOnly:
    """A small model of six tokens with large weights, which no part of it hides."""
    small = {"vocab_size": 6, "d_model": 16, "n_heads": 4, "n_kv_heads": 4, "n_layers": 2, "d_ff": 24, "max_seq_len": 8}
    torch.manual_seed(0)
    model = DecoderOnly(replace(preset("tinytown"), **(small | changes)))
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return model


@pytest.mark.parametrize(
    "changes",
    [{"norm": "rms", "activation": "relu"}, {"positions": "sinusoidal", "activation": "gelu_tanh"},
     {"positions": "none", "n_kv_heads": 1}, {"tie_weights": False, "bias": False},
     {"positions": "rope", "activation": "swiglu", "norm": "rms", "bias": False, "n_kv_heads": 2},
     {"positions": "rope", "rope_interleaved": True, "rope_theta": 100.0}, {"positions": "alibi"},
     {"norm_position": "post"}, {"norm_position": "post", "norm": "rms", "tie_weights": False, "activation": "swiglu"}],
)  # fmt: skip
def test_other_small_models_of_the_course_run_in_it(tmp_path, changes):
    tokenizer = WordTokenizer(["the", "cat", "sat"])
    model, ids = halved(wild(changes)), [1, 4, 3, 5, 3]
    page = Page(tmp_path, model, tokenizer)
    with torch.no_grad():
        torch.testing.assert_close(page.logits(ids), model(torch.tensor([ids]))[0], rtol=1e-3, atol=5e-3)
        for part in ("0", "1.attention", "0.feed_forward"):
            hook = without(model, part)
            expected = model(torch.tensor([ids]))[0]
            hook.remove()
            torch.testing.assert_close(page.logits(ids, removed=[part]), expected, rtol=1e-3, atol=5e-3)
    assert "need 1 to 8 tokens, got 9" in page("run", ids=[1] * 9)["error"]
    for wrong in (6, -1, 2.5, None):
        assert "there is no token" in page("run", ids=[1, wrong])["error"]
    for part in ("9.head.0", "0.head.4", "0.unit.24", "0.haed.1", "", "0.head", "0.attention.1"):
        assert f"there is no part {part} to remove" in page("run", ids=ids, removed=[part])["error"]
    page.close()


def quantized(model: DecoderOnly) -> DecoderOnly:
    """The model that the page has of one that is packed in 8 bits."""
    state = {name: weight.half().float() for name, weight in model.state_dict().items()}
    for name, weight in model.state_dict().items():
        if weight.dim() == 2 and name != "positions.weight":
            whole, scale = quantize_int8(weight)
            state[name] = whole * scale[:, None]
    model.load_state_dict(state)
    return model.eval()


@pytest.mark.parametrize("changes", [{}, {"positions": "rope", "activation": "swiglu", "norm": "rms", "n_kv_heads": 2}])
def test_a_model_in_8_bits_gives_what_its_rounded_weights_give(tmp_path, changes):
    tokenizer = WordTokenizer(["the", "cat", "sat"])
    model, ids = wild(changes), [1, 4, 3, 5, 3]
    names = load(pack(model, tokenizer, bits=8)).keys()
    assert {name.removesuffix("scale") + "weight" for name in names if name.endswith("scale")} <= names
    assert "positions.scale" not in names, "its rows are kept in half precision"
    page = Page(tmp_path, model, tokenizer, bits=8)
    found = page.logits(ids)
    page.close()
    with torch.no_grad():
        assert not torch.allclose(found, model(torch.tensor([ids]))[0], atol=1e-2), "nothing was rounded"
        torch.testing.assert_close(found, quantized(model)(torch.tensor([ids]))[0], rtol=1e-3, atol=5e-3)


def test_a_ribbon_is_as_long_as_the_vector_that_its_head_writes(tinytown, page, stories):
    model, ids = tinytown[0], stories[0]
    D, position = model.config.d_head, len(ids) - 1
    with evaluating(model), trace(model) as seen:
        model(torch.tensor([ids]))
    value, weights = (seen[f"blocks.1.attention.{name}"][0] for name in ("value", "weights"))
    columns = model.blocks[1].attention.out_proj.weight.unflatten(1, (-1, D))  # (d_model, H, D)
    written = torch.einsum("hs,hsd,ohd->hso", weights[:, position], value, columns).norm(dim=-1)
    page.logits(ids)
    torch.testing.assert_close(torch.tensor(page("written", layer=1, position=position)), written, rtol=0, atol=1e-3)
    page("run", ids=ids, removed=["1.head.2"])
    without_one = torch.tensor(page("written", layer=1, position=position))
    assert not without_one[2].any()
    torch.testing.assert_close(without_one[[0, 1, 3]], written[[0, 1, 3]], rtol=0, atol=1e-3)
    page("run", ids=ids, removed=["1.attention"])
    assert not torch.tensor(page("written", layer=1, position=position)).any()


TEXT = "It's the cat's 1 or 23 mats, isn't it?  Yes: a cat sat on the mat; the café was shut \n\n for 12,345 days." * 3


def by_digits(tokenizer: BytePairTokenizer) -> SubwordTokenizer:
    """The same pieces, but each digit is one of its own, as in SmolLM2."""
    told = json.loads(tokenizer.tokenizer.to_str())
    merges = [tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in told["model"]["merges"]]
    other = Tokenizer(models.BPE(told["model"]["vocab"], merges))
    other.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    other.decoder = tokenizer.tokenizer.decoder
    other.add_special_tokens(["<|end|>", "<|end|>s"])
    return SubwordTokenizer(other)


def a_model_for(tokenizer) -> DecoderOnly:
    small = {"vocab_size": len(tokenizer), "d_model": 16, "n_heads": 4, "n_kv_heads": 4, "n_layers": 2, "d_ff": 24}
    torch.manual_seed(0)
    return DecoderOnly(replace(preset("tinytown"), **small, max_seq_len=24))


@pytest.fixture(scope="module", params=["as GPT-2", "as SmolLM2"])
def pieces(request, tmp_path_factory):
    """A tokenizer of byte pairs, and a page that has it."""
    tokenizer = BytePairTokenizer.train(TEXT, 400, ["<|end|>"])
    if request.param == "as SmolLM2":
        tokenizer = by_digits(tokenizer)
    page = Page(tmp_path_factory.mktemp("pieces"), a_model_for(tokenizer), tokenizer)
    yield tokenizer, page
    page.close()


@settings(max_examples=300)
@given(text=st.one_of(st.text(), st.text("ca'ts t1 9\n é🙂²٣mI'llre<|end>", max_size=40)))
def test_bytes_are_joined_as_the_tokenizer_joins_them(pieces, text):
    tokenizer, page = pieces
    ids = tokenizer.encode(text)
    assert page("encode", text=text) == {"ids": ids, "unknown": []}
    assert page("decode", ids=ids) == text


def test_a_piece_is_shown_with_its_space_and_half_a_letter_as_such(pieces):
    tokenizer, page = pieces
    shown = page("show", ids=tokenizer.encode("the cat\n🙂<|end|>"))
    assert shown[:2] == ["the", "·cat"]
    assert "↵" in shown
    assert "�" in "".join(shown)
    assert shown[-1] == "<|end|>"


@pytest.fixture(scope="module")
def story_teller(tmp_path_factory):
    """A model that speaks English, its tokenizer as in SentencePiece, and a page that has both."""
    if weights.state("stories15m") != "here":
        pytest.skip("python -m course_lib weights stories15m")
    model, tokenizer = load_pretrained("stories15m")
    page = Page(tmp_path_factory.mktemp("stories"), model, tokenizer)
    yield model, tokenizer, page
    page.close()


@settings(max_examples=200, deadline=None)
@given(text=st.one_of(st.text(), st.text("Once upon  a time, Zoë's 3 dogs\n🙂東²▁", max_size=60)))
def test_characters_are_joined_as_in_sentencepiece(story_teller, text):
    _, tokenizer, page = story_teller
    ids = tokenizer.encode(text, special=True) if text else []
    assert page("encode", text=text) == {"ids": ids, "unknown": []}
    if text and "▁" not in text:
        assert page("decode", ids=ids) == text


def test_a_model_that_tells_stories_says_in_the_page_what_it_says_in_the_library(story_teller):
    model, tokenizer, page = story_teller
    sentences = OF_A_MODEL["stories15m"]
    ids = [tokenizer.encode(text, special=True) for text in sentences]
    with evaluating(model):
        exact = [model(torch.tensor([each]))[0, -1] for each in ids]
        rounded = quantized(deepcopy(model))
        expected = [rounded(torch.tensor([each]))[0, -1] for each in ids]
    for each, whole, its in zip(ids, exact, expected):
        found = page.logits(each, first=len(each) - 1)[0]
        torch.testing.assert_close(found, its, rtol=0, atol=1e-3)
        assert found.argmax() == whole.argmax(), "8 bits change no word that it would say"
    assert page("show", ids=ids[0])[:4] == ["<s>", "·L", "ily", "·and"]
    first = page.logits(ids[0], first=len(ids[0]) - 1)[0].softmax(-1)
    assert page("show", ids=[int(first.argmax())]) == ["·Ben"], "to whom Lily gives her ball"


@pytest.mark.proof
def test_a_real_model_says_in_the_page_what_it_says_in_the_library(tmp_path):
    if weights.state("smollm2-135m") != "here":
        pytest.skip("python -m course_lib weights smollm2-135m")
    model, tokenizer = load_pretrained("smollm2-135m")
    page = Page(tmp_path, model, tokenizer)
    for text in (*IN_ENGLISH, "naïve café, 東京 👩‍👩‍👧\n\tx**2 in 2024", "<|im_start|>user\nhi<|im_end|>"):
        assert page("encode", text=text)["ids"] == tokenizer.encode(text)
    sentences = (*IN_ENGLISH, *OF_A_MODEL["smollm2-135m"], "Water is made of hydrogen and")
    ids = [tokenizer.encode(text) for text in sentences]
    with evaluating(model):
        whole = [model(torch.tensor([each]))[0, -1] for each in ids]
        quantized(model)
        rounded = [model(torch.tensor([each]))[0, -1] for each in ids]
    said = []
    for each, exact, expected in zip(ids, whole, rounded):
        found = page.logits(each, first=len(each) - 1)[0]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)
        assert found.argmax() == exact.argmax(), "8 bits change no word that it would say"
        said.append(page("show", ids=[int(found.argmax())])[0])
        if len(said) > len(IN_ENGLISH):
            first, second = found.softmax(-1).topk(2).values
            assert first > 2 * second, f"it hesitates after {sentences[len(said) - 1]!r}"
    assert said[len(IN_ENGLISH) :] == ["·Paris", "·Mary", "·Baker", "·Au", "·b", "·helium"], "as its heading says"
    page.close()


def test_what_the_page_cannot_show_is_refused_by_name(tinytown):
    model, tokenizer = tinytown
    with pytest.raises(TypeError, match="model must be a DecoderOnly, got Linear"):
        pack(torch.nn.Linear(2, 2), tokenizer)
    with pytest.raises(ValueError, match="tokenizer has 4 tokens, but the model has 343"):
        pack(model, WordTokenizer(["the"]))
    with pytest.raises(TypeError, match="tokenizer must be a WordTokenizer or a SubwordTokenizer, got list"):
        pack(model, ["a"])
    for kind, said in (
        (models.WordLevel({"a": 0}), "of the kind 'WordLevel'"), (models.BPE({"a": 0}, []), "of the kind 'BPE' after"),
    ):  # fmt: skip
        with pytest.raises(
            ValueError, match=f"tokenizer is {said}.* the page supports byte-pair encoding as in GPT-2 or"
        ):
            pack(model, SubwordTokenizer(Tokenizer(kind)))
    cut = Tokenizer(models.BPE({"a": 0}, []))
    cut.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.ByteLevel(False)])
    with pytest.raises(
        ValueError, match="tokenizer splits texts with 'Punctuation': the page supports ByteLevel and Digits"
    ):
        pack(model, SubwordTokenizer(cut))
    with pytest.raises(ValueError, match="bits=4 is not known: choose one of 8, 16"):
        pack(model, tokenizer, bits=4)
    for changes, said in (
        ({"window": 4}, "window=4: the page shows only window=None"), ({"parallel": True}, "parallel=True"),
        ({"norm_position": "both"}, "norm_position='both'"),
        ({"activation": "swiglu", "n_experts": 3, "experts_per_token": 1}, "n_experts=3"),
        ({"positions": "rope", "rope_theta": (1e4, None)}, r"rope_theta=\(10000.0, None\)"),
        ({"positions": "relative"}, "positions='relative'"), ({"activation": "silu"}, "activation='silu'"),
        ({"activation": "geglu"}, "activation='geglu'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"model has .*{said}"):
            pack(DecoderOnly(replace(model.config, **changes)), tokenizer)
    wild = DecoderOnly(model.config)
    with torch.no_grad():
        wild.output.weight[3, 3] = 1e5
    with pytest.raises(ValueError, match=r"token_embedding\.weight of model holds NaN or a number beyond 65,504"):
        pack(wild, tokenizer)
    with torch.device("meta"):
        huge = DecoderOnly(replace(model.config, d_model=2048, n_heads=4, d_ff=8192, n_layers=5))
    with pytest.raises(ValueError, match=r"weights: the page shows up to 200,000,000"):
        pack(huge, tokenizer)
    with pytest.raises(ValueError, match=r"too many for a notebook's cell \(5,000,000\): write it as a page of"):
        glass(DecoderOnly(replace(model.config, d_model=512, n_heads=4, d_ff=2048)), tokenizer)


def test_the_same_model_gives_the_same_bytes(tinytown):
    model, tokenizer = tinytown
    assert len({pack(model, tokenizer) for _ in range(8)}) == 1


def test_it_stays_small_enough_to_be_read():
    sources = [(ROOT / "course_lib/live/glass" / name).read_text(encoding="utf-8") for name in (*MODULES, "page.js")]
    code = [line.strip() for line in re.sub(r"/\*\*.*?\*/", "", "\n".join(sources), flags=re.DOTALL).splitlines()]
    assert len([line for line in code if line and not line.startswith("//")]) <= 1250


def test_the_command_writes_one_page_and_writes_over_none(tmp_path, capsys):
    page = tmp_path / "glass.html"
    assert main(["glass", "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert 'type="module"' in text
    asked = re.findall(r"""(?:src|href)=["'](?!data:)|import .* from|https?://(?!www\.w3\.org)""", text)
    assert asked == [], "it asks no server"
    page.write_text("mine", encoding="utf-8")
    assert main(["glass", "--out", str(page)]) == 2
    assert "--force" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == "mine"
    assert main(["glass", "--model", "translator", "--out", str(tmp_path / "b.html")]) == 2
    assert "--model translator: model must be a DecoderOnly, got EncoderDecoder" in capsys.readouterr().err


def test_the_tour_removes_the_head_that_is_missed_most(tinytown):
    model, tokenizer = tinytown
    ids = torch.tensor([tokenizer.encode("paul gave emma a yellow ring . now emma has the yellow", end=False)])
    layer, head = most_missed(model, ids)
    with torch.no_grad():
        plain, found = model(ids)[0, -1].softmax(-1), {}
        for place in [(i, h) for i in range(4) for h in range(4)]:
            hook = without(model, f"{place[0]}.head.{place[1]}")
            found[place] = (model(ids)[0, -1].softmax(-1) - plain).abs().sum()
            hook.remove()
    assert found[layer, head] == max(found.values())
    opened = [step["part"] for step in tour(model.config, (layer, head))]
    assert opened.count(f"{layer}.head.{head}") == 2


def test_a_page_for_pieces_of_words_begins_in_english(pieces):
    tokenizer, _ = pieces
    page = html(a_model_for(tokenizer), tokenizer)
    assert "The capital of France is" in page
    assert "lisbon" not in page


def test_every_part_says_where_it_is_computed_for_each_kind_of_model():
    for changes in ({}, {"positions": "rope", "activation": "swiglu"}, {"positions": "alibi"}, {"positions": "none"}):
        told = parts(replace(preset("tinytown"), **changes))
        for part in told.values():
            file, number = re.fullmatch(r"(course_lib/\w+\.py), line (\d+)", part["line"]).groups()
            line = (ROOT / file).read_text(encoding="utf-8").splitlines()[int(number) - 1]
            assert f"def {part['code'].rpartition('.')[2]}(" in line, part
    assert told["embedding"]["title"] == "Embedding"
