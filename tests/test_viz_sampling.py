"""Chapter 13's figures and live figures: what they draw, computed another way, over every value of every control."""

import html
import math
import re
from functools import partial

import numpy as np
import pytest
import torch
from sliders import LiveFigureTests, corners, values

from course_lib.chapters.sampling import figures, smollm2
from course_lib.chapters.sampling import widgets as built
from course_lib.grading import EXERCISES
from course_lib.live import explorable, explore
from course_lib.pretrained import load_pretrained
from course_lib.sampling import generate, sample_next_token, top_k_filter, top_p_filter
from course_lib.tinytown import Tinytown

LOGITS = [2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0]
pytestmark = pytest.mark.usefixtures("no_pixels")  # tests that want a real picture ask for `pixels`


def by_loops(logits, temperature, top_k, top_p, min_p):
    """The filtered distribution, written out slowly. Filters are out at top_k = V, top_p = 1, min_p = 0."""
    best = max(range(len(logits)), key=lambda i: logits[i])
    if temperature == 0:
        return [float(i == best) for i in range(len(logits))]
    weights = [math.exp((logit - logits[best]) / temperature) for logit in logits]
    ranked = sorted(range(len(logits)), key=lambda i: -weights[i])[:top_k]
    total, kept, so_far = sum(weights[i] for i in ranked), [], 0.0
    for i in ranked:
        if kept and so_far >= top_p * total:
            break
        kept.append(i)
        so_far += weights[i]
    kept = [i for i in kept if weights[i] >= min_p]  # the favourite has weight 1
    total, left = sum(weights[i] for i in kept), set(kept)
    return [weights[i] / total if i in left else 0.0 for i in range(len(logits))]


def right_softmax(logits, temperature):
    return torch.tensor(by_loops(logits.tolist(), temperature, len(logits), 1, 0))


def right_sampler(logits, temperature, top_k, top_p, generator):
    return sample_next_token(logits, temperature, top_k, top_p, generator=generator)


