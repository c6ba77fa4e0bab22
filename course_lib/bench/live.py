"""Live figures: what the kernel does between a moved slider and the picture that it sends, beside a slider that does
nothing but send a picture that is ready."""

import io
import itertools
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any

from course_lib.bench.report import Row
from course_lib.bench.rounds import in_turns
from course_lib.contents import CHAPTERS

MOVES = 10  # per run


def figures() -> Iterator[tuple[str, Any]]:
    """Return every live figure that opens without an argument, with its name."""
    from course_lib.live.figure import LiveFigure

    for chapter in CHAPTERS:
        if (module := chapter.part("widgets")) is None:
            continue
        for name, make in vars(module).items():
            if name.startswith("_") or getattr(make, "__module__", "") != module.__name__ or isinstance(make, type):
                continue
            try:
                with redirect_stdout(io.StringIO()):
                    figure = make()
            except TypeError:  # it wants something to show
                continue
            if isinstance(figure, LiveFigure):
                yield f"{chapter.slug}.{name}", figure


def mover(figure: Any) -> Callable[[], None]:
    """Return a function that moves the figure's first slider to and fro, and so draws and sends MOVES pictures."""
    control = next(iter(figure._controls.values()))
    options = getattr(control, "options", None)
    if options:
        places = [value for _, value in control._options_full][:2]
    elif isinstance(control.value, bool):
        places = [True, False]
    else:
        places = [control.min, control.value if control.value != control.min else control.max]
    turns = itertools.cycle(places)

    def move() -> None:
        for _ in range(MOVES):
            control.value = next(turns)

    return move


def doing_nothing(figure: Any) -> Callable[[], None]:
    """Return a function that sends as many pictures of the figure's size, which are ready."""
    import ipywidgets as widgets

    ready = itertools.cycle([figure._image.value, figure._image.value + b"\0"])  # a change, or nothing would be sent
    image = widgets.Image(value=figure._image.value, format="png")

    def move() -> None:
        for _ in range(MOVES):
            image.value = next(ready)

    return move


def measure(rounds: int) -> Iterator[Row]:
    """Measure every figure: the kernel's milliseconds per picture."""
    for name, figure in figures():
        contest = in_turns({"ours": mover(figure), "nothing": doing_nothing(figure)}, max(1, rounds // 2), name)
        each = contest.of("ours") / MOVES
        yield Row("live", name, "a ready picture", contest.times_as_fast("nothing", "ours"), each, "per picture")
        figure.close()
