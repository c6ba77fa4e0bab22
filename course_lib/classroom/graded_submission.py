"""What grading yields, as plain data: written to disk, read back and compared."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from course_lib.grading.result import Result


def rounded(points: float) -> str:
    """Return points as people read them, to the hundredth: "4.4", "7"."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Counted:
    """What a submission's points count once weights, lateness and a person's word are applied.

    Fields: earned, points, of all · chapters, number -> (earned, points) · notes, in sentences why this is not what the
    grader gave · excused, the chapters that do not count for this learner, by a person's word.
    """

    earned: float
    points: float
    chapters: Mapping[int, tuple[float, float]]
    notes: tuple[str, ...] = ()
    excused: tuple[int, ...] = ()


@dataclass(frozen=True)
class GradedSubmission:
    """One submission, graded.

    Fields: name, that of the folder, zip or notebook · digest, the SHA-256 of what was handed in · results, one for
    every expected exercise in the course's order · troubles, what could not be read or run, in sentences · texts, what
    was written, by the id of the reflection · learner, the id of whose it is, if that is known · salvaged, in
    sentences, what was read or run although it is not as it should be · asks, in sentences what a teacher should look
    at, for answers may be lost · counted, where a policy was applied; it is
    never written to the journal. All text may hold anything that a learner wrote: whoever shows it escapes it.
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
        """Return (earned, points) as they count."""
        return (self.counted.earned, self.counted.points) if self.counted else (self.earned, self.points)

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold, without what a policy makes of it; `from_dict` reads it back."""
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
