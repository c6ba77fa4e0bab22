"""What time, memory or a signal has failed is run again, alone, before it counts: a neighbour may have done it."""

import threading
import time
from dataclasses import replace

import pytest

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.mark import class_run, marking
from course_lib.classroom.mark.class_run import mark_class
from course_lib.classroom.mark.marking import DIFFERS, SECOND, mark
from course_lib.classroom.read.notebook_reader import Cell
from course_lib.classroom.read.submission_reader import Notebook, Submission
from course_lib.classroom.report.pages import write_reports
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.remote import Ended, Worker
from course_lib.classroom.sandbox.session import Session
from course_lib.grading.page.catalogue import EXERCISES
from tests.pretended_worker import WALL

IDS = ("attention.softmax", "attention.memory")
EXPECTED = [EXERCISES[each] for each in IDS]
LIMITS = Quotas(timeout=100)


class Idle:
    """In place of a worker or a stage."""

    def __init__(self, *_):
        self.peak, self.doubted = 0, set()

    def __enter__(self):
        return self

    def close(self):
        pass

    restart = close


class Crowded:
    """In place of `mark`: nobody gets on in company, if named; the first runs of all overlap, whatever the machine."""

    def __init__(self, *names: str, company: int, cures: bool = True):
        self.names, self.cures = names, cures
        self.together = threading.Barrier(company)
        self.lock, self.running = threading.Lock(), 0
        self.first: set[str] = set()
        self.second: list[tuple] = []  # name, exercises, how many ran at that time, seconds

    def __call__(self, submission, expected, worker, seed, seconds=None):
        with self.lock:
            again = submission.name in self.first
            self.first.add(submission.name)
            self.running += 1
            if again:
                self.second.append((submission.name, [each.id for each in expected], self.running, seconds))
        if not again:
            self.together.wait(60)
        fails = submission.name in self.names and not (again and self.cures)
        results = [each.verdict("passed", ["Right."]) for each in expected]
        if fails:
            results[0] = expected[0].verdict("failed", ["It ended the process in which it ran (signal 9)."])
            worker.doubted.add(expected[0].id)
        with self.lock:
            self.running -= 1
        return GradedSubmission(submission.name, submission.digest, tuple(results), ())


def graded(monkeypatch, folder, crowd: Crowded, count: int, workers: int):
    monkeypatch.setattr(class_run, "Stage", Idle)
    monkeypatch.setattr(class_run, "_Hurried", Idle)
    monkeypatch.setattr(class_run, "require_isolation", lambda worker: WALL)
    monkeypatch.setattr(marking, "mark", crowd)
    names = ("ada", "bert", "carl")[:count]
    submissions = [Submission(name, (), {}, (), f"digest of {name}") for name in names]
    outcome = mark_class(submissions, EXPECTED, folder, jobs=workers, quotas=LIMITS, seed=1)
    return {each.name: each for each in outcome.marked}


def test_who_failed_in_company_is_run_again_alone_and_what_passes_then_counts_and_is_noted(monkeypatch, tmp_path):
    crowd = Crowded("ada", "carl", company=3)
    marked = graded(monkeypatch, tmp_path, crowd, 3, 3)
    assert sorted(crowd.second) == [(name, [IDS[0]], 1, None) for name in ("ada", "carl")]
    assert all(result.passed for each in marked.values() for result in each.results)
    assert [result.exercise_id for result in marked["ada"].results] == list(IDS)
    assert [SECOND in result.sentences for result in marked["ada"].results] == [True, False]
    assert not any(SECOND in result.sentences for result in marked["bert"].results)


def test_what_fails_alone_too_stays_a_failure_and_reads_as_if_run_once(monkeypatch, tmp_path):
    """So that a class that is graded again, or gone on with, has the same bytes."""
    crowd = Crowded("ada", company=2, cures=False)
    marked = graded(monkeypatch, tmp_path, crowd, 2, 2)
    assert [name for name, *_ in crowd.second] == ["ada"]
    assert [result.status for result in marked["ada"].results] == ["failed", "passed"]
    assert marked["ada"].results[0].sentences[0] == "It ended the process in which it ran (signal 9)."
    assert SECOND not in marked["ada"].results[0].sentences


