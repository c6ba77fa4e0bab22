"""The learner's record: what is kept of checks, hints and guesses, and no trouble with its file loses any of it."""

import multiprocessing
import os
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from course_lib.course import record
from course_lib.grading import check, grade, hint, progress

ROOT = Path(__file__).parent.parent
RIGHT, WRONG = (lambda x: 2 * x), (lambda x: x)


def row(exercise_id="toy.double"):
    return next(row for row in progress().rows if row.exercise_id == exercise_id)


def test_progress_keeps_points_attempts_and_the_last_result(toy):
    toy()
    assert (row().earned, row().attempts, row().last) == (0, 0, "")
    check("toy.double", lambda x: 2 * x)
    check("toy.double", lambda x: x)
    assert (row().earned, row().attempts, row().last) == (2, 2, "failed")
    table = repr(progress())
    assert "toy.double" in table
    assert "2 / 2" in table
    assert "✗ Not yet" in table
    assert "<table>" in progress()._repr_html_()


def test_what_is_not_answered_is_no_attempt_and_grade_keeps_nothing(toy):
    toy()
    check("toy.double", ...)
    grade("toy.double", lambda x: 2 * x, 0)
    assert (row().attempts, row().earned) == (0, 0)


def test_hints_come_one_after_the_other_and_the_last_one_stays(toy):
    exercise = toy()
    texts = [hint("toy.double").text for _ in range(5)]
    assert texts == [*exercise.hints, exercise.hints[-1], exercise.hints[-1]]
    assert "Hint 3 of 3" in repr(hint("toy.double"))
    assert row().attempts == 0


def test_practice_leaves_the_record_alone_and_may_begin_and_end_twice(toy):
    toy()
    check("toy.double", lambda x: 2 * x)
    try:
        for _ in range(2):
            record.practise(True)
            assert [row for row in progress().rows if row.attempts] == [], "each practice begins afresh"
            check("toy.double", lambda x: x)
            assert [row.last for row in progress().rows if row.attempts] == ["failed"]
        for _ in range(2):
            record.practise(False)
            assert [(row.attempts, row.last) for row in progress().rows if row.attempts] == [(1, "passed")]
    finally:
        record.practise(False)


def damaged_database(tmp_path):
    """A database that was written in part: its head is whole, a page behind it is not."""
    path = tmp_path / "whole"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE exercises (id); INSERT INTO exercises VALUES ('a');")
    return path.read_bytes()[:4100] + b"\xff" * 4000


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b'{"exercises": {"a": 3}}', b"SQLite format 3\0", None])
def test_a_file_that_is_no_database_is_kept_aside_and_never_overwritten(toy, capsys, tmp_path, content):
    toy()
    path, content = record.where(), content or damaged_database(tmp_path)
    for attempt in (1, 2):
        path.write_bytes(content)
        assert check("toy.double", RIGHT).passed
        aside = path.with_name(f"progress.unreadable-{attempt}.sqlite3")
        assert aside.read_bytes() == content
        assert f"could not be read and is kept as {aside}" in capsys.readouterr().err
    assert row().attempts == 1


def test_the_journal_of_a_broken_file_is_not_played_into_the_new_one(toy):
    toy()
    journal = record.where().with_name("progress.sqlite3-journal")
    record.where().write_bytes(b"no database")
    journal.write_bytes(b"old journal")
    check("toy.double", RIGHT)
    assert not journal.exists()
    assert record.where().with_name("progress.unreadable-1.sqlite3-journal").read_bytes() == b"old journal"


def test_an_empty_file_is_a_record_that_begins(toy, capsys):
    toy()
    record.where().touch()
    check("toy.double", RIGHT)
    assert row().attempts == 1
    assert capsys.readouterr().err == ""


def test_a_place_that_cannot_be_written_is_said_once_and_breaks_nothing(toy, monkeypatch, capsys, tmp_path):
    toy()
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "file" / "progress.sqlite3"))
    assert check("toy.double", RIGHT).passed
    assert "Your progress cannot be saved" in capsys.readouterr().err
    assert not check("toy.double", WRONG).passed
    assert [hint("toy.double").number for _ in range(2)] == [1, 2]
    assert (row().earned, row().attempts) == (2, 2), "it is remembered as long as the kernel lives"
    assert capsys.readouterr().err == ""


@pytest.fixture
def full_disk():
    """No file may grow any more."""
    resource = pytest.importorskip("resource")
    limits_before = resource.getrlimit(resource.RLIMIT_FSIZE)

    @contextmanager
    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits_before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits_before)

    return full


def test_a_full_disk_leaves_the_old_record_whole_and_what_was_missed_follows(toy, full_disk, capsys):
    toy()
    check("toy.double", WRONG)
    before = record.where().read_bytes()
    with full_disk():
        assert check("toy.double", RIGHT).passed
        assert (row().earned, row().attempts, row().last) == (2, 2, "passed")
    assert record.where().read_bytes() == before
    assert "cannot be saved" in capsys.readouterr().err
    check("toy.double", WRONG)
    assert entries_in(record.where()) == {"toy.double": (3, 2, 0, "failed")}


