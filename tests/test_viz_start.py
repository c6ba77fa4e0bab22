"""Chapter 0's figures and live figures: against the model itself and the grammar, over every setting and every part."""

import math
import re
from dataclasses import replace

import ipywidgets as widgets
import pytest
import torch
from matplotlib.colors import to_rgba
from sliders import drawn
from torch import nn

from course_lib.chapters.start_here import figures
from course_lib.chapters.start_here import widgets as built
from course_lib.config import TransformerConfig, preset
from course_lib.counting import count_parameters
from course_lib.gpt import DecoderOnly
from course_lib.live import figure as live
from course_lib.live.palette import ORANGE
from course_lib.tinytown import Tinytown, WordTokenizer

TIRED = (
    "once there was a queen called anna. the cat sat on the mat because it was tired. yes, the cat was very tired. "
    "at last anna went home."
)
SOFT = TIRED.replace("tired", "soft").replace("yes, the cat", "yes, the mat")
PROMPT = "once there was a queen called anna. she wore a"
IN_BLOCKS = {"norm 1": "norm1", "attention": "attention", "norm 2": "norm2", "feed-forward": "feed_forward"}


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer()


@pytest.fixture(scope="module")
def small(tokenizer):
    """A model with weights large enough to expect some words more than others."""
    torch.manual_seed(3)
    model = DecoderOnly(TransformerConfig(vocab_size=len(tokenizer), d_model=12, n_heads=2, n_layers=2, max_seq_len=40))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.eval()


@pytest.fixture(scope="module")
def course_model():
    """The course's model in shape, untrained: counts and shapes need no training."""
    torch.manual_seed(0)
    return DecoderOnly(preset("tinytown")).eval()


@pytest.fixture(scope="module")
def reading(small, tokenizer):
    return built.read_along(small, tokenizer, {"it was tired": TIRED, "it was soft": SOFT}, start=20)


@pytest.fixture(scope="module")
def one_map(course_model, tokenizer):
    return built.ModelMap(course_model, tokenizer, PROMPT)


@pytest.fixture
def course_map(one_map):
    one_map.select("attention")
    return one_map


# --------------------------------------------------------------------------------------------------------- what is next
def every_place(reading):
    slider, names = reading._controls["n"], reading._controls["name"]
    return [(name, n) for name in names.options for n in range(slider.min, slider.max + 1)]


def test_the_bars_are_the_models_and_the_grammars_probabilities_at_every_word(reading, small, tokenizer, monkeypatch):
    monkeypatch.setattr(live, "png", lambda figure: b"")  # what is drawn counts here, not its pixels
    stories = {"it was tired": TIRED, "it was soft": SOFT}
    assert len(every_place(reading)) == 2 * 33
    for name, n in every_place(reading):
        reading.render(name=name, n=n)
        ids = tokenizer.encode(stories[name])
        came = tokenizer.tokens[ids[n + 1]]
        with torch.no_grad():
            expected = small(torch.tensor([ids[: n + 1]]))[0, -1].softmax(dim=-1)  # the words read so far and no other
        exact = Tinytown().next_word(tokenizer.decode(ids[: n + 1]))
        parts = reading.drawing
        words = [label.get_text().replace("(end of story)", "<eos>") for label in parts.axes.get_yticklabels()]
        assert [bar.get_width() for bar in parts.model_bars] == pytest.approx(
            expected.topk(6).values.tolist(), abs=1e-5
        )
        rows = [tokenizer.id(word) for word in words]
        assert [bar.get_width() for bar in parts.model_bars] == pytest.approx(expected[rows].tolist(), abs=1e-5)
        assert [bar.get_width() for bar in parts.exact_bars] == pytest.approx([exact.get(word, 0) for word in words])
        assert [float(text.get_text()) for text in parts.numbers] == pytest.approx(expected[rows].tolist(), abs=0.0051)
        shown = "(end of story)" if came == "<eos>" else came
        assert f"“{shown}”" in reading.text
        nats = float(reading.text.split("surprise of ")[1].split(" nats")[0])
        assert nats == pytest.approx(-math.log(expected[tokenizer.id(came)]), abs=0.0051)
        assert reading.also_text == f"Read so far: {tokenizer.decode(ids[: n + 1])} ▁"


def test_the_title_names_the_favourite_and_the_last_words(reading, monkeypatch):
    monkeypatch.setattr(live, "png", lambda figure: b"")
    reading.render(name="it was tired", n=4)
    assert reading.drawing.headline.get_text().startswith("After “once there was a” the model expects “")
    reading.render(name="it was soft", n=23)
    favourite = reading.drawing.axes.get_yticklabels()[0].get_text()
    number = reading.drawing.numbers[0].get_text()
    title = reading.drawing.headline.get_text()
    assert title == f"After “… yes, the mat” the model expects “{favourite}” ({number})"


