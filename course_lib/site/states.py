"""Recorded states: draw a live figure once for each position of one of its controls."""

import ast
import hashlib
import html
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nbformat

from course_lib.course.contents import BY_SLUG, CHAPTERS

MOST = 21  # states per figure
DPI = 150  # sharp enough on high-resolution screens, with half the bytes of a notebook's picture


@dataclass(frozen=True)
class Recorded:
    """Describe a live figure of a chapter.

    Fields: slug, the chapter; call, the function called in the last line of the figure's cell; control, the control
    that the slider moves; prepare, code that the cell needs in addition to the first cell's imports.
    """

    slug: str
    call: str
    control: str
    prepare: str = ""

    def shown_by(self, source: str) -> bool:
        """Return whether a cell with this source shows the figure."""
        return source.strip().split("\n")[-1].startswith(self.call + "(")


@cache
def recorded_figures() -> tuple[Recorded, ...]:
    """Return the figures that the chapters' `widgets.py` declare in RECORDED, in course order.

    RECORDED maps the call of a figure to its control, or to (control, code that must run before the call).
    """
    found = []
    for chapter in CHAPTERS:
        for call, said in getattr(chapter.part("widgets"), "RECORDED", {}).items():
            control, prepare = (said, "") if isinstance(said, str) else said
            found.append(Recorded(chapter.slug, call, control, prepare))
    return tuple(found)


def recorded_in(slug: str, source: str) -> Recorded | None:
    """Return the recorded figure that a cell of this chapter shows, or None."""
    return next((each for each in recorded_figures() if each.slug == slug and each.shown_by(source)), None)


def glass_model(slug: str, source: str) -> tuple[str, Callable[[], tuple]] | None:
    """Return (name, function that makes (model, tokenizer)) of the model that a cell shows in the glass, if the
    chapter's `widgets.py` declares it in GLASSES. None: the model that ships with the course."""
    shown = re.match(r"glass\((\w+),", source.strip().split("\n")[-1])
    made = getattr(BY_SLUG[slug].part("widgets"), "GLASSES", {})
    return (shown[1], made[shown[1]]) if shown and shown[1] in made else None


def positions(control) -> list[tuple[str, Any]]:
    """Return the slider's positions as (text, value): up to MOST options or numbers, including the default."""
    if hasattr(control, "options"):
        options = [each if isinstance(each, tuple) else (str(each), each) for each in control.options]
        return [options[i] for i in _spread(len(options), [v for _, v in options].index(control.value))]
    steps = round((control.max - control.min) / control.step)
    default = round((control.value - control.min) / control.step)
    values = [control.min + i * control.step for i in _spread(steps + 1, default)]
    return [(f"{value:.6g}", type(control.value)(value)) for value in values]


def _spread(n: int, keep: int) -> list[int]:
    """Return up to MOST evenly spaced numbers of range(n), including both ends and `keep`."""
    if n <= MOST:
        return list(range(n))
    chosen = [round(i * (n - 1) / (MOST - 1)) for i in range(MOST)]
    if keep not in chosen:
        chosen[min(range(1, MOST - 1), key=lambda i: abs(chosen[i] - keep))] = keep
    return sorted(chosen)


def draw(recorded: Recorded, notebooks: Path, pictures: Path) -> str:
    """Draw the states of a figure in the folder `pictures`, and return the HTML that shows them.

    Errors: ValueError if no cell of the chapter's notebook shows the figure.
    """
    figure = build(recorded, notebooks / BY_SLUG[recorded.slug].notebook)
    control = figure._controls[recorded.control]
    states: list[dict] = []
    first = 0
    for text, value in positions(control):
        if value == control.value:
            first = len(states)
        figure._update(figure.state | {recorded.control: value})
        picture = _webp(figure.figure)
        name = f"{hashlib.sha256(picture).hexdigest()[:16]}.webp"
        (pictures / name).write_bytes(picture)
        states.append({"value": text, "file": name, "words": [t for t in (figure.text, figure.also_text) if t]})
    width, height = (round(100 * inches) for inches in figure.figure.get_size_inches())
    return as_html(control.description, states, first, width, height)


def build(recorded: Recorded, notebook: Path):
    """Return the live figure of a notebook. This runs the first code cell, `recorded.prepare` and the figure's cell."""
    sources = [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    shows = next((source for source in sources if recorded.shown_by(source)), None)
    if shows is None:
        raise ValueError(
            f"no cell of {notebook.name} ends with {recorded.call}(…): see RECORDED in the chapter’s widgets.py"
        )
    *before, last = ast.parse(shows).body
    names: dict[str, Any] = {}
    exec(sources[0], names)
    exec(recorded.prepare, names)
    exec(compile(ast.Module(before, []), notebook.name, "exec"), names)
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), notebook.name, "eval"), names)


def _webp(figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="webp", dpi=DPI, pil_kwargs={"quality": 80, "method": 2})
    return buffer.getvalue()


def as_html(label: str, states: Sequence[dict], first: int, width: int, height: int) -> str:
    """Return a figure with a slider over its states. `course.js` runs the slider; without it, one picture is shown."""
    shown, data = states[first], json.dumps(states, ensure_ascii=False).replace("<", "\\u003c")
    name = html.escape(label)
    words = "".join(f"<p>{html.escape(text)}</p>" for text in shown["words"])
    return (
        f'<figure class="states picture"><div class="controls" hidden><label>{name} '
        f'<input type="range" min="0" max="{len(states) - 1}" value="{first}" step="1" aria-label="{name}" '
        f'aria-valuetext="{html.escape(shown["value"])}"></label><output>{html.escape(shown["value"])}</output>'
        f'<button type="button" aria-label="Play: {name}">▶ Play</button></div>'
        f'<img src="../pictures/{shown["file"]}" alt="{html.escape(shown["words"][0])}" width="{width}" '
        f'height="{height}"><figcaption aria-live="polite">{words}</figcaption>'
        f'<script type="application/json">{data}</script></figure>'
    )
