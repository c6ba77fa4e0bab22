"""The registry: claims about Transformers, each with the experiment that tests it, and the recipes of our models.

An experiment is a function that returns a `Measurement`. The decorator `experiment` gives it a name, so that chapters,
`python -m course_lib claims` and tests run the same code. The decorator states the claim's source, the control and the
outcome for each verdict before anything is measured.
A recipe is a function recipe(folder, progress): it trains one of the course's models from scratch and writes it to the
folder. A recipe can resume an interrupted run, or takes less than two minutes.
"""

import difflib
import inspect
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.course.contents import BY_SLUG, CHAPTERS, Chapter, chapter_of
from course_lib.device import computes_on

VERDICTS = ("confirmed", "depends", "refuted", "not at this size", "by construction")
FIRM = ("confirmed", "refuted")  # verdicts that must hold at every size that was tried


@dataclass(frozen=True)
class Size:
    """How much larger than usual an experiment trains: factors of its steps and of its model's width.

    Example: `size.steps(300)` is 300, and 1,200 under `Size(steps=4)`.
    """

    of_steps: int = 1
    of_width: int = 1
    asked: set[str] = field(default_factory=set, compare=False, repr=False)  # the factors that the experiment has used

    def steps(self, usual: int) -> int:
        """Return the number of updates."""
        self.asked.add("steps")
        return usual * self.of_steps

    def width(self, usual: int) -> int:
        """Return the number of features, hidden units or the like."""
        self.asked.add("width")
        return usual * self.of_width

    def __str__(self) -> str:
        larger = (f"{factor} times the {name}" for name, factor in self.factors.items() if factor != 1)
        return ", ".join(larger) or "the usual size"

    @property
    def factors(self) -> dict[str, int]:
        """Return "steps" and "width", each -> its factor."""
        return {"steps": self.of_steps, "width": self.of_width}


@dataclass(frozen=True)
class Measurement:
    """The result of an experiment: words for the reader, and figures for the verdict.

    measured: the deciding result in one sentence, rounded enough that every machine prints the same numbers.
    values: the figures behind it: one for each seed if there are seeds, otherwise the figures to compare.
    figures: the keyword arguments for the experiment's verdict function.
    because: one or two sentences that a learner can follow; for "depends" they state the conditions.
    rows: a small table of further figures, with the column names first; every cell is text, rounded in the same way.
    """

    measured: str
    values: Sequence[float]
    figures: Mapping[str, Any]
    because: str
    rows: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Tried:
    """A claim measured again at another size: factors for the steps and the width, and the result."""

    steps: int
    width: int
    verdict: str
    measured: str

    def __str__(self) -> str:
        return f"{Size(self.steps, self.width)}: {self.verdict} ({self.measured})"


