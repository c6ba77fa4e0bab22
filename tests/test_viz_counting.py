"""Chapter 10's figures and live figures: their data against built models, over the whole range of every slider."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.patches import Rectangle
from sliders import too_wide, values

from course_lib.chapters.counting import figures
from course_lib.chapters.counting import widgets as widgets
from course_lib.config import PRESETS, TransformerConfig
from course_lib.counting import count_parameters, kv_cache_bytes
from course_lib.gpt import DecoderOnly
from course_lib.live import explore
from course_lib.live import figure as live

SMALL = TransformerConfig(vocab_size=50, d_model=24, n_heads=4, n_layers=3, d_ff=40, max_seq_len=16)
BUILDABLE = [
    SMALL,
    replace(SMALL, tie_weights=False, vocab_size=7),
    replace(SMALL, bias=False, positions="sinusoidal"),
    PRESETS["gpt2"],
]
COMPONENT_OF = {
    "norm": "norms",
    "token_embedding": "token embedding",
    "positions": "position embedding",
    "attention": "attention",
    "feed_forward": "feed-forward",
    "output": "output head",
}


def built_components(config):
    """Parameters by component of the model that is really built, on the meta device; and all of them."""
    with torch.device("meta"):
        model = DecoderOnly(config)
    counts = dict.fromkeys(figures.COLOURS, 0)
    for name, parameter in model.named_parameters():
        counts[next(component for word, component in COMPONENT_OF.items() if word in name)] += parameter.numel()
    return counts, sum(parameter.numel() for parameter in model.parameters())


def contents(figure):
    """What the artists of a figure show, so that two figures can be compared."""
    shown = []
    for axes in figure.axes:
        shown += [(t.get_text(), t.get_visible(), *np.round(t.get_position(), 9)) for t in axes.findobj(is_text)]
        shown += [
            (round(p.get_x(), 9), round(p.get_width(), 9), p.get_facecolor())
            for p in axes.patches
            if isinstance(p, Rectangle)
        ]
        shown += [(line.get_visible(), *np.round(np.asarray(line.get_xydata()).ravel(), 9)) for line in axes.lines]
    return shown


def is_text(artist):
    return hasattr(artist, "get_text")


def states_of(figure):
    """The whole range of each control with the others at their defaults, then every combination of extremes."""
    controls = figure._controls
    for name, control in controls.items():
        for value in values(control):
            yield {name: value}
    ends = [[stops[0], stops[-1]] for stops in map(values, controls.values())]
    corners = list(itertools.product(*ends))
    yield from (dict(zip(controls, corner)) for corner in corners[:: max(1, len(corners) // 64)])


def overlapping_or_outside(figure):
    """Texts that leave the picture at a side, and pairs of texts that overlap."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    boxes = []
    for axes in figure.axes:
        ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()] if axes.axison else []
        titles = [axes.title, axes._left_title, *([axes.xaxis.label, axes.yaxis.label] if axes.axison else [])]
        texts = [text for text in [*axes.texts, *titles, *ticks] if text.get_visible() and text.get_text()]
        boxes += [(text.get_text(), text.get_window_extent(renderer).padded(-1)) for text in texts]
    outside = [text for text, box in boxes if box.x0 < 0 or box.x1 > figure.bbox.x1 or box.y0 < 0]
    return outside + [(a, b) for (a, one), (b, two) in itertools.combinations(boxes, 2) if one.overlaps(two)]


# --- one model, whole -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", BUILDABLE)
def test_the_bars_of_a_bill_are_the_shares_of_the_built_model(config):
    parts, total = built_components(config)
    drawn = figures.ParameterBill(config).draw().parameters
    start = 0
    for component, value in parts.items():
        assert drawn.bars[component].get_x() == pytest.approx(start)
        assert drawn.bars[component].get_width() == pytest.approx(value / total)
        assert drawn.lines[component].get_visible() == (value > 0)
        start += value / total
    biggest = max(parts, key=parts.get)
    assert figures.short(total) in drawn.title.get_text()
    assert figures.percent(parts[biggest] / total) in drawn.title.get_text()
    assert biggest in drawn.title.get_text()


