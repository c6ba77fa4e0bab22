"""A class graded by real processes, which are killed, interrupted, refused and resumed."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest

from course_lib.__main__ import main
from course_lib.classroom.mark import class_run
from course_lib.classroom.mark.marking import mark
from course_lib.classroom.read.submissions import find_submissions
from course_lib.classroom.sandbox.remote import Worker
from course_lib.grading.page.catalogue import EXERCISES
from tests.grading import corpus
from tests.pretended_worker import NAMES, WALL, run
from tests.small_class import (
    EARNS,
    ENDLESS,
    EXERCISE,
    SEED,
    environment,
    grader,
    lines,
    needs_bwrap,
    refused,
    wait_until,
    write,
    write_class,
)


def run_to_end(*arguments) -> subprocess.CompletedProcess:
    seen = subprocess.run(grader(*arguments), capture_output=True, text=True, env=environment(), check=False)
    assert "Traceback" not in seen.stderr, seen.stderr
    return seen


def listen() -> None:
    """Hear Ctrl-C, as a program in a terminal does: what a shell starts in the background is born deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def running(*arguments, **options):
    """A grader, as a process; whatever it has started is gone afterwards, or the test fails."""
    process = subprocess.Popen(
        grader(*arguments, **options),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen,
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
@pytest.mark.proof
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
@pytest.mark.proof
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
@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_a_run_keeps_what_was_finished_and_leaves_nothing_behind(tmp_path, number):
    class_, out = write_class(tmp_path / "class", "ada"), tmp_path / "out"
    write(class_ / "zoe", ENDLESS)
    with running(class_, "--out", out, "--jobs", "1", seconds=3000) as process:
        wait_until(lambda: len(lines(out)) == 1, process)
        started = family(process)
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + number, said
    assert f"Ended by {number.name}. 1 result is kept in {out}: the same command with --resume goes on." in said
    assert "Traceback" not in said
    assert [line["marked"]["name"] for line in lines(out)] == ["ada"]
    assert_gone(started)
    assert stages(process.pid) == []


@pytest.fixture
def worker(worker_at):
    """One real worker for what needs no more."""
    return worker_at("bwrap")


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
@pytest.mark.proof
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
    monkeypatch.setattr(class_run, "require_isolation", lambda worker: WALL)
    outcome = run(tmp_path / "out", find_submissions([write_class(tmp_path / "class", "carl")]))
    assert struck == ["refused", "killed"]
    assert outcome.failed == {}
    assert [each.earned for each in outcome.marked] == [2]


@needs_bwrap
@pytest.mark.proof
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
        patch.setattr(class_run, "require_isolation", lambda worker: WALL)
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
