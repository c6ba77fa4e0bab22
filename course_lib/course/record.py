"""The learner's record: exercises tried, guesses made, answers kept, rungs of the ladder trained.

The record is a small SQLite file in the user's data folder. The environment variable COURSE_PROGRESS can name another
file; with COURSE_PROGRESS=:memory: there is no file, and the record lasts as long as the kernel. Every change is one
transaction: two open notebooks do not lose each other's changes, and a power cut leaves the old or the new record.

An error here never stops a check. If the file cannot be written, a message on standard error says so once, and the
changes stay in memory until a later change can be written. A file that is not a database is renamed, never
overwritten. A file from a newer version of the course or from another program is not changed.
"""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock

VERSION = 1
OURS = 0x544D4541  # SQLite's application_id, `TMEA` in ASCII
HEAD = b"SQLite format 3\0"
LOCK_SECONDS = 5
IN_MEMORY = ":memory:"
TABLES: dict[str, dict[str, type]] = {
    "exercises": {"attempts": int, "earned": int, "hints": int, "last": str},
    "guesses": {"answer": str, "confidence": int, "right": int},
    "outcomes": {"seen": int},  # has the learner read the verdict on this guess?
    "answers": {"name": str, "source": str},  # a passing answer as a complete program; for a reflection, its text
    "mistakes": {"name": str, "hinted": str},  # the last recognized mistake; the last one with a hint shown
    "choices": {"first": str, "changed": int},  # the first choice; has it been changed since?
    "rungs": {
        "nats": float,
        "grammar": float,
        "own": str,
    },  # the ladder's rungs trained here, and the learner's own parts in them
}
SQL = {int: "INTEGER NOT NULL DEFAULT 0", str: "TEXT NOT NULL DEFAULT ''", float: "REAL NOT NULL DEFAULT 0"}
Entry = dict[str, Any]
Entries = dict[str, Entry]  # by id
Watcher = Callable[[str, str, str], None]
watchers: list[Watcher] = []  # called for every committed guess and recognized mistake, as by a live room

PRACTICE = ":practice:"
_practising = False
_memory: dict[tuple[str, str], Entries] = {}  # (file, table) -> entries that could not be written yet
_said: set[str] = set()


class NotOurs(Exception):
    """Report a database that we must not write to; the message says why."""


def where() -> Path:
    """Return the file of the record: COURSE_PROGRESS if set, otherwise progress.sqlite3 in the user's data folder."""
    if _practising:
        return Path(PRACTICE)
    chosen = os.environ.get("COURSE_PROGRESS")
    if chosen == IN_MEMORY:
        return Path(IN_MEMORY)
    folder = Path(platformdirs.user_data_dir("transformers-measured", appauthor=False))
    return Path(chosen).expanduser().resolve() if chosen else folder / "progress.sqlite3"


def practise(on: bool) -> None:
    """Switch to a temporary, empty record that lasts as long as the kernel; with False, return to the learner's own."""
    global _practising
    _practising = on
    if on:
        for table in TABLES:
            _memory.pop((PRACTICE, table), None)


# ----------------------------------------------------------------------------------- entries: in the file, or in memory


def blank(table: str) -> Entry:
    """Return a new entry with default values."""
    return {name: kind() for name, kind in TABLES[table].items()}


def change(table: str, id: str, note: Callable[[Entry], None]) -> Entry:
    """Apply `note` to one entry, which starts blank if it does not exist, and return the entry."""
    return entries(table, lambda all: note(all.setdefault(id, blank(table))))[id]


def announce(kind: str, id: str, text: str) -> None:
    """Call all watchers with a "guess" and its answer, or a "mistake" and its name. A joined live room is a watcher."""
    for watcher in watchers:
        watcher(kind, id, text)


def entries(table: str, change: Callable[[Entries], None] | None = None) -> Entries:
    """Return all entries of a table, after applying `change` if it is given."""
    path = where()
    waiting = _memory.setdefault((str(path), table), {})
    try:
        if str(path) not in (IN_MEMORY, PRACTICE) and (change or path.exists()):
            with _opened(path) as database:
                before = _read(database, table)
                found = _merged(table, before, waiting)
                if change:
                    change(found)
                changed = {id: entry for id, entry in found.items() if entry != before.get(id)}
                _write(database, table, changed)
            waiting.clear()
            return found
    except (sqlite3.Error, OSError, NotImplementedError, NotOurs) as error:  # Timeout of the lock is an OSError
        _say_once(path, error)
        waiting.update(_merged(table, _as_far_as_readable(path, table), waiting))
    if change:
        change(waiting)
    return waiting


