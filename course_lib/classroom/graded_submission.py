"""The results of grading as plain data: written to disk, read back and compared."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from course_lib.grading.result import Result


def rounded(points: float) -> str:
    """Return points rounded to the hundredth for display: "4.4", "7"."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Counted:
    """A submission's final points, after weights, lateness and manual decisions.

    Fields:
        earned, points: of all chapters.
        chapters: number -> (earned, points).
        notes: sentences on why these differ from the grader's points.
        excused: the chapters that a manual decision excludes for this learner.
    """

    earned: float
    points: float
    chapters: Mapping[int, tuple[float, float]]
    notes: tuple[str, ...] = ()
    excused: tuple[int, ...] = ()


@dataclass(frozen=True)
class GradedSubmission:
    """One graded submission.

    Fields:
        name: of the folder, zip or notebook.
        digest: the SHA-256 of the content.
        results: one for every expected exercise, in the course's order.
        troubles: sentences on parts that could not be read or run.
        texts: the texts of reflections, by exercise id.
        learner: the learner's id, if known.
        salvaged: sentences on repairs made in order to read or run it.
        asks: sentences on points that a teacher should check, because answers may be lost.
        counted: the final points, if a policy was applied; never written to the journal.

    Any text may come from a learner: escape it before you show it.
    """

    name: str
    digest: str
    results: tuple[Result, ...]
    troubles: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    learner: str = ""
    salvaged: tuple[str, ...] = ()
    counted: Counted | None = None
    asks: tuple[str, ...] = ()

    @property
    def earned(self) -> int:
        return sum(result.earned for result in self.results)

    @property
    def points(self) -> int:
        return sum(result.points for result in self.results)

    @property
    def final(self) -> tuple[float, float]:
        """Return the final (earned, points)."""
        return (self.counted.earned, self.counted.points) if self.counted else (self.earned, self.points)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-compatible data without the policy's results; `from_dict` reads it back."""
        data = asdict(self)
        del data["counted"]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "GradedSubmission":
        results = tuple(_result(each) for each in data["results"])
        texts = {str(id): str(text) for id, text in data["texts"].items()}
        troubles, salvaged = tuple(data["troubles"]), tuple(data["salvaged"])
        asks = tuple(data["asks"])
        return cls(data["name"], data["digest"], results, troubles, texts, data["learner"], salvaged, asks=asks)


def _result(data: Mapping[str, Any]) -> Result:
    known = {each.name for each in fields(Result)}
    if unknown := data.keys() - known:
        raise ValueError(f"a result has the unknown field {min(unknown)!r}: it was written by another version")
    return Result(**{**data, "sentences": tuple(data["sentences"])})
