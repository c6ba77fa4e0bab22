"""Live figure of chapter 16: choose a claim, see what was measured."""

from collections.abc import Mapping
from pathlib import Path

import ipywidgets as widgets

from course_lib.chapters.claims.figures import MARKS, Card, overview
from course_lib.claims import Experiment, Finding, find, recorded
from course_lib.contents import TITLES
from course_lib.files import ASSETS
from course_lib.live.figure import LiveFigure, dropdown, png


def claim_explorer(findings: Mapping[str, Finding]) -> LiveFigure:
    """A list of all claims, in the order of the course; the chosen one with its source, test, measurement and verdict.

    findings: id of an experiment -> what it found, such as `recorded()`.
    Errors: ValueError if there is none, or an id is unknown.
    """
    if not findings:
        raise ValueError("findings must hold at least one: give recorded()")
    experiments = {id: find(id) for id in findings}
    options = {f"{each.chapter} · {each.claim}": id for id, each in experiments.items()}
    chosen = dropdown("claim", options, next(iter(findings)))
    chosen.layout = widgets.Layout(width="900px", max_width="98%")

    def draw(claim: str):
        return card(experiments[claim], findings[claim])

    def describe(claim: str) -> str:
        found, timed = findings[claim], " Measured on the authors' machine." if experiments[claim].timed else ""
        verdict = MARKS[found.verdict][2]
        return (
            f"This claim {verdict}. {found.because}{timed} Said by: {experiments[claim].source}. Measure it yourself: "
            f"python -m course_lib claims {claim}"
        )

    return LiveFigure(draw, {"claim": chosen}, describe)


def card(experiment: Experiment, found: Finding) -> Card:
    """Return the card of a claim and what was found of it."""
    seeds = ", ".join(map(str, experiment.seeds))
    said = experiment.claim, str(experiment.source), experiment.control, experiment.threshold, seeds
    return Card(*said, found.measured, found.because, found.verdict)


def by_chapter(findings: Mapping[str, Finding]) -> dict[str, list[str]]:
    """The verdicts of each chapter's claims, "number · title" -> verdicts, as `overview` wants them."""
    chapters: dict[str, list[str]] = {}
    for id, found in findings.items():
        number = find(id).chapter
        chapters.setdefault(f"{number} · {TITLES[number]}", []).append(found.verdict)
    return chapters


def picture(path: Path = ASSETS / "claims.png") -> Path:
    """Draw all recorded verdicts into a file: the picture that opens the README."""
    path.write_bytes(png(overview(by_chapter(recorded()))))
    return path
