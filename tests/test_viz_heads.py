"""Chapter 4's figures and live figures: what they draw, computed another way, over every value of every control."""

from itertools import cycle, product

import numpy as np
import pytest
import torch
from sliders import drawn, values
from torch.utils.flop_counter import FlopCounterMode

from course_lib.chapters.heads import figures
from course_lib.chapters.heads import widgets as built
from course_lib.heads import MultiHeadAttention
from course_lib.pretrained import load_pretrained

pytestmark = pytest.mark.usefixtures("no_pixels")


@pytest.fixture(scope="module")
def trained():
    return load_pretrained("tinytown")


@pytest.fixture
def asked(trained):
    return built.remove_a_head(*trained, "name", layer=2, head=3)


# ------------------------------------------------------------------------------------------- features split among heads
@pytest.mark.parametrize(("n_heads", "transpose"), list(product((1, 2, 4, 8), (True, False))))
def test_each_cell_is_given_to_the_head_that_torch_gives_it(n_heads, transpose):
    split = built.split_sliders()
    split.render(n_heads=n_heads, transpose=transpose)
    whole = torch.arange(32).reshape(1, 4, 8)
    wide = 8 // n_heads
    for (t, i), name in split.drawing.names.items():
        head = i // wide if transpose else int(whole[0, t, i]) // (32 // n_heads)
        assert name.get_text() == f"head {head}"
    wrong = not transpose and n_heads > 1
    assert split.figure.get_suptitle().startswith("Wrong" if wrong else "Each head gets")


# ----------------------------------------------------------------------------------------------------- shapes and costs
@pytest.mark.parametrize(
    ("B", "T", "d_model", "n_heads"), [(2, 4, 8, 2), (1, 16, 64, 4), (4, 64, 128, 1), (2, 16, 64, 64)]
)
def test_the_priced_steps_are_what_torch_counts(B, T, d_model, n_heads):
    attention = MultiHeadAttention(d_model, n_heads)
    with FlopCounterMode(display=False) as counter:
        y, weights = attention(torch.randn(B, T, d_model), need_weights=True)
    rows = built.priced_steps(B, T, d_model, n_heads)
    assert sum(row[4] for row in rows) == counter.get_total_flops()
    assert sum(row[3] for row in rows) == sum(parameter.numel() for parameter in attention.parameters())
    assert rows[4][1:3] == (str(tuple(weights.shape)), weights.numel())
    assert rows[7][1:3] == (str(tuple(y.shape)), y.numel())


def test_every_setting_of_the_explorer_is_drawn_and_told():
    explorer = built.shapes_and_costs()
    for T, d_model, n_heads in product(*(values(explorer._controls[name]) for name in ("T", "d_model", "n_heads"))):
        explorer.render(T=T, d_model=d_model, n_heads=n_heads)
        title = explorer.figure.get_suptitle()
        if d_model % n_heads:
            assert f"cannot be divided evenly among {n_heads} heads" in title
            assert "refuses" in explorer.text
            assert {text.get_text() for line in explorer.drawing.texts for text in line[1:]} == {""}
        else:
            pairs = T / (T + 2 * d_model)  # 4 T² d against 8 T d²
            shown = int(title.split("tokens) are ")[1].split("%")[0].replace("under ", ""))
            assert abs(shown - 100 * pairs) <= 1
            parts = explorer.drawing
            assert sum(bar.get_width() for bar in parts.bars) == pytest.approx(0.14)
            assert f"({parts.texts[4][1].get_text().split('(')[1]}" == f"(2, {n_heads}, {T}, {T})"
    explorer.render(B=32)
    assert "B = 32" in explorer.text


