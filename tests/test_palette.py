"""The colours of all figures: readable on white, and told apart by eyes that lack one kind of cone."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from course_lib.live import palette
from course_lib.live.drawing import new_figure
from tests.contrast import contrast, unreadable

WORDS = ("BLUE", "GREEN", "RED", "PURPLE", "GREY", "INK")
MARKS = (*WORDS, "ORANGE", "SKY")
# Machado, Oliveira & Fernandes 2009, "A physiologically-based model for simulation of color vision deficiency", at full
# strength, for linear RGB.
EYES = {
    "all cones": np.eye(3),
    "no long cones (protanopia)": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no middle cones (deuteranopia)": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#7F7F7F")


def seen(colour, eyes) -> np.ndarray:
    """A colour as these eyes see it, in CIE L*a*b*, where distances are differences that people see."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(EYES[eyes] @ linear, 0, 1) / TO_XYZ.sum(axis=1)
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def closest(colours, eyes) -> float:
    return min(float(np.linalg.norm(seen(one, eyes) - seen(other, eyes))) for one, other in combinations(colours, 2))


def test_words_have_the_contrast_of_words_and_marks_that_of_marks():
    white = (1, 1, 1)
    assert contrast((0, 0, 0), white) == pytest.approx(21)
    assert contrast(to_rgb("#777777"), white) == pytest.approx(4.48, abs=0.01), "as WebAIM's checker says"
    for names, least in ((WORDS, 4.5), (MARKS, 3)):
        low = {name: contrast(to_rgb(getattr(palette, name)), white) for name in names}
        assert min(low.values()) >= least, low


@pytest.mark.parametrize("eyes", EYES)
def test_every_pair_of_colours_is_told_apart_whatever_the_eyes(eyes):
    ours = [getattr(palette, name) for name in (*MARKS, "YELLOW")]
    assert closest(ours, eyes) > 15
    assert eyes == "all cones" or closest(ours, eyes) > min(closest(OKABE_ITO, each) for each in EYES)


def test_ink_can_be_read_on_any_ground():
    for ground in np.random.default_rng(0).random((500, 3)):
        ink = palette.ink_on(ground)
        other = {"black": "white", "white": "black"}[ink]
        assert contrast(to_rgb(ink), ground) >= 4.5
        assert contrast(to_rgb(ink), ground) >= contrast(to_rgb(other), ground) - 0.02


def test_a_word_is_held_against_what_lies_behind_it():
    figure, axes = new_figure(4, 3)
    axes.set(xlim=(0, 4), ylim=(0, 3), xticks=[], yticks=[])
    axes.axvspan(0, 2, color="black")
    axes.text(1, 1, "hidden", color="#333333", ha="center")
    axes.text(3, 1, "clear", color="#333333", ha="center")
    axes.text(1, 2, "pale", color="white", ha="center", rotation=90)
    axes.text(3, 2, "faint", color="black", alpha=0.4, ha="center", rotation=90)
    axes.text(2, 0.3, "half of it", color="white", ha="center")
    figure.text(0.3, 0.95, "grey", color="#8a8a8a")
    figure.text(0.6, 0.95, "large", color="#8a8a8a", fontsize=18)
    layout, dpi = figure.get_layout_engine(), figure.dpi
    assert sorted(sentence.partition(":")[0] for sentence in unreadable(figure)) == [
        "'faint'", "'grey'", "'half of it'", "'hidden'",
    ]  # fmt: skip
    assert (figure.get_layout_engine(), figure.dpi) == (layout, dpi), "the figure is as it was"