def test_the_second_draw_equals_a_fresh_one():
    first = (["cat", "mat", "dog"], [0.7, 0.2, 0.1], [0.5, 0.5, 0.0], "one")
    second = (["a", "b", "c"], [0.4, 0.35, 0.25], [1.0, 0.0, 0.0], "another")
    moved, fresh = figures.NextWords(*first).draw(), figures.NextWords(*second)
    before = drawn(moved.figure)
    moved.update(**fresh.data)
    assert drawn(moved.figure) == drawn(fresh.figure) != before


def test_every_corner_is_a_picture_in_which_nothing_is_cut_off(reading):
    for name in ("it was tired", "it was soft"):
        for n in (1, 20, 33):
            assert reading.render(name=name, n=n).startswith(b"\x89PNG")
            assert_nothing_is_cut_off(reading.figure)


def test_a_story_that_tinytown_cannot_say_is_refused(small, tokenizer):
    with pytest.raises(ValueError, match="not a Tinytown story"):
        built.read_along(small, tokenizer, {"wrong": TIRED.replace("a queen", "a mat")}, start=1)


# -------------------------------------------------------------------------------------------------------------- the map
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_the_parts_count_every_parameter_once_as_the_closed_form_does(tied, tokenizer):
    config = replace(preset("tinytown"), tie_weights=tied)
    model = DecoderOnly(config)
    parts = {part.name: part for part in built.parts_of(model, tokenizer, PROMPT)}
    count = count_parameters(config)
    assert figures.total_of(parts.values()) == count.total == sum(p.numel() for p in model.parameters())
    norms = sum(parts[name].parameters for name in ("norm 1", "norm 2", "final norm"))
    assert norms == count.by_component["norms"]
    for name, component in [
        ("token embedding", "token embedding"),
        ("positions", "position embedding"),
        ("attention", "attention"),
        ("feed-forward", "feed-forward"),
        ("output", "output head"),
    ]:
        assert parts[name].parameters == count.by_component[component]
    assert ("one table with two uses" in parts["output"].does) == tied
    assert (parts["output"].instead == "shares the token embedding") == tied


def test_each_part_has_the_parameters_of_its_modules(course_map, course_model):
    def size(*modules):
        return sum(parameter.numel() for module in modules for parameter in module.parameters())

    for name, own in IN_BLOCKS.items():
        assert course_map.parts[name].parameters == size(*[getattr(block, own) for block in course_model.blocks])
        assert course_map.parts[name].in_blocks
    assert course_map.parts["token embedding"].parameters == size(course_model.token_embedding)
    assert course_map.parts["positions"].parameters == size(course_model.positions)
    assert course_map.parts["final norm"].parameters == size(course_model.final_norm)
    for name in ("text to ids", "residual stream", "output", "last logits", "sampling"):
        assert course_map.parts[name].parameters == 0


def test_the_shapes_are_those_of_a_story_of_twelve_tokens(course_map):
    shapes = {name: part.shape for name, part in course_map.parts.items()}
    V = preset("tinytown").vocab_size
    stream = dict.fromkeys([*IN_BLOCKS, "token embedding", "positions", "residual stream", "final norm"], (1, 12, 128))
    ends = {"text to ids": (1, 12), "output": (1, 12, V), "last logits": (1, V), "sampling": (1,)}
    assert shapes == stream | ends
    for part in course_map.parts.values():
        assert len(part.letters.split(", ")) == len(part.shape)


def test_looking_at_a_model_leaves_it_as_it_was(small, tokenizer):
    small.train()
    built.parts_of(small, tokenizer, PROMPT)
    assert small.training
    assert not any(module._forward_hooks for module in small.modules())
    with pytest.raises(ValueError, match="max_seq_len"):
        built.parts_of(small, tokenizer, " ".join(["cat"] * 60))
    assert not any(module._forward_hooks for module in small.modules())
    small.eval()


def test_every_part_can_be_pressed_and_tells_its_own(course_map, monkeypatch):
    monkeypatch.setattr(live, "png", lambda figure: b"")
    total = count_parameters(preset("tinytown")).total
    for name, part in course_map.parts.items():
        course_map.buttons[name].click()
        assert course_map.chosen == name
        assert part.does in course_map.text
        assert f"shape {part.shape}: ({part.letters})" in course_map.text
        assert ("each of the 4 blocks" in course_map.text) == (name in IN_BLOCKS)
        title = course_map._panel.drawing.headline.get_text()
        if part.parameters:
            assert f"{part.parameters:,} parameters" in course_map.text
            assert title.startswith(f"{name}: {part.parameters:,} parameters, ")
            percent = title.split(", ")[-1].removesuffix(" of the model")
            share = 100 * part.parameters / total
            assert percent == (f"{share:.0f}%" if share >= 0.5 else "under 1%")
        else:
            assert title == f"{name}: no parameters"
        marked = [other for other, button in course_map.buttons.items() if button.description.startswith("▸ ")]
        assert marked == [name]
        assert {button.description.removeprefix("▸ ") for button in course_map.buttons.values()} == set(
            course_map.parts
        )