def _merged(table: str, entries: Entries, waiting: Entries) -> Entries:
    """Return the entries of the file, merged with those waiting in memory."""
    merged = {id: dict(entry) for id, entry in entries.items()}
    if table == "guesses":  # the first one counts
        return waiting | merged
    if table != "exercises":  # the last one counts
        return merged | waiting
    for id, late in waiting.items():  # counts only increase, so the larger one is newer
        early = entries.get(id, blank(table))
        merged[id] = {name: max(early[name], late[name]) for name in ("attempts", "earned", "hints")}
        merged[id]["last"] = late["last"] or early["last"]
    return merged


# ------------------------------------------------------------------------------------------------------------- the file


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database for one transaction. Create it if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _examine(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # locked, disk full or not readable: the file may be intact
            raise
        _set_aside(path)
    with closing(_connect(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        try:
            if _is_empty(database):
                _begin(database)
            else:
                _make_tables(database)
            yield database
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)


def _examine(path: Path) -> None:
    """Check a file. Errors: sqlite3.DatabaseError if it is damaged or no database; NotOurs if we must not write it."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        if file.read(len(HEAD)) not in (HEAD, b""):  # SQLite treats a file of a few bytes as empty
            raise sqlite3.DatabaseError("no database")
    with closing(_connect(path)) as database:
        if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("damaged")
        if _is_empty(database):
            return
        application, version = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS)
        if application != OURS:
            raise NotOurs("the file belongs to another program")
        if version > VERSION:
            raise NotOurs("a newer version of the course wrote it")
        present = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in TABLES.keys() & present:
            _read(database, table)


_MARKS = ("application_id", "user_version")


def _begin(database: sqlite3.Connection) -> None:
    database.execute(f"PRAGMA application_id = {OURS}")
    database.execute(f"PRAGMA user_version = {VERSION}")
    _make_tables(database)


def _make_tables(database: sqlite3.Connection) -> None:
    """Create missing tables: a file from before an update of the course lacks the newer ones."""
    for table, fields in TABLES.items():
        columns = ", ".join(f"{name} {SQL[kind]}" for name, kind in fields.items())
        database.execute(f"CREATE TABLE IF NOT EXISTS {table} (id TEXT PRIMARY KEY, {columns})")


def _is_empty(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0


def _read(database: sqlite3.Connection, table: str) -> Entries:
    fields = TABLES[table]
    rows = database.execute(f"SELECT id, {', '.join(fields)} FROM {table}")
    entries = {id: dict(zip(fields, values)) for id, *values in rows}
    if not _understood(entries, table):
        raise sqlite3.DatabaseError("damaged")
    return entries


def _write(database: sqlite3.Connection, table: str, entries: Entries) -> None:
    fields = TABLES[table]
    places = ", ".join(f":{name}" for name in fields)
    update = ", ".join(f"{name} = excluded.{name}" for name in fields)
    insert = f"INSERT INTO {table} (id, {', '.join(fields)}) VALUES (:id, {places})"
    rows = [{"id": id, **entry} for id, entry in entries.items()]
    database.executemany(f"{insert} ON CONFLICT (id) DO UPDATE SET {update}", rows)


def _as_far_as_readable(path: Path, table: str) -> Entries:
    """Return the entries of a file that cannot be written; an empty dict if it cannot be read either."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=LOCK_SECONDS)) as database:
            return _read(database, table)
    except (sqlite3.Error, OSError):
        return {}


def _set_aside(path: Path) -> None:
    """Rename a file that is not a database, together with SQLite's temporary files next to it. If two kernels do this
    at once, the second finds the new, intact file and leaves it."""
    with FileLock(f"{path}.lock", timeout=LOCK_SECONDS):
        try:
            _examine(path)
            return
        except sqlite3.DatabaseError:
            pass
        number = 1
        while (aside := path.with_name(f"{path.stem}.unreadable-{number}{path.suffix}")).exists():
            number += 1
        os.replace(path, aside)
        for ending in ("-journal", "-wal", "-shm"):  # SQLite would apply an old journal to the new file
            if (beside := path.with_name(path.name + ending)).exists():
                os.replace(beside, aside.with_name(aside.name + ending))
        with closing(_connect(path)) as database:  # the lock prevents a second one
            database.execute("BEGIN IMMEDIATE")
            _begin(database)
            database.execute("COMMIT")
    print(f"The progress file could not be read and is kept as {aside}. A new file has been started.", file=sys.stderr)


def _understood(entries: Entries, table: str) -> bool:
    return all(type(entry[name]) is kind for entry in entries.values() for name, kind in TABLES[table].items())


def _say_once(path: Path, error: Exception) -> None:
    if str(path) not in _said:
        _said.add(str(path))
        reason = str(error) if isinstance(error, (NotOurs, sqlite3.Error)) else type(error).__name__
        print(
            f"Your progress cannot be saved in {path} ({reason}). Checks still work. "
            "Set COURSE_PROGRESS to a file that you can write to.",
            file=sys.stderr,
        )
