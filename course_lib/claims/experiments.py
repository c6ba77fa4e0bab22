"""Claims: what is said about Transformers, each with the experiment that settles it.

An experiment is a function without arguments that measures and returns a `Finding`. The decorator `experiment` gives it
a name, so that the chapters, `python -m course_lib claims` and the tests all run the same code.
"""

import difflib
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache

from course_lib.contents import CHAPTERS, chapter_of
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
class Experiment:
    """A claim and the function that measures it. `timed`: it measures this machine, so its figures differ elsewhere."""

    id: str
    chapter: int
    claim: str
    timed: bool
    run: Callable[[], Finding]

    def __call__(self) -> Finding:
        return self.run()


_REGISTERED: dict[str, Experiment] = {}


@cache
def load_claims() -> None:
    """Import every chapter's claims: each registers its experiments, and its recipes."""
    for chapter in CHAPTERS:
        chapter.part("claims")


def experiments() -> dict[str, Experiment]:
    """Return every experiment of the course, id -> Experiment."""
    load_claims()
    return _REGISTERED


def experiment(
    id: str, claim: str, timed: bool = False, chapter: int | None = None
) -> Callable[[Callable[[], Finding]], Experiment]:
    """Decorator: the function below is the experiment on this claim.

    Args:
        id: "slug.what", unique. claim: what is said, one sentence as a learner would meet it, right or wrong.
        timed: the figures depend on the machine. chapter: its number; that of the slug in the id unless given.
    Errors: ValueError if the id is taken. KeyError if neither names a chapter.
    """

    def register(run: Callable[[], Finding]) -> Experiment:
        if id in _REGISTERED:
            raise ValueError(f"there are two experiments {id!r}: choose another id")
        _REGISTERED[id] = Experiment(id, chapter_of(id).number if chapter is None else chapter, claim, timed, run)
        return _REGISTERED[id]

    return register


def find(id: str) -> Experiment:
    """The experiment of that id. Unknown: a ValueError with the nearest ones."""
    known = experiments()
    if id not in known:
        near = difflib.get_close_matches(id, known, n=3, cutoff=0.3) or list(known)[:3]
        raise ValueError(f"there is no experiment {id!r}. Nearest: {', '.join(near)}")
    return known[id]


def settle(*ids: str, findings: Mapping[str, Finding] | None = None) -> None:
    """Print the claim of each id, what its experiment measured, and the verdict.

    findings: those that are known already (`recorded()`); without them each experiment runs now.
    Errors: ValueError if an id is unknown.
    """
    for each in map(find, ids):
        finding = each() if findings is None else findings[each.id]
        print(f"“{each.claim}”")
        for line in (f"measured: {finding.measured}", f"{finding.verdict}: {finding.because}"):
            print(textwrap.fill(line, width=100, initial_indent="  ", subsequent_indent="    "))


def in_order(chapters: Sequence[int] = ()) -> list[Experiment]:
    """All experiments, or those of these chapters, in the order of the course."""
    chosen = [each for each in experiments().values() if not chapters or each.chapter in chapters]
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