@pytest.mark.parametrize("config", BUILDABLE)
def test_memory_and_flops_of_a_bill_are_those_of_the_built_model(config):
    parts, total = built_components(config)
    bill = figures.ParameterBill(config).draw()
    cache = 2 * config.n_layers * config.max_seq_len * config.d_model * 2
    expected = [2 * total + cache, 16 * total, 16 * total]
    lengths = [sum(bar.get_width() for bar in row.values()) for row in bill.memory.bars]
    np.testing.assert_allclose(lengths, np.array(expected) / max(expected))
    for text, bytes_needed in zip(bill.memory.totals, expected):
        assert text.get_text().startswith(figures.short(bytes_needed, "B"))
    halves = bill.memory.bars[2]
    assert halves["weights"].get_width() == pytest.approx(halves["AdamW moments"].get_width() / 4)
    assert halves["float32 master copy"].get_width() == pytest.approx(2 * halves["weights"].get_width())

    biases = sum(p for p in (config.n_layers * (5 * config.d_model + config.d_ff) * config.bias,))
    weights = parts["attention"] + parts["feed-forward"] - biases + config.vocab_size * config.d_model
    flops = 2 * weights + 4 * config.max_seq_len * config.d_model * config.n_layers
    assert figures.short(flops, "FLOP") in bill.memory.note.get_text()


@pytest.mark.parametrize("second", [*BUILDABLE, PRESETS["llama-3-8b"], PRESETS["bert-base"]])
def test_a_redrawn_bill_equals_a_fresh_one(second):
    redrawn = figures.ParameterBill(PRESETS["llama-7b"]).draw()
    redrawn.update(config=second)
    assert contents(redrawn.figure) == contents(figures.ParameterBill(second).figure)


@pytest.mark.parametrize("name", widgets.DECODERS)
def test_choosing_a_model_sets_the_sliders_to_it(name):
    bill = widgets.parameter_bill(start="tinytown")
    bill.model.value = name
    assert (
        count_parameters(widgets.config_of(**bill.state)).by_component == count_parameters(PRESETS[name]).by_component
    )
    assert bill.text.startswith(f"{count_parameters(PRESETS[name]).total:,} parameters")
    assert bill.model.value == name


def test_sliders_keep_the_cache_of_grouped_heads():
    config = PRESETS["llama-3-8b"]
    assert kv_cache_bytes(widgets.config_of(**widgets.settings(config)), T=9) == kv_cache_bytes(config, T=9)


def test_choosing_a_model_redraws_once(monkeypatch):
    bill = widgets.parameter_bill(start="gpt2")
    drawings = []
    monkeypatch.setattr(live, "png", lambda figure: drawings.append(figure) or b"")
    bill.model.value = "llama-7b"
    assert len(drawings) == 1


@pytest.mark.usefixtures("no_pixels")
def test_moving_a_slider_leaves_the_model_of_the_list():
    bill = widgets.parameter_bill(start="gpt2")
    bill._controls["tie_weights"].value = False
    assert bill.model.value == widgets.OWN
    assert bill.text.startswith("163,037,184 parameters")
    bill.model.value = "gpt2"
    assert bill.text.startswith("124,439,808 parameters")


@pytest.mark.parametrize("config", [PRESETS["bert-base"], replace(PRESETS["gpt2"], norm_position="post")])
def test_a_model_that_the_sliders_cannot_show_is_refused(config):
    with pytest.raises(ValueError, match="pre-norm decoders"):
        widgets.parameter_bill({"other": config}, start="other")


def test_the_bills_controls_stay_on_a_laptops_page():
    assert too_wide(widgets.parameter_bill()) == []


