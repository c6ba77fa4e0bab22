"""How fast is the grader, beside others, and does it lose nothing when it is killed?

    NBGRADER_PYTHON=elsewhere/bin/python python -m tests.class_speed --count 500 --compare 10

Draws a class (`tests/pupils.py`), grades it with `python -m course_lib grade`, and some of it with `nbgrader autograde`
and with one fresh process per submission (`tests/rivals.py`), all in one run on one machine. Then grades the class once
more, kills the grader with −9 twice on the way, resumes, and compares the results byte for byte. With --cluster it does
so once more on Dask workers, one of which is killed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from course_lib.bench import nbgrader
from course_lib.classroom.mark.journal import LINES
from course_lib.course.record import IN_MEMORY
from course_lib.grading import EXERCISES
from tests import pupils, rivals
from tests.clusters import Cluster

SEED = 20261120  # of the cases; in a real class it is secret
EVERY = 10.0  # seconds between two looks at the memory
PAUSE = 0.5  # seconds between two looks at how far the grader is
KILLS = (1 / 3, 2 / 3)  # of the class are graded when the grader is killed
MB = 1 << 20


@dataclass(frozen=True)
class Run:
    """One way to grade some submissions. peak: bytes of all processes together, the grader's own included."""

    name: str
    submissions: int
    seconds: float
    peak: int

    @property
    def each(self) -> float:
        return self.seconds / self.submissions


def watched(name: str, submissions: int, job: Callable[[], object]) -> Run:
    """Do a job, and look at the clock and at the memory of the processes that it starts."""
    peak, over = 0, threading.Event()

    def look():
        nonlocal peak
        while not over.wait(EVERY):
            peak = max(peak, memory())

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    began = time.monotonic()
    try:
        job()
    finally:
        seconds = time.monotonic() - began
        over.set()
        watcher.join()
    return Run(name, submissions, seconds, peak)


def memory() -> int:
    """Bytes of all processes below this one; what they share is counted once."""
    used = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            info = process.memory_full_info()
            used += getattr(info, "pss", info.rss)
    return used


# --- ours -------------------------------------------------------------------------------------------------------------


def grader(arguments: argparse.Namespace, handed_in: Path, out: Path, jobs: int, *more: str) -> subprocess.Popen:
    """The command of a teacher, begun."""
    command = [sys.executable, "-m", "course_lib", "grade", str(handed_in), "--out", str(out), "--json"]
    command += ["--seed", str(SEED), "--jobs", str(jobs), "--sandbox", arguments.sandbox]
    command += ["--chapters", *map(str, chapters(arguments)), *more]
    environment = os.environ | {"COURSE_PROGRESS": IN_MEMORY, "OMP_NUM_THREADS": "1"}
    output = (out.parent / f"{out.name}.log").open("ab")
    with output:
        return subprocess.Popen(command, cwd=rivals.ROOT, env=environment, stdout=output, stderr=output)


def chapters(arguments: argparse.Namespace) -> list[int]:
    known = sorted({exercise.chapter for exercise in EXERCISES.values()})
    return arguments.chapters or known


def grade(arguments: argparse.Namespace, handed_in: Path, out: Path, jobs: int, *more: str) -> None:
    finish(grader(arguments, handed_in, out, jobs, *more), out)


def finish(process: subprocess.Popen, out: Path) -> None:
    try:
        if process.wait():
            raise SystemExit(f"the grader ended with {process.returncode}; it says why in {out.parent}/{out.name}.log")
    finally:
        process.kill()


def killed_and_resumed(arguments: argparse.Namespace, handed_in: Path, out: Path) -> list[str]:
    """Grade a class with a grader that is killed twice; returns what was left running after a kill."""
    left = []
    for share in KILLS:
        enough = int(share * arguments.count)
        process = grader(arguments, handed_in, out, arguments.jobs, *(["--resume"] if out.exists() else []))
        while graded(out) < enough and process.poll() is None:
            time.sleep(PAUSE)
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        print(f"  killed after {graded(out)} of {arguments.count}", flush=True)
        _, alive = psutil.wait_procs(family, timeout=20)
        left += [f"{each.pid} {' '.join(each.cmdline())[:60]}" for each in alive]
        for each in alive:
            each.kill()
    grade(arguments, handed_in, out, arguments.jobs, "--resume")
    return left