def test_who_was_alone_from_the_beginning_gets_what_is_left_of_the_time(monkeypatch, tmp_path):
    """A platform ends a submission at its own time: two runs together keep within it."""
    crowd = Crowded("ada", company=1)
    marked = graded(monkeypatch, tmp_path, crowd, 1, 1)
    [(_, _, _, seconds)] = crowd.second
    assert 0 < seconds < LIMITS.timeout
    assert marked["ada"].results[0].passed


def test_what_was_written_stays_and_of_versions_the_second_run_chooses_among_whole_ones(monkeypatch):
    cells = [(Cell(1, "code", f"attention_memory = {number}"),) for number in (4, 5)]
    books = tuple(Notebook(f"02_attention{end}.ipynb", cell) for end, cell in zip(("", " (1)"), cells))
    one, two = EXPECTED
    first = [one.verdict("failed", ["It took too long."]), two.verdict("passed", ["Right."])]
    again = [one.verdict("passed", ["Right."]), two.verdict("passed", ["Right."])]
    for notebooks, asked in ((books, list(IDS)), (books[:1], list(IDS[:1]))):
        job = marking.Job("key", Submission("ada", notebooks, {}, (), ""), IDS, 1, "bwrap", LIMITS)
        marked = GradedSubmission("ada", "", tuple(first), texts={"attention.why_scale": "Because."})
        expected: list[str] = []

        def run(submission, exercises, *_, expected=expected, **__):
            expected.extend(each.id for each in exercises)
            return GradedSubmission("ada", "", tuple(each for each in again if each.exercise_id in expected))

        monkeypatch.setattr(marking, "mark", run)
        second = marking.do_again(job, marking.Done("key", marked, doubted=frozenset(IDS[:1])), Idle()).marked
        assert expected == asked
        assert [SECOND in result.sentences for result in second.results] == [True, False]
        assert second.texts == {"attention.why_scale": "Because."}


def test_a_second_run_that_the_machine_fails_is_no_result(monkeypatch, tmp_path):
    crowd = Crowded("ada", company=1)
    job = marking.Job("key", Submission("ada", (), {}, (), ""), IDS, 1, "bwrap", LIMITS)
    first = marking.Done("key", crowd(job.submission, EXPECTED, Idle(), 1), doubted=frozenset(IDS[:1]))
    monkeypatch.setattr(marking, "mark", lambda *_, **__: 1 / 0)
    second = marking.do_again(job, first, Idle())
    assert second.marked is None
    assert "ZeroDivisionError" in second.fault


@pytest.fixture(scope="module")
def worker():
    quotas = Quotas(cell_timeout=1, exercise_timeout=1, timeout=100, memory=1 << 30, tree=1 << 30)
    with Worker("none", quotas, slot=54) as worker:
        yield worker


def softmax(body: str) -> str:
    return f"def softmax(x, dim):\n    import os, signal, time, torch\n    {body}"


DOUBTED = {
    "a signal": softmax("os.kill(os.getpid(), signal.SIGKILL)"),
    "time": softmax("while True: pass"),
    "memory of one process": softmax("return torch.ones(1 << 33)"),
    "a cell that was stopped": "while True: pass\n" + softmax("return x.softmax(dim)"),
    "a cell that was killed": "import os\nos.kill(os.getpid(), 9)\n" + softmax("return x"),
    "memory in a cell": "import torch\ntorch.ones(1 << 33)\n" + softmax("return x.softmax(dim)"),
    "memory of Python's own in a cell": "bytes(1 << 40)\n" + softmax("return x.softmax(dim)"),
    "a compiler": softmax("raise type('InductorError', (RuntimeError,), {})('C++ compile error')"),
    "no more processes": softmax("raise BlockingIOError(11, 'Resource temporarily unavailable')"),
    "no more threads": softmax('raise RuntimeError("can\'t start new thread")'),
    "no room for a file in a cell": "raise OSError(27, 'File too large')\n" + softmax("return x.softmax(dim)"),
    "a worker that died": softmax("raise RuntimeError('DataLoader worker (pid(s) 38) exited unexpectedly')"),
    "an end with an error": softmax("import ctypes; ctypes.CDLL(None)._exit(1)"),
}
CERTAIN = {
    "a wrong value": softmax("return x"),
    "an error": softmax("return x / nothing"),
    "an exit": softmax("import ctypes; ctypes.CDLL(None)._exit(0)"),
    "no answer": "x = 1",
}


