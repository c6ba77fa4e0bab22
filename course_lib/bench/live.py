"""How long live figures take: what the kernel does between the message of a control and the picture that it sends."""

import asyncio
import inspect
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_type_hints

import ipywidgets as widgets
from tqdm.auto import tqdm

from course_lib.bench.report import Row
from course_lib.bench.rounds import spread
from course_lib.contents import CHAPTERS
from course_lib.live.figure import LiveFigure, light_png


def live_figures() -> dict[str, Callable[[], LiveFigure]]:
    """Return "chapter.function" -> what builds it, for the live figures that nothing has to be handed to."""
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
    """Measure every live figure: the kernel's part of a move, beside a slider that sends a ready picture."""
    for figure in tqdm(live_figures(), desc="live figures", leave=False):
        (seen,) = measure_live([figure], moves=2 * rounds)
        note = f"{seen['frames_share']:.0%} of the frames of a key that repeats"
        ratio = spread([seen["ratio"]])
        yield Row("live", figure, "a ready picture", ratio, seen["ours_ms"] / 1000, "per picture", note=note)


def measure_live(names: Sequence[str] | None = None, moves: int = 30) -> list[dict[str, Any]]:
    """Time the moves of live figures, in turns with a slider that sends one of two ready-made pictures of their size.

    No browser takes part: its share is the same for both, so that a reader sees a smaller ratio than this one.

    Args:
        names: of `live_figures()`; all of them if None. moves: of each figure, over the values of all its controls.

    Returns: a row per figure: its name, whether a model runs in it, the medians in ms, their ratio, and how many
        frames a second come for each of the do-nothing slider's, from 1 down to 0, while keys repeat 30 times a second.
    Errors: ValueError for an unknown name, or less than one move.
    """
    known = live_figures()
    if unknown := sorted(set(names or ()) - known.keys()):
        raise ValueError(f"names must be of live figures, got {unknown}; there are {', '.join(known)}")
    if moves < 1:
        raise ValueError(f"moves must be at least 1, got {moves}")
    return [asyncio.run(_row(name, known[name], moves)) for name in names or known]


async def _row(name: str, build: Callable[[], LiveFigure], moves: int) -> dict[str, Any]:
    live = build()
    slide, picture = widgets.IntSlider(), widgets.Image()
    ready = [light_png(live.figure), light_png(live.figure) + b" "]  # what follows a PNG's end is not read
    slide.observe(lambda change: setattr(picture, "value", ready[change.new % 2]), names="value")
    changes = _changes(list(live._controls.values()))
    ours, nothing = [], []
    for i in range(moves + 1):
        ours.append(_timed(*next(changes)))
        nothing.append(_timed(slide, 1 - i % 2))
    live.close()
    mine, other = (1000 * statistics.median(times[1:]) for times in (ours, nothing))  # the first builds what is kept
    return {
        "figure": name,
        "model": "model" in inspect.signature(build).parameters,
        "ours_ms": mine,
        "nothing_ms": other,
        "ratio": mine / other,
        "frames_share": min(1.0, (1000 / 30) / mine),
    }


def _changes(controls: list[widgets.Widget]) -> Iterator[tuple[widgets.Widget, Any]]:
    """Give controls in turn, each with a value that the page would send: the next step, or back."""
    while True:
        for control in controls:
            state = control.get_state()
            if "index" in state:  # of a list
                yield control, {"index": (state["index"] + 1) % len(control.options)}
            elif isinstance(state["value"], bool):
                yield control, {"value": not state["value"]}
            elif "step" in state:
                step = state["value"] + state["step"]
                yield control, {"value": step if step <= state["max"] else state["min"]}


def _timed(control: widgets.Widget, value: Any) -> float:
    """Return the seconds that a control's message takes, as the kernel takes it in."""
    before = time.perf_counter()
    control.set_state(value if isinstance(value, dict) else {"value": value})
    return time.perf_counter() - before
