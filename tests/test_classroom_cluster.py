"""A class on a Dask cluster of real processes: workers are killed and added, the scheduler is killed and comes back.

Most of these jobs are small stand-ins (`helping.py`, which the workers import), so that nobody waits for torch.
"""

import subprocess
import sys
import threading

import psutil
import pytest

from course_lib.__main__ import main
from course_lib.classroom.mark import cluster
from course_lib.classroom.mark.class_run import mark_class
from course_lib.classroom.read.submissions import find_submissions
from course_lib.grading.page.catalogue import EXERCISES
from tests.clusters import Cluster
from tests.small_class import (
    EARNS,
    EXERCISE,
    LIMITS,
    PATIENCE,
    SEED,
    lines,
    needs_bwrap,
    wait_until,
    write_class,
)

pytest.importorskip("distributed")

HELPING = '''\
"""Jobs that say that they have begun, and what they wait for."""
import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    key: str
    folder: str
    deadly: bool = False
    waits: bool = False


@dataclass(frozen=True)
class Done:
    key: str
    marked: str | None
    fault: str = ""
    doubted: frozenset = frozenset()


def on_worker(job, grader):
    with open(Path(job.folder, f"begun-{job.key}"), "a") as file:
        file.write(f"{os.getpid()}\\n")
    if job.deadly:
        os._exit(9)
    while job.waits and not Path(job.folder, "go on").exists():
        time.sleep(0.01)
    if job.key == "faulty":
        return Done(job.key, None, "the machine is on fire")
    return Done(job.key, f"marks of {job.key}")
'''


@pytest.fixture
def dask(tmp_path):
    (tmp_path / "helping.py").write_text(HELPING)
    dask = Cluster(tmp_path)
    try:
        dask.start()
        yield dask
    except BaseException:
        print((tmp_path / "log").read_text()[-5000:])
        raise
    finally:
        dask.close()


@pytest.fixture
def helping(tmp_path, monkeypatch):
    """The stand-in for grading, and jobs for it."""
    (tmp_path / "helping.py").write_text(HELPING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "helping", raising=False)
    import helping

    monkeypatch.setattr(cluster, "on_worker", helping.on_worker)
    return helping


class Run(threading.Thread):
    """`on_cluster` in a thread of its own, while a test does harm to the cluster."""

    def __init__(self, jobs, address):
        super().__init__(daemon=True)
        self.jobs, self.address = jobs, address
        self.done: dict[str, object] = {}
        self.start()

    def run(self):
        for done in cluster.on_cluster(self.jobs, self.address):
            assert done.key not in self.done, "nothing comes twice"
            self.done[done.key] = done

    def result(self) -> dict[str, object]:
        self.join(PATIENCE)
        assert not self.is_alive(), "it hangs"
        return {key: done.marked for key, done in self.done.items()}


def begun(folder, *jobs) -> list[int]:
    """The processes that began these jobs."""
    paths = [folder / f"begun-{job.key}" for job in jobs]
    return [int(pid) for path in paths if path.exists() for pid in path.read_text().split()]


@pytest.mark.proof
def test_no_job_is_lost_with_its_worker_and_a_worker_that_comes_later_helps(dask, helping, tmp_path):
    jobs = [helping.Job(f"{number}", str(tmp_path), waits=True) for number in range(6)]
    first = dask.add_worker()
    run = Run(jobs, dask.address)
    wait_until(lambda: begun(tmp_path, *jobs))
    first.kill()
    later = [dask.add_worker(), dask.add_worker()]
    wait_until(lambda: {each.pid for each in later} <= set(begun(tmp_path, *jobs)))
    (tmp_path / "go on").touch()
    assert run.result() == {job.key: f"marks of {job.key}" for job in jobs}


@pytest.mark.proof
def test_what_is_done_is_not_done_again_when_the_worker_that_did_it_is_killed(dask, helping, tmp_path):
    """Dask does again what a lost worker held, as long as somebody wants it: so the grader must let go of it."""
    from distributed import Client

    finished = [helping.Job(f"finished-{number}", str(tmp_path)) for number in range(3)]
    last = helping.Job("last", str(tmp_path), waits=True)
    old = dask.add_worker()
    run = Run([*finished, last], dask.address)
    wait_until(lambda: len(run.done) == 3)
    with Client(dask.address, set_as_default=False) as client:
        held = lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks]  # noqa: E731 (it is sent as it stands)
        wait_until(lambda: not any("finished" in key for key in client.run_on_scheduler(held)))
    old.kill()
    dask.add_worker()
    (tmp_path / "go on").touch()
    assert run.result() == {job.key: f"marks of {job.key}" for job in (*finished, last)}
    assert len(begun(tmp_path, *finished)) == 3


