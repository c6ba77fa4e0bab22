"""Chapter 14's figures and live figures: what they draw, computed another way, over every value of every control."""

import re
from itertools import product

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from sliders import drawn, values

from course_lib.chapters.efficiency import figures
from course_lib.chapters.efficiency import widgets as built
from course_lib.config import preset
from course_lib.counting import kv_cache_bytes

pytestmark = pytest.mark.usefixtures("no_pixels")
MAKERS = [built.length_sliders, built.online_softmax, built.cache_sliders]


def test_pairs_and_linear_layers_meet_at_six_times_the_width():
    figure = built.length_sliders()
    for T, d_model in product(values(figure._controls["T"]), values(figure._controls["d_model"])):
        figure.render(T=T, d_model=d_model)
        parts = figure.drawing
        lengths, pairs = parts.pairs.get_data()
        linear = parts.linear.get_ydata()
        assert np.all((pairs > linear) == (lengths > 6 * d_model))
        assert f"They break even at T = {6 * d_model:,}." in figure.text
        told = re.search(r"pairs is (under )?(\d+)% of", figure.figure.get_suptitle())
        share = 100 * T / (T + 6 * d_model)
        assert share < 0.5 if told[1] else abs(int(told[2]) - share) <= 0.5


def test_a_step_with_the_cache_draws_every_key_and_value_and_the_new_querys_weights():
    words, weights = ["a", "b", "c", "d", "e"], np.array([0.1, 0.2, 0.05, 0.6, 0.05])
    figure = figures.one_step_with_cache(words, weights, first=2, d_head=8)
    (axes,) = figure.axes
    texts = [text.get_text() for text in axes.texts]
    assert {"2 more", "c", "d", "e", "(5, 8)", "(1, 8)", "(1, 5)", "query"} <= set(texts)
    bars = [patch for patch in axes.patches if patch.get_facecolor() == to_rgba(figures.BLUE)]
    heights = np.array([-bar.get_height() for bar in bars])
    np.testing.assert_allclose(heights / heights.sum(), [0.3, 0.05, 0.6, 0.05])
    new = [patch for patch in axes.patches if patch.get_facecolor() == to_rgba(figures.ORANGE)]
    kept = [patch for patch in axes.patches if patch.get_facecolor() == to_rgba(figures.SKY)]
    assert len(new) == 4, "hidden state, query, key, value of the newest token"
    assert len(kept) == 2 * 3, "a key and a value for each earlier column"


def test_the_tiles_of_a_causal_model_are_those_on_and_below_the_diagonal():
    states = [(1.0, 2.0, 0.0, 0.25), (3.0, 1.5, 0.14, 0.75), (3.0, 1.75, 1.0, 0.5)]
    figure = figures.tiles(["w"] * 8 + ["x"], states, block=4, key=8)
    left, right = figure.axes
    drawn_tiles = [patch for patch in left.patches if patch.get_hatch() is None]
    assert len(drawn_tiles) == 6
    assert len(left.patches) == 9
    sizes = sorted((patch.get_width(), patch.get_height()) for patch in left.patches)
    assert sizes[0] == (1, 1), "the last block is what is left over"
    cells = [text.get_text() for text in right.texts]
    for cell in ("1 to 4", "9 to 9", "3.00", "0.140", "1.75", "0.75"):
        assert cell in cells
    assert "“x” is 0.50" in figure.get_suptitle()


@pytest.mark.parametrize("block", [1, 2, 4, 8])
def test_softmax_in_blocks_has_at_every_block_the_softmax_of_the_keys_so_far(block):
    scores, mixed = torch.tensor(built.SCORES), torch.tensor(built.VALUES)
    for i, (maximum, total, average) in enumerate(built.online(built.SCORES, built.VALUES, block)):
        read = (i + 1) * block
        assert maximum == scores[:read].max()
        assert total * np.exp(maximum) == pytest.approx(scores[:read].exp().sum().item())
        assert average == pytest.approx((scores[:read].softmax(0) @ mixed[:read]).item())


