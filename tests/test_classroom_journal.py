"""Results on disk: what is written when, and what is left of it after kills, damage and a full disk."""

import json
import os
import resource
import stat
from dataclasses import replace

import pytest

from course_lib.__main__ import main
from course_lib.classroom.mark import journal
from course_lib.classroom.sandbox.stage import SandboxError
from course_lib.grading.page.catalogue import EXERCISES
from tests.pretended_worker import EXPECTED, NAMES, Idle, pretend, run, submitted
from tests.small_class import (
    EXERCISE,
    LIMITS,
    lines,
    write_class,
)


@pytest.fixture
def pretended(monkeypatch):
    return pretend(monkeypatch)


def test_a_result_is_on_the_disk_before_it_is_told(pretended, tmp_path, monkeypatch):
    synced, told = [], []

    def fsync(fd):
        synced.append(os.fstat(fd).st_ino)

    def tell(done):
        told.append([line["key"] for line in lines(tmp_path)])
        assert synced.count((tmp_path / journal.LINES).stat().st_ino) == len(told)
        assert told[-1][-1] == done.key

    monkeypatch.setattr(os, "fsync", fsync)
    run(tmp_path, tell=tell)
    assert [len(keys) for keys in told] == list(range(1, len(NAMES) + 1))


def test_what_was_written_is_read_back_as_it_was(pretended, tmp_path):
    first = run(tmp_path)
    again = run(tmp_path, resume=True)
    assert again.marked == first.marked
    assert again.known == len(NAMES)
    assert len(pretended.names) == len(NAMES), "nobody was graded twice"


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_torn_last_line_costs_one_submission_only(pretended, tmp_path, cut):
    first = run(tmp_path)
    path = tmp_path / journal.LINES
    torn = lines(tmp_path)[-1]["marked"]["name"]
    path.write_bytes(path.read_bytes()[:-cut])
    pretended.names.clear()
    again = run(tmp_path, resume=True)
    assert pretended.names == [torn]
    assert again.marked == first.marked
    assert len(lines(tmp_path)) == len(path.read_bytes().splitlines()) == len(NAMES), "no line is left in halves"


DAMAGES = {
    "no JSON": b"\xff\xfe{{{",
    "zeros": bytes(500),
    "an empty line": b"",
    "a list": b"[1, 2]",
    "no key": b'{"marked": {}}',
    "no results": b'{"key": KEY, "marked": {"name": "x", "digest": "y"}}',
    "a result of no known form": b'{"key": KEY, "marked": {"name": "", "digest": "", "results": [7], "troubles": []}}',
    "a result of another version": b'{"key": KEY, "marked": {"name": "", "digest": "", "troubles": [], "results": '
    b'[{"marks": 3}]}}',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_in_the_middle_costs_what_stood_there_only(pretended, tmp_path, damage):
    first = run(tmp_path)
    path = tmp_path / journal.LINES
    whole = path.read_bytes().splitlines(keepends=True)
    line = json.loads(whole[3])
    key = json.dumps(line["key"]).encode()
    path.write_bytes(b"".join([*whole[:3], DAMAGES[damage].replace(b"KEY", key) + b"\n", *whole[4:]]))
    pretended.names.clear()
    again = run(tmp_path, resume=True)
    assert pretended.names == [line["marked"]["name"]]
    assert again.marked == first.marked


def test_a_full_disk_ends_the_run_with_words_and_loses_nothing(pretended, tmp_path):
    """A file that may grow no more fails as a full disk does: the last line is written in part."""
    undisturbed = run(tmp_path / "undisturbed")
    size = len((tmp_path / "undisturbed" / journal.LINES).read_bytes())
    told, before = [], resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, before[1]))
    try:
        with pytest.raises(RuntimeError, match=r"cannot be written .*File too large.*--resume"):
            run(tmp_path / "out", tell=lambda done: told.append(done.key))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    kept = [line["marked"]["name"] for line in lines(tmp_path / "out")]
    assert 0 < len(kept) < len(NAMES)
    assert told == [line["key"] for line in lines(tmp_path / "out")], "what was told is there, and whole"
    assert not (tmp_path / "out" / journal.LINES).read_bytes().endswith(b"\n"), "a torn line"
    pretended.names.clear()
    again = run(tmp_path / "out", resume=True)
    assert sorted(pretended.names + kept) == sorted(NAMES)
    assert again.marked == undisturbed.marked


