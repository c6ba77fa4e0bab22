"""What the learner sees: `Result` and `Progress`, as text and as HTML.

The same answer gives the same text everywhere, always: no times, no attempt numbers, no addresses. Colour is never
alone: a symbol and a word say the same. Colours are chosen to be read on a light and on a dark page.
"""

import re
from dataclasses import dataclass
from html import escape

from .show import plural

SIGNS = {  # symbol, word, colour of the badge behind white letters
    "passed": ("✓", "Passed", "#1a7f37"),
    "failed": ("✗", "Not yet", "#b3261e"),
    "unanswered": ("○", "Not answered yet", "#57606a"),
    "written": ("✎", "Written", "#57606a"),
}


@dataclass(frozen=True)
class Result:
    """The verdict on one answer.

    Fields: passed, earned, points, feedback (text), misconception (its name, or None), status (passed, failed,
    unanswered, or written for a reflection), and `evidence`, the failing case as preformatted text.
    """

    exercise_id: str
    title: str
    status: str
    points: int
    sentences: tuple[str, ...]
    evidence: str = ""
    misconception: str | None = None
    closing: str = ""

    @property
    def passed(self) -> bool:
        return self.status in ("passed", "written")

    @property
    def earned(self) -> int:
        return self.points if self.passed else 0

    @property
    def feedback(self) -> str:
        return "\n".join(part for part in (*self.sentences, self.evidence, self.closing) if part)

    @property
    def _score(self) -> str:
        return f"{self.earned} of {plural(self.points, 'point')}" if self.points else "no points"

    def __repr__(self) -> str:
        sign, word, _ = SIGNS[self.status]
        return f"{sign} {word} · {self.exercise_id} · {self.title} · {self._score}\n{self.feedback}"

    def _repr_html_(self) -> str:
        sign, word, colour = SIGNS[self.status]
        lines = "".join(_line(sentence) for sentence in self.sentences)
        style = "margin: 6px 0 0; padding: 0; background: transparent; color: inherit; overflow-x: auto;"
        evidence = f'<pre style="{style}">{escape(self.evidence)}</pre>' if self.evidence else ""
        closing = _line(self.closing) if self.closing else ""
        return (
            f'<div style="border-left: 4px solid {colour}; padding: 4px 12px; max-width: 52em;">'
            f"{_badge(sign, word, colour)} <b>{escape(self.title)}</b> "
            f"<code>{escape(self.exercise_id)}</code> · {self._score}{lines}{evidence}{closing}</div>"
        )


@dataclass(frozen=True)
class Hint:
    """One hint of an exercise."""

    exercise_id: str
    number: int
    of: int
    text: str

    def __repr__(self) -> str:
        return f"Hint {self.number} of {self.of} · {self.exercise_id}\n{self.text}"

    def _repr_html_(self) -> str:
        return (
            f'<div style="border-left: 4px solid #57606a; padding: 4px 12px; max-width: 52em;">'
            f"<b>Hint {self.number} of {self.of}</b> <code>{escape(self.exercise_id)}</code>"
            f'<div style="margin-top: 6px;">{_code(self.text)}</div></div>'
        )


@dataclass(frozen=True)
class Row:
    """One exercise in the table of progress. last: passed, failed, written, or "" if never answered."""

    exercise_id: str
    chapter: int
    title: str
    points: int
    earned: int
    attempts: int
    last: str


@dataclass(frozen=True)
class Progress:
    """Every exercise of the course with the points earned, the number of attempts and the last result."""

    rows: tuple[Row, ...]

    @property
    def earned(self) -> int:
        return sum(row.earned for row in self.rows)

    @property
    def points(self) -> int:
        return sum(row.points for row in self.rows)

    def _cells(self) -> list[tuple[str, str, str, str]]:
        return [
            (
                row.exercise_id,
                f"{row.earned} / {row.points}" if row.points else "–",
                str(row.attempts) if row.attempts else "–",
                " ".join(SIGNS[row.last][:2]) if row.last else "–",
            )
            for row in self.rows
        ]

    def __repr__(self) -> str:
        table = [("exercise", "points", "attempts", "last result"), *self._cells()]
        widths = [max(len(row[column]) for row in table) for column in range(4)]
        lines = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}" for a, b, c, d in table]
        lines.insert(1, "─" * max(map(len, lines)))
        return "\n".join([*lines, f"{self.earned} of {self.points} points"])

    def _repr_html_(self) -> str:
        cell = "padding: 2px 10px; text-align:"
        body = []
        for row, (name, points, attempts, last) in zip(self.rows, self._cells()):
            last = _badge(*SIGNS[row.last]) if row.last else escape(last)
            body.append(
                f'<tr><td style="{cell} left;"><code>{escape(name)}</code></td>'
                f'<td style="{cell} left;">{escape(row.title)}</td>'
                f'<td style="{cell} right;">{points}</td><td style="{cell} right;">{attempts}</td>'
                f'<td style="{cell} left;">{last}</td></tr>'
            )
        head = "".join(
            f'<th style="{cell} {side};">{name}</th>'
            for name, side in zip(
                ("exercise", "title", "points", "attempts", "last result"), ("left", "left", "right", "right", "left")
            )
        )
        bar = f'<progress value="{self.earned}" max="{max(self.points, 1)}" style="vertical-align: middle;"></progress>'
        return (
            f"<div>{bar} <b>{self.earned} of {self.points} "
            f"points</b><table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        )


def _line(text: str) -> str:
    return f'<div style="margin-top: 6px; white-space: pre-wrap;">{_code(text)}</div>'


def _code(text: str) -> str:
    """Escaped, with `names` set as code."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escape(text))


def _badge(sign: str, word: str, colour: str) -> str:
    style = f"background: {colour}; color: #ffffff; border-radius: 3px; padding: 1px 8px; font-weight: bold;"
    return f'<span style="{style}">{sign} {word}</span>'
