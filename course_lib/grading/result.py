"""The feedback to the learner: `Result` and `Progress`, as text and as HTML.

The same answer always has the same text: no times, no attempt numbers, no addresses. Colour is never the only carrier
of meaning: a symbol and a word accompany it. All colours are legible on light and dark pages.
"""

import os
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from html import escape

from course_lib.course.formulas import html_of, replaced, text_of
from course_lib.grading.judge.show import plural

WIDTH = 100  # columns of text
LONG = 12  # lines of a case: a longer one is folded, if the page can unfold it
PICTURE = 8  # the least number of lines that a picture takes
EMPHASIS = re.compile(r"(?<![\w*])\*([^\W_](?:[\w ’'-]*\w)?)\*(?![\w*])")
ALSO, PERHAPS = (
    "; also ",
    " (perhaps)",
)  # in the name of a diagnosis: between two mistakes, and after a similarity
SIGNS = {  # symbol, word, colour of the badge behind white letters
    "passed": ("✓", "Passed", "#1a7f37"),
    "failed": ("✗", "Not yet", "#b3261e"),
    "unanswered": ("○", "Not answered yet", "#57606a"),
    "written": ("✎", "Written", "#57606a"),
}


@dataclass(frozen=True)
class Result:
    """The verdict on one answer.

    Fields:
        passed, earned, points, feedback: the outcome, and the complete text.
        status: passed, failed, unanswered, or written for a reflection.
        misconception: its name, or None.
        sentences, closing: the findings, and the next step.
        case, evidence: the failing case: a sentence about it, and the case as preformatted text.
        picture, sketch: the target next to the answer in HTML and in text, if both are matrices.

    The findings and the next step come first. The case may be long, so it comes last, folded if the page can fold.
    """

    exercise_id: str
    title: str
    status: str
    points: int
    sentences: tuple[str, ...]
    evidence: str = ""
    misconception: str | None = None
    closing: str = ""
    picture: str = ""
    sketch: str = ""
    part: int = 0  # points for the stages that pass, if not all pass
    case: str = ""

    @property
    def passed(self) -> bool:
        return self.status in ("passed", "written")

    @property
    def earned(self) -> int:
        return self.points if self.passed else self.part

    @property
    def mistakes(self) -> list[str]:
        """Return the names of the recognized mistakes: none, one or two."""
        return self.misconception.removesuffix(PERHAPS).split(ALSO) if self.misconception else []

    @property
    def feedback(self) -> str:
        said = (line for text in (*self.sentences, self.closing, self.case) for line in wrapped(text))
        return "\n".join(part for part in (*said, self.evidence, self.sketch) if part)

    @property
    def _score(self) -> str:
        return f"{self.earned} of {plural(self.points, 'point')}" if self.points else "no points"

    def __repr__(self) -> str:
        sign, word, _ = SIGNS[self.status]
        heading = wrapped(f"{sign} {word} · {self.exercise_id} · {self.title} · {self._score}")
        return "\n".join([*heading, self.feedback])

    def _repr_html_(self) -> str:
        sign, word, colour = SIGNS[self.status]
        lines = "".join(_line(text) for text in (*self.sentences, self.closing) if text)
        return (
            f'<div style="border-left: 4px solid {colour}; padding: 4px 12px; max-width: 52em;">'
            f"{_badge(sign, word, colour)} <b>{escape(self.title)}</b> "
            f"<code>{escape(self.exercise_id)}</code> · {self._score}{lines}{self._case_html()}</div>"
        )

    def _case_html(self) -> str:
        """Return the case below its sentence; a long case is folded, so that the verdict stays on the screen."""
        style = "margin: 6px 0 0; padding: 0; background: transparent; color: inherit; overflow-x: auto;"
        evidence = f'<pre style="{style}">{escape(self.evidence)}</pre>' if self.evidence else ""
        if not (evidence or self.picture):
            return _line(self.case) if self.case else ""
        is_long = len(self.evidence.splitlines()) + PICTURE * bool(self.picture) > LONG
        return (
            f'<details{"" if is_long else " open"} style="margin-top: 6px;"><summary style="cursor: pointer;">'
            f"{_code(self.case or 'The case')}</summary>{evidence}{self.picture}</details>"
        )

    def _repr_pretty_(self, printer, cycle: bool) -> None:
        """Print the text of the result in a notebook. For nbgrader print only the points, which it reads as the
        score."""
        printer.text(str(self.earned) if _for_nbgrader() else repr(self))

    def _ipython_display_(self) -> None:
        """Show the result, and below it a button with the next hint. The result itself also stays without a kernel."""
        if self.status not in ("failed", "unanswered") or _for_nbgrader():
            raise NotImplementedError  # IPython then displays it in the usual way
        from IPython.display import publish_display_data

        publish_display_data({"text/plain": repr(self), "text/html": self._repr_html_()})
        for show in _below:
            show(self.exercise_id)