# ------------------------------------------------------------------------------------------------- a head at a question
def test_a_removed_head_says_nothing_and_the_figure_shows_the_difference(trained, asked):
    model, tokenizer = trained
    for question, layer, head in [("capital", 0, 0), ("copy, word 2", 2, 3), ("who was bitten", 3, 1)]:
        asked.render(question=question, example=2, layer=layer, head=head)
        prompt, answer = built.draw_questions(question, 5)[1]
        ids = torch.tensor([tokenizer.encode(prompt, end=False)])
        weights = model.attention_weights(ids)[layer][0, head, -1]
        with torch.no_grad():
            whole = model(ids)[0, -1].softmax(-1)[tokenizer.id(answer)].item()
            # Another way to silence a head: its rows of W_O are 0.
            rows = model.blocks[layer].attention.out_proj.weight[:, 32 * head : 32 * head + 32]
            kept = rows.clone()
            rows.zero_()
            lacking = model(ids)[0, -1].softmax(-1)[tokenizer.id(answer)].item()
            rows.copy_(kept)
        parts = asked.drawing
        shown = weights[-16:].tolist()  # the end of the text, which holds the answer
        assert [bar.get_width() for bar in parts.weight_bars][: len(shown)] == pytest.approx(shown)
        assert parts.with_bars[0].get_width() == pytest.approx(whole, abs=1e-5)
        assert parts.without_bars[0].get_width() == pytest.approx(lacking, abs=1e-5)
        assert f"{whole:.2f} with this head, {lacking:.2f} without" in asked.text


@pytest.mark.proof
def test_every_question_and_every_head_can_be_looked_at(asked):
    controls = asked._controls
    for question in values(controls["question"]):
        for example in values(controls["example"]):
            asked.render(question=question, example=example)
            shown = [label.get_text() for label in asked.drawing.left.get_yticklabels()]
            prompt, answer = built.draw_questions(question, 5)[example - 1]
            assert shown == ["<bos>", *prompt.split()][-16:]
            assert answer in shown or answer not in prompt.split(), "an answer that stands in the text can be seen"
    for layer, head in product(values(controls["layer"]), values(controls["head"])):
        asked.render(layer=layer, head=head)
        assert f"Layer {layer}, head {head}" in asked.figure.get_suptitle()


# ----------------------------------------------------------------------------------------- what carries an answer where
@pytest.fixture
def counterfactual(trained):
    return built.counterfactuals(*trained, "who bit", "residual stream")


def test_nothing_but_the_residual_stream_at_the_last_position_reaches_the_answer(counterfactual):
    """A property of the architecture: what stands elsewhere after the last layer is read by nobody; what stands there
    is all that the answer is made of. And before anything is mixed, what one text says and the other does not is at
    the positions where they differ."""
    parts = counterfactual.drawing
    assert list(parts.parts) == ["after layer 3", "after layer 2", "after layer 1", "after layer 0"]
    last_layer = parts.shares[0]
    assert last_layer[-1] == pytest.approx(1, abs=1e-4)
    assert last_layer[:-1] == pytest.approx(0, abs=1e-4)
    differ = ["→" in word for word in parts.words]
    assert differ[0]
    assert not differ[-1]
    assert parts.shares[:, [not each for each in differ[:-1]] + [False]] == pytest.approx(0, abs=0.2)


@pytest.mark.parametrize("kind", ["attention", "feed-forward"])
def test_a_cell_of_the_map_is_the_run_with_that_part_replaced(trained, counterfactual, kind):
    model, tokenizer = trained
    counterfactual.render(kind=kind)
    prompt, answer = built.draw_questions("who bit", 1, seed=1)[0]
    words = counterfactual.drawing.words
    ids = torch.tensor([tokenizer.encode(prompt, end=False)])
    assert f"Correct: {answer};" in counterfactual.text
    others = ids.clone()  # as the words above the map say
    for t, word in enumerate(words, ids.shape[1] - len(words)):
        others[0, t] = tokenizer.id(word.split(" → ")[-1])
    new = counterfactual.text.split("in the other text, ")[1].split(".")[0]
    module = getattr(model.blocks[2], kind.replace("-", "_"))
    with torch.no_grad():
        seen = []
        handle = module.register_forward_hook(lambda _, inputs, output: seen.append(output))
        whole = model(others)[0, -1] - model(ids)[0, -1]
        handle.remove()
        handle = module.register_forward_hook(
            lambda _, inputs, output: torch.cat([output[:, :-1], seen[0][:, -1:]], dim=1)
        )
        change = model(ids)[0, -1]
        handle.remove()
        change = change - model(ids)[0, -1]
    share = [each[tokenizer.id(new)] - each[tokenizer.id(answer)] for each in (change, whole)]
    assert counterfactual.drawing.shares[1, -1] == pytest.approx((share[0] / share[1]).item(), abs=1e-3)