def right_generate(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    return generate(model, ids, max_new_tokens, temperature=temperature, generator=generator)


@pytest.fixture(scope="module")
def trained():
    return load_pretrained("tinytown")


RIGHT = {
    "sampling.temperature": right_softmax,
    "sampling.top_k": top_k_filter,
    "sampling.top_p": top_p_filter,
    "sampling.next_token": right_sampler,
    "sampling.generate": right_generate,
}
MAKERS = {
    "seven_words": lambda trained: built.seven_words(),
    "draw_by_hand": lambda trained: built.draw_by_hand(),
    "every_knob": lambda trained: built.every_knob(*trained),
    **{name: lambda trained, name=name: explore(name, RIGHT[name]) for name in RIGHT},
}


def widths(bars):
    return [bar.get_width() for bar in bars]


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def make(request, trained):
    return partial(request.param, trained)


class TestEveryLiveFigure(LiveFigureTests):
    distinct = 1


def test_controls_that_move_rewrite_what_stands_below(make):
    figure = make()
    for control in figure._controls.values():
        control.value = values(control)[-1]
    assert html.escape(figure.text) in figure._caption.value
    assert html.escape(figure.also_text) in figure._below.value


# ---------------------------------------------------------------------------------------------------------- seven words
def test_the_seven_words_are_filtered_as_by_hand():
    figure = built.seven_words()
    for temperature in (0.0, 0.3, 1.0, 2.0, 3.0):
        for top_k, top_p, min_p in [
            (7, 1.0, 0.0),
            (3, 1.0, 0.0),
            (7, 0.9, 0.0),
            (7, 0.6, 0.0),
            (7, 1.0, 0.2),
            (5, 0.8, 0.1),
        ]:
            state = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
            figure.render(**state)
            expected = by_loops(LOGITS, **state)
            assert widths(figure.drawing.now_bars) == pytest.approx(expected, abs=1e-6), state
            cut = [number.get_text() == "cut" for number in figure.drawing.numbers]
            assert cut == [p == 0 for p in expected], state


def test_the_title_counts_what_is_left_and_gives_its_entropy():
    figure = built.seven_words()
    figure.render(top_k=4, top_p=1.0)
    p = by_loops(LOGITS, 1, 4, 1, 0)
    nats = -sum(x * math.log(x) for x in p if x)
    title = figure.drawing.headline.get_text()
    assert (
        title
        == f"4 of 7 tokens are possible; entropy {nats:.2f} nats, as in a uniform choice among {math.exp(nats):.1f}"
    )
    figure.render(top_k=1)
    assert figure.drawing.headline.get_text() == "One token is left: “the” is certain"
    figure.render(top_k=7, top_p=1.0)
    assert figure.drawing.headline.get_text().startswith("All 7 tokens are possible; entropy 1.56 nats")


def test_the_random_number_hits_the_piece_that_holds_it():
    figure = built.draw_by_hand()
    for temperature in (0.5, 1.0, 3.0):
        p = by_loops(LOGITS, temperature, 7, 1, 0)
        for u in np.linspace(0, 0.99, 34):
            figure.render(u=float(u), temperature=temperature)
            parts, so_far = figure.drawing, 0.0
            for word, share, piece in zip(built.WORDS, p, parts.pieces):
                assert piece.get_x() == pytest.approx(so_far, abs=1e-6)
                assert piece.get_width() == pytest.approx(share, abs=1e-6)
                if so_far + 1e-6 < u < so_far + share - 1e-6:
                    assert f"“{word}”" in parts.headline.get_text()
                so_far += share


def test_the_way_to_a_word_shows_each_step_and_the_piece_that_u_falls_on():
    tokens, logits = [f"w{i}" for i in range(12)], np.linspace(4, -4, 12)
    p = np.exp(logits / 2) / np.exp(logits / 2).sum()
    kept = np.where(np.arange(12) < 3, p, 0) / p[:3].sum()
    figure = figures.way_to_a_word(tokens, logits, logits / 2, p, kept, 0.99, 2.0)
    for axes, drawn in zip(figure.axes[:2], (logits, logits / 2)):
        assert widths(axes.patches)[:8] == pytest.approx(drawn[:8])
    for axes, drawn in zip(figure.axes[2:4], (p, kept)):
        assert widths(axes.patches) == pytest.approx([*drawn[:8], drawn[8:].sum()])
    assert [text.get_text() for text in figure.axes[3].texts].count("cut") == 6
    pieces = [bar.get_height() for bar in figure.axes[4].patches if bar.get_width() == 0.8]
    assert sum(pieces) == pytest.approx(1)
    assert "falls on “w2”" in figure.get_suptitle()


# ---------------------------------------------------------------------------------------------------- the trained model
@pytest.mark.parametrize("prompt", built.PROMPTS.values())
def test_diamonds_show_tinytowns_own_chances(prompt, trained):
    figure = built.every_knob(*trained)
    figure.render(prompt=prompt)
    exact = Tinytown().next_word(prompt)
    names = [label.get_text() for label in figure.figure.axes[0].get_yticklabels()]
    shown = dict(zip(names, figure.drawing.truth_marks.get_xdata()))
    assert shown.pop(names[-1]) == pytest.approx(1 - sum(shown.values()), abs=1e-6)
    for name, value in shown.items():
        assert value == pytest.approx(exact.get(name, 0.0), abs=1e-6)
    assert f"allows {len(exact)} here" in figure.text


def test_bars_show_what_is_drawn_from_and_share_out_everything(trained):
    model, tokenizer = trained
    figure = built.every_knob(*trained)
    for state in corners(figure):
        state["prompt"] = built.PROMPTS["once there was a"] if state["prompt"] == smollm2.PROMPT else state["prompt"]
        figure.render(**state)
        with torch.no_grad():
            logits = model(torch.tensor([tokenizer.encode(state["prompt"], end=False)]))[0, -1].tolist()
        settings = {name: state[name] for name in ("temperature", "top_k", "top_p", "min_p")}
        expected = dict(zip(tokenizer.tokens, by_loops(logits, **settings)))
        names = [label.get_text() for label in figure.figure.axes[0].get_yticklabels()]
        bars = widths(figure.drawing.now_bars)
        assert sum(bars) == pytest.approx(1, abs=1e-5)
        assert bars[:-1] == pytest.approx([expected[name] for name in names[:-1]], abs=1e-5), state


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"), [(0.0, 335, 1.0, 0.0), (1.0, 335, 1.0, 0.0), (2.0, 20, 0.9, 0.02)]
)
def test_the_text_is_the_one_that_generate_writes(seed, temperature, top_k, top_p, min_p, trained):
    model, tokenizer = trained
    prompt = built.PROMPTS["… tom wanted to eat"]
    figure = built.every_knob(*trained)
    figure.render(prompt=prompt, seed=seed, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    ids = generate(
        model,
        torch.tensor([tokenizer.encode(prompt, end=False)]),
        built.NEW_TOKENS,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p or None,
        stop=tokenizer.eos_id,
        generator=torch.Generator().manual_seed(seed),
    )
    written = (
        figure.also_text.removeprefix(f"Seed {seed} writes: ")
        .replace(" ▸", "")
        .removesuffix(" …")
        .removesuffix(" (the end)")
    )
    assert written == tokenizer.decode(ids[0])
    assert figure.also_text.endswith("…") == (int(ids[0, -1]) != tokenizer.eos_id)


def test_the_caption_of_a_warm_model_owns_up_to_impossible_words(trained):
    figure = built.every_knob(*trained)
    shares = []
    for temperature in (0.5, 1.0, 2.0, 3.0):
        figure.render(temperature=temperature)
        shares.append(float(figure.text.rpartition(": ")[2].rstrip(".")))
    assert shares == sorted(shares)
    assert shares[-1] > 0.2


def test_smollm2s_record_is_a_distribution_over_its_vocabulary():
    names, logits = smollm2.recorded_next_token()
    assert len(names) == len(logits) == 49_152
    assert "…" not in names[: smollm2.NAMED]
    assert set(names[smollm2.NAMED :]) == {"…"}
    assert logits.exp().sum().item() == pytest.approx(1, abs=0.005)
    assert (logits[: smollm2.NAMED].diff() <= 0).all()
    assert logits[smollm2.NAMED :].max() <= logits[smollm2.NAMED - 1] + smollm2.STEP / 2


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [(0.0, 343, 1.0, 0.0), (1.0, 343, 1.0, 0.0), (2.0, 343, 0.8, 0.0), (2.0, 343, 1.0, 0.1), (2.0, 20, 1.0, 0.0)],
)
def test_the_same_sliders_move_smollm2s_record_and_no_diamond_is_left(temperature, top_k, top_p, min_p, trained):
    figure = built.every_knob(*trained)
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    figure.render(prompt=smollm2.PROMPT, seed=3, **settings)
    names, logits = smollm2.recorded_next_token()
    # V means "off" below, so a k that is off is larger than any
    expected = by_loops(logits.tolist(), temperature, 49_152 if top_k == 343 else top_k, top_p, min_p)
    assert widths(figure.drawing.now_bars) == pytest.approx([*expected[:8], sum(expected[8:])], abs=1e-4)
    assert [label.get_text() for label in figure.figure.axes[0].get_yticklabels()] == [*names[:8], "49,144 more"]
    assert not figure.drawing.truth_marks.get_visible()
    assert f"have {sum(expected[: smollm2.NAMED]):.0%} in total" in figure.text
    samples = figure.also_text.rpartition(": ")[2].split(", ")
    assert len(samples) == 10
    assert set(samples) <= {name for name, p in zip(names, expected) if p}
    figure.render(prompt=built.OPENING)
    assert figure.drawing.truth_marks.get_visible()
    assert "Tinytown allows" in figure.text