def entries_in(path):
    with closing(sqlite3.connect(path)) as database:
        return {name: tuple(entry) for name, *entry in database.execute("SELECT * FROM exercises")}


def test_a_kernel_that_dies_while_it_writes_leaves_the_old_record(toy):
    toy()
    check("toy.double", WRONG)
    dies = (
        "import os\nfrom course_lib.course import record\n"
        "def die(entries):\n    entries['toy.double']['attempts'] = 99\n"
        "write = record._write\n"
        "record._write = lambda *args: (write(*args), os._exit(7))\n"
        "record.entries('exercises', die)\n"
    )
    ended = subprocess.run([sys.executable, "-c", dies], env=dict(os.environ, PYTHONPATH=str(ROOT)))
    assert ended.returncode == 7
    assert row().attempts == 1
    check("toy.double", WRONG)
    assert row().attempts == 2


def test_a_record_that_another_kernel_holds_for_long_waits_in_memory(toy, monkeypatch, capsys):
    toy()
    monkeypatch.setattr(record, "LOCK_SECONDS", 0.05)
    check("toy.double", WRONG)
    with closing(sqlite3.connect(record.where(), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert check("toy.double", RIGHT).passed
    assert "database is locked" in capsys.readouterr().err
    assert hint("toy.double").number == 1
    assert entries_in(record.where())["toy.double"][1:3] == (2, 1), "points and hint are in the file now"


@pytest.mark.parametrize("mark", ["PRAGMA user_version = 9", "PRAGMA application_id = 1"])
def test_what_a_newer_course_or_another_program_wrote_is_left_alone(toy, capsys, mark):
    toy()
    check("toy.double", WRONG)
    with closing(sqlite3.connect(record.where())) as database:
        database.execute(mark)
    before = record.where().read_bytes()
    for _ in range(2):
        assert check("toy.double", RIGHT).passed
    assert row().attempts == 3, "the record is read, and goes on in memory"
    assert record.where().read_bytes() == before
    said = capsys.readouterr().err
    assert said.count("cannot be saved") == 1
    assert "a newer version of the course wrote it" in said or "belongs to another program" in said


def a_guess(answer):
    """Commit a guess as a question does: one that is there already stays."""
    return record.change(
        "guesses", "toy.coin", lambda entry: entry["answer"] or entry.update(answer=answer, confidence=70, right=1)
    )


def test_of_guesses_the_first_one_counts_though_a_second_was_made_while_the_file_could_not_be_read(toy, monkeypatch):
    monkeypatch.setattr(record, "LOCK_SECONDS", 0.05)
    first = a_guess("heads")
    with closing(sqlite3.connect(record.where(), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert a_guess("tails")["answer"] == "tails", "nothing else is known while another kernel holds the file"
    assert record.entries("guesses") == {"toy.coin": first}
    record._memory.clear()
    assert record.entries("guesses") == {"toy.coin": first}, "and so it is in the file"


def test_a_course_update_keeps_entries_of_exercises_that_it_does_not_know(toy):
    toy()
    with closing(sqlite3.connect(record.where())) as database:
        record._begin(database)
        entry = {"attempts": 3, "earned": 1, "hints": 0, "last": "glorious"}
        record._write(database, "exercises", {"future.one": entry})
        database.commit()
    check("toy.double", RIGHT)
    assert entries_in(record.where())["future.one"] == (3, 1, 0, "glorious")
    repr(progress())


def many_attempts(times):
    for _ in range(times):
        record.change("exercises", "toy.double", lambda entry: entry.update(attempts=entry["attempts"] + 1))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork to be quick")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("at_first", [None, b"no database"])
def test_two_kernels_at_once_lose_no_record(toy, at_first):
    toy()
    if at_first:
        record.where().write_bytes(at_first)
    context = multiprocessing.get_context("fork")
    kernels = [context.Process(target=many_attempts, args=(25,)) for _ in range(2)]
    for kernel in kernels:
        kernel.start()
    for kernel in kernels:
        kernel.join()
    assert [kernel.exitcode for kernel in kernels] == [0, 0]
    assert row().attempts == 50
    assert len(list(record.where().parent.glob("*unreadable*"))) == bool(at_first)


def test_the_default_place_is_the_users_data_folder(monkeypatch):
    monkeypatch.delenv("COURSE_PROGRESS")
    assert record.where().name == "progress.sqlite3"
    assert "transformers-measured" in str(record.where())


def test_a_record_in_memory_leaves_no_file(toy, monkeypatch, tmp_path):
    toy()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_PROGRESS", ":memory:")
    check("toy.double", RIGHT)
    assert row().attempts == 1
    assert list(tmp_path.iterdir()) == []


def test_looking_at_the_progress_makes_no_file(toy):
    toy()
    assert row().attempts == 0
    assert not record.where().exists()
