"""A class run: what is written when, who grades what, and what becomes of a run that is killed, interrupted or damaged.

The first half grades with a worker that only pretends; the second with real processes.
"""

import contextlib
import io
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from course_lib.__main__ import main
from course_lib.classroom import class_run, command, jobs, journal, sandbox
from course_lib.classroom.class_run import expected_exercises, mark_class
from course_lib.classroom.graded import GradedSubmission
from course_lib.classroom.marking import mark
from course_lib.classroom.remote import Fault, Worker
from course_lib.classroom.sandbox import SandboxError
from course_lib.classroom.submission_reader import Submission
from course_lib.classroom.submissions import find_submissions
from course_lib.grading.catalogue import EXERCISES
from course_lib.grading.engine import verdict
from tests.grading import corpus
from tests.small_class import (
    ANSWERS,
    EARNS,
    ENDLESS,
    EXERCISE,
    LIMITS,
    SEED,
    environment,
    grader,
    lines,
    needs_bwrap,
    wait_until,
    write,
    write_class,
)

EXPECTED = [EXERCISES[EXERCISE]]
NAMES = list(ANSWERS)


# ------------------------------------------------------------------------------------------ a worker that only pretends
class Idle:
    """In place of a worker or a stage: nothing starts, and every restart is counted."""

    restarts = 0
    peak = 0

    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def restart(self):
        type(self).restarts += 1

    def close(self):
        pass


class Pretended:
    """In place of `mark`: full points for everybody, unless `wrong` has something to raise for a name."""

    def __init__(self):
        self.names: list[str] = []
        self.seeds: set[int] = set()
        self.wrong: dict[str, Exception] = {}

    def __call__(self, submission, expected, worker, seed):
        self.names.append(submission.name)
        self.seeds.add(seed)
        if submission.name in self.wrong:
            raise self.wrong[submission.name]
        results = tuple(verdict(exercise, "passed", [f"{submission.digest} is right."]) for exercise in expected)
        return GradedSubmission(submission.name, submission.digest, results, ("é\n\x1b[1m",))


@pytest.fixture
def pretended(monkeypatch):
    monkeypatch.setattr(class_run, "Stage", Idle)
    monkeypatch.setattr(class_run, "_Hurried", Idle)
    monkeypatch.setattr(class_run, "require_isolation", lambda worker: None)
    monkeypatch.setattr(Idle, "restarts", 0)
    monkeypatch.setattr(jobs, "mark", marks := Pretended())
    return marks


def submitted(*names: str) -> list[Submission]:
    return [Submission(name, (), {}, (), f"digest of {name}") for name in names or NAMES]


def run(folder: Path, submissions=None, **options):
    options = {"expected": EXPECTED, "quotas": LIMITS, "seed": SEED, "jobs": 1, **options}
    return mark_class(submissions or submitted(), options.pop("expected"), folder, **options)


# -------------------------------------------------------------------------------------------------------------- journal
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
    "quotas": {"quotas": replace(LIMITS, exercise=2)},
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
    with pytest.raises(ValueError, match=rf"has the seed {seed}: leave --seed out"):
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


# ------------------------------------------------------------------------------------------------------ jobs and faults
def test_equal_submissions_are_graded_once_and_keep_their_names(pretended, tmp_path):
    submissions = [replace(each, digest="the same") for each in submitted("zoe", "anna", "max")]
    submissions.insert(1, *submitted("other"))
    outcome = run(tmp_path, submissions)
    assert sorted(pretended.names) == ["other", "zoe"]
    assert [each.name for each in outcome.marked] == ["zoe", "other", "anna", "max"]
    assert len({each.results for each in outcome.marked}) == 2


def test_a_fault_of_the_machine_is_tried_again_and_never_a_zero(pretended, tmp_path):
    submissions = [*submitted(), replace(submitted("twin")[0], digest="digest of bert")]
    pretended.wrong = {"bert": Fault("the machine is on fire")}
    outcome = run(tmp_path, submissions)
    assert pretended.names.count("bert") == jobs.TRIES == Idle.restarts == 3
    assert set(outcome.failed) == {"bert", "twin"}
    assert "on fire (3 tries)" in outcome.failed["bert"]
    assert [each.name for each in outcome.marked] == [name for name in NAMES if name != "bert"]
    pretended.wrong = {}
    again = run(tmp_path, submissions, resume=True)
    assert pretended.names[-1] == "bert"
    assert (again.known, again.failed) == (len(NAMES) - 1, {})
    assert [each.name for each in again.marked] == [*NAMES, "twin"]


