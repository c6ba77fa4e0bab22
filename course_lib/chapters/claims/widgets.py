"""Live figures of chapter 17: a list of all claims that can be filtered, and one claim with all its measurements."""

import html
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

import ipywidgets as widgets

from course_lib.chapters.claims.figures import MARKS, Card, headlines, overview_title
from course_lib.claims import Experiment, Finding, find, recorded
from course_lib.course.contents import TITLES
from course_lib.course.files import ASSETS
from course_lib.live.figure import LiveFigure, as_html, dropdown, png
from course_lib.live.page import publish

SIGNS = {"confirmed": "●", "depends": "◆", "refuted": "✕", "not at this size": "▲", "by construction": "■"}
# Twelve popular claims, from embeddings to attention maps. Together with their results they fit in one picture.
HEADLINES = (
    "embeddings.analogies",
    "masks.cheating",
    "heads.slice",
    "heads.removal",
    "positions.sinusoids_reach",
    "feed_forward.capitals",
    "normalization.depth",
    "blocks.guarantee",
    "counting.gpt2_117m",
    "sampling.creative",
    "efficiency.cache_bytes",
    "pretrained.weights_as_influence",
)

# Those of them in the picture of README.md. A reader understands them before the first chapter.
FOR_THE_README = (
    "heads.removal",
    "positions.sinusoids_reach",
    "normalization.depth",
    "counting.gpt2_117m",
    "sampling.creative",
)


class CardFigure(LiveFigure):
    """A live figure whose picture is a page of words. A screen reader reads them all, so the text below the picture has
    only what the page does not say."""

    def _write(self) -> None:
        super()._write()
        spoken = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)"  # invisible
        self._caption.value = f'<div role="status" style="{spoken}">{html.escape(self.text)}</div>'

    @property
    def still(self) -> str:
        """Return the picture as HTML that needs no kernel, with the additional words below it."""
        self.settle()
        return as_html(self._image.value, self.figure, self.text, f"<div>{html.escape(self.also_text)}</div>")


def claim_explorer(findings: Mapping[str, Finding], first: str = "") -> CardFigure:
    """Show a list of all claims in the order of the course, and for the chosen claim its source, test, measurement and
    verdict.

    Args:
        findings: id of an experiment -> its result, such as `recorded()`.
        first: the id that is chosen at the beginning.

    Errors: ValueError if there are no findings, or an id is unknown.
    """
    if not findings:
        raise ValueError("findings is empty: give at least one, such as those of recorded()")
    experiments = {id: find(id) for id in findings}
    options = {f"{each.chapter} · {each.claim}": id for id, each in experiments.items()}
    chosen = dropdown("claim", options, first or next(iter(findings)))
    chosen.layout = widgets.Layout(width="820px", max_width="98%")

    def draw(claim: str):
        return card(experiments[claim], findings[claim])

    def describe(claim: str) -> str:
        lines = (line[0].upper() + line[1:] for line in experiments[claim].told(findings[claim]))
        return " ".join(line if line.endswith((".", "?", ".”", ".)")) else f"{line}." for line in lines)

    def below(claim: str) -> str:
        timed = "Measured on the authors' machine. " if experiments[claim].timed else ""
        return f"{timed}Measure it yourself: python -m course_lib claims {claim}"

    return CardFigure(draw, {"claim": chosen}, describe, below)


class ClaimsTable(widgets.VBox):
    """Show a table of all claims with their verdicts, filtered by verdict, chapter and words.

    findings: id of an experiment -> its result, such as `recorded()`.
    As text it is short: the number of claims with each verdict in each chapter, and HEADLINES. The page also
    has the full table, folded.

    Errors: ValueError if there are no findings, or an id is unknown.
    """

    def __init__(self, findings: Mapping[str, Finding]):
        if not findings:
            raise ValueError("findings is empty: give at least one, such as those of recorded()")
        self.findings = {
            each.id: findings[each.id] for each in sorted(map(find, findings), key=lambda each: each.chapter)
        }
        numbers = sorted({find(id).chapter for id in findings})
        verdicts = {"all": ""} | {f"{SIGNS[verdict]} {verdict}": verdict for verdict in MARKS}
        self.verdict = dropdown("verdict", verdicts, "")
        self.chapter = dropdown(
            "chapter", {"all": 0} | {f"{number} · {TITLES[number]}": number for number in numbers}, 0
        )
        self.words = widgets.Text(description="search", placeholder="words of claim or source")
        controls = [self.verdict, self.chapter, self.words]
        self._list = widgets.HTML()
        for control, width in zip(controls, ("200px", "290px", "300px")):
            control.style.description_width = "initial"
            control.layout.width = width
            control.observe(self._filter, names="value")
        self._filter()
        row = widgets.Box(controls, layout=widgets.Layout(flex_flow="row wrap", width="100%"))
        super().__init__([row, self._list])

    @property
    def chosen(self) -> list[str]:
        """Return the ids that pass the filter, in the order of the course."""
        words = self.words.value.casefold().split()
        return [
            id
            for id, found in self.findings.items()
            if self.verdict.value in ("", found.verdict)
            and self.chapter.value in (0, find(id).chapter)
            and all(word in _searched(id, found) for word in words)
        ]

    def _filter(self, _change=None) -> None:
        chosen = self.chosen
        told = f"{len(chosen)} of {len(self.findings)} claims" if chosen else "No claim passes: widen the search"
        entries = _entries(self.findings, chosen)
        self._list.value = (
            f'<div role="status"><b>{told}</b></div>'
            f'<div tabindex="0" style="max-height:430px;overflow-y:auto;line-height:1.4">{entries}</div>'
        )

    def __repr__(self) -> str:
        lines = [f"[live table] {self._counted}:"]
        for chapter, verdicts in by_chapter(self.findings).items():
            lines.append(f"{chapter:36}" + "  ".join(f"{SIGNS[each]} {verdicts.count(each):<2}" for each in MARKS))
        for id in filter(self.findings.__contains__, HEADLINES):
            found = self.findings[id]
            said = f"{SIGNS[found.verdict]} {find(id).stated} ({find(id).by}) Measured: {found.measured}"
            lines += ["", *textwrap.wrap(said, 110, subsequent_indent="  ")]
        return "\n".join(lines)

    @property
    def still(self) -> str:
        """Return the same as HTML that needs no kernel: the short list, and the full one folded."""
        everything = _entries(self.findings, self.findings)
        short = _entries(self.findings, [id for id in HEADLINES if id in self.findings], brief=True)
        folded = f"<details><summary>All {len(self.findings)} claims</summary>{everything}</details>"
        return f"<div>{self._counted}. Twelve of them:</div>{short}{folded}"

    @property
    def _counted(self) -> str:
        return overview_title([each.verdict for each in self.findings.values()])

    def _ipython_display_(self) -> None:
        publish(self, self.still, repr(self))