def test_the_chosen_bar_stands_out_by_colour_and_weight(course_map, monkeypatch):
    monkeypatch.setattr(live, "png", lambda figure: b"")
    owners = [name for name, part in course_map.parts.items() if part.parameters]
    for name in course_map.parts:
        course_map.select(name)
        axes, rows = course_map._panel.figure.axes[0], course_map._panel.drawing.rows
        assert [label.get_text() for label in axes.get_yticklabels()] == owners
        assert [bar.get_width() for bar in rows.bars] == [course_map.parts[owner].parameters for owner in owners]
        for owner, bar, number, label in zip(owners, rows.bars, rows.numbers, axes.get_yticklabels()):
            chosen = owner == name
            assert (bar.get_facecolor() == to_rgba(ORANGE)) == chosen
            assert number.get_weight() == label.get_weight() == ("bold" if chosen else "normal")


def test_a_redrawn_share_figure_equals_a_fresh_one_and_cuts_nothing_off(course_map):
    parts = list(course_map.parts.values())
    moved = figures.ShareBars(parts, "attention").draw()
    for part in parts:
        moved.update(chosen=part.name)
        assert drawn(moved.figure) == drawn(figures.ShareBars(parts, part.name).figure)
        assert_nothing_is_cut_off(moved.figure)


def test_the_page_without_a_kernel_shows_the_whole_map(course_map):
    course_map.select("sampling")
    (width,) = re.findall(r'<img alt="attention: Lets each token look[^"]*" width="(\d+)"', course_map.still)
    assert int(width) <= 950
    assert repr(course_map).startswith("[live map] attention: Lets each token look")
    lines = repr(course_map).splitlines()[1:]
    assert [line[:15].strip() for line in lines] == list(course_map.parts)
    for line, part in zip(lines, course_map.parts.values()):
        assert str(part.shape) in line
        assert f"{part.parameters:,}" in line
        assert line.endswith(f"chapter {part.chapter}")


def test_the_picture_of_the_map_holds_every_part_for_any_choice(course_map):
    parts = list(course_map.parts.values())
    for chosen in course_map.parts:
        figure = figures.model_map(parts, chosen, 4)
        written = [text.get_text() for axes in figure.axes for text in axes.texts]
        for part in parts:
            assert part.name in written
            assert str(part.shape) in written
            assert not part.parameters or any(text.startswith(f"{part.parameters:,}  (") for text in written)
        assert "4 ×" in written
        assert written.count("none") == 3
        assert "shares the token embedding" in written
        boxes = [box for box in figure.axes[0].patches if box.get_facecolor() == to_rgba(ORANGE)]
        orange = [(box.get_x() + box.get_width() / 2, box.get_y() + box.get_height() / 2) for box in boxes]
        (place,) = [text.get_position() for text in figure.axes[0].texts if text.get_text() == chosen]
        assert orange == [pytest.approx(place)], "the chosen part's box and no other"
        assert_nothing_is_cut_off(figure)


def test_only_chapters_that_are_here_are_linked(course_map, tmp_path, monkeypatch):
    (tmp_path / "02_attention.ipynb").touch()
    monkeypatch.setattr(built, "NOTEBOOKS", tmp_path)
    course_map.select("attention")
    course_map.select("positions")
    assert course_map.chapter.value == "Chapter 5: Positional encoding"
    course_map.select("attention")
    link = '<a href="02_attention.ipynb" target="_blank">Chapter 2: Scaled dot-product attention</a>'
    assert course_map.chapter.value == link


def test_every_part_has_a_chapter_with_a_name(course_map):
    assert all(0 < part.chapter < len(built.CHAPTERS) for part in course_map.parts.values())


def test_the_tab_key_follows_the_flow(course_map):
    cells = [child for child in course_map.children[0].children if isinstance(child, widgets.Button)]
    assert cells == [course_map.buttons[name] for name in course_map.parts]


def test_cells_of_the_map_do_not_overlap(course_map):
    taken = {}
    for button in course_map.buttons.values():
        top, left, bottom, right = map(int, button.layout.grid_area.split(" / "))
        for cell in [(row, column) for row in range(top, bottom) for column in range(left, right)]:
            assert cell not in taken, f"{button.description} lies on {taken[cell]}"
            taken[cell] = button.description


def test_an_unknown_part_is_refused_with_the_names_of_the_others(course_map, course_model, tokenizer):
    with pytest.raises(ValueError, match=r"no part 'heads' on the map.+: text to ids, token embedding"):
        course_map.select("heads")
    assert course_map.chosen == "attention"
    with pytest.raises(ValueError, match="no part 'heads'"):
        built.ModelMap(course_model, tokenizer, PROMPT, chosen="heads")


def assert_nothing_is_cut_off(figure):
    figure.draw_without_rendering()
    page = figure.bbox
    for text in [*figure.texts, *(text for axes in figure.axes for text in [*axes.texts, *axes.get_yticklabels()])]:
        if text.get_text():
            box = text.get_window_extent()
            assert page.x0 <= box.x0, text
            assert box.x1 <= page.x1, text
            assert page.y0 <= box.y0, text
            assert box.y1 <= page.y1, text
