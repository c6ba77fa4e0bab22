"""Chapter 15's figures and live figure: the weights they draw, over every value of every control."""

from itertools import product

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from sliders import values
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from course_lib.chapters.pretrained import figures
from course_lib.chapters.pretrained.widgets import attention_of, attention_viewer
from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderOnly
from course_lib.gpt import DecoderOnly
from course_lib.tinytown import SubwordTokenizer, WordTokenizer

pytestmark = pytest.mark.usefixtures("no_pixels")  # tests that want a real picture ask for `pixels`
SENTENCES = {"bit": "the dog bit the cow .", "long": "the cat sat on the mat because it"}


def drawn(build, **fields):
    """A small model with weights large enough to look at some tokens more than at others."""
    torch.manual_seed(1)
    model = build(TransformerConfig(d_model=16, n_heads=2, n_layers=3, max_seq_len=12, **fields))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


@pytest.fixture(scope="module")
def decoder():
    tokenizer = WordTokenizer()
    return drawn(DecoderOnly, vocab_size=len(tokenizer)), tokenizer


@pytest.fixture(scope="module")
def encoder():
    """A BERT of five words, with [CLS] and [SEP] around every text."""
    words = {word: i for i, word in enumerate(["[CLS]", "[SEP]", "[UNK]", "the", "cat", "sat", "##ter"])}
    tokenizer = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    return drawn(EncoderOnly, vocab_size=len(words), family="encoder"), SubwordTokenizer(tokenizer)


@pytest.fixture
def viewer(decoder):
    return attention_viewer(*decoder, SENTENCES)


def shown(drawing):
    """All that the figure shows, as plain data."""
    figure = drawing.figure
    texts = [(text.get_text(), text.get_weight(), text.get_color()) for axes in figure.axes for text in axes.texts]
    lines = [np.asarray(line.get_xydata()).tolist() for axes in figure.axes for line in axes.lines]
    for drawn_lines in (drawing.asking, drawing.others):
        lines.append((np.array(drawn_lines.get_segments()).tolist(), list(drawn_lines.get_linewidths())))
    images = [image.get_array().filled(-1).tolist() for image in figure.axes[1].images]
    names = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    return repr((texts, lines, images, names, drawing.headline.get_text(), drawing.right.get_text()))


# ----------------------------------------------------------------------------------------------------- attention_of
def test_a_decoders_maps_are_those_of_its_own_method(decoder):
    model, tokenizer = decoder
    tokens, weights = attention_of(model, tokenizer, SENTENCES["bit"])
    expected = torch.cat(model.attention_weights(torch.tensor([tokenizer.encode(SENTENCES["bit"], end=False)])))
    assert tokens == ["<bos>", "the", "dog", "bit", "the", "cow", "."]
    torch.testing.assert_close(weights, expected)


def test_an_encoder_gets_its_special_tokens_and_looks_both_ways(encoder):
    tokens, weights = attention_of(*encoder, "the catter sat")
    assert tokens == ["[CLS]", "the", "cat", "##ter", "sat", "[SEP]"]
    assert weights.shape == (3, 2, 6, 6)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 2, 6))
    assert (weights[..., 0, 1:] > 0).all(), "the first token sees later ones"


# ------------------------------------------------------------------------------------------------- the attention viewer
def test_every_value_of_every_control_draws_and_describes(viewer):
    for control, widget in viewer._controls.items():
        texts = {viewer.render(**{control: value}) or viewer.text for value in values(widget)}
        distinct = len(values(widget)) - (2 if control == "asks" else 0)  # the first sentence has two places fewer
        assert len(texts) == distinct, f"the description does not follow {control}"


def test_lines_are_as_thick_as_the_weights_and_the_asking_ones_stand_out(viewer, decoder):
    _, weights = attention_of(*decoder, SENTENCES["bit"])
    for layer, head, asks in product(range(3), range(2), (0, 3, 6)):
        viewer.render(sentence="bit", layer=layer, head=head, asks=asks)
        parts = viewer.drawing
        for lines, mine in ((parts.asking, True), (parts.others, False)):
            seen = {(i, j): width for ((_, i), (_, j)), width in zip(lines.get_segments(), lines.get_linewidths())}
            for i, j in product(range(7), range(7)):
                weight = weights[layer, head, i, j].item()
                drawn_here = (i == asks) == mine and weight > figures.FAINT
                assert seen.get((i, j), 0) == pytest.approx(figures.THICK * weight if drawn_here else 0, abs=1e-5)


def test_the_right_half_holds_the_asking_row_of_every_head(viewer, decoder):
    _, weights = attention_of(*decoder, SENTENCES["long"])
    viewer.render(sentence="long", layer=1, head=1, asks=4)
    image = viewer.drawing.image.get_array()
    for layer, head in product(range(3), range(2)):
        np.testing.assert_allclose(image[2 * layer + head], weights[layer, head, 4], atol=1e-6)
    assert viewer.drawing.mark.get_xydata()[0, 1] == 3, "layer 1, head 1 is the fourth row"


def test_the_title_and_the_text_name_the_heaviest_weight(viewer, decoder):
    tokens, weights = attention_of(*decoder, SENTENCES["bit"])
    viewer.render(sentence="bit", layer=2, head=1, asks=5)
    best = int(weights[2, 1, 5].argmax())
    expected = f"“cow” looks most at “{tokens[best]}” ({weights[2, 1, 5, best]:.2f})"
    assert viewer.drawing.headline.get_text() == f"Layer 2, head 1: {expected}"
    assert f"looks most at {tokens[best]} (position {best})" in viewer.text


