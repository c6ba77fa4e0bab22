"""The widget at the end of a chapter: the ladder up to its rung, and a button that trains this rung."""

import html
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from course_lib.course import record
from course_lib.course.contents import CHAPTERS
from course_lib.course.files import write_whole
from course_lib.ladder.picture import Ladder, draw, told
from course_lib.ladder.rungs import EXERCISES, RECORD, RUNGS, STEPS, Height, Rung, recorded, train_rung
from course_lib.live.attempts import went_wrong
from course_lib.live.figure import NARROW, as_html, png
from course_lib.live.page import publish
from course_lib.live.palette import FONT

PICTURE = RECORD.with_suffix(".png")
SLUGS = [chapter.slug for chapter in CHAPTERS]


class Climb(widgets.VBox):
    """Show the ladder with a button for each rung of the chapter.

    Args:
        rungs: the rungs in the picture. here: the rungs that can be trained. parts: functions to use instead of the
            library's. chapter: the chapter whose rungs are highlighted; "" for none.

    A button calls `press(id)`, which also works without a browser, for tests.
    """

    def __init__(self, rungs: Sequence[Rung], here: Sequence[Rung], parts: dict[str, Callable[..., Any]], chapter: str):
        self.rungs, self.parts, self.chapter = rungs, parts, chapter
        self._picture, self._words = widgets.HTML(), widgets.HTML()
        self.bar = widgets.IntProgress(
            max=STEPS, layout=widgets.Layout(width="460px", max_width=NARROW, display="none")
        )
        self.buttons = {
            rung.id: widgets.Button(
                description=f"Train “{rung.label}” here, about {rung.seconds} s",
                layout=widgets.Layout(width="max-content", max_width=NARROW),
            )
            for rung in here
        }
        for id, button in self.buttons.items():
            button.on_click(lambda _, id=id: self.press(id))
        self._kept: list[Callable[[str, str], None]] = []  # one for each place on the page that shows the widget
        self._draw()
        self._say(self._own if self.parts else "")
        row = widgets.Box(list(self.buttons.values()), layout=widgets.Layout(flex_flow="row wrap"))
        super().__init__([self._picture, row, self.bar, self._words])

    @property
    def ladder(self) -> Ladder:
        """Return the content of the picture now."""
        return Ladder(self.rungs, recorded(), _yours(), self.chapter)

    @property
    def _own(self) -> str:
        names = ", ".join(f"{name} ({EXERCISES[name]})" for name in self.parts)
        return f"Own parts in place of the library's: {names}."

    def press(self, id: str, steps: int = STEPS) -> None:
        """Train a rung and draw it next to the recorded one; an error is shown below the picture."""
        rung = RUNGS[id]
        parts = {name: part for name, part in self.parts.items() if name in rung.parts}
        self.bar.value, self.bar.max, self.bar.layout.display = 0, steps, ""
        for button in self.buttons.values():
            button.disabled = True
        self._say(f"{rung.label}: making the stories, then {steps:,} steps of training.")
        try:
            _, height = train_rung(id, parts=parts, steps=steps, on_step=self._moved)
        except Exception as error:  # from a learner's own part: a callback would hide it
            self._say(went_wrong(error))
        else:
            _keep(id, height)
            self._draw()
            for keep in self._kept:  # the saved page keeps the new picture
                keep(self._picture.value, repr(self))
            own = f" {self._own}" if parts else ""
            self._say(f"{rung.label}: yours {told(height)}; on record {told(recorded()[id])}.{own}")
        finally:
            self.bar.layout.display = "none"
            for button in self.buttons.values():
                button.disabled = False

    def _moved(self, step: int, _model) -> None:
        if step % 25 == 0:
            self.bar.value = step

    def _draw(self) -> None:
        figure, ladder = draw(self.ladder), self.ladder
        self._picture.value = as_html(png(figure), figure, f"{ladder.title}. " + "; ".join(ladder.lines()))

    def _say(self, text: str) -> None:
        self._words.value = f'<div role="status" style="line-height:1.5">{html.escape(text)}</div>'

    # In print, on GitHub and without a kernel, the page shows the recorded ladder as text.
    def __repr__(self) -> str:
        ladder = self.ladder
        return "\n".join([ladder.title, *(f"  {line}" for line in ladder.lines())])

    def _ipython_display_(self) -> None:
        self._kept.append(publish(self, self._picture.value, repr(self)))


def climb(chapter: str, **parts: Callable[..., Any]) -> Climb:
    """Show the ladder up to the rung of a chapter, with a button that trains that rung.

    Args:
        chapter: its slug, such as "heads".
        parts: your own functions instead of the library's, by the name of the part, as in
            climb("masks", mask=mine("masks.causal")). `RUNGS["masks"].parts` lists the parts of a rung.

    Errors: ValueError for a chapter without a rung, or a part that its rungs do not have.
    """
    here = [rung for rung in RUNGS.values() if rung.chapter == chapter]
    if not here:
        known = ", ".join(dict.fromkeys(rung.chapter for rung in RUNGS.values()))
        raise ValueError(f"no rung of the ladder belongs to the chapter {chapter!r}: choose from {known}")
    possible = {name for rung in here for name in rung.parts}
    if foreign := parts.keys() - possible:
        raise ValueError(f"the rungs of {chapter!r} have no part {sorted(foreign)}: choose from {sorted(possible)}")
    last = SLUGS.index(chapter)
    rungs = [rung for rung in RUNGS.values() if SLUGS.index(rung.chapter) <= last]
    # A rung with `aside` is only shown in its own chapter.
    shown = [rung for rung in rungs if not rung.aside or rung.chapter == chapter]
    return Climb(shown, [rung for rung in here if rung.seconds], parts, chapter)


def ladder() -> Climb:
    """Show the entire ladder as recorded, without the `aside` rungs, and the rungs that you have trained."""
    return Climb([rung for rung in RUNGS.values() if not rung.aside], [], {}, "")


def draw_record(path: Path = PICTURE) -> Path:
    """Draw the entire recorded ladder for the README, and return the file."""
    recorded.cache_clear()
    *way, last = [rung for rung in RUNGS.values() if not rung.aside]
    heights = recorded()
    figure = draw(Ladder([*way, last], heights, {}))
    first, end = heights[way[0].id], heights[last.id]
    limit = math.ceil(100 * end.above) / 100  # the loss and the entropy are equal to two digits
    figure.suptitle(
        f"The loss falls from {first.mean:.2f} to {end.mean:.2f} nats per token, "
        f"less than {limit:.2f} above the entropy",
        fontsize=FONT + 1.5,
        x=0.01,
        ha="left",
    )
    write_whole(path, lambda part: part.write_bytes(png(figure)))
    return path


def _keep(id: str, height: Height) -> None:
    def note(entry: record.Entry) -> None:
        entry.update(nats=height.mean, grammar=height.grammar, own=" ".join(height.own))

    record.change("rungs", id, note)


def _yours() -> dict[str, Height]:
    """Return the results of the rungs that this learner has trained, the latest for each rung."""
    kept = record.entries("rungs").items()
    return {
        id: Height((entry["nats"],), entry["grammar"], tuple(entry["own"].split())) for id, entry in kept if id in RUNGS
    }