@pytest.mark.proof
def test_a_scheduler_that_is_killed_and_comes_back_loses_nothing(dask, helping, tmp_path):
    """Its workers end with it, as Dask's do; what they had done before is not done again."""
    finished = helping.Job("finished", str(tmp_path))
    jobs = [helping.Job(f"{number}", str(tmp_path), waits=True) for number in range(3)]
    old = dask.add_worker()
    run = Run([finished, *jobs], dask.address)
    wait_until(lambda: "finished" in run.done and begun(tmp_path, *jobs))
    dask.scheduler.kill()
    dask.scheduler.wait()
    old.kill()
    dask.start()
    dask.add_worker()
    (tmp_path / "go on").touch()
    assert run.result() == {job.key: f"marks of {job.key}" for job in (finished, *jobs)}
    assert len(begun(tmp_path, finished)) == 1


@pytest.mark.proof
def test_a_cluster_without_workers_is_told_with_a_remedy_and_waited_for(dask, helping, tmp_path, capsys):
    said = []

    def told() -> bool:
        said.append(capsys.readouterr().err)
        return "dask worker" in said[-1]

    job = helping.Job("patient", str(tmp_path))
    run = Run([job], dask.address)
    wait_until(told)
    dask.add_worker()
    assert run.result() == {"patient": "marks of patient"}
    said.append(capsys.readouterr().err)
    assert (
        "".join(said)
        == f"The scheduler at {dask.address} has no workers yet: start some with `dask worker {dask.address}`.\n"
    )


@pytest.mark.proof
def test_a_job_that_ends_every_worker_is_told_as_a_fault_and_the_others_are_done(dask, helping, tmp_path):
    deadly = helping.Job("deadly", str(tmp_path), deadly=True)
    jobs = [helping.Job(f"{number}", str(tmp_path)) for number in range(4)]
    run = Run([deadly, *jobs], dask.address)
    while run.is_alive() and len(dask.workers) < 12:
        dask.add_worker()
        wait_until(lambda: dask.workers[-1].poll() is not None or not run.is_alive())
    assert run.result() == {"deadly": None} | {job.key: f"marks of {job.key}" for job in jobs}
    assert "KilledWorker" in run.done["deadly"].fault
    assert len(begun(tmp_path, deadly)) <= 6, "it is not tried for ever"


@pytest.mark.proof
def test_a_fault_is_tried_three_times_and_told(dask, helping, tmp_path):
    jobs = [helping.Job(key, str(tmp_path)) for key in ("faulty", "well")]
    dask.add_worker()
    run = Run(jobs, dask.address)
    assert run.result() == {"faulty": None, "well": "marks of well"}
    assert run.done["faulty"].fault == "the machine is on fire"
    assert len(begun(tmp_path, jobs[0])) == 3


def test_a_worker_with_another_version_of_the_course_grades_nothing():
    with pytest.raises(RuntimeError, match=r"another version of the course .*not older.*install it there"):
        cluster.on_worker(None, "older")


@pytest.mark.parametrize(
    ("address", "reason"),
    [("tcp://127.0.0.1:1", "is it running?"), ("nonsense://x", "write it as tcp://host:8786")],
)
def test_a_scheduler_that_is_not_there_is_named_with_a_remedy(tmp_path, monkeypatch, capsys, address, reason):
    monkeypatch.setattr(cluster, "ANSWER", 1)
    arguments = ["grade", str(write_class(tmp_path / "class", "ada", "bert")), "--exercises", EXERCISE]
    assert main([*arguments, "--out", str(tmp_path / "out"), "--scheduler", address]) == 2
    said = capsys.readouterr().err
    assert f"--scheduler {address}" in said
    assert reason in said
    assert lines(tmp_path / "out") == []


@needs_bwrap
@pytest.mark.proof
def test_a_class_on_a_cluster_gets_the_same_marks_though_a_worker_is_killed(dask, tmp_path):
    """Two workers with sandboxes of their own; one is killed after the first result, and its sandbox goes with it."""
    names = ["ada", "bert", "dora", "emil", "fritz", "hans"]
    submissions = find_submissions([write_class(tmp_path / "class", *names)])
    expected = [EXERCISES[EXERCISE]]
    terms = {"quotas": LIMITS, "seed": SEED}
    workers = [dask.add_worker(), dask.add_worker()]
    killed = []

    def tell(done):
        assert done.marked, done.fault
        if not killed:
            victim = busy(workers)
            killed.extend(psutil.Process(victim.pid).children(recursive=True))
            victim.kill()

    outcome = mark_class(submissions, expected, tmp_path / "cluster", scheduler=dask.address, tell=tell, **terms)
    assert killed
    assert psutil.wait_procs(killed, timeout=60)[1] == []
    alone = mark_class(submissions, expected, tmp_path / "here", jobs=1, **terms)
    assert outcome.failed == {}
    assert outcome.marked == alone.marked
    assert {each.name: each.earned for each in outcome.marked} == {name: EARNS[name] for name in names}
    assert len(lines(tmp_path / "cluster")) == len({each.digest for each in submissions})


def busy(workers: list[subprocess.Popen]) -> subprocess.Popen:
    """The worker that has a sandbox; the last of them if there are several."""
    return [each for each in workers if psutil.Process(each.pid).children()][-1]
