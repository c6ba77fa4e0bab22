"""Hostile submissions: none gains a point, is lost, or harms the grader, its machine or the next learner.

The cases stand in `tests/grading/hostile/`, one file each, and bound themselves: at most 200 processes, 4 GiB, a minute
and 200 MB written. So a hole in the wall fails a test and not the machine. What a case breaks into, it tells by raising
what holds TOLD; what it leaves behind bears a mark, by which it is found and removed. Words in braces, such as {PORT},
lead a case to what it attacks.
"""

import builtins
import contextlib
import gc
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from course_lib.classroom.export import results
from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.mark.marking import mark
from course_lib.classroom.read.submissions import find_submissions
from course_lib.classroom.report import pages as report
from course_lib.classroom.report.terminal import terminal_table
from course_lib.classroom.sandbox import session
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.remote import Fault, Worker
from course_lib.classroom.sandbox.stage import IMAGE, LEVELS, SandboxError
from course_lib.grading.engine import PUBLIC_SEED, grade
from course_lib.grading.page.catalogue import get
from tests.grading import archives, corpus
from tests.grading.ground import NEIGHBOUR, Ground, filled

CASES = {case.name: case for case in corpus.cases(Path(__file__).parent / "grading" / "hostile")}
LIMITS = Quotas(cell_timeout=1, exercise_timeout=1, timeout=40, memory=1 << 30, tree=1 << 30)
session.GRACE = 1.0  # a stubborn answer is waited for no longer than that
SEED = 61_803_398
TOLD = "broken-out"
MOST_KEPT = 100_000  # characters of the results of one case
MOST_GROWTH = 400 << 20  # bytes that the grader may take more than before


# --- the grader, before and after -------------------------------------------------------------------------------------


def own_state() -> dict[str, object]:
    """Whatever a submission might have altered in the process that grades."""
    gc.collect()  # what earlier tests have left behind goes now, and not between two looks
    places = [torch, torch.Tensor, torch.nn.functional, np, np.ndarray, builtins, json, struct, socket, os, sys]
    places += [module for name, module in sys.modules.items() if name.startswith("course_lib.grading")]
    functions = {
        f"{place.__name__}.{name}": id(each) for place in places for name, each in vars(place).items() if callable(each)
    }
    umask = os.umask(0o022)
    os.umask(umask)
    return {
        "functions": functions,
        "modules": {name: id(module) for name, module in sys.modules.items()},
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": umask,
        "path": list(sys.path),
        "streams": (id(sys.stdout), id(sys.stderr)),
        "signals": {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)},
        "limits": [
            resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE)
        ],
        "torch": (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(), torch.initial_seed()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "children": len(psutil.Process().children(recursive=True)),
    }


GROWS = ("functions", "modules", "environment")  # something may be imported late; nothing may be exchanged
COUNTS = ("descriptors", "threads", "children")  # none may be left; fewer is what an earlier test has now given back
DYNAMO = "torch.manual_seed"  # torch wraps it itself when an optimizer brings in its compiler


def alteration(before: dict[str, object], after: dict[str, object]) -> str:
    for what, value in before.items():
        if what in GROWS:
            changed = [name for name in value if after[what].get(name) != value[name] and name != DYNAMO]
            if changed:
                return f"{what}: {changed[:5]}"
        elif after[what] > value if what in COUNTS else after[what] != value:
            return f"{what}: {value} became {after[what]}"
    return ""


def eventually(condition, seconds: float = 10.0) -> bool:
    """Does it become true? What is killed takes a moment to be gone."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(scope="module")
def ground():
    ground = Ground()
    yield ground
    for process in ground.marked_processes():
        with contextlib.suppress(psutil.Error):
            process.kill()
    for path in ground.marked_files():
        path.unlink(missing_ok=True)
    ground.close()


def docker_works() -> bool:
    """Is there a docker with the course's image?"""
    look = ["docker", "image", "inspect", os.environ.get("COURSE_IMAGE", IMAGE)]
    return bool(shutil.which("docker")) and subprocess.run(look, capture_output=True, check=False).returncode == 0


