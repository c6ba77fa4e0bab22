"""Chapter 10's comparison of models, its game, and the learner's own counter, against built models."""

import itertools
from dataclasses import replace

import pytest
import torch
from bills import BUILDABLE, SMALL, built_components, contents, overlapping_or_outside, states_of

from course_lib.chapters.counting import figures
from course_lib.chapters.counting import widgets as widgets
from course_lib.config import PRESETS, TransformerConfig
from course_lib.counting import count_parameters
from course_lib.live import explore


def test_every_model_of_a_comparison_is_cut_into_its_own_shares():
    configs = {"small": BUILDABLE[0], "untied": BUILDABLE[1], "gpt2": PRESETS["gpt2"]}
    figure = figures.model_shares({name: count_parameters(config) for name, config in configs.items()})
    bars = iter(figure.axes[0].patches)
    texts = [text.get_text() for text in figure.axes[0].texts]
    for config in configs.values():
        parts, total = built_components(config)
        assert [next(bars).get_width() for _ in parts] == pytest.approx([value / total for value in parts.values()])
        assert figures.short(total) in texts
    parts, total = built_components(PRESETS["gpt2"])
    assert f"{figures.percent(parts['token embedding'] / total)} of gpt2" in figure.axes[0].get_title(loc="left")
    assert overlapping_or_outside(figure) == []


def test_an_itemised_bill_says_every_digit():
    parts, total = built_components(PRESETS["gpt2"])
    bill = figures.ItemisedBill(count_parameters(PRESETS["gpt2"]), "title", yours=1234).draw()
    texts = [text.get_text() for text in bill.texts]
    for text, value in zip(texts, parts.values()):
        assert text.startswith(f"{value:,} ") if value else text == "none"
    assert texts[-2:] == [f"{total:,}", "1,234"]
    assert [bar.get_width() for bar in bill.bars] == pytest.approx(
        [value / total for value in [*parts.values(), total, 1234]]
    )


@pytest.mark.parametrize("yours", [None, 0, -5, 12.5, 10**40])
def test_a_redrawn_itemised_bill_equals_a_fresh_one(yours):
    redrawn = figures.ItemisedBill(count_parameters(PRESETS["llama-7b"]), "first", yours=7).draw()
    fresh = figures.ItemisedBill(count_parameters(SMALL), "second", yours=yours)
    redrawn.update(**fresh.data)
    assert contents(redrawn.figure) == contents(fresh.figure)
    assert overlapping_or_outside(redrawn.figure) == []


@pytest.mark.usefixtures("no_pixels")
def test_the_game_tells_right_from_wrong_for_every_bill_and_guess():
    game = widgets.name_the_model(PRESETS)
    answers = []
    for bill in range(1, len(PRESETS) + 1):
        game.render(bill=bill, guess=widgets.ASK)
        total = int(game.drawing.texts[7].get_text().replace(",", ""))
        (name,) = [name for name in PRESETS if count_parameters(PRESETS[name]).total == total]
        answers.append(name)
        assert name not in game.text
        assert "which model" in game.drawing.headline.get_text()
        for guess in PRESETS:
            game.render(bill=bill, guess=guess)
            assert game.text.startswith("✓" if guess == name else "✗")
            assert (name in game.drawing.headline.get_text()) == (guess == name)
    assert sorted(answers) == sorted(PRESETS)
    assert answers != list(PRESETS)


def test_a_wrong_guess_hears_what_speaks_against_it():
    components = {name: count_parameters(PRESETS[name]).by_component for name in ("gpt2", "llama-7b", "gpt2-xl")}
    reason = widgets._difference("gpt2", components["gpt2"], components["llama-7b"])
    assert reason == "gpt2 has 786,432 parameters in the position table, this one has none."
    reason = widgets._difference("llama-7b", components["llama-7b"], components["gpt2"])
    assert reason == "this one has 786,432 parameters in the position table, llama-7b has none."
    reason = widgets._difference("gpt2-xl", components["gpt2-xl"], components["gpt2"])
    assert "983,424,000" in reason
    assert "56,669,184" in reason


@pytest.mark.usefixtures("no_pixels")
def test_the_next_bill_forgets_the_guess():
    game = widgets.name_the_model(PRESETS)
    game._controls["guess"].value = "gpt2-xl"
    game._controls["bill"].value = 3
    assert game._controls["guess"].value == widgets.ASK
    assert game.text.startswith("Count 3:")


def right(config):
    return count_parameters(config).total


@pytest.mark.usefixtures("no_pixels")
def test_the_explorer_agrees_with_a_right_counter_at_every_setting():
    explorer = explore("counting.function", right)
    for state in states_of(explorer):
        explorer.render(**state)
        assert explorer.drawing.headline.get_text().startswith("Your count is right")
        bars = explorer.drawing.bars
        assert bars[7].get_width() == bars[8].get_width() == pytest.approx(1)


@pytest.mark.usefixtures("no_pixels")
def test_the_explorer_shows_the_count_of_the_built_model():
    explorer = explore("counting.function", right)
    for positions, tie, bias in itertools.product(("none", "sinusoidal", "learned"), (True, False), (True, False)):
        explorer.render(positions=positions, tie_weights=tie, bias=bias, n_layers=3)
        config = TransformerConfig(
            vocab_size=1000, d_model=64, n_heads=8, max_seq_len=128, d_ff=200, n_layers=3, positions=positions,
            tie_weights=tie, bias=bias,
        )  # fmt: skip
        assert explorer.drawing.texts[7].get_text() == f"{built_components(config)[1]:,}"


@pytest.mark.parametrize(
    ("wrong", "clue"),
    [
        (
            lambda config: right(replace(config, tie_weights=False)),
            "too high. The difference is as large as the token table",
        ),
        (lambda config: right(config) - 2 * config.d_model, "128 too low. The difference is as large as one norm"),
        (
            lambda config: right(replace(config, positions="none")),
            "too low. The difference is as large as the position table",
        ),
        (lambda config: right(config) + 1, "is 1 too high."),
    ],
)
@pytest.mark.usefixtures("no_pixels")
def test_the_explorer_says_how_far_off_a_count_is_and_what_weighs_that_much(wrong, clue):
    explorer = explore("counting.function", wrong)
    assert clue in explorer.text
    assert explorer.drawing.headline.get_text().startswith("Your count of")


def unsolved(config):
    raise NotImplementedError


def crashes(config):
    return config.no_such_field


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (unsolved, "still empty"),
        (crashes, "raised AttributeError"),
        (lambda: 3, "raised TypeError"),
        (lambda config: None, "value of type NoneType"),
        (lambda config: "many", "value of type str"),
        (lambda config: float("nan"), "returned nan"),
        (lambda config: torch.ones(2), "value of type Tensor"),
        (lambda config: 10**400, "value of type int"),
    ],
)
def test_the_explorer_survives_whatever_a_counter_does(function, says):
    explorer = explore("counting.function", function)
    assert explorer.drawing.headline.get_text().startswith("The right count: ")
    assert says in explorer.text
    assert explorer.drawing.bars[8].get_width() == 0
    explorer._controls["bias"].value = False
    assert says in explorer.text


def test_a_tensor_of_one_number_counts_as_that_number():
    assert "Your count is right" in explore("counting.function", lambda config: torch.tensor(right(config))).text