def test_two_graders_do_not_write_to_one_folder(pretended, tmp_path):
    refused = []

    def tell(done):
        with pytest.raises(ValueError, match=r"another grader is writing to .*: wait"):
            run(tmp_path, resume=True)
        refused.append(done)

    run(tmp_path, tell=tell)
    assert len(refused) == len(NAMES)
    assert run(tmp_path, resume=True).known == len(NAMES), "the folder is free again"


def test_results_are_never_overwritten_without_being_asked(pretended, tmp_path):
    run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="holds the results of a run: add --resume"):
        run(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_that_graded_nothing_is_in_nobodys_way(pretended, tmp_path, monkeypatch):
    def refuse(worker):
        raise SandboxError("no")

    with monkeypatch.context() as patch:
        patch.setattr(Idle, "__enter__", refuse)
        with pytest.raises(SandboxError):
            run(tmp_path)
    assert len(run(tmp_path).marked) == len(NAMES)


TERMS = {
    "exercises": {"expected": [EXERCISES["attention.memory"]]},
    "quotas": {"quotas": replace(LIMITS, exercise_timeout=2)},
    "grader": {},
}


@pytest.mark.parametrize("which", TERMS)
def test_results_on_other_terms_are_not_mixed_with_those_that_are_there(pretended, tmp_path, monkeypatch, which):
    first = run(tmp_path)
    with monkeypatch.context() as patch:
        if which == "grader":
            patch.setattr(journal, "version", lambda: "another")
        other = run(tmp_path, resume=True, **TERMS[which])
        assert other.known == 0
        assert pretended.names == 2 * NAMES, "everybody is graded anew"
        expected = TERMS[which].get("expected", EXPECTED)
        assert {result.exercise_id for each in other.marked for result in each.results} == {expected[0].id}
    back = run(tmp_path, resume=True)
    assert (back.known, back.marked) == (len(NAMES), first.marked), "what was there has been kept, too"


def test_a_run_keeps_its_seed_and_takes_no_other(pretended, tmp_path):
    seed = run(tmp_path, seed=None).seed
    assert pretended.seeds == {seed}
    assert run(tmp_path, submitted("late"), resume=True, seed=None).seed == seed
    assert pretended.seeds == {seed}
    with pytest.raises(ValueError, match=rf"has seed {seed}: leave --seed out"):
        run(tmp_path, resume=True, seed=seed + 1)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"seed": "x"}', '{"seed": null}', None])
def test_results_whose_seed_is_lost_are_refused_with_a_remedy(pretended, tmp_path, text):
    run(tmp_path)
    (tmp_path / journal.RUN).unlink() if text is None else (tmp_path / journal.RUN).write_text(text)
    with pytest.raises(ValueError, match=r"run.json is missing or damaged.*name another folder"):
        run(tmp_path, resume=True)


def test_the_seed_is_fresh_and_stands_where_only_its_owner_reads_it(pretended, tmp_path):
    seeds = set()
    for name in ("one", "two", "three"):
        out = tmp_path / name
        before = os.umask(0)
        try:
            assert main(["grade", str(write_class(tmp_path / "class")), "--out", str(out), "--json", "--csv", "--junit",
                         "--exercises", EXERCISE]) == 0  # fmt: skip
        finally:
            os.umask(before)
        seed = json.loads((out / journal.RUN).read_text())["seed"]
        assert stat.S_IMODE((out / journal.RUN).stat().st_mode) == 0o600
        assert seed.bit_length() > 40
        told = [path for path in out.rglob("*") if path.is_file() and str(seed) in path.read_text()]
        assert told == [out / journal.RUN]
        seeds.add(seed)
    assert len(seeds) == 3
