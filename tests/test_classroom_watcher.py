"""What a slot takes is measured by a thread of its own, and the time in which it had no core is nobody's fault."""

import os
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from course_lib.classroom.read.notebook_reader import Cell
from course_lib.classroom.read.submission_reader import Notebook
from course_lib.classroom.sandbox import resources
from course_lib.classroom.sandbox.protocol import Broken, Channel, frame
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.remote import Ended, Fault, Worker
from course_lib.classroom.sandbox.resources import Look, Meter, Watcher, family
from course_lib.classroom.sandbox.session import Session
from course_lib.classroom.sandbox.stage import Stage
from course_lib.grading.engine import ready_trials
from course_lib.grading.judge import limits
from course_lib.grading.page.catalogue import EXERCISES
from tests.small_class import needs_bwrap

MIB = 1 << 20


def own_clocks(monkeypatch, times, clocks=None) -> None:
    """What this thread's clocks say, one after the other. Those of an earlier test's watcher, which may still look, are
    the true ones: they would use these up."""
    here, true = threading.current_thread(), Meter._clocks

    def monotonic():
        return next(times) if threading.current_thread() is here else time.monotonic()

    def read(self, processes):
        return next(clocks) if threading.current_thread() is here else true(self, processes)

    monkeypatch.setattr(resources, "time", SimpleNamespace(monotonic=monotonic))
    if clocks:
        monkeypatch.setattr(Meter, "_clocks", read)


def opened(worker: Worker, source: str, **wanted: bool) -> Session:
    return Session(worker, Notebook("x.ipynb", (Cell(1, "code", source),)), {}, wanted, time.monotonic() + 100)


def eventually(condition, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        threading.Event().wait(0.02)
    return True


# --- what is measured -------------------------------------------------------------------------------------------------


@pytest.mark.proof
def test_files_in_memory_and_sockets_count_for_whoever_holds_them(worker_at):
    """No process owns them, and the machine has to find them all the same."""
    worker = worker_at("bwrap")
    source = (
        "import os, socket\n"
        "sockets = [socket.socketpair() for _ in range(30)]\n"
        "for folder, size in (('/tmp', 24 << 20), ('/dev/shm', 8 << 20)):\n"
        "    with open(folder + '/held', 'wb') as file:\n"
        "        os.posix_fallocate(file.fileno(), 0, size)\n"
        "found = 1"
    )
    meter = worker._watcher.meter
    seen = []
    for each in ("found = 1", source):
        session = opened(worker, each, found=False)
        assert session.found.answers == {"found": 1}, session.found.troubles
        seen.append(meter._outside(meter.family()[-1]))
        session.close()
    assert seen[0] < 8 * MIB
    assert 32 * MIB + 60 * 200_000 < seen[1] - seen[0] < 96 * MIB


def test_a_family_is_a_process_with_all_below_it():
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, os.fork().to_bytes(4, "big"))
        threading.Event().wait(60)
        os._exit(0)
    grandchild = int.from_bytes(os.read(read, 4), "big")
    if grandchild == 0:  # the grandchild wrote first: the number of the child's follows
        grandchild = int.from_bytes(os.read(read, 4), "big")
    try:
        assert family(child) == [child, grandchild]
        assert {child, grandchild} < set(family(os.getpid()))
    finally:
        os.kill(grandchild, 9)
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


