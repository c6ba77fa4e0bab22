"""What the tests of live figures share: every value that a control can take, what a figure shows, and their tests."""

import io
import math
import re
from itertools import product

import numpy as np
import pytest
from ipywidgets import RadioButtons

PNG = b"\x89PNG"
PANE, TALL = 848, 560  # pixels that JupyterLab gives an output in a window of 1280 × 720, beside the list of files


def values(control) -> list:
    """The options of a list, both states of a checkbox, or every stop of a slider."""
    if hasattr(control, "options"):
        return [option[1] if isinstance(option, tuple) else option for option in control.options]
    if isinstance(control.value, bool):
        return [False, True]
    stops = round((control.max - control.min) / control.step) + 1
    return [type(control.value)(control.min + i * control.step) for i in range(stops)]


def some(choices: list, most: int) -> list:
    """At most so many of a list, evenly spread, the first and the last among them."""
    if len(choices) <= most:
        return choices
    return [choices[round(i * (len(choices) - 1) / (most - 1))] for i in range(most)]


def corners(live, most: int = 3) -> list[dict]:
    """Every control at one of its two ends: all combinations, the lowest first and the highest last. Of more than
    `most` controls, those few in which each pair of them (of up to eight) still meets at all four pairs of ends."""
    ends = {name: (values(control)[0], values(control)[-1]) for name, control in live._controls.items()}
    if len(ends) <= most:
        return [dict(zip(ends, corner)) for corner in product(*ends.values())]
    patterns = [0, 0x55, 0x33, 0x0F, ~0x0F, ~0x33, ~0x55, ~0]
    return [{name: pair[pattern >> i & 1] for i, (name, pair) in enumerate(ends.items())} for pattern in patterns]


def drawn(figure) -> str:
    """All that a figure shows, as plain data."""
    shown = [figure.get_suptitle(), [_words(text) for text in figure.texts]]
    for axes in figure.axes:
        shown += [
            [axes.get_title(loc=loc) for loc in ("left", "center", "right")],
            axes.get_xlabel(),
            axes.get_ylabel(),
        ]
        shown += [axes.get_xlim(), axes.get_ylim(), axes.get_visible()]
        shown += [_words(text) for text in (*axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels())]
        for line in filter(lambda line: len(line.get_xdata()), axes.lines):
            shown += [_plain(line.get_xydata()), line.get_visible(), line.get_color(), line.get_linewidth()]
            shown += [line.get_linestyle(), line.get_marker()]
        for patch in axes.patches:
            shown += [_plain(patch.get_patch_transform().transform(patch.get_path().vertices)), patch.get_visible()]
            shown += [patch.get_facecolor(), patch.get_edgecolor(), patch.get_hatch()]
            shown += [patch.get_linewidth(), patch.get_linestyle()]
        for many in axes.collections:
            shown += [[_plain(path.vertices) for path in many.get_paths()], _plain(many.get_offsets())]
            shown += [_plain(look()) for look in (many.get_facecolor, many.get_edgecolor, many.get_linewidth)]
            shown += [many.get_visible(), _plain(getattr(many, "get_sizes", list)())]
        for image in axes.images:
            shown += [_plain(image.get_array()), image.get_visible(), image.get_extent(), image.get_clim()]
            shown += [image.get_cmap().name]
    return repr(shown)


def _plain(numbers) -> list:
    return np.ma.asarray(numbers).tolist()


def _words(text) -> tuple:
    at = getattr(text, "xy", None)
    look = text.get_color(), text.get_fontweight(), text.get_fontsize(), text.get_rotation()
    return text.get_text(), text.get_visible(), text.get_position(), at, look


def too_wide(widget) -> list[str]:
    """The layouts in a widget that need more than the pane: a width, or the columns of a grid. Where there is a
    max_width in percent, it gives way."""
    layout = widget.layout
    wide = layout.width or "", layout.grid_template_columns or ""
    needed = max(sum(map(float, re.findall(r"([\d.]+)px", text))) for text in wide)
    stiff = needed > PANE and "%" not in (layout.max_width or "")
    here = [f"{type(widget).__name__}: {needed:.0f} px"] if stiff else []
    return here + [found for child in getattr(widget, "children", ()) for found in too_wide(child)]


def height(live) -> int:
    """Pixels that a live figure takes on a page of 848: its picture, its controls, its words at 120 letters a line."""
    controls = list(live._controls.values())
    rows = len(controls) if len(controls) <= 3 else (len(controls) + 1) // 2
    more = sum(len(control.options) - 1 for control in controls if isinstance(control, RadioButtons))
    lines = sum(math.ceil(len(text) / 120) for text in (live.text, live.also_text))
    return round(100 * live.figure.get_size_inches()[1]) + 32 * rows + 20 * more + 21 * lines


@pytest.mark.usefixtures("as_a_learner")  # the shapes inside are checked where the tensor code is tested
class LiveFigureTests:
    """Subclass it where there is a fixture `make`, which builds each live figure of a chapter anew."""

    distinct = 10  # so many different descriptions each control must have, if it has so many values

    def test_it_fits_a_laptops_page_and_its_controls_draw_and_describe(self, make):
        live = make()
        assert too_wide(live) == []
        assert height(live) <= TALL, f"{height(live)} px: a laptop's page shows {TALL} at once"
        describes_every_state(live, min(2, self.distinct), most=4)

    @pytest.mark.proof
    def test_every_value_of_every_control_draws_and_describes(self, make):
        describes_every_state(make(), self.distinct)

    @pytest.mark.proof
    def test_the_outermost_corners_are_different_pictures(self, make, pixels):
        live = make()
        low, high = (live.render(**corners(live)[end]) for end in (0, -1))
        assert low.startswith(PNG), low[:20]
        assert high.startswith(PNG), high[:20]
        assert low != high, "the controls at their ends change nothing"

    def test_a_moved_figure_equals_a_fresh_one_and_keeps_its_axes(self, make):
        equal_when_moved(make, lambda live: corners(live)[-1:])

    @pytest.mark.proof
    def test_a_moved_figure_equals_a_fresh_one_in_every_other_corner(self, make):
        def others(live):
            few = corners(live)[:-1]
            return few + [state for state in corners(live, most=6) if state not in few]

        equal_when_moved(make, others)


def describes_every_state(live, distinct: int, most: int = 10**9) -> None:
    """Draw at most so many values of every control, the others as they are."""
    for control, widget in live._controls.items():
        tried = some(values(widget), most)
        texts = {live.render(**{control: value}) or live.text for value in tried}
        assert len(texts) >= min(len(tried), distinct), f"the description does not follow {control}"
        broken = [text for text in texts if len(text) <= 20 or re.search(r"\bnan|\binf\b", text.lower())]
        assert not broken, broken
        assert widget.value is not None, "JupyterLab shows None as an empty box"


def equal_when_moved(make, states_of) -> None:
    moved, unmoved = make(), make()
    axes, states = list(moved.figure.axes), states_of(moved)
    for state in states:
        moved.render(**state)
        fresh = unmoved._draw(**state).figure
        assert drawn(moved.figure) == drawn(fresh), state
    if states:
        picture = io.BytesIO()
        fresh.savefig(picture, format="png", dpi=30)  # it can be drawn: a coarse picture says so
        assert picture.getvalue().startswith(PNG)
    assert moved.figure.axes == axes, "its axes were made anew"
