"""A claim as a card in a notebook: the claim, its source and the verdict; the details are folded."""

import html
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_lib.claims.registry import Experiment, Finding, find
from course_lib.course.tables import aligned

_CELL, _LEFT = (f"padding: 1px 10px; text-align: {side}" for side in ("right", "left"))


@dataclass(frozen=True)
class Settled:
    """A claim with its finding. In a notebook you can unfold the evidence below the verdict."""

    experiment: Experiment
    finding: Finding

    def __repr__(self) -> str:
        claim, verdict, because = self.experiment.told(self.finding)[:3]
        folded = f"python -m course_lib claims --about {self.experiment.id}"
        rest = (because, f"Source, control and possible outcomes: {folded}")
        return "\n".join([claim, _wrapped(verdict), *rows_as_text(self.finding.rows), *map(_wrapped, rest)])

    def _repr_html_(self) -> str:
        claim, verdict, because = map(html.escape, self.experiment.told(self.finding)[:3])
        word, _, measured = verdict.partition(": ")
        table = rows_as_html(self.finding.rows)
        return (
            '<div style="border-left: 4px solid #57606a; padding: 2px 12px; max-width: 62em;">'
            f"<div>{claim}</div><div><b>{word}</b>: {measured}</div>{table}<div>{because}</div>"
            "<details><summary>The author’s words, the control, what each verdict requires, and the code"
            f"</summary>{self._folded()}</details></div>"
        )

    def _folded(self) -> str:
        each, source = self.experiment, self.experiment.source
        link = f'<a href="{html.escape(source.link)}" style="text-decoration:underline">{html.escape(source.title)}</a>'
        ours = "" if each.verbatim else " The wording above is ours."
        outcomes = "".join(f"<li>{verdict}: {html.escape(when)}</li>" for verdict, when in each.outcomes.items())
        tried = "; ".join(html.escape(str(size)) for size in self.finding.tried)
        values = ", ".join(map(figure, self.finding.values))
        return (
            f"<blockquote>“{html.escape(source.quote)}”</blockquote>"
            f"<div>{html.escape(source.author)}, {link}, {html.escape(source.place)}.{ours}</div>"
            f"<div><i>control:</i> {html.escape(each.control)}</div>"
            f"<div><i>what each verdict requires:</i><ul>{outcomes}</ul></div>"
            + (f"<div><i>also tried:</i> {tried}</div>" if tried else "")
            + f"<div><i>numbers:</i> {values}</div>"
            f"<pre>{html.escape(inspect.getsource(each.decide))}\n\n{html.escape(inspect.getsource(each.run))}</pre>"
        )


def figure(value: float) -> str:
    """Return a number as text: three significant digits, or a whole number from 1,000 upwards."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def rows_as_text(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a finding's table as indented lines of text; an empty list if it has no rows."""
    return textwrap.indent(aligned(rows[1:], rows[0]), "    ").splitlines() if rows else []


def rows_as_html(rows: Sequence[Sequence[str]]) -> str:
    """Return a finding's table as HTML; "" if it has no rows."""
    if not rows:
        return ""
    head, *others = ([html.escape(cell) for cell in row] for row in rows)
    names = "".join(f'<th scope="col" style="{_LEFT if i == 0 else _CELL}">{name}</th>' for i, name in enumerate(head))
    lines = (
        f'<tr><th scope="row" style="{_LEFT}; font-weight: normal">{first}</th>'
        + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in rest)
        + "</tr>"
        for first, *rest in others
    )
    body = f"<thead><tr>{names}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<table style="margin: 4px 0 4px 1em">{body}</table>'


def _wrapped(line: str) -> str:
    return textwrap.fill(line, width=100, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def settle(*ids: str, findings: Mapping[str, Finding] | None = None) -> None:
    """Show the claim of each id with its verdict and measurement; the source, the control and the code are folded.

    findings: known findings, such as `recorded()`; without them the experiments run now.
    Errors: ValueError if an id is unknown.
    """
    from IPython.display import display

    for each in map(find, ids):
        display(Settled(each, each() if findings is None else findings[each.id]))