ALIKE = ("no more processes", "no more threads", "a worker that died", "memory of Python's own in a cell")


@pytest.mark.parametrize(
    "what", [pytest.param(each, marks=[pytest.mark.proof] * (each in ALIKE)) for each in (*DOUBTED, *CERTAIN)]
)
def test_time_memory_and_signals_are_doubted_and_nothing_else(worker, what):
    cells = ("attention_memory = 4 * 2048 * 2048", {**DOUBTED, **CERTAIN}[what])
    notebook = Notebook("notebook.ipynb", tuple(Cell(i, "code", source) for i, source in enumerate(cells, start=1)))
    marked = mark(Submission("ada", (notebook,), {}, (), ""), EXPECTED, worker, 7)
    assert [result.passed for result in marked.results] == [False, True]
    assert worker.doubted == ({IDS[0]} if what in DOUBTED else set())


def test_what_is_not_asked_any_more_because_earlier_answers_ended_is_doubted_too(worker):
    """After so many ends the rest of a notebook is not asked: a zero for each, which a second run makes sure of."""
    cells = ["import os\nos.kill(os.getpid(), 9)"] * 9 + [
        softmax("return x.softmax(dim)"),
        "attention_memory = 4 * 2048 * 2048",
    ]
    notebook = Notebook("notebook.ipynb", tuple(Cell(i, "code", source) for i, source in enumerate(cells, start=1)))
    session = Session(worker, notebook, {}, {"softmax": True}, time.monotonic() + 100)
    before = session.doubts
    with pytest.raises(Ended, match="could not be run to the end"):
        session.read("softmax", 0, 1)
    assert session.doubts > before
    session.close()


@pytest.mark.parametrize(("alone", "noted"), [(1, DIFFERS), (0, None), (2, SECOND)])
def test_two_runs_that_differ_say_so_and_are_for_a_person_to_look_at(monkeypatch, tmp_path, alone, noted):
    """The second one counts, whether it is better or worse."""
    exercise = EXERCISES[IDS[0]]

    def marked(submission, expected, worker, seed, seconds=None):
        first = submission.name not in seen
        seen.add(submission.name)
        earned = 0 if first else alone
        worker.doubted = {exercise.id} if earned < exercise.points else set()
        status = "passed" if earned == exercise.points else "failed"
        result = replace(exercise.verdict(status, ["Said."]), part=earned)
        return GradedSubmission(submission.name, submission.digest, (result,), ())

    seen: set[str] = set()
    monkeypatch.setattr(marking, "mark", marked)
    job = marking.Job("key", Submission("ada", (), {}, (), ""), IDS[:1], 1, "bwrap", LIMITS)
    second = marking.do_again(job, marking.do_job(job, Idle()), Idle())
    [result] = second.marked.results
    assert result.earned == alone
    assert [each for each in result.sentences if each in (SECOND, DIFFERS)] == [noted] * (noted is not None)
    write_reports([second.marked], tmp_path, titles={}, about={})
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert ("Please look at these" in page) == (noted is not None)


def test_graded_feedback_speaks_of_no_kernel(worker):
    stubborn = softmax(
        "\n    ".join(["while True:", "    try:", "        while True: pass", "    except BaseException: pass"])
    )
    notebook = Notebook("notebook.ipynb", (Cell(1, "code", stubborn),))
    [result] = mark(Submission("ada", (notebook,), {}, (), ""), EXPECTED[:1], worker, 7).results
    assert "at the limit" in result.feedback
    assert "kernel" not in result.feedback
