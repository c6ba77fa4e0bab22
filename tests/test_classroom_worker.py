"""A worker behind its wall: what it cannot do, what survives it, and what becomes of a notebook whose process ends."""

import json
import os
import time

import psutil
import pytest

from course_lib.classroom.mark.marking import mark
from course_lib.classroom.read.submission_reader import Submission
from course_lib.classroom.sandbox import isolation
from course_lib.classroom.sandbox.probe import require_isolation
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.remote import Worker
from course_lib.classroom.sandbox.session import Session
from course_lib.classroom.sandbox.stage import SandboxError
from course_lib.grading.engine import ready_trials
from course_lib.grading.page.catalogue import EXERCISES
from tests.one_notebook import LIMITS, asked, notebook


@pytest.fixture(scope="module")
def behind(worker_at):
    """A worker at the level bwrap, skipped where that does not work."""
    worker = worker_at("bwrap")
    try:
        require_isolation(worker)
    except SandboxError as error:
        pytest.skip(str(error))
    return worker


@pytest.fixture
def beside(worker_at):
    """A worker at the level none."""
    return worker_at("none")


@pytest.fixture(params=["behind", "beside"])
def worker(request):
    return request.getfixturevalue(request.param)


# --- the wall ---------------------------------------------------------------------------------------------------------


def test_behind_the_wall_there_is_one_user_one_empty_folder_and_no_other_process(behind):
    source = """
import os
found = {
    "user": os.getuid(),
    "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
    "tmp": [name for name in os.listdir("/tmp") if not name.startswith("notebook-")],
    "environment": sorted(os.environ.keys() & {"PATH", "HOME", "PYTEST_CURRENT_TEST", "COURSE_PROGRESS"}),
    "interfaces": [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]],
    "status": [line for line in open("/proc/self/status") if line.startswith(("CapEff", "NoNewPrivs", "Seccomp:"))],
}
"""
    found, troubles = asked(behind, source)
    assert troubles == ()
    assert found["user"] != 0
    assert found["processes"] == 2  # the first of the namespace, and this one
    assert found["tmp"] == []
    assert found["environment"] == ["HOME", "PATH"]
    assert found["interfaces"] == ["lo"]
    assert found["status"] == ["CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"]


@pytest.mark.parametrize(
    "attempt",
    {
        "a namespace": "import ctypes; found = ctypes.CDLL(None).unshare(0x10000000)",
        "memory without an owner": "import ctypes; found = ctypes.CDLL(None).memfd_create(b'x', 0)",
        "shared memory of System V": "import ctypes; found = ctypes.CDLL(None).shmget(1, 4096, 0o1600)",
        "looking into a process": "import ctypes; found = ctypes.CDLL(None).ptrace(16, 1, 0, 0)",
        "the machine around (AF_VSOCK)": "import ctypes; found = ctypes.CDLL(None).socket(40, 1, 0)",
        "the kernel's ciphers (AF_ALG)": "import ctypes; found = ctypes.CDLL(None).socket(38, 5, 0)",
        "the half of a number": "import ctypes; found = ctypes.CDLL(None).socket(ctypes.c_long(40 + (1 << 32)), 1, 0)",
    }.items(),
    ids=lambda pair: pair[0],
)
def test_the_kernel_refuses_what_no_notebook_needs(worker, attempt):
    assert asked(worker, attempt[1])[0] == -1


def test_the_library_is_there_without_its_catalogue(worker):
    source = """
import course_lib.attention, course_lib.grading
from pathlib import Path
try:
    import course_lib.grading.page.catalogue as found
except ImportError:
    found = [str(path) for path in Path(course_lib.__file__).parent.rglob("*catalogue*")]
    found += [str(path) for path in Path(course_lib.__file__).parent.glob("chapters/*/exercises")]
"""
    found, troubles = asked(worker, source)
    assert (found, troubles) == ([], ())


def test_level_none_reads_no_files_outside_where_the_kernel_has_landlock(beside, tmp_path):
    if not isolation.landlock_version():
        pytest.skip("this kernel has no Landlock")
    (tmp_path / "outside").write_text("secret")
    source = f"""
found = []
for attempt in (lambda: open({str(tmp_path / "outside")!r}).read(), lambda: open("/proc/1/environ").read(),
                lambda: open({str(tmp_path / "new")!r}, "w"), lambda: open({str(__file__)!r}).read()):
    try:
        attempt()
        found.append("open")
    except OSError:
        found.append("closed")
"""
    assert asked(beside, source)[0] == ["closed"] * 4
    assert not (tmp_path / "new").exists()