@pytest.fixture(
    scope="module", params=[pytest.param(level, marks=[pytest.mark.proof] * (level != "bwrap")) for level in LEVELS]
)
def worker(request):
    if request.param == "docker" and not docker_works():
        pytest.skip("no docker with the image of the course")
    try:
        with Worker(sandbox=request.param, quotas=LIMITS) as worker:
            graded(NEIGHBOUR, worker, Path(tempfile.gettempdir()))  # whatever is loaded late, is loaded now
            yield worker
    except SandboxError as error:
        pytest.skip(str(error))


def graded(case: corpus.Case, worker: Worker, folder: Path) -> GradedSubmission:
    with tempfile.TemporaryDirectory(prefix="handed-in-", dir=folder) as place:
        case.write(Path(place))  # a folder in a folder is one submission, whatever is in it
        [submission] = find_submissions([Path(place)])
        try:
            return mark(submission, [get(name) for name in case.expects], worker, SEED)
        except Fault as fault:
            worker.restart()
            pytest.fail(f"{case.name} is lost, for it looks like a fault of the machine: {fault}")


def hold_points(marked: GradedSubmission, case: corpus.Case) -> None:
    assert [result.exercise_id for result in marked.results] == list(case.expects), "every exercise has a result"
    earned = {result.exercise_id: result.earned for result in marked.results}
    feedback = "\n".join(map(repr, marked.results))[:5000]
    due = {name: get(name).points if name in case.earns else 0 for name in case.expects}
    assert earned == due, f"{feedback}\n{marked.troubles}"


def hold_text(marked: GradedSubmission) -> str:
    """What is kept of a submission can be written to any file, read back, and is no flood."""
    text = json.dumps(marked.as_dict(), ensure_ascii=False)
    assert text.encode("utf-8")
    assert GradedSubmission.from_dict(json.loads(text)) == marked
    assert len(text) < MOST_KEPT, f"{len(text):,} characters are kept: {text[:500]}"
    return text


# --- the tests --------------------------------------------------------------------------------------------------------


IN_EVERY_RUN = {  # one of each kind of attack, the quick ones; the proofs try all
    "calls_home": "the network: a wall that opens lets it out",
    "daemons": "processes that outlive their submission",
    "detects_the_grader": "behaves where it is watched",
    "equals_everything": "an object in place of a value: what is judged must be plain data",
    "exits_before_it_is_asked": "the exit code as evidence",
    "floods_the_output": "more text than anybody may keep",
    "forged_values": "speaks the grader's own protocol",
    "guesses_by_versions": "hands in a notebook for each guess",
    "injected_text": "marks of HTML, a terminal's codes and formulas on their way to a report",
    "kills_itself": "a worker that dies is replaced, and the next learner loses nothing",
    "patched_torch": "the judge's own tools, altered",
    "public_answers": "typed in for the cases that everybody sees",
    "reads_what_is_outside": "the teacher's files",
    "writes_outside": "and other people's folders",
}
ARCHIVES_IN_EVERY_RUN = ("bomb_by_ratio", "symlink_member", "zip_slip")
LIMIT = pytest.mark.xfail(strict=True, reason="seen beside the answer, not outside: see solutions/README.md")
EACH = [
    pytest.param(
        name,
        marks=[LIMIT] * ("limit" in case.touches) + [pytest.mark.proof] * (name not in IN_EVERY_RUN),
    )
    for name, case in CASES.items()
]
EACH_ARCHIVE = [
    name if name in ARCHIVES_IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.proof)
    for name in sorted(archives.ARCHIVES.keys() - archives.NOT_TAKEN)
]