_below: list[Callable[[str], object]] = []  # set by the engine, because this module does not know the button


def show_below(show: Callable[[str], object]) -> None:
    """Call `show(exercise_id)` in a notebook below all feedback that a hint may follow."""
    _below.append(show)


def _for_nbgrader() -> bool:
    return "NBGRADER_EXECUTION" in os.environ  # nbgrader sets it while it grades or validates


@dataclass(frozen=True)
class Hint:
    """One hint of an exercise. `in_turn` is False if it was given early because it helps with a mistake."""

    exercise_id: str
    number: int
    of: int
    text: str
    mistake: str = ""  # the recognized mistake that the hint helps with
    in_turn: bool = True

    @property
    def _parts(self) -> tuple[str, str]:
        """Return the title, and the text after the exercise's id. A hint given early does not count as skipping
        others."""
        if not self.in_turn:
            place = f"hint {self.number} of {self.of}, given first because it helps here"
            return "Hint for this mistake", f" · “{self.mistake}” ({place})"
        return f"Hint {self.number} of {self.of}", f" · on “{self.mistake}”" if self.mistake else ""

    def __repr__(self) -> str:
        what, on = self._parts
        return f"{what} · {self.exercise_id}{on}\n{replaced(self.text, text_of)}"

    def _repr_html_(self) -> str:
        what, on = self._parts
        return (
            f'<div style="border-left: 4px solid #57606a; padding: 4px 12px; max-width: 52em;">'
            f"<b>{what}</b> <code>{escape(self.exercise_id)}</code>{escape(on)}"
            f'<div style="margin-top: 6px;">{_prose(self.text)}</div></div>'
        )


@dataclass(frozen=True)
class Row:
    """One exercise in the table of progress. last: passed, failed, written, or "" without an answer."""

    exercise_id: str
    chapter: int
    title: str
    points: int
    earned: int
    attempts: int
    last: str

    @property
    def cells(self) -> tuple[str, str, str]:
        """Return points, attempts and last result as displayed."""
        points = f"{self.earned} / {self.points}" if self.points else "–"
        last = " ".join(SIGNS[self.last][:2]) if self.last else "–"
        return points, str(self.attempts) if self.attempts else "–", last


