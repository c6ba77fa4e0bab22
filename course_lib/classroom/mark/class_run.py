"""Grade a class: decide which exercises are expected, run the jobs, and collect the results.

The jobs run in threads over sandboxed workers on this machine (`Slots`), or on a Dask cluster (`cluster.py`). For
`grade --plan`, `tell_plan` measures a few submissions to estimate how long a class would take on this machine.
"""

import argparse
import contextlib
import re
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.mark.journal import Journal
from course_lib.classroom.mark.marking import Done, Job, do_again, do_job
from course_lib.classroom.read.platforms import COURSE_FILE
from course_lib.classroom.read.submission_reader import Submission, chapters_of
from course_lib.classroom.sandbox.probe import Wall, require_isolation, save_wall
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.remote import Fault, Worker
from course_lib.classroom.sandbox.stage import Stage
from course_lib.grading.kinds import Exercise
from course_lib.grading.page.catalogue import EXERCISES, get


@dataclass
class ClassResult:
    """The results of a class. failed: name of a submission -> why the machine could not grade it."""

    marked: list[GradedSubmission]
    failed: dict[str, str] = field(default_factory=dict)
    known: int = 0  # graded in an earlier run
    seed: int = 0
    peak: int = 0


def expected_exercises(
    submissions: Sequence[Submission], chapters: Sequence[int] = (), ids: Sequence[str] = ()
) -> list[Exercise]:
    """Return the exercises that every submission of a class is graded on, in the course's order.

    Without `chapters` and `ids`, these are the chapters that at least half of the submissions cover, so that no single
    learner changes them. Empty submissions are not counted. Submissions whose names differ only in the course's own
    part (ada_02_attention, ada_03_masks) may belong to one learner, and count as one.
    Errors: ValueError for a chapter without exercises, for an unknown id, and if nothing is expected.
    """
    known = {exercise.chapter for exercise in EXERCISES.entries.values()}
    if unknown := [chapter for chapter in chapters if chapter not in known]:
        those = ", ".join(map(str, sorted(known)))
        raise ValueError(f"--chapters {unknown[0]}: this chapter has no exercises; name some of {those}")
    try:
        chosen = {get(each).id for each in ids}
    except KeyError as error:
        raise ValueError(f"--exercises: {error.args[0]}") from error
    if not chapters and not ids:
        chapters = [chapter for chapter, share in shares(submissions).items() if share >= 0.5]
    asked = [each.id for each in EXERCISES.entries.values() if each.chapter in chapters or each.id in chosen]
    expected = [get(each) for each in asked]  # the other pages need not be read
    if not expected:
        why = next((f" ({each.name}: {each.all_troubles[0]})" for each in submissions if each.all_troubles), "")
        raise ValueError(f"no exercise is expected{why}: name chapters with --chapters, such as --chapters 2")
    return expected


def shares(submissions: Sequence[Submission]) -> dict[int, float]:
    """Return for each chapter with exercises the fraction of the class that covers it.

    Empty submissions are not counted. Submissions whose names differ only in the course's own part count as one.
    """
    known = {exercise.chapter for exercise in EXERCISES.entries.values()}
    whose: dict[str, set[int]] = defaultdict(set)
    for submission in submissions:
        whose[re.sub(COURSE_FILE, "", submission.name, flags=re.IGNORECASE)] |= chapters_of(submission)
    abouts = [about for about in whose.values() if about]
    counts = Counter(chapter for about in abouts for chapter in about)
    return {chapter: count / len(abouts) for chapter, count in counts.items() if chapter in known}


def mark_class(
    submissions: Sequence[Submission],
    expected: Sequence[Exercise],
    folder: Path,
    *,
    sandbox: str = "bwrap",
    jobs: int = 2,
    quotas: Quotas | None = None,
    resume: bool = False,
    seed: int | None = None,
    scheduler: str = "",
    begun: Callable[[], object] = lambda: None,
    tell: Callable[[Done], object] = lambda done: None,
    tell_wall: Callable[[Wall], object] = lambda wall: None,
) -> ClassResult:
    """Grade a class into a folder. Earlier results are kept, and equal submissions are graded once.

    Args:
        submissions, expected: from `find_submissions` and `expected_exercises`.
        folder: receives run.json and marks.jsonl.
        sandbox, quotas: as in `Worker`.
        jobs: the number of workers at a time.
        resume, seed: as in `Journal`.
        scheduler: the address of a Dask scheduler whose workers do the grading.
        begun: called once the folder is reserved for this run.
        tell: called after every submission.
        tell_wall: called once, before the first submission, with the measurements of the sandbox. On a cluster, each
            worker tests its own sandbox instead.

    Errors: ValueError and RuntimeError as in `Journal`; SandboxError if the sandbox does not work here.
    """
    quotas = quotas or Quotas()
    salvage: bool | str = all(submission.salvage for submission in submissions)
    if any(submission.unfinished for submission in submissions):
        salvage = "unfinished"
    with Journal(folder, expected, quotas, resume, seed, salvage) as journal:
        begun()
        ids = tuple(each.id for each in expected)
        todo = {}
        for submission in submissions:
            key = journal.key(submission)
            if key not in journal.marks and key not in todo:
                todo[key] = Job(key, submission, ids, journal.seed, sandbox, quotas)
        outcome = ClassResult(
            [], known=sum(journal.key(each) in journal.marks for each in submissions), seed=journal.seed
        )
        faults: dict[str, str] = {}

        def measured(wall: Wall) -> None:
            save_wall(wall, folder)
            tell_wall(wall)

        with contextlib.closing(_done(list(todo.values()), sandbox, jobs, quotas, scheduler, measured)) as all_done:
            for done in all_done:
                if done.marked:
                    journal.add(done.key, done.marked, seconds=round(done.seconds, 3))
                else:
                    faults[done.key] = done.fault
                outcome.peak = max(outcome.peak, done.peak)
                tell(done)
        outcome.marked = journal.of(submissions)
        outcome.failed = {each.name: faults[key] for each in submissions if (key := journal.key(each)) in faults}
    return outcome