@pytest.mark.parametrize("error", [Fault("gone"), SandboxError("no bwrap"), TypeError("our mistake"), MemoryError()])
def test_no_error_over_one_submission_ends_the_class(pretended, tmp_path, monkeypatch, error):
    def restart(worker):
        raise SandboxError("it does not start any more")

    monkeypatch.setattr(Idle, "restart", restart)
    pretended.wrong = {"carl": error}
    outcome = run(tmp_path)
    assert set(outcome.failed) == {"carl"}
    assert "it does not start any more" in outcome.failed["carl"]
    assert len(outcome.marked) == len(NAMES) - 1


def test_what_could_not_be_graded_is_said_and_is_no_success(pretended, tmp_path, capsys):
    pretended.wrong = {"bert": Fault("the machine is on fire")}
    arguments = ["grade", str(write_class(tmp_path / "class")), "--out", str(tmp_path / "out"), "--json"]
    arguments += ["--exercises", EXERCISE]
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert "NOT GRADED, and not for a fault of its own: 'bert': the machine is on fire (3 tries)" in said.err
    assert "1 could not be graded by this machine; the same command with --resume grades them" in said.err
    table = said.out[said.out.index("learner") :]
    assert "bert" not in table
    assert "7 submissions · mean 100%" in table
    names = [each["name"] for each in json.loads((tmp_path / "out" / "results.json").read_text())["submissions"]]
    assert names == [name for name in NAMES if name != "bert"], "no zero in the results, either"
    pretended.wrong = {}
    assert main([*arguments, "--resume"]) == 0
    said = capsys.readouterr()
    assert "7 were graded before and stay as they are" in said.out
    assert "8 submissions · mean 100%" in said.out


# ----------------------------------------------------------------------------------------------------- what is expected
def about(*chapters: int) -> Submission:
    """A submission whose notebook checks an exercise of each chapter."""
    ids = {each.chapter: each.id for each in EXERCISES.values()}
    cells = [("code", f'check("{ids[chapter]}", None)') for chapter in chapters]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work.ipynb").write_text(corpus.notebook(cells))
        return find_submissions([Path(folder)])[0]


def chapters(submissions, *terms):
    return sorted({exercise.chapter for exercise in expected_exercises(submissions, *terms)})


def test_a_class_is_expected_to_do_what_at_least_half_of_it_is_about():
    assert chapters([about(3, 4), about(3, 4), about(3)]) == [3, 4]
    assert chapters([about(3), about(4)]) == [3, 4]


def test_one_odd_submission_changes_nothing_for_the_others():
    honest = [about(3), about(3), about(3), about(3, 10)]
    everything = about(*range(1, 16))
    assert chapters(honest) == chapters([*honest, everything]) == chapters([everything, *honest]) == [3]


def test_the_loose_notebooks_of_one_learner_count_as_one(tmp_path):
    """Three folders about chapter 2, beside four notebooks without a folder, which may be of one learner."""
    cell = corpus.notebook([("code", 'check("attention.softmax", softmax)')])
    for place in ("ada", "bo", "cy"):
        write(tmp_path / "class" / place, "softmax = 1\ncheck('attention.softmax', softmax)")
    loose = ["03_masks", "04_heads", "06_feed_forward", "07_normalization"]
    for prefix in ("", "dee_"):
        for name in loose:
            (tmp_path / "class" / f"{prefix}{name}.ipynb").write_text(cell.replace("attention.softmax", "nothing"))
        submissions = find_submissions([tmp_path / "class"])
        assert len(submissions) == 7
        assert chapters(submissions) == [3]
        for name in loose:
            (tmp_path / "class" / f"{prefix}{name}.ipynb").unlink()
    named = [replace(about(3 + i % 2), name=f"02_attention ({name})") for i, name in enumerate(("ada", "bo", "cy"))]
    assert chapters(named) == [3], "each of them counts"