@pytest.mark.usefixtures("no_pixels")
def test_a_bill_is_whole_at_every_setting():
    bill = widgets.parameter_bill()
    for state in states_of(bill):
        bill.render(**state)
        config = widgets.config_of(**(bill.state | state))
        count = count_parameters(config)
        parts = bill.drawing
        widths = {name: bar.get_width() for name, bar in parts.parameters.bars.items()}
        assert sum(widths.values()) == pytest.approx(1)
        assert bill.text.startswith(f"{count.total:,} parameters")
        biggest = max(widths, key=widths.get)
        assert f"{biggest} {figures.percent(widths[biggest])}" in bill.text
        assert figures.percent(widths[biggest]) in parts.parameters.title.get_text()
        rows = [sum(bar.get_width() for bar in row.values()) for row in parts.memory.bars]
        assert max(rows) == pytest.approx(1)
        assert rows[1] == pytest.approx(rows[2])


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"vocab_size": 343, "d_model": 64, "n_layers": 1, "max_seq_len": 131072},
        {"vocab_size": 343, "d_model": 64, "n_layers": 96, "ff_ratio": 0.5, "max_seq_len": 131072, "positions": "rope"},
        {"vocab_size": 256000, "d_model": 8192, "n_layers": 96, "ff_ratio": 8.0, "tie_weights": False},
        {"group": 8, "activation": "swiglu", "norm": "rms", "bias": False, "positions": "rope"},
    ],
)
def test_the_texts_of_a_bill_neither_overlap_nor_leave_the_picture(state):
    bill = widgets.parameter_bill()
    assert bill.render(**state).startswith(b"\x89PNG")
    assert overlapping_or_outside(bill.figure) == []


# --- do embeddings hold the most? -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vocab_size", "n_layers", "tie_weights"), [(30000, 6, True), (30000, 6, False), (343, 2, True)]
)
def test_the_curves_are_the_shares_of_built_models(vocab_size, n_layers, tie_weights):
    share = figures.EmbeddingShare(vocab_size, n_layers, 512, tie_weights).draw()
    for at in (0, 20, -1):
        d_model = figures.WIDTHS[at]
        parts, total = built_components(figures.gpt_like(vocab_size, n_layers, d_model, tie_weights))
        tables = parts["token embedding"] + parts["output head"]
        heights = {name: line.get_ydata()[at] for name, line in share.lines.items()}
        assert heights["token tables"] == pytest.approx(tables / total)
        assert heights["attention"] == pytest.approx(parts["attention"] / total)
        assert heights["feed-forward"] == pytest.approx(parts["feed-forward"] / total)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ((30000, 6, 512, True), "44 %: the largest part, and less than half"),
        ((30000, 6, 512, False), "62 %: most of the model"),
        ((50257, 12, 768, True), "31 %: less than the feed-forward layers"),
        ((343, 4, 128, True), "5 %: less than the feed-forward layers"),
    ],
)
def test_the_title_gives_the_verdict_on_the_claim(state, says):
    title = figures.EmbeddingShare(*state).draw().headline.get_text()
    assert title == f"At d_model = {state[2]:,} the token tables hold {says}"


@given(
    vocab_size=st.integers(2000, 300_000),
    n_layers=st.integers(1, 96),
    ratio=st.sampled_from([0.9, 1.1]),
    tied=st.booleans(),
)
def test_the_tables_lead_below_the_width_of_the_rule(vocab_size, n_layers, ratio, tied):
    crossing = (1 if tied else 2) * vocab_size / (8 * n_layers)
    d_model = max(round(ratio * crossing), 40)  # at a handful of features the biases count as much as the weights
    shares = figures.three_shares(count_parameters(figures.gpt_like(vocab_size, n_layers, d_model, tied)))
    if abs(d_model / crossing - 1) > 0.05:
        assert (shares["token tables"] > shares["feed-forward"]) == (d_model < crossing)