def _searched(id: str, found: Finding) -> str:
    """Return all the text of a claim that a search looks through."""
    each = find(id)
    return f"{id} {each.claim} {each.source} {found.measured} {found.because} {found.rows}".casefold()


def _entries(findings: Mapping[str, Finding], chosen: Iterable[str], brief: bool = False) -> str:
    """Return the chosen claims as an HTML table: verdict, claim and author, measurement, and whether it could have
    failed.

    brief: leave out the measured numbers, which are hard to understand outside their chapter.
    """
    rows = []
    for id in chosen:
        each, found = find(id), findings[id]
        said, measured, because = map(html.escape, (each.stated, found.measured, found.because))
        link = html.escape(each.source.link)
        author = f'<a href="{link}" style="text-decoration:underline">{html.escape(each.by)}</a>'
        where = f"chapter {each.chapter}" + (", times of our machine" if each.timed else "")
        cells = (
            f"{SIGNS[found.verdict]} {found.verdict}",
            f"<b>{said}</b> ({author}; {where})",
            because if brief else f"{measured.removesuffix('.')}. {because}",
            could_have_failed(each),
        )
        rows.append("<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>")
    head = "".join(f'<th scope="col" style="{CELL}">{name}</th>' for name in (BRIEF if brief else COLUMNS))
    return (
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )


COLUMNS = ("verdict", "claim", "measured", "could it have failed?")
BRIEF = ("verdict", "claim", "reason", "could it have failed?")
CELL = "text-align:left;vertical-align:top;padding:.3em .6em;border-bottom:1px solid #d0d7de"


def could_have_failed(each: Experiment) -> str:
    """Return which other verdicts were possible: "no" for a claim that holds by construction."""
    if not each.could_fail:
        return "no: it holds by construction"
    return "yes: " + ", ".join(f"{SIGNS[verdict]} {verdict}" for verdict in each.outcomes)


def headline_rows(findings: Mapping[str, Finding], chosen: Iterable[str] = HEADLINES) -> list[tuple[str, str, str]]:
    """Return (verdict, claim, conclusion from its figures) for each chosen claim, as `headlines` needs them."""
    return [(findings[id].verdict, find(id).stated, findings[id].because) for id in chosen]


def card(experiment: Experiment, found: Finding) -> Card:
    """Return the card of a claim with its result."""
    return Card(
        claim=f"{experiment.stated} ({experiment.by})",
        measured=f"{found.measured}{experiment.basis(found)}",
        because=found.because,
        quote=f"“{experiment.source.quote}”",
        source=str(experiment.source),
        control=experiment.control,
        outcomes=experiment.outcomes,
        verdict=found.verdict,
    )


def by_chapter(findings: Mapping[str, Finding]) -> dict[str, list[str]]:
    """Return the verdicts of each chapter's claims: "number · title" -> verdicts."""
    chapters: dict[str, list[str]] = {}
    for id, found in findings.items():
        number = find(id).chapter
        chapters.setdefault(f"{number} · {TITLES[number]}", []).append(found.verdict)
    return chapters


def picture(path: Path = ASSETS / "claims.png") -> Path:
    """Draw FOR_THE_README with the recorded results into a file, and return its path."""
    findings = recorded()
    title = overview_title([each.verdict for each in findings.values()])
    sources, rows = [find(id).by for id in FOR_THE_README], headline_rows(findings, FOR_THE_README)
    # For a false claim, the picture shows the measurement; for the others, the reason tells the reader more.
    rows = [
        (verdict, claim, f"{findings[id].measured}. {because}" if verdict == "refuted" else because)
        for id, (verdict, claim, because) in zip(FOR_THE_README, rows)
    ]
    path.write_bytes(png(headlines(rows, title, sources)))
    return path
