"""The learner's folder: copies of the notebooks and exercises, renewed without touching what the learner wrote.

`python -m course_lib start` is the door to this module; a teacher's `release --update`, and `start --pull` (`pull`),
go by the same rule. The rule for each file:

- one that is not there is given out; so whoever wants to begin a notebook anew deletes or renames it;
- one that the learner did not edit is renewed when the course has a newer version; the old one, with the outputs of
  its last run, moves to `.earlier/`;
- one that the learner edited stays as it is, and the newer version is put beside it, once.

A notebook is edited if its cells are no longer those that were given out. Running it changes outputs alone. Cells with
the tag `teacher` are not given out, and no cell looks as if it had run.
"""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .files import inside, parsed, write_whole

GIVEN = ("notebooks", "exercises")  # side by side as in the course, so that every link between them holds
ENDINGS = (".ipynb", ".md")
RECORD = ".course.json"  # for each file the fingerprint of what was "given", and of what was put "beside" it
EARLIER = ".earlier"
LOCK_SECONDS = 5
TEACHER = "teacher"  # the tag of cells that are the teacher's
HEADING = re.compile(r"^## +(.+?) *$", re.MULTILINE)  # of a section


@dataclass(frozen=True)
class Handed:
    """What was done with one file of the learner's folder: "given", "renewed", "beside", "removed", by `pull` "merged",
    or nothing, "kept". `path` is what was written: with "beside" the newer version beside the learner's. "skipped":
    the course's own file cannot be given out, for the reason `why`."""

    name: str
    done: str
    path: Path
    why: str = ""


def hand_out(course: Path, folder: Path) -> list[Handed]:
    """Bring the notebooks and exercises of `course` into the learner's `folder`, by the rule of this module.

    Killed at any moment, it leaves whole files, and the next call goes on. What the course holds in place of a file,
    a link or a notebook that cannot be read, is skipped.
    Errors: ValueError if there is no course, if the folder belongs to a course, if a folder in it is a link, or if it
        is being filled already; OSError if it cannot be written.
    """
    found = {path.relative_to(course).as_posix(): path for path in _sources(course)}
    skipped = [Handed(name, "skipped", path, why) for name, path in found.items() if (why := _unfit(path))]
    sources = {name: path for name, path in found.items() if name not in {each.name for each in skipped}}
    if not found:
        raise ValueError("the notebooks are not part of this installation: they come with the course's repository")
    _require_place(course.resolve(), folder.resolve())
    with _alone(folder):
        if not (folder / ".gitignore").exists():  # whatever lies around it, git leaves a learner's work alone
            write(folder / ".gitignore", b"*\n")
        return _hand_all(sources, folder, _changed_in_place(course)) + skipped


def hand_package(made: Path, folder: Path) -> list[Handed]:
    """Bring all files of a package into `folder` by the rule of this module, the library's too. What an earlier package
    gave and this one lacks goes, unless somebody edited it.

    Errors: ValueError if the folder is being filled already, or if what its record names leads out of it; OSError if it
        cannot be written.
    """
    sources = {path.relative_to(made).as_posix(): path for path in sorted(made.rglob("*")) if path.is_file()}
    with _alone(folder):
        require_inside(folder, _read(folder / RECORD))
        handed = _hand_all(sources, folder, {})
        record = _read(folder / RECORD)
        for name in record.keys() - sources.keys():
            if _renew(folder / name, record[name].get("given"), None, folder / EARLIER / name):
                handed.append(Handed(name, "removed", folder / name))
            del record[name]
        write(folder / RECORD, json.dumps(record, indent=1).encode())
    for each in handed:
        if each.done in ("renewed", "removed") and each.path.suffix != ".ipynb":  # all of it is known: no outputs in it
            (folder / EARLIER / each.name).unlink(missing_ok=True)
    return handed


def last_saved(course: Path, folder: Path) -> Path | None:
    """Return the notebook of the learner's folder that was saved last, of those that were run or edited there."""
    record, saved = _read(folder / RECORD), []
    for path in _sources(course):
        mine = folder / path.relative_to(course)
        if path.suffix == ".ipynb" and mine.is_file() and not mine.is_symlink():
            given = record.get(path.relative_to(course).as_posix(), {}).get("given")
            if fingerprint(content := mine.read_bytes()) != given or any(map(_has_run, _cells(content))):
                saved.append(mine)
    return max(saved, key=lambda path: path.stat().st_mtime, default=None)