def test_a_redrawn_share_equals_a_fresh_one():
    redrawn, fresh = figures.EmbeddingShare(343, 96, 64, False).draw(), figures.EmbeddingShare(100000, 3, 2048, True)
    redrawn.update(**fresh.data)
    assert contents(redrawn.figure) == contents(fresh.figure)


@pytest.mark.usefixtures("no_pixels")
def test_the_share_is_described_at_every_setting():
    share = widgets.embedding_share()
    for state in states_of(share):
        share.render(**state)
        now = share.state | state
        dots = {name: dot.get_ydata()[0] for name, dot in share.drawing.dots.items()}
        for name, height in dots.items():
            assert f"{name} {figures.percent(height)}" in share.text
        assert f"d_model = {now['d_model']:,}:" in share.text
        assert share.drawing.here.get_xdata()[0] == now["d_model"]
        heights = sorted(label.get_position()[1] for label in share.drawing.labels.values())
        assert min(np.diff(heights)) >= 0.16 - 1e-9


@pytest.mark.parametrize(
    "state",
    [{}, {"vocab_size": 256000, "n_layers": 1, "d_model": 8192}, {"vocab_size": 343, "n_layers": 96, "d_model": 64}],
)
def test_the_texts_of_the_share_neither_overlap_nor_leave_the_picture(state):
    share = widgets.embedding_share()
    assert share.render(**state).startswith(b"\x89PNG")
    assert overlapping_or_outside(share.figure) == []


@given(heights=st.lists(st.floats(0, 1), min_size=1, max_size=5), gap=st.floats(0.01, 0.2))
def test_labels_are_spread_without_changing_their_order(heights, gap):
    moved = figures.spread(heights, gap)
    assert all(gap / 2 - 1e-9 <= height <= 1 - gap / 2 + 1e-9 for height in moved)
    for (a, one), (b, two) in itertools.combinations(zip(heights, moved), 2):
        assert abs(one - two) >= gap - 1e-9
        assert a == b or (a < b) == (one < two)


# --- several models, and an itemised bill -----------------------------------------------------------------------------


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
    assert f"{figures.percent(parts['feed-forward'] / total)} of gpt2" in figure.axes[0].get_title(loc="left")
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


# --- name the model from its bill -------------------------------------------------------------------------------------


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
        assert "whose" in game.drawing.headline.get_text()
        for guess in PRESETS:
            game.render(bill=bill, guess=guess)
            assert game.text.startswith("✓" if guess == name else "✗")
            assert (name in game.drawing.headline.get_text()) == (guess == name)
    assert sorted(answers) == sorted(PRESETS)
    assert answers != list(PRESETS)


def test_a_wrong_guess_hears_what_speaks_against_it():
    components = {name: count_parameters(PRESETS[name]).by_component for name in ("gpt2", "llama-7b", "gpt2-xl")}
    reason = widgets._difference("gpt2", components["gpt2"], components["llama-7b"])
    assert reason == "gpt2 has 786,432 parameters under position embedding, this bill has none."
    reason = widgets._difference("llama-7b", components["llama-7b"], components["gpt2"])
    assert reason == "this bill has 786,432 parameters under position embedding, llama-7b has none."
    reason = widgets._difference("gpt2-xl", components["gpt2-xl"], components["gpt2"])
    assert "983,424,000" in reason
    assert "56,669,184" in reason


@pytest.mark.usefixtures("no_pixels")
def test_the_next_bill_forgets_the_guess():
    game = widgets.name_the_model(PRESETS)
    game._controls["guess"].value = "gpt2-xl"
    game._controls["bill"].value = 3
    assert game._controls["guess"].value == widgets.ASK
    assert game.text.startswith("Bill 3:")


# --- the learner's own counter ----------------------------------------------------------------------------------------


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
            "too high. The difference is as large as the table of tokens",
        ),
        (lambda config: right(config) - 2 * config.d_model, "128 too low. The difference is as large as one norm"),
        (
            lambda config: right(replace(config, positions="none")),
            "too low. The difference is as large as the table of positions",
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
