"""Grade one submission as a job: plain data that can be sent anywhere, and tried again if the machine fails.

A job that failed through no fault of its learner never counts as a zero.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.mark.marking import compared, mark
from course_lib.classroom.read.submission_reader import Submission
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.remote import Fault, Worker
from course_lib.classroom.sandbox.stage import SandboxError
from course_lib.grading.page.catalogue import get

TRIES = 3  # per submission, when workers fail
SHORTEST = 1.0  # seconds that must remain for a second run when both runs share one time limit
SECOND = (
    "A first run of this answer was ended by time, memory or a signal; a second run, alone, passed. That one counts."
)
DIFFERS = (
    "A first run of this answer was ended by time, memory or a signal, and a second run, alone, earned other points. "
    "That one counts."
)


@dataclass(frozen=True)
class Job:
    """A submission to be graded, with everything needed to grade it on any machine."""

    key: str
    submission: Submission
    exercises: tuple[str, ...]
    seed: int
    sandbox: str
    quotas: Quotas


@dataclass(frozen=True)
class Done:
    """The result of a job: its marks, or why there are none.

    Fields:
        seconds: the time it took.
        peak: memory in bytes.
        doubted: exercises failed by time, memory or a signal; they run again alone before the failure counts.
    """

    key: str
    marked: GradedSubmission | None
    fault: str = ""
    seconds: float = 0.0
    peak: int = 0
    doubted: frozenset[str] = frozenset()


def do_job(job: Job, worker: Worker, closing: Callable[[], bool] = lambda: False, seconds: float | None = None) -> Done:
    """Grade a submission with a worker; after a fault, try again with a fresh one. seconds: as in `mark`.

    Any error in the grader itself is a fault as well: the rest of the class is graded without this submission.
    """
    torch.set_num_threads(1)
    began, fault = time.monotonic(), "the run was ended"
    for _ in range(TRIES):
        if closing():
            break
        worker.peak, worker.doubted = 0, set()
        less = {} if seconds is None else {"seconds": seconds}
        try:
            marked = mark(job.submission, [get(each) for each in job.exercises], worker, job.seed, **less)
            doubted = frozenset(worker.doubted)
            return Done(job.key, marked, seconds=time.monotonic() - began, peak=worker.peak, doubted=doubted)
        except Exception as error:
            fault = f"{error if isinstance(error, Fault) else repr(error)} ({TRIES} tries)"
        if not closing():
            try:
                worker.restart()
            except SandboxError as error:
                fault = f"{error} ({TRIES} tries)"
    return Done(job.key, None, fault)


def do_again(
    job: Job, first: Done, worker: Worker, closing: Callable[[], bool] = lambda: False, was_alone: bool = False
) -> Done:
    """Run the doubted exercises again, with no other submission running at the same time.

    The second run counts. If it earned different points, the result says so, and the report asks a person to check it.

    Args:
        was_alone: whether the same was true of the first run. Then the second one only gets the remaining time.
    """
    left = job.quotas.timeout - first.seconds if was_alone else None
    if left is not None and left < SHORTEST:
        return replace(first, doubted=frozenset())
    # All answers together decide which version of a notebook counts.
    whole = any(len(versions) > 1 for versions in compared(job.submission))
    names = tuple(name for name in job.exercises if whole or name in first.doubted)
    second = do_job(replace(job, exercises=names), worker, closing, left)
    if not second.marked:
        return second
    assert first.marked is not None  # doubted exercises have been marked
    results = {result.exercise_id: result for result in first.marked.results}
    for result in second.marked.results:
        before = results[result.exercise_id]
        differs = result.earned != before.earned or result.passed != before.passed
        note = ((SECOND,) if result.passed else (DIFFERS,)) if differs else ()
        results[result.exercise_id] = replace(result, sentences=(*result.sentences, *note))
    texts = {**first.marked.texts, **second.marked.texts}
    marked = replace(second.marked, results=tuple(results.values()), texts=texts, asks=first.marked.asks)
    seconds, peak = first.seconds + second.seconds, max(first.peak, second.peak)
    return Done(job.key, marked, seconds=seconds, peak=peak)
