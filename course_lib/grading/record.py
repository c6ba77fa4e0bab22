"""The learner's record: which exercises were tried, how often, with what result, and how many hints were taken.

One small JSON file in the user's data folder; the environment variable COURSE_PROGRESS names another. Every change
reads the file again under a lock and replaces it in one step, so that two notebooks open at once lose nothing and a
power cut leaves the old file or the new one. Nothing that goes wrong here may stop a check: it is said once, on
stderr, and the record is kept in memory as long as the kernel lives.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs
from filelock import FileLock

from .catalogue import EXERCISES
from .exercise import Exercise
from .result import SIGNS, Hint, Progress, Result, Row

LOCK_SECONDS = 5
_memory: dict = {}  # entries that could not be written
_said: set[str] = set()


def where() -> Path:
    """The file: COURSE_PROGRESS if it is set, otherwise progress.json in the user's data folder."""
    chosen = os.environ.get("COURSE_PROGRESS")
    folder = Path(platformdirs.user_data_dir("transformers-measured", appauthor=False))
    return Path(chosen).expanduser().resolve() if chosen else folder / "progress.json"


def keep(result: Result) -> None:
    """Keep a result. An exercise that was not answered is no attempt; points once earned stay."""

    def note(entry: dict) -> None:
        entry["attempts"] = entry.get("attempts", 0) + 1
        entry["earned"] = max(entry.get("earned", 0), result.earned)
        entry["last"] = result.status

    if result.status != "unanswered":
        _change(result.exercise_id, note)


def next_hint(exercise: Exercise) -> Hint:
    """The next hint of an exercise; after the last one, the last one again."""

    def note(entry: dict) -> None:
        entry["hints"] = min(entry.get("hints", 0) + 1, len(exercise.hints))

    count = _change(exercise.id, note)["hints"]
    return Hint(exercise.id, count, len(exercise.hints), exercise.hints[count - 1])


def progress() -> Progress:
    """Every exercise: points, attempts, last result. A table in a notebook, and text elsewhere."""
    entries = _with_entries(lambda entries: None)
    rows = []
    for exercise in EXERCISES.values():
        entry = entries.get(exercise.id, {})
        earned = min(entry.get("earned", 0), exercise.points)
        rows.append(
            Row(
                exercise.id,
                exercise.chapter,
                exercise.title,
                exercise.points,
                earned,
                entry.get("attempts", 0),
                entry.get("last", ""),
            )
        )
    return Progress(tuple(rows))


def _change(exercise_id: str, note: Callable[[dict], None]) -> dict:
    """Apply `note` to the entry of one exercise, and return the entry."""
    entries = _with_entries(lambda entries: note(entries.setdefault(exercise_id, {})))
    return entries[exercise_id]


def _with_entries(change: Callable[[dict], None]) -> dict:
    """All entries after `change`: those of the file where it can be kept, otherwise those in memory."""
    path = where()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock", timeout=LOCK_SECONDS):
            data = _read(path)
            before = json.dumps(data)
            change(data["exercises"])
            if json.dumps(data) != before:
                _write(path, data)
        return data["exercises"]
    except (OSError, NotImplementedError) as error:  # Timeout of the lock is an OSError
        _say_once(error)
        change(_memory)
        return _memory


def _read(path: Path) -> dict:
    """The file's content. One that cannot be understood is set aside under a new name, never overwritten."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"version": 1, "exercises": {}}
    except ValueError:  # not JSON, or not UTF-8
        data = None
    if _understood(data):
        return data
    aside = _free_name(path)
    os.replace(path, aside)
    print(f"The progress file could not be read and is kept as {aside}. A new one begins.", file=sys.stderr)
    return {"version": 1, "exercises": {}}


def _understood(data: object) -> bool:
    if not isinstance(data, dict) or not isinstance(data.get("exercises"), dict):
        return False
    kinds = {"attempts": int, "earned": int, "hints": int, "last": str}
    return all(
        isinstance(entry, dict)
        and all(type(entry.get(name, kind())) is kind for name, kind in kinds.items())
        and entry.get("last", "") in ("", *SIGNS)
        for entry in data["exercises"].values()
    )


def _free_name(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.stem}.unreadable-{number}{path.suffix}")).exists():
        number += 1
    return aside


def _write(path: Path, data: dict) -> None:
    """Replace the file in one step: a reader sees the old content or the new, whatever happens in between."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _say_once(error: Exception) -> None:
    path = str(where())
    if path not in _said:
        _said.add(path)
        print(
            f"Your progress cannot be kept in {path} ({type(error).__name__}). Checks work all the same. "
            "Set COURSE_PROGRESS to a file that you may write.",
            file=sys.stderr,
        )