def test_those_who_hand_in_nothing_do_not_take_the_exercises_from_the_others():
    nothing = [Submission(f"nobody {number}", (), {}, (), str(number)) for number in range(5)]
    assert chapters([*nothing, about(3), about(3)]) == [3]


def test_expected_exercises_are_those_asked_for_in_the_courses_order():
    submissions = [about(3)]
    assert chapters(submissions, [4, 1]) == [1, 4]
    ids = [each for each in EXERCISES if EXERCISES[each].chapter in (2, 4)][::-1][:2]
    assert [each.id for each in expected_exercises(submissions, (), ids)] == sorted(ids, key=list(EXERCISES).index)
    everything = expected_exercises(submissions, [EXERCISES[ids[0]].chapter], ids)
    assert len(everything) == len({each.id for each in everything}), "none twice"


def test_nothing_to_expect_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match="--chapters 2"):
        expected_exercises([Submission("nobody", (), {}, (), "")])


# ---------------------------------------------------------------------------------------------------------- the command
def refused(capsys, *arguments) -> str:
    """What the command says when it does nothing; it must be one line that begins with its name."""
    assert main(["grade", *map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return said.err


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        (["--chapters", "99"], ("--chapters 99", "1 to 15")),
        (["--exercises", "attention.softmx"], ("--exercises", "attention.softmax")),
        (["--jobs", "0"], ("--jobs 0", "at least 1")),
        (["--seconds", "-1"], ("--seconds -1", "at least 0")),
        (["--seconds", "nan"], ("--seconds nan", "at least")),
        (["--minutes", "0"], ("--minutes 0", "at least")),
        (["--memory", "inf"], ("--memory inf", "leave it out")),
        (["--resume"], ("--resume", "--out results/")),
        (["--json"], ("--json", "--out results/")),
        (["--canvas"], ("--canvas", "--out results/")),
        (["--moodle", "absent.csv", "--out", "OUT"], ("absent.csv is not a file",)),
        (["--out", "CLASS/results"], ("--out", "CLASS", "a folder outside")),
        (["--out", "CLASS"], ("--out", "a folder outside")),
        (["--out", "FILE"], ("FILE", "name another folder")),
        (["--out", "FILE/below"], ("FILE/below", "name another folder")),
        (["--plan", "0"], ("--plan 0",)),
        (["--plan", "5", "--jobs", "0"], ("--jobs 0",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_of_the_command_names_the_option_and_the_remedy(pretended, tmp_path, capsys, options, reasons):
    class_ = write_class(tmp_path / "class", "ada", "bert")
    (tmp_path / "file").touch()

    def placed(text):
        for word, path in (("CLASS", class_), ("OUT", tmp_path / "out"), ("FILE", tmp_path / "file")):
            text = text.replace(word, str(path))
        return text

    asked = [] if {"--chapters", "--exercises"} & set(options) else ["--exercises", EXERCISE]
    said = refused(capsys, class_, *map(placed, options), *asked)
    assert all(placed(reason) in said for reason in reasons), said
    assert pretended.names == []


@pytest.mark.parametrize("value", [-1, 0, float("nan")])
def test_a_limit_that_leaves_nothing_is_refused(value):
    with pytest.raises(ValueError, match=r"the limit total=.* must be positive"):
        replace(LIMITS, total=value)


def test_submissions_that_are_not_there_are_refused(capsys, tmp_path):
    assert "name the submissions" in refused(capsys)
    assert "is not there" in refused(capsys, tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    assert "holds no submission" in refused(capsys, tmp_path / "empty")


def test_the_plan_says_how_long_a_class_will_take(pretended, tmp_path, capsys):
    class_ = write_class(tmp_path / "class", "ada", "bert")
    assert main(["grade", str(class_), "--plan", "1500", "--jobs", "2", "--exercises", EXERCISE]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^1 exercises?, 2 workers \(bwrap\):$", said, flags=re.M)
    assert re.search(
        r"^1,500 submissions will take about \d[\d.]* (seconds|minutes|hours) on this machine\.$", said, re.M
    )
    assert len(pretended.names) == 6, "three for each worker"
    assert pretended.seeds == {0}, "a class's own seed is none of a plan's business"


def test_a_plan_from_a_sample_that_cannot_be_graded_is_refused(pretended, tmp_path, capsys):
    pretended.wrong = {f"{name} {number}": Fault("on fire") for name in ("ada", "bert") for number in range(2)}
    class_ = write_class(tmp_path / "class", "ada", "bert")
    said = refused(capsys, class_, "--plan", "9", "--jobs", "1", "--exercises", EXERCISE)
    assert "could not be graded: on fire" in said


def test_results_that_cannot_be_written_are_kept_as_marks(pretended, tmp_path, capsys):
    class_ = write_class(tmp_path / "class")
    arguments = ["grade", str(class_), "--out", str(tmp_path / "out"), "--json", "--exercises", EXERCISE]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report").write_text("in the way")
    assert main(arguments) == 2
    assert "Every mark is kept" in capsys.readouterr().err
    (tmp_path / "out" / "report").unlink()
    assert main([*arguments, "--resume"]) == 0
    assert len(pretended.names) == len(NAMES)


@pytest.mark.parametrize("resume", [False, True])
def test_what_was_not_taken_is_said_everywhere_and_is_no_success(pretended, tmp_path, capsys, resume):
    class_, out = write_class(tmp_path / "class", "ada", "hans"), tmp_path / "out"
    (class_ / "zoé.ipynb.txt").write_text("{}")
    (class_ / "yan").symlink_to(class_ / "ada")
    arguments = ["grade", str(class_), "--out", str(out), "--json", "--csv", "--exercises", EXERCISE]
    if resume:
        assert main(arguments) == 1
        capsys.readouterr()
        arguments.append("--resume")
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert "2 submitted, 2 not taken; expected: 1 exercise" in said.out
    assert "NOT TAKEN: yan is a symbolic link, which is not followed" in said.err
    assert "NOT TAKEN: zoé.ipynb.txt is neither a notebook" in said.err
    content = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert [each["name"] for each in content["submissions"]] == ["ada", "hans"]
    assert [each["name"] for each in content["not_taken"]] == ["yan", "zoé.ipynb.txt"]
    page = (out / "report" / "index.html").read_text(encoding="utf-8")
    assert "zoé.ipynb.txt" in page
    assert "symbolic link" in page
    assert "zoé.ipynb.txt,,,,not taken" in (out / "results.csv").read_text(encoding="utf-8")


def test_who_could_not_be_graded_stands_in_the_report(pretended, tmp_path):
    pretended.wrong = {"bert": Fault("the machine is on fire")}
    class_, out = write_class(tmp_path / "class"), tmp_path / "out"
    assert main(["grade", str(class_), "--out", str(out), "--json", "--exercises", EXERCISE]) == 1
    assert "bert</bdi> could not be graded" in (out / "report" / "index.html").read_text(encoding="utf-8")
    [left] = json.loads((out / "results.json").read_text(encoding="utf-8"))["not_taken"]
    assert left["name"] == "bert"
    assert "on fire" in left["why"]


class Gone(io.TextIOBase):
    """A console that takes `lines` lines and no more, in one encoding."""

    def __init__(self, encoding="utf-8", lines=None, error=BrokenPipeError):
        self._encoding, self.lines, self.error, self.text = encoding, lines, error, ""

    @property
    def encoding(self):
        return self._encoding

    def write(self, text):
        if self.lines is not None and self.text.count("\n") >= self.lines:
            raise self.error
        text.encode(self._encoding)
        self.text += text
        return len(text)


CONSOLES = {
    "latin-1": (Gone("latin-1"), Gone("latin-1")),
    "ascii": (Gone("ascii"), Gone("ascii")),
    "head": (Gone(lines=2), Gone()),
    "no line": (Gone(lines=0), Gone(lines=0)),
    "full disk": (Gone(lines=1, error=OSError(28, "No space left on device")), Gone()),
    "closed": (Gone(lines=0, error=ValueError("I/O operation on closed file")), Gone()),
    "none": (None, None),
}


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", CONSOLES)
def test_no_console_loses_the_reports(pretended, tmp_path, monkeypatch, name, resume):
    class_, out = write_class(tmp_path / "class", "ada", "hans"), tmp_path / "out"
    write(class_ / "李 Łukasz", ANSWERS["ada"])
    arguments = ["grade", str(class_), "--out", str(out), "--json", "--exercises", EXERCISE]
    if resume:
        assert main(arguments) == 0
        shutil.rmtree(out / "report")
        (out / "results.json").unlink()
        arguments.append("--resume")
    monkeypatch.setattr(sys, "stdout", CONSOLES[name][0])
    monkeypatch.setattr(sys, "stderr", CONSOLES[name][1])
    assert main(arguments) == 0
    assert len(json.loads((out / "results.json").read_text(encoding="utf-8"))["submissions"]) == 3
    assert len(list((out / "report" / "learners").iterdir())) == 3
    if name in ("latin-1", "ascii"):
        assert re.search("3 submissions . mean", CONSOLES[name][0].text)


def test_the_reports_are_written_before_the_table_is_shown(pretended, tmp_path, monkeypatch):
    class_, out = write_class(tmp_path / "class", "ada", "hans"), tmp_path / "out"
    there = []

    def table(*_):
        there.extend(path.name for path in out.rglob("*") if path.is_file())
        return ""

    monkeypatch.setattr("course_lib.classroom.terminal.terminal_table", table)
    assert main(["grade", str(class_), "--out", str(out), "--json", "--csv", "--exercises", EXERCISE]) == 0
    assert {"index.html", "ada.html", "hans.html", "results.json", "results.csv"} <= {*there}


def test_the_table_is_shown_although_the_gradebook_is_refused(pretended, tmp_path, capsys):
    class_, out = write_class(tmp_path / "class", "ada", "hans"), tmp_path / "out"
    (tmp_path / "book.csv").write_text("no,gradebook\n")
    options = ["--canvas", str(tmp_path / "book.csv"), "--exercises", EXERCISE]
    assert main(["grade", str(class_), "--out", str(out), *options]) == 2
    said = capsys.readouterr()
    assert "2 submissions" in said.out
    assert "export it in Canvas" in said.err
    assert (out / "report" / "index.html").exists()


def nested(folder: Path, depth: int) -> None:
    """Folders in folders, deeper than a path can say, with a file and a link in each."""
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("below", dir_fd=at)
        os.symlink("/", "link", dir_fd=at)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        below = os.open("below", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


@pytest.fixture
def deep(tmp_path):
    """A folder that is emptied in the end, whatever became of it: pytest could not clear such depths away either."""
    yield tmp_path
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)


def test_folders_of_any_depth_break_neither_this_run_nor_a_later_one(deep, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    left = deep / f"{sandbox.STAGE}{ended.pid}-x"
    nested(left, 1_500)
    beside = deep / "beside"
    nested(beside, 1)
    with sandbox.Stage() as stage:
        assert not left.exists(), "what a killed grader left behind"
        nested(stage.room(0) / "deep", 1_500)
    assert not stage.folder.exists(), "what a notebook of this run made"
    assert (beside / "below").is_dir()
    assert (beside / "file").exists()


# --------------------------------------------------------------------------------------------------------- real workers
def run_to_end(*arguments) -> subprocess.CompletedProcess:
    seen = subprocess.run(grader(*arguments), capture_output=True, text=True, env=environment(), check=False)
    assert "Traceback" not in seen.stderr, seen.stderr
    return seen


@contextlib.contextmanager
def running(*arguments, **options):
    """A grader, as a process; whatever it has started is gone afterwards, or the test fails."""
    process = subprocess.Popen(
        grader(*arguments, **options), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def family(process: subprocess.Popen) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert alive == []


def stages(pid: int) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"course-grading-{pid}-*"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The class, graded by two workers in one go: its folders, and what the command said."""
    folder = tmp_path_factory.mktemp("undisturbed")
    class_, out = write_class(folder / "class"), folder / "out"
    return class_, out, run_to_end(class_, "--out", out, "--seed", SEED, "--jobs", "2", "--json", "--csv")


@needs_bwrap
def test_everybody_gets_what_was_earned_and_nobody_is_lost(undisturbed):
    _, out, seen = undisturbed
    assert seen.returncode == 0, seen.stderr
    submissions = json.loads((out / "results.json").read_text())["submissions"]
    assert {each["name"]: each["earned"] for each in submissions} == EARNS
    assert {each["points"] for each in submissions} == {2}
    statuses = {each["name"]: each["results"][0]["status"] for each in submissions}
    assert statuses["hans"] == "unanswered"
    assert statuses["gerda"] == "failed"


@needs_bwrap
def test_the_table_is_on_stdout_and_the_progress_on_stderr(undisturbed):
    _, out, seen = undisturbed
    assert all(re.search(rf"^{name}\s+{points} of 2 ", seen.stdout, flags=re.M) for name, points in EARNS.items())
    assert f"wrote {out / 'results.json'}" in seen.stdout
    assert f"wrote {out / 'report' / 'index.html'}" in seen.stdout
    assert "grading" not in seen.stdout
    assert "grading: 100%" in seen.stderr
    assert "8/8" in seen.stderr


@needs_bwrap
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_real_console_without_our_letters_and_one_that_goes_away(undisturbed, tmp_path, encoding):
    """All is graded already: what remains is to write, and to say it."""
    class_, whole, _ = undisturbed
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    for name in ("results.json", "results.csv", "report/index.html"):
        (out / name).unlink()
    command = grader(class_, "--out", out, "--resume", "--json", "--csv")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, env=environment() | {"PYTHONIOENCODING": encoding}
    ) as process:
        if encoding == "ascii":
            process.stdout.close()  # as `| head` does
            said, errors = b"", process.stderr.read()
        else:
            said, errors = process.communicate()
    assert b"Traceback" not in errors
    assert b"BrokenPipe" not in errors
    assert process.returncode == 0
    assert (b"8 submissions \xb7 mean" in said) == (encoding == "latin-1")
    for name in ("results.json", "results.csv", "report/index.html"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


@needs_bwrap
def test_a_grader_that_is_killed_twice_and_resumed_gives_the_same_bytes(undisturbed, tmp_path):
    """With one worker the class is graded in its order; each time it is killed while a slow answer runs."""
    class_, whole, _ = undisturbed
    out = tmp_path / "out"
    arguments = [class_, "--out", out, "--seed", SEED, "--jobs", "1", "--json", "--csv"]
    for count, more in ((2, []), (5, ["--resume"])):
        with running(*arguments, *more) as process:
            wait_until(lambda count=count: len(lines(out)) >= count, process)
            started = family(process)
            process.kill()
        assert started
        assert_gone(started)
        known = len(lines(out))
        assert count <= known < len(NAMES)
        assert not (out / "results.json").exists()
        left = stages(process.pid)
    seen = run_to_end(*arguments, "--resume")
    assert seen.returncode == 0, seen.stderr
    assert f"{known} were graded before" in seen.stdout
    for name in ("results.json", "results.csv"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert not any(map(Path.exists, left)), "what a killed grader leaves behind, the next one clears away"


@needs_bwrap
def test_an_interrupt_keeps_what_was_finished_and_leaves_nothing_behind(tmp_path):
    class_, out = write_class(tmp_path / "class", "ada"), tmp_path / "out"
    write(class_ / "zoe", ENDLESS)
    with running(class_, "--out", out, "--jobs", "1", seconds=3000) as process:
        wait_until(lambda: len(lines(out)) == 1, process)
        started = family(process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Interrupted. What was finished is kept." in said
    assert [line["marked"]["name"] for line in lines(out)] == ["ada"]
    assert_gone(started)
    assert stages(process.pid) == []


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    """One real worker for what needs no more."""
    try:
        with Worker("bwrap", LIMITS, slot=30 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])) as worker:
            yield worker
    except SandboxError as error:
        pytest.skip(str(error))


def test_who_hands_in_nothing_has_zeros_for_all_that_is_expected(worker, tmp_path):
    [nobody] = find_submissions([write_class(tmp_path / "class", "hans")])
    expected = [each for each in EXERCISES.values() if each.chapter == 3]
    marked = mark(nobody, expected, worker, SEED)
    assert [result.exercise_id for result in marked.results] == [each.id for each in expected]
    assert marked.earned == 0
    assert marked.points == sum(each.points for each in expected) > 0
    assert {result.status for result in marked.results} == {"unanswered"}


def test_marks_stay_small_however_much_a_notebook_says(worker, tmp_path):
    loud = [
        "print('x' * 5_000_000)",
        "import warnings\nwarnings.warn('w' * 1_000_000)",
        "raise ValueError('e' * 5_000_000)",
        "def softmax(x, dim):\n    print('p' * 5_000_000)\n    raise ValueError('e' * 5_000_000)",
        "attention_memory = 'm' * 3_000_000",
        "import torch\n\ndef scaled_dot_product(*a, **k):\n    return torch.zeros(2_000_000), torch.zeros(2_000_000)",
        *("raise KeyError('k' * 100_000)" for _ in range(100)),
    ]
    text = json.loads(corpus.notebook([("code", source) for source in loud]))
    for cell in text["cells"]:
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "o" * 100_000}]
    place = tmp_path / "class" / "loud"
    place.mkdir(parents=True)
    (place / "answers.ipynb").write_text(json.dumps(text))
    [submission] = find_submissions([tmp_path / "class"])
    expected = [EXERCISES[each] for each in (EXERCISE, "attention.memory", "attention.scaled_dot_product")]
    marked = mark(submission, expected, worker, SEED)
    assert marked.earned == 0
    assert len(json.dumps(marked.as_dict())) < 100_000


def refuse_forks(worker: Worker) -> None:
    """The kernel lets no process of this worker fork any more."""
    for each in psutil.Process(worker.process.pid).children(recursive=True):
        owner = ["setpriv", f"--reuid={each.uids().real}", f"--regid={each.gids().real}", "--clear-groups"]
        command = ["prlimit", f"--pid={each.pid}", "--nproc=0:0"]
        subprocess.run([*(owner if os.geteuid() == 0 else []), *command], check=True)


@needs_bwrap
def test_a_worker_that_fails_is_replaced_and_the_answer_is_graded(tmp_path, monkeypatch):
    """The first is refused to fork, the second killed while an answer runs."""
    struck, forked, watched = [], class_run._Hurried.fork, class_run._Hurried._watch

    def fork(worker):
        if not struck:
            refuse_forks(worker)
            struck.append("refused")
        return forked(worker)

    def watch(worker):
        if struck == ["refused"]:
            worker.process.kill()
            struck.append("killed")
        watched(worker)

    monkeypatch.setattr(class_run._Hurried, "fork", fork)
    monkeypatch.setattr(class_run._Hurried, "_watch", watch)
    monkeypatch.setattr(class_run, "require_isolation", lambda worker: None)
    outcome = run(tmp_path / "out", find_submissions([write_class(tmp_path / "class", "carl")]))
    assert struck == ["refused", "killed"]
    assert outcome.failed == {}
    assert [each.earned for each in outcome.marked] == [2]


@needs_bwrap
def test_what_no_worker_can_be_started_for_is_graded_later(tmp_path, monkeypatch, capsys):
    """The folder that workers see is deleted while the first learner is graded, and the worker killed."""
    arguments = [
        "grade",
        str(write_class(tmp_path / "class", "carl", "dora")),
        "--out",
        str(tmp_path / "out"),
        "--json",
    ]
    arguments += ["--exercises", EXERCISE, "--jobs", "1"]
    watched = class_run._Hurried._watch

    def watch(worker):
        shutil.rmtree(worker.stage.folder, ignore_errors=True)
        worker.process.kill()
        watched(worker)

    with monkeypatch.context() as patch:
        patch.setattr(class_run._Hurried, "_watch", watch)
        patch.setattr(class_run, "require_isolation", lambda worker: None)
        assert main(arguments) == 1
    said = capsys.readouterr().err
    assert "'carl'" in said
    assert "'dora'" in said
    assert lines(tmp_path / "out") == []
    assert main([*arguments, "--resume"]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())["submissions"]
    assert {each["name"]: each["earned"] for each in results} == {"carl": 2, "dora": 2}


def test_without_bubblewrap_nothing_is_graded_and_the_remedy_is_said(tmp_path, monkeypatch, capsys):
    class_, out = write_class(tmp_path / "class"), tmp_path / "out"
    before = stages(os.getpid())
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refused(capsys, class_, "--out", out, "--exercises", EXERCISE)
    assert "bubblewrap is not installed" in said
    assert "--sandbox none" in said
    assert lines(out) == []
    assert stages(os.getpid()) == before


def test_where_nobody_listens_no_descriptor_is_lost():
    opened = len(os.listdir("/proc/self/fd"))
    console = command._Console(None)
    for _ in range(20):
        print("a word", file=console, flush=True)
    assert len(os.listdir("/proc/self/fd")) <= opened