def _done(
    jobs: list[Job],
    sandbox: str,
    slots: int,
    quotas: Quotas,
    scheduler: str,
    measured: Callable[[Wall], object],
) -> Generator[Done, None, None]:
    if not jobs:
        return
    if scheduler:
        from course_lib.classroom.mark.cluster import on_cluster  # needs an extra package

        yield from on_cluster(jobs, scheduler)
        return
    with Slots(sandbox, min(slots, len(jobs)), quotas, jobs[0].seed) as pool:
        measured(pool.wall)
        yield from pool.do(jobs)


class _Hurried(Worker):
    """A worker that stops immediately when the run ends, however long the notebook would still take."""

    ending: threading.Event

    def _watch(self) -> None:
        if self.ending.is_set():
            raise Fault("the run was ended")
        super()._watch()


class Slots:
    """Workers on this machine, one for each grading thread. seed: the run's seed."""

    def __init__(self, sandbox: str, count: int, quotas: Quotas, seed: int):
        if count < 1:
            raise ValueError(f"jobs={count} must be at least 1")
        self.sandbox, self.count, self.quotas, self.seed = sandbox, count, quotas, seed
        self.free: Queue[Worker] = Queue()
        self.all: list[Worker] = []
        self.closing = threading.Event()

    def __enter__(self) -> "Slots":
        self.stage = Stage()
        try:
            for slot in range(self.count):
                worker = _Hurried(self.sandbox, self.quotas, slot, self.stage)
                worker.ending, worker.seed = self.closing, self.seed
                self.all.append(worker)
                worker.__enter__()
                if slot == 0:
                    self.wall = require_isolation(worker)
                self.free.put(worker)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error) -> None:
        self.closing.set()
        for worker in self.all:
            worker.close()
        self.stage.close()

    def do(self, jobs: Sequence[Job]) -> Iterator[Done]:
        """Yield every job when it is done. Jobs failed by time, memory or a signal come last and run one by one."""
        doubted: dict[str, Done] = {}
        for done in self._each(jobs, do_job, self.count):
            if done.doubted:
                doubted[done.key] = done
            else:
                yield done

        def again(job: Job, worker: Worker, closing: Callable[[], bool]) -> Done:
            return do_again(job, doubted[job.key], worker, closing, was_alone=self.count == 1)

        yield from self._each([job for job in jobs if job.key in doubted], again, 1)

    def _each(self, jobs: Sequence[Job], do: Callable[..., Done], count: int) -> Iterator[Done]:
        with ThreadPoolExecutor(count) as pool:
            waiting = {pool.submit(self._one, do, job) for job in jobs}
            try:
                while waiting:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield future.result()
            except BaseException:
                self.closing.set()
                for future in waiting:
                    future.cancel()
                raise

    def _one(self, do: Callable[..., Done], job: Job) -> Done:
        worker = self.free.get()
        try:
            return do(job, worker, self.closing.is_set)
        finally:
            self.free.put(worker)


def tell_plan(arguments: argparse.Namespace, quotas) -> int:
    """Grade a few submissions and print an estimate for a class.

    The first submission of each worker also starts it and draws cases, which happens once per class. The others show
    the speed from then on.
    """
    from course_lib.classroom.read.submissions import find_submissions

    count, jobs = arguments.plan, arguments.jobs
    if count < 1:
        raise ValueError(f"--plan {count}: for how many submissions?")
    sample = arguments.submissions or [Path("solutions")]
    if not arguments.submissions and not sample[0].is_dir():
        raise ValueError("name some submissions as a sample, or run this at the top of the course's repository")
    found = find_submissions(sample)[:jobs]
    expected = expected_exercises(found, arguments.chapters, arguments.exercises)
    submissions = [_renamed(found[i % len(found)], i) for i in range(3 * jobs)]
    began, ends = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="course-plan-") as folder:
        outcome = mark_class(
            submissions,
            expected,
            Path(folder) / "plan",
            sandbox=arguments.sandbox,
            jobs=jobs,
            quotas=quotas,
            seed=0,
            tell=lambda done: ends.append(time.monotonic() - began),
        )
    for name, why in outcome.failed.items():
        raise RuntimeError(f"--plan: {name!r} could not be graded: {why}")
    first, each = ends[jobs - 1], (ends[-1] - ends[jobs - 1]) / (2 * jobs)
    print(f"{len(expected)} exercises, {jobs} workers ({arguments.sandbox}):")
    print(f"  {first:6.1f} s  until the first {jobs} are done, with drawing the cases")
    print(f"  {each:6.1f} s  for each further one, that is {60 / max(each, 1e-3):.0f} a minute")
    print(f"  {outcome.peak / 2**20 * jobs:6.0f} MB for the workers at their largest")
    print(f"{count:,} submissions will take about {_duration(first + each * max(0, count - jobs))} on this machine.")
    return 0


def _renamed(submission, number: int):
    """Return the same submission with one changed word, as if from another learner."""
    from dataclasses import replace

    return replace(submission, name=f"{submission.name} {number}", digest=f"{submission.digest} {number}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
