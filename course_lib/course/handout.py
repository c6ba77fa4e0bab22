"""The learner's folder: copies of the notebooks and exercises, updated without changing the learner's work.

`python -m course_lib start` uses this module. A teacher's `release --update` and `start --pull` (module `pull`) follow
the same rule for each file:

- A missing file is copied. To start a notebook again, delete or rename it.
- A file that the learner has not edited is replaced when the course has a newer version. The old one, with the outputs
  of its last run, moves to `.earlier/`.
- A file that the learner has edited stays unchanged, and the newer version is put next to it, once.

A notebook counts as edited if its cells differ from those that were copied. Running it changes only outputs. Cells with
the tag `teacher` are not copied, and no copied cell has an execution number.
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

from course_lib.course.files import inside, parsed, write_whole

GIVEN = ("notebooks", "exercises")  # next to each other as in the course, so that links between them work
ENDINGS = (".ipynb", ".md")
RECORD = ".course.json"  # the fingerprints of each file as `given`, and of a newer version put `beside` it
EARLIER = ".earlier"
LOCK_SECONDS = 5
TEACHER = "teacher"  # the tag of cells for teachers only
HEADING = re.compile(r"^## +(.+?) *$", re.MULTILINE)  # of a section


@dataclass(frozen=True)
class Handed:
    """Hold what was done with one file of the learner's folder: `given`, `renewed`, `beside`, `removed`, `merged` (only
    by `pull`), or `kept` if nothing was done. `path` is the written file; for `beside`, the newer version next to the
    learner's file. `skipped` means that the course's file cannot be copied; `why` is the reason."""

    name: str
    done: str
    path: Path
    why: str = ""


def hand_out(course: Path, folder: Path) -> list[Handed]:
    """Copy the notebooks and exercises of `course` to the learner's `folder`, by the rule of this module.

    An interruption leaves no incomplete file, and the next call continues. Links and unreadable notebooks in the course
    are skipped.
    Errors: ValueError if there is no course, if the folder belongs to a course, if a folder in it is a link, or if
        another process is filling it; OSError if it cannot be written.
    """
    found = {path.relative_to(course).as_posix(): path for path in _sources(course)}
    skipped = [Handed(name, "skipped", path, why) for name, path in found.items() if (why := _unfit(path))]
    sources = {name: path for name, path in found.items() if name not in {each.name for each in skipped}}
    if not found:
        raise ValueError("the notebooks are not part of this installation: they come with the course's repository")
    _require_place(course.resolve(), folder.resolve())
    with _alone(folder):
        if not (folder / ".gitignore").exists():  # git ignores the learner's work, even inside a repository
            write(folder / ".gitignore", b"*\n")
        return _hand_all(sources, folder, _changed_in_place(course)) + skipped


def hand_package(made: Path, folder: Path) -> list[Handed]:
    """Copy all files of a package, including the library, to `folder` by the rule of this module. A file from an
    earlier package that this one does not have is removed, unless it was edited.

    Errors: ValueError if another process is filling the folder, or if its record names a file outside it; OSError if it
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
        if each.done in ("renewed", "removed") and each.path.suffix != ".ipynb":  # there are no outputs to keep
            (folder / EARLIER / each.name).unlink(missing_ok=True)
    return handed


def last_saved(course: Path, folder: Path) -> Path | None:
    """Return the notebook in the learner's folder that was run or edited there and saved most recently, or None."""
    record, saved = _read(folder / RECORD), []
    for path in _sources(course):
        mine = folder / path.relative_to(course)
        if path.suffix == ".ipynb" and mine.is_file() and not mine.is_symlink():
            given = record.get(path.relative_to(course).as_posix(), {}).get("given")
            if fingerprint(content := mine.read_bytes()) != given or any(map(_has_run, _cells(content))):
                saved.append(mine)
    return max(saved, key=lambda path: path.stat().st_mtime, default=None)


def place(content: bytes) -> tuple[str, str]:
    """Return the heading of the last section of a notebook in which a cell was run, and the id of the heading's cell;
    ("", "") if there is none."""
    section = reached = ("", "")
    for cell in _cells(content):
        if cell["cell_type"] == "markdown":
            for heading in HEADING.findall("".join(cell["source"])):
                section = heading, cell.get("id", "")
        elif _has_run(cell):
            reached = section
    return reached


def for_learners(content: bytes) -> bytes:
    """Return a notebook's bytes as if it had not been run: without execution numbers, and without the output of the
    first code cell, which the learner runs first. The other outputs stay, so that learners can see them in advance.
    Cells with the tag `teacher` are left out. Content that is not a notebook is returned unchanged."""
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
    """Return a hash of what a learner can edit: the types and texts of a notebook's cells, or the entire content of any
    other file. Empty cells do not count, because Shift + Enter in the last cell adds one."""
    if cells := _cells(content):
        return fingerprint_of_cells((cell["cell_type"], "".join(cell["source"])) for cell in cells)
    return hashlib.sha256(content).hexdigest()