def test_every_block_of_the_reader_is_drawn():
    reader = built.online_softmax()
    for block, share in product(values(reader._controls["block"]), values(reader._controls["share"])):
        reader.render(block=block, share=share)
        read = -(-share // block) * block
        parts = reader.drawing
        assert reader.figure.get_suptitle().startswith(f"{read} of 8 keys read")
        assert len({bar.get_facecolor() for bar in list(parts.bars)[:read]}) == 1
        assert parts.line.get_xdata()[-1] == read
        expected = torch.tensor(built.SCORES[:read]).softmax(0) @ torch.tensor(built.VALUES[:read])
        assert parts.line.get_ydata()[-1] == pytest.approx(expected.item())


def test_the_cache_is_drawn_against_the_weights():
    figure = built.cache_sliders()
    controls = figure._controls
    for T, batch, group in product(*(values(controls[name]) for name in ("T", "batch", "group"))):
        figure.render(model="llama-7b", T=T, batch=batch, group=group)
        cache = 2 * 32 * batch * T * (32 // group) * 128 * 2  # two vectors, 32 layers, heads of 128, 2 bytes
        weights = 2 * (6_738_415_616 - 2 * 32 * 4096 * (4096 - 4096 // group))  # W_K and W_V shrink with the group
        bars = figure.drawing.memory
        assert bars[1].get_width() / bars[0].get_width() == pytest.approx(cache / weights)
        shared, own = figure.drawing.step
        read = weights - 2 * 32_000 * 4096
        assert shared.get_width() / bars[0].get_width() == pytest.approx(read / weights), "all but the looked-up table"
        assert own.get_x() == shared.get_width()
        assert own.get_width() == bars[1].get_width(), "and each brings a cache"
        assert f"{32 // group} key-value heads" in figure.text
        times = float(figure.figure.get_suptitle().split("a token takes ")[1].split(" times")[0].replace(",", ""))
        assert 0.8 * T < times <= 1.01 * T  # everything once more for each token; the pairs are shared
    figure.render(model="llama-3-8b", T=8192, batch=1, group=4)
    assert kv_cache_bytes(preset("llama-3-8b"), 8192) == 2**30, "1.07 GB"
    assert "Cache 1.07 GB" in figure.figure.get_suptitle()
    figure.render(model="llama-3-8b", T=8192, batch=16, group=4)
    assert "reads 15.0 GB of the weights, and the cache: 32.2 GB together." in figure.text, "twice one text's 16.1 GB"


def test_work_on_a_logarithmic_axis_is_told_by_places_and_not_by_lengths():
    """8,192 times the work in a bar twice as long would be a lie: dots, and an axis with its figures."""
    figure = built.cache_sliders()
    for T, batch in product(values(figure._controls["T"]), values(figure._controls["batch"])):
        figure.render(model="llama-7b", T=T, batch=batch, group=1)
        right = figure.drawing.right
        assert right.get_xscale() == "log"
        assert "log" in right.get_xlabel()
        assert not right.patches
        with_cache, without = (dot.get_xdata()[0] for dot in figure.drawing.work)
        linear, pairs = 2 * (6_738_415_616 - 32_000 * 4096 - 65 * 4096), 32 * 4 * 4096 * T
        assert with_cache == batch * (linear + pairs)
        assert without == T * with_cache
        low, high = right.get_xlim()
        assert low < with_cache < without < high / 100, "with room for its figure"
    assert [label.get_text() for label in right.get_xticklabels()] == ["1 G", "1 T", "1 P", "1 EFLOP"]


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (built.length_sliders, {"T": 4096, "d_model": 64}),
        (built.online_softmax, {"block": 4, "share": 8}),
        (built.cache_sliders, {"model": "llama-7b", "batch": 64, "group": 1}),
    ],
)
def test_a_second_draw_equals_a_fresh_one(make, state):
    moved, fresh = make(), make()
    moved.render(**state)
    assert drawn(moved.figure) == drawn(fresh._draw(**fresh.state | state).figure)


@pytest.mark.parametrize("make", MAKERS)
def test_live_figures_become_pictures(make, pixels):
    assert make().render().startswith(b"\x89PNG")