def test_the_first_process_of_the_namespace_is_as_powerless_and_cannot_be_written_to(behind):
    source = """
found = [line for line in open("/proc/1/status") if line.startswith(("CapEff", "CapBnd", "NoNewPrivs", "Seccomp:"))]
try:
    open("/proc/1/mem", "r+b")
    found.append("open")
except PermissionError:
    found.append("closed")
"""
    none = "0000000000000000\n"
    assert asked(behind, source)[0] == [
        f"CapEff:\t{none}",
        f"CapBnd:\t{none}",
        "NoNewPrivs:\t1\n",
        "Seccomp:\t2\n",
        "closed",
    ]


# --- one after the other ----------------------------------------------------------------------------------------------


def test_what_shows_and_asks_in_a_notebook_does_neither_where_a_class_is_graded(beside):
    source = """
from course_lib.live import explore, guess, show
found = [type(each).__name__ for each in (explore, guess, show, guess("no.such"))]
"""
    assert asked(beside, source) == (["Quiet"] * 4, ())


def test_a_question_to_the_learner_gets_an_empty_answer_in_a_cell_and_loses_nothing_below_it(beside):
    source = """
from getpass import getpass
import getpass as module
name = input("Who are you? ")
ask = input
found = [name, ask("And you? "), getpass("A password: "), module.getpass(prompt="Another: "), input()]
"""
    assert asked(beside, source) == ([""] * 5, ())


@pytest.mark.parametrize("call", ["input('k? ')", "ask()", "getpass()", "getpass_module.getpass('k? ')"])
def test_a_question_in_an_answer_is_an_error_that_says_why(beside, call):
    source = f"""
import getpass as getpass_module
from getpass import getpass
ask = input
ask()

def softmax(x, dim):
    return {call}
"""
    submission = Submission("ada", (notebook(source),), {}, (), "")
    [result] = mark(submission, [EXERCISES["attention.softmax"]], beside, 1).results
    said = " ".join(result.feedback.split())
    assert "RuntimeError: input() and getpass() cannot be used while an answer is being checked" in said


def test_nothing_of_a_notebook_is_left_for_the_next(worker):
    leave = """
import os, sys, torch
torch.softmax = None
sys.modules["planted"] = sys
os.environ["LEFT"] = "1"
for folder in ("/tmp", "/dev/shm", "."):
    try:
        open(os.path.join(folder, "left"), "w").write("x")
    except OSError:
        pass
found = 1
"""
    look = """
import glob, os, sys, torch
found = [torch.softmax is None, "planted" in sys.modules, "LEFT" in os.environ]
found += glob.glob("/tmp/left") + glob.glob("/dev/shm/left") + glob.glob("**/left")
"""
    assert asked(worker, leave)[0] == 1
    assert asked(worker, look)[0] == [False, False, False]


def test_a_process_that_a_notebook_left_running_is_ended_with_it(worker):
    mark_ = f"left-by-a-test-{os.getpid()}"
    source = f"""
import subprocess, sys
found = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", {mark_!r}], start_new_session=True).pid
"""
    assert asked(worker, source)[0]
    assert [each for each in psutil.process_iter(["cmdline"]) if mark_ in (each.info["cmdline"] or [])] == []


# --- a notebook whose process ends ------------------------------------------------------------------------------------


CRASH = "import ctypes; ctypes.string_at(0)"


@pytest.mark.proof
def test_what_depends_on_chance_is_the_same_in_every_worker(worker):
    """Memory that was never written, the order of a set, draws without a seed: a class is graded again alike."""
    lucky = """
import random
import numpy as np
import torch

def softmax(x, dim):
    spoilt = torch.full((1000, 1000), random.random())
    del spoilt
    return torch.empty_like(x)

def merge_pair(tokens, pair):
    return list(set(tokens))

attention_memory = np.random.rand() + torch.rand(1).item() + random.random()
"""
    submission = Submission("ada", (notebook(lucky),), {}, (), "")
    expected = [EXERCISES[id] for id in ("attention.softmax", "embeddings.merge_pair", "attention.memory")]
    first = mark(submission, expected, worker, 0)
    assert [result.status for result in first.results] == ["failed"] * 3
    with Worker(worker.sandbox, LIMITS, slot=52) as another:
        again = mark(submission, expected, another, 0)
    assert again == first
    assert "nan" in first.results[0].feedback