@pytest.mark.proof
def test_every_question_has_its_map(counterfactual):
    questions, kinds = (values(counterfactual._controls[name]) for name in ("question", "kind"))
    for question, kind in {*zip(questions, cycle(kinds)), *product(questions[:1], kinds)}:
        counterfactual.render(question=question, example=5, kind=kind)
        rows, columns = counterfactual.drawing.shares.shape
        assert (rows, columns) == (len(counterfactual.drawing.parts), len(counterfactual.drawing.words))
        assert counterfactual.drawing.shares.max() > 0.3, "a part that carries a good deal of it"
        assert counterfactual.figure.get_suptitle().count("“") == 3


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (built.split_sliders, {"n_heads": 4, "transpose": False}),
        (built.shapes_and_costs, {"T": 128, "d_model": 768, "n_heads": 12}),
        (None, {"question": "who bit", "layer": 1}),
    ],
)
def test_a_second_draw_equals_a_fresh_one(make, state, asked, trained):
    moved, fresh = (make(), make()) if make else (asked, built.remove_a_head(*trained, "name", layer=2, head=3))
    moved.render()
    moved.render(**state)
    assert drawn(moved.figure) == drawn(fresh._draw(**fresh.state | state).figure)


def test_live_figures_become_pictures(pixels, asked):
    for figure in (built.split_sliders(), built.shapes_and_costs(), asked):
        assert figure.render().startswith(b"\x89PNG")


# ------------------------------------------------------------------------------------------------------- static figures
def test_the_pipeline_tells_every_shape_and_what_the_last_word_looks_at():
    weights = np.zeros((4, 3, 3))
    weights[:, :, 0], weights[3, 2] = 1, (0.25, 0.0, 0.75)
    figure = figures.heads_pipeline(["who", "chased", "the"], weights, d_model=8, layer=1)
    told = [text.get_text() for text in figure.axes[0].texts]
    assert sum("(3, 2) each" in text for text in told) == 4, "queries, keys and values of each head"
    assert sum(text == "mix\n(3, 2)" for text in told) == 4
    assert sum("(3, 8)" in text for text in told) == 3, "x, the heads side by side, y"
    assert told.count("“the” looks\nat “who”: 1.00") == 3
    assert told.count("“the” looks\nat itself: 0.75") == 1
    assert [image.get_array().tolist() for image in figure.axes[0].images] == weights.tolist()
    assert "4 heads mix the words in 4 ways" in figure.get_suptitle()


def test_two_copiers_mark_what_each_rule_would_say():
    panel = ("a head", ["a", "b", "c", "a"], np.array([0.1, 0.7, 0.2, 0.0]), 2, 1)
    figure = figures.two_copiers([panel, panel])
    for axes in figure.axes:
        assert [bar.get_width() for bar in axes.patches] == [0.1, 0.7, 0.2, 0.0]
        assert [text.get_text() for text in axes.texts] == ["0.20 third of the list", "0.70 what followed a"]
        assert len({bar.get_facecolor() for bar in axes.patches}) == 3


def test_the_table_of_costs_writes_every_cost_that_is_not_nothing():
    costs = np.array([[0.25, 3.04, 0.0], [0.001, 0.02, -0.3]])
    figure = figures.costs_of_removal(costs, ["a", "b"], ["all", "one", "two"], "said")
    assert figure.get_suptitle() == "said"
    told = {text.get_text(): text.get_position() for text in figure.axes[0].texts}
    assert told == {"0.25": (0, 0), "3.0": (1, 0), "-0.3": (2, 1)}


@pytest.mark.parametrize(
    ("losses", "title"), [([2.0, 1.0, 3.0], "4 heads end lower than 1 or 16"), ([1, 2, 3], "1 head end")]
)
def test_the_title_names_the_lowest_loss(losses, title):
    figure = figures.loss_by_heads([1, 4, 16], losses, 32)
    assert list(figure.axes[0].lines[0].get_ydata()) == losses
    assert figure.axes[0].get_title(loc="left").startswith(title)
