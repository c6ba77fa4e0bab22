"""The glass model's picture: it shows the numbers that the page computes by itself, and nothing leaves its paper."""

import copy
import io
import shutil
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from PIL import Image

from course_lib.live.figure import few_colours, png
from course_lib.live.glass import glass, kept
from course_lib.live.glass.picture import draw, in_a_sentence, look, ways
from course_lib.live.numbers import share
from course_lib.live.palette import BLUE, ORANGE, RED
from course_lib.tinytown import Tinytown, WordTokenizer
from course_lib.trace import evaluating
from tests.test_glass import Page, halved, page, tinytown, wild  # noqa: F401  page and tinytown are fixtures

KINDS = [  # of models
    {}, {"positions": "rope", "activation": "swiglu", "norm": "rms", "bias": False, "n_kv_heads": 2},
    {"positions": "alibi", "n_kv_heads": 1}, {"norm_position": "post", "positions": "none"},
    {"n_layers": 13, "n_heads": 8, "n_kv_heads": 8},
]  # fmt: skip
PARTS = (None, "next", "embedding", "1.head.2", "0.feed_forward", "1.lens")


@pytest.fixture(scope="module")
def story(tinytown):  # noqa: F811
    ids = tinytown[1].encode(Tinytown(3).sample(1)[0], end=False)[:40]
    return ids, look(tinytown[0], torch.tensor([ids]), [tinytown[1].tokens[i] for i in ids])


@pytest.mark.skipif(shutil.which("node") is None, reason="the page computes in node")
def test_it_shows_what_the_page_computes(story, page):  # noqa: F811
    ids, seen = story
    logits, last = page.logits(ids), len(ids) - 1
    np.testing.assert_allclose(seen.said[-1], logits[-1].softmax(-1), atol=1e-4)
    for layer in range(4):
        np.testing.assert_allclose(seen.written[layer, :, last], page("written", layer=layer, position=last), atol=1e-3)
        np.testing.assert_allclose(seen.weights[layer, 1], page("weights", layer=layer, head=1), atol=1e-4)
        lens = torch.tensor(page("lens", layer=layer, position=last)).softmax(-1)
        np.testing.assert_allclose(seen.said[layer], lens, atol=1e-4)
    theirs = {(way["l"], way["h"], way["s"], way["t"]): way["importance"]
              for way in page("ways", position=last, faintest=0.15)}  # fmt: skip
    ours = {tuple(way): importance for *way, importance in ways(seen)}
    close = {way for way in theirs.keys() ^ ours.keys() if abs(theirs.get(way, ours.get(way)) - 0.15) > 1e-3}
    assert not close, "a ribbon more or less, unless it is as faint as the limit"
    assert len(ours) > 50
    assert all(abs(theirs[way] - ours[way]) < 1e-3 for way in theirs.keys() & ours.keys())


@pytest.mark.parametrize("changes", KINDS)
def test_any_small_model_is_drawn_within_the_paper(changes):
    model, tokenizer = halved(wild(changes)), WordTokenizer(["the", "extraordinarily", "sat"])
    text = "the extraordinarily sat the sat"
    for part in PARTS:
        ids = torch.tensor([tokenizer.encode(text, end=False)])
        seen = look(model, ids, [tokenizer.tokens[i] for i in ids[0].tolist()])
        figure = draw(seen, tokenizer.tokens.__getitem__, part, [BLUE, ORANGE, RED] * 3)
        figure.canvas.draw()
        renderer, paper = figure.canvas.get_renderer(), figure.bbox
        written = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
        written += [label for axes in figure.axes if axes.axison
                    for label in (*axes.get_xticklabels(), *axes.get_yticklabels(), axes.xaxis.label)]  # fmt: skip
        boxes = [(each.get_text(), each.get_window_extent(renderer)) for each in written if each.get_text()]
        for said, box in boxes:
            assert paper.padded(1).x0 <= box.x0 <= box.x1 <= paper.padded(1).x1, (part, said)
            assert paper.padded(1).y0 <= box.y0 <= box.y1 <= paper.padded(1).y1, (part, said)
        assert not [(a, b) for (a, one), (b, two) in combinations(boxes, 2) if one.padded(-2).overlaps(two)], part