def test_a_cell_that_ends_the_process_is_left_out_and_named(worker):
    found, troubles = asked(worker, "found = 1", CRASH, "found += 1")
    assert found == 2
    assert len(troubles) == 1
    assert troubles[0].startswith("cell 2: It ended the process in which it ran (signal 11).")


@pytest.mark.proof
@pytest.mark.parametrize("worker", ["behind", pytest.param("beside", marks=pytest.mark.proof)], indirect=True)
def test_a_cell_that_never_ends_is_stopped_and_the_next_ones_run(worker):
    found, troubles = asked(
        worker, "while True:\n    try:\n        pass\n    except BaseException:\n        pass", "found = 3"
    )
    assert found == 3
    assert troubles == ("cell 1: stopped after 6 seconds",)


def test_an_answer_that_ends_its_process_costs_that_exercise_only(worker):
    source = (
        "def softmax(x, dim):\n    import ctypes\n    return ctypes.string_at(0)\n"
        "attention_memory = 4 * 2048 * 2048\n"
        "def attention_entropy(scores, d_k, scaled):\n    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    submission = Submission("one", (notebook(source),), {}, (), "digest")
    ids = ("attention.softmax", "attention.memory", "attention.saturation")
    marked = mark(submission, [EXERCISES[id] for id in ids], worker, seed=4)
    softmax, memory, saturation = marked.results
    assert [result.exercise_id for result in marked.results] == list(ids)
    assert not softmax.passed
    assert "ended the process in which it ran (signal 11)" in softmax.sentences[0]
    assert softmax.case.startswith("The case:")
    assert not saturation.passed
    assert "signal 9" in saturation.sentences[0]
    assert memory.status in ("passed", "failed")  # it was judged


def test_what_one_answer_leaves_behind_does_not_cost_the_next_one(worker):
    source = """
def softmax(x, dim):
    import os, threading
    threading.Thread.start = lambda thread: os.kill(os.getpid(), 9)
    return x
attention_memory = 4 * 2048 * 2048
"""
    session = Session(worker, notebook(source), {}, {"softmax": True, "attention_memory": False}, time.monotonic() + 60)
    try:
        assert len(session.run("softmax", 0, ready_trials(EXERCISES["attention.softmax"], 1)[:1], 3)) == 1
        assert session.read("attention_memory", 0, 3).value == 4 * 2048 * 2048
        assert session.crashes == 1
    finally:
        session.close()


def test_a_notebook_that_crashes_without_end_gives_up_and_says_so(worker):
    found, troubles = asked(worker, *[CRASH] * 12, "found = 1")
    assert found is None
    assert 8 <= len(troubles) <= 12


@pytest.mark.proof
def test_more_memory_than_allowed_ends_the_process_of_the_learner_only():
    with Worker("none", Quotas(cell_timeout=20, tree=1 << 30, memory=4 << 30), slot=52) as small:
        source = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(400 << 20)
        for i in range(0, len(held), 4096):
            held[i] = 1
        time.sleep(20)
        os._exit(0)
time.sleep(15)
"""
        found, troubles = asked(small, source, "found = 1")
        assert troubles == ("cell 1: It took more than 1 GiB of memory with all its processes.",)
        assert found == 1


FORGED = [
    {"cell": [1]},
    {"cell": {"a": 1}},
    {"found": {"found": True}, "open": [], "troubles": []},
    {"found": {"found": 10**9}, "open": [], "troubles": []},
    {"found": {"found": 1}, "open": [[1], {}, None], "troubles": [[], "\ud800"]},
    {"found": [], "open": 1, "troubles": None},
    {},
]


@pytest.mark.parametrize("forged", FORGED, ids=str)
def test_what_a_notebook_says_of_itself_is_read_or_refused(behind, forged):
    source = f"""
import os, struct, json
text = json.dumps({{**json.loads({json.dumps(json.dumps(forged))}), "arrays": 0}}).encode()
for fd in range(3, 30):
    try:
        os.write(fd, struct.pack(">I", len(text)) + text)
    except OSError:
        pass
found = 1
"""
    submission = Submission("one", (notebook(source, "attention_memory = 1"),), {}, (), "digest")
    marked = mark(submission, [EXERCISES["attention.memory"]], behind, seed=1)
    assert marked.earned == 0
    json.dumps(marked.as_dict()).encode()
