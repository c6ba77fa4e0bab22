"""The registry: what is said about Transformers, each claim with the experiment that settles it; the models' recipes.

An experiment is a function without arguments that measures and returns a `Finding`. The decorator `experiment` gives it
a name, so that the chapters, `python -m course_lib claims` and the tests all run the same code. Before anything is
measured it says whose claim this is, what is held equal, and which outcome leads to which verdict. A recipe is a
function recipe(folder, progress) that trains a model that ships with the course from nothing and writes it to the
folder, so that anybody can train it again. It is resumable, or takes less than two minutes.
"""

import difflib
import html
import inspect
import statistics
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from course_lib.contents import BY_SLUG, CHAPTERS, Chapter, chapter_of
from course_lib.files import ASSETS, read_json, save_json

VERDICTS = ("confirmed", "depends", "refuted")
RECORD = ASSETS / "claims.json"


@dataclass(frozen=True)
class Finding:
    """What an experiment measured, and what follows for the claim.

    measured: the figure in words, with its unit, rounded so far that every machine says the same.
    values: the figures behind it: one for each seed where something is drawn, else those that are compared.
    verdict: "confirmed", "depends" (true under conditions that `because` names) or "refuted".
    because: one sentence that a learner can follow.
    """

    measured: str
    values: tuple[float, ...]
    verdict: str
    because: str

    def __post_init__(self):
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict={self.verdict!r} is not known: choose one of {', '.join(VERDICTS)}")
        if not self.values:
            raise ValueError("values must hold what was measured: one figure for each seed, or those compared")

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float:
        """Standard deviation of the values; 0 if there is one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


@dataclass(frozen=True)
class Source:
    """Who says it: author and year, title (with the section), and a link that anybody can open."""

    author: str
    title: str
    link: str

    def __post_init__(self):
        if not (self.author and self.title and self.link.startswith("https://")):
            raise ValueError(f"a source is an author, a title and a link that begins with https://, got {self}")

    def __str__(self) -> str:
        return f"{self.author}, {self.title}, {self.link}"


@dataclass(frozen=True)
class Experiment:
    """A claim, who says it, and the function that measures it.

    control: what is held equal, or what is run beside it, so that nothing else can explain the outcome.
    threshold: which outcome leads to which verdict, stated before the run.
    seeds: those that are drawn from, at least three; none where nothing is drawn.
    timed: it measures this machine, so its figures differ elsewhere.
    """

    id: str
    chapter: int
    claim: str
    source: Source
    control: str
    threshold: str
    seeds: tuple[int, ...]
    timed: bool
    run: Callable[[], Finding]

    def __post_init__(self):
        for name in ("claim", "control", "threshold"):
            if len(getattr(self, name).split()) < 3:
                raise ValueError(f"{self.id}: {name} must be a sentence, got {getattr(self, name)!r}")
        if 0 < len(self.seeds) < 3:
            raise ValueError(f"{self.id}: seeds={self.seeds} are too few: draw with three at least, or with none")

    def __call__(self) -> Finding:
        return self.run()

    def told(self, finding: Finding) -> list[str]:
        """Return the claim and what was found of it as lines of text, each a paragraph of its own."""
        drawn = f" (seeds {', '.join(map(str, self.seeds))})" if self.seeds else ""
        return [
            f"“{self.claim}”",
            f"said by: {self.source}",
            f"control: {self.control}",
            f"threshold: {self.threshold}",
            f"measured: {finding.measured}{drawn}",
            f"{finding.verdict}: {finding.because}",
        ]


_REGISTERED: dict[str, Experiment] = {}
_RECIPES: dict[str, Callable[[Path, bool], object]] = {}


def load_claims(chapters: Iterable[Chapter] = CHAPTERS) -> None:
    """Import the claims of these chapters, of all unless given: each registers its experiments, and its recipes."""
    for chapter in chapters:
        chapter.part("claims")


def experiments() -> dict[str, Experiment]:
    """Return every experiment of the course, id -> Experiment."""
    load_claims()
    return _REGISTERED


def recipes() -> dict[str, Callable[[Path, bool], object]]:
    """Return every recipe, by the name of the model that it trains: those of the chapters too."""
    load_claims()
    return _RECIPES


def experiment(
    id: str,
    claim: str,
    source: Source,
    control: str,
    threshold: str,
    seeds: Sequence[int] = (),
    timed: bool = False,
    chapter: int | None = None,
) -> Callable[[Callable[[], Finding]], Experiment]:
    """Decorator: the function below is the experiment on this claim.

    Args:
        id: "slug.what", unique. claim: what is said, one sentence in its strongest reading, right or wrong.
        source: who says it. control, threshold, seeds: as in `Experiment`.
        timed: the figures depend on the machine. chapter: its number; that of the slug in the id unless given.
    Errors: ValueError if the id is taken, or a claim stands without its source, control or threshold. KeyError if
        neither names a chapter.
    """

    def register(run: Callable[[], Finding]) -> Experiment:
        if id in _REGISTERED:
            raise ValueError(f"there are two experiments {id!r}: choose another id")
        number = chapter_of(id).number if chapter is None else chapter
        _REGISTERED[id] = Experiment(id, number, claim, source, control, threshold, tuple(seeds), timed, run)
        return _REGISTERED[id]

    return register


def recipe(name: str) -> Callable[[Callable], Callable]:
    """Decorator: the function below trains the shipped model of that name (`load_pretrained(name)`).

    Errors: ValueError if the name is taken.
    """

    def register(train: Callable) -> Callable:
        if name in _RECIPES:
            raise ValueError(f"there are two recipes for {name!r}: choose another name")
        _RECIPES[name] = train
        return train

    return register


def find(id: str) -> Experiment:
    """Return the experiment of that id; of all chapters only its own is opened.

    Errors: ValueError with the nearest ones for an unknown id.
    """
    slug = id.partition(".")[0]
    if id not in _REGISTERED and slug in BY_SLUG:
        load_claims([BY_SLUG[slug]])
    if id not in _REGISTERED:
        known = [each.id for each in in_order()]
        near = difflib.get_close_matches(id, known, n=3, cutoff=0.3) or known[:3]
        raise ValueError(f"there is no experiment {id!r}. Nearest: {', '.join(near)}")
    return _REGISTERED[id]


@dataclass(frozen=True)
class Settled:
    """A claim with what was found of it. In a notebook all that led to the verdict can be unfolded below."""

    experiment: Experiment
    finding: Finding

    def __repr__(self) -> str:
        claim, *lines = self.experiment.told(self.finding)
        wrapped = (textwrap.fill(line, width=100, initial_indent="  ", subsequent_indent="    ") for line in lines)
        return "\n".join([claim, *wrapped])

    # What was found stands in view; who says it, what it is held against and how it was measured unfold below.
    def _repr_html_(self) -> str:
        claim, *lines, measured, because = map(html.escape, self.experiment.told(self.finding))
        measured, because = measured.partition(": ")[2], because.partition(": ")[2]
        link = html.escape(self.experiment.source.link)
        lines[0] = lines[0].replace(link, f'<a href="{link}" style="text-decoration:underline">{link}</a>')
        values = ", ".join(f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" for value in self.finding.values)
        code = html.escape(inspect.getsource(self.experiment.run))
        return (
            '<div style="border-left: 4px solid #57606a; padding: 2px 12px; max-width: 62em;">'
            f"<div>{claim}</div><div><b>{self.finding.verdict}</b>: {measured}</div><div>{because}</div>"
            "<details><summary>Who says it, the control, the threshold, and the code that measures</summary>"
            + "".join("<div><i>{}:</i>{}</div>".format(*line.split(":", 1)) for line in lines)
            + f"<div><i>figures:</i> {values}</div><pre>{code}</pre></details></div>"
        )


def settle(*ids: str, findings: Mapping[str, Finding] | None = None) -> None:
    """Show the claim of each id, what was measured and the verdict; who says it, its test and its code, folded.

    findings: those that are known already (`recorded()`); without them each experiment runs now.
    Errors: ValueError if an id is unknown.
    """
    from IPython.display import display

    for each in map(find, ids):
        display(Settled(each, each() if findings is None else findings[each.id]))


def in_order(chapters: Sequence[int] = ()) -> list[Experiment]:
    """Return all experiments, or those of these chapters, in the order of the course."""
    load_claims(each for each in CHAPTERS if not chapters or each.number in chapters)
    chosen = [each for each in _REGISTERED.values() if not chapters or each.chapter in chapters]
    return sorted(chosen, key=lambda each: each.chapter)


def recorded() -> dict[str, Finding]:
    """What the experiments found when the course was made, id -> Finding: chapter 16 shows it without measuring again.

    Errors: ValueError if the file is missing or damaged.
    """
    return {id: Finding(**fields | {"values": tuple(fields["values"])}) for id, fields in read_json(RECORD).items()}


def record(findings: Mapping[str, Finding]) -> None:
    """Write these findings into the course's record, and drop those whose experiment is gone."""
    known = recorded() if RECORD.exists() else {}
    known = {id: finding for id, finding in (known | dict(findings)).items() if id in experiments()}
    ordered = {each.id: known[each.id] for each in in_order() if each.id in known}
    save_json(RECORD, {id: asdict(finding) for id, finding in ordered.items()})