def on_cluster(arguments: argparse.Namespace, handed_in: Path, out: Path) -> None:
    """Grade a class on a Dask cluster of two workers. When half is done, one is killed, and another one joins."""
    place = out.parent / "cluster"
    place.mkdir()
    cluster = Cluster(place)
    try:
        cluster.start()
        first, _ = cluster.add_worker(), cluster.add_worker()
        process = grader(arguments, handed_in, out, 1, "--scheduler", cluster.address)
        while graded(out) < arguments.count // 2 and process.poll() is None:
            time.sleep(PAUSE)
        first.kill()
        cluster.add_worker()
        print(f"  a worker was killed after {graded(out)} of {arguments.count}", flush=True)
        finish(process, out)
    finally:
        cluster.close()


def graded(out: Path) -> int:
    """Submissions whose results are on the disk."""
    path = out / LINES
    return path.read_bytes().count(b"\n") if path.exists() else 0


def results(out: Path) -> dict[str, list[dict]]:
    """By submission, the result of every exercise; not from the journal, where equal submissions share a line."""
    submissions = json.loads((out / "results.json").read_bytes())["submissions"]
    return {
        each["name"]: [{**result, "exercise_id": result["exercise"]} for result in each["results"]]
        for each in submissions
    }


def totals(out: Path) -> dict[str, int]:
    """Points by submission."""
    return {
        name: sum(result["points"] for result in graded if result["status"] == "passed")
        for name, graded in results(out).items()
    }


# --- all --------------------------------------------------------------------------------------------------------------


def compare(arguments: argparse.Namespace, drawn: Sequence[pupils.Pupil], folder: Path) -> list[Run]:
    """The same few submissions with our grader and the others."""
    few = drawn[: arguments.compare]
    class_ = folder / "few"
    for pupil in few:
        shutil.copytree(pupil.folder, class_ / pupil.name)
    runs = [watched("ours, one worker", len(few), lambda: grade(arguments, class_, folder / "ours_few", 1))]
    scratch = folder / "alone"
    alone: dict[str, dict] = {}

    def each_alone():
        for pupil in few:
            alone[pupil.name] = rivals.alone(pupil.folder, scratch)

    runs.append(watched("a process each, no wall", len(few), each_alone))
    ours = totals(folder / "ours_few")
    report("a process each", {name: sum(points.values()) for name, points in alone.items()}, ours)
    if nbgrader.nbgrader_python() is None:
        print(
            "nbgrader is not installed here: set NBGRADER_PYTHON, as course_lib/bench/nbgrader.py explains", flush=True
        )
        return runs
    numbers = tuple(f"{chapter:02}" for chapter in chapters(arguments))
    exercises = [path for path in sorted((rivals.ROOT / "exercises").glob("*.ipynb")) if path.name.startswith(numbers)]
    course = nbgrader.Nbgrader(folder / "nbgrader", exercises)
    for pupil in few:
        course.hand_in(pupil.name, sorted(pupil.folder.glob("*.ipynb")))
    theirs: dict[str, dict] = {}
    runs.append(watched("nbgrader autograde", len(few), lambda: theirs.update(course.autograde())))
    report("nbgrader", {name: sum(points.values()) for name, points in theirs.items()}, ours)
    return runs


def report(who: str, theirs: dict[str, float], ours: dict[str, int]) -> None:
    """Where two graders differ. nbgrader runs cells in their order: an answer below its check earns nothing there."""
    same = sum(theirs[name] == ours[name] for name in ours)
    print(f"points of {who}: as ours for {same} of {len(ours)} submissions", flush=True)
    for name in ours:
        if theirs[name] != ours[name]:
            print(f"  {name}: {theirs[name]:g} there, {ours[name]} ours", flush=True)