def test_a_shorter_sentence_leaves_nothing_of_the_longer_one(viewer, decoder):
    viewer.render(sentence="long", asks=8)
    viewer.render(sentence="bit", asks=8)
    words = [word.get_text() for word in viewer.drawing.words[0]]
    assert words == ["<bos>", "the", "dog", "bit", "the", "cow", ".", "", ""]
    assert np.isnan(viewer.drawing.image.get_array().filled(np.nan)[:, 7:]).all()
    assert "“.”" in viewer.text, "beyond its end the last token asks"


def test_a_moved_figure_equals_a_fresh_one(decoder):
    moved, fresh = (attention_viewer(*decoder, SENTENCES) for _ in range(2))
    for state in product(("long", "bit"), (0, 2), (1,), (0, 8)):
        state = dict(zip(("sentence", "layer", "head", "asks"), state))
        moved.render(**state)
        assert shown(moved.drawing) == shown(fresh._draw(**state)), state


def test_the_corners_are_different_pictures(viewer, pixels):
    low = viewer.render(sentence="bit", layer=0, head=0, asks=0)
    high = viewer.render(sentence="long", layer=2, head=1, asks=8)
    assert low.startswith(b"\x89PNG")
    assert low != high


def test_the_first_question_is_the_one_that_was_asked_for(decoder, encoder):
    assert attention_viewer(*decoder, SENTENCES, layer=1, head=1, query="dog").state == {
        "sentence": "bit", "layer": 1, "head": 1, "asks": 2
    }  # fmt: skip
    assert "“cat”" in attention_viewer(*encoder, {"short": "the cat sat"}, query="cat").text
    with pytest.raises(ValueError, match=r"query='cat' is not a token of the first sentence: <bos> the dog"):
        attention_viewer(*decoder, SENTENCES, query="cat")


def test_a_common_beginning_is_left_out_and_positions_count_from_the_texts_own(decoder):
    _, weights = attention_of(*decoder, SENTENCES["bit"])
    live = attention_viewer(*decoder, SENTENCES, layer=1, head=1, drawn_from=2)
    live.render(sentence="bit", asks=5)
    assert [word.get_text() for word in live.drawing.words[0]][:5] == ["dog", "bit", "the", "cow", "."]
    np.testing.assert_allclose(live.drawing.image.get_array()[3, :5], weights[1, 1, 5, 2:], atol=1e-6)
    best = 2 + int(weights[1, 1, 5, 2:].argmax())
    assert "position 5, “cow”" in live.text
    assert f"(position {best}) {weights[1, 1, 5, best]:.2f}" in live.text


# ------------------------------------------------------------------------------------------------------ checkpoint map
def test_the_map_of_a_checkpoint_names_every_tensor_and_marks_what_is_square():
    rows = [
        (("wte", (7, 4)), "as it is", [("token_embedding", (7, 4))]),
        (("c_attn", (4, 12)), "cut, transpose", [(f"{part}_proj", (4, 4)) for part in "qkv"]),
        (("c_proj", (4, 4)), "transpose", [("out_proj", (4, 4))]),
    ]
    figure = figures.checkpoint_map(rows, "Where they go")
    texts = [text.get_text() for text in figure.axes[0].texts]
    for name in ("wte", "token_embedding", "c_attn", "q_proj", "k_proj", "v_proj", "c_proj", "out_proj", "4 × 12"):
        assert name in texts
    boxes = figure.axes[0].patches
    orange = [box for box in boxes if box.get_facecolor() == to_rgba(figures.ORANGE)]
    assert len(boxes) == 8
    assert len(orange) == 2, "c_proj and out_proj alone: c_attn shows by its shape what was done"


# ------------------------------------------------------------------------------------------------------ similarity map
def test_the_cells_say_their_cosines():
    similarity = np.array([[1.0, 0.25, -0.1], [0.25, 1.0, 0.66], [-0.1, 0.66, 1.0]])
    figure = figures.similarity_map(similarity, ["one", "two", "three"], "Two and three are near")
    cells = [text.get_text() for text in figure.axes[0].texts]
    assert cells == ["1.00", "0.25", "-0.10", "0.25", "1.00", "0.66", "-0.10", "0.66", "1.00"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["one  1", "two  2", "three  3"]
    assert figure.get_suptitle() == "Two and three are near"


def test_two_maps_of_one_head_frame_the_row_that_asks():
    weights = np.eye(3)
    drawn = figures.attention_maps(
        {"one": (["it", "was", "a"], weights), "two": (["a", "was", "it"], 1 - weights)}, "it", ""
    )
    one, two, _ = drawn.axes
    assert [axes.patches[0].get_y() for axes in (one, two)] == [-0.5, 1.5]
    assert np.array_equal(two.images[0].get_array(), 1 - weights)
    assert [label.get_text() for label in two.get_yticklabels()] == ["a", "was", "it"]


def test_what_is_forgotten_is_drawn_over_what_is_learned_better_to_the_right():
    paths = {"all weights": [(4.0, 0.7), (1.0, 1.5)], "LoRA": [(4.0, 0.7), (0.9, 2.0), (0.8, 2.1)]}
    (axes,) = figures.forgetting(paths, 0.65, 0.75, "One forgets more").axes
    for line, seen in zip(axes.lines, paths.values()):
        assert np.array_equal(line.get_xydata(), seen)
    assert axes.xaxis_inverted()
    assert {"all weights", "LoRA", "before"} <= {text.get_text() for text in axes.texts}