# ------------------------------------------------------------------------------------------------------------ explorers
def test_every_explorer_belongs_to_an_exercise():
    for name in built.EXPLORERS:
        assert name in explorable()
        assert name in EXERCISES


@pytest.mark.parametrize("name", [name for name in RIGHT if name not in ("sampling.next_token", "sampling.generate")])
def test_a_right_answer_agrees_with_the_library_everywhere(name):
    figure = explore(name, RIGHT[name])
    for control, widget in figure._controls.items():
        for value in values(widget):
            figure.render(**{control: value})
            assert figure.text == "Yours and the library's are the same."


def test_bars_are_the_learners_and_diamonds_the_librarys():
    figure = explore("sampling.temperature", lambda logits, temperature: (logits * temperature).softmax(-1))
    figure.render(temperature=2.0)
    assert widths(figure.drawing.now_bars) == pytest.approx(by_loops(LOGITS, 0.5, 7, 1, 0), abs=1e-6)
    assert list(figure.drawing.truth_marks.get_xdata()) == pytest.approx(by_loops(LOGITS, 2, 7, 1, 0), abs=1e-6)
    assert figure.text == "Largest difference, at “the”: yours 0.633, the library's 0.268."


def test_a_filter_that_forgets_the_order_shows_when_the_logits_are_shuffled():
    def sorted_instead(logits, p):
        return top_p_filter(logits, p).sort(descending=True).values

    figure = explore("sampling.top_p", sorted_instead)
    figure.render(shuffled=False)
    assert figure.text == "Yours and the library's are the same."
    figure.render(shuffled=True)
    assert figure.text.startswith("Largest difference")


