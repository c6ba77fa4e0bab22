"""Chapter 10's figures and live figures: their data against built models, over the whole range of every slider."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from bills import BUILDABLE, built_components, contents, overlapping_or_outside, states_of
from hypothesis import given
from hypothesis import strategies as st
from sliders import too_wide

from course_lib.chapters.counting import figures
from course_lib.chapters.counting import widgets as widgets
from course_lib.config import PRESETS
from course_lib.counting import count_parameters, kv_cache_bytes
from course_lib.live import figure as live

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
    assert figures.shown_as(biggest) in drawn.title.get_text()


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
        assert f"{figures.shown_as(biggest)} {figures.percent(widths[biggest])}" in bill.text
        assert figures.percent(widths[biggest]) in parts.parameters.title.get_text()
        rows = [sum(bar.get_width() for bar in row.values()) for row in parts.memory.bars]
        assert max(rows) == pytest.approx(1)
        assert rows[1] == pytest.approx(rows[2])


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"vocab_size": 343, "d_model": 64, "n_layers": 1, "max_seq_len": 131072},
        {"vocab_size": 343, "d_model": 64, "n_layers": 96, "ff_ratio": 0.5, "max_seq_len": 131072, "style": "llama"},
        {"vocab_size": 256000, "d_model": 8192, "n_layers": 96, "ff_ratio": 8.0, "tie_weights": False},
        {"group": 8, "style": "llama"},
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
        ((30000, 6, 512, True), "44%: the largest part, but less than half"),
        ((30000, 6, 512, False), "62%: most of the model"),
        ((50257, 12, 768, True), "31%: less than the feed-forward layers"),
        ((343, 4, 128, True), "5%: less than the feed-forward layers"),
    ],
)
def test_the_title_gives_the_verdict_on_the_claim(state, says):
    title = figures.EmbeddingShare(*state).draw().headline.get_text()
    assert title == f"At d_model = {state[2]:,} the token tables make up {says}"


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