@dataclass(frozen=True)
class Finding:
    """A measurement with its verdict, and the results at other sizes.

    verdict: "confirmed", "refuted", "depends" (true under the conditions in `because`), "not at this size" (models this
    small cannot decide it) or "by construction" (no other outcome was possible).
    measured, values, because, figures, rows: as in `Measurement`. tried: the same claim at other sizes
    (`claims --stress`). timed_on: the device of times, such as "cpu, 1 thread"; "" if nothing is timed.
    Errors: ValueError if the verdict is unknown, `values` is empty, or the rows have different numbers of cells.
    """

    measured: str
    values: tuple[float, ...]
    verdict: str
    because: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    tried: tuple[Tried, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    timed_on: str = ""

    def __post_init__(self):
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict={self.verdict!r} is not known: choose one of {', '.join(VERDICTS)}")
        if not self.values:
            raise ValueError(
                "values is empty: give the measured figures, one for each seed, or those that are compared"
            )
        if self.rows and (len(self.rows) < 2 or len({len(row) for row in self.rows}) > 1):
            raise ValueError(
                f"rows={self.rows} is not a table: give the names of its columns, then rows with one cell for each"
            )

    @property
    def mean(self) -> float:
        """Return the mean of the values."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float:
        """Return the standard deviation of the values; 0 for a single value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def turned(self) -> tuple[Tried, ...]:
        """Return the sizes with another verdict than this "confirmed" or "refuted"; empty for other verdicts."""
        return tuple(each for each in self.tried if self.verdict in FIRM and each.verdict != self.verdict)


@dataclass(frozen=True)
class Source:
    """The source of a claim: author and year, title, link, quotation and its place in the text.

    quote: the authors' exact words; "…" marks omissions. place: section, page, "abstract", …
    quoted: True if the authors quote the claim from someone else.
    """

    author: str
    title: str
    link: str
    place: str = ""
    quote: str = ""
    quoted: bool = False

    def __post_init__(self):
        if not (self.author and self.title and self.link.startswith("https://")):
            raise ValueError(f"a source needs an author, a title and a link that begins with https://, got {self}")

    def __str__(self) -> str:
        place = f", {self.place}" if self.place else ""
        return f"{self.author}, {self.title}{place}, {self.link}"


def stated_outcomes(decide: Callable[..., Any]) -> dict[str, str]:
    """Return verdict -> its condition, from the docstring of a verdict function."""
    found: dict[str, str] = {}
    last = ""
    for line in (inspect.getdoc(decide) or "").splitlines():
        stated = re.match(rf"({'|'.join(VERDICTS)}): (\S.*)", line)
        if stated:
            last = stated[1]
            found[last] = stated[2]
        elif last and line.startswith(" "):
            found[last] += " " + line.strip()
        else:
            last = ""
    return found


@dataclass(frozen=True)
class Experiment:
    """A claim, its source, and the function that measures it.

    control: the conditions that stay equal, or a comparison run, so that nothing else can explain the outcome.
    decide: the verdict function: figures of a measurement -> verdict; its docstring states the outcomes.
    seeds: the seeds of the experiment, at least three; empty if nothing is random.
    timed: True if the figures depend on the machine's speed.
    trained: True if the experiment trains models, and `run` takes a `Size`.
    """

    id: str
    chapter: int
    claim: str
    source: Source
    control: str
    decide: Callable[..., str]
    seeds: tuple[int, ...]
    timed: bool
    run: Callable[..., Measurement]

    def __post_init__(self):
        for name in ("claim", "control"):
            if len(getattr(self, name).split()) < 3:
                raise ValueError(f"{self.id}: {name} must be a sentence, got {getattr(self, name)!r}")
        for name in ("quote", "place"):
            if not getattr(self.source, name):
                raise ValueError(f"{self.id}: source.{name} is missing: give the author's words, and where they are")
        if 0 < len(self.seeds) < 3:
            raise ValueError(
                f"{self.id}: seeds={self.seeds} are too few: give at least three, or none if nothing is random"
            )
        if not self.outcomes:
            raise ValueError(
                f"{self.id}: the docstring of {self.decide.__name__} states no outcome: write a line for each, such as "
                '"confirmed: the loss is lower for every seed"'
            )

    @property
    def outcomes(self) -> dict[str, str]:
        """Return verdict -> its condition, from the docstring of the verdict function."""
        return stated_outcomes(self.decide)

    @property
    def verbatim(self) -> bool:
        """Return whether the claim is in the author's own words."""
        kept = (text.replace("…", " cut_out ") for text in (self.claim, self.source.quote))
        words, quote = (re.sub(r"\W+", " ", text).strip().casefold() for text in kept)
        return f" {words} " in f" {quote} "

    @property
    def stated(self) -> str:
        """Return the claim, in quotation marks if the wording is the author's."""
        return f"“{self.claim}”" if self.verbatim else self.claim

    @property
    def by(self) -> str:
        """Return the short source: "Voita et al. 2019", or "after Voita et al. 2019" if the wording is ours."""
        if self.source.quoted:
            return f"quoted by {self.source.author}"
        return self.source.author if self.verbatim else f"after {self.source.author}"

    @property
    def trained(self) -> bool:
        """Return whether the experiment trains models, and can therefore run at another size."""
        return "size" in inspect.signature(self.run).parameters

    @property
    def could_fail(self) -> bool:
        """Return whether a measurement could lead to another verdict."""
        return len(self.outcomes) > 1

    def __call__(self, size: Size | None = None) -> Finding:
        """Run the experiment and decide its verdict.

        Errors: ValueError for a size if nothing is trained, or if the docstring does not state the verdict.
        """
        if size and not self.trained:
            raise ValueError(f"{self.id} trains no model, so it has no size: leave the size out")
        found = self.run(size or Size()) if self.trained else self.run()
        verdict = self.decide(**found.figures)
        if verdict not in self.outcomes:
            raise ValueError(
                f"{self.id}: {self.decide.__name__} returns {verdict!r}, but its docstring states only "
                f"{', '.join(self.outcomes)}"
            )
        values = tuple(float(value) for value in found.values)
        rows = tuple(map(tuple, found.rows))
        timed_on = computes_on() if self.timed else ""
        return Finding(found.measured, values, verdict, found.because, dict(found.figures), (), rows, timed_on)

    def told(self, finding: Finding) -> list[str]:
        """Return the claim and its finding as lines of text, one paragraph per line."""
        ours = "" if self.verbatim else " (the wording above is ours)"
        return [
            f"{self.stated} ({self.by})",
            f"{finding.verdict}: {finding.measured}{self.basis(finding)}",
            finding.because,
            f"their words: “{self.source.quote}” {self.source}{ours}",
            f"control: {self.control}",
            *(f"when {verdict}: {when}" for verdict, when in self.outcomes.items()),
            *(f"tried at {each}" for each in finding.tried),
        ]

    def basis(self, finding: Finding) -> str:
        """Return the seeds and the device of times, such as " (3 seeds; timed on cpu, 1 thread)"; "" without both."""
        seeds = f"{len(self.seeds)} seeds" if self.seeds else ""
        timed = f"timed on {finding.timed_on}" if finding.timed_on else ""
        return f" ({'; '.join(filter(None, (seeds, timed)))})" if seeds or timed else ""


_REGISTERED: dict[str, Experiment] = {}
_RECIPES: dict[str, Callable[[Path, bool], object]] = {}


def load_claims(chapters: Iterable[Chapter] = CHAPTERS) -> None:
    """Import the claims of these chapters, by default of all; each registers its experiments and recipes."""
    for chapter in chapters:
        chapter.part("claims")


def experiments() -> dict[str, Experiment]:
    """Return every experiment of the course, id -> Experiment."""
    load_claims()
    return _REGISTERED


def recipes() -> dict[str, Callable[[Path, bool], object]]:
    """Return every recipe, including the chapters' recipes, by the name of its model."""
    load_claims()
    return _RECIPES


def experiment(
    id: str,
    claim: str,
    source: Source,
    control: str,
    verdict: Callable[..., str],
    seeds: Sequence[int] = (),
    timed: bool = False,
    chapter: int | None = None,
) -> Callable[[Callable[..., Measurement]], Experiment]:
    """Return a decorator that registers a function as the experiment on this claim.

    Args:
        id: "slug.what", unique. claim: one sentence in its strongest reading, true or false; the author's own words if
            a single sentence states it.
        source, control, seeds, timed: as in `Experiment`.
        verdict: computes the verdict from the measurement's figures. Its docstring has a line for each outcome, written
            before the run: "confirmed: the loss is lower for every seed".
        chapter: the chapter's number; by default, the chapter of the slug in the id.
    Errors: ValueError if the id is taken, or a claim is given without its source, the author's words, control or
        outcomes. KeyError if neither names a chapter.
    """

    def register(run: Callable[..., Measurement]) -> Experiment:
        if id in _REGISTERED:
            raise ValueError(f"there are two experiments {id!r}: choose another id")
        number = chapter_of(id).number if chapter is None else chapter
        _REGISTERED[id] = Experiment(id, number, claim, source, control, verdict, tuple(seeds), timed, run)
        return _REGISTERED[id]

    return register


def recipe(name: str) -> Callable[[Callable], Callable]:
    """Return a decorator that registers a function as the recipe of a shipped model (`load_pretrained(name)`).

    Errors: ValueError if the name is taken.
    """

    def register(train: Callable) -> Callable:
        if name in _RECIPES:
            raise ValueError(f"there are two recipes for {name!r}: choose another name")
        _RECIPES[name] = train
        return train

    return register


def find(id: str) -> Experiment:
    """Return the experiment of that id; import only its chapter if the id is known.

    Errors: ValueError with the nearest ids for an unknown id.
    """
    slug = id.partition(".")[0]
    if id not in _REGISTERED and slug in BY_SLUG:
        load_claims([BY_SLUG[slug]])
    if id not in _REGISTERED:
        known = [each.id for each in in_order()]
        near = difflib.get_close_matches(id, known, n=3, cutoff=0.3) or known[:3]
        raise ValueError(f"there is no experiment {id!r}. Nearest: {', '.join(near)}")
    return _REGISTERED[id]


def in_order(chapters: Sequence[int] = ()) -> list[Experiment]:
    """Return all experiments, or those of these chapters, in the order of the course."""
    load_claims(each for each in CHAPTERS if not chapters or each.number in chapters)
    chosen = [each for each in _REGISTERED.values() if not chapters or each.chapter in chapters]
    return sorted(chosen, key=lambda each: each.chapter)