def place(content: bytes) -> tuple[str, str]:
    """Return the heading of the furthest section of a notebook in which a cell was run, and the id of the cell that
    holds it; ("", "") if there is none."""
    section = reached = ("", "")
    for cell in _cells(content):
        if cell["cell_type"] == "markdown":
            for heading in HEADING.findall("".join(cell["source"])):
                section = heading, cell.get("id", "")
        elif _has_run(cell):
            reached = section
    return reached


def for_learners(content: bytes) -> bytes:
    """Return a notebook's bytes as nobody has run it yet: no number stands before a cell, and the first shows nothing,
    since that is the one to begin with. What the others show stays, to be seen before. Cells with the tag `teacher`
    are left out. Whatever is no notebook comes back as it is."""
    if not (cells := _cells(content)):
        return content
    cells = [cell for cell in cells if TEACHER not in cell["metadata"].get("tags", [])]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    for cell in code:
        cell["execution_count"] = None
        for output in cell.get("outputs", ()):
            output.update({"execution_count": None} if "execution_count" in output else {})
    for cell in code[:1]:
        cell["outputs"] = []
    notebook = parsed(content) | {"cells": cells}
    return (json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


def fingerprint(content: bytes) -> str:
    """Return a hash of what a learner can edit: of a notebook the kinds and texts of its cells, else all of it. Empty
    cells do not count: Shift + Enter in the last cell adds one."""
    if cells := _cells(content):
        return fingerprint_of_cells((cell["cell_type"], "".join(cell["source"])) for cell in cells)
    return hashlib.sha256(content).hexdigest()


def fingerprint_of_cells(cells: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of a notebook whose cells have these kinds and texts."""
    return hashlib.sha256(json.dumps([cell for cell in cells if cell[1].strip()]).encode()).hexdigest()


def _cells(content: bytes) -> list[dict[str, Any]]:
    """Return a notebook's cells; none if it is no notebook, or a damaged one."""
    try:
        cells = parsed(content)["cells"]
        return cells if isinstance(cells, list) and all(map(_is_cell, cells)) else []
    except (ValueError, KeyError, TypeError):
        return []


def _is_cell(cell: Any) -> bool:
    if not isinstance(cell, dict):
        return False
    source, outputs = cell["source"], cell.get("outputs", [])
    return (
        isinstance(cell["cell_type"], str)
        and (isinstance(source, str) or (isinstance(source, list) and all(isinstance(line, str) for line in source)))
        and isinstance(cell["metadata"], dict)
        and isinstance(cell["metadata"].get("tags", []), list)
        and isinstance(outputs, list)
        and all(isinstance(output, dict) for output in outputs)
    )


def _unfit(source: Path) -> str:
    """Return why a file of the course is not given out; "" if it is."""
    if source.is_symlink():
        return "it is a link, and what it leads to is not the course's"
    if source.suffix == ".ipynb" and not _cells(source.read_bytes()):
        return "it is no notebook that can be read"
    return ""


def _has_run(cell: dict[str, Any]) -> bool:
    return bool(cell.get("execution_count"))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make the folder if need be, and keep others from filling it meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / f"{RECORD}.lock"
    if lock.is_symlink():  # older versions of filelock empty what it leads to
        raise ValueError(f"{lock} is a link: delete it")
    try:
        with FileLock(lock, timeout=LOCK_SECONDS):
            yield
    except Timeout:
        raise ValueError(
            f"{folder} is being filled by another `start` or `release`: wait until that has finished"
        ) from None


def _hand_all(sources: Mapping[str, Path], folder: Path, written: Mapping[str, str]) -> list[Handed]:
    """Hand out files by name. written: the fingerprints of what the course's authors wrote, where another was there."""
    require_inside(folder, sources)  # before anything is written
    handed, record = [], _read(folder / RECORD)
    for name, source in sources.items():
        content = for_learners(source.read_bytes())
        entry = dict(record.get(name, {}))
        handed.append(hand(name, content, written.get(name, fingerprint(content)), folder, entry))
        if entry != record.get(name):  # after the file: what is not in the record yet is taken for edited
            record[name] = entry
            write(folder / RECORD, json.dumps(record, indent=1).encode())
    return handed


def require_inside(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError if any of these files, or what `.earlier/` keeps of it, is not inside the folder."""
    for name in names:
        inside(folder, name)
        inside(folder, f"{EARLIER}/{name}")


def hand(name: str, content: bytes, given: str, folder: Path, entry: dict[str, str]) -> Handed:
    """Hand out one file and bring `entry`, its line of the record, up to date. given: the fingerprint of the content as
    the course's authors wrote it."""
    target, newest = folder / name, fingerprint(content)
    now = _fingerprint_of(target)
    if now is None or now == newest:
        entry["given"] = given
        if now is None:
            write(target, content)
        return Handed(name, "kept" if now else "given", target)
    if newest in (entry.get("given"), entry.get("beside")):
        return Handed(name, "kept", target)
    if _renew(target, entry.get("given"), content, folder / EARLIER / name):
        entry["given"] = given
        return Handed(name, "renewed", target)
    for number in range(1, 100):
        suffix = f".new{number if number > 1 else ''}"
        beside = target.with_name(target.stem + suffix + target.suffix)
        there = _fingerprint_of(beside)
        if there is None:
            write(beside, content)
        elif there != newest and not _renew(beside, entry.get("beside"), content, folder / EARLIER / beside.name):
            continue  # the learner works in that one, too
        entry["beside"] = newest
        return Handed(name, "beside", beside)
    raise ValueError(f"{target} has ninety-nine newer versions next to it: delete those that you do not need")


def _renew(target: Path, given: str | None, content: bytes | None, earlier: Path) -> bool:
    """Replace a file if it still is what was given, or with None remove it. It is moved before it is looked at once
    more, so that what a notebook's page saves at this very moment is not lost."""
    if given is None or target.is_symlink() or _fingerprint_of(target) != given:
        return False
    earlier.parent.mkdir(parents=True, exist_ok=True)
    os.replace(target, earlier)
    if _fingerprint_of(earlier) != given:
        os.replace(earlier, target)
        return False
    if content is not None:
        write(target, content)
    return True


def _fingerprint_of(path: Path) -> str | None:
    """Return a file's fingerprint; None if there is nothing of that name. A link is nobody's but the learner's, and
    is not followed."""
    if path.is_symlink():
        return "a link"
    return fingerprint(path.read_bytes()) if os.path.lexists(path) else None


def write(path: Path, content: bytes) -> None:
    """Write a file whole, with the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda part: part.write_bytes(content))


def _sources(course: Path) -> Iterator[Path]:
    for part in GIVEN:
        if (course / part).is_symlink():
            yield course / part
            continue
        yield from sorted(path for path in (course / part).glob("*") if path.suffix in ENDINGS)


def _read(path: Path) -> dict[str, dict[str, str]]:
    """Return the record; an empty one if it is missing or damaged: then every file that differs counts as edited."""
    if path.is_symlink():
        return {}
    try:
        found = parsed(path.read_text(encoding="utf-8"))
        return {name: dict(entry) for name, entry in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _changed_in_place(course: Path) -> dict[str, str]:
    """Return the fingerprints, as committed, of the files that somebody changed in the course's own folders. Such a
    change is a learner's work too: its copy counts as edited. Empty without git."""
    if not (course / ".git").exists():
        return {}
    try:
        names = names_of(git(course, "diff", "--name-only", "--relative", "-z", "HEAD", "--", *GIVEN))
        return {name: fingerprint(for_learners(git(course, "show", f"HEAD:./{name}"))) for name in names}
    except (OSError, subprocess.CalledProcessError):
        return {}


def git(course: Path, *words: str) -> bytes:
    """Run git in a course and return what it says. Errors: CalledProcessError, OSError without git."""
    return subprocess.run(["git", "-C", str(course), *words], capture_output=True, check=True).stdout


def names_of(listed: bytes) -> list[str]:
    """Return the names that git lists with -z."""
    return [name for name in listed.decode().split("\0") if name]


def _require_place(course: Path, folder: Path) -> None:
    inside = folder.is_relative_to(course)
    if inside and (folder == course or folder.relative_to(course).parts[0] != "my"):
        raise ValueError(
            f"{folder} lies in the course itself, whose files an update replaces: take {course / 'my'}, or a folder "
            "outside of the course"
        )
    if (folder / "course_lib").exists():
        raise ValueError(f"{folder} already has its own course: name another folder, or run `start` there")
