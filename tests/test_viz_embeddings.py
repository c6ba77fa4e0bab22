"""Chapter 1's figures and live figures: what they draw, over every value of every control, checked by another way."""

from itertools import combinations, product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sliders import LiveFigureTests

from course_lib.chapters.embeddings import figures
from course_lib.chapters.embeddings import widgets as built
from course_lib.live import explorable, explore
from course_lib.tinytown import ROLES, Tinytown, WordTokenizer

TOKENIZER = WordTokenizer()
KINDS = {
    "animals": ["cat", "dog", "cow"],
    "people": ["king", "queen", "man", "woman"],
    "colours": ["red", "blue", "green"],
    "foods": ["pizza", "soup"],
}


def tables():
    """Three steps of a training that never was: noise at first, then every kind around a centre of its own."""
    rng = torch.Generator().manual_seed(3)
    noise = torch.randn(len(TOKENIZER), 12, generator=rng)
    centres = torch.zeros_like(noise)
    for group in KINDS.values():
        centres[[TOKENIZER.id(word) for word in group]] = 3 * torch.randn(12, generator=rng)
    return {0: 0.1 * noise, 40: 0.5 * centres + 0.3 * noise, 90: centres + 0.5 * noise}


def stories(n):
    return [TOKENIZER.encode(story) for story in Tinytown(5).sample(n)]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Tables without a file."""
    monkeypatch.setattr(built, "embeddings_by_step", tables)
    monkeypatch.setattr(built, "load_pretrained", lambda name: (None, TOKENIZER))


pytestmark = pytest.mark.usefixtures("no_pixels")  # tests that want a real picture ask for `pixels`
MAKERS = {
    "pick_rows": built.pick_rows,
    "watch_words": lambda: built.watch_words(tables(), TOKENIZER, KINDS),
    "neighbours": lambda: built.neighbours(tables(), TOKENIZER, KINDS),
    "analogies": lambda: built.analogies(tables(), TOKENIZER),
    "reached_rows": lambda: built.reached_rows(stories(4), len(TOKENIZER)),
    "scaled_tokens": built.scaled_tokens,
}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def make(request):
    return request.param


class TestEveryLiveFigure(LiveFigureTests):
    pass


# -------------------------------------------------------------------------------------------------------------- look-up
def cells(figure, panel):
    axes = figure.axes[panel]
    height, width = len(axes.get_yticks()), len(axes.get_xticks())
    return np.array([float(text.get_text().replace("?", "nan")) for text in axes.texts]).reshape(height, width)


@pytest.mark.parametrize("ids", [(0, 0, 0), (4, 1, 4), (5, 3, 0)])
def test_the_look_up_figure_shows_a_true_product(ids):
    figure = built.pick_rows()
    figure.render(**dict(zip(("first", "second", "third"), ids)))
    one_hot, table, result = (cells(figure.figure, panel) for panel in range(3))
    np.testing.assert_array_equal(one_hot @ table, result)
    assert one_hot.argmax(1).tolist() == list(ids)
    asked = ", ".join(map(str, ids))
    assert figure.drawing.headline.get_text() == f"Ids {asked}: the result is rows {asked} of the table, in that order"
    marked = [row for row, frame in enumerate(figure.drawing.frames[1]) if frame.get_linewidth() > 2]
    assert marked == sorted(set(ids))


def raises(*arguments):
    raise IndexError("row 9 is not there")


def all_nan(weight, ids):
    return weight[ids] * torch.nan


def unanswered(*arguments):
    raise NotImplementedError


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (unanswered, "still empty"),
        (raises, "IndexError: row 9 is not there"),
        (lambda weight, ids: None, "returns NoneType"),
        (lambda weight, ids: weight[ids[0]], "a tensor of shape (3, 3); expected a tensor of shape (1, 3, 3)"),
        (lambda weight, ids: weight[ids - 1], "not the row of the id"),
        (all_nan, "not the row of the id"),
        (lambda weight: weight, "TypeError"),
    ],
)
@pytest.mark.parametrize("exercise", ["embeddings.lookup", "embeddings.one_hot"])
def test_whatever_a_learners_look_up_does_the_figure_says_so(exercise, function, said):
    figure = explore(exercise, function)
    assert said in figure.text
    title = figure.drawing.headline.get_text()
    wrong = (
        "the result is wrong at position 0, 1, 2 (dashed)"
        if said.startswith("not the row")
        else "there is no result to show"
    )
    assert title.endswith(wrong if function is not all_nan else "there is no result to show")


# ------------------------------------------------------------------------------------------------------- words on a map
def test_principal_axes_are_the_first_eigenvectors_of_the_covariance():
    cloud = np.random.default_rng(0).normal(size=(40, 7)) * [5, 3, 1, 1, 1, 0.5, 0.1]
    centre, axes, kept = figures.principal_axes(torch.tensor(cloud))
    variances, directions = np.linalg.eigh(np.cov(cloud.T))
    np.testing.assert_allclose(centre, cloud.mean(0))
    np.testing.assert_allclose(np.abs(axes.numpy()), np.abs(directions[:, [-1, -2]]), atol=1e-9)
    assert kept == pytest.approx(variances[-2:].sum() / variances.sum())
    assert all(column[column.abs().argmax()] > 0 for column in axes.T), "the sign is fixed"


def test_the_map_of_every_step_lies_in_the_plane_of_the_last_one():
    figure = built.watch_words(tables(), TOKENIZER, KINDS)
    rows = [TOKENIZER.id(word) for group in KINDS.values() for word in group]
    last = tables()[90][rows].double().numpy()
    directions = np.linalg.svd(last - last.mean(0))[2][:2].T
    for step, table in tables().items():
        figure.render(step=step)
        shown = np.concatenate([dots.get_xydata() for dots in figure.drawing.dots])
        expected = (table[rows].double().numpy() - last.mean(0)) @ directions
        np.testing.assert_allclose(np.abs(shown), np.abs(expected), atol=1e-9)
        (left, right), (low, high) = figure.figure.axes[0].get_xlim(), figure.figure.axes[0].get_ylim()
        assert left < shown[:, 0].min() <= shown[:, 0].max() < right
        assert low < shown[:, 1].min() <= shown[:, 1].max() < high


def test_the_map_counts_the_words_whose_nearest_neighbour_is_of_their_kind():
    figure = built.watch_words(tables(), TOKENIZER, KINDS)
    kind = {word: name for name, group in KINDS.items() for word in group}
    for step, table in tables().items():
        vectors = {word: table[TOKENIZER.id(word)].numpy() for word in kind}

        def nearest(word, vectors=vectors):
            others = [other for other in vectors if other != word]
            return max(others, key=lambda o: vectors[o] @ vectors[word] / np.linalg.norm(vectors[o]))

        own = sum(kind[nearest(word)] == kind[word] for word in kind)
        figure.render(step=step)
        assert figure.text.startswith(f"Step {step}: {own} of {len(kind)} words have a word of their own kind")
        assert figure.drawing.headline.get_text() in figure.text


@pytest.mark.parametrize("spread", [0.02, 0.3, 1.0])
def test_labels_on_the_map_cover_neither_each_other_nor_a_dot(spread):
    rng = torch.Generator().manual_seed(1)
    centres = torch.tensor([[-1.0, 1], [1, 1], [1, -1], [0, 0]])
    points = torch.cat([c + spread * torch.randn(len(g), 2, generator=rng) for c, g in zip(centres, KINDS.values())])
    word_map = figures.WordMap(points.double(), KINDS, (-3, 3, -3, 3), "Words").draw()
    word_map.figure.draw_without_rendering()
    labels = [label for label in [*word_map.names, *word_map.words] if label.get_visible()]
    assert len(labels) > len(KINDS), "there is room for some words at least"
    boxes = [label.get_window_extent() for label in labels]
    for one, other in combinations(boxes, 2):
        assert not one.overlaps(other)
    dots = word_map.axes.transData.transform(points.numpy())
    assert not any(box.contains(*dot) for box in boxes for dot in dots)


def test_every_kind_keeps_its_name_on_the_map_even_in_a_crowd():
    word_map = figures.WordMap(torch.zeros(12, 2).double(), KINDS, (-1, 1, -1, 1), "All in one place").draw()
    assert all(name.get_visible() for name in word_map.names)
    assert len({dots.get_marker() for dots in word_map.dots}) == len(KINDS), "colour is never alone"


def test_play_moves_the_step():
    figure = built.watch_words(tables(), TOKENIZER, KINDS)
    steps, play = figure.children[0].children
    play.value = 1
    assert steps.value == 40
    assert figure.text.startswith("Step 40:")


# ----------------------------------------------------------------------------------------------------------- neighbours
def bars(figure):
    """label -> (length, filled) of the bars that are shown."""
    parts = figure.drawing
    labels = [label.get_text() for label in parts.axes.get_yticklabels()]
    return {
        label: (bar.get_width(), not bar.get_hatch())
        for label, bar in zip(labels, parts.bars)
        if label not in ("", "–")
    }


@pytest.mark.parametrize("word", ["cat", "king", "soup"])
@pytest.mark.parametrize("step", [0, 40, 90])
def test_neighbours_are_those_of_a_plain_loop(step, word):
    figure = built.neighbours(tables(), TOKENIZER, KINDS)
    figure.render(step=step, word=word)
    vectors = tables()[step].double().numpy()
    own = vectors[TOKENIZER.id(word)]
    cosine = {
        token: vector @ own / np.linalg.norm(vector) / np.linalg.norm(own)
        for token, vector in zip(TOKENIZER.tokens, vectors)
        if token != word
    }
    best = sorted(cosine, key=cosine.get, reverse=True)[:8]
    shown = bars(figure)
    assert list(shown) == best
    assert [length for length, _ in shown.values()] == pytest.approx([cosine[token] for token in best], abs=1e-5)
    kind, group = next((name, group) for name, group in KINDS.items() if word in group)
    assert [token for token, (_, filled) in shown.items() if filled] == [token for token in best if token in group]
    of_kind = sum(token in group for token in best)
    assert figure.text.startswith(f"Step {step}: {of_kind} of the 8 nearest to “{word}” are also {kind}")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("king man woman", "queen"),
        ("prince boy girl", "princess"),
        ("king queen princess", "prince"),
        ("man king prince", "boy"),
        ("queen queen man", "man"),
        ("king king king", "king"),
        ("king woman man", None),
    ],
)
def test_the_fourth_corner_of_peoples_features(words, answer):
    assert built.fourth_corner(*words.split()) == answer


@pytest.mark.parametrize("leave_out", [True, False])
def test_analogies_show_the_place_of_the_answer(leave_out):
    figure = built.analogies(tables(), TOKENIZER)
    for step, (a, b, c) in product(
        tables(), [("king", "man", "woman"), ("queen", "king", "man"), ("boy", "girl", "boy")]
    ):
        figure.render(step=step, a=a, b=b, c=c, leave_out=leave_out)
        table = tables()[step]
        target = table[TOKENIZER.id(a)] - table[TOKENIZER.id(b)] + table[TOKENIZER.id(c)]
        cosine = F.cosine_similarity(table.double(), target.double()[None])
        order = [TOKENIZER.tokens[i] for i in cosine.argsort(descending=True)]
        order = [token for token in order if not (leave_out and token in (a, b, c))][:8]
        wanted = built.fourth_corner(a, b, c)
        assert list(bars(figure)) == order
        if wanted is None:
            assert "is no one in Tinytown" in figure.text
        else:
            place = f"rank {order.index(wanted) + 1}." if wanted in order else "no rank among the first 8."
            assert f"“{wanted}” {place}" in figure.text


def test_explorers_are_driven_by_the_learners_function():
    def farthest(weight, index, k):
        return F.cosine_similarity(weight, weight[index][None]).argsort()[:k]

    figure = explore("embeddings.nearest", farthest)
    assert max(length for length, _ in bars(figure).values()) < 0
    wrong = explore("embeddings.analogy", lambda weight, a, b, c, k: torch.tensor([a, b, c]))
    assert list(bars(wrong)) == ["king", "man", "woman"]
    assert "“queen” no rank among the first 3" in wrong.text
    assert {"embeddings.lookup", "embeddings.nearest", "embeddings.analogy"} <= set(explorable())


@pytest.mark.parametrize("exercise", ["embeddings.nearest", "embeddings.analogy"])
@pytest.mark.parametrize(
    ("function", "said"),
    [
        (unanswered, "still empty"),
        (raises, "IndexError: row 9 is not there"),
        (lambda weight, *rest: None, "should return the indices"),
        (lambda weight, *rest: weight[0], "should return the indices"),
        (lambda weight, *rest: [], "should return the indices"),
        (lambda weight, *rest: torch.tensor(3), "should return the indices"),
        (lambda weight, *rest: [0, 999], f"returned 999, and the rows are 0 … {len(TOKENIZER) - 1}"),
        (lambda: 1, "TypeError"),
    ],
)
def test_whatever_a_learners_search_does_the_figure_says_so(exercise, function, said):
    figure = explore(exercise, function)
    assert said in figure.text
    assert bars(figure) == {}
    assert figure.drawing.headline.get_text() == "No answer to show"


# ------------------------------------------------------------------------------------------------ gradients and scaling
def test_the_figure_shows_which_rows_an_untied_table_was_asked_for():
    batch = stories(4)
    figure = built.reached_rows(batch, len(TOKENIZER))
    for n in range(1, 5):
        figure.render(n=n)
        read = {i for story in batch[:n] for i in story[:-1]}
        untied, tied = figure.drawing.lines
        heights = [segment[1][1] for segment in untied.get_segments()]
        assert {row for row, height in enumerate(heights) if height > 1e-7} == read
        assert all(segment[1][1] > 1e-7 for segment in tied.get_segments())
        assert figure.text.startswith(f"With untied tables, the {len(read)} rows that were looked up")
        titles = [title.get_text() for title in figure.drawing.titles]
        noun = "1 story" if n == 1 else f"{n} stories"
        assert titles[0] == f"Untied, {noun}: {len(read)} of {len(TOKENIZER)} rows get a gradient"
        assert titles[1] == f"Tied, {noun}: {len(TOKENIZER)} of {len(TOKENIZER)} rows get a gradient"


def test_making_the_gradient_figure_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    built.reached_rows(stories(1), len(TOKENIZER))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("d_model", [16, 128, 1024])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("start", "spread"), list(zip(built.STARTS, (1.0, 0.02, None))))
def test_sizes_of_tokens_and_positions_follow_their_formulas(d_model, scaled, start, spread):
    figure = built.scaled_tokens()
    figure.render(d_model=d_model, start=start, scaled=scaled)
    token, position = (bar.get_width() for bar in figure.drawing.bars)
    expected = (spread or d_model**-0.5) * (d_model**0.5 if scaled else 1)
    assert token == pytest.approx(expected, rel=0.03)  # 200 · d_model draws
    assert position == pytest.approx(0.5**0.5, rel=1e-5)  # sin² + cos² = 1, half of it for each
    title = figure.drawing.headline.get_text()
    ratio = token / position
    assert ("times as large" in title) == (ratio >= 1.05)
    assert ("times as small" in title) == (ratio <= 1 / 1.05)
    same_word = float(title.split()[-1])
    # token and position are independent: cos ≈ (t² + p·q) / (t² + p²), per feature
    angle = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    overlap = (37 / 10000**angle).cos().mean().item() / 2
    assert same_word == pytest.approx((expected**2 + overlap) / (expected**2 + 0.5), abs=0.02)


# ------------------------------------------------------------------------------------------------------- static figures
def test_static_figures_draw_the_data_they_are_given():
    lengths = figures.tokens_per_size([256, 300, 500], [200.0, 120, 50], characters=200, words=40)
    assert lengths.axes[0].lines[0].get_xydata().tolist() == [[256, 200], [300, 120], [500, 50]]
    assert [line.get_ydata()[0] for line in lengths.axes[0].lines[1:]] == [200, 40]
    assert lengths.axes[0].get_title() == "From 256 entries to 500, a story takes 4.0 times fewer tokens"

    weight = torch.arange(40.0).view(8, 5) / 100
    stations = figures.text_to_vectors(["a", "b", "a"], [6, 1, 6], weight)
    written = [text.get_text() for text in stations.axes[0].texts]
    columns = [[word, row, *(f"{n:+.2f}" for n in weight[int(row)][:4])] for word, row in ["a6", "b1", "a6"]]
    expected = [text for column in columns for text in column]
    assert [text for text in written if text in expected] == expected
    assert "“a”" in stations.axes[0].get_title(loc="left")

    lines = {"all rows": [80, 5, 2], "without inputs": [70, 3, 1]}
    ranks = figures.curves([0, 10, 20], lines, "Ranks", "rank", ranks=True)
    assert [line.get_ydata().tolist() for line in ranks.axes[0].lines] == list(lines.values())
    bottom, top = ranks.axes[0].get_ylim()
    assert bottom > 80
    assert 0 < top < 1, "rank 1 stands on top and the worst is on the page"


def test_each_edge_of_the_cube_joins_two_people_who_differ_in_one_feature():
    figure = figures.people_cube(ROLES, ("gender", "age", "royalty"), marked=("man", "woman", "queen", "king"))
    (axes,) = figure.axes
    places = {text.get_text(): text.get_position() for text in axes.texts if text.get_text() in ROLES}
    assert places.keys() == ROLES.keys()
    edges = {frozenset(map(tuple, line.get_xydata().round(6))) for line in axes.lines}
    expected = {
        frozenset(tuple(np.round(places[who], 6)) for who in pair)
        for pair in combinations(ROLES, 2)
        if sum(a != b for a, b in zip(*(ROLES[who] for who in pair))) == 1
    }
    assert edges == expected
    assert len(axes.lines) == len(edges) == 12
    np.testing.assert_allclose(axes.patches[0].get_xy()[:4], [places[w] for w in ("man", "woman", "queen", "king")])
    names = [text.get_text() for text in axes.texts if "→" in text.get_text()]
    assert names == ["gender:\nhe → she", "age:\nadult → child", "royalty:\ncommon → royal"]
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


@pytest.mark.parametrize("ends", [(0.5, 0.5, 0.5, 0.5), (0.1, 0.11, 0.9, 0.3), (1.0, 0.0, 0.99, 0.98)])
def test_names_at_the_ends_of_curves_do_not_cover_each_other(ends):
    lines = {f"line {n}": [0.0, 1.0, end] for n, end in enumerate(ends)}
    figure = figures.curves([0, 1, 2], lines, "Lines", "height")
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert [text.get_text() for text in figure.axes[0].texts] == sorted(lines, key=lambda name: lines[name][-1])
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_every_role_is_told_from_the_others_by_its_features():
    assert len(set(ROLES.values())) == len(ROLES) == 8
