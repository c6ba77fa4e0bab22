"""The recorded findings of the experiments: each chapter has a file next to its claims."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from course_lib.claims.registry import Finding, Tried, experiments, find, in_order
from course_lib.course.contents import CHAPTERS
from course_lib.course.files import read_json, save_json

CHAPTERS_FOLDER = Path(__file__).parent.parent / "chapters"


def recorded() -> dict[str, Finding]:
    """Return the findings that ship with the course, id -> Finding, in the order of the course.

    Errors: ValueError if a file of the record is damaged.
    """
    files = (CHAPTERS_FOLDER / chapter.slug / "claims.json" for chapter in CHAPTERS)
    return {id: _finding(kept) for path in files if path.exists() for id, kept in read_json(path).items()}


def _finding(kept: dict) -> Finding:
    tried = tuple(Tried(**each) for each in kept.get("tried", ()))
    rows = tuple(map(tuple, kept.get("rows", ())))
    return Finding(**kept | {"values": tuple(kept["values"]), "tried": tried, "rows": rows})


def record(findings: Mapping[str, Finding]) -> None:
    """Write these findings into the record, and drop findings whose experiment no longer exists.

    Results at other sizes stay in the record as long as the measurement and the verdict are unchanged.
    """
    known = recorded()
    for id, finding in findings.items():
        before = known.get(id)
        same = before and (before.measured, before.verdict) == (finding.measured, finding.verdict)
        known[id] = replace(finding, tried=before.tried) if before and same and not finding.tried else finding
    _write({id: finding for id, finding in known.items() if id in experiments()})


def record_tried(id: str, tried: Sequence[Tried]) -> Finding:
    """Add results at other sizes to the recorded finding of a claim; return the new finding.

    Errors: ValueError if the claim itself is not recorded yet.
    """
    known = recorded()
    if id not in known:
        raise ValueError(f"{id} is not recorded yet: measure it first at its usual size, with `claims --record {id}`")
    known[id] = replace(known[id], tried=tuple(tried))
    _write(known)
    return known[id]


def _write(known: Mapping[str, Finding]) -> None:
    ordered = [each.id for each in in_order() if each.id in known]
    for chapter in CHAPTERS:
        ids = [id for id in ordered if find(id).chapter == chapter.number]
        path = CHAPTERS_FOLDER / chapter.slug / "claims.json"
        if ids or path.exists():
            save_json(path, {id: _rounded(_kept(known[id])) for id in ids})


def _kept(finding: Finding) -> dict[str, object]:
    return {name: value for name, value in asdict(finding).items() if value or name != "timed_on"}


def _rounded(value: object) -> object:
    """Return the value with its numbers rounded to six digits, because further digits differ between machines."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value