def test_the_longest_words_and_the_surest_next_word_fit_as_well(tinytown):  # noqa: F811
    model, tokenizer = tinytown
    ids = torch.tensor([tokenizer.encode("the dog chased the cow", end=False)])
    seen = look(model, ids, ["extraordinarily"] * ids.shape[1])
    said = np.zeros_like(seen.said)
    said[:, 7] = 0.9999
    figure = draw(replace(seen, said=said), tokenizer.tokens.__getitem__, None, [BLUE] * 4)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    (title,) = [text for text in figure.texts if "layer" in text.get_text() and "head" in text.get_text()]
    assert title.get_window_extent(renderer).x1 <= figure.bbox.x1
    (bars,) = [axes for axes in figure.axes if ">99.9%" in [text.get_text() for text in axes.texts] and axes.patches]
    (sure,) = [text for text in bars.texts if text.get_text() == ">99.9%"]
    assert sure.get_window_extent(renderer).x0 > max(bar.get_window_extent(renderer).x1 for bar in bars.patches)


def test_a_model_whose_heads_write_nothing_is_drawn_without_ribbons():
    model, tokenizer = wild({}), WordTokenizer(["the", "cat", "sat"])
    for block in model.blocks:
        torch.nn.init.zeros_(block.attention.out_proj.weight)
    seen = look(
        model.eval(), torch.tensor([tokenizer.encode("the cat the", end=False)]), ["<bos>", "the", "cat", "the"]
    )
    assert ways(seen) == []
    (_, _, right) = draw(seen, tokenizer.tokens.__getitem__, None, [BLUE] * 4).axes
    assert not right.patches


def test_its_words_say_what_is_open(tinytown):  # noqa: F811
    model, tokenizer = tinytown
    text = "the dog chased the cow . who chased the cow ? it was the"
    ids = torch.tensor([tokenizer.encode(text, end=False)])
    with evaluating(model):
        weights, best = model.attention_weights(ids)[2][0, 3, -1], model(ids)[0, -1].softmax(-1)
    most = int(weights.argmax())
    shown, said = kept(model, tokenizer, text, "2.head.3")
    looked = f"Layer 2, head 3: “the” looks most at “{text.split()[most - 1]}”, {share(weights[most].item())}"
    assert f'{looked}." width=' in shown, "as the alt of the picture"
    assert said.startswith(f"[glass model] “{text}” … the next word: ")
    assert said.endswith(". Open: 2.head.3.")
    seen = look(model, ids, ["<bos>", *text.split()])
    sentence = in_a_sentence(seen, tokenizer.tokens.__getitem__, "3.lens")
    assert sentence == f"After layer 3 it would say “{tokenizer.tokens[best.argmax()]}”, {share(best.max().item())}"
    assert "from “" in in_a_sentence(seen, tokenizer.tokens.__getitem__, None)
    assert [share(p) for p in (1.0, 0.9949, 0.5, 0.0949, 0.0004)] == [">99.9%", "99.5%", "50%", "9.5%", "<0.1%"]


def test_what_a_notebook_keeps_is_the_text_that_was_left_and_the_model_that_was_shown(tinytown, monkeypatch):  # noqa: F811
    model, tokenizer = copy.deepcopy(tinytown[0]), tinytown[1]
    widgets, told = [], []

    def publish(widget, *first):
        widgets.append(widget)
        told.append(first)
        return lambda *later: told.append(later)

    monkeypatch.setattr("course_lib.live.page.publish", publish)
    glass(model, tokenizer, "the dog", "2.head.3")
    assert told == [kept(model, tokenizer, "the dog", "2.head.3")]
    (widget,) = widgets
    widget.set_state({"seen": dict(widget.seen)})
    assert len(told) == 1, "the page has only begun"
    left = kept(model, tokenizer, "emma has the yellow", "next")
    torch.nn.init.zeros_(model.output.weight)  # the model is trained on; the page is not
    widget.set_state({"seen": {"text": "emma has the yellow", "open": "next", "view": "maps"}})
    widget.set_state({"seen": {"text": "", "open": None, "view": "flow"}})  # nothing that the model knows: <bos> alone
    assert told[1] == left
    assert told[2][1].startswith("[glass model] “” … the next word: ")


def test_few_colours_keep_the_heads_apart(story, tinytown):  # noqa: F811
    colours = [BLUE, ORANGE, "#0B8651", RED]
    figure = draw(story[1], tinytown[1].tokens.__getitem__, None, colours)
    whole = png(figure)
    small = few_colours(whole)
    assert len(small) < len(whole) / 2
    before, after = (np.asarray(Image.open(io.BytesIO(image)).convert("RGB")).astype(int) for image in (whole, small))
    for colour in colours:  # the squares beside the heads' numbers
        place = (before == [int(colour[i : i + 2], 16) for i in (1, 3, 5)]).all(-1)
        assert place.sum() > 100
        assert np.abs(after[place] - before[place]).max() < 40
