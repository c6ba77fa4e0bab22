"""Chapter 5's figures and live figures: what they draw, computed another way, over every value of every control."""

import cmath
import math
import re

import numpy as np
import pytest
from sliders import LiveFigureTests

from course_lib.chapters.positions import figures
from course_lib.chapters.positions import widgets as built

MAKERS = [built.clock_hands, built.likeness, built.rotary_pair, built.eyesight]
pytestmark = pytest.mark.usefixtures("no_pixels")


def title(drawing):
    return drawing.headline.get_text()


@pytest.fixture(params=MAKERS, ids=lambda make: make.__name__)
def make(request):
    return request.param


class TestEveryLiveFigure(LiveFigureTests):
    distinct = 8


# ------------------------------------------------------------------------------------------------------ the clock hands
@pytest.mark.parametrize(("position", "d_model"), [(0, 4), (10, 8), (37, 12), (100, 16)])
def test_each_hand_stands_where_its_angle_says_clockwise_from_the_top(position, d_model):
    clock = built.clock_hands()
    clock.render(position=position, d_model=d_model)
    parts = clock.drawing
    for i, (face, hand) in enumerate(zip(parts.faces, parts.hands)):
        assert face.get_visible() == hand.get_visible() == (i < d_model // 2)
        if i < d_model // 2:
            direction = (np.array(hand.get_xydata()[1]) - face.center) / 0.9
            clockwise = cmath.rect(1, math.pi / 2 - position / 10000 ** (2 * i / d_model))
            assert tuple(direction) == pytest.approx((clockwise.real, clockwise.imag), abs=1e-5)


@pytest.mark.parametrize("d_model", [4, 8, 12, 16])
def test_hands_and_their_words_stand_apart_inside_the_picture(d_model):
    clock = built.clock_hands()
    clock.render(position=100, d_model=d_model)
    parts = clock.drawing
    shown = [*parts.faces[: d_model // 2], *parts.names[: d_model // 2]]
    boxes = [each.get_window_extent() for each in shown]
    for i, box in enumerate(boxes):
        assert 0 < box.x0 < box.x1 < clock.figure.axes[1].get_window_extent().x0, "left of the heat map"
        assert 0 < box.y0 < box.y1 < clock.figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_the_heat_map_is_the_table_and_the_frame_the_row():
    clock = built.clock_hands()
    clock.render(position=42, d_model=12)
    image = clock.drawing.image
    assert image.get_array().shape == (101, 12)
    assert image.get_array()[42, 4] == pytest.approx(math.sin(42 / 10000 ** (4 / 12)), abs=1e-6)
    assert tuple(image.get_extent()) == (-0.5, 11.5, 100.5, -0.5)
    assert (clock.drawing.row.get_y(), clock.drawing.row.get_width()) == (41.5, 12)
    assert f"hand 0 has made {42 / (2 * math.pi):.2f} turns" in title(clock.drawing)


# ------------------------------------------------------------------------------------------------ likeness and distance
@pytest.mark.parametrize(("d_model", "furthest"), [(8, 20), (128, 100), (512, 1000)])
def test_likeness_is_the_mean_cosine_of_the_angles_to_both_sides(d_model, furthest):
    live = built.likeness()
    live.render(d_model=d_model, furthest=furthest)
    shown = live.drawing.line.get_xydata()
    speeds = [10000 ** (-2 * i / d_model) for i in range(d_model // 2)]
    for k in (1, 7, furthest):
        expected = np.mean([math.cos(speed * k) for speed in speeds])  # sin a sin b + cos a cos b = cos(a − b)
        assert dict(shown)[k] == pytest.approx(expected, abs=1e-6)
        assert dict(shown)[-k] == pytest.approx(expected, abs=1e-6)


def test_the_dot_marks_where_likeness_rises_for_the_first_time():
    rising = figures.Likeness(np.array([1.0, 0.5, 0.2, 0.3, 0.1]), 8).draw()
    assert rising.rise.get_xydata().tolist() == [[2, 0.2]]
    assert "less alike up to 2 apart" in title(rising)
    steady = figures.Likeness(np.array([1.0, 0.5, 0.2]), 8).draw()
    assert len(steady.rise.get_xdata()) == 0
    assert "the further, the less alike, up to 2 apart" in title(steady)


# ---------------------------------------------------------------------------------------------------------------- RoPE
@pytest.mark.parametrize("angle", [0, 5, 60])
@pytest.mark.parametrize(("t", "s"), [(0, 0), (10, 4), (4, 10), (40, 0)])
def test_the_score_is_that_of_complex_numbers_rotated_and_depends_on_the_distance(t, s, angle):
    live = built.rotary_pair()
    live.render(t=t, s=s, angle=angle)
    turn = cmath.exp(1j * math.radians(angle))
    q, k = complex(*built.QUERY.tolist()) * turn**t, complex(*built.KEY.tolist()) * turn**s
    expected = (q * k.conjugate()).real
    distance, score = live.drawing.here.get_xydata()[0]
    assert (distance, score) == (t - s, pytest.approx(expected, abs=1e-5))
    assert dict(live.drawing.curve.get_xydata())[t - s] == pytest.approx(expected, abs=1e-5)
    assert tuple(live.drawing.arrows[0].get_xydata()[1]) == pytest.approx((q.real, q.imag), abs=1e-5)
    assert float(re.search(r"Score (-?[\d.]+),", live.text)[1]) == pytest.approx(expected, abs=0.006)


def test_moving_both_positions_alike_leaves_the_score():
    live = built.rotary_pair()
    scores = [live.render(t=t, s=t - 5) or live.drawing.here.get_ydata()[0] for t in (5, 17, 40)]
    assert scores == pytest.approx([scores[0]] * 3, abs=1e-5)


def test_the_drawing_of_a_head_rotates_both_and_keeps_their_angle_and_score():
    query, key = np.array([0.6, 0.8]), np.array([1.0, 0.0])
    figure = figures.rotation_in_a_head(
        ("chased", "dog"), query, key, [("near", 2, 1), ("far", 11, 10)], d_model=8, D=4
    )
    turn = complex(*query) * cmath.exp(1j) * complex(*key).conjugate()  # one position apart
    for plane, t in zip(figure.axes[1:], (2, 11)):
        end = complex(*plane.lines[1].get_xydata()[1])
        assert end == pytest.approx(complex(*query) * cmath.exp(1j * t), abs=1e-6)
        assert f"score {turn.real:.2f}".replace("-", "−") in plane.get_title()
        assert f"{math.degrees(cmath.phase(turn)):.0f}°" in [text.get_text() for text in plane.texts]
    told = [text.get_text() for text in figure.axes[0].texts]
    assert told.count("rotated") == 2, "query and key, and not the value"


# --------------------------------------------------------------------------------------------------------------- ALiBi
@pytest.mark.parametrize(("head", "T"), [(0, 4), (2, 16), (7, 32)])
def test_the_last_token_sees_as_far_as_its_slope_lets_it(head, T):
    live = built.eyesight()
    live.render(head=head, T=T)
    raw = [math.exp(-(2.0 ** -(head + 1)) * (T - 1 - place)) for place in range(T)]
    heights = [bar.get_height() for bar in live.drawing.bars if bar.get_visible()]
    assert heights == pytest.approx([each / sum(raw) for each in raw], abs=1e-6)
    near = sum(raw[-4:]) / sum(raw)
    assert f"{near:.0%} of its weight on the last 4 of {T}" in title(live.drawing)
    hidden = np.ma.getmaskarray(live.drawing.image.get_array())
    assert hidden.tolist() == (~np.tri(T, dtype=bool)).tolist()


# ------------------------------------------------------------------------------------------------------- static figures
def test_right_answers_are_drawn_as_given_and_the_title_counts_who_does_not_guess():
    figure = figures.right_answers({"a": 0.5, "b": 0.55, "c": 0.95}, chance=0.5)
    assert [bar.get_width() for bar in figure.axes[0].patches] == [0.5, 0.55, 0.95]
    assert figure.texts[0].get_text() == "1 of 3 models can tell who bit; the others guess"


def test_the_learned_table_is_averaged_along_its_diagonals():
    cosines = np.array([[1.0, 0.8, -0.2], [0.8, 1.0, 0.6], [-0.2, 0.6, 1.0]])
    figure = figures.learned_likeness(cosines)
    assert figure.axes[0].images[0].get_array().tolist() == cosines.tolist()
    means = next(line for line in figure.axes[1].lines if len(line.get_xdata()) == 2 and line.get_xdata()[1] == 2)
    assert means.get_ydata() == pytest.approx([0.7, -0.2])


@pytest.mark.parametrize(
    ("flat", "said"), [({"c"}, "only c keeps"), ({"b", "c"}, "2 of 5 keep"), (set(), "0 of 5 keep")]
)
def test_the_title_of_the_reach_says_who_keeps_its_loss(flat, said):
    losses = {name: [1.5, 1.52] if name in flat else [1.5, 2.0] for name in "abcde"}
    figure = figures.reach_curves([32, 128], losses, 32)
    assert said in figure.texts[0].get_text()
    drawn_losses = [line.get_ydata() for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    assert list(losses.values()) == [list(each) for each in drawn_losses if list(each) != [0, 1]]
    labels = sorted(text.get_position()[1] for text in figure.axes[0].texts if text.get_text() in losses)
    assert np.diff(labels).min() > 0.02, "labels of equal ends stand apart"


def test_the_losses_along_the_text_are_drawn_at_the_middle_of_their_tokens():
    losses = {"unchanged": [1.5, 1.2, 2.0, 2.4], "larger base": [1.5, 1.3, 1.4, 1.3]}
    figure = figures.losses_along_the_text(losses, 16, 32)
    assert "Given 2 times the trained length" in figure.texts[0].get_text()
    assert figure.texts[0].get_text().endswith("the loss at the end is lowest with: larger base")
    curves = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 4]
    assert [list(line.get_ydata()) for line in curves] == list(losses.values())
    assert list(curves[0].get_xdata()) == [8, 24, 40, 56]
