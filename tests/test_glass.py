"""The engine of the glass model, in node: it gives the library's numbers, and computes nothing twice."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from course_lib.__main__ import main
from course_lib.config import preset
from course_lib.gpt import DecoderOnly
from course_lib.live.glass import parts
from course_lib.live.glass.pack import pack
from course_lib.pretrained import load_pretrained
from course_lib.sampling import next_token_distribution
from course_lib.tinytown import Tinytown, WordTokenizer, split_words
from course_lib.trace import evaluating, trace

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="the engine of the page is tested with node")
ROOT = Path(__file__).parent.parent


class Page:
    """Node with the engine and a model in it."""

    def __init__(self, folder: Path, model: DecoderOnly, tokenizer: WordTokenizer):
        path = folder / "model.safetensors"
        path.write_bytes(pack(model, tokenizer))
        self.process = subprocess.Popen(
            ["node", "tests/glass.mjs", str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, job: str, **given):
        """What a job of glass.mjs gives."""
        print(json.dumps({"job": job} | given), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

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
    page.process.stdin.close()
    page.process.wait()


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
    small = {"vocab_size": 6, "d_model": 16, "n_heads": 4, "n_kv_heads": 4, "n_layers": 2, "d_ff": 24, "max_seq_len": 8}
    torch.manual_seed(0)
    model = DecoderOnly(replace(preset("tinytown"), **(small | changes)))
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    model, ids = halved(model), [1, 4, 3, 5, 3]
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
    page.process.stdin.close()
    page.process.wait()


def test_what_the_page_cannot_show_is_refused_by_name(tinytown):
    model, tokenizer = tinytown
    with pytest.raises(TypeError, match="model must be a DecoderOnly, got Linear"):
        pack(torch.nn.Linear(2, 2), tokenizer)
    with pytest.raises(ValueError, match="tokenizer has 4 tokens, and the model 343"):
        pack(model, WordTokenizer(["the"]))
    with pytest.raises(TypeError, match="tokenizer must be a WordTokenizer, got list"):
        pack(model, ["a"])
    for changes, said in (
        ({"window": 4}, "window=4: the page shows window=None alone"), ({"parallel": True}, "parallel=True"),
        ({"positions": "relative"}, "positions='relative'"), ({"activation": "silu"}, "activation='silu'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"model has .*{said}"):
            pack(DecoderOnly(replace(model.config, **changes)), tokenizer)
    wild = DecoderOnly(model.config)
    with torch.no_grad():
        wild.output.weight[3, 3] = 1e5
    with pytest.raises(ValueError, match=r"token_embedding\.weight of model holds NaN or a number beyond 65,504"):
        pack(wild, tokenizer)
    with pytest.raises(ValueError, match=r"weights: the page shows up to 5,000,000"):
        pack(DecoderOnly(replace(model.config, d_model=512, n_heads=4, d_ff=2048)), tokenizer)


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


def test_every_part_says_where_it_is_computed_for_each_kind_of_model():
    for changes in ({}, {"positions": "rope", "activation": "swiglu"}, {"positions": "alibi"}, {"positions": "none"}):
        told = parts(replace(preset("tinytown"), **changes))
        for part in told.values():
            file, number = re.fullmatch(r"(course_lib/\w+\.py), line (\d+)", part["line"]).groups()
            line = (ROOT / file).read_text(encoding="utf-8").splitlines()[int(number) - 1]
            assert f"def {part['code'].rpartition('.')[2]}(" in line, part
    assert told["embedding"]["title"] == "Embedding"