@dataclass(frozen=True)
class Progress:
    """Every exercise of the course with the points earned, the number of attempts and the last result, by chapter."""

    rows: tuple[Row, ...]
    titles: Mapping[int, str] = field(default_factory=dict)  # of the chapters
    guesses: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # confidence in % -> right guesses, all
    notebooks: Mapping[int, str] = field(default_factory=dict)  # a chapter's number -> path to its exercises from here

    @property
    def earned(self) -> int:
        return sum(row.earned for row in self.rows)

    @property
    def points(self) -> int:
        return sum(row.points for row in self.rows)

    @property
    def chapters(self) -> list["Progress"]:
        """Return a separate `Progress` for each chapter."""
        numbers = dict.fromkeys(row.chapter for row in self.rows)
        return [replace(self, rows=tuple(row for row in self.rows if row.chapter == number)) for number in numbers]

    @property
    def _begun(self) -> bool:
        return any(row.last for row in self.rows)

    @property
    def _done(self) -> bool:
        return all(row.last in ("passed", "written") for row in self.rows)

    @property
    def _title(self) -> str:
        number = self.rows[0].chapter
        return f"{number} · {self.titles[number]}" if number in self.titles else f"Chapter {number}"

    def __repr__(self) -> str:
        """Return a line for each chapter and, under a chapter with any result, a line for each exercise."""
        width = max((len(row.exercise_id) for row in self.rows), default=0) + 2
        lines = []
        for chapter in self.chapters:
            lines.append(f"{chapter._title:<{width + 4}}{chapter.earned:>4} of {chapter.points} points")
            if not chapter._begun:
                names = ", ".join(row.exercise_id.partition(".")[2] for row in chapter.rows)
                lines += textwrap.wrap(f"not started: {names}", WIDTH, initial_indent="    ", subsequent_indent="    ")
                continue
            for row in chapter.rows:
                points, attempts, last = row.cells
                attempts = "–" if attempts == "–" else plural(row.attempts, "attempt")
                lines.append(f"    {row.exercise_id:<{width}}{points:>6}  {attempts:>12}  {last}".rstrip())
        return "\n".join([*lines, f"{self.earned} of {self.points} points", *self._calibration])

    @property
    def _calibration(self) -> list[str]:
        """Return how well guesses agree with the confidence in them, a line for each level; no line without guesses."""
        if not self.guesses:
            return []
        lines = [
            f"{sure:>2}% sure: right in {right} of {of} ({right / of:.0%})"
            for sure, (right, of) in self.guesses.items()
        ]
        return ["Your guesses. You are well calibrated if 70% of your 70% guesses are right, and so on.", *lines]

    def _repr_html_(self) -> str:
        """Return a bar for each chapter, which opens into its table. Started but unfinished chapters are open."""
        chapters = "".join(chapter._chapter_html() for chapter in self.chapters)
        guesses = "".join(f"<div>{escape(line)}</div>" for line in self._calibration)
        return (
            f'<div style="max-width: 60em;">{_bar(self.earned, self.points, "All chapters")}{chapters}{guesses}</div>'
        )

    def _chapter_html(self) -> str:
        cell = "padding: 2px 10px; text-align:"
        body = []
        for row in self.rows:
            points, attempts, last = row.cells
            last = _badge(*SIGNS[row.last]) if row.last else last
            id = f"<code>{escape(row.exercise_id)}</code>"
            if page := self.notebooks.get(row.chapter):
                cell = row.exercise_id.partition(".")[2].replace("_", "-")  # the id of the exercise's first cell
                id = f'<a href="{page}#cell-id={cell}" style="text-decoration: underline;">{id}</a>'
            body.append(
                f'<tr><td style="{cell} left;">{id}</td>'
                f'<td style="{cell} left;">{escape(row.title)}</td>'
                f'<td style="{cell} right;">{points}</td><td style="{cell} right;">{attempts}</td>'
                f'<td style="{cell} left;">{last}</td></tr>'
            )
        heads = zip(
            ("exercise", "title", "points", "attempts", "last result"), ("left", "left", *["right"] * 2, "left")
        )
        head = "".join(f'<th style="{cell} {side};">{name}</th>' for name, side in heads)
        bar = _bar(self.earned, self.points, self._title)
        return (
            f'<details{" open" if self._begun and not self._done else ""} style="margin-top: 4px;">'
            f'<summary style="cursor: pointer;">{bar}</summary>'
            f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></details>"
        )


def wrapped(text: str) -> list[str]:
    """Return the lines of a text, wrapped to the page width, with the indentation kept."""
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return lines


def _bar(earned: int, points: int, what: str) -> str:
    bar = f'<progress value="{earned}" max="{max(points, 1)}" style="vertical-align: middle;"></progress>'
    return f"{bar} <b>{escape(what)}</b>: {earned} of {plural(points, 'point')}"


def _line(text: str) -> str:
    return f'<div style="margin-top: 6px; white-space: pre-wrap;">{_code(text)}</div>'


def _prose(text: str) -> str:
    """Return an author's text as `_code` does, with its formulas rendered."""
    drawn: list[str] = []

    def kept(tex: str) -> str:
        drawn.append(html_of(tex))
        return f"\0{len(drawn) - 1}\0"

    return re.sub("\0(\\d+)\0", lambda found: drawn[int(found[1])], _code(replaced(text, kept)))


def _code(text: str) -> str:
    """Return the text escaped, with `names` as code and *words* in italics; a * in code or in a product stays."""
    parts = re.split(r"`([^`\n]+)`", escape(text))  # parts between a pair of ` have odd indices
    return "".join(
        f"<code>{part}</code>" if i % 2 else EMPHASIS.sub(r"<em>\1</em>", part) for i, part in enumerate(parts)
    )


def _badge(sign: str, word: str, colour: str) -> str:
    style = f"background: {colour}; color: #ffffff; border-radius: 3px; padding: 1px 8px; font-weight: bold;"
    return f'<span style="{style}">{sign} {word}</span>'
