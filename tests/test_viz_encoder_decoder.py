"""Chapter 11's figures and live figures: what they draw, computed another way, over every value of every control."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from sliders import LiveFigureTests

from course_lib.chapters.encoder_decoder import figures
from course_lib.chapters.encoder_decoder import widgets as built
from course_lib.live.palette import GREEN
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import split_words
from course_lib.tinytown.french import TinytownPairs

STORY = (
    "once there was a king called tom. the white cat sat on the grey mat because it was hungry. then he went to bed."
)
pytestmark = pytest.mark.usefixtures("no_pixels")  # tests that want a real picture ask for `pixels`


@pytest.fixture(scope="module")
def models():
    return {name: load_pretrained(name) for name in ("translator", "masked", "tinytown")}


MAKERS = {
    "translation": lambda models: built.translation_explorer(*models["translator"]),
    "blank": lambda models: built.blank_explorer(*models["masked"], *models["tinytown"], STORY, place=10),
}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def make(request, models):
    return partial(request.param, models)


class TestEveryLiveFigure(LiveFigureTests):
    pass


def test_every_sentence_that_can_be_built_is_one_of_the_grammar_and_translated_right(models):
    town, explorer = TinytownPairs(), MAKERS["translation"](models)
    for parts in product(built.SUBJECTS, built.SIZES, built.COLOURS, built.PREDICATES):
        assert town.translate(built.sentence(*parts))
    explorer.render(subject="a mouse", size="old", colour="white", predicate="was not happy", head=0)
    assert (
        "an old white mouse was not happy. → une vieille souris blanche n'était pas heureuse. (right)" in explorer.text
    )
    explorer.render(subject="two wolves", size="", colour="green", predicate="was tired")
    assert "two green wolves were tired. → deux loups verts étaient fatigués. (right)" in explorer.text


def test_the_circles_stand_on_the_words_of_the_grammars_alignment(models):
    explorer = MAKERS["translation"](models)
    explorer.render(subject="the cat", size="big", colour="black", predicate="was tired")
    axes = explorer.figure.axes[0]
    english = [label.get_text() for label in axes.get_xticklabels()]
    french = [label.get_text() for label in axes.get_yticklabels()]
    circled = {(english[int(x)], french[int(y)]) for x, y in explorer.drawing.circles.get_offsets()}
    by_hand = {("the", "le"), ("big", "grand"), ("cat", "chat"), ("black", "noir"), ("was", "était")}
    assert circled == by_hand | {("tired", "fatigué"), (".", ".")}


def test_the_title_counts_the_words_whose_largest_weight_is_circled():
    weights = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.1, 0.2, 0.7]])
    drawing = figures.AlignmentMap(weights, ["a", "b", "c"], ["x", "y", "z"], [(0, 0), (1, 1), (2, 2)], "head 3").draw()
    assert drawing.headline.get_text() == "Head 3: 2 of 3 French words look most at the word they translate"
    assert np.array_equal(drawing.image.get_array(), weights)
    drawing.update(**figures.AlignmentMap(weights[:, :2], ["a", "b"], ["x", "y", "z"], [], "head 0").data)
    assert drawing.headline.get_text() == "Head 0: a wrong translation, so no circles"
    assert len(drawing.circles.get_offsets()) == 0
    assert drawing.axes.get_xlim() == (-0.5, 1.5)


def test_a_wrong_translation_is_said_to_be_wrong(models, monkeypatch):
    monkeypatch.setattr(built, "translate", lambda model, tokenizer, sentences: ["le chat était triste."])
    explorer = MAKERS["translation"](models)
    assert "(wrong: it should be le grand chat noir n'a pas mordu de vache.)" in explorer.text


def test_the_bars_are_the_models_probabilities_and_the_hidden_word_is_marked(models):
    explorer = MAKERS["blank"](models)
    words = split_words(STORY)
    for place in range(1, len(words) + 1):
        explorer.render(place=place)
        assert explorer.text.startswith(STORY.split(words[place - 1])[0][:5])
        for bars, numbers, axes in zip(explorer.drawing.bars, explorer.drawing.numbers, explorer.figure.axes):
            assert words[place - 1] in [label.get_text() for label in axes.get_yticklabels()]
            widths = [bar.get_width() for bar in bars]
            assert widths == sorted(widths, reverse=True)
            assert sum(widths) <= 1 + 1e-5
            for bar, number, label in zip(bars, numbers, axes.get_yticklabels()):
                marked = label.get_text() == words[place - 1]
                assert number.get_text().endswith("✓") == marked
                assert (bar.get_facecolor() == to_rgba(GREEN)) == marked


def test_the_title_says_whether_the_right_side_helped():
    some = [("a", 0.6), ("b", 0.3)]
    cases = {
        "helps: 0.30 against 0.10": [("a", 0.8), ("b", 0.1)],
        "does not help: 0.30 against 0.80": [("b", 0.8), ("a", 0)],
    }
    cases["changes nothing: 0.30 against 0.30"] = some
    for said, left in cases.items():
        assert said in figures.BlankGuesses(some, left, "b").draw().headline.get_text()


SOURCE = ["the", "dog", "chased", "the", "cow", ".", "<eos>"]
TARGET = ["le", "chien", "a", "poursuivi", "la", "vache", "."]


def test_the_drawing_of_the_architecture_has_one_arrow_from_the_top_of_the_encoder():
    figure = figures.architecture(SOURCE, TARGET, 64)
    labels = [text.get_text() for text in figure.axes[0].texts]
    shapes = " ".join(labels)
    assert "(1, 7, 64)" in shapes, "a row for each source token"
    assert "queries (1, 8, 64)" in shapes, "a row for <bos> and for each target token"
    for label in ("cross-attention", "self-attention, causal", "self-attention, bidirectional", "logits → softmax"):
        assert labels.count(label) == 1
    encoder, _ = sorted(
        (box for box in figure.axes[0].patches if box.get_linestyle() == "--"), key=lambda box: box.get_x()
    )
    (source,) = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 4]
    top = encoder.get_y() + encoder.get_height()
    assert source.get_ydata()[0] == top, "it starts where all N blocks of the encoder end, not inside of them"
    heights = [text.get_position()[1] for text in figure.axes[0].texts if text.get_text() == "cross-attention"]
    assert source.get_ydata()[-1] == heights[0]


def test_the_drawing_leads_a_residual_around_every_branch_and_norms_the_sum():
    figure = figures.architecture(SOURCE, TARGET, 64)
    texts = [(text.get_text(), text.get_position()) for text in figure.axes[0].texts]
    branches = [at for label, at in texts if label == "feed-forward" or "attention" in label]
    norms = [at for label, at in texts if label == "+ norm"]
    residuals = [line.get_xydata() for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    assert len(branches) == len(norms) == len(residuals) == 5
    for (x, y), (norm_x, norm_y), residual in zip(
        sorted(branches), sorted(norms), sorted(residuals, key=lambda r: tuple(r[0]))
    ):
        assert x == norm_x == residual[0][0]
        assert residual[0][1] < y < norm_y == residual[-1][1], "it leaves before the branch and arrives at the sum"


def test_the_curve_shows_the_losses_between_guessing_and_perfection():
    losses = [5.3, *[1.0] * 30]
    figure = figures.translator_curve(losses, guessing=5.32)
    assert figure.axes[0].lines[0].get_ydata().tolist() == losses
    assert [line.get_ydata()[0] for line in figure.axes[0].lines[1:]] == [5.32, 0.0]
    assert figure.texts[0].get_text() == "In 31 steps the loss falls from 5.3 to 1.0 nats"