def test_a_thousand_draws_come_near_the_probabilities():
    figure = explore("sampling.next_token", right_sampler)
    figure.render(temperature=1.5, top_k=4)
    assert widths(figure.drawing.now_bars) == pytest.approx(by_loops(LOGITS, 1.5, 4, 1, 0), abs=0.06)
    figure.render(temperature=0.0)
    assert widths(figure.drawing.now_bars) == [1, 0, 0, 0, 0, 0, 0]


def unanswered(*arguments):
    raise NotImplementedError


def broken(*arguments):
    raise IndexError("too many indices")


WRONG = {
    "unanswered": (unanswered, "still empty"),
    "raises": (broken, "raised IndexError: too many indices"),
    "nothing": (lambda *arguments: None, "returned NoneType, not a tensor"),
    "shape": (lambda *arguments: torch.zeros(2, 2), r"returned shape \(2, 2\); expected"),
}


@pytest.mark.parametrize(("answer", "told"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("name", RIGHT)
def test_a_broken_answer_is_told_and_drawn_empty(name, answer, told, pixels):
    figure = explore(name, answer)
    for state in corners(figure)[:2]:
        assert figure.render(**state).startswith(b"\x89PNG")
        assert re.search(told, figure.text)
    parts = figure.drawing
    assert not any(bar.get_height() for bar in parts.bars) if "generate" in name else not any(widths(parts.now_bars))
    assert parts.headline.get_text().startswith("No t")  # no text yet, no token is left


def test_answers_that_make_no_sense_are_told():
    empty = explore("sampling.top_k", lambda logits, k: torch.full_like(logits, -torch.inf))
    assert empty.text == "Your filter leaves no token: every logit is −inf."
    doubled = explore("sampling.temperature", lambda logits, temperature: 2 * logits.softmax(-1))
    assert doubled.text == "Your probabilities sum to 2.000; they should sum to 1."
    not_a_number = explore("sampling.temperature", lambda logits, temperature: logits * torch.nan)
    assert "returned NaN" in not_a_number.text
    probabilities = explore("sampling.next_token", lambda logits, *rest: logits.softmax(-1)[:, 0])
    assert "is no id" in probabilities.text
    out_of_range = explore("sampling.generate", lambda model, ids, n, *rest: torch.full((1, ids.shape[1] + n), 999))
    assert "no id of the vocabulary" in out_of_range.text


def test_a_text_of_its_own_is_drawn_with_the_models_surprise(trained):
    model, tokenizer = trained
    figure = explore("sampling.generate", right_generate)
    figure.render(temperature=1.0, seed=4)
    text = figure.also_text.removeprefix("Your function wrote: ")
    ids = tokenizer.encode(text, end=False)
    heights = [bar.get_height() for bar in figure.drawing.bars]
    for t in (1, 5, len(ids) - 1):
        with torch.no_grad():
            p = model(torch.tensor([ids[:t]]))[0, -1].softmax(-1)[ids[t]]
        assert heights[t - 1] == pytest.approx(-math.log(p), abs=1e-3)
    assert figure.text.startswith("Temperature 1.0, seed 4:")


def test_a_greedy_text_that_is_not_greedy_is_told():
    figure = explore("sampling.generate", lambda model, ids, n, *rest: torch.cat([ids, ids.new_full((1, n), 7)], dim=1))
    assert figure.text == "At temperature 0 there is only one correct text, and yours is different."
    without_prompt = explore("sampling.generate", lambda model, ids, n, *rest: ids.new_full((1, ids.shape[1] + n), 7))
    assert without_prompt.text == "Your text does not begin with the prompt."


# -------------------------------------------------------------------------------------------------------- still figures
def test_the_sweep_compares_first_and_last_word_at_the_marked_temperature():
    temperatures = np.array([0.5, 1.0, 2.0, 4.0])
    curves = np.array([by_loops(LOGITS, T, 7, 1, 0) for T in temperatures])
    figure = figures.temperature_sweep(built.WORDS, temperatures, curves, at=2)
    assert figure.axes[0].get_title(loc="left") == "At T = 2 “the” is still 4.5 times as probable as “one”"
    assert np.allclose(figure.axes[0].lines[2].get_ydata(), curves[:, 2])
    with pytest.raises(ValueError, match="at=3 must be one of the temperatures"):
        figures.temperature_sweep(built.WORDS, temperatures, curves, at=3)


def test_model_and_truth_say_how_far_apart_they_are():
    model, truth = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.4, 0.0])
    figure = figures.model_and_truth({"one": (list("abc"), model, truth), "two": (list("abc"), truth, truth)}, rows=3)
    assert figure.get_suptitle() == "20.0% and 0.0% of the model's probability is misplaced"
    assert widths(figure.axes[0].patches) == pytest.approx([0.5, 0.3, 0.2])
    assert list(figure.axes[0].lines[0].get_xdata()) == pytest.approx([0.6, 0.4, 0.0])