def table(runs: Sequence[Run]) -> str:
    first = runs[0]
    lines = [f"{'':<28}{'submissions':>12}{'s each':>9}{'a minute':>10}{'peak MB':>9}{'times ours':>12}"]
    for run in runs:
        numbers = f"{run.submissions:>12}{run.each:>9.2f}{60 / run.each:>10.1f}{run.peak / MB:>9.0f}"
        lines.append(f"{run.name:<28}{numbers}{run.each / first.each:>12.1f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.class_speed", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="submissions (default: %(default)s)")
    parser.add_argument("--compare", type=int, default=10, help="of these with the others, too (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="workers (default: %(default)s)")
    parser.add_argument("--sandbox", default="bwrap", help="of our grader (default: %(default)s)")
    parser.add_argument("--chapters", type=int, nargs="+", default=[], help="for a short run (default: all)")
    parser.add_argument("--no-kill", action="store_true", help="leave the second half away")
    parser.add_argument("--cluster", action="store_true", help="once more on a Dask cluster (needs `distributed`)")
    parser.add_argument(
        "--folder", type=Path, help="work here and leave everything there (default: a temporary folder)"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["COURSE_PROGRESS"] = IN_MEMORY
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            parser.error(f"{folder} is not empty")
        return measure(arguments, folder)


def measure(arguments: argparse.Namespace, folder: Path) -> int:
    handed_in, out = folder / "class", folder / "ours"
    again, clustered = folder / "ours_killed", folder / "ours_clustered"
    numbers = tuple(f"{chapter:02}" for chapter in chapters(arguments))
    drawn = pupils.make(handed_in, arguments.count, seed=1, chapters=numbers)
    print(
        f"{len(drawn)} submissions, {os.cpu_count()} cores, {arguments.jobs} workers ({arguments.sandbox})", flush=True
    )
    name = f"ours, {arguments.jobs} workers"
    runs = [watched(name, len(drawn), lambda: grade(arguments, handed_in, out, arguments.jobs))]
    points = totals(out)
    right = sum(points.get(pupil.name) == pupil.earned for pupil in drawn)
    print(f"points as drawn: {right} of {len(drawn)} submissions", flush=True)
    for pupil in drawn:
        if points.get(pupil.name) != pupil.earned:
            print(f"  {pupil.name}: {pupil.earned} drawn, {points.get(pupil.name)} graded", flush=True)
    found = results(out)
    told = [
        result["status"] == "unanswered"
        for pupil in drawn
        for result in found.get(pupil.name, ())
        if pupil.did.get(result["exercise_id"]) == pupils.OPEN
    ]
    print(f"left open, and told so: {sum(told)} of {len(told)} exercises", flush=True)
    if arguments.compare:
        runs += compare(arguments, drawn, folder)
    print(table(runs), flush=True)
    wrong = []
    if not arguments.no_kill:
        print("once more, killed twice:", flush=True)
        left = killed_and_resumed(arguments, handed_in, again)
        print("nothing was left running" if not left else "LEFT RUNNING: " + "; ".join(left))
        wrong += [*left, *different(out, again)]
    if arguments.cluster:
        print("once more, on a cluster of two workers:", flush=True)
        on_cluster(arguments, handed_in, clustered)
        wrong += different(out, clustered)
    return int(bool(wrong))


def different(out: Path, again: Path) -> list[str]:
    """Compare everything but what is told of the run: on a cluster each machine has a wall of its own."""
    one, other = (json.loads((each / "results.json").read_bytes()) for each in (out, again))
    same = {**one, "about": None} == {**other, "about": None}
    print(f"results.json is {'the same' if same else 'NOT THE SAME'}", flush=True)
    return [] if same else [again.name]


if __name__ == "__main__":
    sys.exit(main())
