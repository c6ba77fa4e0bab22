"""The speed of live figures: the kernel's time from a control's message to the new picture."""

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import ipywidgets as widgets
from tqdm.auto import tqdm

from course_lib.bench.report import Row
from course_lib.bench.rounds import spread
from course_lib.checks import require_at_least_one
from course_lib.course.contents import CHAPTERS
from course_lib.live.figure import LiveFigure, light_png


def live_figures() -> dict[str, Callable[[], LiveFigure]]:
    """Return "chapter.function" -> the function, for the live figures that need no arguments."""
    found: dict[str, Callable[[], LiveFigure]] = {}
    for chapter in CHAPTERS:
        module = chapter.part("widgets")
        if module is None:
            continue
        for name, build in inspect.getmembers(module, inspect.isfunction):
            if build.__module__ != module.__name__ or name.startswith("_"):
                continue
            needed = [each for each in inspect.signature(build).parameters.values() if each.default is each.empty]
            if not needed and get_type_hints(build).get("return") is LiveFigure:
                found[f"{chapter.slug}.{name}"] = build
    return found


def measure(rounds: int) -> Iterator[Row]:
    """Measure the kernel's seconds per move for every live figure, and for a slider with ready-made pictures."""
    nothing: list[float] = []
    for name, build in tqdm(live_figures().items(), desc="live figures", leave=False):
        ours, ready = asyncio.run(moves_of(build, 2 * rounds))
        nothing += ready
        yield Row("live", name, "", spread(ours), sign="s")
    yield Row("live", "a slider with a ready picture", "", spread(nothing), sign="s")


async def moves_of(build: Callable[[], LiveFigure], moves: int) -> tuple[list[float], list[float]]:
    """Time moves of a live figure, in turns with a slider that sends one of two ready-made pictures of the same size.

    There is no browser in this measurement; it would add the same time to both.

    Args:
        build: a value of `live_figures()`. moves: the number of moves over all controls, at least 1.

    Returns: the seconds of each move, for the figure and for the other slider.
    """
    require_at_least_one(moves=moves)
    live = build()
    slide, picture = widgets.IntSlider(), widgets.Image()
    ready = [light_png(live.figure), light_png(live.figure) + b" "]  # readers ignore bytes after a PNG's end
    slide.observe(lambda change: setattr(picture, "value", ready[change.new % 2]), names="value")
    changes = _changes(list(live._controls.values()))
    ours, nothing = [], []
    for i in range(moves + 1):
        ours.append(_timed(*next(changes)))
        nothing.append(_timed(slide, 1 - i % 2))
    live.close()
    return ours[1:], nothing[1:]  # the first move fills caches


def _changes(controls: list[widgets.Widget]) -> Iterator[tuple[widgets.Widget, Any]]:
    """Yield the controls in turn, each with the next value that the page would send, or the first after the last."""
    while True:
        for control in controls:
            state = control.get_state()
            if "index" in state:  # a list of options
                yield control, {"index": (state["index"] + 1) % len(control.options)}
            elif isinstance(state["value"], bool):
                yield control, {"value": not state["value"]}
            elif "step" in state:
                step = state["value"] + state["step"]
                yield control, {"value": step if step <= state["max"] else state["min"]}


def _timed(control: widgets.Widget, value: Any) -> float:
    """Return the seconds that the kernel takes to handle a control's message."""
    before = time.perf_counter()
    control.set_state(value if isinstance(value, dict) else {"value": value})
    return time.perf_counter() - before