def test_the_trade_off_compares_temperature_one_with_the_last():
    figure = figures.trade_off([0, 1.0, 2.0], [1, 0.9, 0.1], [5, 90, 95], [-0.5, -0.9, -3.0], town=-0.8)
    assert figure.get_suptitle() == "From T = 1 to T = 2: possible texts 90% → 10%, different words 90 → 95"
    assert [list(axes.lines[0].get_ydata()) for axes in figure.axes] == [[100, 90, 10], [5, 90, 95], [-0.5, -0.9, -3.0]]
    assert set(figure.axes[2].lines[1].get_ydata()) == {-0.8}


def test_filter_curves_are_compared_at_one_loss():
    curves = {
        "a": ([1, 2], [0.0, 0.02], [0.04, 0.02]),
        "b": ([1, 2], [0.005, 0.015], [0.01, 0.0]),
        "c": ([1], [0.01], [0.07]),
    }
    figure = figures.filter_curves(curves, {"a": [2], "b": [], "c": [1]}, temperature=1.5)
    title = figure.axes[0].get_title(loc="left")
    assert title == "At T = 1.5 and 1% lost, these let through: a 3.0%, b 0.5%, c 7.0%"
    assert [text.get_text() for text in figure.axes[0].texts] == ["a = 2", "c = 1"]
    near, half, far = figure.axes[0].transData.transform([(0, 0), (2, 0), (8, 0)])[:, 0]
    assert (half - near) / (far - near) == pytest.approx(0.5), "2 lies half way to 8"
    assert "square-root scale" in figure.axes[0].get_xlabel(), "an axis that is not linear says so"


def test_surprise_counts_the_words_that_were_a_choice():
    text = figures.Surprise(["once", "upon", "a", "time"], np.array([9.0, 2.0, 0.01, 0.4]), prompt_length=1).draw()
    assert (
        text.headline.get_text() == "2 of 3 words were a choice (more than 0.1 nats); the text costs 0.80 nats per word"
    )
    assert [bar.get_height() for bar in text.bars] == [9.0, 2.0, 0.01, 0.4]