@pytest.mark.parametrize("name", EACH)
def test_a_hostile_submission_gains_nothing_and_harms_nobody(name, worker, ground):
    walled = worker.sandbox != "none"
    if not walled and name not in IN_EVERY_RUN:
        pytest.skip("the judge and its limits are those behind the wall, where it is tried")
    case = filled(CASES[name], ground.words)
    before, peak, called = own_state(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(ground.calls)
    worker.peak = 0
    start = time.monotonic()

    marked = graded(case, worker, ground.folder)
    assert time.monotonic() - start < 2 * LIMITS.timeout + 30
    following = next((touch.removeprefix("then=") for touch in case.touches if touch.startswith("then=")), "")
    if following:
        next_case = filled(CASES[following], ground.words)
        hold_points(graded(next_case, worker, ground.folder), next_case)
    honest = graded(NEIGHBOUR, worker, ground.folder)

    hold_points(marked, case)
    text = hold_text(marked)
    hold_points(honest, NEIGHBOUR)
    assert eventually(lambda: not alteration(before, own_state())), alteration(before, own_state())
    assert ground.bystander.poll() is None
    if walled:
        assert TOLD not in text, text
        assert ground.secret not in text, text
        assert eventually(lambda: not ground.marked_processes()), "a process has got away"
        assert ground.canary.read_text(encoding="utf-8") == ground.secret
        assert ground.marked_files() == []
        assert ground.calls[called:] == []
    if "memory" in case.touches:
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) << 10 < MOST_GROWTH
    if "text" in case.touches:
        hold_reports(marked, ground.folder / "reports")
    ground.reset()


def hold_reports(marked: GradedSubmission, folder: Path) -> None:
    """No mark of HTML and no code of a terminal gets through to a report, and no formula to a table."""
    shutil.rmtree(folder, ignore_errors=True)
    paths = [*report.write_reports([marked], folder, titles={}, about={}), *results.write_csv([marked], folder)]
    paths += [*results.write_json([marked], folder), *results.write_junit([marked], folder)]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        codes = "\x00\x1b\x07\x08" + ("" if path.suffix == ".json" else "\u202e\u2066")  # JSON is read by programs
        assert not [code for code in codes if code in text], path
        if path.suffix in (".html", ".xml"):
            assert "<script>alert" not in text, path
            assert "<img" not in text, path
    table = terminal_table([marked])
    assert not [code for code in "\x00\x07\x08\r\u202e" if code in table]


@pytest.mark.parametrize("name", EACH_ARCHIVE)
def test_a_hostile_archive_gains_nothing_and_loses_no_honest_notebook(name, worker, ground, tmp_path):
    """Reading is the same at every level; what was read is graded at each."""
    before = own_state()
    found = find_submissions([archives.ARCHIVES[name](tmp_path, NEIGHBOUR.notebook_json)])
    expected = [get(each) for each in NEIGHBOUR.expects]
    marked = [mark(submission, expected, worker, SEED) for submission in found]
    due = expected if archives.EARNS[name] else []
    assert [each.earned for each in marked] == [sum(exercise.points for exercise in due)]
    assert due or marked[0].troubles, "what was refused is said"
    assert ground.secret not in hold_text(marked[0])
    assert eventually(lambda: not alteration(before, own_state())), alteration(before, own_state())


@pytest.mark.proof
def test_the_next_worker_leaves_nothing_behind(ground):
    """A worker that was attacked and closed has left no process, no descriptor and no folder."""
    before = own_state()
    try:
        with Worker(sandbox="bwrap", quotas=LIMITS) as worker:
            for name in ("daemons", "kills_itself"):
                graded(filled(CASES[name], ground.words), worker, ground.folder)
            stage = worker.stage.folder
    except SandboxError as error:
        pytest.skip(str(error))
    assert eventually(lambda: not alteration(before, own_state())), alteration(before, own_state())
    assert not ground.marked_processes()
    assert not stage.exists()


def test_typed_in_answers_would_pass_on_the_public_cases():
    """So that the case means something: on the cases that everybody sees, its answers are right."""
    case, names = CASES["public_answers"], {}
    exec("".join(json.loads(case.notebook_json)["cells"][0]["source"]), names)
    for name in case.expects:
        answer = names[get(name).answer_name]
        assert grade(name, answer, PUBLIC_SEED).passed
        assert not grade(name, answer, SEED).passed


def test_the_corpus_is_large():
    assert IN_EVERY_RUN.keys() <= CASES.keys()
    assert {*ARCHIVES_IN_EVERY_RUN} <= archives.ARCHIVES.keys()
    assert len(CASES) >= 60
    assert all(case.about.endswith(".") for case in CASES.values())