def fingerprint_of_cells(cells: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of a notebook whose cells have these types and texts."""
    return hashlib.sha256(json.dumps([cell for cell in cells if cell[1].strip()]).encode()).hexdigest()


def _cells(content: bytes) -> list[dict[str, Any]]:
    """Return a notebook's cells; an empty list if it is not a notebook or is damaged."""
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
    """Return why a file of the course cannot be copied; "" if it can."""
    if source.is_symlink():
        return "it is a link, and its target does not belong to the course"
    if source.suffix == ".ipynb" and not _cells(source.read_bytes()):
        return "it is not a readable notebook"
    return ""


def _has_run(cell: dict[str, Any]) -> bool:
    return bool(cell.get("execution_count"))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Create the folder if it does not exist, and lock it against other processes."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / f"{RECORD}.lock"
    if lock.is_symlink():  # older versions of filelock empty the target of a link
        raise ValueError(f"{lock} is a link: delete it")
    try:
        with FileLock(lock, timeout=LOCK_SECONDS):
            yield
    except Timeout:
        raise ValueError(
            f"{folder} is being filled by another `start` or `release`: wait until that has finished"
        ) from None


def _hand_all(sources: Mapping[str, Path], folder: Path, written: Mapping[str, str]) -> list[Handed]:
    """Copy files by name. written: the fingerprints of the authors' versions, for files changed in the course."""
    require_inside(folder, sources)  # before any file is written
    handed, record = [], _read(folder / RECORD)
    for name, source in sources.items():
        content = for_learners(source.read_bytes())
        entry = dict(record.get(name, {}))
        handed.append(hand(name, content, written.get(name, fingerprint(content)), folder, entry))
        if entry != record.get(name):  # written after the file: a file not in the record counts as edited
            record[name] = entry
            write(folder / RECORD, json.dumps(record, indent=1).encode())
    return handed


def require_inside(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError if any of these files, or its copy in `.earlier/`, is not inside the folder."""
    for name in names:
        inside(folder, name)
        inside(folder, f"{EARLIER}/{name}")


def hand(name: str, content: bytes, given: str, folder: Path, entry: dict[str, str]) -> Handed:
    """Copy one file by the rule of this module and update `entry`, its entry in the record. given: the fingerprint of
    the authors' version."""
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
            continue  # the learner has also edited that one
        entry["beside"] = newest
        return Handed(name, "beside", beside)
    raise ValueError(f"{target} has ninety-nine newer versions next to it: delete those that you do not need")


def _renew(target: Path, given: str | None, content: bytes | None, earlier: Path) -> bool:
    """Replace a file that the learner has not edited, or remove it if `content` is None. It is moved first and then
    checked a second time, so that a save in JupyterLab at the same moment is not lost."""
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
    """Return a file's fingerprint; None if it does not exist. A link belongs to the learner and is not followed."""
    if path.is_symlink():
        return "a link"
    if path.is_dir():
        return "a folder"
    return fingerprint(path.read_bytes()) if os.path.lexists(path) else None


def write(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, and create the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda part: part.write_bytes(content))


def _sources(course: Path) -> Iterator[Path]:
    for part in GIVEN:
        if (course / part).is_symlink():
            yield course / part
            continue
        yield from sorted(path for path in (course / part).glob("*") if path.suffix in ENDINGS)


def _read(path: Path) -> dict[str, dict[str, str]]:
    """Return the record. If it is missing or damaged, return an empty one: every file that differs counts as edited."""
    if path.is_symlink():
        return {}
    try:
        found = parsed(path.read_text(encoding="utf-8"))
        return {name: dict(entry) for name, entry in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _changed_in_place(course: Path) -> dict[str, str]:
    """Return the committed fingerprints of the files that were changed in the course's own folders. Such a change is
    also a learner's work, so its copy counts as edited. Return an empty dict without git."""
    if not (course / ".git").exists():
        return {}
    try:
        names = names_of(git(course, "diff", "--name-only", "--relative", "-z", "HEAD", "--", *GIVEN))
        return {name: fingerprint(for_learners(git(course, "show", f"HEAD:./{name}"))) for name in names}
    except (OSError, subprocess.CalledProcessError):
        return {}


def git(course: Path, *words: str) -> bytes:
    """Run git in a course and return its output. Its messages are in English. Errors: CalledProcessError; OSError
    without git."""
    english = os.environ | {"LC_ALL": "C"}
    return subprocess.run(["git", "-C", str(course), *words], capture_output=True, check=True, env=english).stdout


def names_of(listed: bytes) -> list[str]:
    """Return the file names in the output of git with -z."""
    return [name for name in os.fsdecode(listed).split("\0") if name]


def _require_place(course: Path, folder: Path) -> None:
    inside = folder.is_relative_to(course)
    if inside and (folder == course or folder.relative_to(course).parts[0] != "my"):
        raise ValueError(
            f"{folder} is in the course itself, whose files an update replaces: use {course / 'my'}, or a folder "
            "outside of the course"
        )
    if (folder / "course_lib").exists():
        raise ValueError(f"{folder} already has its own course: name another folder, or run `start` there")