def test_a_process_that_lets_nobody_look_at_its_memory_counts_with_all_of_it(monkeypatch):
    """A learner's process may forbid that; the grader, if it is not root, is then refused."""

    def refused(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    whole = resources._rss(os.getpid())
    assert 0 < resources._pss(os.getpid()) <= 1.1 * whole
    monkeypatch.setattr(Path, "read_text", refused)
    assert resources._pss(os.getpid()) >= 0.9 * whole


@pytest.mark.parametrize(
    ("passed", "computed", "delayed", "waited"),
    [
        (1.0, 1.0, 0.0, 0.0),  # it had a core of its own
        (1.0, 0.1, 0.9, 0.9),  # others had it
        (1.0, 0.0, 0.0, 0.0),  # it slept
        (1.0, 1.0, 28.0, 0.0),  # its own processes waited beside one that computed: that is its own affair
        (1.0, 2.0, 28.0, 0.0),  # or beside two
        (1.0, 0.5, 30.0, 0.5),
        (1.0, 0.2, 0.3, 0.3),  # the rest it slept
    ],
)
def test_time_without_a_core_is_taken_off_and_nothing_else(monkeypatch, passed, computed, delayed, waited):
    clocks = iter([(10.0, 5.0), (10.0 + computed, 5.0 + delayed)])
    times = iter([100.0, 100.0 + passed])
    own_clocks(monkeypatch, times, clocks)
    meter = Meter(os.getpid(), 1 << 30, apart=False)
    meter._count_waiting([])
    assert meter.waited == pytest.approx(waited)


def test_a_clock_that_is_slow_to_tell_what_was_waited_for_is_believed_later(monkeypatch):
    """The kernel adds it when a process gets its core, which may be several looks later."""
    clocks = iter([(0.0, 0.0), (0.0, 0.0), (0.0, 1.5), (0.0, 1.5)])
    times = iter([0.0, 1.0, 2.0, 3.0])
    own_clocks(monkeypatch, times, clocks)
    meter = Meter(os.getpid(), 1 << 30, apart=False)
    waited = []
    for _ in range(3):
        meter._count_waiting([])
        waited.append(meter.waited)
    assert waited == [0.0, 1.0, 1.5]


def test_what_one_child_held_is_not_taken_for_the_next_ones(monkeypatch):
    """The true memory is asked for now and then. What was said of a child that has been ended says nothing of another,
    whose processes may look as large, for they share what the worker has loaded."""
    held = {"rss": 400 * MIB, "pss": 300 * MIB}
    monkeypatch.setattr(resources, "_rss", lambda pid: held["rss"])
    monkeypatch.setattr(resources, "_pss", lambda pid: held["pss"])
    monkeypatch.setattr(Meter, "family", lambda self: [os.getpid()])
    meter = Meter(os.getpid(), 1 << 30, apart=False)
    assert meter.look().memory == 300 * MIB
    held |= {"rss": 1900 * MIB, "pss": 1800 * MIB}
    assert meter.look().memory == 1800 * MIB
    held |= {"rss": 400 * MIB, "pss": 300 * MIB}
    assert meter.look().memory == 300 * MIB


# --- what is done about it --------------------------------------------------------------------------------------------


GROWS = """
import os, threading
kept = []

def grow():
    while os.getpriority(os.PRIO_PROCESS, os.getpid()) != 19:  # until it is asked to, from outside
        threading.Event().wait(0.02)
    for _ in range(30):
        kept.append(bytearray(b"x" * (50 << 20)))
    threading.Event().wait(60)

def softmax(x, dim):
    threading.Thread(target=grow, daemon=True).start()
    return x

attention_memory = 4
"""


@needs_bwrap
@pytest.mark.proof
def test_memory_is_bounded_while_the_grader_judges_and_asks_nothing():
    with Worker("bwrap", Quotas(tree=1 << 30, memory=4 << 30), slot=56) as worker:
        session = opened(worker, GROWS, softmax=True, attention_memory=False)
        session.run("softmax", 0, ready_trials(EXERCISES["attention.softmax"], 1)[:1], 20)
        os.setpriority(os.PRIO_PROCESS, worker._watcher.meter.family()[-1], 19)
        assert eventually(lambda: worker.over), "it still holds what it holds"  # nobody waits for it meanwhile
        assert worker.over == "It took more than 1 GiB of memory with all its processes."
        with pytest.raises(Ended, match="more than 1 GiB"):
            worker._watch()
        assert session.read("attention_memory", 0, 20).value == 4  # the next answer is asked in a fresh child
        assert session.doubts > 0
        assert worker.over == ""
        session.close()


def test_a_watch_that_ended_is_a_fault_and_not_a_limit_less():
    def broken():
        raise ZeroDivisionError("no such file")

    class Broke:
        look = staticmethod(broken)

    worker = Worker.__new__(Worker)
    worker.over, worker._watcher = "", Watcher(Broke(), lambda: 0, lambda look, which: None)
    assert eventually(lambda: worker._watcher.error)
    with pytest.raises(Fault, match="the process that watches the memory has stopped: ZeroDivisionError"):
        worker._watch()
    worker._watcher.close()


@pytest.mark.parametrize(
    ("look", "said"),
    [
        (Look(2 << 30, 3), "It took more than 1 GiB of memory with all its processes."),
        (Look(0, 3, killed=1), "It took more than 1 GiB of memory with all its processes."),
        (Look(0, 90), "It started more than 40 processes."),
        (Look(1 << 29, 40), ""),
    ],
)
def test_what_is_too_much_ends_the_child_and_is_said_once(monkeypatch, look, said):
    worker = Worker("none", Quotas(tree=1 << 30), stage=object())
    ended = []
    monkeypatch.setattr(worker, "_end_child", lambda: ended.append(True) or setattr(worker, "_lives", False))
    worker._lives, worker._forks = True, 7
    worker._seen(look, 6)  # of the child before this one, which was looked at when it ended
    assert ended == []
    for _ in range(3):
        worker._seen(look, 7)
    assert worker.over == said
    assert len(ended) == bool(said)
    assert worker.peak == look.memory


def test_what_the_kernel_ended_for_its_memory_is_told_with_that_sentence_and_not_of_the_next_child(monkeypatch):
    class Counts:
        ended = 0

        def killed(self):
            return self.ended

    worker = Worker("none", Quotas(tree=1 << 30), stage=object())
    worker.group, worker.control, worker._lives = Counts(), SimpleNamespace(sendall=lambda what: None), True
    monkeypatch.setattr(worker, "_hear", lambda what, seconds: {"ended": 137, "forked": True})
    Counts.ended = 1  # and the grader is faster than the watcher
    assert worker._end_child() == 137
    assert worker.over == "It took more than 1 GiB of memory with all its processes."
    monkeypatch.setattr(socket, "send_fds", lambda *_: None)
    worker._forked(SimpleNamespace(fileno=lambda: 0))
    worker._seen(Look(0, 3, killed=1), worker._forks)
    assert worker.over == ""


# --- whose time it is -------------------------------------------------------------------------------------------------


def test_a_channel_waits_by_its_own_clock_and_not_beyond_the_latest():
    ours, theirs = socket.socketpair()
    now, looks = [0.0], []

    def idle():
        looks.append(1)
        now[0] += 0.3

    channel = Channel(ours.detach(), theirs.fileno(), True, idle)
    channel.clock = lambda: now[0]
    with pytest.raises(Broken, match="too slow"):
        channel.receive(0.5)
    assert len(looks) == 2  # however long that took by the clock on the wall
    channel.latest = time.monotonic()
    with pytest.raises(Broken, match="too slow"):
        channel.receive(1000)
    theirs.sendall(frame({"x": 1}))
    channel.latest = time.monotonic() + 60
    assert channel.receive(1000)[0]["x"] == 1
    channel.close()


def test_an_answer_that_waits_for_a_core_is_not_out_of_time(monkeypatch):
    """It ends only when it has been looked at more often than its limit by the clock on the wall has room for."""
    looked, enough = [], threading.Event()

    def waited(worker):
        looked.append(worker)
        if len(looked) > 8:
            enough.set()
        return 60.0  # of a minute and a moment

    monkeypatch.setattr(limits, "_seconds_waited", waited)
    assert limits.limited(lambda: enough.wait(60), 0.05) == "done"


def test_the_kernel_tells_how_long_a_thread_waited_for_a_core():
    here = threading.current_thread()
    if not Path("/proc/self/schedstat").exists():
        assert limits._seconds_waited(here) == 0
        pytest.skip("this kernel does not tell")
    before = limits._seconds_waited(here)
    assert 0 <= before <= limits._seconds_waited(here) < 3600
    assert limits._seconds_waited(threading.Thread()) == 0  # which has not begun


SPINS = """
import os
for _ in range(12):
    if os.fork() == 0:
        os.setsid()
        while True:
            pass
found = 1
"""
COMPUTES = """
import time

def softmax(x, dim):
    began = time.thread_time()
    while time.thread_time() - began < 0.25:
        pass
    return x
"""


@needs_bwrap
@pytest.mark.proof
def test_an_honest_answer_does_not_meet_its_limit_beside_a_neighbours_spinning_processes():
    """Each in a session of its own, so that the kernel gives each as much as the whole neighbour."""
    with Stage() as stage, Worker("bwrap", slot=57, stage=stage) as one, Worker("bwrap", slot=58, stage=stage) as other:
        honest = opened(one, COMPUTES, softmax=True)
        spinning = opened(other, SPINS, found=False)
        try:
            trials = ready_trials(EXERCISES["attention.softmax"], 1)[:1]
            [outcome] = honest.run("softmax", 0, trials, 0.3)
            assert outcome.failure is None
            assert honest.doubts == 0
        finally:
            spinning.close()
            honest.close()
